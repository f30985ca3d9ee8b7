/* fuzz_handshake.c - libFuzzer target: a handshake with an attacker between the two sides.
 *
 * The target shakes hands with an honest peer that has the same token. For each piece of the peer's bytes the
 * input says whether it is forwarded, changed, dropped, or mixed with other bytes. The target may return DONE
 * only if it received exactly the peer's bytes, and may read no byte after them. */
#define _GNU_SOURCE /* SOCK_NONBLOCK with socketpair */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/auth.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A socket pair of one side: the handshake uses [0], the attacker uses [1]. */
typedef struct side {
    lk_handshake shake;
    int fd[2];
} side;

static void side_open(side *s, const lk_token *token, bool server)
{
    uint8_t greeting[LK_GREETING_BYTES];
    memset(greeting, server, sizeof greeting);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s->fd) != 0)
        abort();
    lk__handshake_init(&s->shake, token, server, greeting);
}

static void side_close(side *s)
{
    close(s->fd[0]);
    if (s->fd[1] >= 0)
        close(s->fd[1]);
}

static size_t take(int fd, uint8_t *bytes, size_t count)
{
    ssize_t n = recv(fd, bytes, count, MSG_DONTWAIT);
    return n > 0 ? (size_t)n : 0;
}

/* A side that has failed reads no more bytes. */
static size_t give(int fd, const uint8_t *bytes, size_t count)
{
    ssize_t n = send(fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    return n > 0 ? (size_t)n : 0;
}

static void step_both(side *target, side *peer)
{
    uint8_t bytes[LK_HANDSHAKE_BYTES];
    lk__handshake_step(&target->shake, target->fd[0]);
    size_t count = take(target->fd[1], bytes, sizeof bytes);
    give(peer->fd[1], bytes, count);
    lk__handshake_step(&peer->shake, peer->fd[0]);
}

/* Moves one piece of at most 64 bytes, as the input at *data says. Returns the number of bytes that reached
 * the target. */
static size_t piece(side *target, side *peer, const uint8_t **data, const uint8_t *end)
{
    enum { PASS, CHANGE, DROP, INSERT };
    uint8_t bytes[64];
    int what = **data & 3;
    size_t count = (size_t)(**data >> 2) + 1;
    *data += 1;
    if (what == INSERT) {
        count = count < (size_t)(end - *data) ? count : (size_t)(end - *data);
        memcpy(bytes, *data, count);
        *data += count;
    } else {
        count = take(peer->fd[1], bytes, count);
        if (what == CHANGE && count > 0 && *data < end)
            bytes[count - 1] ^= *(*data)++;
    }
    return what == DROP ? 0 : give(target->fd[1], bytes, count);
}

static void check(const side *target, const side *peer, size_t given)
{
    const lk_handshake *shake = &target->shake;
    if (shake->server && given < LK_MAGIC_BYTES && shake->sent_bytes > 0)
        abort();
    if (shake->got_bytes > LK_HANDSHAKE_BYTES || shake->sent_bytes > LK_HANDSHAKE_BYTES)
        abort();
    if (shake->state != LK_HANDSHAKE_STATE_DONE)
        return;
    if (memcmp(shake->got, peer->shake.sent, LK_HANDSHAKE_BYTES) != 0)
        abort();
    uint8_t behind[8192];
    if (take(target->fd[0], behind, sizeof behind) != given - LK_HANDSHAKE_BYTES)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    static lk_token token;
    if (lk__token_from_text("fuzz", &token) != LK_OK)
        abort();
    const uint8_t *end = data + size;
    bool server = *data++ & 1;
    side target, peer;
    side_open(&target, &token, server);
    side_open(&peer, &token, !server);
    size_t given = 0;
    step_both(&target, &peer);
    while (data < end) {
        given += piece(&target, &peer, &data, end);
        step_both(&target, &peer);
        if (server && given < LK_MAGIC_BYTES && target.shake.sent_bytes > 0)
            abort();
    }
    close(target.fd[1]);
    target.fd[1] = -1;
    errno = 0;
    if (lk__handshake_step(&target.shake, target.fd[0]) == LK_HANDSHAKE_STATE_PENDING) {
        fprintf(stderr, "it waits for more from a closed connection: got %zu, sent %zu, %s\n", target.shake.got_bytes,
                target.shake.sent_bytes, strerror(errno));
        abort();
    }
    check(&target, &peer, given);
    side_close(&target);
    side_close(&peer);
    return 0;
}
