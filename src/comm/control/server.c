/* server.c - the poll loop of a job's server.
 *
 * One thread and no locks: rank 0 uses a socket as the other ranks do. A connection from the acceptor with a
 * valid HELLO becomes the line of its rank. */
#define _GNU_SOURCE /* pthread_timedjoin_np */
#include "comm/control/server.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "comm/control/roster.h"
#include "net/deadline.h"
#include "net/exits.h"
#include "net/socket.h"

enum { TICK_MS = LK_ACCEPTOR_TICK };       /* poll timeout while something has a deadline */
static const double moment = 1;            /* seconds for the ranks of a failed job to read the reason */
static const double waiting_seconds = 0.2; /* seconds between two WAITING messages */

typedef struct line {
    int fd;        /* -1: none */
    bool vanished; /* a send has found the connection lost, not closed */
    size_t in_bytes;
    uint8_t in[LK_WIRE_TO_SERVER];
    uint8_t *out; /* [out_first, out_last) waits to be sent */
    size_t out_first, out_last, out_room;
} line;

struct lk_server {
    pthread_t thread;
    lk_server_opts opts;
    lk_roster *roster;
    line *lines;          /* (size) */
    struct pollfd *polls; /* (LK_ACCEPTOR_POLLS + size) */
    uint8_t *message;     /* scratch for a message */
    uint8_t *data;        /* scratch for its data */
    uint8_t *awaited;     /* (size) as sent last */
    double awaited_at;
    double end; /* lk__clock() time at which the thread ends, after rank 0 has left a failed job; 0: not set */
    bool welcomed, verdict_sent;
};

static void line_close(line *at)
{
    if (at->fd >= 0)
        close(at->fd);
    lk__mem_free(at->out);
    *at = (line){.fd = -1};
}

static void line_flush(line *at)
{
    while (at->fd >= 0 && at->out_first < at->out_last) {
        ssize_t sent = send(at->fd, at->out + at->out_first, at->out_last - at->out_first, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0) {
            /* A broken connection is noticed when reading, but its reason is reported only once. */
            if (errno != EAGAIN && errno != EWOULDBLOCK) {
                at->out_first = at->out_last;
                at->vanished = lk__net_is_vanished(errno);
            }
            return;
        }
        at->out_first += (size_t)sent;
    }
}

static lk_status line_reserve(line *at, size_t bytes)
{
    if (at->out_first == at->out_last)
        at->out_first = at->out_last = 0;
    if (at->out_room - at->out_last >= bytes)
        return LK_OK;
    size_t room = 2 * at->out_room + bytes;
    uint8_t *bigger;
    LK_TRY(LK_ALLOC(room, "messages to a rank", &bigger));
    at->out_last -= at->out_first;
    if (at->out_last)
        memcpy(bigger, at->out + at->out_first, at->out_last);
    lk__mem_free(at->out);
    at->out = bigger;
    at->out_first = 0;
    at->out_room = room;
    return LK_OK;
}

/* Without memory for a message the rank is disconnected, because it must not miss one. */
static void line_send(line *at, const uint8_t *message, size_t bytes)
{
    if (at->fd < 0)
        return;
    if (line_reserve(at, bytes) != LK_OK) {
        shutdown(at->fd, SHUT_RDWR);
        return;
    }
    memcpy(at->out + at->out_last, message, bytes);
    at->out_last += bytes;
    line_flush(at);
}

/* Rank 0 is last: after its message it may end, and this thread with it. */
static void send_to_all(lk_server *server, lk_wire message)
{
    message.size = server->opts.size;
    size_t bytes = lk__wire_encode(&message, server->message);
    for (int r = server->opts.size - 1; r >= 0; r--)
        line_send(&server->lines[r], server->message, bytes);
}

typedef enum intake { INTAKE_OPEN, INTAKE_CLOSED, INTAKE_VANISHED } intake;

