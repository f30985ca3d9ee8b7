/* rendezvous.c - the table of methods and what they share: attempts until the timeout, authenticated
 * connections, listening at host and port. */
#include "comm/rendezvous/rendezvous.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/spec.h"
#include "net/socket.h"

static const char timeout_variable[] = "LOCKSTEP_TIMEOUT";
static const double default_timeout = 300;
static const double connect_seconds = 5,
                    scan_seconds = 1;   /* seconds of an attempt at the only port; at one of several */
static const double holder_seconds = 2; /* seconds to learn who has the port */
static const double connect_most =
    2; /* most seconds of an attempt before the peer answers; this wait cannot be interrupted */
static const double attempt_least = 0.25;
static const double slice = 0.2; /* seconds between two checks for an interruption */
static const double pause_least = 0.01, pause_most = 0.25;

static const lk_rendezvous_method *const methods[] = {&lk__rendezvous_env, &lk__rendezvous_tcp, &lk__rendezvous_file};

const lk_rendezvous_method *lk__rendezvous_list(size_t index)
{
    return index < sizeof methods / sizeof *methods ? methods[index] : NULL;
}

static lk_status find_method(const char *text, const lk_rendezvous_method **out, const char **rest)
{
    const lk_rendezvous_method *method;
    char known[128] = "";
    for (size_t i = 0; (method = lk__rendezvous_list(i)) != NULL; i++) {
        size_t length = strlen(method->scheme);
        if (strncmp(text, method->scheme, length) == 0) {
            *out = method;
            *rest = text + length;
            return LK_OK;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", method->summary);
    }
    return lk__fail(LK_STATUS_USAGE, "no init method '%s'; known are: %s", text, known);
}

lk_status lk__meeting_rank(lk_meeting *meeting, const lk_group_opts *opts, long long rank, long long size)
{
    int threads = opts->threads == 0 ? 1 : opts->threads;
    if (threads < 1)
        return lk__fail(LK_STATUS_USAGE, "a process cannot have %d ranks: it has at least 1", threads);
    if (opts->thread < 0 || opts->thread >= threads)
        return lk__fail(LK_STATUS_USAGE, "thread %d is impossible in a process of %d ranks: they count from 0 to %d",
                        opts->thread, threads, threads - 1);
    if (size < 1 || size > LK_MAX_RANKS)
        return lk__fail(LK_STATUS_USAGE, "a world size of %lld is impossible: it is from 1 to %d", size, LK_MAX_RANKS);
    if (rank < 0 || rank >= size)
        return lk__fail(LK_STATUS_USAGE, "rank %lld is impossible in a world of %lld: ranks count from 0 to %lld", rank,
                        size, size - 1);
    if (threads > LK_MAX_RANKS / size)
        return lk__fail(LK_STATUS_USAGE, "%lld processes with %d ranks each are too many: a world has at most %d ranks",
                        size, threads, LK_MAX_RANKS);
    meeting->rank = (int)rank * threads + opts->thread;
    meeting->size = (int)size * threads;
    meeting->threads = threads;
    return LK_OK;
}

/* A world of one rank is joined by nobody: it needs no home folder. */
static lk_status draw_token(lk_token *out)
{
    char text[LK_TOKEN_TEXT];
    LK_TRY(lk__token_make(text));
    return lk__token_from_text(text, out);
}

lk_status lk__meeting_token(lk_meeting *meeting, const char *given, const char *job)
{
    LK_TRY(lk__token_find(given, &meeting->token, &meeting->given));
    if (meeting->given)
        return LK_OK;
    return meeting->size == 1 ? draw_token(&meeting->token) : lk__token_for_job(job, &meeting->token);
}

static void warn_open(const lk_meeting *meeting, int port)
{
    if (meeting->token.origin != LK_TOKEN_ORIGIN_OPEN || !meeting->deadline.notice)
        return;
    char text[LK_MEETING_HOST + 160];
    snprintf(text, sizeof text,
             "LOCKSTEP_INSECURE is 1: anyone who can reach %s:%d may join; unset it, and your secret or a token keeps "
             "others out",
             meeting->host, port);
    meeting->deadline.notice(meeting->deadline.arg, text);
}

static bool interrupted(const lk_meeting *meeting)
{
    return meeting->kind.interrupted && *meeting->kind.interrupted;
}

static lk_status prove(const lk_meeting *meeting, lk_handshake *shake, int fd, double deadline)
{
    lk_status status;
    do {
        double next = lk__clock() + slice;
        status = lk__handshake_run(shake, fd, next < deadline ? next : deadline);
    } while (shake->state == LK_HANDSHAKE_STATE_PENDING && lk__clock() < deadline && !interrupted(meeting));
    return status;
}

/* Adds to a failure whom it is about. */
static lk_status name_first(const lk_meeting *meeting, lk_status status)
{
    if (status == LK_OK)
        return LK_OK;
    return lk__fail(status, "%s 0 of %d: %s", meeting->kind.noun, meeting->size, lk_error_detail());
}

/* Connects and authenticates; sets meeting->fd. */
static lk_status connect_proved(lk_meeting *meeting, const char *host, int port, double seconds)
{
    const lk_meeting_kind *kind = &meeting->kind;
    uint8_t greeting[LK_GREETING_BYTES];
    lk_handshake shake;
    int fd = -1;
    bool refused;
    double now = lk__clock();
    lk_status status =
        lk__net_connect(host, port, now + (seconds < connect_most ? seconds : connect_most), &fd, &refused);
    snprintf(meeting->unreached, sizeof meeting->unreached, "%s", status != LK_OK && !refused ? lk_error_detail() : "");
    if (refused)
        return lk__fail(status, "%s 0 of %d at %s:%d does not answer", kind->noun, meeting->size, host, port);
    if (status != LK_OK)
        return name_first(meeting, status);
    lk__acceptor_greeting(kind->greeting, greeting);
    lk__handshake_init(&shake, &meeting->token, false, greeting);
    LK_TRY_GOTO(name_first(meeting, prove(meeting, &shake, fd, now + seconds)), close_fd);
    if (memcmp(lk__handshake_greeting(&shake), greeting, sizeof greeting) != 0) {
        status = lk__fail(LK_STATUS_PEER, "what answers at %s:%d is not %s 0 of a job", host, port, kind->noun);
        goto close_fd;
    }
    meeting->fd = fd;
    return LK_OK;

close_fd:
    close(fd);
    /* The answer of a peer that only closed the connection does not replace an earlier answer. */
    if (shake.got_bytes > 0 || !*meeting->last_answer)
        snprintf(meeting->last_answer, sizeof meeting->last_answer, "%s", lk_error_detail());
    return status;
}

/* Asks the process that has rank 0's port who it is. If it is a rank 0 with the same token, sets twin. */
static lk_status ask_holder(lk_meeting *meeting, lk_status status)
{
    char why[1024], answer[1024];
    const char *noun = meeting->kind.noun;
    snprintf(why, sizeof why, "%s", lk_error_detail());
    lk_status asked = connect_proved(meeting, meeting->host, meeting->port, holder_seconds);
    if (asked == LK_OK) {
        meeting->twin = true;
        return LK_OK;
    }
    snprintf(answer, sizeof answer, "%s", lk_error_detail());
    if (!*meeting->last_answer)
        return lk__fail(status, "%s", why);
    return lk__fail(status,
                    "%s; or another process of this job came as %s 0, and this one needs another number (what answers "
                    "at the port: %s)",
                    why, noun, answer);
}

lk_status lk__meeting_listen_ports(lk_meeting *meeting)
{
    lk_status status = LK_OK;
    int port = 0;
    for (int i = 0; i < meeting->ports; i++) {
        status = lk__net_listen(meeting->host, meeting->port + i, &meeting->fd, &port);
        if (status != LK_STATUS_IO)
            break;
    }
    if (status == LK_STATUS_IO && meeting->ports == 1)
        return ask_holder(meeting, status);
    LK_TRY(status);
    warn_open(meeting, port);
    return LK_OK;
}

/* Whether another attempt cannot succeed either. */
static bool is_final(lk_status status)
{
    return status == LK_STATUS_USAGE || status == LK_STATUS_MEMORY || status == LK_STATUS_UNSUPPORTED;
}

lk_status lk__meeting_connect_at(lk_meeting *meeting, const char *host, int port, double seconds)
{
    /* The last attempt also gets some time, so that the reported reason is its failure and not the lack of
     * time. */
    double left = meeting->deadline.end - lk__clock();
    if (seconds > left)
        seconds = left > attempt_least ? left : attempt_least;
    lk_status status = connect_proved(meeting, host, port, seconds);
    return is_final(status) ? status : LK_OK;
}

/* The reason is that of the last port that could not be reached, as by a host that is not found. */
static lk_status connect_several(lk_meeting *meeting)
{
    char reason[sizeof meeting->unreached] = "";
    for (int i = 0; i < meeting->ports && meeting->fd < 0 && !lk__deadline_over(&meeting->deadline); i++) {
        LK_TRY(lk__meeting_connect_at(meeting, meeting->host, meeting->port + i, scan_seconds));
        if (*meeting->unreached)
            memcpy(reason, meeting->unreached, sizeof reason);
    }
    if (meeting->fd < 0)
        (void)lk__fail(LK_STATUS_PEER, "%s 0 of %d does not answer at %s, ports %d to %d%s%s", meeting->kind.noun,
                       meeting->size, meeting->host, meeting->port, meeting->port + meeting->ports - 1,
                       *reason ? ": " : "", reason);
    return LK_OK;
}

lk_status lk__meeting_connect_ports(lk_meeting *meeting)
{
    if (meeting->ports == 1)
        return lk__meeting_connect_at(meeting, meeting->host, meeting->port, connect_seconds);
    return connect_several(meeting);
}

/* An answer says more than the lack of one. At several ports, other jobs may have answered: both are reported. */
static lk_status give_up(const lk_meeting *meeting, const char *reason)
{
    bool answered = *meeting->last_answer, several = meeting->ports > 1;
    return lk__fail(LK_STATUS_PEER, "%s%s%s; %s %d gave up after %g s", answered && !several ? "" : reason,
                    answered && several ? "; what answers there: " : "", answered ? meeting->last_answer : "",
                    meeting->kind.noun, meeting->rank, meeting->deadline.timeout);
}

/* Whether the launcher knows that nobody will listen. */
static bool first_is_gone(const lk_meeting *meeting)
{
    uint8_t gone[LK_MAX_RANKS];
    return *meeting->exits && lk__exits_read(meeting->exits, meeting->size / meeting->threads, gone) && gone[0];
}

static lk_status connect_until_deadline(lk_meeting *meeting)
{
    char reason[1024];
    for (double pause = pause_least;; pause = pause * 1.5 < pause_most ? pause * 1.5 : pause_most) {
        LK_TRY(meeting->method->connect(meeting));
        if (meeting->fd >= 0)
            return LK_OK;
        if (interrupted(meeting))
            return lk__fail(LK_STATUS_PEER, "interrupted while waiting for %s 0", meeting->kind.noun);
        if (first_is_gone(meeting))
            return lk__fail(LK_STATUS_PEER, "%s 0 of %d exited with status 0 before it joined", meeting->kind.noun,
                            meeting->size);
        snprintf(reason, sizeof reason, "%s", lk_error_detail());
        lk__deadline_notice(&meeting->deadline, reason);
        double left = meeting->deadline.end - lk__clock();
        lk__clock_sleep(left < pause ? left : pause);
        if (lk__deadline_over(&meeting->deadline))
            return give_up(meeting, reason);
    }
}

lk_status lk__meeting_timeout(double given, double *out)
{
    const char *text = getenv(timeout_variable);
    double timeout = given != 0 ? given : default_timeout;
    if (given == 0 && text && text[0] && (!lk__number_parse_double(text, &timeout) || !(timeout > 0)))
        return lk__fail(LK_STATUS_USAGE, "the variable %s is '%s': it must be a positive number of seconds",
                        timeout_variable, text);
    if (!(timeout > 0) || isinf(timeout))
        return lk__fail(LK_STATUS_USAGE, "a timeout of %g s is impossible: give a positive number", timeout);
    *out = timeout;
    return LK_OK;
}

static lk_status fill_in(lk_meeting *meeting, const lk_group_opts *opts)
{
    const char *text = opts && opts->init_method ? opts->init_method : "env://";
    double timeout = 0;
    const char *rest = "";
    static const lk_group_opts none = {0};
    LK_TRY(lk__meeting_timeout(opts ? opts->timeout : 0, &timeout));
    if (meeting->kind.world)
        meeting->method = &lk__rendezvous_mpi;
    else
        LK_TRY(find_method(text, &meeting->method, &rest));
    lk__deadline_init(&meeting->deadline, timeout, opts ? opts->notice : NULL, opts ? opts->notice_arg : NULL);
    return meeting->method->find(meeting, opts ? opts : &none, rest);
}

static lk_status claim_rank(lk_meeting *meeting)
{
    char job[LK_MEETING_HOST + 16];
    if (!meeting->kind.once_per_process)
        return LK_OK;
    snprintf(job, sizeof job, "%s:%d", meeting->host, meeting->port);
    return lk__claim_take(meeting->path[0] ? meeting->path : job, meeting->rank, &meeting->claim);
}

lk_status lk__meeting_open(const lk_group_opts *opts, const lk_meeting_kind *kind, lk_meeting *out)
{
    lk_meeting meeting = {.kind = *kind, .fd = -1};
    lk_status status = fill_in(&meeting, opts);
    if (status == LK_OK)
        status = claim_rank(&meeting);
    if (status == LK_OK)
        status = meeting.rank == 0 ? meeting.method->listen(&meeting) : connect_until_deadline(&meeting);
    if (status == LK_OK)
        *out = meeting;
    else if (meeting.method)
        lk__meeting_close(&meeting);
    return status;
}

lk_status lk__meeting_acceptor(lk_meeting *meeting, size_t hello_bytes, lk_acceptor **out)
{
    lk_acceptor_opts opts = {.listener = meeting->fd,
                             .token = meeting->token,
                             .greeting = meeting->kind.greeting,
                             .hello_bytes = hello_bytes};
    LK_TRY(lk__acceptor_create(&opts, out));
    meeting->fd = -1;
    return LK_OK;
}

void lk__meeting_over(lk_meeting *meeting)
{
    if (meeting->rank == 0 && meeting->method->over)
        meeting->method->over(meeting);
}

void lk__meeting_close(lk_meeting *meeting)
{
    lk__meeting_over(meeting);
    lk__fd_close(&meeting->fd);
    lk__claim_drop(meeting->claim);
    meeting->claim = NULL;
}
