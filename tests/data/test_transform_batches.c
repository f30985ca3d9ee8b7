/* test_transform_batches.c - batches of every transform: the same for any number of workers and for shard
 * ranges; each sample is equal to its transforms applied to it alone. */
#include "fixture.h"

#include "data/transform/transform.h"

enum { COUNT = 45, BATCH = 16, SHARDS = 4, MOST = 3 * 24 * 24 };

static const float mean[] = {.25f, .5f, .75f}, deviation[] = {.5f, .25f, 2};

static void fill(size_t index, size_t count, uint8_t *pixels)
{
    for (size_t i = 0; i < count; i++)
        pixels[i] = (uint8_t)(index * 37 + i * i * 11 + i / 7);
}

static lk_status get(const lk_dataset *data, size_t index, void *sample, void *label)
{
    uint8_t *pixels = sample;
    fill(index, data->info.channels * data->info.height * data->info.width, pixels);
    *(int32_t *)label = (int32_t)(index % 10);
    return LK_OK;
}

/* Every image has another size. */
static lk_status load(const lk_dataset *data, size_t index, const lk_image_want *want, lk_image *image, int32_t *label)
{
    LK_TRY(lk__image_resize(image, data->info.channels, 15 + index * 7 % 22, 19 + index * 5 % 13));
    fill(index, image->channels * image->height * image->width, image->pixels);
    *(int32_t *)label = (int32_t)(index % 10);
    return LK_OK;
}

static const lk_dataset_ops fixed_ops = {.get = get}, any_ops = {.load = load};

static lk_dataset made(size_t channels, bool any)
{
    return (lk_dataset){.ops = any ? &any_ops : &fixed_ops,
                        .info = {.name = "made",
                                 .count = COUNT,
                                 .channels = channels,
                                 .height = any ? 0 : 14,
                                 .width = any ? 0 : 11,
                                 .classes = 10},
                        .info.mean = mean,
                        .info.std = deviation};
}

static lk_loader *open_loader(const lk_dataset *data, const char *augment, int workers, lk_shard_range share)
{
    lk_loader *loader = NULL;
    lk_loader_opts opts = {
        .batch = BATCH, .shuffle = true, .seed = 42, .workers = workers, .augment = augment, .share = share};
    assert_ok(lk_loader_create(data, &opts, &loader));
    assert_ok(lk_loader_start(loader, 2, 0));
    return loader;
}

/* An epoch's samples, by id. */
typedef struct epoch {
    size_t sample;
    bool seen[COUNT];
    float x[COUNT][MOST];
} epoch;

static void collect(lk_loader *loader, epoch *out)
{
    const lk_batch *batch = NULL;
    for (;;) {
        assert_ok(lk_loader_next(loader, &batch));
        if (batch == NULL)
            break;
        assert_true(batch->sample_floats <= MOST);
        out->sample = batch->sample_floats;
        for (size_t i = 0; i < batch->count; i++) {
            assert_false(out->seen[batch->ids[i]]);
            out->seen[batch->ids[i]] = true;
            memcpy(out->x[batch->ids[i]], batch->x + i * batch->sample_floats, batch->sample_floats * sizeof *batch->x);
        }
    }
    lk_loader_destroy(loader);
}

/* Applies a list to each sample, in fresh memory. */
static void apply_alone(const lk_dataset *data, const char *augment, epoch *out)
{
    lk_transforms list = {0};
    lk_sample_shape shape = {0};
    lk_normalise normalise;
    assert_ok(lk__transforms_choose(data, augment, &list));
    assert_ok(lk_augmented_shape(data, augment, &shape));
    lk__normalise_init(&normalise, mean, deviation, data->info.channels);
    out->sample = shape.channels * shape.height * shape.width;
    for (size_t id = COUNT; id-- > 0;) {
        lk_image image = {0}, scratch = {0};
        int32_t label;
        lk_transforms_address address = {.seed = 42, .epoch = 2, .sample = (uint32_t)id};
        assert_ok(lk__dataset_load(data, id, NULL, &image, &label));
        assert_ok(lk__transforms_apply(&list, address, &image, &scratch));
        assert_int_equal(image.channels, shape.channels);
        assert_int_equal(image.height, shape.height);
        assert_int_equal(image.width, shape.width);
        lk__normalise_apply(&normalise, &image, out->x[id]);
        out->seen[id] = true;
        lk__image_fini(&image);
        lk__image_fini(&scratch);
    }
}

static epoch one, two;

