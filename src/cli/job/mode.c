/* mode.c - chooses the parallel mode. */
#include "cli/job/mode.h"

#include <stdio.h>

#include "parallel/layout/partition.h"

static lk_args_parallel guess(const lk_mode_facts *facts)
{
    if (facts->stages)
        return LK_ARGS_PARALLEL_PP;
    if (facts->processes > 1)
        return LK_ARGS_PARALLEL_DDP;
    return facts->devices > 1 ? LK_ARGS_PARALLEL_DP : LK_ARGS_PARALLEL_SINGLE;
}

static lk_status check_single(const lk_mode_facts *facts)
{
    if (facts->processes > 1)
        return lk__fail(LK_STATUS_USAGE,
                        "`parallel` single is one process, but this job has %d; leave `parallel` out, or start one",
                        facts->processes);
    if (facts->devices > 1)
        return lk__fail(LK_STATUS_USAGE,
                        "`parallel` single is one device, but there are %d; write `parallel` dp, or name one with "
                        "`devices`",
                        facts->devices);
    return LK_OK;
}

static lk_status check_dp(const lk_mode_facts *facts)
{
    if (facts->devices > 1)
        return LK_OK;
    return lk__fail(LK_STATUS_USAGE, "`parallel` dp needs several devices in a process, as in '`devices` cpu:0,cpu:1'; "
                                     "for several processes write `parallel` ddp -n 2");
}

/* A single rank that was asked for, such as by -n 1, is a valid job. */
static lk_status check_ddp(const lk_mode_facts *facts)
{
    if (!facts->alone || facts->devices > 1)
        return LK_OK;
    return lk__fail(
        LK_STATUS_USAGE,
        "`parallel` ddp needs ranks, and this process was started alone: lockstep train -n 2 --parallel ddp "
        "starts two here, lockstep run -n 2 lockstep train does, too; to train alone leave `parallel` out");
}

static lk_status check_pp(const lk_mode_facts *facts)
{
    int ranks = facts->processes * facts->devices, stages = lk__partition_count(facts->stages);
    if (!facts->stages && ranks == 1)
        return lk__fail(LK_STATUS_USAGE,
                        "`parallel` pp needs a rank for every stage, and there is one: lockstep train -n 2 --parallel "
                        "pp, or `devices` cpu:0,cpu:1 `parallel` pp");
    if (facts->stages && stages == 0)
        return lk__fail(LK_STATUS_USAGE,
                        "`stages` '%s' must be a whole number from 1 to %d, or names of layers with commas "
                        "between them",
                        facts->stages, LK_MAX_STAGES);
    if (facts->stages && ranks % stages != 0)
        return lk__fail(LK_STATUS_USAGE,
                        "`stages` '%s' cuts the model into %d stages, and %d rank%s cannot be shared evenly by them; "
                        "start %d (-n %d), or a multiple of it",
                        facts->stages, stages, ranks, ranks == 1 ? "" : "s", stages, stages);
    return LK_OK;
}

static lk_status check_stages(const lk_mode_facts *facts, lk_args_parallel parallel)
{
    if (parallel == LK_ARGS_PARALLEL_PP)
        return LK_OK;
    if (facts->stages)
        return lk__fail(LK_STATUS_USAGE,
                        "`stages` and `parallel` %s contradict each other; write `parallel` pp, or leave `stages` out",
                        lk__args_parallel_names[parallel]);
    if (facts->pipelined)
        return lk__fail(LK_STATUS_USAGE,
                        "`pipelined` is for stages of a model: add `parallel` pp, or `stages` 2, or leave it out");
    return LK_OK;
}

lk_status lk__mode_choose(const lk_mode_facts *facts, lk_mode *out)
{
    static lk_status (*const checks[])(const lk_mode_facts *facts) = {
        [LK_ARGS_PARALLEL_SINGLE] = check_single,
        [LK_ARGS_PARALLEL_DP] = check_dp,
        [LK_ARGS_PARALLEL_DDP] = check_ddp,
        [LK_ARGS_PARALLEL_PP] = check_pp,
    };
    lk_mode mode = {.parallel = facts->asked != LK_ARGS_PARALLEL_AUTO ? facts->asked : guess(facts)};
    LK_TRY(check_stages(facts, mode.parallel));
    LK_TRY(checks[mode.parallel](facts));
    if (mode.parallel == LK_ARGS_PARALLEL_PP && !facts->stages)
        snprintf(mode.whole, sizeof mode.whole, "%d", facts->processes * facts->devices);
    *out = mode;
    return LK_OK;
}
