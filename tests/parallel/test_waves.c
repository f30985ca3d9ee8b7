/* test_waves.c - waves have as many whole shards as the wanted number of samples holds, and no memory for more. */
#include "parallel/step/waves.h"

#include "base/tree.h"
#include "check.h"

enum { MOST_BATCH = 70, MOST_SHARDS = 19 };

static lk_waves *waves_of(size_t batch, int shards, const int bounds[3], int replica, size_t micro_batch)
{
    lk_waves *waves;
    lk_waves_opts opts = {.shards = shards,
                          .bounds = bounds,
                          .replicas = 2,
                          .replica = replica,
                          .batch = batch,
                          .micro_batch = micro_batch};
    assert_int_equal(lk__waves_create(&opts, &waves), LK_OK);
    return waves;
}

/* Checks that each wave of a whole batch ends where one more shard would not be wanted. */
static void check_whole(lk_waves *waves, size_t batch, size_t wanted)
{
    lk__waves_cut(waves, batch);
    for (int i = 0; i < waves->count; i++) {
        int first = waves->wave_shard[i], last = waves->wave_shard[i + 1];
        size_t begin = lk__waves_sample(waves, first);
        assert_true(last == first + 1 || lk__waves_sample(waves, last) - begin <= wanted);
        assert_true(last == waves->last || lk__waves_sample(waves, last + 1) - begin > wanted);
    }
}

/* Returns the largest wave of all batches up to this one. */
static size_t largest_of(lk_waves *waves, size_t batch)
{
    size_t largest = 0;
    for (size_t b = 0; b <= batch; b++) {
        lk__waves_cut(waves, b);
        for (int i = 0; i < waves->count; i++) {
            size_t n = lk__waves_at(waves, i).n;
            assert_true(n <= waves->capacity);
            largest = n > largest ? n : largest;
        }
    }
    return largest;
}

static void test_capacity(void **arg)
{
    for (int shards = 1; shards <= MOST_SHARDS; shards += 3)
        for (size_t batch = 1; batch <= MOST_BATCH; batch += 3)
            for (size_t wanted = 1; wanted <= batch + 1; wanted++)
                for (int replica = 0; replica < 2; replica++) {
                    const int bounds[] = {0, shards / 3, shards};
                    if (bounds[replica] == bounds[replica + 1])
                        continue;
                    lk_waves *waves = waves_of(batch, shards, bounds, replica, wanted);
                    size_t one = lk__shard_most(batch, shards, 1), most = wanted > one ? wanted : one;
                    check_whole(waves, batch, most);
                    assert_true(waves->capacity <= most);
                    /* Shards of another replica may have a sample more. */
                    assert_true(largest_of(waves, batch) + 1 >= waves->capacity);
                    lk__waves_destroy(waves);
                }
}

/* Seven shards of 3,750 samples fit into 27,000; there is no memory for another 750 samples. */
static void test_rounded_down(void **arg)
{
    const int bounds[] = {0, 16, 16};
    lk_waves *waves = waves_of(60000, 16, bounds, 0, 27000);
    assert_int_equal(waves->capacity, 26250);
    assert_false(waves->single);
    lk__waves_destroy(waves);
    waves = waves_of(60000, 16, bounds, 0, 1);
    assert_int_equal(waves->capacity, 3750);
    lk__waves_destroy(waves);
    waves = waves_of(60000, 16, bounds, 0, 60000);
    assert_int_equal(waves->capacity, 60000);
    assert_true(waves->single);
    lk__waves_destroy(waves);
}

TEST_MAIN(NULL, NULL, TEST(test_capacity), TEST(test_rounded_down))