/* Reads what has arrived, as far as the buffer has room. */
static intake line_read(line *at)
{
    while (at->in_bytes < sizeof at->in) {
        ssize_t got = recv(at->fd, at->in + at->in_bytes, sizeof at->in - at->in_bytes, MSG_DONTWAIT);
        if (got > 0)
            at->in_bytes += (size_t)got;
        else if (got == 0)
            return at->vanished ? INTAKE_VANISHED : INTAKE_CLOSED;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return INTAKE_OPEN;
        else if (errno != EINTR)
            return lk__net_is_vanished(errno) || at->vanished ? INTAKE_VANISHED : INTAKE_CLOSED;
    }
    return INTAKE_OPEN;
}

static void line_consume(line *at, size_t bytes)
{
    at->in_bytes -= bytes;
    memmove(at->in, at->in + bytes, at->in_bytes);
}

static void handle_exchange(lk_server *server, int rank, const lk_wire *message)
{
    if (!lk__roster_give(server->roster, rank, message->number, message->data, message->bytes))
        return;
    send_to_all(server, (lk_wire){.kind = LK_WIRE_KIND_EXCHANGED,
                                  .rank = -1,
                                  .number = message->number,
                                  .data = lk__roster_parts(server->roster, message->number),
                                  .bytes = message->bytes * (size_t)server->opts.size});
}

static void handle_report(lk_server *server, int rank, const lk_wire *message)
{
    lk_call calls[LK_HISTORY];
    int count = lk__wire_calls(message, calls);
    if (count < 0) {
        lk__roster_lose(server->roster, rank, "reported an impossible call");
        return;
    }
    lk__roster_report(server->roster, rank, calls, count);
    lk__roster_absent(server->roster, rank, server->data);
    lk_wire answer = {.kind = LK_WIRE_KIND_ABSENT,
                      .rank = rank,
                      .size = server->opts.size,
                      .data = server->data,
                      .bytes = (size_t)server->opts.size};
    line_send(&server->lines[rank], server->message, lk__wire_encode(&answer, server->message));
}

static void handle_abort(lk_server *server, int rank, const lk_wire *message)
{
    (void)rank;
    char text[LK_WIRE_TEXT + 1];
    lk__wire_text(message, text);
    lk__roster_abort(server->roster, message->status, text);
}

/* Sends the reason why the job has failed, once. */
static void announce_verdict(lk_server *server)
{
    const char *text;
    lk_status verdict = lk__roster_verdict(server->roster, &text);
    if (verdict == LK_OK || server->verdict_sent)
        return;
    send_to_all(server, (lk_wire){.kind = LK_WIRE_KIND_BROKEN,
                                  .rank = -1,
                                  .status = verdict,
                                  .data = (const uint8_t *)text,
                                  .bytes = lk__size_min(strlen(text), LK_WIRE_TEXT)});
    server->verdict_sent = true;
}

static void handle_leave(lk_server *server, int rank, const lk_wire *message)
{
    (void)message;
    lk__roster_leave(server->roster, rank);
    /* The job is ending. A process that connects from now on belongs to the next job and must not find this
     * server. The acceptor is closed before the goodbye is answered, because the rank that left may join
     * again at once. */
    lk__acceptor_destroy(server->opts.acceptor);
    server->opts.acceptor = NULL;
    line_close(&server->lines[rank]);
    /* The rank may have aborted the job just before. The others must learn that first: without a reason, a rank that
     * has left is itself the failure of those that wait for it. */
    announce_verdict(server);
    send_to_all(server, (lk_wire){.kind = LK_WIRE_KIND_LEFT, .rank = rank});
}

static void handle(lk_server *server, int rank, const lk_wire *message)
{
    static void (*const handlers[LK_WIRE_KIND_COUNT])(lk_server *, int, const lk_wire *) = {
        [LK_WIRE_KIND_EXCHANGE] = handle_exchange,
        [LK_WIRE_KIND_REPORT] = handle_report,
        [LK_WIRE_KIND_ABORT] = handle_abort,
        [LK_WIRE_KIND_LEAVE] = handle_leave,
    };
    if (handlers[message->kind] && message->size == server->opts.size)
        handlers[message->kind](server, rank, message);
    else
        lk__roster_lose(server->roster, rank, "sent a message that makes no sense");
}

