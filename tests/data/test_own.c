/* test_own.c - data sets of the program's own: read by a function or in memory, of every type and shape, with labels,
 * values and probabilities; parts of them; and what is refused. */
#include "check.h"

#include <stdatomic.h>

#include <lockstep/data.h>

#include "data/sets/dataset.h"

enum { COUNT = 23, C = 3, H = 4, W = 5, SIZE = C * H * W, CLASSES = 4 };

static uint8_t byte_at(size_t sample, size_t c, size_t i)
{
    return (uint8_t)(sample * 31 + c * 57 + i * 7);
}

/* Images in either order. */
static lk_status read_image(const lk_sample_order *order, size_t index, uint8_t *sample)
{
    for (size_t c = 0; c < C; c++)
        for (size_t i = 0; i < H * W; i++)
            sample[*order == LK_SAMPLE_ORDER_CHW ? c * H * W + i : i * C + c] = byte_at(index, c, i);
    return LK_OK;
}

static lk_status read_labelled(void *order, size_t index, void *sample, void *target)
{
    *(int32_t *)target = (int32_t)(index % CLASSES);
    return read_image(order, index, sample);
}

static lk_dataset *images(lk_sample_order *order, const char *augment)
{
    static const float mean[C] = {.5f, .25f, .125f}, deviation[C] = {.5f, 2, .25f};
    lk_dataset *data = NULL;
    lk_dataset_opts opts = {.name = "pictures",
                            .count = COUNT,
                            .dtype = LK_DTYPE_U8,
                            .dims = {C, H, W},
                            .order = *order,
                            .classes = CLASSES,
                            .mean = mean,
                            .std = deviation,
                            .augment = augment};
    if (*order == LK_SAMPLE_ORDER_HWC)
        memcpy(opts.dims, (size_t[]){H, W, C}, sizeof opts.dims);
    assert_ok(lk_dataset_create(&opts, read_labelled, order, &data));
    return data;
}

static lk_loader *load(const lk_dataset *data, lk_loader_opts opts)
{
    lk_loader *loader = NULL;
    opts.batch = opts.batch ? opts.batch : 5;
    assert_ok(lk_loader_create(data, &opts, &loader));
    assert_ok(lk_loader_start(loader, 0, 0));
    return loader;
}

static const lk_batch *next(lk_loader *loader)
{
    const lk_batch *batch = NULL;
    assert_ok(lk_loader_next(loader, &batch));
    return batch;
}

/* Two data sets with the same samples in different orders give the same batches, transformed and with workers. */
static void test_orders(void **state)
{
    lk_sample_order orders[] = {LK_SAMPLE_ORDER_CHW, LK_SAMPLE_ORDER_HWC};
    lk_dataset *data[2];
    lk_loader *loaders[2];
    for (int i = 0; i < 2; i++) {
        data[i] = images(&orders[i], "crop=2,flip");
        const lk_dataset_info *info = lk_dataset_get_info(data[i]);
        assert_int_equal(info->dtype, LK_DTYPE_U8);
        assert_int_equal(info->order, LK_SAMPLE_ORDER_CHW);
        assert_true(info->channels == C && info->height == H && info->width == W);
        loaders[i] = load(data[i], (lk_loader_opts){.shuffle = true, .workers = i * 2});
    }
    for (size_t b = 0; b < lk_loader_batches(loaders[0]); b++) {
        const lk_batch *first = next(loaders[0]), *second = next(loaders[1]);
        assert_int_equal(first->count, second->count);
        assert_memory_equal(first->x, second->x, first->count * SIZE * sizeof *first->x);
        assert_memory_equal(first->labels, second->labels, first->count * sizeof *first->labels);
    }
    for (int i = 0; i < 2; i++) {
        lk_loader_destroy(loaders[i]);
        lk_dataset_destroy(data[i]);
    }
}

/* Every pixel of an untransformed batch is where H, W, C say, and normalised. */
static void test_pixels(void **state)
{
    lk_sample_order order = LK_SAMPLE_ORDER_CHW;
    lk_dataset *data = images(&order, NULL);
    const lk_dataset_info *info = lk_dataset_get_info(data);
    lk_loader *loader = load(data, (lk_loader_opts){0});
    const lk_batch *batch = next(loader);
    for (size_t n = 0; n < batch->count; n++)
        for (size_t i = 0; i < H * W; i++)
            for (size_t c = 0; c < C; c++) {
                float want = ((float)byte_at(n, c, i) / 255 - info->mean[c]) / info->std[c];
                assert_true(batch->x[(n * H * W + i) * C + c] == want);
            }
    lk_loader_destroy(loader);
    lk_dataset_destroy(data);
}

