/* session.c - starts MPI once and ends it when the process exits. */
#define _DEFAULT_SOURCE /* on_exit: the end depends on the exit status */
#include "comm/mpi/session.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/forks.h"
#include "base/mem.h"
#include "comm/detect/task.h"
#include "comm/mpi/in_time.h"
#include "comm/mpi/load.h"

/* Nanoseconds before MPI_Abort, in which the launcher reads what this process and the others have printed: launchers
 * may drop the output of processes that they end. */
#define LAST_WORDS 200000000
#define FREE_SECONDS 1.0 /* seconds that an exiting thread waits for a thread inside MPI */

enum { DETAIL = 2048 };

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
/* Held for one call of MPI, most of which do not block. Nearly always free, and then cheaper than a mutex. */
static atomic_flag call_lock = ATOMIC_FLAG_INIT;
static struct {
    bool tried;
    bool late; /* MPI did not start in time */
    lk_status status;
    char detail[DETAIL]; /* of a failure */
    const lk_mpi *mpi;
    lk_mpi_place place;
    unsigned forks;
    int next_tag;
    double end_seconds; /* deadline of the end */
} session = {.end_seconds = 300};
static lk_mpi_place arriving; /* what a start writes, also a late one */
static void (*late_notice)(const char *detail);
static atomic_bool failed;

void lk__mpi_lock(void)
{
    while (atomic_flag_test_and_set_explicit(&call_lock, memory_order_acquire))
        sched_yield();
}

void lk__mpi_unlock(void)
{
    atomic_flag_clear_explicit(&call_lock, memory_order_release);
}

void lk__mpi_mark_failed(void)
{
    atomic_store(&failed, true);
}

lk_status lk__mpi_check(const lk_mpi *mpi, int code, const char *what)
{
    char text[LK_MPI_TEXT];
    if (code == 0)
        return LK_OK;
    mpi->explain(code, text, sizeof text);
    return lk__fail(LK_STATUS_PEER, "MPI (%s) could not %s: %s", mpi->name, what, text);
}

