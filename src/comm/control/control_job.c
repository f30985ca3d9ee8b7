/* control_job.c - a rank's end of the connection to the job's server.
 *
 * Rank 0 starts the server and uses a socket pair, so that all ranks run the same code. Only join, exchange
 * and destroy block. */
#define _GNU_SOURCE /* SOCK_CLOEXEC, SOCK_NONBLOCK */
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/text.h"
#include "comm/control/control_type.h"
#include "comm/control/roster.h"
#include "comm/control/server.h"
#include "comm/control/wire.h"
#include "comm/rendezvous/rendezvous.h"
#include "net/host.h"
#include "net/socket.h"

/* Seconds for a message to be sent, and for a goodbye to be received. */
static const double send_seconds = 2, goodbye_seconds = 1;
/* Seconds for the server to answer a report. */
static const double answer_seconds = 1;
/* Seconds after the kernel's own timeout before a silent server counts as lost. The kernel's timeout does not
 * work while the address of a host cannot be resolved. */
static const double late_seconds = 0.5;
/* Seconds between two runs of the idle function while an exchange waits. */
static const double idle_slice = 0.001;

typedef struct job {
    lk_control base;
    lk_meeting meeting;
    int fd;
    lk_server *server; /* at rank 0 only */
    uint8_t *in;       /* (in_room) */
    size_t in_bytes, in_room;
    uint8_t *left;               /* (size) */
    uint8_t *awaited;            /* (size) from the server's last WAITING */
    uint8_t *absent;             /* (size) from the server's last ABSENT */
    double asked_at;             /* lk__clock() time of the first unanswered report; 0: none */
    double unacknowledged_since; /* lk__clock() time; 0: the server's host has acknowledged everything */
    bool vanished;               /* the connection was lost, not closed by the server */
    bool welcome;
    uint32_t number; /* of the next exchange */
    bool exchanged;  /* its parts have arrived */
    uint8_t *all;    /* (size, part_bytes) receives the parts */
    size_t part_bytes;
    char hint[LK_WIRE_TEXT / 2]; /* the server's last notice before all had joined; "" */
    lk_status verdict;
    char text[LK_WIRE_TEXT + 1];
} job;

static void set_verdict(job *self, lk_status status, const char *text)
{
    if (self->verdict != LK_OK)
        return;
    self->verdict = status == LK_OK ? LK_STATUS_PEER : status;
    snprintf(self->text, sizeof self->text, "%s", text);
}

static void handle_welcome(job *self, const lk_wire *message)
{
    for (int r = 0; r < self->base.size; r++)
        lk__wire_get_member(message->data + (size_t)r * LK_WIRE_MEMBER, &self->base.members[r]);
    self->welcome = true;
    self->hint[0] = '\0';
}

static void handle_end(job *self, const lk_wire *message)
{
    char text[LK_WIRE_TEXT + 1];
    lk__wire_text(message, text);
    set_verdict(self, message->status, text);
}

static void handle_waiting(job *self, const lk_wire *message)
{
    memcpy(self->awaited, message->data, message->bytes);
}

static void handle_absent(job *self, const lk_wire *message)
{
    memcpy(self->absent, message->data, message->bytes);
    self->asked_at = 0;
}

static void handle_exchanged(job *self, const lk_wire *message)
{
    if (message->number != self->number || !self->all || message->bytes != self->part_bytes * (size_t)self->base.size) {
        set_verdict(self, LK_STATUS_PEER, "the job's server answered an exchange that was not asked for");
        return;
    }
    if (message->bytes)
        memcpy(self->all, message->data, message->bytes);
    self->exchanged = true;
}

static void handle_notice(job *self, const lk_wire *message)
{
    char text[LK_WIRE_TEXT + 1];
    lk__wire_text(message, text);
    snprintf(self->hint, sizeof self->hint, "%.*s", (int)sizeof self->hint - 1, text);
    lk__control_notice(&self->base, text);
}

static void handle_left(job *self, const lk_wire *message)
{
    if (message->rank >= 0 && message->rank < self->base.size)
        self->left[message->rank] = 1;
}

static void handle(job *self, const lk_wire *message)
{
    static void (*const handlers[LK_WIRE_KIND_COUNT])(struct job *, const lk_wire *) = {
        [LK_WIRE_KIND_WELCOME] = handle_welcome,     [LK_WIRE_KIND_REFUSED] = handle_end,
        [LK_WIRE_KIND_WAITING] = handle_waiting,     [LK_WIRE_KIND_ABSENT] = handle_absent,
        [LK_WIRE_KIND_EXCHANGED] = handle_exchanged, [LK_WIRE_KIND_BROKEN] = handle_end,
        [LK_WIRE_KIND_LEFT] = handle_left,           [LK_WIRE_KIND_NOTICE] = handle_notice,
    };
    if (message->size == self->base.size)
        handlers[message->kind](self, message);
    else
        set_verdict(self, LK_STATUS_PEER, "the job's server speaks of another world size");
}

