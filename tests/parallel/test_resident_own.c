/* test_resident_own.c - cached data sets of a program's own (floats, integers, subsets, float targets) give the same
 * bits as samples from the loader. */
#include <math.h>

#include "resident.h"

enum { COUNT = 30, PART = 18, BATCH = 12, SHARDS = 4, EPOCHS = 3, STEPS = 9, EVALS = 6, MOST = 12 * 12 * 3, OUT = 3 };

static atomic_size_t gathered; /* samples */

static void count_gather(lk_device *dev, const lk_gather_desc *gather, const uint32_t *ids, lk_tensor *x)
{
    gathered += x->shape.n;
    far_cpu.gather(dev, gather, ids, x);
}

/* The memory of all data sets. */
static float values[COUNT * MOST], targets[COUNT * OUT], mean[MOST], deviation[MOST];
static int32_t words[COUNT * MOST], labels[COUNT];
static uint8_t bytes[COUNT * MOST];
enum { ROWS = 40 };

static void fill_memory(void)
{
    lk_rng rng = lk__rng(5, LK_RNG_PURPOSE_DIGITS, 0, 0, 0);
    for (size_t i = 0; i < COUNT * MOST; i++) {
        uint32_t word = lk__rng_u32(&rng, i);
        values[i] = (float)((int)(word >> 20) - 2048) * 0x1p-10f;
        words[i] = (int32_t)(word % ROWS);
        bytes[i] = (uint8_t)(word >> 8);
    }
    for (size_t i = 0; i < COUNT * OUT; i++)
        targets[i] = (float)(lk__rng_u32(&rng, i) >> 24) * 0x1p-8f;
    for (int32_t i = 0; i < COUNT; i++)
        labels[i] = i * 7 % OUT;
    for (size_t i = 0; i < MOST; i++) {
        mean[i] = (float)(i % 5) * 0.3f;
        deviation[i] = 0.7f + (float)(i % 3);
    }
}

static int set_up(void **state)
{
    fill_memory();
    if (resident_add() != 0)
        return -1;
    far_kernels.gather = count_gather;
    return resident_keep();
}

static void build_table(lk_graph *g)
{
    lk_node x = lk_tanh(g, lk_linear(g, lk_input(g, 13, 1, 1), "fc1", 7));
    lk_mse_loss(g, lk_linear(g, x, "fc2", OUT));
}

static void build_words(lk_graph *g)
{
    lk_node x = lk_embedding(g, lk_input(g, 11, 1, 1), "words", ROWS, 6);
    lk_cross_entropy(g, lk_linear(g, lk_global_avgpool(g, x), "fc", OUT));
}

static lk_node build_conv(lk_graph *g, size_t height, size_t width)
{
    lk_node x = lk_input(g, 3, height, width);
    x = lk_relu(g, lk_conv2d(g, x, "conv", (lk_conv2d_opts){.out = 5, .kernel = 3}));
    return lk_linear(g, lk_flatten(g, lk_dropout(g, x, 0.3)), "fc", OUT);
}

static void build_image(lk_graph *g)
{
    lk_cross_entropy(g, build_conv(g, 8, 7));
}

static void build_soft(lk_graph *g)
{
    lk_soft_cross_entropy(g, build_conv(g, 8, 7));
}

static void build_square(lk_graph *g)
{
    lk_mse_loss(g, build_conv(g, 12, 12));
}

static lk_status read_sample(void *arg, size_t index, void *sample, void *target)
{
    memcpy(sample, values + index * 13, 13 * sizeof *values);
    memcpy(target, targets + index * OUT, OUT * sizeof *targets);
    return LK_OK;
}

/* A data set and the model that learns it. */
typedef struct own_case {
    lk_dataset_opts data;
    const void *samples; /* NULL: read_sample reads them */
    void (*build)(lk_graph *g);
    const char *augment;
} own_case;

