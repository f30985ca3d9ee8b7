/* test_loader.c - batches: the same for any number of workers, every sample once in an epoch, shard ranges
 * that make up the batch, and transforms against a simple reference. */
#include "fixture.h"

#include <lockstep/data.h>

#include "base/mem.h"
#include "base/rng.h"
#include "data/loader/loader.h"

enum { C = 3, H = 6, W = 5, SIZE = C * H * W, COUNT = 101 };

static const float mean[C] = {.25f, .5f, .75f}, deviation[C] = {.5f, .25f, 2};

static uint8_t pixel(size_t sample, size_t i)
{
    return (uint8_t)(1 + (sample * 37 + i * 11) % 255);
}

/* A computed data set; reading sample COUNT - 1 fails while `broken` is set, and every fifth sample while `holes` is.
 */
static bool broken, holes;

static lk_status get(const lk_dataset *data, size_t index, void *sample, void *label)
{
    uint8_t *pixels = sample;
    if ((broken && index == COUNT - 1) || (holes && index % 5 == 0))
        return lk__fail(LK_STATUS_FORMAT, "sample %zu is torn", index);
    for (size_t i = 0; i < SIZE; i++)
        pixels[i] = pixel(index, i);
    *(int32_t *)label = (int32_t)(index % 10);
    return LK_OK;
}

static const lk_dataset_ops ops = {.get = get};

static lk_dataset made(lk_split split)
{
    return (lk_dataset){
        .ops = &ops,
        .info = {.name = "made", .path = "", .count = COUNT, .channels = C, .height = H, .width = W, .classes = 10},
        .split = split,
        .info.mean = mean,
        .info.std = deviation,
        .augment = "crop=2,flip"};
}

static lk_loader *loader_of(const lk_dataset *data, size_t batch, int workers, const char *augment)
{
    lk_loader *loader = NULL;
    lk_loader_opts opts = {.batch = batch, .shuffle = true, .seed = 42, .workers = workers, .augment = augment};
    assert_ok(lk_loader_create(data, &opts, &loader));
    return loader;
}

/* The samples of an epoch in their order. */
typedef struct epoch {
    size_t count;
    float x[COUNT * SIZE];
    int32_t labels[COUNT];
    uint32_t ids[COUNT];
} epoch;

static void collect(lk_loader *loader, size_t number, size_t first, size_t batch, epoch *out)
{
    memset(out, 0, sizeof *out);
    assert_ok(lk_loader_start(loader, number, first));
    for (size_t b = first;; b++) {
        const lk_batch *got = NULL;
        assert_ok(lk_loader_next(loader, &got));
        if (got == NULL)
            break;
        size_t left = COUNT - b * batch;
        assert_int_equal(got->count, left < batch ? left : batch);
        memcpy(out->x + out->count * SIZE, got->x, got->count * SIZE * sizeof *got->x);
        memcpy(out->labels + out->count, got->labels, got->count * sizeof *got->labels);
        memcpy(out->ids + out->count, got->ids, got->count * sizeof *got->ids);
        out->count += got->count;
    }
    const lk_batch *after = NULL;
    assert_ok(lk_loader_next(loader, &after));
    assert_null(after);
}

static epoch one, two;

static void workers_leave_no_trace(void **state)
{
    lk_dataset data = made(LK_SPLIT_TRAIN);
    static const size_t batches[] = {1, 8, 100, 101, 1000};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        lk_loader *alone = loader_of(&data, batches[i], 0, "auto");
        collect(alone, 3, 0, batches[i], &one);
        assert_int_equal(one.count, COUNT);
        for (int workers = 1; workers <= 5; workers++) {
            lk_loader *loader = loader_of(&data, batches[i], workers, "auto");
            for (int again = 0; again < 2; again++) {
                collect(loader, 3, 0, batches[i], &two);
                assert_memory_equal(&one, &two, sizeof one);
            }
            lk_loader_destroy(loader);
        }
        lk_loader_destroy(alone);
    }
}