/* Handles the messages of a rank, and closes the line of a lost rank. */
static void serve_line(lk_server *server, int rank)
{
    line *at = &server->lines[rank];
    intake state = INTAKE_OPEN;
    lk_wire message;
    size_t used;
    /* A full buffer ends a read, so read again until it is not full. */
    bool full = true;
    while (full && at->fd >= 0) {
        state = line_read(at);
        full = at->in_bytes == sizeof at->in;
        lk_wire_result result = LK_WIRE_RESULT_WHOLE;
        while (at->fd >= 0 && result == LK_WIRE_RESULT_WHOLE) {
            result = lk__wire_decode(at->in, at->in_bytes, sizeof at->in, false, &message, &used);
            if (result == LK_WIRE_RESULT_WHOLE) {
                handle(server, rank, &message);
                if (at->fd >= 0)
                    line_consume(at, used);
            }
        }
        if (result == LK_WIRE_RESULT_BAD) {
            lk__roster_lose(server->roster, rank, "sent a message that makes no sense");
            break;
        }
    }
    if (at->fd >= 0 && state != INTAKE_OPEN)
        lk__roster_lose(server->roster, rank, state == INTAKE_CLOSED ? "died" : "cannot be reached");
    if (at->fd >= 0 && lk__roster_presence(server->roster, rank) != LK_ROSTER_PRESENCE_HERE)
        line_close(at);
}

static void refuse(line *at, int size, lk_status status)
{
    uint8_t message[LK_WIRE_HEAD + LK_WIRE_TEXT];
    const char *text = lk_error_detail();
    lk_wire refusal = {.kind = LK_WIRE_KIND_REFUSED,
                       .rank = -1,
                       .size = size,
                       .status = status,
                       .data = (const uint8_t *)text,
                       .bytes = lk__size_min(strlen(text), LK_WIRE_TEXT)};
    line_send(at, message, lk__wire_encode(&refusal, message));
}

/* Gives rank 0's user a notice while ranks are missing: it may be the reason. */
static void notify(lk_server *server, const char *text)
{
    uint8_t message[LK_WIRE_HEAD + LK_WIRE_TEXT];
    lk_wire notice = {.kind = LK_WIRE_KIND_NOTICE,
                      .rank = -1,
                      .size = server->opts.size,
                      .data = (const uint8_t *)text,
                      .bytes = lk__size_min(strlen(text), LK_WIRE_TEXT)};
    if (!server->welcomed)
        line_send(&server->lines[0], message, lk__wire_encode(&notice, message));
}

/* Sets the timeout for a vanished host. If rank 0 listens at all addresses, its address becomes the one that
 * this rank connected to. */
static void prepare_line(lk_server *server, int fd)
{
    if (lk__net_prepare(fd, lk__net_vanish(server->opts.timeout)) != LK_OK)
        shutdown(fd, SHUT_RDWR);
    char address[LK_ADDRESS_BYTES];
    lk__net_local_address(fd, address, sizeof address);
    if (!lk__roster_members(server->roster)[0].address[0])
        lk__roster_set_address(server->roster, 0, address);
}

/* Sends a new rank the list of awaited ranks at once; the others get changes at intervals. */
static void send_awaited(lk_server *server, int rank)
{
    uint8_t *message = server->message;
    lk_wire waiting = {.kind = LK_WIRE_KIND_WAITING,
                       .rank = -1,
                       .size = server->opts.size,
                       .data = server->data,
                       .bytes = (size_t)server->opts.size};
    if (lk__roster_awaited(server->roster, server->data) > 0)
        line_send(&server->lines[rank], message, lk__wire_encode(&waiting, message));
}

