/* join.c - determines how this process was started, and which options are missing. */
#include "cli/job/join.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/spec.h"
#include "comm/detect/task.h"
#include "net/host.h"
#include "net/socket.h"

static bool is_set(const char *name)
{
    const char *text = getenv(name);
    return text && *text;
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
                        run->nproc          ? "`nproc`"
                        : run->nnodes_given ? "`nnodes`"
                                            : "`standalone`",
                        rank);
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

static lk_status check_hand(const lk_join *join, const char *missing)
{
    if (missing)
        return lk__fail(LK_STATUS_USAGE,
                        "train: %s is missing; a rank that is started by hand needs all three: " LK_HAND_LINE, missing);
    if (join->rank >= join->processes)
        return lk__fail(LK_STATUS_USAGE, "train: `rank` %d must be below `world_size` %d", join->rank, join->processes);
    return LK_OK;
}

/* env:// takes the rank from the environment, so a rank on the command line is refused. */
static lk_status check_env(const lk_args_run *run, const lk_task *task)
{
    if (run->rank_given || run->world_size)
        return lk__fail(LK_STATUS_USAGE,
                        "train: %s and env:// contradict each other: with env:// RANK and WORLD_SIZE are variables; "
                        "give one or the other: " LK_HAND_LINE,
                        run->rank_given ? "`rank`" : "`world_size`");
    if (!lk__task_joins(task) && !task->launcher)
        return lk__fail(LK_STATUS_USAGE,
                        "train: `init_method` env:// needs the variables that a launcher sets (RANK, WORLD_SIZE, "
                        "MASTER_ADDR, MASTER_PORT): lockstep train -n 4, or " LK_HAND_LINE);
    return LK_OK;
}

/* Writes "NAME is 'VALUE'", or that the variable is not set. */
static void describe_variable(const char *name, char text[96])
{
    if (is_set(name))
        snprintf(text, 96, "%s is '%.64s'", name, getenv(name));
    else
        snprintf(text, 96, "%s is not set", name);
}

/* RANK and WORLD_SIZE, which somebody has set, are not those of a rank. */
static lk_status fail_variables(void)
{
    char rank[96], size[96], slurm[192] = "";
    describe_variable("RANK", rank);
    describe_variable("WORLD_SIZE", size);
    if (!is_set("RANK") && is_set("SLURM_PROCID") && !is_set("SLURM_STEP_ID"))
        snprintf(slurm, sizeof slurm,
                 " (SLURM_PROCID is '%.64s', but SLURM_STEP_ID is not set, so this process is no task of srun)",
                 getenv("SLURM_PROCID"));
    return lk__fail(
        LK_STATUS_USAGE,
        "train: the variable %s%s and %s: a launcher sets both, the rank below the size, and the size to at "
        "most %d; unset both to train alone, or start ranks by lockstep train -n 4",
        rank, slurm, size, LK_MAX_RANKS);
}

/* Checks the rank and the size of a task that is to join. */
static lk_status check_task(const lk_task *task)
{
    int rank = lk__task_number(task, LK_TASK_QUANTITY_RANK, -1),
        size = lk__task_number(task, LK_TASK_QUANTITY_SIZE, -1);
    bool wrong = rank < 0 || size < 1 || size > LK_MAX_RANKS || rank >= size;
    if (wrong && (!task->launcher || task->by_torchrun))
        return fail_variables();
    LK_TRY(lk__task_check(task));
    LK_TRY(lk__task_need(task, LK_TASK_QUANTITY_SIZE));
    LK_TRY(lk__task_need(task, LK_TASK_QUANTITY_RANK));
    if (wrong)
        return lk__fail(LK_STATUS_USAGE,
                        "train: the variable %s is '%d' and %s '%d': the rank must be below the number of tasks, of "
                        "which a job has at most %d; start the tasks by one %s",
                        task->values[LK_TASK_QUANTITY_RANK].source, rank, task->values[LK_TASK_QUANTITY_SIZE].source,
                        size, LK_MAX_RANKS, task->launcher->command);
    return LK_OK;
}