/* Whether the lock was free, or became so in time. */
static bool lock_in_time(void)
{
    struct timespec pause = {.tv_nsec = 1000000};
    double end = lk__clock() + FREE_SECONDS;
    while (atomic_flag_test_and_set(&call_lock)) {
        if (lk__clock() > end)
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

void lk__mpi_set_late_notice(void (*notice)(const char *detail))
{
    late_notice = notice;
}

static int run_start(const lk_mpi *mpi, void *place)
{
    return mpi->start(LK_MPI_LEVEL_SERIALIZED, place);
}

static int run_finish(const lk_mpi *mpi, void *unused)
{
    (void)unused;
    return mpi->finish();
}

static void abort_session(int status)
{
    struct timespec pause = {.tv_nsec = LAST_WORDS};
    fflush(NULL);
    nanosleep(&pause, NULL);
    session.mpi->abort(status != 0 ? status : 1);
}

/* A process that waits in MPI_Finalize for one that is gone ends with a message. */
static void finish_session(void)
{
    lk_mpi_blocking end = {.mpi = session.mpi, .run = run_finish, .seconds = session.end_seconds, .what = "ended"};
    int code = 0;
    lk_status status = lk__mpi_in_time(&end, &code);
    if (status != LK_OK && late_notice)
        late_notice(lk_error_detail());
    if (status != LK_OK && status != LK_STATUS_PEER)
        abort_session(1);
}

static void end_session(int status, void *unused)
{
    (void)unused;
    if (session.forks != lk__forks())
        return;
    bool alone = lock_in_time();
    if (status != 0 || atomic_load(&failed) || !alone)
        abort_session(status);
    else
        finish_session();
}

static lk_status check_level(void)
{
    static const char *const names[] = {"SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE"};
    if (session.place.level >= LK_MPI_LEVEL_SERIALIZED)
        return LK_OK;
    return lk__fail(LK_STATUS_UNSUPPORTED,
                    "MPI (%s) grants the thread level MPI_THREAD_%s; Lockstep needs MPI_THREAD_SERIALIZED. Use an MPI "
                    "that was built with threads, ask for that level where the program calls MPI_Init_thread itself, "
                    "or use `backend` tcp",
                    session.place.library, names[session.place.level]);
}

/* A rank whose launcher is a task of mpirun would take the place of its launcher in MPI, which is in use there. A
 * process that was forked after the start has only a copy of its parent's MPI. */
static lk_status check_process(void)
{
    lk_task task;
    lk__task_find(NULL, NULL, &task);
    if (!task.by_run && session.forks == lk__forks())
        return LK_OK;
    return lk__fail(LK_STATUS_USAGE,
                    "MPI knows the processes that mpirun or srun has started, and this one was started by one of them "
                    "(lockstep run, `nproc` or torchrun): start every rank with mpirun, as in `mpirun -n 4 lockstep "
                    "train ...`, or leave `backend` mpi out");
}

static lk_status start(double seconds)
{
    int code = 0;
    LK_TRY(lk__mpi_load(&session.mpi));
    LK_TRY(check_process());
    session.late = true;
    LK_TRY(lk__mpi_in_time(&(lk_mpi_blocking){session.mpi, run_start, &arriving, seconds, "started"}, &code));
    session.late = false;
    LK_TRY(lk__mpi_check(session.mpi, code, "start in this process"));
    session.place = arriving;
    session.next_tag = 1;
    if (on_exit(end_session, NULL) != 0)
        return lk__fail_memory(1, "the end of MPI");
    return check_level();
}

lk_status lk__mpi_start(double seconds, const lk_mpi **mpi, lk_mpi_place *place)
{
    pthread_mutex_lock(&start_lock);
    if (!session.tried) {
        session.tried = true;
        session.forks = lk__forks();
        session.status = start(seconds);
        if (session.status != LK_OK)
            snprintf(session.detail, sizeof session.detail, "%s", lk_error_detail());
    }
    lk_status status = session.status;
    if (status != LK_OK)
        status = lk__fail(status, "%s", session.detail);
    else
        status = check_process();
    if (status == LK_OK) {
        *mpi = session.mpi;
        *place = session.place;
    }
    pthread_mutex_unlock(&start_lock);
    return status;
}

/* Whether MPI's launcher has started this process, its tasks are on several nodes, and MPI's world, if it is known, has
 * all of them: a plug-in that cannot talk to the launcher starts each process alone. */
static bool suits_launcher(void)
{
    lk_task task;
    lk__task_find(NULL, NULL, &task);
    int size = lk__task_number(&task, LK_TASK_QUANTITY_SIZE, 1),
        here = lk__task_number(&task, LK_TASK_QUANTITY_LOCAL_SIZE, size);
    pthread_mutex_lock(&start_lock);
    bool refuted = session.tried && (session.status != LK_OK || session.place.size != size);
    pthread_mutex_unlock(&start_lock);
    return !task.by_run && (lk__task_number(&task, LK_TASK_QUANTITY_NODES, 1) > 1 || here < size) && !refuted;
}

bool lk__mpi_is_due(const char *backend)
{
    const lk_mpi *mpi = NULL;
    const char *name = lk__task_backend(backend);
    char detail[DETAIL];
    if (strcmp(name, "auto") != 0)
        return strcmp(name, "mpi") == 0;
    if (!lk__mpi_module_is_chosen())
        return false;
    snprintf(detail, sizeof detail, "%s", lk_error_detail());
    bool due = suits_launcher() && lk__mpi_load(&mpi) == LK_OK;
    (void)lk__fail(LK_OK, "%s", detail);
    return due;
}

lk_status lk__mpi_begin(const char *backend, double seconds)
{
    const lk_mpi *mpi;
    lk_mpi_place place;
    if (!lk__mpi_is_due(backend))
        return LK_OK;
    session.end_seconds = seconds > 0 ? seconds : session.end_seconds;
    lk_status status = lk__mpi_start(seconds, &mpi, &place);
    return session.late || strcmp(lk__task_backend(backend), "mpi") == 0 ? status : LK_OK;
}

/* Tags are not used again: a message that nobody has received would reach a later group. */
lk_status lk__mpi_tags(lk_mpi_world *world, int count, int *first)
{
    lk_status status = LK_OK;
    pthread_mutex_lock(&start_lock);
    int *next = world ? &world->next_tag : &session.next_tag;
    int limit = world ? world->place.tag_limit : session.place.tag_limit;
    if (limit - *next < count)
        status = lk__fail(LK_STATUS_UNSUPPORTED, "this process has made so many groups that MPI's %d tags are used up",
                          limit);
    else
        *first = *next;
    *next += status == LK_OK ? count : 0;
    pthread_mutex_unlock(&start_lock);
    return status;
}
