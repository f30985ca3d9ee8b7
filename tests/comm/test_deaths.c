/* A rank that is killed inside a collective is named by all others. */
#define _DEFAULT_SOURCE /* anonymous memory that children share */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/deaths.h"

static const team_spec teams[] = {
    {.size = 3, .transport = "shm"},
    {.size = 3, .transport = "tcp"},
    {.size = 3, .transport = "auto", .hosts = "aab"},
};

static void a_killed_rank_is_named(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof teams / sizeof *teams; t++)
        for (size_t i = 0; i < DEATHS; i++)
            assert_true(run_death(teams[t], 1, i, 1));
}

static void a_killed_rank_0_is_named(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof teams / sizeof *teams; t++)
        for (size_t i = 0; i < DEATHS; i += 3)
            assert_true(run_death(teams[t], 0, i, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rank_is_named),
        cmocka_unit_test(a_killed_rank_0_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
