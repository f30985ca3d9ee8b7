/* test_rendezvous_more.c - ranks that wait for a missing rank give a notice every five seconds. */
#include <stdatomic.h>

#include "comm/control/control.h"
#include "net/socket.h"
#include "processes.h"

enum { RANKS = 4, ABSENT = 2 };

/* Lives in memory that the ranks share. */
typedef struct job {
    char method[64];
    struct {
        atomic_int count;
        char text[256]; /* of the first notice */
    } notices[RANKS];
} job;

typedef struct listener {
    job *at;
    int rank;
} listener;

static void hear(void *arg, const char *text)
{
    const listener *self = arg;
    if (atomic_fetch_add(&self->at->notices[self->rank].count, 1) == 0)
        snprintf(self->at->notices[self->rank].text, sizeof self->at->notices[self->rank].text, "%s", text);
}

static void wait_in_vain(int rank, void *arg)
{
    listener self = {.at = arg, .rank = rank};
    lk_group_opts opts = {.init_method = self.at->method,
                          .rank = rank,
                          .world_size = RANKS,
                          .token = "secret",
                          .timeout = 7,
                          .notice = hear,
                          .notice_arg = &self};
    lk_control *control = NULL;
    CHECK(lk__control_join(&opts, NULL, &control) == LK_STATUS_PEER);
    CHECK_TEXT(lk_error_detail(), "rank 2 of 4 has not joined within 7 s");
}

/* "WHO has not joined, N s left"; 5 of 7 seconds have passed. */
static void assert_notice(const char *text)
{
    static const char start[] = "rank 2 of 4 has not joined, ";
    if (strncmp(text, start, sizeof start - 1) != 0)
        fail_msg("another notice: '%s'", text);
    char *rest = NULL;
    long left = strtol(text + sizeof start - 1, &rest, 10);
    assert_in_range(left, 0, 2);
    assert_string_equal(rest, " s left");
}

static void test_notices(void **state)
{
    job *at = process_share(sizeof *at);
    int holder, port;
    pid_t pids[RANKS];
    assert_int_equal(lk__net_reserve("127.0.0.1", &holder, &port), LK_OK);
    snprintf(at->method, sizeof at->method, "tcp://127.0.0.1:%d", port);
    for (int r = 0; r < RANKS; r++)
        pids[r] = r == ABSENT ? -1 : process_start(wait_in_vain, r, at);
    for (int r = 0; r < RANKS; r++) {
        if (r == ABSENT)
            continue;
        assert_int_equal(process_wait(pids[r]), 0);
        assert_int_equal(atomic_load(&at->notices[r].count), 1);
        assert_notice(at->notices[r].text);
    }
    close(holder);
    munmap(at, sizeof *at);
}

TEST_MAIN(NULL, NULL, TEST(test_notices))
