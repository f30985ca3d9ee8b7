/* control_threads.c - the control of ranks that are threads of one process: one roster with one lock. A
 * thread that ends without leaving is noticed only by the timeout of others. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/text.h"
#include "comm/control/control_type.h"
#include "comm/control/roster.h"
#include "comm/control/wire.h"
#include "net/deadline.h"
#include "net/host.h"

/* Seconds between two runs of the idle function while an exchange waits. */
static const double idle_slice = 0.001;

/* Shared by all ranks; freed by the last one. */
typedef struct hub {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* signalled when an exchange is complete or the job has failed */
    lk_roster *roster;
    uint32_t exchanges; /* number of complete exchanges */
    int users;
    atomic_bool broken; /* so that a check needs no lock */
} hub;

typedef struct thread {
    lk_control base;
    hub *hub;
    uint32_t number;
    uint8_t *awaited; /* (size) */
} thread;

/* Call it with the lock held, after anything that may have failed the job. */
static lk_status look(hub *shared)
{
    const char *text;
    lk_status verdict = lk__roster_verdict(shared->roster, &text);
    if (verdict == LK_OK)
        return LK_OK;
    atomic_store(&shared->broken, true);
    pthread_cond_broadcast(&shared->changed);
    return lk__fail(verdict, "%s", text);
}

static lk_status thread_check(lk_control *control)
{
    hub *shared = ((thread *)control)->hub;
    if (!atomic_load_explicit(&shared->broken, memory_order_acquire))
        return LK_OK;
    pthread_mutex_lock(&shared->lock);
    lk_status status = look(shared);
    pthread_mutex_unlock(&shared->lock);
    return status;
}

static void thread_report(lk_control *control, const lk_call *calls, int count)
{
    hub *shared = ((thread *)control)->hub;
    pthread_mutex_lock(&shared->lock);
    lk__roster_report(shared->roster, control->rank, calls, count);
    (void)look(shared);
    pthread_mutex_unlock(&shared->lock);
}

static void thread_abort(lk_control *control, lk_status status, const char *text)
{
    hub *shared = ((thread *)control)->hub;
    pthread_mutex_lock(&shared->lock);
    lk__roster_abort(shared->roster, status, text);
    (void)look(shared);
    pthread_mutex_unlock(&shared->lock);
}

static void thread_absent(const lk_control *control, uint8_t *absent)
{
    hub *shared = ((const thread *)control)->hub;
    pthread_mutex_lock(&shared->lock);
    lk__roster_absent(shared->roster, control->rank, absent);
    pthread_mutex_unlock(&shared->lock);
}

static bool thread_left(const lk_control *control, int rank)
{
    hub *shared = ((const thread *)control)->hub;
    pthread_mutex_lock(&shared->lock);
    bool left = lk__roster_presence(shared->roster, rank) == LK_ROSTER_PRESENCE_LEFT;
    pthread_mutex_unlock(&shared->lock);
    return left;
}

/* Call it with the lock held. `moment` is an lk__clock() time, which is CLOCK_MONOTONIC. */
static void sleep_until(hub *shared, double moment)
{
    struct timespec at = {.tv_sec = (time_t)moment};
    at.tv_nsec = (long)((moment - (double)at.tv_sec) * 1e9);
    pthread_cond_timedwait(&shared->changed, &shared->lock, &at);
}

/* Releases the lock while the user's function runs. */
static void give_notice(thread *self, lk_deadline *deadline)
{
    char text[LK_WIRE_TEXT / 2];
    lk__text_awaited("rank", self->awaited, self->base.size, "not come to an exchange", text, sizeof text);
    pthread_mutex_unlock(&self->hub->lock);
    lk__deadline_notice(deadline, text);
    pthread_mutex_lock(&self->hub->lock);
}

static lk_status give_up(thread *self, const lk_deadline *deadline)
{
    char text[LK_WIRE_TEXT / 2], whole[LK_WIRE_TEXT];
    lk__text_awaited("rank", self->awaited, self->base.size, "not come to an exchange", text, sizeof text);
    snprintf(whole, sizeof whole, "%s within %g s", text, deadline->timeout);
    lk__roster_abort(self->hub->roster, LK_STATUS_PEER, whole);
    return look(self->hub);
}

/* Releases the lock while the idle function runs. Returns whether other work is under way. */
static bool move_others(thread *self)
{
    if (!self->base.idle)
        return false;
    pthread_mutex_unlock(&self->hub->lock);
    bool busy = self->base.idle(self->base.idle_arg);
    pthread_mutex_lock(&self->hub->lock);
    return busy;
}

/* Call it with the lock held. */
static lk_status wait_for_parts(thread *self)
{
    hub *shared = self->hub;
    lk_deadline deadline;
    lk__deadline_init(&deadline, self->base.timeout, self->base.notice, self->base.notice_arg);
    for (;;) {
        bool busy = move_others(self);
        if (shared->exchanges > self->number)
            return LK_OK;
        LK_TRY(look(shared));
        lk__roster_awaited(shared->roster, self->awaited);
        if (lk__deadline_over(&deadline))
            return give_up(self, &deadline);
        if (lk__clock() >= deadline.next)
            give_notice(self, &deadline);
        else
            sleep_until(shared, busy ? lk__clock() + idle_slice : lk__deadline_wake(&deadline));
    }
}

