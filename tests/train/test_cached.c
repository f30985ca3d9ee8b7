/* test_cached.c - a run and an evaluation with cached data sets, or on a device that records, have the bits of those on
 * the CPU. */
#include <stdatomic.h>

#include "parallel/far.h"
#include "parallel/law.h"
#include "parallel/tape.h"
#include "tiny.h"

#include "data/sets/dataset.h"
#include "train/parts.h"

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

static lk_train_outcome train_on(const char *device, const lk_train_opts *opts)
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
    lk_train_outcome near = train_on("cpu", &opts);
    assert_int_equal(gathered, 0);
    free_bytes = 1 << 20;
    lk_train_outcome far = train_on("far", &opts);
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

/* A device type that records; the types in use before are restored by end_recording. */
static lk_device_type plain_far;
static lk_kernels plain_kernels;

static void begin_recording(void)
{
    plain_far = far_type;
    plain_kernels = far_kernels;
    tape_extend(&far_type);
    tape_watch(&far_kernels);
    tape_recorded = tape_played = 0;
}

static void end_recording(void)
{
    far_type = plain_far;
    far_kernels = plain_kernels;
}

/* Test batches of 12, 12, 12 and 4 samples; with samples on the device and from the loader. */
static void a_recorded_run_is_the_same(void **state)
{
    lk_train_opts opts = options();
    opts.test_batch = 12;
    opts.clip_norm = 0.5;
    lk_train_outcome near = train_on("cpu", &opts);
    begin_recording();
    for (free_bytes = 1; free_bytes <= 1 << 20; free_bytes <<= 20) {
        lk_train_outcome far = train_on("far", &opts);
        assert_true(near.hash == far.hash);
        assert_memory_equal(&near.test, &far.test, sizeof near.test);
        assert_true(tape_recorded > 0 && tape_played > tape_recorded);
    }
    end_recording();
}

enum { MADE = 60, BROKEN = 44, MADE_BATCH = 8 };
static atomic_bool is_broken; /* the loader's threads read it */

static lk_status get_made(const lk_dataset *data, size_t index, void *pixels, void *label)
{
    if (is_broken && index >= BROKEN)
        return lk__fail(LK_STATUS_IO, "sample %zu cannot be read", index);
    memset(pixels, (int)index, data->info.channels * data->info.height * data->info.width);
    *(int32_t *)label = (int32_t)(index % 10);
    return LK_OK;
}

static int32_t made_label(const lk_dataset *data, size_t index)
{
    return (int32_t)(index % 10);
}

/* A sample that cannot be read ends an evaluation whose batches are under way: the failure is named, and the engine
 * can do something else. */
static void a_failed_evaluation_leaves_nothing_under_way(void **state)
{
    static const float none[] = {0}, one[] = {1};
    static const lk_dataset_ops ops = {.get = get_made, .label = made_label};
    static const law_case c = {"mlp", LAW_MNIST, .optimizer = "sgd", .lr = .1, .batch = MADE_BATCH, .shards = 4};
    const lk_dataset data = {.ops = &ops,
                             .split = LK_SPLIT_TEST,
                             .info = {.name = "made",
                                      .count = MADE,
                                      .channels = 1,
                                      .height = 28,
                                      .width = 28,
                                      .classes = 10,
                                      .mean = none,
                                      .std = one}};
    begin_recording();
    lk_engine *engine = law_engine(&c, (law_way){.threads = 1, .device = "far"});
    lk_loader *loader;
    lk_metrics good, again;
    lk_state *weights;
    bool own = false;
    law_require(lk_loader_create(&data, &(lk_loader_opts){.batch = MADE_BATCH, .workers = 1}, &loader));
    law_require(lk__train_evaluate_batches(engine, loader, 0, &(lk_train_watch){0}, &good, &own));
    assert_true(good.count == MADE && tape_played > 0);
    is_broken = true;
    assert_int_equal(lk__train_evaluate_batches(engine, loader, 0, &(lk_train_watch){0}, &again, &own), LK_STATUS_IO);
    assert_true(own);
    assert_non_null(strstr(lk_error_detail(), "sample 4"));
    law_require(lk_engine_state(engine, &weights));
    lk_state_destroy(weights);
    is_broken = false;
    law_require(lk__train_evaluate_batches(engine, loader, 0, &(lk_train_watch){0}, &again, &own));
    assert_memory_equal(&again, &good, sizeof good);
    lk_loader_destroy(loader);
    lk_engine_destroy(engine);
    end_recording();
}

TEST_MAIN(prepare, temp_folder_tear_down, TEST(a_run_is_the_same), TEST(an_evaluation_is_the_same),
          TEST(a_recorded_run_is_the_same), TEST(a_failed_evaluation_leaves_nothing_under_way))
