/* task.c - merges the rows of the table into one task, and derives what follows from them. */
#include "comm/detect/task.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/spec.h"
#include "comm/detect/launchers.h"

enum { MOST = 1 << 24, LAST_PORT = 65535 };
enum { FIRST_PORT = 12000, PORT_SLOTS = 1024 };

static const char LOOPBACK[] = "127.0.0.1", ONE_NODE[] = "all tasks are on one node";

static const char *const names[LK_TASK_QUANTITY_COUNT] = {
    [LK_TASK_QUANTITY_RANK] = "rank",
    [LK_TASK_QUANTITY_SIZE] = "world size",
    [LK_TASK_QUANTITY_LOCAL_RANK] = "local rank",
    [LK_TASK_QUANTITY_LOCAL_SIZE] = "tasks on this node",
    [LK_TASK_QUANTITY_NODE] = "node",
    [LK_TASK_QUANTITY_NODES] = "nodes",
    [LK_TASK_QUANTITY_CPUS] = "cpus of the task",
    [LK_TASK_QUANTITY_GPUS] = "gpus of the node",
    [LK_TASK_QUANTITY_HOST] = "host of rank 0",
    [LK_TASK_QUANTITY_PORT] = "port",
    [LK_TASK_QUANTITY_JOB] = "job",
    [LK_TASK_QUANTITY_ARRAY_RANK] = "index in the array",
    [LK_TASK_QUANTITY_ARRAY_SIZE] = "jobs of the array",
};

const char *lk__task_quantity_name(lk_task_quantity what)
{
    return names[what];
}

int lk__task_number(const lk_task *task, lk_task_quantity what, int otherwise)
{
    return task->values[what].known ? task->values[what].number : otherwise;
}

static bool is_text(lk_task_quantity what)
{
    return what == LK_TASK_QUANTITY_HOST || what == LK_TASK_QUANTITY_JOB;
}

/* Values without which nobody can join: a wrong one is a problem, others are taken as unknown. For a port, see
 * check_port. */
static bool is_vital(lk_task_quantity what)
{
    return what == LK_TASK_QUANTITY_RANK || what == LK_TASK_QUANTITY_SIZE;
}

static void set_problem(lk_task *task, const char *text)
{
    if (!*task->problem)
        snprintf(task->problem, sizeof task->problem, "%s", text);
}

static void refuse_number(lk_task *task, lk_task_quantity what, const char *name, const char *text)
{
    char problem[512];
    bool port = what == LK_TASK_QUANTITY_PORT;
    int least = what == LK_TASK_QUANTITY_RANK ? 0 : 1;
    snprintf(problem, sizeof problem,
             "the variable %s is '%.64s': it must be a number from %d%s; set it right, or unset it", name, text, least,
             port ? " to 65535" : " on");
    set_problem(task, problem);
}

static void refuse_text(lk_task *task, const char *name)
{
    char problem[256];
    snprintf(problem, sizeof problem, "the variable %s is longer than %d characters; set it right, or unset it", name,
             LK_TASK_TEXT - 1);
    set_problem(task, problem);
}

static void read_variable(const lk_launcher_reader *reader, lk_task_quantity what, const char *const *variables,
                          lk_task *task, lk_task_value *out)
{
    const char *text = NULL;
    long long number = 0, least = what == LK_TASK_QUANTITY_SIZE || what == LK_TASK_QUANTITY_PORT ? 1 : 0;
    int i = 0;
    while (i < LK_LAUNCHER_NAMES && variables[i] && !(text = lk__launcher_get(reader, variables[i])))
        i++;
    if (!text)
        return;
    if (is_text(what) && strlen(text) < LK_TASK_TEXT)
        lk__launcher_set(out, 0, text, variables[i]);
    else if (is_text(what))
        refuse_text(task, variables[i]);
    else if (lk__number_parse_int(text, least, what == LK_TASK_QUANTITY_PORT ? LAST_PORT : MOST, &number))
        lk__launcher_set(out, (int)number, NULL, variables[i]);
    else if (is_vital(what))
        refuse_number(task, what, variables[i], text);
}

