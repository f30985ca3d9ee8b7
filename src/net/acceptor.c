/* acceptor.c - accepts connections, and advances the handshake and first message of each. */
#include "net/acceptor.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/deadline.h"
#include "net/socket.h"

enum { CANDIDATES = LK_ACCEPTOR_POLLS - 1 }; /* at a time; the oldest is closed for a new one */
static const double candidate_seconds = 10;  /* seconds until a connection must be admitted */

typedef struct candidate {
    int fd;
    lk_handshake shake;
    double deadline;
    size_t got; /* bytes of its first message that have arrived */
} candidate;

struct lk_acceptor {
    lk_acceptor_opts opts;
    uint8_t greeting[LK_GREETING_BYTES];
    int count;
    candidate candidates[CANDIDATES]; /* (count) in order of arrival */
    uint8_t *hellos;                  /* (CANDIDATES, hello_bytes) first messages in the same order */
    char refused[LK_TOKEN_ADVICE +
                 64];     /* why the last refusal happened, if the peer speaks the protocol; "": none, or reported */
    double refused_after; /* lk__clock() time of the next report */
    double accept_after;  /* lk__clock() time until which the listener pauses after descriptors ran out; 0: no pause */
};

void lk__acceptor_greeting(const char *text, uint8_t greeting[LK_GREETING_BYTES])
{
    memset(greeting, 0, LK_GREETING_BYTES);
    snprintf((char *)greeting, LK_GREETING_BYTES, "%s", text);
}

lk_status lk__acceptor_create(const lk_acceptor_opts *opts, lk_acceptor **out)
{
    lk_acceptor *acceptor;
    lk_status status;
    LK_TRY(LK_ALLOC(1, "an acceptor", &acceptor));
    LK_TRY_GOTO(LK_ALLOC(CANDIDATES * opts->hello_bytes, "first messages", &acceptor->hellos), free_acceptor);
    acceptor->opts = *opts;
    lk__acceptor_greeting(opts->greeting, acceptor->greeting);
    *out = acceptor;
    return LK_OK;
free_acceptor:
    lk__mem_free(acceptor);
    return status;
}

void lk__acceptor_destroy(lk_acceptor *acceptor)
{
    if (!acceptor)
        return;
    for (int i = 0; i < acceptor->count; i++)
        close(acceptor->candidates[i].fd);
    close(acceptor->opts.listener);
    lk__mem_free(acceptor->hellos);
    lk__mem_free(acceptor);
}

size_t lk__acceptor_polls(const lk_acceptor *acceptor, struct pollfd polls[LK_ACCEPTOR_POLLS])
{
    size_t count = 0;
    bool resting = lk__clock() < acceptor->accept_after;
    polls[count++] = (struct pollfd){.fd = resting ? -1 : acceptor->opts.listener, .events = POLLIN};
    for (int i = 0; i < acceptor->count; i++) {
        const candidate *at = &acceptor->candidates[i];
        short events = at->shake.state == LK_HANDSHAKE_STATE_DONE ? POLLIN : lk__handshake_events(&at->shake);
        polls[count++] = (struct pollfd){.fd = at->fd, .events = events};
    }
    return count;
}

bool lk__acceptor_timed(const lk_acceptor *acceptor)
{
    return acceptor->count > 0 || acceptor->accept_after > 0;
}

static uint8_t *hello_of(const lk_acceptor *acceptor, int index)
{
    return acceptor->hellos + (size_t)index * acceptor->opts.hello_bytes;
}

static void forget(lk_acceptor *acceptor, int index)
{
    size_t after = (size_t)(--acceptor->count - index);
    memmove(&acceptor->candidates[index], &acceptor->candidates[index + 1], after * sizeof *acceptor->candidates);
    memmove(hello_of(acceptor, index), hello_of(acceptor, index + 1), after * acceptor->opts.hello_bytes);
}

/* A peer of this job is admitted within a round trip or two, so in a flood the oldest connection is closed.
 * If it was a peer, it connects again. */
static void accept_candidates(lk_acceptor *acceptor)
{
    if (lk__clock() < acceptor->accept_after)
        return;
    acceptor->accept_after = 0;
    for (int i = 0; i < CANDIDATES; i++) {
        int fd = lk__net_accept(acceptor->opts.listener);
        if (fd < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK)
                acceptor->accept_after = lk__clock() + 0.001 * LK_ACCEPTOR_TICK;
            return;
        }
        if (acceptor->count == CANDIDATES) {
            close(acceptor->candidates[0].fd);
            forget(acceptor, 0);
        }
        candidate *at = &acceptor->candidates[acceptor->count++];
        *at = (candidate){.fd = fd, .deadline = lk__clock() + candidate_seconds};
        lk__handshake_init(&at->shake, &acceptor->opts.token, true, acceptor->greeting);
    }
}

/* Returns the state of the first message, in the states of a handshake. */
static lk_handshake_state read_hello(candidate *at, uint8_t *hello, size_t bytes)
{
    while (at->got < bytes) {
        ssize_t got = recv(at->fd, hello + at->got, bytes - at->got, MSG_DONTWAIT);
        if (got > 0)
            at->got += (size_t)got;
        else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return LK_HANDSHAKE_STATE_PENDING;
        else if (got == 0 || errno != EINTR)
            return LK_HANDSHAKE_STATE_FAILED;
    }
    return LK_HANDSHAKE_STATE_DONE;
}

static lk_handshake_state step(lk_acceptor *acceptor, int index)
{
    candidate *at = &acceptor->candidates[index];
    lk_handshake_state state = lk__handshake_step(&at->shake, at->fd);
    if (state == LK_HANDSHAKE_STATE_FAILED && at->shake.status == LK_STATUS_MISMATCH)
        snprintf(acceptor->refused, sizeof acceptor->refused, "%s", lk_error_detail());
    if (state == LK_HANDSHAKE_STATE_DONE) {
        bool ours = memcmp(lk__handshake_greeting(&at->shake), acceptor->greeting, LK_GREETING_BYTES) == 0;
        state =
            ours ? read_hello(at, hello_of(acceptor, index), acceptor->opts.hello_bytes) : LK_HANDSHAKE_STATE_FAILED;
    }
    return state == LK_HANDSHAKE_STATE_PENDING && lk__clock() >= at->deadline ? LK_HANDSHAKE_STATE_FAILED : state;
}

int lk__acceptor_next(lk_acceptor *acceptor, uint8_t *hello)
{
    for (int i = acceptor->count - 1; i >= 0; i--) {
        lk_handshake_state state = step(acceptor, i);
        if (state == LK_HANDSHAKE_STATE_PENDING)
            continue;
        int fd = acceptor->candidates[i].fd;
        if (state == LK_HANDSHAKE_STATE_DONE)
            memcpy(hello, hello_of(acceptor, i), acceptor->opts.hello_bytes);
        forget(acceptor, i);
        if (state == LK_HANDSHAKE_STATE_DONE)
            return fd;
        close(fd);
    }
    accept_candidates(acceptor);
    return -1;
}

bool lk__acceptor_refused(lk_acceptor *acceptor, char *text, size_t bytes)
{
    double now = lk__clock();
    if (!acceptor->refused[0] || now < acceptor->refused_after)
        return false;
    snprintf(text, bytes, "refused: %s", acceptor->refused);
    acceptor->refused[0] = '\0';
    acceptor->refused_after = now + LK_NOTICE_SECONDS;
    return true;
}
