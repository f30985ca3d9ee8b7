/* executor.c - runs the requests of a group in host memory: their order, and waiting.
 *
 * Requests advance only while a thread polls. Collective calls of a group run in their order. Messages of
 * different pairs, and of the two directions of a pair, do not wait for each other. Only lk__executor_wait
 * blocks, at most until the timeout. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/text.h"
#include "comm/collective/group_impl.h"
#include "comm/control/roster.h"
#include "net/deadline.h"

#define CHECK_EVERY 0.02  /* seconds between checks of the control */
#define REPORT_AFTER 0.25 /* seconds of waiting before the first report of calls; later reports are less frequent */
#define NOTICE_EVERY LK_NOTICE_SECONDS /* seconds between notices */
#define ASK_SECONDS 2.0                /* seconds in which the control may say why a peer is lost */
#define LEFT_AFTER 1.0                 /* seconds for the last frames of a rank of another host that has left */
#define SLICE 0.0002                   /* seconds of one sleep while other groups have requests under way */
#define WATCH 0.0002                   /* seconds of polling before a sleep of SLICE */

enum { MOVES_A_CHECK = 64 };

/* Whether an earlier message of the same direction and pair is unfinished. Marks the pair. */
static bool is_behind(const lk_request *request, unsigned char *pairs)
{
    unsigned char bit = request->program->key.detail == LK_MESSAGE_SEND ? 1 : 2;
    bool behind = (pairs[request->peer] & bit) != 0;
    pairs[request->peer] |= bit;
    return behind;
}

/* Removes a request from the list. */
static void unlink_request(lk_group *group, lk_request **link)
{
    lk_request *request = *link;
    if (group->tail == &request->next)
        group->tail = link;
    *link = request->next;
}

/* A collective runs when all earlier requests are done, and no later request runs before it is done. */
static lk_status run_all(lk_group *group, bool *moved)
{
    unsigned char *pairs = group->busy + group->size;
    lk_request **link = &group->first;
    bool clean = false;
    while (*link) {
        lk_request *request = *link;
        bool turn = link == &group->first;
        if (request->peer >= 0) {
            if (!clean)
                memset(pairs, 0, (size_t)group->size);
            clean = true;
            turn = !is_behind(request, pairs);
        }
        if (turn)
            LK_TRY(lk__steps_run(request, moved));
        if (request->done) {
            lk__request_finish(request);
            unlink_request(group, link);
            /* Later requests may run in the next round. */
            continue;
        }
        if (request->peer < 0)
            break;
        link = &request->next;
    }
    return LK_OK;
}

void lk__executor_start(lk_request *request)
{
    lk_group *group = request->group;
    request->trace_begin = lk__trace_begin();
    *group->tail = request;
    group->tail = &request->next;
}

/* Marks in group->busy the ranks from which the request needs frames. */
static void mark_senders(const lk_group *group, const lk_request *request)
{
    memset(group->busy, 0, (size_t)group->size);
    if (!request || request->phase >= request->program->schedule.phase_count || !request->entered)
        return;
    const lk_schedule_phase *phase = &request->program->schedule.phases[request->phase];
    for (int i = 0; i < phase->recv_count; i++)
        if (lk__steps_await(request, i))
            group->busy[phase->recvs[i].peer] = 1;
}

/* A rank that this rank waits for may itself wait for others. If the reports say which ranks are not in the
 * call, those are marked instead; if this rank waits for some of them, only these. */
static void mark_absent(lk_group *group)
{
    bool known = false, both = false;
    mark_senders(group, group->first);
    if (!group->first || group->first->peer >= 0 || group->reports == 0)
        return;
    lk__control_absent(group->control, group->absent);
    for (int r = 0; r < group->size; r++)
        known |= group->absent[lk__group_job_rank(group, r)] != 0;
    for (int r = 0; r < group->size && known; r++)
        both |= group->busy[r] && group->absent[lk__group_job_rank(group, r)];
    for (int r = 0; r < group->size && known; r++) {
        unsigned char absent = group->absent[lk__group_job_rank(group, r)];
        group->busy[r] = both ? group->busy[r] & absent : absent;
    }
}