static const own_case cases[] = {
    {{.dims = {13}, .targets = OUT, .mean = mean, .std = deviation}, values, build_table},
    {{.dims = {13}, .targets = OUT}, NULL, build_table},
    {{.dims = {11}, .classes = OUT, .dtype = LK_DTYPE_I32}, words, build_words},
    {{.dims = {3, 8, 7}, .classes = OUT, .mean = mean, .std = deviation}, values, build_image},
    {{.dims = {8, 7, 3}, .classes = OUT, .order = LK_SAMPLE_ORDER_HWC, .mean = mean}, values, build_image},
    {{.dims = {3, 8, 7}, .classes = OUT, .targets = OUT}, values, build_soft},
    {{.dims = {13}, .targets = OUT, .dtype = LK_DTYPE_U8}, bytes, build_table},
    {{.dims = {3, 12, 12}, .targets = OUT, .dtype = LK_DTYPE_U8}, bytes, build_square, "crop=2,flip"},
};

static lk_dataset *open_data(const own_case *c)
{
    lk_dataset *data;
    lk_dataset_opts opts = c->data;
    opts.count = COUNT;
    const void *learnt = opts.targets ? (const void *)targets : labels;
    law_require(c->samples ? lk_dataset_from_memory(&opts, c->samples, learnt, &data)
                           : lk_dataset_create(&opts, read_sample, NULL, &data));
    return data;
}

/* Samples of the data set in another order; the first one twice. */
static lk_dataset *open_part(const lk_dataset *data)
{
    lk_dataset *part;
    size_t indices[PART];
    for (size_t i = 0; i < PART; i++)
        indices[i] = (COUNT - i * 7 % COUNT) % COUNT;
    indices[PART - 1] = 0;
    law_require(lk_dataset_subset(data, indices, PART, LK_SPLIT_TEST, &part));
    return part;
}

static lk_engine_opts engine_opts(const char *device, size_t micro_batch)
{
    return (lk_engine_opts){.device = device,
                            .threads = 1,
                            .batch = BATCH,
                            .shards = SHARDS,
                            .micro_batch = micro_batch,
                            .optimizer = "adam",
                            .lr = 1e-2,
                            .seed = 3};
}

static lk_engine *open_engine(const own_case *c, const lk_engine_opts *opts)
{
    lk_graph *graph;
    lk_engine *engine;
    law_require(lk_graph_create(&graph));
    c->build(graph);
    law_require(lk_engine_create(graph, opts, &engine));
    lk_graph_destroy(graph);
    return engine;
}

/* An engine, and loaders of a data set and of a part of it. */
typedef struct fixture {
    lk_dataset *data, *part;
    lk_engine *engine;
    lk_loader *loader, *tests;
    bool cached;
} fixture;

static void open_fixture(fixture *f, const own_case *c, const char *device, size_t micro_batch)
{
    lk_engine_opts opts = engine_opts(device, micro_batch);
    f->data = open_data(c);
    f->part = open_part(f->data);
    f->engine = open_engine(c, &opts);
    lk_loader_opts train = {.batch = BATCH, .shuffle = true, .seed = 11, .workers = 2, .augment = c->augment};
    law_require(lk_loader_create(f->data, &train, &f->loader));
    law_require(lk_loader_create(f->part, &(lk_loader_opts){.batch = BATCH}, &f->tests));
    f->cached = false;
}

static void close_fixture(fixture *f)
{
    lk_loader_destroy(f->tests);
    lk_loader_destroy(f->loader);
    lk_engine_destroy(f->engine);
    lk_dataset_destroy(f->part);
    lk_dataset_destroy(f->data);
}

static lk_batch next_batch(const fixture *f, lk_loader *loader)
{
    const lk_batch *batch;
    law_require(lk_loader_next(loader, &batch));
    assert_int_equal(batch->x == NULL, f->cached);
    assert_int_equal(batch->source != NULL, f->cached);
    return *batch;
}

/* The result of a training. */
typedef struct outcome {
    lk_metrics steps[STEPS], evals[EVALS];
    float scores[BATCH * OUT];
    uint64_t hash;
} outcome;

