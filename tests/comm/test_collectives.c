/* Collectives on all transports, worlds of 1, 2, 3, 5 and 8. */
#define _DEFAULT_SOURCE /* anonymous memory that children share */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/collectives.h"

static void run_sizes(const char *transport, const int *sizes, size_t count)
{
    static const effort plan = {.largest = 200003};
    for (size_t i = 0; i < count; i++)
        assert_true(team_run((team_spec){.size = sizes[i], .transport = transport}, try_collectives, &plan));
}

static void thread_ranks_agree(void **state)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    (void)state;
    run_sizes("inproc", sizes, 5);
}

static void ranks_with_shared_memory_agree(void **state)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    (void)state;
    run_sizes("shm", sizes, 5);
}

static void ranks_over_sockets_agree(void **state)
{
    static const int sizes[] = {1, 2, 3, 5};
    (void)state;
    run_sizes("tcp", sizes, 4);
}

static void ranks_of_several_hosts_agree(void **state)
{
    static const effort plan = {.largest = 200003};
    static const char *const hosts[] = {"ab", "aab", "abbab", "aabbc"};
    (void)state;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        assert_true(team_run((team_spec){.size = (int)strlen(hosts[i]), .transport = "auto", .hosts = hosts[i]},
                             try_collectives, &plan));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thread_ranks_agree),
        cmocka_unit_test(ranks_with_shared_memory_agree),
        cmocka_unit_test(ranks_over_sockets_agree),
        cmocka_unit_test(ranks_of_several_hosts_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
