/* pool.c - the thread pool.
 *
 * A run publishes its task and increments `generation`. Workers that see the new generation take
 * indices from `next` until none is left, then decrement `busy`. The caller works too, then waits
 * until busy is 0. A waiting thread spins for some microseconds, the usual gap between two kernels,
 * then sleeps on a condition variable, so that more threads than cores do not starve each other. */
#include "base/pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/cores.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/trace.h"

enum { SPINS = 4000 };

typedef struct worker {
    lk_pool *pool;
    pthread_t thread;
    int index;
} worker;

struct lk_pool {
    int threads;
    int spins; /* 0 if there are more threads than cores */
    worker *workers;

    /* The current run; written before generation is incremented. */
    lk_pool_fn task;
    void *arg;
    size_t tasks;
    lk_trace_label label; /* what the run is for; set while a rank traces */
    int rank;             /* for which the pool works (trace.h) */

    _Alignas(LK_ALIGN) atomic_size_t next;
    _Alignas(LK_ALIGN) atomic_uint generation;
    _Alignas(LK_ALIGN) atomic_int busy; /* workers that have not finished this generation */
    atomic_bool stop;

    pthread_mutex_t lock;
    pthread_cond_t wake; /* a new generation */
    pthread_cond_t done; /* busy reached zero */
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Returns the number of tasks that this thread has done. */
static size_t work(lk_pool *pool, int thread)
{
    for (size_t done = 0;; done++) {
        size_t index = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (index >= pool->tasks)
            return done;
        pool->task(pool->arg, index, thread);
    }
}

static void work_traced(lk_pool *pool, int thread)
{
    double began = lk__trace_begin();
    if (work(pool, thread) > 0 && began > 0 && pool->label.name)
        lk__trace_end(pool->label.kind, pool->label.name, pool->label.number, began);
}

/* Waits for a generation other than `seen`. */
static unsigned await_generation(lk_pool *pool, unsigned seen)
{
    for (int spin = 0; spin < pool->spins; spin++) {
        unsigned now = atomic_load_explicit(&pool->generation, memory_order_acquire);
        if (now != seen)
            return now;
        relax();
    }
    pthread_mutex_lock(&pool->lock);
    unsigned now;
    while ((now = atomic_load_explicit(&pool->generation, memory_order_acquire)) == seen)
        pthread_cond_wait(&pool->wake, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    return now;
}

static void *worker_main(void *arg)
{
    worker *self = arg;
    lk_pool *pool = self->pool;
    unsigned seen = 0;
    lk__trace_thread(pool->rank, "worker", self->index);
    for (;;) {
        seen = await_generation(pool, seen);
        if (atomic_load_explicit(&pool->stop, memory_order_relaxed))
            return NULL;
        work_traced(pool, self->index);
        if (atomic_fetch_sub_explicit(&pool->busy, 1, memory_order_acq_rel) == 1) {
            pthread_mutex_lock(&pool->lock);
            pthread_cond_signal(&pool->done);
            pthread_mutex_unlock(&pool->lock);
        }
    }
}

static void publish(lk_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add_explicit(&pool->generation, 1, memory_order_release);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

static void await_workers(lk_pool *pool)
{
    for (int spin = 0; spin < pool->spins; spin++) {
        if (atomic_load_explicit(&pool->busy, memory_order_acquire) == 0)
            return;
        relax();
    }
    pthread_mutex_lock(&pool->lock);
    while (atomic_load_explicit(&pool->busy, memory_order_acquire) != 0)
        pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

void lk__pool_run(lk_pool *pool, size_t tasks, lk_pool_fn task, void *arg)
{
    if (tasks <= 1 || pool->threads == 1) {
        for (size_t index = 0; index < tasks; index++)
            task(arg, index, 0);
        return;
    }
    pool->task = task;
    pool->arg = arg;
    pool->tasks = tasks;
    if (lk__trace_is_on())
        pool->label = lk__trace_label();
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->busy, pool->threads - 1, memory_order_relaxed);
    publish(pool);
    (void)work(pool, 0);
    await_workers(pool);
}

static void stop_workers(lk_pool *pool, int started)
{
    atomic_store(&pool->stop, true);
    publish(pool);
    for (int i = 0; i < started; i++)
        pthread_join(pool->workers[i].thread, NULL);
}

lk_status lk__pool_create(int threads, bool crowded, lk_pool **out)
{
    assert(threads >= 1);
    lk_pool *pool;
    LK_TRY(LK_ALLOC(1, "thread pool", &pool));
    pool->threads = threads;
    pool->rank = lk__trace_rank();
    pool->spins = !crowded && threads <= lk__cores() ? SPINS : 0;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->done, NULL);
    int started = 0;
    lk_status status;
    LK_TRY_GOTO(LK_ALLOC((size_t)threads, "threads", &pool->workers), stop_started);
    for (; started < threads - 1; started++) {
        worker *self = &pool->workers[started];
        *self = (worker){.pool = pool, .index = started + 1};
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
    lk__mem_free(pool->workers);
    lk__mem_free(pool);
}

int lk__pool_threads(const lk_pool *pool)
{
    return pool->threads;
}

bool lk__pool_spins(const lk_pool *pool)
{
    return pool->spins > 0;
}
