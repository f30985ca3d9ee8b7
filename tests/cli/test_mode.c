/* test_mode.c - the parallel mode of a run, and options that contradict each other. */
#include "check.h"
#include "cli/job/mode.h"

#define AUTO LK_ARGS_PARALLEL_AUTO
#define SINGLE LK_ARGS_PARALLEL_SINGLE
#define DP LK_ARGS_PARALLEL_DP
#define DDP LK_ARGS_PARALLEL_DDP
#define PP LK_ARGS_PARALLEL_PP

typedef struct choice {
    lk_args_parallel asked;
    int processes, devices;
    const char *stages;
    lk_args_parallel wanted;
    const char *whole;
} choice;

static void modes_follow_from_what_there_is(void **state)
{
    static const choice choices[] = {
        {AUTO, 1, 1, NULL, SINGLE, ""}, {AUTO, 1, 3, NULL, DP, ""},       {AUTO, 4, 1, NULL, DDP, ""},
        {AUTO, 2, 2, NULL, DDP, ""},    {AUTO, 2, 1, "2", PP, ""},        {AUTO, 1, 4, "fc1", PP, ""},
        {AUTO, 3, 1, "1", PP, ""},      {SINGLE, 1, 1, NULL, SINGLE, ""}, {DP, 1, 2, NULL, DP, ""},
        {DP, 2, 2, NULL, DP, ""},       {DDP, 1, 1, NULL, DDP, ""},       {DDP, 1, 2, NULL, DDP, ""},
        {PP, 2, 2, NULL, PP, "4"},      {PP, 6, 1, "a,b", PP, ""},
    };
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        const choice *c = &choices[i];
        lk_mode_facts facts = {
            .asked = c->asked, .processes = c->processes, .devices = c->devices, .stages = c->stages};
        lk_mode mode;
        assert_int_equal(lk__mode_choose(&facts, &mode), LK_OK);
        assert_int_equal(mode.parallel, c->wanted);
        assert_string_equal(mode.whole, c->whole);
    }
}

typedef struct refusal {
    lk_mode_facts facts;
    const char *first, *second; /* parts of the detail */
} refusal;

static void contradictions_say_what_to_do(void **state)
{
    static const refusal refusals[] = {
        {{SINGLE, 4, false, 1, NULL, false}, "has 4", "leave `parallel` out"},
        {{SINGLE, 1, false, 2, NULL, false}, "there are 2", "`parallel` dp"},
        {{SINGLE, 1, false, 1, "2", false}, "`parallel` single", "`parallel` pp"},
        {{DP, 1, false, 1, NULL, false}, "several devices", "`devices` cpu:0,cpu:1"},
        {{DP, 1, false, 2, "2", false}, "`parallel` dp", "`parallel` pp"},
        {{DDP, 4, false, 1, "2", false}, "`parallel` ddp", "`parallel` pp"},
        {{DDP, 4, false, 1, NULL, true}, "`pipelined`", "`parallel` pp"},
        {{AUTO, 1, false, 1, NULL, true}, "`pipelined`", "`stages` 2"},
        {{PP, 1, false, 1, NULL, false}, "`parallel` pp", "-n 2"},
        {{DDP, 1, true, 1, NULL, false}, "`parallel` ddp needs ranks", "lockstep train -n 2"},
        {{PP, 3, false, 1, "2", false}, "2 stages", "3 ranks"},
        {{AUTO, 4, false, 1, "fc1,fc2", false}, "3 stages", "4 ranks"},
        {{AUTO, 1, false, 1, "2", false}, "2 stages, and 1 rank ", "-n 2"},
        {{PP, 2, false, 1, "0", false}, "`stages` '0'", "from 1"},
        {{PP, 2, false, 1, "-2", false}, "`stages` '-2'", "from 1"},
        {{PP, 2, false, 1, "+3", false}, "3 stages", "2 ranks"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        lk_mode mode;
        assert_fails(lk__mode_choose(&refusals[i].facts, &mode), LK_STATUS_USAGE, refusals[i].first);
        assert_detail(refusals[i].second);
    }
}

/* Several devices of a single process are ranks. */
static void ddp_alone_takes_several_devices(void **state)
{
    lk_mode mode;
    lk_mode_facts facts = {.asked = DDP, .processes = 1, .alone = true, .devices = 2};
    assert_int_equal(lk__mode_choose(&facts, &mode), LK_OK);
    facts.devices = 1;
    assert_int_equal(lk__mode_choose(&facts, &mode), LK_STATUS_USAGE);
    facts.asked = AUTO;
    assert_int_equal(lk__mode_choose(&facts, &mode), LK_OK);
    assert_int_equal(mode.parallel, SINGLE);
}

static void stages_are_counted(void **state)
{
    assert_int_equal(lk__partition_count(NULL), 1);
    assert_int_equal(lk__partition_count("1"), 1);
    assert_int_equal(lk__partition_count("12"), 12);
    assert_int_equal(lk__partition_count("+3"), 3);
    assert_int_equal(lk__partition_count("fc1"), 2);
    assert_int_equal(lk__partition_count("fc1,fc2"), 3);
    assert_int_equal(lk__partition_count("0"), 0);
    assert_int_equal(lk__partition_count("-1"), 0);
    assert_int_equal(lk__partition_count("99999999999"), 0);
}

TEST_MAIN(NULL, NULL, TEST(modes_follow_from_what_there_is), TEST(contradictions_say_what_to_do),
          TEST(ddp_alone_takes_several_devices), TEST(stages_are_counted))
