/* in_time.c - runs the start of MPI in a thread, and waits for it. */
#define _DEFAULT_SOURCE /* on_exit */
#include "comm/mpi/in_time.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"

/* Static, because the thread may outlive the call. */
static struct {
    const lk_mpi *mpi;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool done;
    int code;
    lk_mpi_place place;
} work = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *run(void *unused)
{
    lk_mpi_place place = {0};
    int code = work.mpi->start(LK_MPI_LEVEL_SERIALIZED, &place);
    (void)unused;
    pthread_mutex_lock(&work.lock);
    work.code = code;
    work.place = place;
    work.done = true;
    pthread_cond_signal(&work.ended);
    pthread_mutex_unlock(&work.lock);
    return NULL;
}

/* Exit handlers of the MPI library would find a thread inside it. */
static void leave(int status, void *unused)
{
    (void)unused;
    fflush(NULL);
    _exit(status != 0 ? status : 1);
}

/* Returns whether the thread has ended in time. */
static bool await(double seconds)
{
    struct timespec end;
    int error = 0;
    clock_gettime(CLOCK_MONOTONIC, &end);
    double nanoseconds = (double)end.tv_nsec + (seconds < 1e8 ? seconds : 1e8) * 1e9;
    end.tv_sec += (time_t)(nanoseconds / 1e9);
    end.tv_nsec = (long)(nanoseconds - (double)(time_t)(nanoseconds / 1e9) * 1e9);
    pthread_mutex_lock(&work.lock);
    while (!work.done && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&work.ended, &work.lock, &end);
    bool done = work.done;
    pthread_mutex_unlock(&work.lock);
    return done;
}

static lk_status start_thread(const lk_mpi *mpi)
{
    pthread_t thread;
    pthread_condattr_t monotonic;
    work.mpi = mpi;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&work.ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (lk__thread_create(&thread, run, NULL) != 0)
        return lk__fail(LK_STATUS_MEMORY, "the thread that starts MPI could not be started");
    pthread_detach(thread);
    return LK_OK;
}

lk_status lk__mpi_start_in_time(const lk_mpi *mpi, double seconds, lk_mpi_place *place, int *code)
{
    if (seconds <= 0) {
        *code = mpi->start(LK_MPI_LEVEL_SERIALIZED, place);
        return LK_OK;
    }
    LK_TRY(start_thread(mpi));
    if (await(seconds)) {
        *place = work.place;
        *code = work.code;
        return LK_OK;
    }
    (void)on_exit(leave, NULL);
    return lk__fail(
        LK_STATUS_PEER,
        "MPI (%s) has not started within %g s: it waits until all processes of the MPI job have started it. "
        "One of them is stopped, has ended, or does not use MPI; start all with the same options",
        mpi->name, seconds);
}
