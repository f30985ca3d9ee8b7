/* test_median.c - the median of one, two, an odd and an even number of values, equal ones among them. */
#include "base/median.h"
#include "check.h"

static void test_median(void **state)
{
    (void)state;
    assert_true(lk__median((double[]){3}, 1) == 3);
    assert_true(lk__median((double[]){4, 1}, 2) == 2.5);
    assert_true(lk__median((double[]){9, -1, 2}, 3) == 2);
    assert_true(lk__median((double[]){8, 1, 4, 2}, 4) == 3);
    assert_true(lk__median((double[]){5, 0, 5, 5, 7}, 5) == 5);
}

TEST_MAIN(NULL, NULL, TEST(test_median))