/* One process in an allocation of several tasks, outside of them, would train alone. */
static lk_status check_allocation(const lk_task *task)
{
    const lk_task_allocation *all = &task->allocation;
    bool outside = !task->launcher || (task->by_torchrun && !task->values[LK_TASK_QUANTITY_RANK].known);
    if (!all->scheduler || all->tasks < 2 || !outside)
        return LK_OK;
    return lk__fail(LK_STATUS_USAGE,
                    "train: %s job %s has %d tasks, and this process is none of them: it would train alone. Write '%s "
                    "lockstep train ...' to train with all tasks; add '-n 1' to train in this process only",
                    all->scheduler->name, all->job, all->tasks, all->scheduler->command);
}

/* The only process, without a launcher: what a user may have expected to be otherwise. */
static void note_process(const lk_args *args, const lk_task *task, lk_join *join)
{
    const lk_task_allocation *all = &task->allocation;
    if (all->scheduler && *all->unread)
        snprintf(join->note, sizeof join->note,
                 "%s job %s does not say how many tasks it has, so this process trains alone: %.200s",
                 all->scheduler->name, all->job, all->unread);
    else if (args->backend && strcmp(args->backend, "mpi") == 0)
        snprintf(join->note, sizeof join->note,
                 "--backend mpi has no effect, because no launcher has started ranks; 'mpirun -n 4 lockstep train "
                 "--backend mpi "
                 "...' starts four");
}

/* torchrun --nproc-per-node 1, or variables that are left over, in each task of srun: no task trains with another. */
static void note_alone(const lk_task *task, lk_join *join)
{
    if (task->outer)
        snprintf(join->note, sizeof join->note,
                 "one of the %d tasks of %s trains alone here, because %s is 1; '%s lockstep train ...' without %s and "
                 "its variables trains with all tasks",
                 task->outer_tasks, task->outer->name, task->values[LK_TASK_QUANTITY_SIZE].source, task->outer->command,
                 task->launcher->name);
}

/* Other nodes cannot reach a loopback address of the node of rank 0. */
static void note_loopback(const lk_task *task, lk_join *join)
{
    const lk_task_value *host = &task->values[LK_TASK_QUANTITY_HOST];
    int nodes = lk__task_number(task, LK_TASK_QUANTITY_NODES, 1);
    if (nodes > 1 && host->known && strcmp(host->source, "MASTER_ADDR") == 0 && lk__net_is_loopback(host->text))
        snprintf(join->note, sizeof join->note,
                 "MASTER_ADDR is %.64s, which every node takes for itself, and there are %d nodes: set it to the host "
                 "of rank 0",
                 host->text, nodes);
}

/* Sets what a task knows beside its rank. */
static void take_place(const lk_args *args, const lk_task *task, lk_join *join)
{
    int rank = lk__task_number(task, LK_TASK_QUANTITY_LOCAL_RANK, -1),
        size = lk__task_number(task, LK_TASK_QUANTITY_LOCAL_SIZE, -1);
    int gpus = lk__task_number(task, LK_TASK_QUANTITY_GPUS, 0);
    bool known = rank >= 0 && size > rank;
    join->local_rank = known ? rank : 0;
    join->local_size = known ? size : 0;
    join->cpus = lk__task_number(task, LK_TASK_QUANTITY_CPUS, 0);
    if (!task->by_torchrun)
        lk__task_text(task, join->started, sizeof join->started);
    if (known && gpus > 0 && gpus != size && !args->devices.named)
        snprintf(join->note, sizeof join->note,
                 "%s gives this node %d GPU%s and %d task%s; a task for each GPU (%s) uses all of them once",
                 task->launcher->name, gpus, gpus == 1 ? "" : "s", size, size == 1 ? "" : "s",
                 task->values[LK_TASK_QUANTITY_GPUS].source);
    note_loopback(task, join);
}

static lk_status find_env(const lk_args *args, const lk_task *task, lk_join *join)
{
    LK_TRY(check_env(&args->run, task));
    LK_TRY(check_allocation(task));
    LK_TRY(check_task(task));
    join->rank = task->values[LK_TASK_QUANTITY_RANK].number;
    join->processes = task->values[LK_TASK_QUANTITY_SIZE].number;
    join->way = join->processes > 1 ? LK_JOIN_WAY_ENV : LK_JOIN_WAY_ALONE;
    take_place(args, task, join);
    note_alone(task, join);
    join->group.init_method = "env://";
    return LK_OK;
}