/* Reads the values of one row; false if it has neither a rank nor a size nor an address. */
static bool read_row(const lk_launcher_row *row, const lk_launcher_reader *reader, lk_task *task,
                     lk_task_value values[LK_TASK_QUANTITY_COUNT])
{
    bool any = false;
    memset(values, 0, LK_TASK_QUANTITY_COUNT * sizeof *values);
    if (row->started && !row->started(reader))
        return false;
    for (int i = 0; i < LK_LAUNCHER_VARIABLES && row->variables[i].names[0]; i++) {
        lk_task_quantity what = row->variables[i].what;
        read_variable(reader, what, row->variables[i].names, task, &values[what]);
    }
    if (row->derive)
        row->derive(reader, values);
    for (int i = 0; i < LK_TASK_QUANTITY_COUNT; i++) {
        values[i].launcher = &row->launcher;
        any |= values[i].known && i != LK_TASK_QUANTITY_JOB;
    }
    return any;
}

static void contradict(lk_task *task, lk_task_quantity what, const lk_task_value *inner, const lk_task_value *outer)
{
    char problem[512];
    snprintf(problem, sizeof problem,
             "the variable %s says that the %s is %s, and %s of %s says %s: unset the wrong one, or start the tasks so "
             "that both agree",
             inner->source, names[what], inner->text, outer->source, outer->launcher->name, outer->text);
    set_problem(task, problem);
}

/* Adds the values of an outer row. The host may be written in several ways, and jobs have several names. */
static void merge(lk_task *task, const lk_task_value values[LK_TASK_QUANTITY_COUNT])
{
    for (int i = 0; i < LK_TASK_QUANTITY_COUNT; i++) {
        lk_task_value *mine = &task->values[i];
        if (!values[i].known)
            continue;
        if (!mine->known)
            *mine = values[i];
        else if (!is_text((lk_task_quantity)i) && mine->number != values[i].number)
            contradict(task, (lk_task_quantity)i, mine, &values[i]);
    }
}

static bool is_known(const lk_task_value *values, lk_task_quantity what)
{
    return values[what].known;
}

/* Rule 3. A wrapper script in a task of srun may export srun's numbers as torchrun's, but no address. */
static bool is_complete(const lk_launcher_row *row, const lk_task_value *values)
{
    bool numbers = is_known(values, LK_TASK_QUANTITY_RANK) && is_known(values, LK_TASK_QUANTITY_SIZE) &&
                   is_known(values, LK_TASK_QUANTITY_LOCAL_RANK);
    return numbers &&
           (!row->torchrun || values[LK_TASK_QUANTITY_SIZE].number == 1 || is_known(values, LK_TASK_QUANTITY_HOST));
}

/* Whether a row only repeats the rank of the launcher: mpirun of Open MPI sets PMIX_RANK. */
static bool is_repeated(const lk_task *task, const lk_task_value *values)
{
    return !is_known(values, LK_TASK_QUANTITY_SIZE) && is_known(values, LK_TASK_QUANTITY_RANK) &&
           values[LK_TASK_QUANTITY_RANK].number == lk__task_number(task, LK_TASK_QUANTITY_RANK, -1);
}

static void leave_out(lk_task *task, const lk_launcher *launcher, const lk_task_value *values)
{
    int i = 0;
    if (lk__task_number(task, LK_TASK_QUANTITY_SIZE, 0) == 1 && values[LK_TASK_QUANTITY_SIZE].known &&
        values[LK_TASK_QUANTITY_SIZE].number > 1) {
        task->outer = launcher;
        task->outer_tasks = values[LK_TASK_QUANTITY_SIZE].number;
    }
    while (i < LK_TASK_LEFT_OUT - 1 && task->left_out[i])
        i++;
    if (i < LK_TASK_LEFT_OUT - 1)
        task->left_out[i] = launcher;
}