/* Every second epoch has weights of samples, which the caller adds to the loader's batches. */
static void run(const fixture *f, outcome *out)
{
    static const float weights[BATCH] = {1, 0.5f, 3, 0, 2, 0.25f, 1, 7, 0.125f, 1, 0, 4};
    size_t step = 0, eval = 0;
    memset(out, 0, sizeof *out);
    for (size_t epoch = 0; epoch < EPOCHS; epoch++) {
        law_require(lk_loader_start(f->loader, epoch, 0));
        law_require(lk_loader_start(f->tests, 0, 0));
        for (size_t i = 0; i < lk_loader_batches(f->loader); i++) {
            lk_batch batch = next_batch(f, f->loader);
            batch.weights = epoch % 2 ? weights : NULL;
            law_require(lk_engine_step(f->engine, &batch, &out->steps[step++]));
        }
        for (size_t i = 0; i < lk_loader_batches(f->tests); i++) {
            lk_batch batch = next_batch(f, f->tests);
            law_require(lk_engine_eval(f->engine, &batch, &out->evals[eval++]));
        }
    }
    assert_true(step == STEPS && eval == EVALS);
    law_require(lk_loader_start(f->tests, 0, 0));
    lk_batch batch = next_batch(f, f->tests);
    law_require(lk_engine_forward(f->engine, &batch, out->scores));
    out->hash = law_hash_all(f->engine);
}

static void expect(const own_case *c, size_t micro_batch, const outcome *want)
{
    fixture f;
    outcome got;
    open_fixture(&f, c, "far", micro_batch);
    assert_true(resident_place(f.engine, f.loader) && resident_place(f.engine, f.tests));
    f.cached = true;
    gathered = 0;
    run(&f, &got);
    assert_memory_equal(&got, want, sizeof got);
    assert_int_equal(gathered, EPOCHS * (COUNT + PART) + BATCH);
    close_fixture(&f);
}

static void test_same_bits(void **state)
{
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        fixture f;
        outcome want;
        open_fixture(&f, &cases[i], "cpu", 0);
        assert_false(resident_place(f.engine, f.loader));
        run(&f, &want);
        close_fixture(&f);
        for (int recording = 0; recording < 2; recording++) {
            resident_record(recording);
            expect(&cases[i], 0, &want);
            expect(&cases[i], 5, &want);
            assert_int_equal(tape_recorded > 0, recording);
        }
    }
}

/* Floats take four bytes a value on the device. */
static void test_room(void **state)
{
    fixture f;
    size_t need = COUNT * 13 * sizeof(float);
    open_fixture(&f, &cases[0], "far", 0);
    resident_free = 2 * need - 1;
    assert_false(resident_place(f.engine, f.loader));
    resident_free = 2 * need;
    assert_true(resident_place(f.engine, f.loader));
    close_fixture(&f);
}

/* Caching finds a value that is no row of the embedding, as a step does without caching. */
static void test_wrong_ids(void **state)
{
    fixture f;
    bool cached;
    outcome want, got;
    const own_case *c = &cases[2];
    int32_t *wrong = &words[COUNT / 2 * 11 + 4], right = *wrong;
    open_fixture(&f, c, "cpu", 0);
    run(&f, &want);
    close_fixture(&f);
    open_fixture(&f, c, "far", 0);
    *wrong = ROWS;
    assert_fails(lk_engine_cache_dataset(f.engine, f.loader, &cached), LK_STATUS_MISMATCH, "sample 15: its value 4");
    assert_fails(lk_engine_cache_dataset(f.engine, f.tests, &cached), LK_STATUS_MISMATCH, "sample 15: its value 4");
    *wrong = ROWS << 24;
    assert_fails(lk_engine_cache_dataset(f.engine, f.loader, &cached), LK_STATUS_FORMAT, "integers up to");
    *wrong = right;
    run(&f, &got);
    assert_memory_equal(&got, &want, sizeof got);
    close_fixture(&f);
}

/* Makes steps until one fails; returns its number. */
static int fail_step(const fixture *f, lk_status *status)
{
    int step = 0;
    law_require(lk_loader_start(f->loader, 0, 0));
    for (*status = LK_OK; *status == LK_OK; step++) {
        lk_metrics metrics;
        lk_batch batch = next_batch(f, f->loader);
        *status = lk_engine_step(f->engine, &batch, &metrics);
    }
    return step;
}