/* Admits a connection whose first message is a HELLO. Returns whether it became the line of a rank. */
static bool admit(lk_server *server, line *at)
{
    lk_wire message;
    size_t used;
    if (lk__wire_decode(at->in, at->in_bytes, sizeof at->in, false, &message, &used) != LK_WIRE_RESULT_WHOLE ||
        message.kind != LK_WIRE_KIND_HELLO)
        return false;
    lk_member member;
    lk__wire_get_member(message.data, &member);
    lk_status status = lk__roster_join(server->roster, message.rank, message.size, &member);
    if (status != LK_OK) {
        refuse(at, message.size, status);
        if (message.rank == 0)
            notify(server, lk_error_detail());
        return false;
    }
    line_consume(at, used);
    if (message.rank > 0)
        prepare_line(server, at->fd);
    server->lines[message.rank] = *at;
    send_awaited(server, message.rank);
    return true;
}

static void admit_newcomers(lk_server *server)
{
    line newcomer = {.in_bytes = LK_SERVER_HELLO};
    while (server->opts.acceptor && (newcomer.fd = lk__acceptor_next(server->opts.acceptor, newcomer.in)) >= 0) {
        if (!admit(server, &newcomer))
            line_close(&newcomer);
        newcomer = (line){.in_bytes = LK_SERVER_HELLO};
    }
    char text[LK_WIRE_TEXT];
    if (server->opts.acceptor && lk__acceptor_refused(server->opts.acceptor, text, sizeof text))
        notify(server, text);
}

static void welcome(lk_server *server)
{
    const lk_member *members = lk__roster_members(server->roster);
    for (int r = 0; r < server->opts.size; r++)
        lk__wire_put_member(&members[r], server->data + (size_t)r * LK_WIRE_MEMBER);
    send_to_all(server, (lk_wire){.kind = LK_WIRE_KIND_WELCOME,
                                  .rank = -1,
                                  .data = server->data,
                                  .bytes = (size_t)server->opts.size * LK_WIRE_MEMBER});
    server->welcomed = true;
}

/* A rank that exits cannot join any more. Its HELLO may have come before, so newcomers are admitted first. */
static void look_for_exits(lk_server *server)
{
    char text[96];
    const lk_server_opts *opts = &server->opts;
    if (server->welcomed || !*opts->exits || !lk__exits_read(opts->exits, opts->size / opts->threads, server->data))
        return;
    for (int r = 0; r < opts->size; r++) {
        if (!server->data[r / opts->threads] || lk__roster_presence(server->roster, r) != LK_ROSTER_PRESENCE_MISSING)
            continue;
        snprintf(text, sizeof text, "rank %d of %d exited with status 0 before it joined", r, opts->size);
        lk__roster_abort(server->roster, LK_STATUS_PEER, text);
        return;
    }
}

/* Sends the list of awaited ranks after some time of waiting and when it changes, but not faster than the
 * ranks read. */
static void announce_awaited(lk_server *server)
{
    double now = lk__clock();
    size_t size = (size_t)server->opts.size;
    if (lk__roster_awaited(server->roster, server->data) == 0) {
        server->awaited_at = 0;
        return;
    }
    if (server->awaited_at == 0)
        server->awaited_at = now;
    if (now < server->awaited_at + waiting_seconds || memcmp(server->data, server->awaited, size) == 0)
        return;
    for (size_t r = 0; r < size; r++)
        if (server->lines[r].out_first < server->lines[r].out_last)
            return;
    memcpy(server->awaited, server->data, size);
    server->awaited_at = now;
    send_to_all(server, (lk_wire){.kind = LK_WIRE_KIND_WAITING, .rank = -1, .data = server->data, .bytes = size});
}

static void announce(lk_server *server)
{
    const char *text;
    announce_verdict(server);
    if (lk__roster_verdict(server->roster, &text) != LK_OK)
        return;
    if (!server->welcomed && lk__roster_complete(server->roster))
        welcome(server);
    announce_awaited(server);
}

/* After rank 0 has left, the server waits for all other ranks; in a failed job only for a moment. */
static bool finished(lk_server *server)
{
    if (server->lines[0].fd >= 0)
        return false;
    if (server->verdict_sent && server->end == 0)
        server->end = lk__clock() + moment;
    return lk__roster_here(server->roster) == 0 || (server->end > 0 && lk__clock() >= server->end);
}

