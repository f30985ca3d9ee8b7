/* test_rng.c - philox4x32-10 against its published known answers, and the layout of addresses. */
#include "base/rng.h"
#include "check.h"

typedef struct answer {
    uint32_t counter[4], key[2], out[4];
} answer;

static const answer answers[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}},
    {{0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu},
     {0xffffffffu, 0xffffffffu},
     {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}},
    {{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u},
     {0xa4093822u, 0x299f31d0u},
     {0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}},
};

static void test_known_answers(void **state)
{
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        const answer *a = &answers[i];
        lk_rng rng = {.key = {a->key[0], a->key[1]}, .counter = {0, a->counter[1], a->counter[2], a->counter[3]}};
        uint32_t out[4];
        lk__rng_block(&rng, a->counter[0], out);
        assert_memory_equal(out, a->out, sizeof out);
    }
}

static void test_address(void **state)
{
    lk_rng rng = lk__rng(0x1122334455667788u, LK_RNG_PURPOSE_DROPOUT, 0x00abcdefu, 77, 99);
    assert_int_equal(rng.key[0], 0x55667788u);
    assert_int_equal(rng.key[1], 0x11223344u);
    assert_int_equal(rng.counter[1], 99);
    assert_int_equal(rng.counter[2], 77);
    assert_int_equal(rng.counter[3], 0x03abcdefu);
}

static void test_elements(void **state)
{
    lk_rng rng = lk__rng(5, LK_RNG_PURPOSE_INIT, 1, 2, 3);
    for (uint32_t block = 0; block < 100; block++) {
        uint32_t out[4];
        lk__rng_block(&rng, block, out);
        for (uint32_t j = 0; j < 4; j++)
            assert_int_equal(lk__rng_u32(&rng, (uint64_t)4 * block + j), out[j]);
    }
    uint32_t last[4];
    lk__rng_block(&rng, 0xffffffffu, last);
    assert_int_equal(lk__rng_u32(&rng, LK_RNG_MAX_ELEMENT - 1), last[3]);
}

static void test_ranges(void **state)
{
    assert_true(lk__rng_unit(0) == 0.0f);
    assert_true(lk__rng_unit(0xffffffffu) == 1.0f - 0x1p-24f);
    assert_int_equal(lk__rng_below(0, 10), 0);
    assert_int_equal(lk__rng_below(0xffffffffu, 10), 9);
    lk_rng rng = lk__rng(1, LK_RNG_PURPOSE_SHUFFLE, 0, 0, 0);
    int seen[10] = {0};
    for (uint64_t i = 0; i < 10000; i++)
        seen[lk__rng_below(lk__rng_u32(&rng, i), 10)]++;
    /* The bound is five standard deviations of a count of 10000 draws with probability 1/10. */
    for (int i = 0; i < 10; i++)
        assert_in_range(seen[i], 850, 1150);
}

TEST_MAIN(NULL, NULL, TEST(test_known_answers), TEST(test_address), TEST(test_elements), TEST(test_ranges))
