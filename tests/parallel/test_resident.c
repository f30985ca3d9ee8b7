/* test_resident.c - training and evaluation on a cached data set give the same bits as samples from
 * the loader. */
#include "resident.h"

#include "data/sets/dataset.h"

enum { COUNT = 70, TESTS = 45, BATCH = 24, TEST_BATCH = 40, EPOCHS = 2, STEPS = EPOCHS * 3, EVALS = EPOCHS * 2 };

static atomic_size_t largest_upload;

static lk_status upload(lk_device *dev, const void *host, size_t bytes, void *dst)
{
    if (bytes > largest_upload)
        largest_upload = bytes;
    return far_upload(dev, host, bytes, dst);
}

static int add_device(void **state)
{
    if (resident_add() != 0)
        return -1;
    far_type.upload = upload;
    return resident_keep();
}

static lk_status get(const lk_dataset *data, size_t index, void *sample, void *label)
{
    uint8_t *pixels = sample;
    size_t count = data->info.channels * data->info.height * data->info.width;
    uint32_t salt = data->split == LK_SPLIT_TEST ? 1000 : 0;
    lk_rng rng = lk__rng(5, LK_RNG_PURPOSE_DIGITS, 0, 0, salt + (uint32_t)index);
    for (size_t i = 0; i < count; i++)
        pixels[i] = (uint8_t)lk__rng_u32(&rng, i);
    *(int32_t *)label = (int32_t)(index * 7 % 10);
    return LK_OK;
}

static int32_t label_of(const lk_dataset *data, size_t index)
{
    return (int32_t)(index * 7 % 10);
}

static const float mean[] = {.25f, .5f, .75f}, deviation[] = {.5f, .25f, 2};
static const lk_dataset_ops ops = {.get = get, .label = label_of};

static lk_dataset made(lk_model_shape shape, lk_split split)
{
    return (lk_dataset){.ops = &ops,
                        .split = split,
                        .info = {.name = "made",
                                 .count = split == LK_SPLIT_TEST ? TESTS : COUNT,
                                 .channels = shape.channels,
                                 .height = shape.height,
                                 .width = shape.width,
                                 .classes = shape.classes},
                        .info.mean = mean,
                        .info.std = deviation};
}

/* An engine, and loaders of training and test data. */
typedef struct fixture {
    lk_dataset train, test;
    lk_engine *engine;
    lk_loader *loader, *tests;
} fixture;

typedef struct training {
    law_case c;
    const char *augment;
} training;

