/* join.c - determines how this process was started, and which options are missing. */
#include "cli/job/join.h"

#include <stdlib.h>
#include <string.h>

#include "base/spec.h"
#include "comm/rendezvous/rendezvous.h"
#include "launch/scheduler.h"
#include "net/host.h"

static bool is_set(const char *name)
{
    const char *text = getenv(name);
    return text && *text;
}

/* Whether a launcher has made this process part of a job. WORLD_SIZE above 1 without RANK counts too, and is
 * reported as an error later: training alone is not what the user wants then. */
static bool in_job(void)
{
    const char *size = getenv("WORLD_SIZE");
    return is_set("RANK") || (size && *size && strcmp(size, "1") != 0);
}

static bool is_env(const char *method)
{
    return method && strncmp(method, "env://", 6) == 0;
}

/* Refuses options of other ways to start beside those of a launcher. */
static lk_status check_launch(const lk_args_run *run)
{
    const char *rank = getenv("RANK");
    if (is_set("RANK"))
        return lk__fail(LK_STATUS_USAGE,
                        "train: %s starts ranks, but this process is rank %s of a job already (RANK is set); leave it "
                        "out, or unset RANK",
                        run->nproc ? "`nproc`" : "`nnodes`", rank);
    if (run->rank_given || run->world_size)
        return lk__fail(
            LK_STATUS_USAGE,
            "train: %s is for ranks that are started by hand, `nproc` and `nnodes` start them; give one or the "
            "other: " LK_HAND_LINE ", or " LK_NODE_LINE,
            run->rank_given ? "`rank`" : "`world_size`");
    return LK_OK;
}

/* Refuses options that only a launcher uses. */
static lk_status check_not_launch(const lk_args_run *run)
{
    const char *flag = run->node_rank_given ? "`node_rank`"
                       : run->master_addr   ? "`master_addr`"
                       : run->master_port   ? "`master_port`"
                       : run->bind_given    ? "`bind`"
                                            : NULL;
    if (!flag)
        return LK_OK;
    return lk__fail(LK_STATUS_USAGE,
                    "train: %s is for ranks that this command starts; add `nproc` or `nnodes`: " LK_NODE_LINE, flag);
}

static lk_status check_hand(const lk_args_run *run)
{
    const char *missing = !run->init_method ? "`init_method`" : !run->rank_given ? "`rank`" : "`world_size`";
    if (run->init_method && run->rank_given && run->world_size > 0) {
        if (run->rank >= run->world_size)
            return lk__fail(LK_STATUS_USAGE, "train: `rank` %d must be below `world_size` %d", run->rank,
                            run->world_size);
        return LK_OK;
    }
    return lk__fail(LK_STATUS_USAGE,
                    "train: %s is missing; a rank that is started by hand needs all three: " LK_HAND_LINE, missing);
}

/* env:// takes the rank from the environment, so a rank on the command line is refused. */
static lk_status check_env(const lk_args_run *run)
{
    if (run->rank_given || run->world_size)
        return lk__fail(LK_STATUS_USAGE,
                        "train: %s and env:// contradict each other: with env:// RANK and WORLD_SIZE are variables; "
                        "give one or the other: " LK_HAND_LINE,
                        run->rank_given ? "`rank`" : "`world_size`");
    if (!in_job())
        return lk__fail(LK_STATUS_USAGE,
                        "train: `init_method` env:// needs the variables that a launcher sets (RANK, WORLD_SIZE, "
                        "MASTER_ADDR, MASTER_PORT): lockstep train -n 4, or " LK_HAND_LINE);
    return LK_OK;
}

static lk_status find_env(const lk_args_run *run, lk_join *join)
{
    LK_TRY(check_env(run));
    int rank = lk__variable_int("RANK", LK_MAX_RANKS), size = lk__variable_int("WORLD_SIZE", LK_MAX_RANKS);
    if (rank < 0 || size < 1 || rank >= size)
        return lk__fail(LK_STATUS_USAGE,
                        "train: the variable RANK is '%s' and WORLD_SIZE '%s': a launcher sets both, the rank below "
                        "the size; unset both to train alone, or start ranks by lockstep train -n 4",
                        is_set("RANK") ? getenv("RANK") : "", is_set("WORLD_SIZE") ? getenv("WORLD_SIZE") : "");
    int local_rank = lk__variable_int("LOCAL_RANK", LK_MAX_RANKS),
        local_size = lk__variable_int("LOCAL_WORLD_SIZE", LK_MAX_RANKS);
    bool known = local_rank >= 0 && local_size > local_rank;
    join->way = size > 1 ? LK_JOIN_ENV : LK_JOIN_ALONE;
    join->rank = rank;
    join->processes = size;
    join->local_rank = known ? local_rank : 0;
    join->local_size = known ? local_size : 0;
    join->group.init_method = "env://";
    return LK_OK;
}

static lk_status find_hand(const lk_args_run *run, lk_join *join)
{
    LK_TRY(check_hand(run));
    join->way = run->world_size > 1 ? LK_JOIN_HAND : LK_JOIN_ALONE;
    join->rank = run->rank;
    join->processes = run->world_size;
    join->group.init_method = run->init_method;
    join->group.rank = run->rank;
    join->group.world_size = run->world_size;
    return LK_OK;
}

static lk_status find_way(const lk_args_run *run, lk_join *join)
{
    join->size_known = true;
    if (run->nproc || run->nnodes_given) {
        LK_TRY(check_launch(run));
        join->way = LK_JOIN_LAUNCH;
        return LK_OK;
    }
    LK_TRY(check_not_launch(run));
    if (is_env(run->init_method))
        return find_env(run, join);
    if (run->init_method || run->rank_given || run->world_size)
        return find_hand(run, join);
    if (in_job())
        return find_env(run, join);
    join->size_known = false;
    return lk__scheduler_check_alone("train");
}

static lk_join one_process(const lk_args *args)
{
    return (lk_join){.processes = 1, .group = {.backend = args->backend, .timeout = args->run.timeout}};
}

lk_status lk__join_launched(const lk_args *args, lk_join *out)
{
    lk_join join = one_process(args);
    join.size_known = true;
    LK_TRY(find_env(&args->run, &join));
    *out = join;
    return LK_OK;
}

lk_status lk__join_find(const lk_args *args, lk_join *out)
{
    lk_join join = one_process(args);
    LK_TRY(find_way(&args->run, &join));
    *out = join;
    return LK_OK;
}