static void each_sample_once(void **state)
{
    lk_dataset data = made(LK_SPLIT_TRAIN);
    lk_loader *loader = loader_of(&data, 8, 2, "none");
    assert_int_equal(lk_loader_batches(loader), 13);
    for (size_t number = 0; number < 4; number++) {
        bool seen[COUNT] = {false};
        collect(loader, number, 0, 8, &one);
        for (size_t i = 0; i < COUNT; i++) {
            assert_in_range(one.ids[i], 0, COUNT - 1);
            assert_false(seen[one.ids[i]]);
            seen[one.ids[i]] = true;
            assert_int_equal(one.labels[i], one.ids[i] % 10);
        }
        collect(loader, number + 1, 0, 8, &two);
        assert_memory_not_equal(one.ids, two.ids, sizeof one.ids);
    }
    lk_loader_destroy(loader);
}

static void in_order(void **state)
{
    lk_dataset data = made(LK_SPLIT_TEST);
    lk_loader *loader = NULL;
    lk_loader_opts opts = {.batch = 10, .workers = 3, .augment = "auto"};
    assert_ok(lk_loader_create(&data, &opts, &loader));
    collect(loader, 0, 0, 10, &one);
    for (size_t s = 0; s < COUNT; s++) {
        assert_int_equal(one.ids[s], s);
        /* The layout is (H, W, C); a test split is not augmented. */
        for (size_t c = 0; c < C; c++)
            for (size_t i = 0; i < H * W; i++)
                assert_true(one.x[(s * H * W + i) * C + c] ==
                            ((float)pixel(s, c * H * W + i) / 255.0f - mean[c]) / deviation[c]);
    }
    lk_loader_destroy(loader);
}

static void starts_anywhere(void **state)
{
    lk_dataset data = made(LK_SPLIT_TRAIN);
    for (int workers = 0; workers <= 3; workers++) {
        lk_loader *loader = loader_of(&data, 8, workers, "auto");
        collect(loader, 7, 0, 8, &one);
        for (size_t first = 0; first <= 13; first += 6) {
            size_t skipped = first * 8 < COUNT ? first * 8 : COUNT;
            collect(loader, 7, first, 8, &two);
            assert_int_equal(two.count, COUNT - skipped);
            assert_memory_equal(one.x + skipped * SIZE, two.x, two.count * SIZE * sizeof *two.x);
            assert_memory_equal(one.ids + skipped, two.ids, two.count * sizeof *two.ids);
        }
        collect(loader, 7, 13, 8, &two);
        assert_int_equal(two.count, 0);
        lk_loader_destroy(loader);
    }
}

/* The batches before the last one are those of an epoch that keeps it. */
static void drops_a_smaller_last_batch(void **state)
{
    enum { BATCH = 8, BATCHES = COUNT / BATCH };
    lk_dataset data = made(LK_SPLIT_TRAIN);
    lk_loader *all = loader_of(&data, BATCH, 0, "auto"), *loader = NULL;
    collect(all, 7, 0, BATCH, &one);
    for (int workers = 0; workers <= 3; workers++) {
        lk_loader_opts opts = {.batch = BATCH, .drop_last = true, .shuffle = true, .seed = 42, .workers = workers};
        assert_ok(lk_loader_create(&data, &opts, &loader));
        assert_int_equal(lk_loader_batches(loader), BATCHES);
        for (size_t first = 0; first <= BATCHES; first += 4) {
            size_t skipped = first * BATCH;
            collect(loader, 7, first, BATCH, &two);
            assert_int_equal(two.count, BATCHES * BATCH - skipped);
            assert_memory_equal(one.x + skipped * SIZE, two.x, two.count * SIZE * sizeof *two.x);
            assert_memory_equal(one.ids + skipped, two.ids, two.count * sizeof *two.ids);
        }
        assert_fails(lk_loader_start(loader, 7, BATCHES + 1), LK_STATUS_USAGE, "12 batches");
        lk_loader_destroy(loader);
    }
    assert_ok(lk_loader_create(&data, &(lk_loader_opts){.batch = COUNT, .drop_last = true}, &loader));
    assert_int_equal(lk_loader_batches(loader), 1);
    lk_loader_destroy(loader);
    lk_loader_destroy(all);
}

