/* Collectives on all transports where it takes long: eight ranks over sockets,
 * sixteen ranks, all types with long vectors. */
#define _DEFAULT_SOURCE /* anonymous memory that children share */
#include "check.h"
#include "comm/collectives.h"

static void eight_ranks_agree(void **state)
{
    static const effort plan = {.largest = 1000003, .every = true};
    static const team_spec teams[] = {
        {.size = 8, .transport = "inproc"},
        {.size = 8, .transport = "shm"},
        {.size = 8, .transport = "tcp"},
        {.size = 8, .transport = "auto", .hosts = "aaaabbbb"},
        {.size = 8, .transport = "auto", .hosts = "abababab"},
        {.size = 8, .transport = "auto", .hosts = "abbbbbcc"},
        {.size = 8, .transport = "auto"},
    };
    for (size_t i = 0; i < sizeof teams / sizeof *teams; i++)
        assert_true(team_run(teams[i], try_collectives, &plan));
}

static void sixteen_ranks_agree(void **state)
{
    static const effort plan = {.largest = 200003};
    static const team_spec teams[] = {
        {.size = 16, .transport = "inproc"},
        {.size = 16, .transport = "shm"},
        {.size = 16, .transport = "tcp"},
        {.size = 16, .transport = "auto", .hosts = "aaaaaaabbbbbcccc"},
    };
    for (size_t i = 0; i < sizeof teams / sizeof *teams; i++)
        assert_true(team_run(teams[i], try_collectives, &plan));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_ranks_agree),
        cmocka_unit_test(sixteen_ranks_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
