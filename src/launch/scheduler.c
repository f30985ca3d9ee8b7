/* scheduler.c - the table of schedulers, and the command lines that start one launcher on each node. */
#include "launch/scheduler.h"

#include <stdio.h>
#include <string.h>

#include "base/spec.h"

enum { MAX_TASKS = 1 << 24, LINE_BYTES = 512 };

typedef struct scheduler {
    const char *name;        /* name in messages */
    const char *size, *rank; /* variables with the number of tasks and the index of this one; size NULL: none */
    const char *one_a_node;  /* command that starts one task on each node */
} scheduler;

/* The order matters. Open MPI and MVAPICH come first, because under Slurm they use srun; PMI and PMIx come
 * last, because others set their variables too. Only srun sets SLURM_STEP_NUM_TASKS; SLURM_NTASKS is also set
 * in a batch script, which is one process. */
static const scheduler schedulers[] = {
    {"mpirun of Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "mpirun --map-by ppr:1:node"},
    {"mpirun of MVAPICH", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "mpirun -ppn 1"},
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun --ntasks-per-node=1"},
    {"mpiexec of MPICH or Intel MPI", "PMI_SIZE", "PMI_RANK", "mpiexec -ppn 1"},
    {"a launcher of PMIx", NULL, "PMIX_RANK", "prun --map-by ppr:1:node"},
};

/* Returns the scheduler that has started this process as one of several tasks, or NULL. *count is the number
 * of tasks; 0: unknown. */
static const scheduler *find(int *count)
{
    for (size_t i = 0; i < sizeof schedulers / sizeof *schedulers; i++) {
        int tasks = schedulers[i].size ? lk__variable_int(schedulers[i].size, MAX_TASKS) : -1;
        /* Without the number of tasks, every task except the first knows that there are several. */
        bool several = schedulers[i].size ? tasks > 1 : lk__variable_int(schedulers[i].rank, MAX_TASKS) > 0;
        *count = tasks > 0 ? tasks : 0;
        if (several)
            return &schedulers[i];
    }
    return NULL;
}

/* Writes a command line that starts one task on each node. */
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
