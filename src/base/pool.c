/* pool.c - the thread pool.
 *
 * The tasks of a run are divided into shares of neighbouring indices, one for each thread. A thread does the tasks of
 * its own share first and then takes tasks of others. So in every run the same thread mostly has the same part of the
 * indices, which in most kernels are samples in their order: what a kernel has written is read by the next one from
 * that core's own cache.
 *
 * A run stores its task, then the shares with tasks in `open`, then the number of tasks of each share in `left`. A
 * thread takes a task by decrementing a share's `left`, and reads the run's other fields only after that: the run
 * cannot end before the tasks that were taken are done. Who takes the last task of a share removes the share from
 * `open`. A run ends when `unfinished` is 0. So the caller waits for threads that have taken a task, never for one that
 * the system has not scheduled yet; such a thread finds no task, or one of a later run.
 *
 * A waiting thread spins for the usual gap between two kernels, then sleeps on a condition variable: waking it costs
 * its waker about ten microseconds. A thread whose core others want does not spin: the system counts spinning as use of
 * the core, and takes the core away later, in the middle of a task. Where waking threads and waiting for them costs
 * more than they save, the caller does the runs of that kind alone for a while (payoff.h). */
#include "base/pool.h"

#include <assert.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/cores.h"
#include "base/mem.h"
#include "base/payoff.h"
#include "base/thread.h"
#include "base/trace.h"

/* LOOKS: between two readings of the clock. SLACK: a loss of less than this part of a run is noise. */
enum { LOOKS = 64, KIND_BITS = 8, SLACK = 64, MAX_SHARES = 64 };

static const double spin_seconds = 50e-6, long_yield_seconds = 20e-6, no_spin_seconds = 20e-3;

/* A thread of the pool; the caller is the first. */
typedef struct member {
    lk_pool *pool;
    pthread_t thread;
    int index;
    double no_spin_before; /* a time of lk__clock */
} member;

/* Neighbouring tasks of a run. */
typedef struct share {
    _Alignas(LK_ALIGN) atomic_long left; /* tasks that no thread has taken; 0 or less: none */
    long first, end;                     /* indices of its tasks; written before left */
} share;

struct lk_pool {
    int threads;
    int shares;      /* of a run; threads from MAX_SHARES on begin with those of others */
    bool spins;      /* false if there are more threads than cores */
    member *members; // (threads)
    lk_payoff payoff[1 << KIND_BITS];

    /* The current run; written before left. */
    lk_pool_fn task;
    void *arg;
    long tasks;
    bool backwards;       /* each thread does its tasks from the last to the first */
    lk_trace_label label; /* what the run is for; set while a rank traces */
    int rank;             /* for which the pool works (trace.h) */

    _Alignas(LK_ALIGN) atomic_ullong open;     /* one bit for each share that has tasks left, or soon has */
    _Alignas(LK_ALIGN) atomic_long unfinished; /* tasks that are not done */
    atomic_llong helped;                       /* nanoseconds of CPU time that workers have spent on the run */
    _Alignas(LK_ALIGN) atomic_int asleep;      /* workers that sleep or are about to */
    atomic_bool caller_asleep;
    atomic_bool stop;
    share share[MAX_SHARES];