/* Many epochs are abandoned in the middle, then one runs to its end. */
static void abandons(void **state)
{
    lk_dataset data = made(LK_SPLIT_TRAIN);
    lk_loader *alone = loader_of(&data, 4, 0, "auto"), *loader = loader_of(&data, 4, 3, "auto");
    for (size_t round = 0; round < 20; round++) {
        assert_ok(lk_loader_start(loader, round, round));
        const lk_batch *got = NULL;
        for (size_t i = 0; i < round % 4; i++)
            assert_ok(lk_loader_next(loader, &got));
    }
    collect(loader, 5, 0, 4, &one);
    collect(alone, 5, 0, 4, &two);
    assert_memory_equal(&one, &two, sizeof one);
    assert_ok(lk_loader_start(loader, 6, 0));
    lk_loader_destroy(loader);
    lk_loader_destroy(alone);
    lk_loader_destroy(NULL);
}

/* The reference of "crop=2,flip": pads with zeros, crops, and mirrors at random. */
static uint8_t augmented(uint32_t id, uint32_t number, size_t c, size_t y, size_t x)
{
    enum { PAD = 2 };
    lk_rng cropping = lk__rng(42, LK_RNG_PURPOSE_AUGMENT, 0, number, id),
           flipping = lk__rng(42, LK_RNG_PURPOSE_AUGMENT, 1, number, id);
    int top = (int)lk__rng_below(lk__rng_u32(&cropping, 0), 2 * PAD + 1);
    int left = (int)lk__rng_below(lk__rng_u32(&cropping, 1), 2 * PAD + 1);
    bool mirrored = lk__rng_u32(&flipping, 0) >= 0x80000000u;
    int from_x = (int)(mirrored ? W - 1 - x : x) + left - PAD, from_y = (int)y + top - PAD;
    if (from_x < 0 || from_x >= W || from_y < 0 || from_y >= H)
        return 0;
    return pixel(id, (c * H + (size_t)from_y) * W + (size_t)from_x);
}

static void augments(void **state)
{
    lk_dataset data = made(LK_SPLIT_TRAIN);
    lk_loader *loader = loader_of(&data, 16, 2, NULL);
    for (uint32_t number = 0; number < 3; number++) {
        collect(loader, number, 0, 16, &one);
        for (size_t s = 0; s < COUNT; s++)
            for (size_t i = 0; i < SIZE; i++) {
                size_t c = i % C, x = i / C % W, y = i / C / W;
                uint8_t byte = augmented(one.ids[s], number, c, y, x);
                assert_true(one.x[s * SIZE + i] == ((float)byte / 255.0f - mean[c]) / deviation[c]);
            }
    }
    lk_loader_destroy(loader);
}

/* With padding wider than the image some crops have zeros only. */
static void wide_crop(void **state)
{
    lk_transforms list = {0};
    lk_image image = {0}, scratch = {0};
    assert_ok(lk__transforms_parse("crop=9", &list));
    int empty = 0;
    for (uint32_t id = 0; id < 200; id++) {
        int lit = 0;
        assert_ok(lk__image_resize(&image, C, H, W));
        memset(image.pixels, 1, SIZE);
        assert_ok(lk__transforms_apply(&list, (lk_transforms_address){.seed = 1, .sample = id}, &image, &scratch));
        for (size_t i = 0; i < SIZE; i++)
            lit += image.pixels[i];
        lk_rng rng = lk__rng(1, LK_RNG_PURPOSE_AUGMENT, 0, 0, id);
        int dy = abs((int)lk__rng_below(lk__rng_u32(&rng, 0), 19) - 9);
        int dx = abs((int)lk__rng_below(lk__rng_u32(&rng, 1), 19) - 9);
        assert_int_equal(lit, C * (dy < H ? H - dy : 0) * (dx < W ? W - dx : 0));
        empty += lit == 0;
    }
    assert_in_range(empty, 1, 199);
    lk__image_fini(&image);
    lk__image_fini(&scratch);
}

/* Every permutation of four occurs about equally often: each of the 24 counts is within six standard
 * deviations (10 each) of 100. */
static void fair_shuffle(void **state)
{
    int seen[256] = {0}, kinds = 0;
    for (uint32_t number = 0; number < 2400; number++) {
        uint32_t order[4];
        lk__sampler_permute(99, number, 4, order);
        seen[order[0] | order[1] << 2 | order[2] << 4 | order[3] << 6]++;
    }
    for (int i = 0; i < 256; i++) {
        if (seen[i] == 0)
            continue;
        kinds++;
        assert_in_range(seen[i], 40, 160);
    }
    assert_int_equal(kinds, 24);
}

