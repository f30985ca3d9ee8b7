/* progress.c - the turn, and the progress thread. */
#include "comm/collective/progress.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/forks.h"
#include "base/mem.h"
#include "base/thread.h"

/* Nanoseconds between two passes in which nothing moved: doubled each time, up to the most. */
enum { REST_LEAST = 10000, REST_MOST = 320000 };

struct lk_progress {
    lk_group *whole;
    pthread_t thread;
    pthread_mutex_t turn; /* recursive */
    pthread_cond_t begun; /* a request is under way, or the thread must end */
    atomic_int callers;   /* threads that wait for the turn; the progress thread lets them go first */
    bool ends;
};

lk_status lk__progress_wanted(const lk_group_opts *opts, bool *out)
{
    const char *text = getenv("LOCKSTEP_PROGRESS_THREAD");
    *out = opts->progress_thread;
    if (!text || !*text)
        return LK_OK;
    if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
        return lk__fail(LK_STATUS_USAGE, "the variable LOCKSTEP_PROGRESS_THREAD is '%s': it must be 0 or 1", text);
    *out = *out || *text == '1';
    return LK_OK;
}

/* NULL without a thread, also in a process that was forked later: the turn may have been taken at that moment. */
static lk_progress *progress_of(const lk_group *group)
{
    lk_progress *progress = group->whole->progress;
    return progress && group->forks == lk__forks() ? progress : NULL;
}

void lk__progress_take(const lk_group *group)
{
    lk_progress *progress = progress_of(group);
    if (!progress)
        return;
    atomic_fetch_add(&progress->callers, 1);
    pthread_mutex_lock(&progress->turn);
    atomic_fetch_sub(&progress->callers, 1);
}

void lk__progress_give(const lk_group *group)
{
    lk_progress *progress = progress_of(group);
    if (progress)
        pthread_mutex_unlock(&progress->turn);
}

void lk__progress_wake(const lk_group *group)
{
    lk_progress *progress = progress_of(group);
    if (progress)
        pthread_cond_signal(&progress->begun);
}

static bool is_under_way(const lk_group *whole)
{
    for (const lk_group *group = whole->family; group; group = group->sibling)
        if (group->first)
            return true;
    return false;
}

/* Gives callers time to take the turn, and rests while nothing moves. */
static void rest(lk_progress *progress, bool moved, long *nanoseconds)
{
    struct timespec pause = {.tv_nsec = *nanoseconds};
    while (atomic_load(&progress->callers) > 0)
        sched_yield();
    if (!moved)
        nanosleep(&pause, NULL);
    *nanoseconds = moved ? REST_LEAST : *nanoseconds < REST_MOST ? 2 * *nanoseconds : REST_MOST;
}

/* A failure stays in the group, and the next call returns it. The timeout is for ranks that wait, so it is left
 * to the caller. */
static void *run(void *arg)
{
    lk_progress *progress = arg;
    long nanoseconds = REST_LEAST;
    pthread_mutex_lock(&progress->turn);
    while (!progress->ends) {
        if (!is_under_way(progress->whole)) {
            nanoseconds = REST_LEAST;
            pthread_cond_wait(&progress->begun, &progress->turn);
            continue;
        }
        bool moved = false;
        (void)lk__executor_move_others(progress->whole, NULL, &moved);
        pthread_mutex_unlock(&progress->turn);
        rest(progress, moved, &nanoseconds);
        pthread_mutex_lock(&progress->turn);
    }
    pthread_mutex_unlock(&progress->turn);
    return NULL;
}

lk_status lk__progress_create(lk_group *whole, lk_progress **out)
{
    lk_progress *progress = NULL;
    pthread_mutexattr_t recursive;
    LK_TRY(LK_ALLOC(1, "a progress thread", &progress));
    progress->whole = whole;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&progress->turn, &recursive);
    pthread_mutexattr_destroy(&recursive);
    pthread_cond_init(&progress->begun, NULL);
    *out = progress;
    if (lk__thread_create(&progress->thread, run, progress) == 0)
        return LK_OK;
    *out = NULL;
    pthread_cond_destroy(&progress->begun);
    pthread_mutex_destroy(&progress->turn);
    lk__mem_free(progress);
    return lk__fail(LK_STATUS_MEMORY, "the progress thread of a group could not be started");
}

void lk__progress_destroy(lk_progress *progress)
{
    if (!progress)
        return;
    pthread_mutex_lock(&progress->turn);
    progress->ends = true;
    pthread_cond_signal(&progress->begun);
    pthread_mutex_unlock(&progress->turn);
    pthread_join(progress->thread, NULL);
    pthread_cond_destroy(&progress->begun);
    pthread_mutex_destroy(&progress->turn);
    lk__mem_free(progress);
}
