/* launcher_slurm.c - what follows from several of Slurm's variables: steps, lists of hosts, job arrays. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/spec.h"
#include "comm/detect/hostlist.h"
#include "comm/detect/launchers.h"

/* Numbers of steps from here on are Slurm's own: the script of sbatch, the shell of salloc. */
static const long long FIRST_OWN_STEP = 0xfffffff0LL;

/* Returns the first of two variables that is set; its name goes to *name. */
static const char *get_either(const lk_launcher_reader *reader, const char *first, const char *second,
                              const char **name)
{
    const char *text = lk__launcher_get(reader, first);
    *name = text ? first : second;
    return text ? text : lk__launcher_get(reader, second);
}

/* Whether two variables are both set, and differ. */
static bool differ(const lk_launcher_reader *reader, const char *first, const char *second)
{
    const char *a = lk__launcher_get(reader, first), *b = lk__launcher_get(reader, second);
    return a && b && strcmp(a, b) != 0;
}

/* Whether the variables of the step belong to another job. sbatch passes on the variables of the shell in which the
 * job was submitted, which may be a task of srun --pty bash, and replaces the job's own variables. In a step, srun
 * sets both to the same values. It does not with --preserve-env, so steps of several tasks are believed. */
static bool is_left_over(const lk_launcher_reader *reader)
{
    static const char *const tasks[] = {"SLURM_STEP_NUM_TASKS", NULL};
    return lk__launcher_number(reader, tasks, NULL) == 1 &&
           (differ(reader, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS") ||
            differ(reader, "SLURM_STEP_NUM_NODES", "SLURM_NNODES") ||
            differ(reader, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"));
}

bool lk__launcher_slurm_started(const lk_launcher_reader *reader)
{
    const char *name;
    const char *step = get_either(reader, "SLURM_STEP_ID", "SLURM_STEPID", &name);
    long long number;
    if (is_left_over(reader))
        return false;
    if (!step)
        return lk__launcher_get(reader, "SLURM_STEP_NUM_TASKS") != NULL;
    return !lk__number_parse_int(step, 0, 0xffffffffLL, &number) || number < FIRST_OWN_STEP;
}

static void derive_local_size(const lk_launcher_reader *reader, lk_task_value values[LK_TASK_QUANTITY_COUNT])
{
    const char *name;
    const char *counts = get_either(reader, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", &name);
    if (!counts || !values[LK_TASK_QUANTITY_NODE].known || !values[LK_TASK_QUANTITY_SIZE].known)
        return;
    int mine = lk__hostlist_tasks_of(counts, values[LK_TASK_QUANTITY_NODE].number, NULL);
    if (mine > 0 && lk__hostlist_tasks(counts) == values[LK_TASK_QUANTITY_SIZE].number)
        lk__launcher_set(&values[LK_TASK_QUANTITY_LOCAL_SIZE], mine, NULL, name);
}

static void derive_host(const lk_launcher_reader *reader, lk_task_value values[LK_TASK_QUANTITY_COUNT])
{
    const char *name;
    char host[LK_TASK_TEXT];
    const char *list = get_either(reader, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", &name);
    if (list && lk__hostlist_name(list, 0, host, sizeof host))
        lk__launcher_set(&values[LK_TASK_QUANTITY_HOST], 0, host, name);
}

/* A job that was put back into the queue keeps its number; the number of its restarts differs. */
static void derive_job(const lk_launcher_reader *reader, lk_task_value values[LK_TASK_QUANTITY_COUNT])
{
    const char *name, *ignored;
    char text[128];
    const char *job = get_either(reader, "SLURM_JOB_ID", "SLURM_JOBID", &name);
    const char *step = get_either(reader, "SLURM_STEP_ID", "SLURM_STEPID", &ignored);
    const char *restart = lk__launcher_get(reader, "SLURM_RESTART_COUNT");
    if (!job)
        return;
    snprintf(text, sizeof text, "%.40s.%.20s%s%.20s", job, step ? step : "0", restart ? "." : "",
             restart ? restart : "");
    lk__launcher_set(&values[LK_TASK_QUANTITY_JOB], 0, text, name);
}

void lk__launcher_slurm_derive(const lk_launcher_reader *reader, lk_task_value values[LK_TASK_QUANTITY_COUNT])
{
    derive_local_size(reader, values);
    derive_host(reader, values);
    derive_job(reader, values);
}

void lk__launcher_slurm_allocate(const lk_launcher_reader *reader, lk_task_allocation *out)
{
    static const char *const tasks[] = {"SLURM_NTASKS", "SLURM_NPROCS", NULL};
    static const char *const nodes[] = {"SLURM_JOB_NUM_NODES", "SLURM_NNODES", NULL};
    const char *name;
    const char *job = get_either(reader, "SLURM_JOB_ID", "SLURM_JOBID", &name);
    const char *list = get_either(reader, "SLURM_JOB_NODELIST", "SLURM_NODELIST", &name);
    const char *counts = lk__launcher_get(reader, "SLURM_TASKS_PER_NODE");
    bool per_node = lk__launcher_get(reader, "SLURM_NTASKS_PER_NODE") != NULL;
    int number = lk__launcher_number(reader, tasks, NULL);
    if (!job)
        return;
    snprintf(out->job, sizeof out->job, "%s", job);
    int many = lk__launcher_number(reader, nodes, NULL);
    out->nodes = many > 0 ? many : 0;
    if (number < 1)
        number = (out->nodes > 1 || per_node) && counts ? lk__hostlist_tasks(counts) : 1;
    /* Every node has a task. SLURM_NTASKS may be that of the step in which the job was submitted. */
    out->tasks = number > out->nodes ? number : out->nodes;
    if (list && lk__hostlist_name(list, 0, out->host, sizeof out->host))
        snprintf(out->host_source, sizeof out->host_source, "%s", name);
}

/* srun --mpi=pmi2 has no local rank, and its variables may be left over together with those of its step. */
bool lk__launcher_pmi_started(const lk_launcher_reader *reader)
{
    const char *name;
    return get_either(reader, "MPI_LOCALRANKID", "PMI_LOCAL_RANK", &name) || !is_left_over(reader);
}

/* srun --mpi=pmix: Slurm's own variables have the rank, and the size, too. */
bool lk__launcher_pmix_started(const lk_launcher_reader *reader)
{
    const char *space = lk__launcher_get(reader, "PMIX_NAMESPACE"), *name;
    return !space || strncmp(space, "slurm.pmix.", 11) != 0 ||
           !get_either(reader, "SLURM_JOB_ID", "SLURM_JOBID", &name);
}

/* The index of this job in its array. An array of a list, as in 1,5,7, has an index only for its first and last
 * job, so it has none. */
void lk__launcher_slurm_array(const lk_launcher_reader *reader, lk_task_value values[LK_TASK_QUANTITY_COUNT])
{
    static const char *const names[][2] = {{"SLURM_ARRAY_TASK_ID", NULL},
                                           {"SLURM_ARRAY_TASK_COUNT", NULL},
                                           {"SLURM_ARRAY_TASK_MIN", NULL},
                                           {"SLURM_ARRAY_TASK_MAX", NULL},
                                           {"SLURM_ARRAY_TASK_STEP", NULL}};
    int number[5];
    for (int i = 0; i < 5; i++)
        number[i] = lk__launcher_number(reader, names[i], NULL);
    int id = number[0], count = number[1], least = number[2], most = number[3], step = number[4] > 0 ? number[4] : 1;
    if (id < 0 || count < 1)
        return;
    lk__launcher_set(&values[LK_TASK_QUANTITY_ARRAY_SIZE], count, NULL, "SLURM_ARRAY_TASK_COUNT");
    /* Without its bounds an array counts from 0. */
    if (least < 0)
        least = 0, most = (count - 1) * step;
    if (id < least || id > most || (id - least) % step != 0 || (most - least) / step + 1 != count)
        return;
    lk__launcher_set(&values[LK_TASK_QUANTITY_ARRAY_RANK], (id - least) / step, NULL, "SLURM_ARRAY_TASK_ID");
}