static lk_status thread_exchange(lk_control *control, const void *mine, size_t bytes, void *all)
{
    thread *self = (thread *)control;
    hub *shared = self->hub;
    if (bytes > LK_EXCHANGE_BYTES)
        return lk__fail(LK_STATUS_USAGE, "an exchange takes at most %d bytes, not %zu", LK_EXCHANGE_BYTES, bytes);
    pthread_mutex_lock(&shared->lock);
    if (lk__roster_give(shared->roster, control->rank, self->number, mine, bytes)) {
        shared->exchanges++;
        pthread_cond_broadcast(&shared->changed);
    }
    lk_status status = wait_for_parts(self);
    if (status == LK_OK && bytes)
        memcpy(all, lk__roster_parts(shared->roster, self->number), bytes * (size_t)control->size);
    self->number++;
    pthread_mutex_unlock(&shared->lock);
    return status;
}

static void hub_free(hub *shared)
{
    pthread_cond_destroy(&shared->changed);
    pthread_mutex_destroy(&shared->lock);
    lk__roster_destroy(shared->roster);
    lk__mem_free(shared);
}

static void thread_free(thread *self)
{
    if (!self)
        return;
    lk__mem_free(self->awaited);
    lk__mem_free(self->base.members);
    lk__mem_free(self);
}

static void thread_destroy(lk_control *control)
{
    thread *self = (thread *)control;
    hub *shared = self->hub;
    pthread_mutex_lock(&shared->lock);
    lk__roster_leave(shared->roster, control->rank);
    (void)look(shared);
    bool last = --shared->users == 0;
    pthread_mutex_unlock(&shared->lock);
    thread_free(self);
    if (last)
        hub_free(shared);
}

static const lk_control_type thread_type = {
    .exchange = thread_exchange,
    .check = thread_check,
    .report = thread_report,
    .abort = thread_abort,
    .absent = thread_absent,
    .left = thread_left,
    .destroy = thread_destroy,
};

static lk_status hub_create(int count, hub **out)
{
    hub *made;
    lk_status status;
    pthread_condattr_t attr;
    lk_member member = lk__host_member();
    snprintf(member.address, sizeof member.address, "127.0.0.1");
    LK_TRY(LK_ALLOC(1, "the ranks' control", &made));
    pthread_mutex_init(&made->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&made->changed, &attr);
    pthread_condattr_destroy(&attr);
    LK_TRY_GOTO(lk__roster_create(count, &made->roster), free_hub);
    for (int r = 0; r < count; r++)
        LK_TRY_GOTO(lk__roster_join(made->roster, r, count, &member), free_hub);
    made->users = count;
    *out = made;
    return LK_OK;

free_hub:
    hub_free(made);
    return status;
}

static lk_status thread_create(hub *shared, int rank, const lk_control *model, thread **out)
{
    thread *made;
    lk_status status;
    LK_TRY(LK_ALLOC(1, "the ranks' control", &made));
    made->base = *model;
    made->base.rank = rank;
    made->hub = shared;
    LK_TRY_GOTO(LK_ALLOC((size_t)model->size, "the ranks' control", &made->awaited), free_thread);
    LK_TRY_GOTO(LK_ALLOC((size_t)model->size, "the job's members", &made->base.members), free_thread);
    memcpy(made->base.members, lk__roster_members(shared->roster), (size_t)model->size * sizeof *made->base.members);
    *out = made;
    return LK_OK;

free_thread:
    thread_free(made);
    return status;
}

static lk_status fill_model(int count, const lk_group_opts *opts, lk_control *out)
{
    char secret[LK_TOKEN_TEXT];
    if (count < 1 || count > LK_MAX_RANKS)
        return lk__fail(LK_STATUS_USAGE, "%d thread ranks are impossible: it is from 1 to %d", count, LK_MAX_RANKS);
    *out = (lk_control){.type = &thread_type, .size = count, .timeout = 300};
    if (opts && opts->timeout != 0)
        out->timeout = opts->timeout;
    if (!(out->timeout > 0 && out->timeout < 1e9))
        return lk__fail(LK_STATUS_USAGE, "a timeout of %g s is impossible: give a positive number", out->timeout);
    if (opts) {
        out->notice = opts->notice;
        out->notice_arg = opts->notice_arg;
    }
    LK_TRY(lk__token_make(secret));
    return lk__token_from_text(secret, &out->token);
}

lk_status lk__control_threads(int count, const lk_group_opts *opts, lk_control **out)
{
    lk_control model;
    hub *shared;
    lk_status status = LK_OK;
    LK_TRY(fill_model(count, opts, &model));
    LK_TRY(hub_create(count, &shared));
    int made = 0;
    for (thread *one; made < count; made++) {
        LK_TRY_GOTO(thread_create(shared, made, &model, &one), free_made);
        out[made] = &one->base;
    }
    return LK_OK;

free_made:
    while (made-- > 0)
        thread_free((thread *)out[made]);
    hub_free(shared);
    return status;
}