static void check(const lk_dataset *data, const char *augment)
{
    memset(&one, 0, sizeof one);
    apply_alone(data, augment, &one);
    static const int workers[] = {0, 1, 3};
    for (size_t w = 0; w < sizeof workers / sizeof *workers; w++) {
        memset(&two, 0, sizeof two);
        collect(open_loader(data, augment, workers[w], (lk_shard_range){0}), &two);
        assert_memory_equal(&one, &two, sizeof one);
        memset(&two, 0, sizeof two);
        collect(open_loader(data, augment, workers[w], (lk_shard_range){SHARDS, 0, 1, false}), &two);
        collect(open_loader(data, augment, workers[w], (lk_shard_range){SHARDS, 1, 4, false}), &two);
        assert_memory_equal(&one, &two, sizeof one);
    }
}

#define ALL "resized_crop=18,flip,vflip=.3,jitter=.4/.4/.4/.1,affine=15/.1/.9/1.1/10,grayscale=.2,crop=2,center_crop=17"

static void check_lists(const char *const *lists, size_t count, bool any)
{
    for (size_t channels = 1; channels <= 3; channels += 2)
        for (size_t i = 0; i < count; i++) {
            lk_dataset data = made(channels, any);
            check(&data, lists[i]);
        }
}

static void fixed_sizes(void **state)
{
    static const char *const lists[] = {"none",
                                        "crop=2",
                                        "flip",
                                        "vflip=.3",
                                        "resize=8",
                                        "resize=20/9",
                                        "center_crop=12",
                                        "resized_crop=9",
                                        "grayscale=.5",
                                        "jitter=.4/.4/.4/.1",
                                        "affine=30/.2/.7/1.4/20",
                                        "affine=0/.3",
                                        ALL};
    check_lists(lists, sizeof lists / sizeof *lists, false);
}

static void any_sizes(void **state)
{
    static const char *const lists[] = {"resize=20/9",
                                        "resize=16,center_crop=14",
                                        "center_crop=21",
                                        "resized_crop=13/.3",
                                        "flip,crop=3,resize=12/8",
                                        "jitter=.2/.3/.4/.5,affine=20,center_crop=10",
                                        ALL};
    check_lists(lists, sizeof lists / sizeof *lists, true);
}

static void several_sizes(void **state)
{
    lk_dataset data = made(3, true);
    lk_loader *loader = NULL;
    lk_loader_opts opts = {.batch = 4, .augment = "flip"};
    assert_int_equal(lk_loader_create(&data, &opts, &loader), LK_STATUS_USAGE);
    assert_null(loader);
    assert_detail("sizes of their own");
}

/* Epochs and samples have different random numbers. */
static void draws_differ(void **state)
{
    lk_dataset data = made(3, false);
    lk_transforms list = {0};
    assert_ok(lk__transforms_parse("jitter=.4/.4/.4/.1", &list));
    uint8_t seen[3][3 * 14 * 11];
    static const lk_transforms_address addresses[] = {{1, 0, 5}, {1, 1, 5}, {2, 0, 5}};
    lk_image image = {0}, scratch = {0};
    for (size_t i = 0; i < 3; i++) {
        int32_t label;
        assert_ok(lk__dataset_load(&data, 5, NULL, &image, &label));
        assert_ok(lk__transforms_apply(&list, addresses[i], &image, &scratch));
        memcpy(seen[i], image.pixels, sizeof seen[i]);
        for (size_t j = 0; j < i; j++)
            assert_memory_not_equal(seen[i], seen[j], sizeof seen[i]);
    }
    lk__image_fini(&image);
    lk__image_fini(&scratch);
}

/* Samples allocate no memory after the two images have grown. */
static void memory_stays(void **state)
{
    lk_dataset data = made(3, true);
    lk_transforms list = {0};
    assert_ok(lk__transforms_parse(ALL, &list));
    lk_image image = {0}, scratch = {0};
    size_t room = 0;
    for (uint32_t epoch_number = 0; epoch_number < 6; epoch_number++) {
        for (uint32_t id = 0; id < COUNT; id++) {
            int32_t label;
            assert_ok(lk__dataset_load(&data, id, NULL, &image, &label));
            assert_ok(lk__transforms_apply(&list, (lk_transforms_address){1, epoch_number, id}, &image, &scratch));
        }
        if (epoch_number == 3)
            room = image.room + scratch.room;
    }
    assert_int_equal(image.room + scratch.room, room);
    lk__image_fini(&image);
    lk__image_fini(&scratch);
}

TEST_MAIN(NULL, NULL, TEST(fixed_sizes), TEST(any_sizes), TEST(several_sizes), TEST(draws_differ), TEST(memory_stays))
