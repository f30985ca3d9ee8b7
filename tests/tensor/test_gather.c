/* test_gather.c - samples gathered from a data set of bytes or floats, on the CPU and on GPUs: the loader's values with
 * every transform, rounded once to the value type. */
#include "tensor/kernel_test.h"

#include "data/loader/loader.h"

enum { COUNT = 70, BATCH = 32, EPOCHS = 3, SEED = 42, LEVELS = 256 };

static const float mean[] = {.25f, .5f, .75f}, deviation[] = {.5f, .25f, 2};

static lk_status get(const lk_dataset *data, size_t index, void *sample, void *label)
{
    uint8_t *pixels = sample;
    size_t count = data->info.channels * data->info.height * data->info.width;
    for (size_t i = 0; i < count; i++)
        pixels[i] = (uint8_t)(index * 37 + i * i * 11 + i / 7);
    *(int32_t *)label = 0;
    return LK_OK;
}

static const lk_dataset_ops ops = {.get = get};

static lk_dataset made(lk_shape shape)
{
    return (lk_dataset){
        .ops = &ops,
        .info = {.name = "made", .count = COUNT, .channels = shape.c, .height = shape.h, .width = shape.w},
        .info.mean = mean,
        .info.std = deviation};
}

/* A batch and its gather_desc; all pointers are host memory. */
typedef struct gathered {
    lk_gather_desc desc;
    uint32_t epoch;
    lk_shape shape;
    const uint32_t *ids; // (n)
} gathered;

static void run_gather(lk_device *d, const void *arg, float *out)
{
    const gathered *g = arg;
    lk_gather_desc desc = g->desc;
    lk_tensor x = fx_tensor(d, g->shape);
    if (g->desc.values) {
        desc.values = fx_floats(d, g->desc.values, COUNT * desc.record);
    } else {
        desc.pixels = fx_put(d, g->desc.pixels, COUNT * desc.record);
        desc.table = fx_floats(d, g->desc.table, g->shape.c * LEVELS);
        desc.epoch = fx_put(d, &g->epoch, sizeof g->epoch);
    }
    d->kernels->gather(d, &desc, fx_put(d, g->ids, g->shape.n * sizeof *g->ids), &x);
    fx_read(d, &x, out);
}

static uint8_t *all_pixels(const lk_dataset *data, size_t record)
{
    uint8_t *pixels = malloc(COUNT * record);
    int32_t label;
    assert_non_null(pixels);
    for (size_t i = 0; i < COUNT; i++)
        assert_ok(lk_dataset_get(data, i, pixels + i * record, &label));
    return pixels;
}

/* Returns the number of values that differ from another epoch. */
static size_t check_epoch(lk_loader *loader, uint32_t epoch, gathered *g)
{
    const lk_batch *batch;
    size_t changed = 0;
    assert_ok(lk_loader_start(loader, epoch, 0));
    for (;;) {
        assert_ok(lk_loader_next(loader, &batch));
        if (!batch)
            return changed;
        assert_int_equal(batch->epoch, epoch);
        size_t count = batch->count * batch->sample_floats;
        g->shape.n = batch->count;
        g->ids = batch->ids;
        g->epoch = epoch;
        fx_check("gather", run_gather, g, batch->x, count);
        g->epoch = epoch + 1;
        float *other = fx_once(dev, run_gather, g, count);
        for (size_t i = 0; i < count; i++)
            changed += other[i] != fx_round(batch->x[i]);
        free(other);
    }
}

