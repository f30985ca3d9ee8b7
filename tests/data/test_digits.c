/* test_digits.c - the built-in digits: the same bytes on every machine, all classes, and samples that
 * depend on their address only. */
#include "fixture.h"

#include <lockstep/data.h>

#include "base/hash.h"

enum { PIXELS = 784, HASHED = 500 };

/* A hash of the first samples with their labels. Recorded results depend on this data set, so it must not
 * change. */
static uint64_t hash_of(lk_split split)
{
    lk_dataset *data = NULL;
    assert_ok(lk_dataset_open("digits", NULL, split, &data));
    uint64_t hash = 0;
    for (size_t i = 0; i < HASHED; i++) {
        uint8_t bytes[PIXELS + 1];
        int32_t label;
        assert_ok(lk_dataset_get(data, i, bytes, &label));
        bytes[PIXELS] = (uint8_t)label;
        hash = lk__hash(bytes, sizeof bytes, hash);
    }
    lk_dataset_destroy(data);
    return hash;
}

static void same_everywhere(void **state)
{
    assert_int_equal(hash_of(LK_SPLIT_TRAIN), 0xd1c2fdec8906fb67);
    assert_int_equal(hash_of(LK_SPLIT_TEST), 0x6d5d667331d90c40);
}

static void info(void **state)
{
    static const size_t counts[] = {60000, 10000};
    for (lk_split split = LK_SPLIT_TRAIN; split <= LK_SPLIT_TEST; split++) {
        lk_dataset *data = NULL;
        assert_ok(lk_dataset_open("digits", "/no/such/folder", split, &data));
        const lk_dataset_info *got = lk_dataset_get_info(data);
        assert_string_equal(got->name, "digits");
        assert_string_equal(got->path, "");
        assert_int_equal(got->count, counts[split]);
        assert_int_equal(got->channels * got->height * got->width, PIXELS);
        assert_int_equal(got->classes, 10);
        lk_dataset_destroy(data);
    }
}

/* Samples do not depend on earlier calls, and differ from each other. */
static void addressed(void **state)
{
    lk_dataset *data = NULL;
    assert_ok(lk_dataset_open("digits", NULL, LK_SPLIT_TEST, &data));
    uint8_t once[PIXELS], other[PIXELS], again[PIXELS];
    int32_t label = -1, label_again = -1;
    assert_ok(lk_dataset_get(data, 9999, once, &label));
    assert_ok(lk_dataset_get(data, 0, other, &label_again));
    assert_ok(lk_dataset_get(data, 9999, again, &label_again));
    assert_memory_equal(once, again, PIXELS);
    assert_int_equal(label, label_again);
    assert_memory_not_equal(once, other, PIXELS);
    assert_int_equal(lk_dataset_get(data, 10000, again, &label), LK_STATUS_USAGE);
    lk_dataset_destroy(data);
}

/* Each class has about a tenth of the samples: the bound is five standard deviations of a binomial count,
 * sqrt(10000 * .1 * .9) = 30. Every image has some bright pixels. */
static void balanced(void **state)
{
    lk_dataset *data = NULL;
    assert_ok(lk_dataset_open("digits", NULL, LK_SPLIT_TEST, &data));
    int seen[10] = {0};
    for (size_t i = 0; i < 10000; i++) {
        uint8_t pixels[PIXELS];
        int32_t label = -1;
        assert_ok(lk_dataset_get(data, i, pixels, &label));
        assert_in_range(label, 0, 9);
        seen[label]++;
        int bright = 0;
        for (size_t k = 0; k < PIXELS; k++)
            bright += pixels[k] > 100;
        assert_in_range(bright, 5, PIXELS / 2);
    }
    for (int k = 0; k < 10; k++)
        assert_in_range(seen[k], 1000 - 150, 1000 + 150);
    lk_dataset_destroy(data);
}

TEST_MAIN(NULL, NULL, TEST(same_everywhere), TEST(info), TEST(addressed), TEST(balanced))