static void errors_reach_the_caller(void **state)
{
    lk_dataset data = made(LK_SPLIT_TRAIN);
    for (int workers = 0; workers <= 3; workers++) {
        lk_loader *loader = NULL;
        lk_loader_opts opts = {.batch = 10, .workers = workers, .augment = "none"};
        assert_ok(lk_loader_create(&data, &opts, &loader));
        broken = true;
        assert_ok(lk_loader_start(loader, 0, 0));
        const lk_batch *got = NULL, *kept = NULL;
        for (int b = 0; b < 10; b++)
            assert_ok(lk_loader_next(loader, &got));
        kept = got;
        for (int again = 0; again < 2; again++) {
            assert_fails(lk_loader_next(loader, &got), LK_STATUS_FORMAT, "sample 100 is torn");
            assert_ptr_equal(got, kept);
        }
        /* lk_loader_start waits for the workers. This start is at the epoch's end, so no worker runs and
         * `broken` may change. */
        assert_ok(lk_loader_start(loader, 0, lk_loader_batches(loader)));
        broken = false;
        collect(loader, 0, 0, 10, &one);
        lk_loader_destroy(loader);
    }
}

/* Shards of a batch in the tests of shard ranges. */
enum { SHARDS = 16 };

static lk_loader *share_loader(const lk_dataset *data, size_t batch, int workers, lk_shard_range share)
{
    lk_loader *loader = NULL;
    lk_loader_opts opts = {.batch = batch, .shuffle = true, .seed = 42, .workers = workers, .share = share};
    assert_ok(lk_loader_create(data, &opts, &loader));
    assert_ok(lk_loader_start(loader, 3, 0));
    return loader;
}

static void same_part(const lk_batch *whole, const lk_batch *part, size_t begin, bool labels_only)
{
    assert_int_equal(part->total, whole->count);
    assert_int_equal(part->sample_floats, SIZE);
    assert_true(begin + part->count <= whole->count);
    assert_memory_equal(part->labels, whole->labels + begin, part->count * sizeof *part->labels);
    assert_memory_equal(part->ids, whole->ids + begin, part->count * sizeof *part->ids);
    if (labels_only)
        assert_null(part->x);
    else
        assert_memory_equal(part->x, whole->x + begin * SIZE, part->count * SIZE * sizeof *part->x);
}

/* The parts of `world` ranks in their order make up the batch. The whole batch has total 0. */
static void check_shares(const lk_dataset *data, size_t batch, int world, int workers, bool labels_only)
{
    lk_loader *whole = share_loader(data, batch, 0, (lk_shard_range){0}), *parts[SHARDS] = {NULL};
    lk_shard_range shares[SHARDS];
    for (int w = 0; w < world; w++) {
        shares[w] = (lk_shard_range){SHARDS, w * SHARDS / world, (w + 1) * SHARDS / world, labels_only};
        parts[w] = share_loader(data, batch, workers, shares[w]);
        assert_int_equal(lk_loader_batches(parts[w]), lk_loader_batches(whole));
    }
    for (;;) {
        const lk_batch *all = NULL, *part = NULL;
        assert_ok(lk_loader_next(whole, &all));
        size_t begin = 0;
        for (int w = 0; w < world; w++) {
            assert_ok(lk_loader_next(parts[w], &part));
            assert_true((part == NULL) == (all == NULL));
            if (all == NULL)
                continue;
            assert_int_equal(lk_shard_range_begin(shares[w], all->count), begin);
            assert_int_equal(lk_shard_range_count(shares[w], all->count), part->count);
            same_part(all, part, begin, labels_only);
            begin += part->count;
        }
        if (all == NULL)
            break;
        assert_int_equal(all->total, 0);
        assert_int_equal(begin, all->count);
    }
    lk_loader_destroy(whole);
    for (int w = 0; w < world; w++)
        lk_loader_destroy(parts[w]);
}

