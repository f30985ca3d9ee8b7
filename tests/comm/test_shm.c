/* test_shm.c - the segments of shm: named and unnamed ones, too large ones, and none is left when
 * ranks are killed. */
#include "comm/board.h"

#include <sys/resource.h>

/* One rank asks for too much memory: the call fails at all ranks, and they can work on. */
static void too_large(place *at, const void *arg)
{
    void *block = NULL;
    size_t huge = at->rank == 1 ? SIZE_MAX / 4 : 4096;
    CHECK(at->t->type->alloc(at->t, huge, &block) == LK_STATUS_MEMORY);
    CHECK(block == NULL);
    CHECK_TEXT(lk_error_detail(), "rank 1: shared memory needs ");
    CHECK_TEXT(lk_error_detail(), " left; enlarge it or use `backend` tcp");
    lend(at, NULL);
}

/* Without a check, the limit on file sizes would kill the process with a signal. */
static void over_limit(place *at, const void *arg)
{
    void *block;
    struct rlimit limit = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(at->t->type->alloc(at->t, 2 << 20, &block) == LK_STATUS_MEMORY);
    CHECK_TEXT(lk_error_detail(), "ulimit -f");
}

static void die(place *at, const void *arg)
{
    void *block;
    CHECK_OK(at->t->type->alloc(at->t, 100000, &block));
    if (at->rank == 1)
        raise(SIGKILL);
}

/* No mapped file of /dev/shm has a name. */
static void look_for_names(place *at, const void *arg)
{
    void *block;
    char line[512];
    int mapped = 0;
    CHECK_OK(at->t->type->alloc(at->t, 100000, &block));
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps)) {
        if (!strstr(line, "/dev/shm/"))
            continue;
        mapped++;
        CHECK(strstr(line, "(deleted)") != NULL);
    }
    fclose(maps);
    CHECK(mapped >= 2 * at->shared->size);
}

static void idle(place *at, const void *arg)
{
}

static void test_named_segments(void **state)
{
    board *b = board_create(3);
    b->hide = 1;
    run_board(b, &lk__transport_shm, lend, 0);
    /* Two exchanges each: the hidden attempt, the named segment, the block. */
    assert_int_equal(atomic_load(&b->exchanges), 6);
    board_destroy(b);
}

/* Only the owner may open a segment, with a name or without. */
static void test_private(void **state)
{
    for (int hide = 0; hide <= 1; hide++) {
        board *b = board_create(3);
        b->hide = hide;
        run_board(b, &lk__transport_shm, look_for_names, 0);
        assert_int_equal(atomic_load(&b->modes), 0600);
        board_destroy(b);
    }
}

static void test_no_memory(void **state)
{
    run(&lk__transport_shm, 3, too_large);
    run(&lk__transport_shm, 2, over_limit);
}

static void test_killed(void **state)
{
    board *b = board_create(3);
    run_board(b, &lk__transport_shm, die, 1u << 1);
    b->kill_all = true;
    run_board(b, &lk__transport_shm, idle, 7);
    board_destroy(b);
}

static void test_two_hosts(void **state)
{
    lk_member members[2] = {{.host_key = 1, .host = "alpha"}, {.host_key = 2, .host = "beta"}};
    lk_boot boot = {.rank = 0, .size = 2, .members = members, .timeout = 60};
    lk_transport *t = NULL;
    assert_int_equal(lk__transport_shm.open(&boot, &t), LK_STATUS_USAGE);
    assert_null(t);
    assert_detail("rank 1 on beta");
}

TEST_MAIN(NULL, NULL, TEST(test_named_segments), TEST(test_private), TEST(test_no_memory), TEST(test_killed),
          TEST(test_two_hosts))
