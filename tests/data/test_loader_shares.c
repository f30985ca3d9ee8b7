/* test_loader_shares.c - loaders of a part of each batch: shard ranges that make up the batch, labels alone, and names
 * of samples that are elsewhere. */
#include "data/loader/loader.h"
#include "fixture.h"
#include "made.h"

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

static epoch one;

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

TEST_MAIN(NULL, NULL, TEST(shares_make_up_the_batch), TEST(shares_change), TEST(labels_alone), TEST(names_only),
          TEST(labels_of_formats))
