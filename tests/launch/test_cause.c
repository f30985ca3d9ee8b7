/* test_cause.c - texts and order of the causes of failure, and the environment of a rank. */
#define _GNU_SOURCE /* CPU_COUNT_S */
#include "node_test.h"

#include <sched.h>

#include "base/mem.h"
#include "launch/bind.h"

/* A status as wait(2) returns it on Linux. */
static int exited(int status)
{
    return status << 8;
}

static void test_text_and_exit(void **state)
{
    static const struct {
        int status;
        const char *text;
        int exit;
    } rows[] = {
        {3 << 8, "exited with status 3", 3},
        {SIGSEGV, "killed by SIGSEGV (segmentation fault)", 128 + SIGSEGV},
        {SIGKILL, "killed by SIGKILL", 128 + SIGKILL},
        {SIGSEGV | 0x80, "(segmentation fault), core dumped", 128 + SIGSEGV},
        {SIGTERM, "got SIGTERM (told to stop) and ended", 128 + SIGTERM},
        {40, "killed by signal 40", 128 + 40},
        {-1, "stayed stopped for 300 s", 1},
        {0, "exited with status 0", 1},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char text[128];
        lk_cause cause = {.status = rows[i].status, .stopped_for = 300.01};
        lk__cause_text(&cause, text, sizeof text);
        assert_contains(text, rows[i].text);
        assert_int_equal(lk__cause_exit(&cause), rows[i].exit);
    }
}

static void test_order(void **state)
{
    /* Of two equal causes the one that was reported first stays. */
    lk_cause one = {.status = exited(1)}, other = {.status = exited(2)};
    lk_cause crash = {.status = SIGABRT}, stopped = {.status = -1};
    assert_false(lk__cause_before(&one, &other));
    assert_false(lk__cause_before(&other, &one));
    assert_true(lk__cause_before(&crash, &one));
    assert_false(lk__cause_before(&one, &crash));
    assert_true(lk__cause_before(&crash, &stopped));
    lk_cause root = {.rank = 3, .pid = 7, .status = exited(2), .host = "h"};
    lk_cause echo = {.rank = 0, .pid = 8, .status = exited(1), .host = "h"};
    snprintf(echo.tail, sizeof echo.tail, "error: rank 3 (host h, pid 7) died\n");
    assert_true(lk__cause_before(&root, &echo));
    assert_false(lk__cause_before(&echo, &root));
    /* A rank that aborts because another rank died is not the cause. */
    lk_cause echo_crash = echo;
    echo_crash.status = SIGABRT;
    assert_true(lk__cause_before(&root, &echo_crash));
    assert_false(lk__cause_before(&echo_crash, &root));
    /* A chain: rank 0 names 3, 3 names 5, 5 names nobody; rank 3 has not reported yet. */
    lk_cause last = {.rank = 5, .pid = 9, .status = exited(1), .host = "g"};
    assert_true(lk__cause_before(&last, &echo_crash));
    snprintf(root.tail, sizeof root.tail, "rank 5 (host g, pid 9) died\n");
    assert_true(lk__cause_before(&root, &echo_crash));
    assert_true(lk__cause_before(&last, &root));
    assert_false(lk__cause_before(&root, &last));
}

static void test_environment(void **state)
{
    char *argv[] = {"env", NULL};
    lk_launch_node_opts opts = node_opts(2, argv);
    opts.first_rank = 4;
    opts.world_size = 6;
    opts.node_rank = 2;
    opts.nnodes = 3;
    opts.restart = 1;
    opts.max_restarts = 5;
    opts.master_addr = "10.0.0.1";
    opts.master_port = 4321;
    opts.timeout = 12.5;
    setenv("RANK", "77", 1);
    setenv("KEPT", "yes", 1);
    setenv("TORCHELASTIC_RUN_ID", "other", 1);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    outcome end = run_node(&opts);
    unsetenv("RANK");
    unsetenv("TORCHELASTIC_RUN_ID");
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    assert_int_equal(end.state, LK_LAUNCH_NODE_STATE_DONE);
    static const char *const lines[] = {
        "RANK=5",
        "LOCAL_RANK=1",
        "WORLD_SIZE=6",
        "LOCAL_WORLD_SIZE=2",
        "GROUP_RANK=2",
        "GROUP_WORLD_SIZE=3",
        "NODE_RANK=2",
        "ROLE_RANK=5",
        "KEPT=yes",
        "ROLE_WORLD_SIZE=6",
        "MASTER_ADDR=10.0.0.1",
        "MASTER_PORT=4321",
        "TORCHELASTIC_RESTART_COUNT=1",
        "TORCHELASTIC_MAX_RESTARTS=5",
        "LOCKSTEP_TOKEN=secret",
        "LOCKSTEP_TIMEOUT=12.5",
    };
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        char line[64];
        snprintf(line, sizeof line, "[5] %s\n", lines[i]);
        assert_contains(out_text, line);
    }
    assert_contains(out_text, "[4] RANK=4\n");
    assert_null(strstr(out_text, "RANK=77"));
    assert_null(strstr(out_text, "TORCHELASTIC_RUN_ID"));
    assert_null(strstr(out_text, "TORCHELASTIC_USE_AGENT_STORE"));
}

static void test_bind(void **state)
{
    char *argv[] = {"grep", "Cpus_allowed_list", "/proc/self/status", NULL};
    lk_launch_node_opts opts = node_opts(1, argv);
    opts.bind = LK_BIND_POLICY_CORE;
    outcome end = run_node(&opts);
    if (end.status == LK_STATUS_UNSUPPORTED) {
        assert_contains(lk_error_detail(), "`bind` none");
        skip();
    }
    assert_int_equal(end.state, LK_LAUNCH_NODE_STATE_DONE);
    assert_contains(out_text, "[0] Cpus_allowed_list:\t");
    void *sets;
    size_t bytes;
    int cores = 0;
    assert_int_equal(lk__bind_plan(300, &sets, &bytes, &cores), LK_OK);
    assert_true(cores > 0);
    lk__mem_free(sets);
}

/* Each rank gets its cores on a host with more CPUs than one cpu_set_t has. */
static void test_bind_many_cpus(void **state)
{
    enum { RANKS = 3, CPUS = 2400 };
    const size_t share = CPUS / RANKS;
    void *sets;
    size_t bytes;
    int cores = 0;
    setenv("HWLOC_SYNTHETIC", "core:2400 pu:1", 1);
    lk_status status = lk__bind_plan(RANKS, &sets, &bytes, &cores);
    unsetenv("HWLOC_SYNTHETIC");
    if (status == LK_STATUS_UNSUPPORTED)
        skip();
    assert_int_equal(status, LK_OK);
    assert_int_equal(cores, CPUS);
    for (size_t rank = 0; rank < RANKS; rank++) {
        const cpu_set_t *set = (const cpu_set_t *)(const void *)((const char *)sets + rank * bytes);
        assert_int_equal(CPU_COUNT_S(bytes, set), share);
        assert_true(CPU_ISSET_S(rank * share, bytes, set) && CPU_ISSET_S((rank + 1) * share - 1, bytes, set));
    }
    lk__mem_free(sets);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, temp_folder_tear_down)
TEST_MAIN(NULL, NULL, CASE(test_text_and_exit), CASE(test_order), CASE(test_environment), CASE(test_bind),
          CASE(test_bind_many_cpus))