/* A rank and a size that are not given come from the launcher of several tasks, or from the job array. */
static lk_status fill_hand(const lk_args *args, const lk_task *task, lk_join *join)
{
    const lk_args_run *run = &args->run;
    bool array = !task->several && task->values[LK_TASK_QUANTITY_ARRAY_RANK].known;
    bool none = run->init_method && !run->rank_given && !run->world_size, use = none && (array || task->several);
    if (none && !use && task->values[LK_TASK_QUANTITY_ARRAY_SIZE].known)
        return lk__fail(LK_STATUS_USAGE,
                        "train: the indices of this job array of %s jobs have gaps, so they do not say which rank this "
                        "is: submit it with --array=0-%d, or give every job its `rank` and `world_size`",
                        task->values[LK_TASK_QUANTITY_ARRAY_SIZE].text,
                        task->values[LK_TASK_QUANTITY_ARRAY_SIZE].number - 1);
    if (!use)
        return check_hand(join, !run->init_method  ? "`init_method`"
                                : !run->rank_given ? "`rank`"
                                : !run->world_size ? "`world_size`"
                                                   : NULL);
    if (!array) {
        LK_TRY(check_task(task));
        take_place(args, task, join);
    }
    join->rank = task->values[array ? LK_TASK_QUANTITY_ARRAY_RANK : LK_TASK_QUANTITY_RANK].number;
    join->processes = task->values[array ? LK_TASK_QUANTITY_ARRAY_SIZE : LK_TASK_QUANTITY_SIZE].number;
    if (array)
        snprintf(join->started, sizeof join->started, "Slurm job array: %d jobs", join->processes);
    return LK_OK;
}

static lk_status find_hand(const lk_args *args, const lk_task *task, lk_join *join)
{
    join->rank = args->run.rank;
    join->processes = args->run.world_size;
    LK_TRY(fill_hand(args, task, join));
    join->way = join->processes > 1 ? LK_JOIN_WAY_HAND : LK_JOIN_WAY_ALONE;
    join->group.init_method = args->run.init_method;
    join->group.rank = join->rank;
    join->group.world_size = join->processes;
    return LK_OK;
}

static lk_status find_way(const lk_args *args, lk_join *join)
{
    const lk_args_run *run = &args->run;
    lk_task task;
    join->size_known = true;
    lk__task_find(NULL, NULL, &task);
    if (run->nproc || run->nnodes_given || run->standalone) {
        LK_TRY(check_launch(run));
        join->way = LK_JOIN_WAY_LAUNCH;
        if (task.several && !task.by_torchrun)
            lk__task_text(&task, join->started, sizeof join->started);
        return LK_OK;
    }
    LK_TRY(check_not_launch(run));
    if (is_env(run->init_method))
        return find_env(args, &task, join);
    if (run->init_method || run->rank_given || run->world_size)
        return find_hand(args, &task, join);
    if (lk__task_joins(&task))
        return find_env(args, &task, join);
    join->size_known = false;
    join->cpus = lk__task_number(&task, LK_TASK_QUANTITY_CPUS, 0);
    note_process(args, &task, join);
    note_alone(&task, join);
    return check_allocation(&task);
}

static lk_join one_process(const lk_args *args)
{
    return (lk_join){.processes = 1, .group = {.backend = args->backend, .timeout = args->run.timeout}};
}

lk_status lk__join_launched(const lk_args *args, lk_join *out)
{
    lk_join join = one_process(args);
    lk_task task;
    join.size_known = true;
    lk__task_find(NULL, NULL, &task);
    LK_TRY(find_env(args, &task, &join));
    *out = join;
    return LK_OK;
}

lk_status lk__join_find(const lk_args *args, lk_join *out)
{
    lk_join join = one_process(args);
    LK_TRY(lk__args_check_backend(args->backend));
    LK_TRY(find_way(args, &join));
    *out = join;
    return LK_OK;
}