static const training trainings[] = {
    {{"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, .batch = BATCH, .shards = 4}, "none"},
    {{"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "adadelta", 1, .batch = BATCH, .shards = 4}, "crop=3"},
    {{"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "sgd:momentum=.9", .1, .batch = BATCH, .shards = 4},
     "crop=2,flip"},
    {{"resnet20:width=4", LAW_SMALL, LK_BN_MODE_SHARD, "sgd", .1, .batch = BATCH, .shards = 4}, "flip=.7,crop=4"},
};

static lk_loader *open_loader(const lk_dataset *data, const char *augment, bool shuffle)
{
    lk_loader *loader;
    size_t batch = data->split == LK_SPLIT_TEST ? TEST_BATCH : BATCH;
    lk_loader_opts opts = {.batch = batch, .shuffle = shuffle, .seed = 11, .workers = 2, .augment = augment};
    law_require(lk_loader_create(data, &opts, &loader));
    return loader;
}

static void open_fixture(fixture *f, const training *t, const char *device, size_t micro_batch)
{
    lk_engine_opts opts = law_opts(&t->c, &(law_way){.threads = 2, .micro_batch = micro_batch});
    opts.device = device;
    f->train = made(t->c.shape, LK_SPLIT_TRAIN);
    f->test = made(t->c.shape, LK_SPLIT_TEST);
    law_require(law_create(&t->c, &opts, &f->engine));
    f->loader = open_loader(&f->train, t->augment, true);
    f->tests = open_loader(&f->test, "none", false);
}

static void close_fixture(fixture *f)
{
    lk_loader_destroy(f->tests);
    lk_loader_destroy(f->loader);
    lk_engine_destroy(f->engine);
}

static void place_all(fixture *f)
{
    assert_true(resident_place(f->engine, f->loader));
    assert_true(resident_place(f->engine, f->tests));
    largest_upload = 0;
}

/* The result of a training. */
typedef struct outcome {
    lk_metrics steps[STEPS], evals[EVALS];
    float scores[EPOCHS][TEST_BATCH * 10];
    uint64_t hash;
} outcome;

static const lk_batch *next_batch(lk_loader *loader)
{
    const lk_batch *batch;
    law_require(lk_loader_next(loader, &batch));
    return batch;
}

/* Makes the steps of an epoch, as many under way as the engine accepts. */
static void train_epoch(fixture *f, size_t epoch, lk_metrics *out)
{
    size_t batches = lk_loader_batches(f->loader), sent = 0;
    law_require(lk_loader_start(f->loader, epoch, 0));
    for (size_t received = 0; received < batches; received++) {
        while (sent == received ||
               (sent < batches && lk_engine_can_send(f->engine, lk__size_min(BATCH, COUNT - sent * BATCH)))) {
            law_require(lk_engine_send(f->engine, next_batch(f->loader)));
            sent++;
        }
        law_require(lk_engine_receive(f->engine, &out[received]));
    }
}

/* Evaluates the first batch of the loader's epoch. */
static lk_metrics evaluate(lk_engine *engine, lk_loader *loader, size_t epoch)
{
    lk_metrics metrics;
    law_require(lk_loader_start(loader, epoch, 0));
    law_require(lk_engine_eval(engine, next_batch(loader), &metrics));
    return metrics;
}

/* The scores of the first batch, whose samples are found by their ids alone. */
static void predict(lk_engine *engine, lk_loader *loader, float *scores)
{
    law_require(lk_loader_start(loader, 0, 0));
    lk_batch batch = *next_batch(loader);
    batch.labels = NULL;
    law_require(lk_engine_forward(engine, &batch, scores));
    batch.ids = NULL;
    if (batch.source)
        assert_fails(lk_engine_forward(engine, &batch, scores), LK_STATUS_USAGE, "its `ids` is NULL");
}

/* Training samples of a later epoch are evaluated, too. */
static void run(fixture *f, outcome *out)
{
    memset(out, 0, sizeof *out);
    for (size_t epoch = 0; epoch < EPOCHS; epoch++) {
        train_epoch(f, epoch, out->steps + epoch * STEPS / EPOCHS);
        predict(f->engine, f->tests, out->scores[epoch]);
        out->evals[2 * epoch] = evaluate(f->engine, f->tests, 0);
        out->evals[2 * epoch + 1] = evaluate(f->engine, f->loader, epoch + 5);
    }
    out->hash = law_hash_all(f->engine);
}

static void expect(const training *t, size_t micro_batch, const outcome *want)
{
    fixture f;
    outcome got;
    open_fixture(&f, t, "far", micro_batch);
    place_all(&f);
    run(&f, &got);
    assert_memory_equal(&got, want, sizeof got);
    /* No samples were uploaded. */
    assert_true(largest_upload <= TEST_BATCH * sizeof(int32_t));
    close_fixture(&f);
}

static void test_same_bits(void **state)
{
    for (size_t i = 0; i < COUNT_OF(trainings); i += law_every()) {
        const training *t = &trainings[i];
        fixture f;
        outcome want;
        open_fixture(&f, t, "cpu", 0);
        assert_false(resident_place(f.engine, f.loader));
        run(&f, &want);
        close_fixture(&f);
        expect(t, 0, &want);
        if (t->c.bn == LK_BN_MODE_SHARD)
            expect(t, 7, &want);
        resident_record(true);
        expect(t, 0, &want);
        if (t->c.bn == LK_BN_MODE_SHARD)
            expect(t, 7, &want);
        /* Recorded: whole batches, twice, because the memory of inputs grows for the larger batches of the test; the
         * last batch of an epoch; evaluations of both data sets; all of them again in waves. */
        assert_int_equal(tape_recorded, t->c.bn == LK_BN_MODE_SHARD ? 10 : 5);
        resident_record(false);
    }
}

/* Cached batches and batches from the host in turn. */
static void run_mixed(fixture *f, bool cached, outcome *out)
{
    lk_loader *plain = open_loader(&f->train, "flip", true);
    memset(out, 0, sizeof *out);
    law_require(lk_loader_start(plain, 0, 0));
    law_require(lk_loader_start(f->loader, 0, 0));
    for (int i = 0; i < 4; i++) {
        lk_loader *loader = i % 2 ? plain : f->loader;
        const lk_batch *batch = next_batch(loader);
        assert_int_equal(batch->x == NULL, cached && loader == f->loader);
        law_require(lk_engine_step(f->engine, batch, &out->steps[i]));
    }
    out->hash = law_hash_all(f->engine);
    lk_loader_destroy(plain);
}

static void test_mixed_batches(void **state)
{
    fixture f;
    outcome want, got;
    open_fixture(&f, &trainings[2], "cpu", 0);
    run_mixed(&f, false, &want);
    close_fixture(&f);
    for (int recording = 0; recording < 2; recording++) {
        resident_record(recording);
        open_fixture(&f, &trainings[2], "far", 0);
        place_all(&f);
        run_mixed(&f, true, &got);
        assert_memory_equal(&got, &want, sizeof got);
        /* The first step is not recorded; the others get their samples from two sources. */
        assert_int_equal(tape_recorded, recording ? 2 : 0);
        assert_int_equal(tape_kept, recording ? 2 : 0);
        close_fixture(&f);
    }
}

static lk_status get_steep(const lk_dataset *data, size_t index, void *sample, void *label)
{
    uint8_t *pixels = sample;
    memset(pixels, index == 40 ? 255 : 0, data->info.channels * data->info.height * data->info.width);
    *(int32_t *)label = 0;
    return LK_OK;
}

/* A recorded step is repeated with the cached samples to find the shard. */
static void test_nonfinite(void **state)
{
    static const float none[] = {0}, steep[] = {1e-20f};
    static const lk_dataset_ops steep_ops = {.get = get_steep, .label = label_of};
    const training t = {{"steep", {1, 4, 4, 10}, .optimizer = "sgd", .lr = 1e-60, .batch = BATCH, .shards = 4}, NULL};
    fixture f;
    lk_metrics metrics;
    (void)state;
    resident_record(true);
    open_fixture(&f, &t, "far", 0);
    lk_loader_destroy(f.loader);
    f.train.ops = &steep_ops;
    f.train.info.mean = none;
    f.train.info.std = steep;
    f.loader = open_loader(&f.train, NULL, false);
    assert_true(resident_place(f.engine, f.loader));
    law_require(lk_loader_start(f.loader, 0, 0));
    law_require(lk_engine_step(f.engine, next_batch(f.loader), &metrics));
    assert_int_equal(lk_engine_step(f.engine, next_batch(f.loader), &metrics), LK_STATUS_NONFINITE);
    assert_int_equal(tape_recorded, 1);
    assert_non_null(strstr(lk_error_detail(), "step 2: the gradient of first.weight is not finite (shard 2); if"));
    close_fixture(&f);
}

/* Ranks that train on their shards of a cached data set. */
typedef struct crew {
    const training *t;
    const char *stages;
    uint64_t hash; /* of every rank in the end */
} crew;

static bool be_rank(lk_group *group, const team_spec *team, const void *arg)
{
    const crew *c = arg;
    lk_engine_opts opts = law_opts(&c->t->c, &(law_way){.threads = 1, .stages = c->stages});
    lk_dataset data = made(c->t->c.shape, LK_SPLIT_TRAIN);
    lk_engine *engine;
    opts.device = "far";
    opts.group = group;
    CHECK_OK(law_create(&c->t->c, &opts, &engine));
    lk_loader_opts loading = {.batch = BATCH, .shuffle = true, .seed = 11, .augment = c->t->augment};
    CHECK(!resident_train_rank(engine, &data, loading, 1, c->hash));
    lk_engine_destroy(engine);
    return false;
}

static void test_ranks(void **state)
{
    fixture f;
    lk_metrics metrics[STEPS];
    open_fixture(&f, &trainings[3], "cpu", 0);
    train_epoch(&f, 1, metrics);
    crew c = {.t = &trainings[3], .hash = law_hash(f.engine)};
    close_fixture(&f);
    assert_true(team_run((team_spec){.size = 3, .transport = "inproc"}, be_rank, &c));
    c.stages = "2";
    assert_true(team_run((team_spec){.size = 2, .transport = "shm"}, be_rank, &c));
    assert_true(team_run((team_spec){.size = 4, .transport = "inproc"}, be_rank, &c));
}

/* The data set of this loader is not cached. */
static void expect_left(fixture *f, const lk_dataset *data, const char *augment)
{
    lk_loader *loader = open_loader(data, augment, true);
    assert_false(resident_place(f->engine, loader));
    law_require(lk_loader_start(loader, 0, 0));
    assert_non_null(next_batch(loader)->x);
    lk_loader_destroy(loader);
}

static void test_what_is_not_cached(void **state)
{
    fixture f;
    size_t bytes = COUNT * 3 * 16 * 16;
    open_fixture(&f, &trainings[2], "far", 0);
    expect_left(&f, &f.train, "flip,vflip");
    expect_left(&f, &f.train, "crop=2,resize=16/16");
    lk_dataset other = made((lk_model_shape){3, 32, 8, 10}, LK_SPLIT_TRAIN);
    expect_left(&f, &other, "none");
    resident_free = 2 * bytes - 1;
    expect_left(&f, &f.train, "none");
    far_type.room = NULL;
    expect_left(&f, &f.train, "none");
    far_type.room = resident_room;
    resident_free = 2 * bytes;
    assert_true(resident_place(f.engine, f.loader));
    assert_true(resident_place(f.engine, f.loader));
    assert_true(resident_place(f.engine, f.tests));
    expect_left(&f, &f.train, "none");
    close_fixture(&f);
}

static lk_status alloc_nothing(lk_device *dev, size_t bytes, const char *what, void **out)
{
    return lk__fail(LK_STATUS_MEMORY, "no %zu bytes for %s", bytes, what);
}

static lk_status get_nothing(const lk_dataset *data, size_t index, void *sample, void *label)
{
    return index < 5 ? LK_OK : lk__fail(LK_STATUS_FORMAT, "the file is cut off");
}

/* An allocation fails; a file cannot be read. */
static void test_failures(void **state)
{
    static const lk_dataset_ops broken = {.get = get_nothing, .label = label_of};
    fixture f;
    bool cached;
    outcome want, got;
    open_fixture(&f, &trainings[2], "far", 0);
    run(&f, &want);
    close_fixture(&f);
    open_fixture(&f, &trainings[2], "far", 0);
    far_type.alloc = alloc_nothing;
    assert_false(resident_place(f.engine, f.loader));
    far_type.alloc = far_alloc;
    f.train.ops = &broken;
    assert_int_equal(lk_engine_cache_dataset(f.engine, f.loader, &cached), LK_STATUS_FORMAT);
    assert_string_equal(lk_error_detail(), "the file is cut off");
    f.train.ops = &ops;
    run(&f, &got);
    assert_memory_equal(&got, &want, sizeof got);
    close_fixture(&f);
}

static void test_wrong_uses(void **state)
{
    fixture f, other;
    bool cached;
    lk_metrics metrics;
    uint32_t ids[BATCH] = {[3] = COUNT};
    open_fixture(&f, &trainings[2], "far", 0);
    open_fixture(&other, &trainings[2], "far", 0);
    place_all(&f);
    assert_fails(lk_engine_cache_dataset(other.engine, f.loader, &cached), LK_STATUS_USAGE,
                 "cached on the device of another engine");
    law_require(lk_loader_start(f.loader, 0, 0));
    lk_batch batch = *next_batch(f.loader);
    assert_fails(lk_engine_step(other.engine, &batch, &metrics), LK_STATUS_USAGE, "not cached on this engine's device");
    batch.ids = ids;
    assert_fails(lk_engine_step(f.engine, &batch, &metrics), LK_STATUS_USAGE, "no sample 70");
    batch.source = NULL;
    assert_fails(lk_engine_step(f.engine, &batch, &metrics), LK_STATUS_USAGE, "is NULL");
    assert_int_equal(lk_engine_steps(f.engine), 0);
    close_fixture(&other);
    close_fixture(&f);
}

/* Batches of a destroyed engine are refused by a later engine, even if that has the same address. */
static void test_loader_of_a_destroyed_engine(void **state)
{
    static const int32_t labels[BATCH];
    static const uint32_t ids[BATCH];
    enum { ENGINES = 8 };
    const void *sources[ENGINES];
    for (int i = 0; i < ENGINES; i++) {
        fixture f;
        lk_metrics metrics;
        open_fixture(&f, &trainings[2], "far", 0);
        assert_true(resident_place(f.engine, f.loader));
        for (int j = 0; j < i; j++) {
            lk_batch old = {
                .count = BATCH, .sample_floats = 3 * 16 * 16, .labels = labels, .ids = ids, .source = sources[j]};
            assert_fails(lk_engine_step(f.engine, &old, &metrics), LK_STATUS_USAGE,
                         "not cached on this engine's device");
        }
        law_require(lk_loader_start(f.loader, 0, 0));
        sources[i] = next_batch(f.loader)->source;
        close_fixture(&f);
    }
}

/* The losses of one batch in two epochs; the model has no dropout. */
static void losses_by_epoch(fixture *f, lk_batch batch, double out[2])
{
    lk_metrics metrics;
    for (size_t epoch = 0; epoch < 2; epoch++) {
        batch.epoch = epoch;
        law_require(lk_engine_gradients(f->engine, &batch, &metrics));
        out[epoch] = metrics.loss;
    }
}

/* The epoch of a batch only selects the random transforms of cached samples. */
static void test_the_epoch_of_a_batch(void **state)
{
    double loss[2];
    fixture f;
    open_fixture(&f, &trainings[2], "far", 0);
    law_require(lk_loader_start(f.loader, 0, 0));
    losses_by_epoch(&f, *next_batch(f.loader), loss);
    assert_true(loss[0] == loss[1]);
    place_all(&f);
    law_require(lk_loader_start(f.loader, 0, 0));
    double host = loss[0];
    losses_by_epoch(&f, *next_batch(f.loader), loss);
    assert_true(loss[0] == host);
    assert_true(loss[0] != loss[1]);
    lk_metrics metrics;
    lk_batch late = *next_batch(f.loader);
    late.epoch = (size_t)UINT32_MAX + 1;
    assert_fails(lk_engine_gradients(f.engine, &late, &metrics), LK_STATUS_USAGE, "epoch");
    close_fixture(&f);
}

/* A loader that has started keeps its source until it is started again. */
static void test_cached_under_way(void **state)
{
    fixture f;
    open_fixture(&f, &trainings[2], "far", 0);
    law_require(lk_loader_start(f.loader, 0, 0));
    assert_non_null(next_batch(f.loader)->x);
    assert_true(resident_place(f.engine, f.loader));
    const lk_batch *batch = next_batch(f.loader);
    assert_non_null(batch->x);
    assert_null(batch->source);
    law_require(lk_loader_start(f.loader, 3, 1));
    batch = next_batch(f.loader);
    assert_null(batch->x);
    assert_non_null(batch->source);
    assert_int_equal(batch->epoch, 3);
    assert_int_equal(batch->sample_floats, 3 * 16 * 16);
    for (size_t i = 0; i < batch->count; i++)
        assert_int_equal(batch->labels[i], label_of(NULL, batch->ids[i]));
    close_fixture(&f);
}

#define CASE(test) cmocka_unit_test_setup(test, resident_reset)
TEST_MAIN(add_device, NULL, CASE(test_same_bits), CASE(test_mixed_batches), CASE(test_nonfinite), CASE(test_ranks),
          CASE(test_what_is_not_cached), CASE(test_failures), CASE(test_wrong_uses),
          CASE(test_loader_of_a_destroyed_engine), CASE(test_the_epoch_of_a_batch), CASE(test_cached_under_way))
