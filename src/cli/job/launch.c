/* launch.c - reads the options of ranks and nodes, runs the job, and prints how it ended. */
#include "cli/job/launch.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cores.h"
#include "base/fault.h"
#include "base/spec.h"
#include "cli/cli.h"
#include "comm/detect/task.h"
#include "comm/rendezvous/rendezvous.h"
#include "tensor/device.h"

typedef struct job {
    const char *command;
    int max_restarts;
    bool progress;
} job;

/* Prints a line on stderr. */
static void print_notice(void *arg, const char *text)
{
    const job *j = arg;
    /* A progress line may be there. */
    fprintf(stderr, "%slockstep %s: %s\n", j->progress ? "\r\033[K" : "", j->command, lk__args_spell(text));
}

static void print_verdict(job *j, const lk_launch_verdict *verdict)
{
    char text[LK_MESSAGE_TEXT + 256];
    lk__launch_verdict_text(verdict, text, sizeof text);
    print_notice(j, text);
    const char *tail = verdict->cause.tail;
    if (verdict->outcome != LK_AGENT_OUTCOME_FAILED || !*tail || verdict->cause.shown)
        return;
    fprintf(stderr, "its last lines of stderr:\n");
    while (*tail) {
        int length = (int)strcspn(tail, "\n");
        fprintf(stderr, "    %.*s\n", length, tail);
        tail += length + (tail[length] == '\n');
    }
}

static void print_failed(void *arg, const lk_launch_verdict *verdict, int restart)
{
    job *j = arg;
    char text[64];
    print_verdict(j, verdict);
    snprintf(text, sizeof text, "restart %d of %d", restart + 1, j->max_restarts);
    print_notice(j, text);
}

static lk_status count_gpus(const char *command, int *out)
{
    const lk_device_type *gpus = lk__device_find("cuda");
    int count = gpus ? gpus->count() : 0;
    if (count < 1 || count > LK_MAX_NPROC)
        return lk__fail(LK_STATUS_UNSUPPORTED,
                        "%s: `nproc` (--nproc-per-node) gpu counts GPUs, of which %s has none; give a number or auto",
                        command, gpus ? "this machine" : "this build");
    *out = count;
    return LK_OK;
}

lk_status lk__cli_launch_ranks(const char *command, const char *text, int *out)
{
    long long count;
    if (strcmp(text, "auto") == 0 || strcmp(text, "cpu") == 0) {
        *out = lk__cores();
        return LK_OK;
    }
    if (strcmp(text, "gpu") == 0)
        return count_gpus(command, out);
    if (!lk__number_parse_int(text, 1, LK_MAX_NPROC, &count))
        return lk__fail(LK_STATUS_USAGE,
                        "%s: `nproc` '%s' (--nproc-per-node '%s') must be auto, gpu or a whole number from 1 to %d",
                        command, text, text, LK_MAX_NPROC);
    *out = (int)count;
    return LK_OK;
}

/* There are several options for the rendezvous of nodes; only one may be given. */
static lk_status check_rendezvous(const char *command, const lk_args_run *run)
{
    bool address = run->master_addr || run->master_port;
    const char *other = run->init_method ? "`init_method`" : "`rdzv_endpoint`";
    if (run->init_method && run->rdzv_endpoint)
        return lk__fail(LK_STATUS_USAGE,
                        "%s: `init_method` and `rdzv_endpoint` both give the rendezvous of nodes; give one", command);
    bool file = run->init_method && strncmp(run->init_method, "file://", 7) == 0;
    if (address && !file && (run->init_method || run->rdzv_endpoint))
        return lk__fail(LK_STATUS_USAGE,
                        "%s: `master_addr` or `master_port` and %s both give the rendezvous of nodes; give one",
                        command, other);
    return LK_OK;
}

static lk_status check_nodes(const char *command, const lk_args_run *run)
{
    if (run->standalone && run->nnodes > 1)
        return lk__fail(LK_STATUS_USAGE, "%s: `standalone` and `nnodes` %d contradict each other; give one", command,
                        run->nnodes);
    if (run->nnodes > 1 && !run->node_rank_given)
        return lk__fail(LK_STATUS_USAGE, "%s: `nnodes` %d needs `node_rank`, from 0 to %d, another one on each node",
                        command, run->nnodes, run->nnodes - 1);
    if (run->node_rank >= run->nnodes)
        return lk__fail(LK_STATUS_USAGE, "%s: `node_rank` %d must be below `nnodes` %d", command, run->node_rank,
                        run->nnodes);
    return LK_OK;
}

/* Whether the launcher has started one task on each node. */
static bool is_one_a_node(const lk_task *task)
{
    int size = lk__task_number(task, LK_TASK_QUANTITY_SIZE, 0),
        nodes = lk__task_number(task, LK_TASK_QUANTITY_NODES, 0);
    return nodes ? size == nodes : lk__task_number(task, LK_TASK_QUANTITY_LOCAL_SIZE, 0) == 1;
}

static lk_status fail_crowded(const char *command, const lk_args_run *run, const lk_task *task)
{
    const char *program = strcmp(command, "run") == 0 ? " PROGRAM" : "", *ranks = run->nproc ? run->nproc : "1";
    char text[256], one_a_node[128], start[64];
    bool counts = task->launcher->count && strcmp(task->launcher->count, "-n ") == 0;
    lk__task_text(task, text, sizeof text);
    snprintf(start, sizeof start, counts ? "%s -n %d" : "%s", task->launcher->command,
             lk__task_number(task, LK_TASK_QUANTITY_SIZE, 0));
    lk__task_one_a_node(task->launcher, lk__task_number(task, LK_TASK_QUANTITY_NODES, 0), one_a_node,
                        sizeof one_a_node);
    return lk__fail(
        LK_STATUS_USAGE,
        "%s: each task would start %s rank%s of its own (%s). Leave `nproc` of lockstep %s out, and every task "
        "is a rank: %s %s. Or start one task on each node: %s lockstep %s -n %s%s",
        command, ranks, strcmp(ranks, "1") == 0 ? "" : "s", text, command, start,
        *program ? "PROGRAM" : "lockstep train ...", one_a_node, command, ranks, program);
}