static size_t fill_polls(lk_server *server)
{
    struct pollfd *polls = server->polls;
    size_t count = server->opts.acceptor ? lk__acceptor_polls(server->opts.acceptor, polls) : 0;
    for (int r = 0; r < server->opts.size; r++) {
        const line *at = &server->lines[r];
        short events = at->out_first < at->out_last ? POLLIN | POLLOUT : POLLIN;
        polls[count++] = (struct pollfd){.fd = at->fd, .events = events};
    }
    return count;
}

/* Without a deadline the server sleeps until a socket is ready. */
static int sleep_ms(const lk_server *server)
{
    bool timed = (server->opts.acceptor && lk__acceptor_timed(server->opts.acceptor)) || server->end > 0 ||
                 !server->welcomed || lk__roster_awaited(server->roster, server->data) > 0;
    return timed ? TICK_MS : -1;
}

static void *serve(void *arg)
{
    lk_server *server = arg;
    /* Rank 0 joins before all others, because other ranks are compared with it. */
    if (line_read(&server->lines[0]) == INTAKE_OPEN) {
        line own = server->lines[0];
        admit(server, &own);
    }
    announce(server);
    while (!finished(server)) {
        poll(server->polls, fill_polls(server), sleep_ms(server));
        for (int r = 0; r < server->opts.size; r++) {
            line_flush(&server->lines[r]);
            if (server->lines[r].fd >= 0)
                serve_line(server, r);
        }
        admit_newcomers(server);
        look_for_exits(server);
        announce(server);
    }
    return NULL;
}

static void server_free(lk_server *server)
{
    lk__roster_destroy(server->roster);
    for (int r = 0; server->lines && r < server->opts.size; r++)
        line_close(&server->lines[r]);
    lk__mem_free(server->lines);
    lk__mem_free(server->polls);
    lk__mem_free(server->message);
    lk__mem_free(server->data);
    lk__mem_free(server->awaited);
    lk__mem_free(server);
}

static lk_status server_alloc(lk_server *server)
{
    size_t size = (size_t)server->opts.size, longest = lk__wire_from_server(server->opts.size);
    LK_TRY(LK_ALLOC(size, "the lines of a job", &server->lines));
    for (size_t r = 0; r < size; r++)
        server->lines[r].fd = -1;
    LK_TRY(LK_ALLOC(LK_ACCEPTOR_POLLS + size, "the lines of a job", &server->polls));
    LK_TRY(LK_ALLOC(longest, "messages to a rank", &server->message));
    LK_TRY(LK_ALLOC(longest, "messages to a rank", &server->data));
    LK_TRY(LK_ALLOC(size, "the ranks awaited", &server->awaited));
    return lk__roster_create(server->opts.size, &server->roster);
}

/* Blocks all signals in the new thread: they are for the program's own threads. */
static int start_thread(lk_server *server)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = lk__thread_create(&server->thread, serve, server);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

lk_status lk__server_start(const lk_server_opts *opts, lk_server **out)
{
    lk_server *server;
    lk_status status;
    LK_TRY(LK_ALLOC(1, "the job's server", &server));
    server->opts = *opts;
    LK_TRY_GOTO(server_alloc(server), free_server);
    server->lines[0].fd = opts->own;
    int error = start_thread(server);
    if (error) {
        server->lines[0].fd = -1;
        status =
            lk__fail(LK_STATUS_IO, "cannot start the job's server thread: %s; raise the limit on memory or threads",
                     strerror(error));
        goto free_server;
    }
    *out = server;
    return LK_OK;

free_server:
    server_free(server);
    return status;
}

void lk__server_join(lk_server *server, const lk_control *control)
{
    if (!server)
        return;
    struct timespec until;
    do {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += LK_NOTICE_SECONDS;
        if (pthread_timedjoin_np(server->thread, NULL, &until) == 0)
            break;
        lk__control_notice(control, "rank 0 is done, and waits for the others to leave, since it serves them");
    } while (true);
    lk__acceptor_destroy(server->opts.acceptor);
    server_free(server);
}