/* Reads the rows in order, by rules 1 to 4 of task.h. */
static void read_rows(const lk_launcher_reader *reader, lk_task *task)
{
    const lk_launcher_row *row;
    bool complete = false;
    for (size_t i = 0; (row = lk__launcher_list(i)); i++) {
        lk_task_value values[LK_TASK_QUANTITY_COUNT];
        char problem[sizeof task->problem];
        memcpy(problem, task->problem, sizeof problem);
        bool found = read_row(row, reader, task, values);
        bool known = is_known(task->values, LK_TASK_QUANTITY_RANK) && is_known(task->values, LK_TASK_QUANTITY_SIZE);
        bool single = is_known(values, LK_TASK_QUANTITY_SIZE) && values[LK_TASK_QUANTITY_SIZE].number == 1;
        if (complete || (found && known && single)) {
            memcpy(task->problem, problem, sizeof problem);
            if (found && !is_repeated(task, values))
                leave_out(task, &row->launcher, values);
            continue;
        }
        if (found)
            merge(task, values);
        /* The outermost row with a rank has started the task: srun, also if PMI or the user repeats its rank. */
        if (is_known(values, LK_TASK_QUANTITY_RANK) || (is_known(values, LK_TASK_QUANTITY_SIZE) && !task->launcher))
            task->launcher = &row->launcher;
        complete = is_complete(row, values);
    }
}

/* Sets what follows from the values of all rows. */
static void conclude(lk_task *task)
{
    const lk_launcher_row *hand = lk__launcher_list(0);
    const lk_task_value *job = &task->values[LK_TASK_QUANTITY_JOB];
    task->by_torchrun = task->launcher == &hand->launcher;
    task->by_run = task->by_torchrun && job->known && job->launcher == &hand->launcher;
    /* A rank from 1 on has others before it, also if the size is wrong. */
    bool others =
        lk__task_number(task, LK_TASK_QUANTITY_SIZE, 2) > 1 || lk__task_number(task, LK_TASK_QUANTITY_RANK, 0) > 0;
    task->several = task->launcher && others;
}

/* MASTER_PORT may be set in processes that join nothing: Kubernetes sets it to an address in all pods if there is a
 * service of the name `master`. So a wrong port is a problem only where there are others to join. */
static void check_port(const lk_launcher_reader *reader, lk_task *task)
{
    const char *text = lk__launcher_get(reader, "MASTER_PORT");
    if (text && task->several && !task->values[LK_TASK_QUANTITY_PORT].known)
        refuse_number(task, LK_TASK_QUANTITY_PORT, "MASTER_PORT", text);
}

static void find_allocation(const lk_launcher_reader *reader, lk_task *task)
{
    const lk_launcher_row *row;
    for (size_t i = 0; (row = lk__launcher_list(i)) && !task->allocation.scheduler; i++) {
        if (row->allocate)
            row->allocate(reader, &task->allocation);
        if (*task->allocation.job)
            task->allocation.scheduler = &row->launcher;
    }
}

static void derive(lk_task *task, lk_task_quantity what, int number, const char *source)
{
    if (!task->values[what].known)
        lk__launcher_set(&task->values[what], number, NULL, source);
}

/* If all tasks are on one node, the numbers of the node are those of the job. */
static void derive_node(lk_task *task)
{
    int rank = lk__task_number(task, LK_TASK_QUANTITY_RANK, -1),
        size = lk__task_number(task, LK_TASK_QUANTITY_SIZE, -1);
    int nodes = lk__task_number(task, LK_TASK_QUANTITY_NODES, -1),
        local = lk__task_number(task, LK_TASK_QUANTITY_LOCAL_SIZE, -1);
    if (rank < 0 || size < 1)
        return;
    if (nodes == 1 || local == size || size == 1) {
        derive(task, LK_TASK_QUANTITY_NODES, 1, ONE_NODE);
        derive(task, LK_TASK_QUANTITY_NODE, 0, ONE_NODE);
        derive(task, LK_TASK_QUANTITY_LOCAL_RANK, rank, ONE_NODE);
        derive(task, LK_TASK_QUANTITY_LOCAL_SIZE, size, ONE_NODE);
    }
}

