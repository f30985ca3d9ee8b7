/* test_rejoin.c - processes that leave a group and at once join the next one at the same address. */
#define _DEFAULT_SOURCE /* what the headers of sockets need */
#include <lockstep/group.h>

#include "check.h"
#include "net/socket.h"
#include "processes.h"

enum { RANKS = 3, ROUNDS = 20 };

typedef struct rendezvous {
    const char *backend;
    int port;
} rendezvous;

static void join_again_and_again(int rank, void *arg)
{
    const rendezvous *at = arg;
    char url[64];
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", at->port);
    lk_group_opts opts = {.init_method = url,
                          .rank = rank,
                          .world_size = RANKS,
                          .backend = at->backend,
                          .timeout = 20,
                          .token = "the token of a test"};
    for (int round = 0; round < ROUNDS; round++) {
        lk_group *group = NULL;
        CHECK(lk_group_join(&opts, &group) == LK_OK);
        CHECK(lk_group_rank(group) == rank && lk_group_size(group) == RANKS);
        CHECK(lk_barrier(group, NULL) == LK_OK);
        lk_group_destroy(group);
    }
}

static void groups_follow_each_other_at_one_address(void **state)
{
    static const char *const backends[] = {"auto", "shm", "tcp"};
    for (size_t b = 0; b < COUNT_OF(backends); b++) {
        rendezvous at = {.backend = backends[b]};
        int holder = -1;
        assert_int_equal(lk__net_reserve("127.0.0.1", &holder, &at.port), LK_OK);
        assert_true(processes_run(RANKS, join_again_and_again, &at, 0));
        close(holder);
    }
}

TEST_MAIN(NULL, NULL, TEST(groups_follow_each_other_at_one_address))
