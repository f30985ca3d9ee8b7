/* test_roster.c - the server's state of a job: joining, leaving, exchanges, disagreement. */
#include "base/text.h"
#include "check.h"
#include "comm/control/roster.h"

static lk_member member(int pid)
{
    lk_member made = {.pid = pid};
    snprintf(made.host, sizeof made.host, "h%d", pid);
    return made;
}

/* Makes a roster whose ranks [0, joined) have joined, with process ids from 100. */
static lk_roster *make(int size, int joined)
{
    lk_roster *roster = NULL;
    assert_int_equal(lk__roster_create(size, &roster), LK_OK);
    for (int r = 0; r < joined; r++) {
        lk_member who = member(100 + r);
        assert_int_equal(lk__roster_join(roster, r, size, &who), LK_OK);
    }
    return roster;
}

static void assert_verdict(const lk_roster *roster, lk_status status, const char *text)
{
    const char *got;
    assert_int_equal(lk__roster_verdict(roster, &got), status);
    assert_string_equal(got, text);
}

/* Checks the verdict and destroys the roster. */
static void assert_end(lk_roster *roster, lk_status status, const char *text)
{
    assert_verdict(roster, status, text);
    lk__roster_destroy(roster);
}

static void test_joining(void **state)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        uint8_t awaited[8];
        lk_roster *roster = make(sizes[i], sizes[i] - 1);
        assert_false(lk__roster_complete(roster));
        assert_int_equal(lk__roster_awaited(roster, awaited), 1);
        assert_int_equal(awaited[sizes[i] - 1], 1);
        lk_member last = member(9);
        assert_int_equal(lk__roster_join(roster, sizes[i] - 1, sizes[i], &last), LK_OK);
        assert_true(lk__roster_complete(roster));
        assert_int_equal(lk__roster_awaited(roster, awaited), 0);
        assert_string_equal(lk__roster_members(roster)[sizes[i] - 1].host, "h9");
        assert_end(roster, LK_OK, "");
    }
}

static void test_refused(void **state)
{
    lk_member late = member(7);
    lk_roster *roster = make(3, 2);
    assert_int_equal(lk__roster_join(roster, 1, 3, &late), LK_STATUS_MISMATCH);
    assert_verdict(roster, LK_STATUS_MISMATCH,
                   "two processes came as the same rank: rank 1 (host h101, pid 101) and rank 1 (host h7, pid 7); give "
                   "each a rank of its own");
    lk__roster_destroy(roster);

    roster = make(3, 1);
    assert_int_equal(lk__roster_join(roster, 1, 2, &late), LK_STATUS_MISMATCH);
    assert_end(roster, LK_STATUS_MISMATCH,
               "rank 1 (host h7, pid 7) was started for a world of 2, but rank 0 (host h100, pid 100) for a world "
               "of 3: give all ranks the same world size, and all processes the same number of devices");

    roster = make(3, 1);
    assert_int_equal(lk__roster_join(roster, 3, 3, &late), LK_STATUS_USAGE);
    lk__roster_destroy(roster);

    /* A job that has started works on. */
    roster = make(2, 2);
    assert_int_equal(lk__roster_join(roster, 1, 2, &late), LK_STATUS_MISMATCH);
    assert_end(roster, LK_OK, "");
}

static void test_lost_and_left(void **state)
{
    lk_roster *roster = make(3, 3);
    lk__roster_leave(roster, 1);
    assert_verdict(roster, LK_OK, "");
    assert_int_equal(lk__roster_presence(roster, 1), LK_ROSTER_PRESENCE_LEFT);
    lk__roster_lose(roster, 1, "died");
    assert_verdict(roster, LK_OK, "");
    lk__roster_lose(roster, 2, "died");
    assert_verdict(roster, LK_STATUS_PEER, "rank 2 (host h102, pid 102) died");
    assert_int_equal(lk__roster_here(roster), 1);
    lk__roster_destroy(roster);

    /* No rank is left that needs rank 1. */
    roster = make(2, 2);
    lk__roster_leave(roster, 0);
    lk__roster_lose(roster, 1, "died");
    assert_end(roster, LK_OK, "");

    roster = make(3, 2);
    lk__roster_lose(roster, 1, "died");
    assert_end(roster, LK_STATUS_PEER, "rank 1 (host h101, pid 101) died before all ranks had joined");
}

static void test_exchange(void **state)
{
    lk_roster *roster = make(3, 3);
    for (uint32_t number = 0; number < 5; number++) {
        uint8_t awaited[3];
        for (int r = 2; r >= 0; r--) {
            int mine = 10 * (int)number + r;
            assert_int_equal(lk__roster_give(roster, r, number, &mine, sizeof mine), r == 0);
            assert_int_equal(lk__roster_awaited(roster, awaited), r);
        }
        int all[3];
        memcpy(all, lk__roster_parts(roster, number), sizeof all);
        for (int r = 0; r < 3; r++)
            assert_int_equal(all[r], 10 * (int)number + r);
    }
    lk__roster_destroy(roster);
}