/* Sets the verdict after the server has ended without one, and with it rank 0. */
static void lose_server(job *self)
{
    char who[LK_MEMBER_TEXT] = "rank 0", text[LK_MEMBER_TEXT + 96];
    if (self->welcome)
        lk__member_text(0, &self->base.members[0], who);
    snprintf(text, sizeof text, "%s %s%s", who,
             self->left[0]    ? "left, and its wait for the others has ended"
             : self->vanished ? "cannot be reached"
                              : "died",
             self->welcome ? "" : " before all ranks had joined");
    set_verdict(self, LK_STATUS_PEER, text);
}

static void handle_all(job *self)
{
    lk_wire message;
    size_t used, done = 0;
    lk_wire_result result;
    while ((result = lk__wire_decode(self->in + done, self->in_bytes - done, self->in_room, true, &message, &used)) ==
           LK_WIRE_RESULT_WHOLE) {
        handle(self, &message);
        done += used;
    }
    if (result == LK_WIRE_RESULT_BAD)
        set_verdict(self, LK_STATUS_PEER, "the job's server sent a message that makes no sense");
    self->in_bytes -= done;
    memmove(self->in, self->in + done, self->in_bytes);
}

/* Reads and handles all messages that have arrived, up to a verdict. */
static void receive_now(job *self)
{
    while (self->verdict == LK_OK) {
        ssize_t got = recv(self->fd, self->in + self->in_bytes, self->in_room - self->in_bytes, MSG_DONTWAIT);
        if (got > 0) {
            self->in_bytes += (size_t)got;
            handle_all(self);
        } else if (got == 0) {
            lose_server(self);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } else if (errno != EINTR) {
            self->vanished |= lk__net_is_vanished(errno);
            lose_server(self);
        }
    }
}