static int count_busy(const lk_group *group)
{
    int count = 0;
    for (int r = 0; r < group->size; r++)
        count += group->busy[r];
    return count;
}

/* Marks in group->busy the ranks that the oldest request waits for, and writes their list. Ranks whose frames
 * are missing come first; if there are none, the ranks that have not received this rank's frames. */
static void awaited_text(lk_group *group, char *text, size_t bytes)
{
    mark_absent(group);
    bool sending = count_busy(group) > 0;
    if (!sending)
        lk__steps_mark_receivers(group->first);
    memset(group->absent, 0, (size_t)lk__control_size(group->control));
    for (int r = 0; r < group->size; r++)
        group->absent[lk__group_job_rank(group, r)] = group->busy[r];
    size_t used = lk__text_list("rank", group->absent, lk__control_size(group->control), text, bytes);
    if (!sending && used < bytes)
        snprintf(text + used, bytes - used, " to take what was sent");
}

/* After awaited_text: writes a question about the most common cause. */
static void stopped_text(const lk_group *group, char *text, size_t bytes)
{
    char who[LK_MEMBER_TEXT];
    int rank = 0;
    if (count_busy(group) != 1) {
        snprintf(text, bytes, "is one of them stopped (Ctrl-Z, SIGSTOP, a debugger), or does it need longer?");
        return;
    }
    while (!group->busy[rank])
        rank++;
    lk__member_text(lk__group_job_rank(group, rank), &group->members[rank], who);
    snprintf(text, bytes, "is %s stopped (Ctrl-Z, SIGSTOP, a debugger), or does it need longer?", who);
}

/* A rank that has left although a request waits for it. */
typedef struct leaver {
    int rank;                  /* -1: none */
    const lk_request *request; /* the request that waits */
    bool takes;                /* true: it has not received this rank's frames; false: its frames are missing */
} leaver;

/* Returns the first rank that is marked in group->busy and has left, or -1. */
static int first_left(const lk_group *group, bool takes)
{
    for (int r = 0; r < group->size; r++)
        if (group->busy[r] && lk__control_left(group->control, lk__group_job_rank(group, r)) &&
            (takes || !group->transport->type->arrived(group->transport, r)))
            return r;
    return -1;
}

/* Checks all requests, because messages do not wait for each other. */
static leaver find_left(const lk_group *group)
{
    leaver found = {.rank = -1};
    for (const lk_request *request = group->first; request && found.rank < 0; request = request->next) {
        found.request = request;
        mark_senders(group, request);
        found.rank = first_left(group, false);
        if (found.rank >= 0)
            break;
        memset(group->busy, 0, (size_t)group->size);
        lk__steps_mark_receivers(request);
        found.rank = first_left(group, true);
        found.takes = found.rank >= 0;
    }
    return found;
}

static lk_status fail_left(const lk_group *group, const leaver *left)
{
    char call[LK_CALL_TEXT], who[LK_MEMBER_TEXT];
    lk__member_text(lk__group_job_rank(group, left->rank), &group->members[left->rank], who);
    return lk__fail(LK_STATUS_PEER, "%s has left the group while rank %d waits in %s for it%s", who,
                    lk__group_job_rank(group, group->rank), lk__call_text(&left->request->call, call),
                    left->takes ? " to take what was sent" : "");
}

/* Fails if a request waits for a rank that has left. Its last frames may still arrive after the news that it
 * left, so the failure comes some time later. */
static lk_status check_left(lk_group *group, double now)
{
    leaver left = find_left(group);
    if (left.rank < 0 || group->left_seen == 0)
        group->left_seen = left.rank < 0 ? 0 : now;
    bool near = left.rank >= 0 && group->host[left.rank] == group->host[group->rank];
    double grace = near ? CHECK_EVERY : LEFT_AFTER;
    return group->left_seen == 0 || now - group->left_seen < grace ? LK_OK : fail_left(group, &left);
}

