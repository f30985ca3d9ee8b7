/* test_loader.c - batches: the same for any number of workers, every sample once
 * an epoch, transforms against a direct statement of what they do. */
#include "fixture.h"

#include <lockstep/data.h>

#include "base/mem.h"
#include "base/rng.h"
#include "data/dataset.h"

enum { C = 3, H = 6, W = 5, SIZE = C * H * W, COUNT = 101 };

static const float mean[C] = {.25f, .5f, .75f}, deviation[C] = {.5f, .25f, 2};

static uint8_t pixel(size_t sample, size_t i)
{
    return (uint8_t)(1 + (sample * 37 + i * 11) % 255);
}

/* A data set made of arithmetic; sample COUNT - 1 cannot be read when told so. */
static bool broken;

static lk_status get(const lk_dataset *data, size_t index, uint8_t *pixels, int32_t *label)
{
    (void)data;
    if (broken && index == COUNT - 1)
        return lk__fail(LK_STATUS_FORMAT, "sample %zu is torn", index);
    for (size_t i = 0; i < SIZE; i++)
        pixels[i] = pixel(index, i);
    *label = (int32_t)(index % 10);
    return LK_OK;
}

static const lk_dataset_ops ops = {.get = get};

static lk_dataset made(lk_split split)
{
    return (lk_dataset){
        .ops = &ops,
        .info = {.name = "made", .path = "", .count = COUNT, .channels = C, .height = H, .width = W, .classes = 10},
        .split = split,
        .mean = mean,
        .std = deviation,
        .augment = "crop=2,flip"};
}

static lk_loader *loader_of(const lk_dataset *data, size_t batch, int workers, const char *augment)
{
    lk_loader *loader = NULL;
    lk_loader_opts opts = {.batch = batch, .shuffle = true, .seed = 42, .workers = workers, .augment = augment};
    TRY(lk_loader_create(data, &opts, &loader));
    return loader;
}

/* An epoch's content, from first_batch on, one after the other. */
typedef struct epoch {
    size_t count;
    float x[COUNT * SIZE];
    int32_t labels[COUNT];
    uint32_t ids[COUNT];
} epoch;