static bool on_one_node(const lk_task *task)
{
    return lk__task_number(task, LK_TASK_QUANTITY_NODES, 0) == 1;
}

/* The user's MASTER_ADDR comes first. Ranks that torchrun's variables describe have no other address. */
static void derive_host(lk_task *task)
{
    lk_task_value *host = &task->values[LK_TASK_QUANTITY_HOST];
    const lk_task_allocation *allocation = &task->allocation;
    const lk_launcher_row *hand = lk__launcher_list(0);
    if ((host->known && host->launcher == &hand->launcher) || !task->launcher || task->by_torchrun)
        return;
    if (on_one_node(task))
        lk__launcher_set(host, 0, LOOPBACK, ONE_NODE);
    else if (!host->known && *allocation->host)
        lk__launcher_set(host, 0, allocation->host, allocation->host_source);
}

/* The launcher's process stands for the job where a launcher on one node has no name for it. */
static void derive_job(lk_task *task, bool here)
{
    lk_task_value *job = &task->values[LK_TASK_QUANTITY_JOB];
    char text[LK_TASK_TEXT];
    if (job->known || !task->launcher || task->by_torchrun)
        return;
    long pid = here && on_one_node(task) ? lk__launcher_process(task->values[LK_TASK_QUANTITY_RANK].source) : 0;
    if (pid > 0) {
        snprintf(text, sizeof text, "%ld", pid);
        lk__launcher_set(job, 0, text, "process of the launcher");
    } else if (task->allocation.scheduler) {
        snprintf(text, sizeof text, "%s %s", task->allocation.scheduler->prefix, task->allocation.job);
        lk__launcher_set(job, 0, text, "job of the scheduler");
    }
}

int lk__task_port_of(unsigned number)
{
    return FIRST_PORT + LK_TASK_PORTS * (int)(number % PORT_SLOTS);
}

/* Jobs with consecutive numbers get different ports. Numbers of Open MPI's jobs differ in their upper half. */
static int port_of(const char *job)
{
    unsigned hash = 0;
    while (*job) {
        unsigned part = 0;
        if (!isdigit((unsigned char)*job))
            part = (unsigned char)*job++;
        while (isdigit((unsigned char)*job))
            part = part * 10 + (unsigned)(*job++ - '0');
        hash = hash * 31 + (part ^ part >> 16);
    }
    return lk__task_port_of(hash);
}

static void derive_port(lk_task *task)
{
    const lk_task_value *job = &task->values[LK_TASK_QUANTITY_JOB];
    if (task->values[LK_TASK_QUANTITY_PORT].known || task->by_torchrun || !job->known)
        return;
    lk__launcher_set(&task->values[LK_TASK_QUANTITY_PORT], port_of(job->text), NULL, "the job");
    task->ports = true;
}

const char *lk__task_backend(const char *given)
{
    bool mine = given && *given;
    const char *text = mine ? given : getenv("LOCKSTEP_BACKEND");
    return !text || !*text || (!mine && strcmp(text, "nccl") == 0) ? "auto" : text;
}

