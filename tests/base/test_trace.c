/* test_trace.c - the recorder of spans: nothing while it is off, one track for each thread, bounded memory. */
#include <pthread.h>

#include "base/pool.h"
#include "base/trace.h"
#include "check.h"

enum { ROOM = 8, MANY = 40000 };

static lk_trace_track tracks[ROOM];

static void record(double begin, double end, const char *name)
{
    lk__trace_record(
        &(lk_trace_event){.begin = begin, .end = end, .name = name, .kind = LK_TRACE_KIND_DATA, .number = -1});
}

static void nothing_while_off(void **state)
{
    lk__trace_thread(0, "steps", -1);
    assert_false(lk__trace_is_on());
    assert_true(lk__trace_begin() == 0);
    lk__trace_end(LK_TRACE_KIND_DATA, "data", -1, lk__trace_begin());
    lk__trace_start();
    assert_int_equal(lk__trace_tracks(0, tracks, ROOM), 0);
    lk__trace_stop();
}

static void *be_rank(void *arg)
{
    int rank = *(int *)arg;
    lk__trace_thread(rank, "steps", rank);
    for (int i = 0; i <= rank; i++)
        record(i, i + 0.5, rank == 0 ? "first" : "second");
    return NULL;
}

/* Ranks may be threads of one process: each has its own events. */
static void ranks_are_apart(void **state)
{
    pthread_t threads[2];
    int ranks[2] = {0, 1};
    lk__trace_start();
    lk__trace_start(); /* the second rank keeps what the first has recorded */
    for (int r = 0; r < 2; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, be_rank, &ranks[r]), 0);
    for (int r = 0; r < 2; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(lk__trace_tracks(r, tracks, ROOM), 1);
        assert_string_equal(tracks[0].name, "steps");
        assert_int_equal(tracks[0].index, r);
        assert_int_equal(tracks[0].count, r + 1);
        assert_string_equal(tracks[0].events[r].name, r == 0 ? "first" : "second");
        assert_true(tracks[0].events[r].begin == r && tracks[0].events[r].end == r + 0.5);
    }
    lk__trace_stop();
    assert_true(lk__trace_is_on());
    lk__trace_stop();
    assert_false(lk__trace_is_on());
}

/* A thread without a rank records nothing, because nobody would collect it. */
static void unknown_ranks_are_left_out(void **state)
{
    lk__trace_thread(-1, "stranger", -1);
    assert_int_equal(lk__trace_rank(), -1);
    lk__trace_start();
    record(1, 2, "lost");
    assert_int_equal(lk__trace_tracks(-1, tracks, ROOM), 0);
    lk__trace_stop();
}

/* Each start discards what was there, and memory is used again: no track is added. */
static void starts_anew(void **state)
{
    lk__trace_thread(3, "steps", -1);
    for (int i = 0; i < 3; i++) {
        lk__trace_start();
        assert_int_equal(lk__trace_tracks(3, tracks, ROOM), 0);
        record(i, i + 1, "span");
        assert_int_equal(lk__trace_tracks(3, tracks, ROOM), 1);
        assert_int_equal(tracks[0].count, 1);
        assert_true(tracks[0].events[0].begin == i);
        lk__trace_stop();
    }
}

static void memory_is_bounded(void **state)
{
    lk__trace_thread(4, "steps", -1);
    lk__trace_start();
    for (int i = 0; i < MANY; i++)
        record(i, i + 1, "span");
    assert_int_equal(lk__trace_tracks(4, tracks, ROOM), 1);
    assert_true(tracks[0].count < MANY && tracks[0].dropped > 0);
    assert_int_equal(tracks[0].count + tracks[0].dropped, MANY);
    assert_true(tracks[0].events[tracks[0].count - 1].begin == (double)tracks[0].count - 1);
    lk__trace_stop();
}

static void wait_for_all(void *arg, size_t index, int thread)
{
    pthread_barrier_wait(arg);
}

/* The threads of a pool have the rank of the thread that made it, and the label of the thread that runs it. */
static void pools_are_labelled(void **state)
{
    enum { THREADS = 3 };
    lk_pool *pool;
    pthread_barrier_t barrier; /* each thread has one task: none can take two; first runs are never done alone */
    pthread_barrier_init(&barrier, NULL, THREADS);
    lk__trace_thread(5, "steps", -1);
    assert_ok(lk__pool_create(THREADS, false, &pool));
    lk__pool_run(pool, THREADS, wait_for_all, &barrier);
    lk__trace_start();
    double began = lk__trace_begin_label(LK_TRACE_KIND_BACKWARD, "conv1", 7);
    assert_true(began > 0);
    lk__pool_run(pool, THREADS, wait_for_all, &barrier);
    lk__pool_destroy(pool); /* waits until the threads have recorded */
    assert_int_equal(lk__trace_tracks(5, tracks, ROOM), THREADS - 1);
    for (int i = 0; i < THREADS - 1; i++) {
        const lk_trace_event *event = &tracks[i].events[0];
        assert_string_equal(tracks[i].name, "worker");
        assert_int_equal(tracks[i].count, 1);
        assert_string_equal(event->name, "conv1");
        assert_int_equal(event->kind, LK_TRACE_KIND_BACKWARD);
        assert_int_equal(event->number, 7);
        assert_true(event->begin <= event->end);
    }
    lk__trace_stop();
    pthread_barrier_destroy(&barrier);
}

TEST_MAIN(NULL, NULL, TEST(nothing_while_off), TEST(ranks_are_apart), TEST(unknown_ranks_are_left_out),
          TEST(starts_anew), TEST(memory_is_bounded), TEST(pools_are_labelled))
