/* scheduler.c - the table of launchers, and what to write while their tasks are not
 * joined by themselves. */
#include "launch/scheduler.h"

#include <stdio.h>
#include <string.h>

#include "base/spec.h"

enum { MAX_TASKS = 1 << 24, LINE_BYTES = 512 };

typedef struct scheduler {
    const char *name;        /* for messages */
    const char *size, *rank; /* variables: tasks, and which of them this is; size NULL: there is none */
    const char *one_a_node;  /* how one task a node is started */
} scheduler;

/* Open MPI's and MVAPICH's come first, as under Slurm they start their processes with
 * srun; PMI's and PMIx's are last, as others set them, too. srun alone sets
 * SLURM_STEP_NUM_TASKS: SLURM_NTASKS is there in a batch script as well, which is one
 * process. */
static const scheduler schedulers[] = {
    {"mpirun of Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "mpirun --map-by ppr:1:node"},
    {"mpirun of MVAPICH", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "mpirun -ppn 1"},
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun --ntasks-per-node=1"},
    {"mpiexec of MPICH or Intel MPI", "PMI_SIZE", "PMI_RANK", "mpiexec -ppn 1"},
    {"a launcher of PMIx", NULL, "PMIX_RANK", "prun --map-by ppr:1:node"},
};

/* The one that has started this process as one of several tasks, or NULL. *count is
 * how many they are, 0 where it does not say. */
static const scheduler *find(int *count)
{
    for (size_t i = 0; i < sizeof schedulers / sizeof *schedulers; i++) {
        int tasks = schedulers[i].size ? lk__variable_int(schedulers[i].size, MAX_TASKS) : -1;
        /* Where their number is not told, all but the first know that there are several. */
        bool several = schedulers[i].size ? tasks > 1 : lk__variable_int(schedulers[i].rank, MAX_TASKS) > 0;
        *count = tasks > 0 ? tasks : 0;
        if (several)
            return &schedulers[i];
    }
    return NULL;
}

/* A whole line for one task a node. */
static void write_line(const scheduler *s, const char *command, char text[LINE_BYTES])
{
    snprintf(text, LINE_BYTES, "%s sh -c 'lockstep %s --nnodes %s%s --node-rank $%s --master-addr HOST -n 4%s'",
             s->one_a_node, command, s->size ? "$" : "", s->size ? s->size : "NODES", s->rank,
             strcmp(command, "run") == 0 ? " PROGRAM" : "");
}

lk_status lk__scheduler_check_alone(const char *command)
{
    char line[LINE_BYTES], number[32] = "several";
    int count = 0;
    const scheduler *s = find(&count);
    bool train = strcmp(command, "train") == 0;
    if (!s)
        return LK_OK;
    write_line(s, command, line);
    if (count)
        snprintf(number, sizeof number, "%d", count);
    return lk__fail(LK_STATUS_USAGE,
                    "%s: %s has started %s tasks, and each of them would %s. On one host leave it out: lockstep %s -n "
                    "%s%s. On several start one task a node, HOST being the first: %s. If each task is meant to do so, "
                    "unset %s",
                    command, s->name, number, train ? "train alone" : "start a job of its own", command,
                    count ? number : "4", train ? "" : " PROGRAM", line, s->size ? s->size : s->rank);
}