/* Sends the history to the server, with the awaited call at the end. */
static void report(lk_group *group)
{
    lk_call calls[LK_HISTORY];
    int count = 0;
    size_t awaited = group->first->record;
    size_t begin = group->history_count > LK_HISTORY ? group->history_count - LK_HISTORY : 0;
    for (size_t i = begin; i < group->history_count; i++)
        if (i != awaited)
            calls[count++] = group->history[i % LK_HISTORY].call;
    count -= count == LK_HISTORY;
    calls[count++] = group->first->call;
    lk__control_report(group->control, calls, count);
}

/* Frames move again. Withdraws the report, so that the server knows that this rank does not wait. */
static void end_wait(lk_group *group)
{
    group->idle_since = group->left_seen = 0;
    if (group->reports > 0)
        lk__control_report(group->control, NULL, 0);
    group->reports = 0;
}

/* A closed connection is often the first sign of a rank that died or left, and the control learns the reason
 * a moment later. Waits for that reason. If the server may be unreachable as well, it waits longer, because
 * finding that out takes more time. */
static lk_status ask_control(lk_group *group, lk_status status)
{
    struct timespec pause = {.tv_nsec = 2000000};
    double begin = lk__clock(), waited = 0;
    char *detail = status == LK_STATUS_PEER ? strdup(lk_error_detail()) : NULL;
    if (!detail)
        return status;
    if (group->first)
        report(group);
    do {
        /* The control learns why a rank has left before it learns that it has: so this is the order to ask in. */
        leaver left = find_left(group);
        lk_status verdict = lk__control_check(group->control);
        if (verdict == LK_OK && left.rank >= 0)
            verdict = fail_left(group, &left);
        if (verdict != LK_OK) {
            free(detail);
            return verdict;
        }
        nanosleep(&pause, NULL);
        waited = lk__clock() - begin;
    } while (waited < ASK_SECONDS || (waited < group->boot.timeout && lk__control_unacknowledged(group->control)));
    status = lk__fail(status, "%s", detail);
    free(detail);
    return status;
}

lk_status lk__executor_move(lk_group *group, bool *moved)
{
    lk_status status;
    bool mine = false;
    double began = lk__trace_begin();
    LK_TRY(lk__group_check(group));
    LK_TRY_GOTO(group->transport->type->progress(group->transport), break_group);
    LK_TRY_GOTO(run_all(group, &mine), break_group);
    if (mine) {
        end_wait(group);
        lk__trace_end(LK_TRACE_KIND_SUM, "move frames", -1, began);
    }
    *moved |= mine;
    return LK_OK;
break_group:
    return lk__group_break(group, ask_control(group, status));
}

bool lk__executor_move_others(lk_group *whole, const lk_group *except, bool *moved)
{
    bool pending = false;
    for (lk_group *other = whole->family; other; other = other->sibling) {
        if (other == except || !other->first)
            continue;
        /* A failure of that group fails the whole job, where it is seen. */
        lk_status status = lk__executor_move(other, moved);
        pending |= status == LK_OK && other->first != NULL;
    }
    return pending;
}

static lk_status time_out(lk_group *group, double idle)
{
    char call[LK_CALL_TEXT], awaited[256], stopped[256];
    awaited_text(group, awaited, sizeof awaited);
    stopped_text(group, stopped, sizeof stopped);
    return lk__fail(LK_STATUS_PEER, "rank %d waited %.0f s in %s for %s: that is its timeout; %s",
                    lk__group_job_rank(group, group->rank), idle, lk__call_text(&group->first->call, call), awaited,
                    stopped);
}

