/* fetching.h - the main function of tests that download: it skips all tests in builds that cannot. */
#ifndef LK_TESTS_DATA_FETCHING_H
#define LK_TESTS_DATA_FETCHING_H

#include "check.h"
#include "data/download/transfer.h"
#include "data/sets/checksum.h"
#include "http_server.h"

static inline void nothing_can_be_fetched_here(void **state)
{
    printf("skipped: %s\n", lk_error_detail());
    skip();
}

static inline int run_fetching_tests(const struct CMUnitTest *tests, size_t count)
{
    /* The server is local: proxies of the environment must not be used. */
    setenv("no_proxy", "*", 1);
    if (lk__transfer_available() != LK_OK || lk__checksum_available() != LK_OK)
        return RUN_TESTS(NULL, NULL, TEST(nothing_can_be_fetched_here));
    return _cmocka_run_group_tests("tests", tests, count, NULL, NULL);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
