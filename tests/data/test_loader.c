/* test_loader.c - batches: the same for any number of workers, every sample once in an epoch, and transforms against a
 * simple reference. */
#include "base/mem.h"
#include "base/rng.h"
#include "data/loader/loader.h"
#include "made.h"

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
    refuse((lk_loader_opts){.batch = 1, .augment = ""}, "no transform ''");
    refuse((lk_loader_opts){.batch = 1, .augment = "flip,"}, "no transform ''");
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
          TEST(errors_reach_the_caller), TEST(reports_the_first_failure), TEST(tells_its_work), TEST(bad_options))