static const char *lookup_here(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

void lk__task_find(lk_task_lookup lookup, void *arg, lk_task *out)
{
    const lk_launcher_reader reader = {.lookup = lookup ? lookup : lookup_here, .arg = arg};
    lk_task_value array[LK_TASK_QUANTITY_COUNT] = {0};
    *out = (lk_task){0};
    read_rows(&reader, out);
    conclude(out);
    check_port(&reader, out);
    find_allocation(&reader, out);
    lk__launcher_slurm_array(&reader, array);
    for (int i = LK_TASK_QUANTITY_ARRAY_RANK; i <= LK_TASK_QUANTITY_ARRAY_SIZE; i++) {
        array[i].launcher = out->allocation.scheduler;
        out->values[i] = array[i];
    }
    derive_node(out);
    derive_host(out);
    derive_job(out, lookup == NULL);
    derive_port(out);
}

lk_status lk__task_check(const lk_task *task)
{
    return *task->problem ? lk__fail(LK_STATUS_USAGE, "%s", task->problem) : LK_OK;
}

/* The failure if a value is missing that could come from torchrun's variable. */
static lk_status miss(const lk_task *task, const char *variable, const char *what)
{
    if (!task->launcher || task->by_torchrun)
        return lk__fail(
            LK_STATUS_USAGE,
            "env:// needs the variable %s, which is not set: start the ranks with `lockstep run`, torchrun, "
            "srun or mpirun, or use tcp:// or file://",
            variable);
    return lk__fail(LK_STATUS_USAGE, "%s does not say %s: give all its tasks the variable %s", task->launcher->name,
                    what, variable);
}

lk_status lk__task_need(const lk_task *task, lk_task_quantity what)
{
    bool rank = what == LK_TASK_QUANTITY_RANK;
    if (task->values[what].known)
        return LK_OK;
    return miss(task, rank ? "RANK" : "WORLD_SIZE", rank ? "which rank this is" : "how many tasks there are");
}

bool lk__task_joins(const lk_task *task)
{
    return *task->problem || task->several || (task->by_torchrun && task->values[LK_TASK_QUANTITY_RANK].known);
}

lk_status lk__task_host(const lk_task *task, char host[LK_TASK_TEXT])
{
    const lk_task_value *value = &task->values[LK_TASK_QUANTITY_HOST];
    if (value->known) {
        memcpy(host, value->text, LK_TASK_TEXT);
        return LK_OK;
    }
    return miss(task, "MASTER_ADDR", "on which host its rank 0 is");
}

lk_status lk__task_port(const lk_task *task, int *port)
{
    if (!task->values[LK_TASK_QUANTITY_PORT].known)
        return miss(task, "MASTER_PORT", "the name of its job, from which a port would follow");
    *port = task->values[LK_TASK_QUANTITY_PORT].number;
    return LK_OK;
}

const char *lk__task_launcher_name(const lk_task *task, const lk_launcher *launcher)
{
    const lk_launcher *hand = &lk__launcher_list(0)->launcher;
    const lk_task_value *job = &task->values[LK_TASK_QUANTITY_JOB];
    if (launcher != hand)
        return launcher->name;
    if (!job->known || job->launcher != hand)
        return "the environment";
    return strcmp(job->source, "LOCKSTEP_RUN_ID") == 0 ? "lockstep run" : launcher->name;
}

void lk__task_one_a_node(const lk_launcher *launcher, int nodes, char *text, size_t bytes)
{
    char number[16] = "N";
    if (nodes > 0)
        snprintf(number, sizeof number, "%d", nodes);
    snprintf(text, bytes, "%s%s%s%s", launcher->one_a_node, launcher->count ? " " : "",
             launcher->count ? launcher->count : "", launcher->count ? number : "");
}

void lk__task_text(const lk_task *task, char *text, size_t bytes)
{
    char job[96] = "", tasks[32] = "tasks", nodes[64] = "", first[LK_TASK_TEXT + 16] = "";
    int size = lk__task_number(task, LK_TASK_QUANTITY_SIZE, 0), many = lk__task_number(task, LK_TASK_QUANTITY_NODES, 0);
    const lk_task_value *host = &task->values[LK_TASK_QUANTITY_HOST];
    *text = '\0';
    if (!task->launcher)
        return;
    if (task->allocation.scheduler == task->launcher)
        snprintf(job, sizeof job, " job %s", task->allocation.job);
    if (size > 0)
        snprintf(tasks, sizeof tasks, "%d task%s", size, size == 1 ? "" : "s");
    if (many > 0)
        snprintf(nodes, sizeof nodes, " on %d node%s", many, many == 1 ? "" : "s");
    if (many > 1 && host->known)
        snprintf(first, sizeof first, ", %s is first", host->text);
    bool by_hand = task->by_torchrun && !task->by_run;
    snprintf(text, bytes, "%s%s: %s%s%s",
             by_hand ? "a launcher that sets torchrun's variables" : lk__task_launcher_name(task, task->launcher), job,
             tasks, nodes, first);
}
