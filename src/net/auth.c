/* auth.c - the handshake that proves a token. */
#include "net/auth.h"

#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "net/socket.h"

static const uint8_t magic[LK_MAGIC_BYTES] = {'L', 'K', 'S', 'T', 'E', 'P', '\n', LK_WIRE_VERSION};
enum { VERSION_AT = LK_MAGIC_BYTES - 1 };

void lk__handshake_init(lk_handshake *shake, const lk_token *token, bool server,
                        const uint8_t greeting[LK_GREETING_BYTES])
{
    *shake = (lk_handshake){.token = *token, .server = server, .state = LK_HANDSHAKE_STATE_PENDING};
    memcpy(shake->sent, magic, LK_MAGIC_BYTES);
    randombytes_buf(shake->sent + LK_MAGIC_BYTES, LK_NONCE_BYTES);
    memcpy(shake->sent + LK_MAGIC_BYTES + LK_NONCE_BYTES, greeting, LK_GREETING_BYTES);
}

/* Computes the proof of one role. It differs between the roles, so that a proof cannot be sent back, and
 * depends on both hellos, so that neither can be changed or reused. */
static void prove(const lk_handshake *shake, bool server, uint8_t proof[LK_PROOF_BYTES])
{
    static const char role[2][24] = {"lockstep proof, client", "lockstep proof, server"};
    crypto_generichash_state hash;
    crypto_generichash_init(&hash, shake->token.key, sizeof shake->token.key, LK_PROOF_BYTES);
    crypto_generichash_update(&hash, (const uint8_t *)role[server], sizeof role[server]);
    crypto_generichash_update(&hash, shake->server ? shake->got : shake->sent, LK_HELLO_BYTES);
    crypto_generichash_update(&hash, shake->server ? shake->sent : shake->got, LK_HELLO_BYTES);
    crypto_generichash_final(&hash, proof, LK_PROOF_BYTES);
    sodium_memzero(&hash, sizeof hash);
}

/* Returns how many bytes this end may have sent so far. The server sends nothing before it has seen the
 * magic, and no proof before the client has proved. */
static size_t may_send(const lk_handshake *shake)
{
    if (shake->proof_ready)
        return LK_HANDSHAKE_BYTES;
    return shake->server && shake->got_bytes < LK_MAGIC_BYTES ? 0 : LK_HELLO_BYTES;
}

/* Fails with "the peer at 10.0.0.7 <what>". */
static lk_status blame(int fd, lk_status status, const char *what)
{
    char peer[64];
    lk__net_peer_address(fd, peer, sizeof peer);
    return lk__fail(status, "the peer%s%s %s", peer[0] ? " at " : "", peer, what);
}

/* Fails with "the peer at 10.0.0.7 <before>has another job token; <what to do>". */
static lk_status blame_token(const lk_handshake *shake, int fd, lk_status status, const char *before)
{
    char advice[LK_TOKEN_ADVICE], what[LK_TOKEN_ADVICE + 80];
    lk__token_advice(&shake->token, fd, shake->server, advice);
    snprintf(what, sizeof what, "%s%s", before, advice);
    return blame(fd, status, what);
}

static lk_status fail_closed(const lk_handshake *shake, int fd)
{
    if (shake->got_bytes == 0)
        return blame(fd, LK_STATUS_PEER,
                     "closed the connection without a word: it is no Lockstep job, or one that ends");
    if (!shake->server && shake->sent_bytes == LK_HANDSHAKE_BYTES)
        return blame_token(shake, fd, LK_STATUS_PEER, "closed the connection when it saw our proof: it ");
    return blame(fd, LK_STATUS_PEER, "closed the connection in the middle of the handshake");
}

/* A peer of another version should learn the reason too: it gets our magic. Its data are read first, because
 * closing a socket with unread data would discard our answer. */
