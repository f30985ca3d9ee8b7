/* test_shm.c - the segments of shm: named and nameless, too large, and what is
 * left of them when ranks are killed. */
#include "comm/board.h"

#include <sys/resource.h>

/* More blocks than fit, at one rank: all fail, in words, and go on. */
static int too_large(rank *self)
{
    void *block = NULL;
    size_t huge = self->boot.rank == 1 ? SIZE_MAX / 4 : 4096;
    CHECK(self, self->type->alloc(self->t, huge, &block) == LK_STATUS_MEMORY);
    CHECK(self, block == NULL);
    CHECK(self, strstr(lk_error_detail(), "rank 1: shared memory needs ") != NULL);
    CHECK(self, strstr(lk_error_detail(), " MB free; enlarge it or use `backend` tcp") != NULL);
    return lend(self);
}

/* The limit on file sizes kills by a signal where it is not looked at. */
static int over_limit(rank *self)
{
    void *block;
    struct rlimit limit = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    CHECK(self, setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(self, self->type->alloc(self->t, 2 << 20, &block) == LK_STATUS_MEMORY);
    CHECK(self, strstr(lk_error_detail(), "ulimit -f") != NULL);
    return 0;
}

static int die(rank *self)
{
    void *block;
    CHECK(self, self->type->alloc(self->t, 100000, &block) == LK_OK);
    if (self->boot.rank == 1)
        raise(SIGKILL);
    return 0;
}

/* What is mapped from /dev/shm has no name there. */
static int look_for_names(rank *self)
{
    void *block;
    char line[512];
    int mapped = 0;
    CHECK(self, self->type->alloc(self->t, 100000, &block) == LK_OK);
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(self, maps != NULL);
    while (fgets(line, sizeof line, maps)) {
        if (!strstr(line, "/dev/shm/"))
            continue;
        mapped++;
        CHECK(self, strstr(line, "(deleted)") != NULL);
    }
    fclose(maps);
    CHECK(self, mapped >= 2 * self->boot.size);
    return 0;
}

static int idle(rank *self)
{
    (void)self;
    return 0;
}

static void test_named_segments(void **state)
{
    (void)state;
    board *b = board_create(3);
    b->hide = 1;
    run_board(b, &lk__transport_shm, 3, lend);
    /* Two for each attempt: the hidden one, the named one, the block. */
    assert_int_equal(atomic_load(&b->exchanges), 6);
    munmap(b, sizeof *b);
}

/* Nobody but their owner may open segments, with a name or without. */
static void test_private(void **state)
{
    (void)state;
    for (int hide = 0; hide <= 1; hide++) {
        board *b = board_create(3);
        b->hide = hide;
        assert_int_equal(run_board(b, &lk__transport_shm, 3, look_for_names), 0);
        assert_int_equal(atomic_load(&b->modes), 0600);
        munmap(b, sizeof *b);
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    run(&lk__transport_shm, 3, too_large);
    run(&lk__transport_shm, 2, over_limit);
}

static void test_killed(void **state)
{
    (void)state;
    board *b = board_create(3);
    assert_int_equal(run_board(b, &lk__transport_shm, 3, die), 1);
    b->kill_all = true;
    assert_int_equal(run_board(b, &lk__transport_shm, 3, idle), 3);
    munmap(b, sizeof *b);
}

static void test_two_hosts(void **state)
{
    (void)state;
    lk_member members[2] = {{.host_key = 1, .host = "alpha"}, {.host_key = 2, .host = "beta"}};
    lk_boot boot = {.rank = 0, .size = 2, .members = members, .timeout = 60};
    lk_transport *t = NULL;
    assert_int_equal(lk__transport_shm.open(&boot, &t), LK_STATUS_USAGE);
    assert_null(t);
    assert_non_null(strstr(lk_error_detail(), "rank 1 on beta"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_named_segments), cmocka_unit_test(test_private),   cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_killed),         cmocka_unit_test(test_two_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
