/* test_moves.c - shards leave a rank that is slow while a run goes on, and return; the run ends with the bits of one
 * rank. The times of the ranks' steps are given, so each move is at a known step. */
#include <stdlib.h>

#include "tiny.h"
#include "train/run.h"

/* Steps of a rank take this many seconds for each shard, which is more than any machine needs: the real time of a step
 * counts nothing beside it. */
#define SHARD_SECONDS 1e6

/* Rank 1 needs `slowness` times as long for a shard as the others do, until its own step `recovers`. */
typedef struct rank_speed {
    record told;
    int rank;
    double slowness;
    size_t recovers;
} rank_speed;

static double step_time(void *arg, lk_shard_range share)
{
    const rank_speed *speed = arg;
    bool slow = speed->rank == 1 && speed->told.steps < speed->recovers;
    return SHARD_SECONDS * (share.last - share.first) * (slow ? speed->slowness : 1);
}

static lk_train_outcome run_ranks(const lk_train_opts *opts, int count, size_t recovers, rank_speed *speeds)
{
    lk_train_hooks hooks[MAX_RANKS];
    const char *devices[MAX_RANKS];
    lk_train_outcome result;
    lk_train_failure failure;
    for (int i = 0; i < count; i++) {
        speeds[i] = (rank_speed){.rank = i, .slowness = 2, .recovers = recovers};
        hooks[i] = (lk_train_hooks){
            .arg = &speeds[i], .step = on_step, .test = on_test, .end = on_end, .step_time = step_time};
        devices[i] = "cpu";
    }
    lk_group_opts group = {.timeout = 60};
    lk_train_ranks ranks = {
        .opts = opts, .count = count, .devices = devices, .group = &group, .one_process = true, .hooks = hooks};
    assert_int_equal(lk__train(&ranks, &result, &failure), LK_OK);
    return result;
}

/* Samples that a rank trained in a step, from 1. */
static size_t samples_of(const rank_speed *speeds, int rank, size_t step)
{
    return speeds[rank].told.step[step - 1].own.count;
}

static void compare(const record *told, const record *alone, uint64_t hash)
{
    assert_true(told->end.hash == hash);
    assert_int_equal(told->steps, alone->steps);
    assert_int_equal(told->tests, alone->tests);
    for (size_t i = 0; i < alone->steps; i++)
        assert_memory_equal(&told->step[i].metrics, &alone->step[i].metrics, sizeof(lk_metrics));
    for (int i = 0; i < alone->tests; i++)
        assert_memory_equal(&told->test[i].metrics, &alone->test[i].metrics, sizeof(lk_metrics));
}

/* Runs `count` ranks, which must have the results of one rank. */
static void expect(const lk_train_opts *opts, int count, size_t recovers, size_t moves, rank_speed *speeds)
{
    static record alone;
    uint64_t samples = 0;
    int64_t shards = 0;
    lk_train_outcome single = train_well(opts, &alone), result = run_ranks(opts, count, recovers, speeds);
    assert_int_equal(result.moves, moves);
    for (int r = 0; r < count; r++) {
        compare(&speeds[r].told, &alone, single.hash);
        assert_int_equal(speeds[r].told.end.moves, moves);
        samples += speeds[0].told.use[r].samples;
        shards += speeds[0].told.use[r].shards;
    }
    assert_int_equal(samples, single.samples);
    assert_int_equal(shards, opts->shards);
}

/* An epoch has two batches of 32 samples, which count, and one of 26. The first step does not count, nor does the first
 * one after a move: the two windows of 8 steps end with steps 13 and 25. */
static void uneven_batches(void **state)
{
    static rank_speed speeds[MAX_RANKS];
    lk_train_opts opts = options();
    opts.epochs = 10;
    opts.no_test = true;
    expect(&opts, 2, SIZE_MAX, 1, speeds);
    assert_int_equal(samples_of(speeds, 1, 25), 16);
    assert_int_equal(samples_of(speeds, 1, 26), 10);
    assert_int_equal(samples_of(speeds, 0, 26), 22);
    assert_int_equal(speeds[0].told.use[1].shards, 5);
}

/* Rank 1 is as fast as the others from step 18 on: the shards move back after two more windows. */
static void back(void **state)
{
    static rank_speed speeds[MAX_RANKS];
    lk_train_opts opts = options();
    opts.model = "resnet20:width=2";
    opts.batch = 45;
    opts.epochs = 20;
    opts.no_test = true;
    opts.threads = 1;
    expect(&opts, 3, 18, 2, speeds);
    assert_int_equal(samples_of(speeds, 1, 17), 14);
    assert_true(samples_of(speeds, 1, 18) < 10);
    assert_true(samples_of(speeds, 1, 34) < 10);
    assert_true(samples_of(speeds, 1, 35) > 13);
    assert_int_equal(speeds[0].told.use[1].shards, 5);
}

/* Two batches of 9 samples make a step, in waves that are as large as those of one batch. There are tests after epochs,
 * without workers nothing is made ahead, and some shards are empty. */
static void accumulate(void **state)
{
    static rank_speed speeds[MAX_RANKS];
    lk_train_opts opts = options();
    opts.batch = 18;
    opts.shards = 32;
    opts.accumulate = 2;
    opts.epochs = 5;
    opts.workers = 0;
    opts.threads = 1;
    expect(&opts, 4, SIZE_MAX, 1, speeds);
    assert_int_equal(speeds[0].told.use[1].shards, 4);
}

static void off(void **state)
{
    static rank_speed speeds[MAX_RANKS];
    lk_train_opts opts = options();
    opts.epochs = 10;
    opts.batch = 45;
    opts.no_test = true;
    opts.balance = LK_BALANCE_MODE_EVEN;
    expect(&opts, 2, SIZE_MAX, 0, speeds);
    opts.balance = LK_BALANCE_MODE_AUTO;
    opts.shards = 2; /* one for each rank */
    expect(&opts, 2, SIZE_MAX, 0, speeds);
}

TEST_MAIN(make_data, temp_folder_tear_down, TEST(uneven_batches), TEST(back), TEST(accumulate), TEST(off))
