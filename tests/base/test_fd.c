/* test_fd.c - the limit of open files. */
#include "base/fd.h"
#include "check.h"

static struct rlimit limit_now(void)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    return limit;
}

static void the_limit_rises_as_far_as_the_system_allows(void **state)
{
    const struct rlimit low = {.rlim_cur = 64, .rlim_max = 100};
    struct rlimit old;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);

    lk__fd_raise_limit(64, &old);
    assert_int_equal(old.rlim_cur, 64);
    assert_int_equal(limit_now().rlim_cur, 64);

    lk__fd_raise_limit(80, &old);
    assert_int_equal(old.rlim_cur, 64);
    assert_int_equal(limit_now().rlim_cur, 80);

    lk__fd_raise_limit(70, &old);
    assert_int_equal(limit_now().rlim_cur, 80);

    lk__fd_raise_limit(1000, &old);
    assert_int_equal(old.rlim_cur, 80);
    assert_int_equal(limit_now().rlim_cur, 100);
    assert_int_equal(limit_now().rlim_max, 100);
}

TEST_MAIN(NULL, NULL, TEST(the_limit_rises_as_far_as_the_system_allows))
