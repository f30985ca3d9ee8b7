/* test_gather.c - samples gathered from a data set of bytes are the loader's, bit for
 * bit, whatever their transforms. */
#include "tensor/everywhere.h"

#include "data/loader/loader.h"

enum { COUNT = 70, BATCH = 32, EPOCHS = 3, SEED = 42 };

static const float mean[] = {.25f, .5f, .75f}, deviation[] = {.5f, .25f, 2};

static void require(lk_status status)
{
    if (status != LK_OK)
        fail_msg("%s: %s", lk_status_string(status), lk_error_detail());
}

static lk_status get(const lk_dataset *data, size_t index, uint8_t *pixels, int32_t *label)
{
    size_t count = data->info.channels * data->info.height * data->info.width;
    for (size_t i = 0; i < count; i++)
        pixels[i] = (uint8_t)(index * 37 + i * i * 11 + i / 7);
    *label = 0;
    return LK_OK;
}

static const lk_dataset_ops ops = {.get = get};

static lk_dataset made(lk_shape shape)
{
    return (lk_dataset){
        .ops = &ops,
        .info = {.name = "made", .count = COUNT, .channels = shape.c, .height = shape.h, .width = shape.w},
        .mean = mean,
        .std = deviation};
}

/* A batch of a loader, and what it is gathered by. */
typedef struct gathered {
    lk_gather_desc desc;
    uint32_t epoch;
    lk_shape shape;
    const uint32_t *ids;
} gathered;

static void run_gather(lk_device *dev, const void *arg, float *out)
{
    const gathered *g = arg;
    lk_tensor x = tensor_of(out, g->shape);
    dev->kernels->gather(dev, &g->desc, g->ids, &x);
}

static uint8_t *all_pixels(const lk_dataset *data, size_t record)
{
    uint8_t *pixels = malloc(COUNT * record);
    int32_t label;
    assert_non_null(pixels);
    for (size_t i = 0; i < COUNT; i++)
        require(lk_dataset_get(data, i, pixels + i * record, &label));
    return pixels;
}

/* Returns how many values of the epoch are not those of another one. */
static size_t check_epoch(lk_loader *loader, uint32_t epoch, gathered *g)
{
    const lk_batch *batch;
    size_t changed = 0;
    require(lk_loader_start(loader, epoch, 0));
    for (;;) {
        require(lk_loader_next(loader, &batch));
        if (!batch)
            return changed;
        assert_int_equal(batch->epoch, epoch);
        size_t count = batch->count * batch->sample_floats;
        g->shape.n = batch->count;
        g->ids = batch->ids;
        g->epoch = epoch;
        float *x = run_everywhere(run_gather, g, count);
        assert_same(x, batch->x, count);
        g->epoch = epoch + 1;
        lk_device *dev = open_device(NULL, 1);
        run_gather(dev, g, x);
        lk__device_close(dev);
        for (size_t i = 0; i < count; i++)
            changed += x[i] != batch->x[i];
        free(x);
    }
}

/* desc has crop and flip as in augment. */
static void check(lk_shape shape, const char *augment, lk_gather_desc desc)
{
    lk_dataset data = made(shape);
    lk_loader *loader;
    gathered g = {.desc = desc, .shape = shape};
    require(lk_loader_create(
        &data, &(lk_loader_opts){.batch = BATCH, .shuffle = true, .seed = SEED, .augment = augment}, &loader));
    g.desc.record = shape.c * shape.h * shape.w;
    uint8_t *pixels = all_pixels(&data, g.desc.record);
    g.desc.pixels = pixels;
    g.desc.table = lk__loader_source(loader).normalise->table[0];
    g.desc.seed = SEED;
    g.desc.epoch = &g.epoch;
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
    /* Windows that lie wholly outside. */
    check(shape, "crop=40,flip=.9", (lk_gather_desc){.crop = 40, .flip = .9, .flip_layer = 1});
}

static void test_one_channel(void **state)
{
    (void)state;
    check_all((lk_shape){.c = 1, .h = 28, .w = 28});
}

static void test_three_channels(void **state)
{
    (void)state;
    check_all((lk_shape){.c = 3, .h = 14, .w = 11});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_channel),
        cmocka_unit_test(test_three_channels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