enum { FEATURES = 6, TARGETS = 2 };

typedef struct table {
    float x[COUNT * FEATURES], y[COUNT * TARGETS];
} table;

static const table *make_table(void)
{
    static table t;
    for (size_t i = 0; i < COUNT * FEATURES; i++)
        t.x[i] = (float)i * .25f - 3;
    for (size_t i = 0; i < COUNT * TARGETS; i++)
        t.y[i] = 7 - (float)i;
    return &t;
}

static lk_dataset *tabular(const table *t)
{
    lk_dataset *data = NULL;
    lk_dataset_opts opts = {.count = COUNT, .dims = {FEATURES}, .targets = TARGETS};
    assert_ok(lk_dataset_from_memory(&opts, t->x, t->y, &data));
    return data;
}

static void test_memory(void **state)
{
    const table *t = make_table();
    lk_dataset *data = tabular(t);
    const lk_dataset_info *info = lk_dataset_get_info(data);
    assert_true(info->channels == FEATURES && info->height == 1 && info->width == 1);
    assert_true(info->targets == TARGETS && info->classes == 0 && info->dtype == LK_DTYPE_F32);
    lk_loader *loader = load(data, (lk_loader_opts){.shuffle = true, .workers = 2});
    size_t seen = 0;
    for (const lk_batch *batch; (batch = next(loader)); seen += batch->count) {
        assert_int_equal(batch->target_floats, TARGETS);
        for (size_t i = 0; i < batch->count; i++) {
            assert_memory_equal(batch->x + i * FEATURES, t->x + batch->ids[i] * FEATURES, FEATURES * sizeof(float));
            assert_memory_equal(batch->targets + i * TARGETS, t->y + batch->ids[i] * TARGETS, TARGETS * sizeof(float));
        }
    }
    assert_int_equal(seen, COUNT);
    lk_loader_destroy(loader);
    lk_dataset_destroy(data);
}

/* Ranks that need labels only get targets without samples, by a function as from memory. */
static lk_status read_row(void *arg, size_t index, void *sample, void *target)
{
    const table *t = arg;
    memcpy(sample, t->x + index * FEATURES, FEATURES * sizeof(float));
    memcpy(target, t->y + index * TARGETS, TARGETS * sizeof(float));
    return LK_OK;
}

static void test_targets_only(void **state)
{
    const table *t = make_table();
    lk_dataset_opts opts = {.count = COUNT, .dims = {FEATURES}, .targets = TARGETS};
    lk_dataset *data[2] = {tabular(t)};
    assert_ok(lk_dataset_create(&opts, read_row, (void *)(uintptr_t)t, &data[1]));
    for (int i = 0; i < 2; i++) {
        lk_shard_range share = {.shards = 4, .first = 1, .last = 3, .labels_only = true};
        lk_loader *loader = load(data[i], (lk_loader_opts){.batch = 8, .share = share});
        const lk_batch *batch = next(loader);
        assert_null(batch->x);
        assert_int_equal(batch->count, 4);
        assert_memory_equal(batch->targets, t->y + 2 * TARGETS, 4 * TARGETS * sizeof(float));
        lk_loader_destroy(loader);
        lk_dataset_destroy(data[i]);
    }
}

