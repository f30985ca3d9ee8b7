/* test_pool.c - the thread pool runs every task once; no two running tasks have the same thread index; a thread that
 * the system does not schedule delays nobody. */
#define _GNU_SOURCE /* gettid */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/cores.h"
#include "base/pool.h"
#include "check.h"

enum { MAX_TASKS = 1000, MAX_THREADS = 70 };

typedef struct record {
    atomic_int runs[MAX_TASKS];
    atomic_int inside[MAX_THREADS];
    atomic_int faults; /* cmocka's asserts belong to the main thread */
    int threads;
} record;

static void note(void *arg, size_t index, int thread)
{
    record *r = arg;
    if (thread < 0 || thread >= r->threads) {
        atomic_fetch_add(&r->faults, 1);
        return;
    }
    if (atomic_fetch_add(&r->inside[thread], 1) != 0)
        atomic_fetch_add(&r->faults, 1);
    atomic_fetch_add(&r->runs[index], 1);
    atomic_fetch_sub(&r->inside[thread], 1);
}

static void check_run(lk_pool *pool, size_t tasks)
{
    static record r;
    for (size_t i = 0; i < MAX_TASKS; i++)
        atomic_store(&r.runs[i], 0);
    atomic_store(&r.faults, 0);
    r.threads = lk__pool_threads(pool);
    lk__pool_run(pool, tasks, note, &r);
    lk__pool_run_backwards(pool, tasks, note, &r);
    assert_int_equal(atomic_load(&r.faults), 0);
    for (size_t i = 0; i < MAX_TASKS; i++)
        assert_int_equal(atomic_load(&r.runs[i]), i < tasks ? 2 : 0);
}

static void test_each_task_once(void **state)
{
    const int counts[] = {1, 2, 3, 5, 8, MAX_THREADS};
    const size_t tasks[] = {0, 1, 2, 3, 7, 64, MAX_TASKS};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        lk_pool *pool;
        assert_int_equal(lk__pool_create(counts[i], false, &pool), LK_OK);
        assert_int_equal(lk__pool_threads(pool), counts[i]);
        for (size_t k = 0; k < sizeof tasks / sizeof *tasks; k++)
            check_run(pool, tasks[k]);
        lk__pool_destroy(pool);
    }
}

enum { OWNERS = 3, OWNED = 4 };

typedef struct owners {
    pthread_barrier_t all;
    atomic_int first[OWNERS]; /* task with which each thread began, or -1 */
} owners;

/* No thread goes on before each has a task, so that none can take tasks of others first. */
static void note_first(void *arg, size_t index, int thread)
{
    owners *o = arg;
    int none = -1;
    if (atomic_compare_exchange_strong(&o->first[thread], &none, (int)index))
        pthread_barrier_wait(&o->all);
}

static void test_threads_begin_with_their_shares(void **state)
{
    owners o;
    lk_pool *pool;
    assert_ok(lk__pool_create(OWNERS, false, &pool));
    pthread_barrier_init(&o.all, NULL, OWNERS);
    for (int backwards = 0; backwards < 2; backwards++) {
        for (int i = 0; i < OWNERS; i++)
            atomic_store(&o.first[i], -1);
        (backwards ? lk__pool_run_backwards : lk__pool_run)(pool, OWNERS * OWNED, note_first, &o);
        for (int i = 0; i < OWNERS; i++)
            assert_int_equal(atomic_load(&o.first[i]), i * OWNED + (backwards ? OWNED - 1 : 0));
    }
    pthread_barrier_destroy(&o.all);
    lk__pool_destroy(pool);
}

static void note_order(void *arg, size_t index, int thread)
{
    size_t *next = arg;
    assert_int_equal(index, --*next);
}

static void test_one_thread_runs_backwards(void **state)
{
    size_t next = MAX_TASKS;
    lk_pool *pool;
    assert_ok(lk__pool_create(1, false, &pool));
    lk__pool_run_backwards(pool, MAX_TASKS, note_order, &next);
    assert_int_equal(next, 0);
    lk__pool_destroy(pool);
}

static void add(void *arg, size_t index, int thread)
{
    ((size_t *)arg)[index] += index;
}

/* Results of a run are visible to the caller and to the next run. */
static void test_runs_follow_each_other(void **state)
{
    enum { RUNS = 300, TASKS = 17 };
    size_t sums[TASKS] = {0};
    lk_pool *pool;
    assert_int_equal(lk__pool_create(3, false, &pool), LK_OK);
    for (int i = 0; i < RUNS; i++)
        lk__pool_run(pool, TASKS, add, sums);
    for (size_t i = 0; i < TASKS; i++)
        assert_int_equal(sums[i], i * RUNS);
    lk__pool_destroy(pool);
}

typedef struct short_run {
    size_t tasks;
    unsigned char done[8];
} short_run;

static void mark(void *arg, size_t index, int thread)
{
    ((short_run *)arg)->done[index]++;
}

static void mark_late(void *arg, size_t index, int thread)
{
    if (thread > 0 && index % 4 == 3)
        sched_yield();
    ((short_run *)arg)->done[index]++;
}