/* The last batches of 101 samples have 21, 5 (fewer than shards) and 1 samples. */
static void shares_make_up_the_batch(void **state)
{
    lk_dataset data = made(LK_SPLIT_TRAIN);
    static const size_t batches[] = {40, 24, 20, 7, 1000};
    static const int worlds[] = {1, 2, 3, 5, 16};
    for (size_t b = 0; b < sizeof batches / sizeof *batches; b++)
        for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++)
            for (int workers = 0; workers <= 2; workers += 2) {
                check_shares(&data, batches[b], worlds[w], workers, false);
                check_shares(&data, batches[b], worlds[w], workers, true);
            }
}

/* The share changes between batches, also where later batches were made ahead; `source` stays without samples. */
static void check_new_shares(const lk_dataset *data, int workers, const void *source)
{
    static const int ranges[][2] = {{3, 5}, {3, 5}, {0, 16}, {15, 16}, {2, 13}, {4, 5}};
    lk_loader *whole = share_loader(data, 24, 0, (lk_shard_range){0});
    lk_loader *part = share_loader(data, 24, workers, (lk_shard_range){SHARDS, 3, 5, false});
    lk__loader_names_only(part, source);
    assert_ok(lk_loader_start(part, 0, 0));
    assert_ok(lk_loader_start(whole, 0, 0));
    for (size_t b = 0; b < lk_loader_batches(whole); b++) {
        const lk_batch *all = NULL, *got = NULL;
        lk_shard_range share = {SHARDS, ranges[b % COUNT_OF(ranges)][0], ranges[b % COUNT_OF(ranges)][1], false};
        assert_ok(lk__loader_set_share(part, share));
        assert_ok(lk_loader_next(whole, &all));
        assert_ok(lk_loader_next(part, &got));
        assert_int_equal(got->count, lk_shard_range_count(share, all->count));
        assert_ptr_equal(got->source, source);
        same_part(all, got, lk_shard_range_begin(share, all->count), source != NULL);
    }
    const lk_batch *end = NULL;
    assert_ok(lk__loader_set_share(part, (lk_shard_range){SHARDS, 0, 1, false}));
    assert_ok(lk_loader_next(part, &end));
    assert_null(end);
    assert_fails(lk__loader_set_share(part, (lk_shard_range){SHARDS, 1, 1, false}), LK_STATUS_USAGE, "one shard");
    lk_loader_destroy(whole);
    lk_loader_destroy(part);
}

static void shares_change(void **state)
{
    lk_dataset data = made(LK_SPLIT_TRAIN);
    for (int workers = 0; workers <= 4; workers += 2) {
        check_new_shares(&data, workers, NULL);
        check_new_shares(&data, workers, &data);
    }
    lk_loader *loader = loader_of(&data, 10, 1, "none"); /* before it is started */
    assert_ok(lk__loader_set_share(loader, (lk_shard_range){SHARDS, 0, 1, false}));
    lk_loader_destroy(loader);
}

/* The loader does not read pixels of a data set that can return labels alone. */
static lk_status never(const lk_dataset *data, size_t index, void *sample, void *label)
{
    return lk__fail(LK_STATUS_IO, "%s was asked for the pixels of %zu", data->info.name, index);
}

static int32_t label_of(const lk_dataset *data, size_t index)
{
    return (int32_t)(index % 10);
}

static void labels_alone(void **state)
{
    static const lk_dataset_ops label_ops = {.get = never, .label = label_of};
    lk_dataset data = made(LK_SPLIT_TRAIN);
    data.ops = &label_ops;
    lk_loader *loader = share_loader(&data, 40, 2, (lk_shard_range){SHARDS, 3, 9, true});
    const lk_batch *got = NULL;
    for (size_t b = 0; b < lk_loader_batches(loader); b++) {
        assert_ok(lk_loader_next(loader, &got));
        assert_null(got->x);
        for (size_t i = 0; i < got->count; i++)
            assert_int_equal(got->labels[i], got->ids[i] % 10);
    }
    lk_loader_destroy(loader);
}