/* Sequences of integers, and bytes of more channels than an image has. */
static void test_types(void **state)
{
    static int32_t tokens[COUNT * 4];
    static uint8_t bytes[COUNT * 8];
    static int32_t labels[COUNT];
    for (int i = 0; i < COUNT * 4; i++)
        tokens[i] = i * 1000 - 7;
    for (int i = 0; i < COUNT * 8; i++)
        bytes[i] = (uint8_t)(i * 5);
    lk_dataset *data = NULL;
    lk_dataset_opts opts = {.count = COUNT, .dtype = LK_DTYPE_I32, .dims = {4, 1}, .classes = 2};
    assert_ok(lk_dataset_from_memory(&opts, tokens, labels, &data));
    float sample[8];
    int32_t label = 9;
    assert_ok(lk_dataset_get(data, 3, sample, &label));
    assert_int_equal(label, 0);
    for (int i = 0; i < 4; i++)
        assert_true(sample[i] == (float)tokens[12 + i]);
    const lk_dataset_info *info = lk_dataset_get_info(data);
    assert_true(info->channels == 1 && info->height == 1 && info->width == 4);
    tokens[12] = (1 << 24) + 1;
    assert_fails(lk_dataset_get(data, 3, sample, &label), LK_STATUS_FORMAT, "16777217");
    lk_dataset_destroy(data);

    opts = (lk_dataset_opts){.count = COUNT, .dtype = LK_DTYPE_U8, .dims = {4, 1, 2}, .classes = 2};
    assert_ok(lk_dataset_from_memory(&opts, bytes, labels, &data));
    assert_ok(lk_dataset_get(data, 1, sample, &label));
    for (int c = 0; c < 4; c++)
        for (int i = 0; i < 2; i++)
            assert_true(sample[i * 4 + c] == (float)bytes[8 + c * 2 + i] / 255);
    lk_dataset_destroy(data);
}

static void test_probabilities(void **state)
{
    static const float samples[] = {1, 2, 3}, rows[] = {.2f, .6f, .2f, .5f, .5f, 0, 0, 0, 1};
    lk_dataset *data = NULL;
    lk_dataset_opts opts = {.count = 3, .dims = {1}, .classes = 3, .targets = 3};
    assert_ok(lk_dataset_from_memory(&opts, samples, rows, &data));
    lk_loader *loader = load(data, (lk_loader_opts){0});
    const lk_batch *batch = next(loader);
    static const int32_t want[] = {1, 0, 2};
    assert_memory_equal(batch->labels, want, sizeof want);
    assert_memory_equal(batch->targets, rows, sizeof rows);
    lk_loader_destroy(loader);
    lk_dataset_destroy(data);
}

static void test_subset(void **state)
{
    const table *t = make_table();
    lk_dataset *data = tabular(t), *part = NULL;
    static const size_t indices[] = {22, 0, 5, 5}, wrong[] = {1, COUNT};
    assert_ok(lk_dataset_subset(data, indices, 4, LK_SPLIT_TEST, &part));
    lk_loader *loader = load(part, (lk_loader_opts){0});
    const lk_batch *batch = next(loader);
    assert_int_equal(batch->count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_memory_equal(batch->x + i * FEATURES, t->x + indices[i] * FEATURES, FEATURES * sizeof(float));
        assert_memory_equal(batch->targets + i * TARGETS, t->y + indices[i] * TARGETS, TARGETS * sizeof(float));
    }
    lk_loader_destroy(loader);
    /* A part of a part: the samples' origins are in the whole data set. */
    lk_dataset *inner = NULL;
    assert_ok(lk_dataset_subset(part, (const size_t[]){2, 0}, 2, LK_SPLIT_TEST, &inner));
    loader = load(inner, (lk_loader_opts){0});
    batch = next(loader);
    assert_int_equal(batch->ids[0], 0);
    assert_int_equal(batch->origins[0], 5);
    assert_int_equal(batch->origins[1], 22);
    assert_memory_equal(batch->x + FEATURES, t->x + 22 * FEATURES, FEATURES * sizeof(float));
    lk_loader_destroy(loader);
    lk_dataset_destroy(inner);
    lk_dataset_destroy(part);
    assert_fails(lk_dataset_subset(data, wrong, 2, LK_SPLIT_TEST, &part), LK_STATUS_USAGE, "23 samples");
    assert_fails(lk_dataset_subset(data, wrong, 0, LK_SPLIT_TEST, &part), LK_STATUS_USAGE, "at least one");
    assert_fails(lk_dataset_subset(data, wrong, 1, (lk_split)-1, &part), LK_STATUS_USAGE, "`split` -1");
    lk_dataset_destroy(data);
}

static uint64_t content(const lk_dataset *data)
{
    uint64_t hash = 0;
    assert_ok(lk__dataset_content(data, &hash));
    return hash;
}

/* Two data sets that differ in one target are told apart when a run is resumed. */
static void test_content(void **state)
{
    table changed = *make_table();
    changed.y[COUNT] += 1;
    lk_dataset *one = tabular(make_table()), *other = tabular(&changed), *same = tabular(make_table());
    assert_true(content(one) == content(same));
    assert_true(content(one) != content(other));
    lk_dataset_destroy(one);
    lk_dataset_destroy(other);
    lk_dataset_destroy(same);
}