    pthread_mutex_t lock;
    pthread_cond_t wake; /* there are tasks, or stop is set */
    pthread_cond_t done; /* unfinished reached zero */
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool has_tasks(lk_pool *pool)
{
    return atomic_load(&pool->open) != 0;
}

static bool is_done(lk_pool *pool)
{
    return atomic_load(&pool->unfinished) == 0;
}

static bool look(lk_pool *pool, bool (*met)(lk_pool *pool))
{
    for (int i = 0; i < LOOKS; i++) {
        if (met(pool))
            return true;
        relax();
    }
    return false;
}

/* Gives the core to other threads that want it. Returns false if there was one: then spinning would delay it, which may
 * be the thread that this one waits for. */
static bool keeps_core(member *self, double *now)
{
    double before = *now;
    sched_yield();
    *now = lk__clock();
    if (*now - before < long_yield_seconds)
        return true;
    self->no_spin_before = *now + no_spin_seconds;
    return false;
}

/* Returns whether the condition was met before the thread should sleep. */
static bool spin(member *self, bool (*met)(lk_pool *pool))
{
    if (look(self->pool, met))
        return true;
    double now = lk__clock(), end = now + spin_seconds;
    if (!self->pool->spins || now < self->no_spin_before)
        return false;
    while (now < end && keeps_core(self, &now))
        if (look(self->pool, met))
            return true;
    return false;
}

/* Does the tasks of a share that are left; returns their number. */
static long work_share(lk_pool *pool, int index, int thread)
{
    share *from = &pool->share[index];
    for (long done = 0;; done++) {
        if (atomic_load_explicit(&from->left, memory_order_relaxed) <= 0)
            return done;
        long left = atomic_fetch_sub_explicit(&from->left, 1, memory_order_acquire);
        if (left <= 0)
            return done;
        if (left == 1)
            atomic_fetch_and(&pool->open, ~(1ull << index));
        long task = pool->backwards ? from->first + left - 1 : from->end - left;
        pool->task(pool->arg, (size_t)task, thread);
    }
}

/* Returns the number of tasks that this thread has done. Until they are subtracted from `unfinished` the run lasts. */
static long work(lk_pool *pool, int thread)
{
    long done = 0;
    for (int i = 0, index = thread % pool->shares; i < pool->shares && has_tasks(pool); i++) {
        if (atomic_load_explicit(&pool->open, memory_order_relaxed) >> index & 1)
            done += work_share(pool, index, thread);
        index = index + 1 < pool->shares ? index + 1 : 0;
    }
    return done;
}

static long work_traced(lk_pool *pool, int thread)
{
    double began = lk__trace_begin();
    long done = work(pool, thread);
    if (done > 0 && began > 0 && pool->label.name)
        lk__trace_end(pool->label.kind, pool->label.name, pool->label.number, began);
    return done;
}

static void sleep_until_tasks(lk_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->asleep, 1);
    while (!has_tasks(pool) && !atomic_load(&pool->stop))
        pthread_cond_wait(&pool->wake, &pool->lock);
    atomic_fetch_sub(&pool->asleep, 1);
    pthread_mutex_unlock(&pool->lock);
}

/* Ends a worker's part in a run; the run's fields may change at once. */
static void count_off(lk_pool *pool, long done, double cpu_seconds)
{
    atomic_fetch_add_explicit(&pool->helped, (long long)(1e9 * cpu_seconds), memory_order_relaxed);
    if (atomic_fetch_sub(&pool->unfinished, done) == done && atomic_load(&pool->caller_asleep)) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_signal(&pool->done);
        pthread_mutex_unlock(&pool->lock);
    }
}

static void *worker_main(void *arg)
{
    member *self = arg;
    lk_pool *pool = self->pool;
    lk__trace_thread(pool->rank, "worker", self->index);
    while (!atomic_load_explicit(&pool->stop, memory_order_relaxed)) {
        if (!spin(self, has_tasks))
            sleep_until_tasks(pool);
        double began = lk__clock_thread();
        long done = work_traced(pool, self->index);
        if (done > 0)
            count_off(pool, done, lk__clock_thread() - began);
        else
            sched_yield(); /* a share is open and empty: the thread that opens or closes it may need this core */
    }
    return NULL;
}