static void notice(lk_group *group, double idle)
{
    char call[LK_CALL_TEXT], awaited[256], text[512];
    awaited_text(group, awaited, sizeof awaited);
    snprintf(text, sizeof text, "rank %d waits in %s for %s, %.0f s left", lk__group_job_rank(group, group->rank),
             lk__call_text(&group->first->call, call), awaited, group->boot.timeout - idle);
    lk__control_notice(group->control, text);
}

/* Checks, reports, notices and the timeout, depending on how long nothing has moved. */
static lk_status check_job(lk_group *group)
{
    double now = lk__clock();
    if (group->idle_since == 0) {
        group->idle_since = group->noticed = now;
        group->reports = 0;
    }
    double idle = now - group->idle_since;
    if (now - group->checked >= CHECK_EVERY) {
        group->checked = now;
        LK_TRY(lk__control_check(group->control));
        LK_TRY(check_left(group, now));
    }
    if (!group->first)
        group->idle_since = 0;
    if (!group->first || idle < REPORT_AFTER)
        return LK_OK;
    if (idle >= REPORT_AFTER * (group->reports * group->reports + 1)) {
        group->reports++;
        report(group);
    }
    if (idle >= group->boot.timeout)
        return time_out(group, idle);
    if (now - group->noticed >= NOTICE_EVERY) {
        group->noticed = now;
        notice(group, idle);
    }
    return LK_OK;
}

lk_status lk__executor_poll(lk_group *group)
{
    bool moved = false;
    LK_TRY(lk__executor_move(group, &moved));
    (void)lk__executor_move_others(group->whole, group, &moved);
    lk_status status = check_job(group);
    return status == LK_OK ? LK_OK : lk__group_break(group, status);
}

/* Sleeps until the transport has news. While other groups have requests under way, it first polls and then
 * sleeps for short times, so that those advance too. */
static void pause(lk_group *group, bool others, double *still_since)
{
    const lk_transport_type *type = group->transport->type;
    if (!others) {
        type->wait(group->transport, CHECK_EVERY);
        return;
    }
    double now = lk__clock();
    if (*still_since == 0)
        *still_since = now;
    if (now - *still_since < WATCH)
        sched_yield();
    else
        type->wait(group->transport, SLICE);
}

/* The index of the first request that is done; count if none is. */
static size_t find_done(lk_request *const *requests, size_t count)
{
    size_t i = 0;
    while (i < count && !(requests[i] && requests[i]->done))
        i++;
    return i;
}

static size_t first_given(lk_request *const *requests, size_t count)
{
    size_t i = 0;
    while (i + 1 < count && !requests[i])
        i++;
    return i;
}

/* The job is checked only from the second pause on, and now and then while frames move: a small sum takes no
 * longer than some readings of the clock. */
lk_status lk__executor_wait_any(lk_request *const *requests, size_t count, size_t *index)
{
    size_t first = first_given(requests, count);
    lk_request *request = requests[first];
    lk_group *group = request->group;
    double still_since = 0, began = request->done ? 0 : lk__trace_begin();
    int pauses = 0, moves = 0;
    size_t done;
    while ((done = find_done(requests, count)) == count) {
        bool moved = false;
        lk_status status = lk__executor_move(group, &moved);
        if (status != LK_OK || request->done)
            break;
        bool others = lk__executor_move_others(group->whole, group, &moved);
        if (moved) {
            still_since = 0;
            pauses = 0;
        }
        bool check = moved ? ++moves % MOVES_A_CHECK == 0 : pauses++ > 0;
        status = check ? check_job(group) : LK_OK;
        if (status != LK_OK)
            (void)lk__group_break(group, status);
        else if (!moved) {
            lk__request_waits(request);
            pause(group, others, &still_since);
        }
    }
    *index = done < count ? done : first;
    lk__trace_end(LK_TRACE_KIND_WAIT, lk__call_name(&request->call), -1, began);
    return requests[*index]->status == LK_OK ? LK_OK : lk__group_broken(requests[*index]->group);
}

lk_status lk__executor_wait(lk_request *request)
{
    size_t index;
    return lk__executor_wait_any(&request, 1, &index);
}