static lk_status read_nothing(void *arg, size_t index, void *sample, void *target)
{
    return arg ? lk_fail(LK_STATUS_IO, "row %zu is locked", index) : LK_STATUS_IO;
}

static lk_status read_no_status(void *arg, size_t index, void *sample, void *target)
{
    return (lk_status)99;
}

static lk_status read_wild(void *arg, size_t index, void *sample, void *target)
{
    memset(sample, 0, FEATURES * sizeof(float));
    *(int32_t *)target = *(const int32_t *)arg;
    return LK_OK;
}

static void test_failures(void **state)
{
    lk_dataset_opts opts = {.name = "sales", .count = COUNT, .dims = {FEATURES}, .classes = 3};
    float sample[FEATURES];
    int32_t label, wild[] = {3, -1};
    lk_dataset *data = NULL;
    for (int own = 0; own < 2; own++) {
        assert_ok(lk_dataset_create(&opts, read_nothing, own ? &opts : NULL, &data));
        assert_fails(lk_dataset_get(data, 7, sample, &label), LK_STATUS_IO,
                     own ? "sample 7 of sales: row 7 is locked" : "sample 7 of sales: the operating system");
        lk_dataset_destroy(data);
    }
    assert_ok(lk_dataset_create(&opts, read_no_status, NULL, &data));
    assert_fails(lk_dataset_get(data, 7, sample, &label), LK_STATUS_USAGE, "sample 7 of sales: the program's function");
    lk_dataset_destroy(data);
    for (int i = 0; i < 2; i++) {
        assert_ok(lk_dataset_create(&opts, read_wild, &wild[i], &data));
        assert_fails(lk_dataset_get(data, 7, sample, &label), LK_STATUS_FORMAT, "[0, 3)");
        lk_dataset_destroy(data);
    }
    static float x[2];
    opts = (lk_dataset_opts){.count = 2, .dims = {1}, .classes = 3};
    assert_fails(lk_dataset_from_memory(&opts, x, wild, &data), LK_STATUS_USAGE, "sample 0 of own: label 3");
}

static void test_refused(void **state)
{
    static const float zero[1];
    static float x[8];
    static const struct {
        lk_dataset_opts opts;
        const char *why;
    } cases[] = {
        {{.dims = {1}, .classes = 1}, "`count` is 0"},
        {{.count = 1, .classes = 1}, "`dims`"},
        {{.count = 1, .dims = {2, 0, 2}, .classes = 1}, "`dims`"},
        {{.count = 1, .dims = {1}}, "`classes` and `targets`"},
        {{.count = 1, .dims = {1}, .classes = 2, .targets = 3}, "differ"},
        {{.count = 1, .dims = {1}, .classes = 2, .dtype = LK_DTYPE_F64}, "`dtype`"},
        {{.count = 1, .dims = {1}, .classes = 2, .order = (lk_sample_order)2}, "`order` 2"},
        {{.count = 1, .dims = {1}, .classes = 2, .split = (lk_split)2}, "`split` 2"},
        {{.count = 1, .dims = {1}, .classes = 2, .std = zero}, "`std`"},
        {{.count = (size_t)1 << 62, .dims = {1 << 20}, .classes = 2}, "more than can be addressed"},
    };
    lk_dataset *data = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_fails(lk_dataset_from_memory(&cases[i].opts, x, x, &data), LK_STATUS_USAGE, cases[i].why);
    lk_dataset_opts opts = {.count = 1, .dims = {1}, .classes = 2, .augment = "flip"};
    lk_loader *loader = NULL;
    assert_ok(lk_dataset_from_memory(&opts, x, x, &data));
    assert_fails(lk_loader_create(data, &(lk_loader_opts){.batch = 1}, &loader), LK_STATUS_USAGE, "need images");
    lk_dataset_destroy(data);
    assert_fails(lk_dataset_create(&opts, NULL, NULL, &data), LK_STATUS_USAGE, "read is NULL");
    assert_fails(lk_dataset_from_memory(&opts, x, NULL, &data), LK_STATUS_USAGE, "targets is NULL");
}

TEST_MAIN(NULL, NULL, TEST(test_orders), TEST(test_pixels), TEST(test_memory), TEST(test_targets_only),
          TEST(test_types), TEST(test_probabilities), TEST(test_subset), TEST(test_content), TEST(test_failures),
          TEST(test_refused))