/* A sample that is not finite: the same step fails, with the same detail. */
static void test_nonfinite(void **state)
{
    char want[1024] = "";
    int failed = 0;
    values[20 * 13] = INFINITY;
    for (int way = 0; way < 4; way++) {
        fixture f;
        lk_status status;
        resident_record(way & 1);
        open_fixture(&f, &cases[0], "far", 0);
        f.cached = way & 2 && resident_place(f.engine, f.loader);
        assert_int_equal(f.cached, way / 2);
        int step = fail_step(&f, &status);
        assert_int_equal(status, LK_STATUS_NONFINITE);
        if (way == 0) {
            failed = step;
            snprintf(want, sizeof want, "%s", lk_error_detail());
        }
        assert_int_equal(step, failed);
        assert_string_equal(lk_error_detail(), want);
        close_fixture(&f);
    }
    fill_memory();
}

/* Sample 10 of the part is sample 20 of the data set: messages name it so, of a recorded step too. */
static void test_names_of_a_part(void **state)
{
    for (int recording = 0; recording < 2; recording++) {
        fixture f;
        lk_status status = LK_OK;
        lk_metrics metrics;
        resident_record(recording);
        open_fixture(&f, &cases[0], "far", 0);
        for (int step = 0; step < 3; step++) {
            law_require(lk_loader_start(f.tests, 0, 0));
            lk_batch batch = next_batch(&f, f.tests);
            assert_int_equal(batch.ids[10], 10);
            assert_int_equal(batch.origins[10], 20);
            assert_int_equal(status, LK_OK);
            status = lk_engine_step(f.engine, &batch, &metrics);
            values[20 * 13] = step == 1 ? NAN : 1;
        }
        assert_int_equal(status, LK_STATUS_NONFINITE);
        assert_non_null(strstr(lk_error_detail(), "the loss of sample 20 ("));
        assert_int_equal(tape_recorded > 0, recording);
        close_fixture(&f);
    }
    fill_memory();
}

/* Ranks that train on their shards of a cached data set. */
typedef struct crew {
    const own_case *c;
    const char *stages;
    uint64_t hash; /* of every rank in the end */
} crew;

static bool be_rank(lk_group *group, const team_spec *team, const void *arg)
{
    const crew *c = arg;
    lk_engine_opts opts = engine_opts("far", 0);
    opts.group = group;
    opts.stages = c->stages;
    lk_dataset *data = open_data(c->c);
    lk_engine *engine = open_engine(c->c, &opts);
    lk_loader_opts loading = {.batch = BATCH, .shuffle = true, .seed = 11};
    CHECK(!resident_train_rank(engine, data, loading, 0, c->hash));
    lk_engine_destroy(engine);
    lk_dataset_destroy(data);
    return false;
}

static void test_ranks(void **state)
{
    for (size_t i = 0; i < 2; i++) {
        fixture f;
        crew c = {.c = &cases[i]};
        open_fixture(&f, c.c, "cpu", 0);
        law_require(lk_loader_start(f.loader, 0, 0));
        for (size_t k = 0; k < lk_loader_batches(f.loader); k++) {
            lk_metrics metrics;
            lk_batch batch = next_batch(&f, f.loader);
            law_require(lk_engine_step(f.engine, &batch, &metrics));
        }
        c.hash = law_hash(f.engine);
        close_fixture(&f);
        assert_true(team_run((team_spec){.size = 3, .transport = "inproc"}, be_rank, &c));
        c.stages = "2";
        assert_true(team_run((team_spec){.size = 2, .transport = "inproc"}, be_rank, &c));
    }
}

#define CASE(test) cmocka_unit_test_setup(test, resident_reset)
TEST_MAIN(set_up, NULL, CASE(test_same_bits), CASE(test_room), CASE(test_wrong_ids), CASE(test_nonfinite),
          CASE(test_names_of_a_part), CASE(test_ranks))
