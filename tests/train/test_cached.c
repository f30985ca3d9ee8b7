/* test_cached.c - a run and an evaluation with cached data sets have the bits of those on the CPU. */
#include "parallel/far.h"
#include "tiny.h"

static size_t gathered, free_bytes;

static size_t room(lk_device *dev)
{
    return free_bytes;
}

static void count_gather(lk_device *dev, const lk_gather_desc *gather, const uint32_t *ids, lk_tensor *x)
{
    gathered += x->shape.n;
    far_cpu.gather(dev, gather, ids, x);
}

static int prepare(void **state)
{
    if (far_add() != LK_OK)
        return -1;
    far_type.room = room;
    far_kernels.gather = count_gather;
    return make_data(state);
}

static lk_train_result train_on(const char *device, const lk_train_opts *opts)
{
    record told;
    gathered = 0;
    train_device = device;
    return train_well(opts, &told);
}

static void check_run(bool drop_last)
{
    lk_train_opts opts = options();
    opts.augment = "crop=1,flip";
    opts.drop_last = drop_last;
    size_t trained = drop_last ? TRAIN_COUNT / opts.batch * opts.batch : TRAIN_COUNT;
    lk_train_result near = train_on("cpu", &opts);
    assert_int_equal(gathered, 0);
    free_bytes = 1 << 20;
    lk_train_result far = train_on("far", &opts);
    assert_int_equal(gathered, 2 * (trained + TEST_COUNT));
    assert_true(near.hash == far.hash);
    assert_memory_equal(&near.test, &far.test, sizeof near.test);
    free_bytes = 1;
    far = train_on("far", &opts);
    assert_int_equal(gathered, 0);
    assert_true(near.hash == far.hash);
}

static void a_run_is_the_same(void **state)
{
    check_run(false);
    check_run(true);
}

static void an_evaluation_is_the_same(void **state)
{
    char path[PATH];
    size_t classes;
    lk_train_opts opts = options();
    lk_metrics near, far;
    opts.save_model = below("model.safetensors", path);
    (void)train_on("cpu", &opts);
    opts.init_from = opts.save_model;
    assert_int_equal(lk__train_evaluate(&opts, &opts.device, 1, NULL, &near, &classes), LK_OK);
    free_bytes = 1 << 20;
    opts.device = "far";
    assert_int_equal(lk__train_evaluate(&opts, &opts.device, 1, NULL, &far, &classes), LK_OK);
    assert_int_equal(gathered, TEST_COUNT);
    assert_memory_equal(&near, &far, sizeof near);
}

TEST_MAIN(prepare, temp_folder_tear_down, TEST(a_run_is_the_same), TEST(an_evaluation_is_the_same))