/* SIOCOUTQ counts the bytes that were not acknowledged. */
static bool job_unacknowledged(const lk_control *control)
{
    int bytes = 0;
    return ioctl(((const job *)control)->fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

/* Rank 0 always reaches its own server. */
static void watch_server(job *self)
{
    if (self->server || !job_unacknowledged(&self->base))
        self->unacknowledged_since = 0;
    else if (self->unacknowledged_since == 0)
        self->unacknowledged_since = lk__clock();
    else if (lk__clock() - self->unacknowledged_since > lk__net_vanish(self->base.timeout) + late_seconds) {
        self->vanished = true;
        lose_server(self);
    }
}

static lk_status job_check(lk_control *control)
{
    job *self = (job *)control;
    if (self->verdict == LK_OK)
        receive_now(self);
    if (self->verdict == LK_OK)
        watch_server(self);
    return self->verdict == LK_OK ? LK_OK : lk__fail(self->verdict, "%s", self->text);
}

/* A failed send is no failure of its own: messages that arrived before it may say more. */
static void send_message(job *self, lk_wire message)
{
    uint8_t bytes[LK_WIRE_TO_SERVER];
    message.size = self->base.size;
    message.rank = self->base.rank;
    size_t length = lk__wire_encode(&message, bytes);
    if (lk__net_send_all(self->fd, bytes, length, lk__clock() + send_seconds) != LK_OK) {
        self->vanished |= lk__net_is_vanished(errno);
        receive_now(self);
    }
}

static void job_abort(lk_control *control, lk_status status, const char *text)
{
    job *self = (job *)control;
    if (self->verdict != LK_OK)
        return;
    send_message(self, (lk_wire){.kind = LK_WIRE_KIND_ABORT,
                                 .status = status,
                                 .data = (const uint8_t *)text,
                                 .bytes = lk__size_min(strlen(text), LK_WIRE_TEXT)});
    set_verdict(self, status, text);
}

static void job_report(lk_control *control, const lk_call *calls, int count)
{
    job *self = (job *)control;
    uint8_t data[LK_HISTORY * LK_CALL_BYTES];
    if (count > LK_HISTORY) {
        calls += count - LK_HISTORY;
        count = LK_HISTORY;
    }
    for (int i = 0; i < count; i++)
        lk__call_encode(&calls[i], data + (size_t)i * LK_CALL_BYTES);
    if (self->asked_at == 0)
        self->asked_at = lk__clock();
    if (self->verdict == LK_OK)
        send_message(self,
                     (lk_wire){.kind = LK_WIRE_KIND_REPORT, .data = data, .bytes = (size_t)count * LK_CALL_BYTES});
}

/* If the server does not answer, rank 0 is stopped or busy. */
static void job_absent(const lk_control *control, uint8_t *absent)
{
    const job *self = (const job *)control;
    memcpy(absent, self->absent, (size_t)control->size);
    if (self->server || self->asked_at == 0 || lk__clock() - self->asked_at < answer_seconds)
        return;
    memset(absent, 0, (size_t)control->size);
    absent[0] = 1;
}

static bool job_left(const lk_control *control, int rank)
{
    return ((const job *)control)->left[rank] != 0;
}

/* Writes where ranks join, as long as not all have: "; rank 0 is at HOST, port PORT". */
static void describe_meeting(const job *self, char text[LK_WIRE_TEXT / 4])
{
    const lk_meeting *meeting = &self->meeting;
    text[0] = '\0';
    if (self->welcome)
        return;
    if (meeting->path[0])
        snprintf(text, LK_WIRE_TEXT / 4, "; the address of rank 0 is in %.200s", meeting->path);
    else if (meeting->ports > 1)
        snprintf(text, LK_WIRE_TEXT / 4, "; rank 0 is at %.128s, ports %d to %d", meeting->host, meeting->port,
                 meeting->port + meeting->ports - 1);
    else
        snprintf(text, LK_WIRE_TEXT / 4, "; rank 0 is at %.128s, port %d", meeting->host, meeting->port);
}

/* Blocks until *there, with notices. At the timeout it aborts the job and names the ranks that it waited for. */
static lk_status wait_until(job *self, const bool *there, lk_deadline *deadline, const char *what)
{
    char missing[LK_WIRE_TEXT / 4], where[LK_WIRE_TEXT / 4], text[LK_WIRE_TEXT];
    for (;;) {
        bool busy = self->base.idle && self->base.idle(self->base.idle_arg);
        /* A part that arrived before the job failed still counts. */
        lk_status status = job_check(&self->base);
        if (*there)
            return LK_OK;
        LK_TRY(status);
        if (memchr(self->awaited, 1, (size_t)self->base.size))
            lk__text_awaited("rank", self->awaited, self->base.size, what, missing, sizeof missing);
        else
            snprintf(missing, sizeof missing, "the server in rank 0 of %d has not answered", self->base.size);
        if (lk__deadline_over(deadline)) {
            describe_meeting(self, where);
            snprintf(text, sizeof text, "%s within %g s%s%s%s", missing, deadline->timeout, where,
                     *self->hint ? "; " : "", self->hint);
            job_abort(&self->base, LK_STATUS_PEER, text);
            return lk__fail(LK_STATUS_PEER, "%s", text);
        }
        lk__deadline_notice(deadline, missing);
        double wake = lk__deadline_wake(deadline), slice = lk__clock() + idle_slice;
        lk__net_wait(self->fd, POLLIN, busy && slice < wake ? slice : wake);
    }
}

static lk_status job_exchange(lk_control *control, const void *mine, size_t bytes, void *all)
{
    job *self = (job *)control;
    lk_deadline deadline;
    if (bytes > LK_EXCHANGE_BYTES)
        return lk__fail(LK_STATUS_USAGE, "an exchange takes at most %d bytes, not %zu", LK_EXCHANGE_BYTES, bytes);
    LK_TRY(job_check(control));
    lk__deadline_init(&deadline, control->timeout, control->notice, control->notice_arg);
    self->exchanged = false;
    self->all = all;
    self->part_bytes = bytes;
    memset(self->awaited, 0, (size_t)control->size);
    send_message(self, (lk_wire){.kind = LK_WIRE_KIND_EXCHANGE, .number = self->number, .data = mine, .bytes = bytes});
    lk_status status = wait_until(self, &self->exchanged, &deadline, "not come to exchange addresses");
    self->all = NULL;
    self->number++;
    return status;
}

/* The server closes the connection when it has received the goodbye. Until then its messages are read,
 * because closing a socket with unread data would reset the connection. */
static void send_goodbye(job *self)
{
    uint8_t rest[4096];
    double deadline = lk__clock() + goodbye_seconds;
    send_message(self, (lk_wire){.kind = LK_WIRE_KIND_LEAVE});
    shutdown(self->fd, SHUT_WR);
    for (;;) {
        ssize_t got = recv(self->fd, rest, sizeof rest, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
            return;
        if (got < 0 && lk__net_wait(self->fd, POLLIN, deadline) == 0)
            return;
    }
}

static void job_destroy(lk_control *control)
{
    job *self = (job *)control;
    if (self->fd >= 0) {
        send_goodbye(self);
        close(self->fd);
    }
    /* Removes rank 0's address before its server ends. */
    lk__meeting_over(&self->meeting);
    lk__server_join(self->server, &self->base);
    lk__meeting_close(&self->meeting);
    lk__mem_free(self->in);
    lk__mem_free(self->left);
    lk__mem_free(self->awaited);
    lk__mem_free(self->absent);
    lk__mem_free(self->base.members);
    lk__mem_free(self);
}

static const lk_control_type job_type = {
    .exchange = job_exchange,
    .check = job_check,
    .report = job_report,
    .abort = job_abort,
    .absent = job_absent,
    .unacknowledged = job_unacknowledged,
    .left = job_left,
    .destroy = job_destroy,
};

static void send_hello(job *self, const lk_member *member)
{
    uint8_t data[LK_WIRE_MEMBER];
    lk__wire_put_member(member, data);
    send_message(self, (lk_wire){.kind = LK_WIRE_KIND_HELLO, .data = data, .bytes = sizeof data});
}

static bool is_any(const char *address)
{
    return strcmp(address, "0.0.0.0") == 0 || strcmp(address, "::") == 0;
}

/* A job of one rank uses the same code, although it needs no socket. */
static lk_status start_server(job *self, lk_member *member)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
        return lk__fail(LK_STATUS_IO, "cannot make a socket pair: %s", strerror(errno));
    lk__net_local_address(self->meeting.fd, member->address, sizeof member->address);
    if (is_any(member->address))
        member->address[0] = '\0';
    self->fd = pair[0];
    send_hello(self, member);
    lk_server_opts opts = {.size = self->base.size,
                           .own = pair[1],
                           .timeout = self->base.timeout,
                           .exits = self->meeting.exits,
                           .threads = self->meeting.threads};
    lk_status status;
    LK_TRY_GOTO(lk__meeting_acceptor(&self->meeting, LK_SERVER_HELLO, &opts.acceptor), close_own);
    LK_TRY_GOTO(lk__server_start(&opts, &self->server), destroy_acceptor);
    return LK_OK;

destroy_acceptor:
    lk__acceptor_destroy(opts.acceptor);
close_own:
    close(opts.own);
    return status;
}

static lk_status connect_server(job *self)
{
    lk_member member = lk__host_member();
    if (self->base.rank == 0 && !self->meeting.twin)
        return start_server(self, &member);
    self->fd = self->meeting.fd;
    self->meeting.fd = -1;
    LK_TRY(lk__net_prepare(self->fd, lk__net_vanish(self->base.timeout)));
    lk__net_local_address(self->fd, member.address, sizeof member.address);
    send_hello(self, &member);
    return LK_OK;
}

static lk_status job_alloc(job *self)
{
    size_t size = (size_t)self->base.size;
    self->in_room = lk__wire_from_server(self->base.size);
    LK_TRY(LK_ALLOC(self->in_room, "messages of the job's server", &self->in));
    LK_TRY(LK_ALLOC(size, "the job's ranks", &self->left));
    LK_TRY(LK_ALLOC(size, "the job's ranks", &self->awaited));
    LK_TRY(LK_ALLOC(size, "the job's ranks", &self->absent));
    return LK_ALLOC(size, "the job's members", &self->base.members);
}

static void fill_base(job *self)
{
    const lk_meeting *meeting = &self->meeting;
    self->base = (lk_control){.type = &job_type,
                              .rank = meeting->rank,
                              .size = meeting->size,
                              .token = meeting->token,
                              .timeout = meeting->deadline.timeout,
                              .notice = meeting->deadline.notice,
                              .notice_arg = meeting->deadline.arg};
}

/* Keeps the reason why the rank could not join, since leaving may set another detail. */
static void destroy_keeping_detail(job *self, lk_status status)
{
    char detail[2 * LK_WIRE_TEXT];
    snprintf(detail, sizeof detail, "%s", lk_error_detail());
    job_destroy(&self->base);
    (void)lk__fail(status, "%s", detail);
}

lk_status lk__control_join(const lk_group_opts *opts, const lk_mpi_world *world, lk_control **out)
{
    lk_meeting_kind ranks = {
        .noun = "rank", .greeting = "lockstep control 1", .once_per_process = true, .world = world};
    job *self;
    lk_status status;
    LK_TRY(LK_ALLOC(1, "the job's control", &self));
    self->fd = -1;
    LK_TRY_GOTO(lk__meeting_open(opts, &ranks, &self->meeting), free_self);
    fill_base(self);
    LK_TRY_GOTO(job_alloc(self), destroy_job);
    LK_TRY_GOTO(connect_server(self), destroy_job);
    LK_TRY_GOTO(wait_until(self, &self->welcome, &self->meeting.deadline, "not joined"), destroy_job);
    lk__meeting_over(&self->meeting);
    *out = &self->base;
    return LK_OK;

destroy_job:
    destroy_keeping_detail(self, status);
    return status;
free_self:
    lk__mem_free(self);
    return status;
}
