/* test_collectives_more.c - collectives of 8 and 16 ranks over all transports, all types with long
 * vectors. */
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
    team_run_each(teams, COUNT_OF(teams), try_collectives, &plan);
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
    team_run_each(teams, COUNT_OF(teams), try_collectives, &plan);
}

TEST_MAIN(NULL, NULL, TEST(eight_ranks_agree), TEST(sixteen_ranks_agree))