/* A thread that is late for one run takes tasks of a later run, with that run's function, argument and index. */
static void test_many_short_runs(void **state)
{
    enum { RUNS = 5000, THREADS = 4 };
    lk_pool *pool;
    assert_ok(lk__pool_create(THREADS, false, &pool));
    for (size_t i = 0; i < RUNS; i++) {
        short_run *run = calloc(1, sizeof *run);
        run->tasks = i % (sizeof run->done + 1);
        lk__pool_run(pool, run->tasks, i % 3 ? mark : mark_late, run);
        for (size_t k = 0; k < sizeof run->done; k++)
            assert_int_equal(run->done[k], k < run->tasks);
        free(run);
        if (i % 1000 == 0)
            lk__clock_sleep(1e-3); /* the threads fall asleep */
    }
    lk__pool_destroy(pool);
}

enum { SLOW_TASKS = 20 };

static void wait_for_rest(void *arg, size_t index, int thread)
{
    atomic_int *done = arg;
    while (index == 0 && atomic_load(done) < SLOW_TASKS - 1)
        sched_yield();
    atomic_fetch_add(done, 1);
}

/* The tasks that a slow thread would have done are done by others. The first run of a kind is never done alone. */
static void test_slow_thread(void **state)
{
    atomic_int done = 0;
    lk_pool *pool;
    assert_ok(lk__pool_create(2, false, &pool));
    lk__pool_run(pool, SLOW_TASKS, wait_for_rest, &done);
    assert_int_equal(atomic_load(&done), SLOW_TASKS);
    lk__pool_destroy(pool);
}

static struct {
    pthread_barrier_t barrier;
    pthread_t thread;
    pid_t id;
    atomic_bool held;
    int release[2]; /* a pipe */
} worker;

static void meet_worker(void *arg, size_t index, int thread)
{
    if (thread == 1) {
        worker.thread = pthread_self();
        worker.id = gettid();
    }
    pthread_barrier_wait(&worker.barrier); /* each thread has one task */
}

static void hold(int signal)
{
    char byte;
    atomic_store(&worker.held, true);
    while (read(worker.release[0], &byte, 1) != 1)
        continue;
}

static bool worker_sleeps(void)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)worker.id);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    const char *name_end = strrchr(text, ')');
    return name_end && strncmp(name_end, ") S", 3) == 0;
}

/* A worker that sleeps is held by a signal, as if the system did not schedule it. Runs end without it. */
static void test_absent_thread(void **state)
{
    enum { RUNS = 50, TASKS = 7 };
    size_t sums[TASKS] = {0};
    lk_pool *pool;
    assert_int_equal(pipe(worker.release), 0);
    pthread_barrier_init(&worker.barrier, NULL, 2);
    struct sigaction action = {.sa_handler = hold}, before;
    sigaction(SIGUSR1, &action, &before);
    assert_ok(lk__pool_create(2, false, &pool));
    lk__pool_run(pool, 2, meet_worker, NULL);
    while (!worker_sleeps())
        lk__clock_sleep(1e-3);
    assert_int_equal(pthread_kill(worker.thread, SIGUSR1), 0);
    while (!atomic_load(&worker.held))
        lk__clock_sleep(1e-3);
    for (int i = 0; i < RUNS; i++)
        lk__pool_run(pool, TASKS, add, sums);
    for (size_t i = 0; i < TASKS; i++)
        assert_int_equal(sums[i], i * RUNS);
    assert_int_equal(write(worker.release[1], "", 1), 1);
    check_run(pool, 64); /* the worker is back */
    lk__pool_destroy(pool);
    sigaction(SIGUSR1, &before, NULL);
    pthread_barrier_destroy(&worker.barrier);
    close(worker.release[0]);
    close(worker.release[1]);
}

static void test_idle_pool_ends(void **state)
{
    lk_pool *pool;
    assert_int_equal(lk__pool_create(5, false, &pool), LK_OK);
    lk__pool_destroy(pool);
    assert_int_equal(lk__pool_create(5, false, &pool), LK_OK);
    check_run(pool, 10);
    lk__clock_sleep(2e-3); /* the threads fall asleep */
    lk__pool_destroy(pool);
    lk__pool_destroy(NULL);
    assert_true(lk__cores() >= 1);
}

/* Threads spin only where each has a core of its own. */
static void test_spins_where_there_is_room(void **state)
{
    const int cores = lk__cores();
    const struct {
        int threads;
        bool crowded, spins;
    } cases[] = {{1, false, true}, {cores, false, true}, {cores + 1, false, false}, {1, true, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lk_pool *pool;
        assert_int_equal(lk__pool_create(cases[i].threads, cases[i].crowded, &pool), LK_OK);
        assert_int_equal(lk__pool_spins(pool), cases[i].spins);
        lk__pool_destroy(pool);
    }
}

TEST_MAIN(NULL, NULL, TEST(test_each_task_once), TEST(test_threads_begin_with_their_shares),
          TEST(test_one_thread_runs_backwards), TEST(test_runs_follow_each_other), TEST(test_many_short_runs),
          TEST(test_slow_thread), TEST(test_absent_thread), TEST(test_idle_pool_ends),
          TEST(test_spins_where_there_is_room))