/* desc has the crop and flip of the text augment. */
static void check(lk_shape shape, const char *augment, lk_gather_desc desc)
{
    lk_dataset data = made(shape);
    lk_loader *loader;
    gathered g = {.desc = desc, .shape = shape};
    assert_ok(lk_loader_create(
        &data, &(lk_loader_opts){.batch = BATCH, .shuffle = true, .seed = SEED, .augment = augment}, &loader));
    g.desc.record = shape.c * shape.h * shape.w;
    uint8_t *pixels = all_pixels(&data, g.desc.record);
    g.desc.pixels = pixels;
    g.desc.table = lk__loader_source(loader).normalise->table[0];
    g.desc.seed = SEED;
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
        bool random = desc.crop > 0 || (desc.flip > 0 && desc.flip < 1);
        assert_int_equal(check_epoch(loader, epoch, &g) > 0, random);
    }
    free(pixels);
    lk_loader_destroy(loader);
}

static void check_all(lk_shape shape)
{
    check(shape, "none", (lk_gather_desc){0});
    check(shape, "crop=2", (lk_gather_desc){.crop = 2});
    check(shape, "flip", (lk_gather_desc){.flip = .5});
    check(shape, "flip=.3", (lk_gather_desc){.flip = .3});
    check(shape, "flip=1", (lk_gather_desc){.flip = 1});
    check(shape, "crop=4,flip", (lk_gather_desc){.crop = 4, .flip = .5, .flip_layer = 1});
    check(shape, "flip,crop=4", (lk_gather_desc){.crop = 4, .flip = .5, .crop_layer = 1});
    /* Windows that are completely outside the image. */
    check(shape, "crop=40,flip=.9", (lk_gather_desc){.crop = 40, .flip = .9, .flip_layer = 1});
}

static void test_one_channel(void **state)
{
    check_all((lk_shape){.c = 1, .h = 28, .w = 28});
}

static void test_three_channels(void **state)
{
    check_all((lk_shape){.c = 3, .h = 14, .w = 11});
}

/* The batches of a loader against the samples of its data set, gathered by their ids. */
static void check_values(const lk_dataset_opts *opts, const void *samples)
{
    static const float targets[COUNT];
    lk_dataset *data;
    lk_loader *loader;
    float target;
    assert_ok(lk_dataset_from_memory(opts, samples, targets, &data));
    assert_ok(lk_loader_create(data, &(lk_loader_opts){.batch = BATCH, .shuffle = true, .seed = SEED}, &loader));
    const lk_dataset_info *info = lk_dataset_get_info(data);
    lk_shape shape = {.c = info->channels, .h = info->height, .w = info->width};
    size_t record = shape.c * shape.h * shape.w;
    float *values = malloc(COUNT * record * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < COUNT; i++)
        assert_ok(lk_dataset_get(data, i, values + i * record, &target));
    gathered g = {.desc = {.values = values, .record = record}, .shape = shape};
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++)
        assert_int_equal(check_epoch(loader, epoch, &g), 0);
    free(values);
    lk_loader_destroy(loader);
    lk_dataset_destroy(data);
}

static void test_values(void **state)
{
    enum { MOST = COUNT * 3 * 7 * 5 };
    float *floats = random_floats(MOST, 4);
    int32_t *integers = malloc(MOST * sizeof *integers);
    assert_non_null(integers);
    for (size_t i = 0; i < MOST; i++)
        integers[i] = (int32_t)(i * i % 251);
    static const lk_dataset_opts cases[] = {
        {.dims = {13}},
        {.dims = {7, 9}},
        {.dims = {3, 7, 5}, .mean = mean, .std = deviation},
        {.dims = {7, 5, 3}, .order = LK_SAMPLE_ORDER_HWC, .mean = mean, .std = deviation},
        {.dims = {16}, .dtype = LK_DTYPE_I32},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        lk_dataset_opts opts = cases[i];
        opts.count = COUNT;
        opts.targets = 1;
        check_values(&opts, opts.dtype == LK_DTYPE_I32 ? (const void *)integers : floats);
    }
    free(integers);
    free(floats);
}

/* No transform, crop, flip, and both in both orders. The window of a crop by 1000 is almost always outside the
 * image. */
