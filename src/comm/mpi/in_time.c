/* in_time.c - makes a call of MPI in a thread, and waits for it. */
#define _DEFAULT_SOURCE /* on_exit */
#include "comm/mpi/in_time.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/thread.h"

/* On the heap, and never freed after a late call, because the thread outlives it. */
typedef struct work {
    lk_mpi_blocking call;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool done;
    int code;
} work;

static void *run(void *arg)
{
    work *w = arg;
    int code = w->call.run(w->call.mpi, w->call.arg);
    pthread_mutex_lock(&w->lock);
    w->code = code;
    w->done = true;
    pthread_cond_signal(&w->ended);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* Exit handlers of the MPI library would find a thread inside it. */
static void leave(int status, void *unused)
{
    (void)unused;
    fflush(NULL);
    _exit(status != 0 ? status : 1);
}

/* Returns whether the call has returned in time. */
static bool await(work *w, double seconds)
{
    struct timespec end;
    int error = 0;
    clock_gettime(CLOCK_MONOTONIC, &end);
    double nanoseconds = (double)end.tv_nsec + (seconds < 1e8 ? seconds : 1e8) * 1e9;
    end.tv_sec += (time_t)(nanoseconds / 1e9);
    end.tv_nsec = (long)(nanoseconds - (double)(time_t)(nanoseconds / 1e9) * 1e9);
    pthread_mutex_lock(&w->lock);
    while (!w->done && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&w->ended, &w->lock, &end);
    bool done = w->done;
    pthread_mutex_unlock(&w->lock);
    return done;
}

static void init_work(work *w, const lk_mpi_blocking *call)
{
    pthread_condattr_t monotonic;
    w->call = *call;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static void free_work(work *w)
{
    pthread_cond_destroy(&w->ended);
    pthread_mutex_destroy(&w->lock);
    lk__mem_free(w);
}

lk_status lk__mpi_fail_late(const lk_mpi *mpi, double seconds, const char *what)
{
    return lk__fail(LK_STATUS_PEER,
                    "MPI (%s) has not %s within %g s: it waits until all processes of the MPI job have done the same. "
                    "One of them is stopped, has ended, or does not use MPI; start all with the same options",
                    mpi->name, what, seconds);
}

lk_status lk__mpi_in_time(const lk_mpi_blocking *call, int *code)
{
    pthread_t thread;
    work *w = NULL;
    if (call->seconds <= 0) {
        *code = call->run(call->mpi, call->arg);
        return LK_OK;
    }
    LK_TRY(LK_ALLOC(1, "a call of MPI", &w));
    init_work(w, call);
    if (lk__thread_create(&thread, run, w) != 0) {
        free_work(w);
        return lk__fail(LK_STATUS_MEMORY, "the thread for a call of MPI could not be started");
    }
    if (!await(w, call->seconds)) {
        pthread_detach(thread);
        (void)on_exit(leave, NULL);
        return lk__mpi_fail_late(call->mpi, call->seconds, call->what);
    }
    pthread_join(thread, NULL);
    *code = w->code;
    free_work(w);
    return LK_OK;
}
