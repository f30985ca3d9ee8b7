/* test_pool.c - the thread pool runs every task once; no two running tasks have the same thread index. */
#include <stdatomic.h>

#include "base/cores.h"
#include "base/pool.h"
#include "check.h"

enum { MAX_TASKS = 1000, MAX_THREADS = 8 };

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
    assert_int_equal(atomic_load(&r.faults), 0);
    for (size_t i = 0; i < MAX_TASKS; i++)
        assert_int_equal(atomic_load(&r.runs[i]), i < tasks);
}

static void test_each_task_once(void **state)
{
    const int counts[] = {1, 2, 3, 5, 8};
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

static void test_idle_pool_ends(void **state)
{
    lk_pool *pool;
    assert_int_equal(lk__pool_create(5, false, &pool), LK_OK);
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

TEST_MAIN(NULL, NULL, TEST(test_each_task_once), TEST(test_runs_follow_each_other), TEST(test_idle_pool_ends),
          TEST(test_spins_where_there_is_room))