/* lk__loader_names_only applies from the next start on; ids and labels are those of batches with samples. */
static void names_only(void **state)
{
    static const lk_dataset_ops label_ops = {.get = get, .label = label_of}, names = {.get = never, .label = label_of};
    for (int workers = 0; workers <= 3; workers += 3) {
        lk_dataset data = made(LK_SPLIT_TRAIN);
        data.ops = &label_ops;
        lk_loader *loader = loader_of(&data, 40, workers, "auto");
        const lk_batch *got = NULL;
        collect(loader, 2, 0, 40, &one);
        assert_ok(lk_loader_start(loader, 2, 0));
        lk__loader_names_only(loader, &one);
        assert_ptr_equal(lk__loader_source(loader).named, &one);
        for (size_t b = 0; b < lk_loader_batches(loader); b++) {
            assert_ok(lk_loader_next(loader, &got));
            assert_true(got->x != NULL && got->source == NULL);
        }
        data.ops = &names;
        assert_ok(lk_loader_start(loader, 2, 0));
        for (size_t seen = 0, b = 0; b < lk_loader_batches(loader); b++, seen += got->count) {
            assert_ok(lk_loader_next(loader, &got));
            assert_true(got->x == NULL && got->source == &one);
            assert_int_equal(got->epoch, 2);
            assert_int_equal(got->sample_floats, SIZE);
            assert_memory_equal(got->labels, one.labels + seen, got->count * sizeof *got->labels);
            assert_memory_equal(got->ids, one.ids + seen, got->count * sizeof *got->ids);
        }
        lk_loader_destroy(loader);
    }
}

/* Labels alone are equal to labels that are read with pixels. */
static void check_labels(const char *name)
{
    lk_dataset *data = NULL;
    assert_ok(lk_dataset_open(name, NULL, LK_SPLIT_TEST, &data));
    assert_non_null(data->ops->label);
    size_t count = data->info.count < 200 ? data->info.count : 200;
    for (size_t i = 0; i < count; i++) {
        static uint8_t pixels[32 * 32 * 3];
        int32_t label = -1;
        assert_ok(lk_dataset_get(data, i, pixels, &label));
        assert_int_equal(data->ops->label(data, i), label);
    }
    lk_dataset_destroy(data);
}

static void labels_of_formats(void **state)
{
    static const uint8_t images[16 + 3] = {0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 1, 10, 20, 30};
    static const uint8_t labels[8 + 3] = {0, 0, 8, 1, 0, 0, 0, 3, 7, 0, 9};
    static const uint8_t records[2 * 3073] = {[0] = 5, [3073] = 8};
    folder idx = folder_create(), cifar = folder_create();
    put(&idx, "t10k-images-idx3-ubyte", images, sizeof images);
    put(&idx, "t10k-labels-idx1-ubyte", labels, sizeof labels);
    put(&cifar, "test_batch.bin", records, sizeof records);
    check_labels(idx.path);
    check_labels(cifar.path);
    check_labels("digits");
    folder_destroy(&idx);
    folder_destroy(&cifar);
}

static void refuse(lk_loader_opts opts, const char *part)
{
    lk_dataset data = made(LK_SPLIT_TRAIN);
    lk_loader *loader = NULL;
    assert_int_equal(lk_loader_create(&data, &opts, &loader), LK_STATUS_USAGE);
    assert_null(loader);
    assert_detail(part);
}

