/* test_thin.c - thinned curves keep their extremes, their ends and their order. */
#include <math.h>

#include "check.h"
#include "serve/thin.h"

enum { POINTS = 100000, BUCKETS = 100 };

static double x[POINTS], y[POINTS];
static size_t chosen[2 * BUCKETS + 2];
static const lk_thin_range everything = {-INFINITY, INFINITY};

static void fill(void)
{
    for (size_t i = 0; i < POINTS; i++) {
        x[i] = (double)i;
        y[i] = (double)(i * 7919 % 1000);
    }
}

static bool has(size_t count, size_t index)
{
    for (size_t i = 0; i < count; i++) {
        if (chosen[i] == index)
            return true;
    }
    return false;
}

static void assert_rising(size_t count)
{
    assert_true(count <= 2 * BUCKETS + 2);
    for (size_t i = 1; i < count; i++)
        assert_true(chosen[i - 1] < chosen[i]);
}

static void test_spikes(void **state)
{
    fill();
    y[31415] = 1e9;
    y[27182] = -1e9;
    y[27183] = 1e8;
    size_t count = lk__thin(x, y, POINTS, everything, BUCKETS, chosen);
    assert_rising(count);
    assert_true(count >= 2 * BUCKETS);
    assert_true(has(count, 31415) && has(count, 27182) && has(count, 27183));
    assert_true(chosen[0] == 0 && chosen[count - 1] == POINTS - 1);
}

static void test_few(void **state)
{
    fill();
    assert_int_equal(lk__thin(x, y, 0, everything, BUCKETS, chosen), 0);
    assert_int_equal(lk__thin(x, y, 1, everything, BUCKETS, chosen), 1);
    size_t count = lk__thin(x, y, 2 * BUCKETS, everything, BUCKETS, chosen);
    assert_int_equal(count, 2 * BUCKETS);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(chosen[i], i);
}

/* Rows that lack a value are no points, not even where all others are left out. */
static void test_gaps(void **state)
{
    fill();
    for (size_t i = 0; i < POINTS; i++)
        y[i] = i % 1000 == 500 ? 1 : NAN;
    size_t count = lk__thin(x, y, POINTS, everything, BUCKETS, chosen);
    assert_int_equal(count, POINTS / 1000);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(chosen[i], 1000 * i + 500);
    for (size_t i = 0; i < POINTS; i++)
        y[i] = NAN;
    assert_int_equal(lk__thin(x, y, POINTS, everything, BUCKETS, chosen), 0);
}

/* A range has its points and one beside it at each end. */
static void test_range(void **state)
{
    fill();
    size_t count = lk__thin(x, y, POINTS, (lk_thin_range){1000.5, 1010.5}, BUCKETS, chosen);
    assert_int_equal(count, 12);
    assert_true(chosen[0] == 1000 && chosen[11] == 1011);
    count = lk__thin(x, y, POINTS, (lk_thin_range){5000, 95000}, BUCKETS, chosen);
    assert_rising(count);
    assert_true(chosen[0] == 4999 && chosen[count - 1] == 95001);
    count = lk__thin(x, y, POINTS, (lk_thin_range){1e6, 2e6}, BUCKETS, chosen);
    assert_int_equal(count, 1);
}

TEST_MAIN(NULL, NULL, TEST(test_spikes), TEST(test_few), TEST(test_gaps), TEST(test_range))