static void collect(lk_loader *loader, size_t number, size_t first, size_t batch, epoch *out)
{
    memset(out, 0, sizeof *out);
    TRY(lk_loader_start(loader, number, first));
    for (size_t b = first;; b++) {
        const lk_batch *got = NULL;
        TRY(lk_loader_next(loader, &got));
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
    TRY(lk_loader_next(loader, &after));
    assert_null(after);
}

static epoch one, two;

static void workers_leave_no_trace(void **state)
{
    (void)state;
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
    (void)state;
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
    (void)state;
    lk_dataset data = made(LK_SPLIT_TEST);
    lk_loader *loader = NULL;
    lk_loader_opts opts = {.batch = 10, .workers = 3, .augment = "auto"};
    TRY(lk_loader_create(&data, &opts, &loader));
    collect(loader, 0, 0, 10, &one);
    for (size_t s = 0; s < COUNT; s++) {
        assert_int_equal(one.ids[s], s);
        /* (H, W, C), and no augmentation of a test split. */
        for (size_t c = 0; c < C; c++)
            for (size_t i = 0; i < H * W; i++)
                assert_true(one.x[(s * H * W + i) * C + c] ==
                            ((float)pixel(s, c * H * W + i) / 255.0f - mean[c]) / deviation[c]);
    }
    lk_loader_destroy(loader);
}

static void starts_anywhere(void **state)
{
    (void)state;
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

/* An epoch is left in the middle, again and again, then one runs to its end. */
static void abandons(void **state)
{
    (void)state;
    lk_dataset data = made(LK_SPLIT_TRAIN);
    lk_loader *alone = loader_of(&data, 4, 0, "auto"), *loader = loader_of(&data, 4, 3, "auto");
    for (size_t round = 0; round < 20; round++) {
        TRY(lk_loader_start(loader, round, round));
        const lk_batch *got = NULL;
        for (size_t i = 0; i < round % 4; i++)
            TRY(lk_loader_next(loader, &got));
    }
    collect(loader, 5, 0, 4, &one);
    collect(alone, 5, 0, 4, &two);
    assert_memory_equal(&one, &two, sizeof one);
    TRY(lk_loader_start(loader, 6, 0));
    lk_loader_destroy(loader);
    lk_loader_destroy(alone);
    lk_loader_destroy(NULL);
}

/* What "crop=2,flip" means, said directly: pad with byte 0, cut, maybe mirror. */
static uint8_t augmented(uint32_t id, uint32_t number, size_t c, size_t y, size_t x)
{
    enum { PAD = 2 };
    lk_rng cropping = lk__rng(42, LK_RNG_AUGMENT, 0, number, id), flipping = lk__rng(42, LK_RNG_AUGMENT, 1, number, id);
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
    (void)state;
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

/* Padding wider than the image leaves nothing but zeros in some crops. */
static void wide_crop(void **state)
{
    (void)state;
    lk_transforms list = {0};
    lk_dataset data = made(LK_SPLIT_TRAIN);
    TRY(lk__transforms_parse("crop=9", &list));
    int empty = 0;
    for (uint32_t id = 0; id < 200; id++) {
        uint8_t pixels[SIZE], scratch[SIZE];
        int lit = 0;
        memset(pixels, 1, sizeof pixels);
        lk__transforms_apply(&list, &data.info, 1, 0, id, pixels, scratch);
        for (size_t i = 0; i < SIZE; i++)
            lit += pixels[i];
        lk_rng rng = lk__rng(1, LK_RNG_AUGMENT, 0, 0, id);
        int dy = abs((int)lk__rng_below(lk__rng_u32(&rng, 0), 19) - 9);
        int dx = abs((int)lk__rng_below(lk__rng_u32(&rng, 1), 19) - 9);
        assert_int_equal(lit, C * (dy < H ? H - dy : 0) * (dx < W ? W - dx : 0));
        empty += lit == 0;
    }
    assert_in_range(empty, 1, 199);
}

/* Every permutation of four occurs about equally often: 24 classes of 100
 * expected, each within six standard deviations (10) of a Poisson count. */
static void fair_shuffle(void **state)
{
    (void)state;
    int seen[256] = {0}, kinds = 0;
    for (uint32_t number = 0; number < 2400; number++) {
        uint32_t order[4];
        lk__permute(99, number, 4, order);
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
    (void)state;
    lk_dataset data = made(LK_SPLIT_TRAIN);
    for (int workers = 0; workers <= 3; workers++) {
        lk_loader *loader = NULL;
        lk_loader_opts opts = {.batch = 10, .workers = workers, .augment = "none"};
        TRY(lk_loader_create(&data, &opts, &loader));
        broken = true;
        TRY(lk_loader_start(loader, 0, 0));
        const lk_batch *got = NULL, *kept = NULL;
        for (int b = 0; b < 10; b++)
            TRY(lk_loader_next(loader, &got));
        kept = got;
        for (int again = 0; again < 2; again++) {
            assert_int_equal(lk_loader_next(loader, &got), LK_STATUS_FORMAT);
            assert_detail("sample 100 is torn");
            assert_ptr_equal(got, kept);
        }
        /* lk_loader_start waits for the workers, so broken may change after it
         * has ended the epoch: here at its end, where none is at work. */
        TRY(lk_loader_start(loader, 0, lk_loader_batches(loader)));
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
    (void)state;
    refuse((lk_loader_opts){.batch = 0}, "at least one");
    refuse((lk_loader_opts){.batch = 1, .workers = -1}, "-1 workers");
    refuse((lk_loader_opts){.batch = 1, .workers = 100000}, "100000 workers");
    refuse((lk_loader_opts){.batch = 1, .augment = "crpo=4"}, "did you mean 'crop'");
    refuse((lk_loader_opts){.batch = 1, .augment = "crop"}, "crop=N");
    refuse((lk_loader_opts){.batch = 1, .augment = "crop=0"}, "from 1 to 1024");
    refuse((lk_loader_opts){.batch = 1, .augment = "crop=4x"}, "from 1 to 1024");
    refuse((lk_loader_opts){.batch = 1, .augment = "flip=1"}, "takes no value");
    refuse((lk_loader_opts){.batch = 1, .augment = ""}, "no augmentation ''");
    refuse((lk_loader_opts){.batch = 1, .augment = "flip,"}, "no augmentation ''");
    refuse((lk_loader_opts){.batch = 1, .augment = "flip,crop=2,flip"}, "flip is there twice");
    lk_dataset data = made(LK_SPLIT_TRAIN);
    lk_loader *loader = loader_of(&data, 10, 1, "none");
    const lk_batch *got = NULL;
    assert_int_equal(lk_loader_next(loader, &got), LK_STATUS_USAGE);
    assert_int_equal(lk_loader_start(loader, 0, 12), LK_STATUS_USAGE);
    assert_detail("11 batches");
    assert_int_equal(lk_loader_start(loader, (size_t)1 << 32, 0), LK_STATUS_USAGE);
    lk_loader_destroy(loader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_leave_no_trace),
        cmocka_unit_test(each_sample_once),
        cmocka_unit_test(in_order),
        cmocka_unit_test(starts_anywhere),
        cmocka_unit_test(abandons),
        cmocka_unit_test(augments),
        cmocka_unit_test(wide_crop),
        cmocka_unit_test(fair_shuffle),
        cmocka_unit_test(errors_reach_the_caller),
        cmocka_unit_test(bad_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