static lk_status fail_version(const lk_handshake *shake, int fd)
{
    if (shake->server && send(fd, magic, sizeof magic, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof magic) {
        uint8_t rest[1024];
        (void)!recv(fd, rest, sizeof rest, MSG_DONTWAIT);
        shutdown(fd, SHUT_WR);
    }
    char what[128];
    snprintf(what, sizeof what,
             "speaks version %d of the protocol, this program version %d; use one release of Lockstep for all ranks",
             shake->got[VERSION_AT], LK_WIRE_VERSION);
    return blame(fd, LK_STATUS_MISMATCH, what);
}

/* Checks the received bytes, at the first byte that can be wrong. */
static lk_status check_hello(const lk_handshake *shake, int fd)
{
    size_t seen = lk__size_min(shake->got_bytes, LK_MAGIC_BYTES);
    if (memcmp(shake->got, magic, lk__size_min(seen, VERSION_AT)) != 0)
        return blame(fd, LK_STATUS_FORMAT, "does not speak Lockstep's protocol; is the port another program's?");
    if (seen == LK_MAGIC_BYTES && shake->got[VERSION_AT] != LK_WIRE_VERSION)
        return fail_version(shake, fd);
    if (shake->got_bytes >= LK_MAGIC_BYTES + LK_NONCE_BYTES &&
        memcmp(shake->got + LK_MAGIC_BYTES, shake->sent + LK_MAGIC_BYTES, LK_NONCE_BYTES) == 0)
        return blame(fd, LK_STATUS_FORMAT, "sent our own bytes back; is the port another program's?");
    return LK_OK;
}

static lk_status check_proof(lk_handshake *shake, int fd)
{
    uint8_t expected[LK_PROOF_BYTES];
    prove(shake, !shake->server, expected);
    shake->proved = sodium_memcmp(expected, shake->got + LK_HELLO_BYTES, LK_PROOF_BYTES) == 0;
    sodium_memzero(expected, sizeof expected);
    return shake->proved ? LK_OK : blame_token(shake, fd, LK_STATUS_MISMATCH, "");
}

/* Checks new bytes, and makes this end's proof when it is its turn. */
static lk_status advance(lk_handshake *shake, int fd)
{
    LK_TRY(check_hello(shake, fd));
    if (shake->got_bytes == LK_HANDSHAKE_BYTES)
        LK_TRY(check_proof(shake, fd));
    bool turn = shake->server ? shake->proved : shake->got_bytes >= LK_HELLO_BYTES;
    if (turn && !shake->proof_ready) {
        prove(shake, shake->server, shake->sent + LK_HELLO_BYTES);
        shake->proof_ready = true;
    }
    return LK_OK;
}

static lk_status fail_socket(const lk_handshake *shake, int fd)
{
    if (errno == EPIPE || errno == ECONNRESET)
        return fail_closed(shake, fd);
    return lk__fail(LK_STATUS_IO, "the handshake failed: %s", strerror(errno));
}

/* *moved becomes true when a byte was sent. */
static lk_status send_some(lk_handshake *shake, int fd, bool *moved)
{
    size_t end = may_send(shake);
    while (shake->sent_bytes < end) {
        ssize_t n = send(fd, shake->sent + shake->sent_bytes, end - shake->sent_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        /* The peer has closed. Bytes that it sent before say why, so they are read first. */
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET) && shake->got_bytes < LK_HANDSHAKE_BYTES)
            break;
        if (n < 0)
            return fail_socket(shake, fd);
        shake->sent_bytes += (size_t)n;
        *moved = true;
    }
    return LK_OK;
}

static lk_status receive_some(lk_handshake *shake, int fd, bool *moved)
{
    if (shake->got_bytes == LK_HANDSHAKE_BYTES)
        return LK_OK;
    ssize_t n;
    do
        n = recv(fd, shake->got + shake->got_bytes, LK_HANDSHAKE_BYTES - shake->got_bytes, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return LK_OK;
    if (n < 0)
        return fail_socket(shake, fd);
    if (n == 0)
        return fail_closed(shake, fd);
    shake->got_bytes += (size_t)n;
    *moved = true;
    return advance(shake, fd);
}

static void finish(lk_handshake *shake, lk_handshake_state state, lk_status status)
{
    shake->state = state;
    shake->status = status;
    sodium_memzero(&shake->token, sizeof shake->token);
}

lk_handshake_state lk__handshake_step(lk_handshake *shake, int fd)
{
    bool moved = true;
    while (moved && shake->state == LK_HANDSHAKE_STATE_PENDING) {
        moved = false;
        lk_status status = send_some(shake, fd, &moved);
        if (status == LK_OK)
            status = receive_some(shake, fd, &moved);
        if (status != LK_OK)
            finish(shake, LK_HANDSHAKE_STATE_FAILED, status);
        else if (shake->proved && shake->sent_bytes == LK_HANDSHAKE_BYTES)
            finish(shake, LK_HANDSHAKE_STATE_DONE, LK_OK);
    }
    return shake->state;
}

short lk__handshake_events(const lk_handshake *shake)
{
    int events = shake->got_bytes < LK_HANDSHAKE_BYTES ? POLLIN : 0;
    if (shake->sent_bytes < may_send(shake))
        events |= POLLOUT;
    return (short)events;
}

const uint8_t *lk__handshake_greeting(const lk_handshake *shake)
{
    return shake->got + LK_MAGIC_BYTES + LK_NONCE_BYTES;
}

lk_status lk__handshake_run(lk_handshake *shake, int fd, double deadline)
{
    while (lk__handshake_step(shake, fd) == LK_HANDSHAKE_STATE_PENDING)
        if (lk__net_wait(fd, lk__handshake_events(shake), deadline) == 0)
            return blame(fd, LK_STATUS_PEER, "did not complete the handshake in time");
    return shake->state == LK_HANDSHAKE_STATE_DONE ? LK_OK : shake->status;
}
