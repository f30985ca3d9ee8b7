/* door.c - accepting strangers, and taking each through its handshake and first
 * message as far as it has come. */
#include "comm/door.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "comm/net.h"
#include "comm/patience.h"

enum { STRANGERS = LK_DOOR_POLLS - 1 };    /* at once; the oldest makes room */
static const double stranger_seconds = 10; /* to get in */

typedef struct stranger {
    int fd;
    lk_handshake shake;
    double deadline;
    size_t got; /* bytes of its hello */
} stranger;

struct lk_door {
    lk_door_opts opts;
    uint8_t greeting[LK_GREETING_BYTES];
    int count;
    stranger strangers[STRANGERS]; /* (count) in order of arrival */
    uint8_t *hellos;               /* (STRANGERS, hello_bytes) alike */
    char refused[256];             /* why the last one was, who spoke our protocol; "": none, or told */
    double refused_after;          /* when that may be told */
    double accept_after;           /* when descriptors ran out, the listener rests; 0: it does not */
};

void lk__door_greeting(const char *text, uint8_t greeting[LK_GREETING_BYTES])
{
    memset(greeting, 0, LK_GREETING_BYTES);
    snprintf((char *)greeting, LK_GREETING_BYTES, "%s", text);
}

lk_status lk__door_create(const lk_door_opts *opts, lk_door **out)
{
    lk_door *door;
    lk_status status;
    LK_TRY(LK_ALLOC(1, "a door", &door));
    LK_TRY_GOTO(LK_ALLOC(STRANGERS * opts->hello_bytes, "first messages", &door->hellos), free_door);
    door->opts = *opts;
    lk__door_greeting(opts->greeting, door->greeting);
    *out = door;
    return LK_OK;
free_door:
    lk__free(door);
    return status;
}

void lk__door_destroy(lk_door *door)
{
    if (!door)
        return;
    for (int i = 0; i < door->count; i++)
        close(door->strangers[i].fd);
    close(door->opts.listener);
    lk__free(door->hellos);
    lk__free(door);
}

size_t lk__door_polls(const lk_door *door, struct pollfd polls[LK_DOOR_POLLS])
{
    size_t count = 0;
    bool resting = lk__clock() < door->accept_after;
    polls[count++] = (struct pollfd){.fd = resting ? -1 : door->opts.listener, .events = POLLIN};
    for (int i = 0; i < door->count; i++) {
        const stranger *at = &door->strangers[i];
        short events = at->shake.state == LK_HANDSHAKE_DONE ? POLLIN : lk__handshake_events(&at->shake);
        polls[count++] = (struct pollfd){.fd = at->fd, .events = events};
    }
    return count;
}

bool lk__door_timed(const lk_door *door)
{
    return door->count > 0 || door->accept_after > 0;
}

static uint8_t *hello_of(const lk_door *door, int index)
{
    return door->hellos + (size_t)index * door->opts.hello_bytes;
}

static void forget(lk_door *door, int index)
{
    size_t after = (size_t)(--door->count - index);
    memmove(&door->strangers[index], &door->strangers[index + 1], after * sizeof *door->strangers);
    memmove(hello_of(door, index), hello_of(door, index + 1), after * door->opts.hello_bytes);
}

/* Who belongs here is in within a round trip or two: in a flood the oldest is not
 * one of those. If it was, it calls again. */
static void accept_strangers(lk_door *door)
{
    if (lk__clock() < door->accept_after)
        return;
    door->accept_after = 0;
    for (int i = 0; i < STRANGERS; i++) {
        int fd = lk__net_accept(door->opts.listener);
        if (fd < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK)
                door->accept_after = lk__clock() + 0.001 * LK_DOOR_TICK;
            return;
        }
        if (door->count == STRANGERS) {
            close(door->strangers[0].fd);
            forget(door, 0);
        }
        stranger *at = &door->strangers[door->count++];
        *at = (stranger){.fd = fd, .deadline = lk__clock() + stranger_seconds};
        lk__handshake_init(&at->shake, &door->opts.token, true, door->greeting);
    }
}

/* The same states as for the handshake alone. */
static lk_handshake_state read_hello(stranger *at, uint8_t *hello, size_t bytes)
{
    while (at->got < bytes) {
        ssize_t got = recv(at->fd, hello + at->got, bytes - at->got, MSG_DONTWAIT);
        if (got > 0)
            at->got += (size_t)got;
        else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return LK_HANDSHAKE_PENDING;
        else if (got == 0 || errno != EINTR)
            return LK_HANDSHAKE_FAILED;
    }
    return LK_HANDSHAKE_DONE;
}

static lk_handshake_state step(lk_door *door, int index)
{
    stranger *at = &door->strangers[index];
    lk_handshake_state state = lk__handshake_step(&at->shake, at->fd);
    if (state == LK_HANDSHAKE_FAILED && at->shake.status == LK_STATUS_MISMATCH)
        snprintf(door->refused, sizeof door->refused, "%s", lk_error_detail());
    if (state == LK_HANDSHAKE_DONE) {
        bool ours = memcmp(lk__handshake_greeting(&at->shake), door->greeting, LK_GREETING_BYTES) == 0;
        state = ours ? read_hello(at, hello_of(door, index), door->opts.hello_bytes) : LK_HANDSHAKE_FAILED;
    }
    return state == LK_HANDSHAKE_PENDING && lk__clock() >= at->deadline ? LK_HANDSHAKE_FAILED : state;
}

int lk__door_next(lk_door *door, uint8_t *hello)
{
    for (int i = door->count - 1; i >= 0; i--) {
        lk_handshake_state state = step(door, i);
        if (state == LK_HANDSHAKE_PENDING)
            continue;
        int fd = door->strangers[i].fd;
        if (state == LK_HANDSHAKE_DONE)
            memcpy(hello, hello_of(door, i), door->opts.hello_bytes);
        forget(door, i);
        if (state == LK_HANDSHAKE_DONE)
            return fd;
        close(fd);
    }
    accept_strangers(door);
    return -1;
}

bool lk__door_refused(lk_door *door, char *text, size_t bytes)
{
    double now = lk__clock();
    if (!door->refused[0] || now < door->refused_after)
        return false;
    snprintf(text, bytes, "refused: %s", door->refused);
    door->refused[0] = '\0';
    door->refused_after = now + LK_NOTICE_SECONDS;
    return true;
}