static void check_transforms(gathered g)
{
    static const lk_gather_desc ways[] = {
        {0},
        {.crop = 2},
        {.crop = 1000},
        {.flip = 0.5},
        {.flip = 1},
        {.crop = 3, .flip = 0.5, .crop_layer = 0, .flip_layer = 1},
        {.crop = 3, .flip = 0.7, .crop_layer = 1, .flip_layer = 0},
        {.crop = 1000, .flip = 0.5, .crop_layer = 1, .flip_layer = 0},
    };
    const lk_gather_desc data = g.desc;
    for (size_t i = 0; i < COUNT_OF(ways); i++) {
        g.desc = ways[i];
        g.desc.pixels = data.pixels;
        g.desc.table = data.table;
        g.desc.record = lk__shape_sample(g.shape);
        g.desc.seed = UINT64_C(0x123456789) + i;
        g.epoch = (uint32_t)i;
        size_t count = lk__shape_count(g.shape);
        float *got = fx_bits_brief("gather", run_gather, &g, count), *want = fx_once(cpu, run_gather, &g, count);
        fx_same_values("gather", got, want, count);
        free(got);
        free(want);
    }
}

/* More shapes than the loader has, against the CPU: samples in any order, some of them twice. */
static void test_shapes(void **state)
{
    static const lk_shape shapes[] = {{0, 3, 5, 4}, {1, 1, 1, 1},    {33, 1, 28, 28},
                                      {9, 3, 5, 4}, {64, 3, 32, 32}, {5, 17, 15, 13}};
    for (size_t k = 0; k < COUNT_OF(shapes); k++) {
        lk_shape shape = shapes[k];
        if (fx_too_large(lk__shape_count(shape)))
            continue;
        size_t bytes = COUNT * lk__shape_sample(shape);
        float *table = random_floats(shape.c * LEVELS, 6);
        uint8_t *pixels = malloc(bytes);
        uint32_t ids[64];
        lk_rng rng = lk__rng(5, LK_RNG_PURPOSE_DIGITS, 0, 0, 7);
        assert_non_null(pixels);
        for (size_t i = 0; i < bytes; i++)
            pixels[i] = (uint8_t)lk__rng_u32(&rng, i);
        for (size_t i = 0; i < shape.n; i++)
            ids[i] = (uint32_t)(39 - i * 7 % 40);
        check_transforms((gathered){.desc = {.pixels = pixels, .table = table}, .shape = shape, .ids = ids});
        free(table);
        free(pixels);
    }
}

/* Shapes of floats against their records; with more samples than a GPU's grid has rows. */
static void test_shapes_of_values(void **state)
{
    static const lk_shape shapes[] = {{0, 3, 5, 4},    {1, 1, 1, 1}, {33, 784, 1, 1},
                                      {5, 17, 15, 13}, {9, 3, 5, 4}, {70000, 2, 1, 1}};
    for (size_t k = 0; k < COUNT_OF(shapes); k++) {
        lk_shape shape = shapes[k];
        size_t record = lk__shape_sample(shape), count = lk__shape_count(shape);
        if (fx_too_large(count))
            continue;
        float *values = random_floats(COUNT * record, 9), *want = malloc(count * sizeof *want + 1);
        uint32_t *ids = malloc(shape.n * sizeof *ids + 1);
        assert_true(want && ids);
        for (size_t i = 0; i < shape.n; i++) {
            ids[i] = (uint32_t)(COUNT - 1 - i * 7 % COUNT);
            memcpy(want + i * record, values + ids[i] * record, record * sizeof *want);
        }
        fx_check("gather", run_gather,
                 &(gathered){.desc = {.values = values, .record = record}, .shape = shape, .ids = ids}, want, count);
        free(ids);
        free(want);
        free(values);
    }
}

int main(int argc, char **argv)
{
    return fx_kernel_main(argc, argv,
                          TESTS(TEST(test_one_channel), TEST(test_three_channels), TEST(test_shapes), TEST(test_values),
                                TEST(test_shapes_of_values)),
                          FX_FP32 | FX_BF16);
}