/* Wakes sleeping workers, `most` of them at most. A worker that falls asleep now sees the tasks before. */
static void wake_workers(lk_pool *pool, long most)
{
    int asleep = atomic_load(&pool->asleep);
    if (asleep == 0)
        return;
    pthread_mutex_lock(&pool->lock);
    if (asleep <= most)
        pthread_cond_broadcast(&pool->wake);
    for (; asleep > most && most > 0; most--)
        pthread_cond_signal(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

static void await_workers(lk_pool *pool)
{
    if (spin(&pool->members[0], is_done))
        return;
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->caller_asleep, true);
    while (!is_done(pool))
        pthread_cond_wait(&pool->done, &pool->lock);
    atomic_store(&pool->caller_asleep, false);
    pthread_mutex_unlock(&pool->lock);
}

/* Runs of one function with equally many tasks are of one kind. Kinds that share an account do no harm. */
static lk_payoff *find_payoff(lk_pool *pool, size_t tasks, lk_pool_fn task)
{
    uint64_t key = ((uint64_t)(uintptr_t)task + tasks) * 0x9e3779b97f4a7c15u;
    return &pool->payoff[key >> (64 - KIND_BITS)];
}

static long share_end(const lk_pool *pool, int index)
{
    return pool->tasks * (index + 1) / pool->shares;
}

/* A share is opened before it has tasks, so that nobody can close it before. */
static void open_shares(lk_pool *pool)
{
    unsigned long long open = 0;
    for (long i = 0, begin = 0; i < pool->shares; i++) {
        long end = share_end(pool, (int)i);
        open |= (unsigned long long)(end > begin) << i;
        begin = end;
    }
    atomic_store(&pool->open, open);
    for (long i = 0, begin = 0; i < pool->shares; i++) {
        long end = share_end(pool, (int)i);
        if (end > begin) {
            pool->share[i].first = begin;
            pool->share[i].end = end;
            atomic_store_explicit(&pool->share[i].left, end - begin, memory_order_release);
        }
        begin = end;
    }
}

/* Without help, the run would take longer by the workers' CPU time, and would be spared waking them and waiting. */
static void run_together(lk_pool *pool, lk_payoff *payoff)
{
    double begin = lk__clock();
    atomic_store_explicit(&pool->helped, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->unfinished, pool->tasks, memory_order_relaxed);
    open_shares(pool);
    wake_workers(pool, pool->tasks - 1);
    double awake = lk__clock();
    long mine = work(pool, 0);
    double worked = lk__clock();
    if (atomic_fetch_sub(&pool->unfinished, mine) != mine)
        await_workers(pool);
    double lost = awake - begin + lk__clock() - worked;
    double saved = 1e-9 * (double)atomic_load_explicit(&pool->helped, memory_order_relaxed);
    lk__payoff_note(payoff, saved, lost - (worked - awake) / SLACK);
}

static void run(lk_pool *pool, size_t tasks, lk_pool_fn task, void *arg, bool backwards)
{
    lk_payoff *payoff = find_payoff(pool, tasks, task);
    if (tasks <= 1 || pool->threads == 1 || !lk__payoff_ask(payoff)) {
        for (size_t index = 0; index < tasks; index++)
            task(arg, backwards ? tasks - 1 - index : index, 0);
        return;
    }
    assert(tasks <= LONG_MAX / MAX_SHARES);
    pool->task = task;
    pool->arg = arg;
    pool->tasks = (long)tasks;
    pool->backwards = backwards;
    if (lk__trace_is_on())
        pool->label = lk__trace_label();
    run_together(pool, payoff);
}

void lk__pool_run(lk_pool *pool, size_t tasks, lk_pool_fn task, void *arg)
{
    run(pool, tasks, task, arg, false);
}

void lk__pool_run_backwards(lk_pool *pool, size_t tasks, lk_pool_fn task, void *arg)
{
    run(pool, tasks, task, arg, true);
}

static void stop_workers(lk_pool *pool, int started)
{
    atomic_store(&pool->stop, true);
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 1; i <= started; i++)
        pthread_join(pool->members[i].thread, NULL);
}

lk_status lk__pool_create(int threads, bool crowded, lk_pool **out)
{
    assert(threads >= 1);
    lk_pool *pool;
    LK_TRY(LK_ALLOC(1, "thread pool", &pool));
    pool->threads = threads;
    pool->shares = threads < MAX_SHARES ? threads : MAX_SHARES;
    pool->rank = lk__trace_rank();
    pool->spins = !crowded && threads <= lk__cores();
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->done, NULL);
    int started = 0;
    lk_status status;
    LK_TRY_GOTO(LK_ALLOC((size_t)threads, "threads", &pool->members), stop_started);
    pool->members[0].pool = pool;
    for (; started < threads - 1; started++) {
        member *self = &pool->members[started + 1];
        *self = (member){.pool = pool, .index = started + 1};
        if (lk__thread_create(&self->thread, worker_main, self) != 0) {
            status = lk__fail(LK_STATUS_MEMORY,
                              "cannot start thread %d of %d; try a smaller `threads`, or raise the limit on memory",
                              started + 2, threads);
            goto stop_started;
        }
    }
    *out = pool;
    return LK_OK;

stop_started:
    pool->threads = started + 1;
    lk__pool_destroy(pool);
    return status;
}

void lk__pool_destroy(lk_pool *pool)
{
    if (!pool)
        return;
    stop_workers(pool, pool->threads - 1);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    lk__mem_free(pool->members);
    lk__mem_free(pool);
}

int lk__pool_threads(const lk_pool *pool)
{
    return pool->threads;
}

bool lk__pool_spins(const lk_pool *pool)
{
    return pool->spins;
}