/* A launcher in the only task of a node is the launcher of that node. */
static lk_status take_task(const char *command, const lk_args_run *run, const lk_task *task, lk_launch_opts *opts)
{
    LK_TRY(lk__task_check(task));
    LK_TRY(lk__task_need(task, LK_TASK_QUANTITY_SIZE));
    LK_TRY(lk__task_need(task, LK_TASK_QUANTITY_RANK));
    if (!is_one_a_node(task))
        return fail_crowded(command, run, task);
    opts->nnodes = task->values[LK_TASK_QUANTITY_SIZE].number;
    opts->node_rank = task->values[LK_TASK_QUANTITY_RANK].number;
    if (opts->nnodes > LK_MAX_NODES || opts->node_rank >= opts->nnodes)
        return lk__fail(LK_STATUS_USAGE, "%s: %s is '%s' of %d nodes; there may be %d, and nodes count from 0", command,
                        task->values[LK_TASK_QUANTITY_RANK].source, task->values[LK_TASK_QUANTITY_RANK].text,
                        opts->nnodes, LK_MAX_NODES);
    opts->tasks = !run->init_method && !run->rdzv_endpoint && !run->master_addr;
    return LK_OK;
}

/* Outside of the tasks of a job, a launcher uses its own node only. */
static void print_unused(const char *command, const lk_task *task)
{
    const lk_task_allocation *all = &task->allocation;
    char one_a_node[128];
    if (!all->scheduler || all->nodes < 2 || task->launcher)
        return;
    lk__task_one_a_node(all->scheduler, all->nodes, one_a_node, sizeof one_a_node);
    fprintf(stderr, "lockstep %s: uses 1 of the %d nodes of %s job %s; '%s lockstep %s ...' uses all\n", command,
            all->nodes, all->scheduler->name, all->job, one_a_node, command);
}

/* torchrun takes 127.0.0.1, too, if no address is given. It is right on one host only. */
static void print_no_address(const char *command, const lk_args_run *run)
{
    char text[256];
    if (run->nnodes < 2 || run->init_method || run->rdzv_endpoint || run->master_addr)
        return;
    snprintf(text, sizeof text,
             "without `master_addr` node 0 is at 127.0.0.1, so all %d nodes must be on this host; for several hosts "
             "give all of them `master_addr` HOST, the address of node 0",
             run->nnodes);
    fprintf(stderr, "lockstep %s: %s\n", command, lk__args_spell(text));
}

/* A rank of a job may start another job; tasks of a scheduler become the nodes of one job. */
static lk_status find_nodes(const char *command, const lk_args_run *run, lk_launch_opts *opts)
{
    lk_task task;
    const char *rank = getenv("RANK");
    if (run->nnodes_given || run->standalone || (rank && *rank))
        return LK_OK;
    lk__task_find(NULL, NULL, &task);
    if (task.several && !task.by_torchrun)
        return take_task(command, run, &task, opts);
    print_unused(command, &task);
    return LK_OK;
}

lk_status lk__cli_launch_options(const char *command, const lk_args *args, lk_launch_opts *out)
{
    const lk_args_run *run = &args->run;
    lk_launch_opts opts = {
        .nnodes = run->nnodes,
        .node_rank = run->node_rank,
        .init_method = run->init_method,
        .master_addr = run->master_addr,
        .master_port = run->master_port,
        .max_restarts = run->max_restarts,
        .bind = run->bind == 0 ? LK_BIND_POLICY_NONE : LK_BIND_POLICY_CORE,
        .log_dir = run->log_dir,
        .grace = run->grace,
        .backend = args->backend,
    };
    LK_TRY(check_rendezvous(command, run));
    LK_TRY(check_nodes(command, run));
    LK_TRY(find_nodes(command, run, &opts));
    LK_TRY(lk__args_check_backend(args->backend));
    LK_TRY(lk__meeting_timeout(run->timeout, &opts.timeout));
    LK_TRY(lk__cli_launch_ranks(command, run->nproc ? run->nproc : "1", &opts.nproc));
    print_no_address(command, run);
    *out = opts;
    return LK_OK;
}

int lk__cli_launch(const char *command, lk_launch_opts *opts)
{
    job j = {.command = command, .max_restarts = opts->max_restarts, .progress = opts->progress};
    lk_launch_verdict verdict;
    lk__fault_set_process(-1); /* a launcher is not a rank */
    opts->notice = print_notice;
    opts->failed = print_failed;
    opts->arg = &j;
    lk_status status = lk__launch_run(opts, &verdict);
    if (status != LK_OK)
        return lk__cli_fail(status);
    /* A reader that closed its end wants no more output; this is no error. */
    bool unread = verdict.outcome == LK_AGENT_OUTCOME_INTERRUPTED && verdict.signal == SIGPIPE;
    if (verdict.outcome != LK_AGENT_OUTCOME_DONE && !unread)
        print_verdict(&j, &verdict);
    return lk__launch_verdict_exit(&verdict);
}