static void bad_options(void **state)
{
    refuse((lk_loader_opts){.batch = 0}, "`batch` is 0; a batch has at least one");
    refuse((lk_loader_opts){.batch = COUNT + 1, .drop_last = true}, "has no batch: 101 samples");
    refuse((lk_loader_opts){.batch = 1, .workers = -1}, "`workers` -1 is not in 0 to 256");
    refuse((lk_loader_opts){.batch = 1, .workers = 100000}, "`workers` 100000 ");
    refuse((lk_loader_opts){.batch = 1, .augment = "crpo=4"}, "did you mean 'crop'");
    refuse((lk_loader_opts){.batch = 1, .augment = "crop"}, "`augment` 'crop': write crop=N");
    refuse((lk_loader_opts){.batch = 1, .augment = "crop=0"}, "from 1 to 1024");
    refuse((lk_loader_opts){.batch = 1, .augment = "crop=4x"}, "from 1 to 1024");
    refuse((lk_loader_opts){.batch = 1, .augment = "flip=2"}, "flip[=P] with P from 0 to 1");
    refuse((lk_loader_opts){.batch = 1, .augment = ""}, "no augmentation ''");
    refuse((lk_loader_opts){.batch = 1, .augment = "flip,"}, "no augmentation ''");
    refuse((lk_loader_opts){.batch = 1, .augment = "flip,crop=2,flip"},
           "`augment` 'flip,crop=2,flip': flip is there twice");
    refuse((lk_loader_opts){.batch = 1, .share = {.shards = -1}}, "`share`: a batch cannot be cut into -1 shards");
    refuse((lk_loader_opts){.batch = 1, .share = {.last = 1}}, "0 shards");
    refuse((lk_loader_opts){.batch = 1, .share = {.labels_only = true}}, "0 shards");
    refuse((lk_loader_opts){.batch = 1, .share = {4, -1, 2, false}}, "`share`: shards -1 to 2");
    refuse((lk_loader_opts){.batch = 1, .share = {4, 2, 2, false}}, "at least one shard");
    refuse((lk_loader_opts){.batch = 1, .share = {4, 3, 2, false}}, "shards 3 to 2");
    refuse((lk_loader_opts){.batch = 1, .share = {4, 0, 5, false}}, "ends by 4");
    lk_dataset data = made(LK_SPLIT_TRAIN);
    lk_loader *loader = loader_of(&data, 10, 1, "none");
    const lk_batch *got = NULL;
    assert_int_equal(lk_loader_next(loader, &got), LK_STATUS_USAGE);
    assert_fails(lk_loader_start(loader, 0, 12), LK_STATUS_USAGE, "11 batches");
    assert_int_equal(lk_loader_start(loader, (size_t)1 << 32, 0), LK_STATUS_USAGE);
    lk_loader_destroy(loader);
}

/* Several workers fail in one batch: the first sample of the batch that fails is reported. */
static void reports_the_first_failure(void **state)
{
    static const int workers[] = {0, 1, 2, 5, 9};
    const lk_dataset data = made(LK_SPLIT_TRAIN);
    char expected[256] = "";
    holes = true;
    for (size_t i = 0; i < 30; i++) {
        lk_loader *loader = loader_of(&data, COUNT, workers[i % 5], "none");
        const lk_batch *got;
        assert_ok(lk_loader_start(loader, 0, 0));
        assert_int_equal(lk_loader_next(loader, &got), LK_STATUS_FORMAT);
        if (i == 0)
            snprintf(expected, sizeof expected, "%s", lk_error_detail());
        assert_string_equal(lk_error_detail(), expected);
        lk_loader_destroy(loader);
    }
    holes = false;
}

static lk_status load_nothing(const lk_dataset *data, size_t index, const lk_image_want *want, lk_image *image,
                              int32_t *label)
{
    return lk__fail(LK_STATUS_IO, "no image");
}

/* Counts the samples that threads have made, but no labels alone. Only image files get more than one worker. */
static void tells_its_work(void **state)
{
    const lk_dataset data = made(LK_SPLIT_TRAIN);
    lk_dataset files = data;
    const lk_dataset_ops decoded = {.load = load_nothing};
    for (int workers = 0; workers < 4; workers++) {
        lk_loader *loader = loader_of(&data, 10, workers, "none");
        assert_int_equal(lk__loader_work(loader).samples, 0);
        collect(loader, 0, 0, 10, &one);
        lk_loader_work work = lk__loader_work(loader);
        assert_int_equal(work.samples, COUNT);
        assert_true(work.seconds > 0);
        assert_int_equal(work.threads, workers > 0 ? workers : 1);
        lk_loader_destroy(loader);
    }
    files.ops = &decoded;
    assert_int_equal(lk__loader_auto_workers(&data, 8), 1);
    assert_int_equal(lk__loader_auto_workers(&files, 0), 1);
    assert_int_equal(lk__loader_auto_workers(&files, 8), 8);
    assert_int_equal(lk__loader_auto_workers(&files, 64), 16);
}

TEST_MAIN(NULL, NULL, TEST(workers_leave_no_trace), TEST(each_sample_once), TEST(in_order), TEST(starts_anywhere),
          TEST(drops_a_smaller_last_batch), TEST(abandons), TEST(augments), TEST(wide_crop), TEST(fair_shuffle),
          TEST(errors_reach_the_caller), TEST(reports_the_first_failure), TEST(tells_its_work),
          TEST(shares_make_up_the_batch), TEST(shares_change), TEST(labels_alone), TEST(names_only),
          TEST(labels_of_formats), TEST(bad_options))