static void test_exchange_breaks(void **state)
{
    lk_roster *roster = make(2, 2);
    assert_false(lk__roster_give(roster, 0, 0, "abcd", 4));
    assert_false(lk__roster_give(roster, 1, 0, "ab", 2));
    assert_end(roster, LK_STATUS_MISMATCH,
               "rank 1 (host h101, pid 101) gave 2 bytes to exchange 0, the others 4: "
               "have all the same `backend` and version?");

    roster = make(2, 2);
    assert_false(lk__roster_give(roster, 0, 0, "abcd", 4));
    lk__roster_leave(roster, 1);
    assert_end(roster, LK_STATUS_PEER, "rank 1 (host h101, pid 101) left while other ranks were waiting for it");

    roster = make(2, 2);
    lk__roster_leave(roster, 1);
    assert_false(lk__roster_give(roster, 0, 0, "abcd", 4));
    assert_end(roster, LK_STATUS_PEER, "rank 1 (host h101, pid 101) left while other ranks were waiting for it");

    roster = make(2, 2);
    assert_false(lk__roster_give(roster, 0, 1, "abcd", 4));
    assert_end(roster, LK_STATUS_PEER,
               "rank 0 (host h100, pid 100) gave to exchange 1 out of turn: do all ranks run the same version?");
}

static lk_call call(uint32_t group, uint32_t number, lk_call_kind kind)
{
    return (lk_call){.group = group, .number = number, .kind = (uint8_t)kind, .root = -1, .count = 1024};
}

static void test_reports(void **state)
{
    lk_roster *roster = make(3, 3);
    lk_call zero[] = {call(0, 40, LK_CALL_KIND_BARRIER), call(0, 41, LK_CALL_KIND_ALLREDUCE)};
    lk_call one[] = {call(0, 40, LK_CALL_KIND_BARRIER), call(0, 41, LK_CALL_KIND_ALLREDUCE),
                     call(1, 41, LK_CALL_KIND_GATHER), call(0, 41, LK_CALL_KIND_MESSAGE)};
    lk_call two[] = {call(0, 40, LK_CALL_KIND_BARRIER), call(0, 41, LK_CALL_KIND_BROADCAST),
                     call(0, 42, LK_CALL_KIND_GATHER)};
    lk__roster_report(roster, 0, zero, 2);
    lk__roster_report(roster, 1, one, 4);
    assert_verdict(roster, LK_OK, "");
    lk__roster_report(roster, 2, two, 3);
    char first[LK_CALL_TEXT], second[LK_CALL_TEXT], text[512];
    snprintf(text, sizeof text, "rank 0 called %s, rank 2 called %s", lk__call_text(&zero[1], first),
             lk__call_text(&two[1], second));
    assert_end(roster, LK_STATUS_MISMATCH, text);
}

/* Ranks 0 and 1 wait in calls of two groups; rank 2 has not reported: both wait for rank 2. */
static void test_absent(void **state)
{
    lk_call whole = {.kind = LK_CALL_KIND_BARRIER, .group = 0, .number = 16};
    lk_call split = {.kind = LK_CALL_KIND_BARRIER, .group = 7, .number = 3};
    uint8_t absent[3];
    lk_roster *roster = make(3, 3);
    lk__roster_report(roster, 0, &whole, 1);
    lk__roster_report(roster, 1, &split, 1);
    for (int rank = 0; rank < 2; rank++) {
        lk__roster_absent(roster, rank, absent);
        assert_memory_equal(absent, ((uint8_t[]){0, 0, 1}), 3);
    }
    /* When rank 2 waits as well, the ranks that have not made rank 0's call are named. */
    lk__roster_report(roster, 2, &split, 1);
    lk__roster_absent(roster, 0, absent);
    assert_memory_equal(absent, ((uint8_t[]){0, 1, 1}), 3);
    /* A rank that continues withdraws its report. */
    lk__roster_report(roster, 1, NULL, 0);
    lk__roster_absent(roster, 0, absent);
    assert_memory_equal(absent, ((uint8_t[]){0, 1, 0}), 3);
    lk__roster_destroy(roster);
}

static void test_abort(void **state)
{
    lk_roster *roster = make(2, 2);
    lk__roster_abort(roster, LK_STATUS_NONFINITE, "rank 1: the loss is not finite");
    lk__roster_abort(roster, LK_STATUS_IO, "later");
    lk__roster_lose(roster, 1, "died");
    assert_end(roster, LK_STATUS_NONFINITE, "rank 1: the loss is not finite");
}

static void test_awaited_text(void **state)
{
    uint8_t awaited[64] = {0};
    char text[256];
    awaited[2] = 1;
    lk__text_awaited("rank", awaited, 4, "not joined", text, sizeof text);
    assert_string_equal(text, "rank 2 of 4 has not joined");
    awaited[1] = awaited[5] = 1;
    lk__text_awaited("rank", awaited, 8, "not joined", text, sizeof text);
    assert_string_equal(text, "ranks 1, 2 and 5 of 8 have not joined");
    memset(awaited, 1, sizeof awaited);
    lk__text_awaited("rank", awaited, 64, "not joined", text, sizeof text);
    assert_string_equal(text, "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 48 more of 64 have not "
                              "joined");
    lk__text_awaited("rank", awaited, 64, "not joined", text, 12);
    assert_string_equal(text, "ranks 0, 1,");
}

TEST_MAIN(NULL, NULL, TEST(test_joining), TEST(test_refused), TEST(test_lost_and_left), TEST(test_exchange),
          TEST(test_exchange_breaks), TEST(test_reports), TEST(test_abort), TEST(test_awaited_text), TEST(test_absent))
