/* task.h - this process as one task of a job, read from the variables that launchers and schedulers set.
 *
 * Each launcher is one row of a table (launchers.c), and each row names the variables of its quantities. Rows are
 * read from the innermost launcher, the one that starts programs inside the tasks of others, to the outermost:
 *
 *   torchrun and `lockstep run`, Open MPI, MVAPICH, MPICH and Intel MPI, PMIx, jsrun, Flux, Slurm's
 *   srun, PBS's pbsdsh
 *
 * 1. Quantities are merged: each one comes from the first row that has it. WORLD_SIZE, MASTER_ADDR and MASTER_PORT
 *    may be the user's own, and the rank srun's (SLURM_PROCID).
 * 2. Two rows with different values of one quantity contradict each other. The task then has a `problem` that names
 *    both variables and their values, and nobody may join with it.
 * 3. A row that has the rank, the size and the local rank is complete: this launcher has started the process by
 *    itself. Rows further out are left out, because they describe the task in which the launcher runs: torchrun in
 *    a task of srun, mpirun in a batch job. Variables that a user exports for all tasks cannot contain a local
 *    rank, so they do not hide the launcher. torchrun's row also needs MASTER_ADDR, unless the size is 1.
 * 4. A launcher of a single task is left out if the rank and the size are known without it: ranks that are started
 *    by hand in an interactive step (srun --pty bash).
 *
 * A scheduler's job is an allocation, not a task: the script of sbatch and the shell of salloc have variables of
 * Slurm, and SLURM_PROCID is 0 in the script, but only srun sets SLURM_STEP_ID. The allocation gives the number of
 * its tasks and nodes, for advice, and the first host where the launcher has no list of hosts. */
#ifndef LK_COMM_DETECT_TASK_H
#define LK_COMM_DETECT_TASK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef enum lk_task_quantity {
    LK_TASK_QUANTITY_RANK,
    LK_TASK_QUANTITY_SIZE,       /* tasks of the job: the world size */
    LK_TASK_QUANTITY_LOCAL_RANK, /* among the tasks of this node */
    LK_TASK_QUANTITY_LOCAL_SIZE,
    LK_TASK_QUANTITY_NODE, /* index of this node */
    LK_TASK_QUANTITY_NODES,
    LK_TASK_QUANTITY_CPUS, /* of this task */
    LK_TASK_QUANTITY_GPUS, /* of this node, for all its tasks */
    LK_TASK_QUANTITY_HOST, /* a text: the host of rank 0 */
    LK_TASK_QUANTITY_PORT, /* the first port at that host */
    LK_TASK_QUANTITY_JOB,  /* a text that differs between jobs that run at the same time, and is equal for all tasks */
    LK_TASK_QUANTITY_ARRAY_RANK, /* index of this job in a job array, from 0; an array alone is no group */
    LK_TASK_QUANTITY_ARRAY_SIZE,
    LK_TASK_QUANTITY_COUNT
} lk_task_quantity;

enum { LK_TASK_TEXT = 256, LK_TASK_PORTS = 16, LK_TASK_LEFT_OUT = 4 };

typedef struct lk_launcher {
    const char *name;       /* "Slurm", in messages */
    const char *command;    /* "srun": what starts the tasks */
    const char *one_a_node; /* "srun --ntasks-per-node=1": the command that starts one task on each node */
    const char *prefix;     /* "slurm": in the text of a job */
    const char *count;      /* "--ntasks=": what that command needs before the number of nodes; NULL: nothing */
} lk_launcher;

typedef struct lk_task_value {
    bool known;
    int number;                  /* unless the quantity is a text */
    char text[LK_TASK_TEXT];     /* the text, or the number as text */
    char source[64];             /* the variable, as in "SLURM_PROCID", or how the value was derived; "" if unknown */
    const lk_launcher *launcher; /* whose variable it is; NULL: derived */
} lk_task_value;

/* The allocation of a scheduler in which this process runs, as one of its tasks or outside of them. */
typedef struct lk_task_allocation {
    const lk_launcher *scheduler; /* NULL: there is none */
    char job[64];                 /* "42" */
    int tasks, nodes;             /* 0: unknown */
    char host[LK_TASK_TEXT];      /* the first host; "": unknown */
    char host_source[64];
    char
        unread[LK_TASK_TEXT]; /* why the number of tasks is unknown, where its source is named but cannot be read; "" */
} lk_task_allocation;

typedef struct lk_task {
    const lk_launcher *launcher; /* the launcher that has started this process; NULL: none is known */
    bool by_torchrun;            /* it is torchrun, `lockstep run`, or the user with torchrun's variables */
    bool by_run;  /* torchrun or `lockstep run` itself has started this process: launchers further out, as MPI's, have
                     started its launcher */
    bool several; /* there are other tasks, or may be, because the launcher does not say how many */
    bool ports;   /* the port was derived: rank 0 listens at the first free one of LK_TASK_PORTS, the others try them */
    lk_task_value values[LK_TASK_QUANTITY_COUNT];
    lk_task_allocation allocation;
    const lk_launcher *left_out[LK_TASK_LEFT_OUT]; /* launchers by rules 3 and 4; NULL after the last */
    const lk_launcher *outer;                      /* the launcher of several tasks in one of which this job of one
                                                      task was started: each of them trains alone; NULL: none */
    int outer_tasks;
    char problem[512]; /* why nobody may join: rule 2, or a value that is no number; "" */
} lk_task;

/* Returns the value of a variable, or NULL. */
typedef const char *(*lk_task_lookup)(void *arg, const char *name);

/* Reads the task. lookup NULL: the environment of this process. Apart from the variables, only the file that
 * PBS_NODEFILE names is read, if it has at most 1 MiB. Never fails: see problem. */
void lk__task_find(lk_task_lookup lookup, void *arg, lk_task *out);
/* USAGE with the task's problem, if it has one. */
lk_status lk__task_check(const lk_task *task) LK_CHECKED;
/* USAGE, with what to write, if the quantity (rank or size) is unknown. */
lk_status lk__task_need(const lk_task *task, lk_task_quantity what) LK_CHECKED;
/* Whether this process is to join others, or has a problem that must be reported: torchrun's RANK is set, or there are
 * several tasks. */
bool lk__task_joins(const lk_task *task);

/* The only place that decides at which host rank 0 listens. Writes the host: MASTER_ADDR; 127.0.0.1 if all tasks are on
 * one node; the first host of the step or of the allocation. Otherwise USAGE, with what to write. */
lk_status lk__task_host(const lk_task *task, char host[LK_TASK_TEXT]) LK_CHECKED;
/* MASTER_PORT, or the first of LK_TASK_PORTS ports that follow from the job's text (task->ports). USAGE if both are
 * unknown. */
lk_status lk__task_port(const lk_task *task, int *port) LK_CHECKED;

/* The first of LK_TASK_PORTS ports that belong to a number, as of a hash: above those of system services and below
 * those that Linux gives to outgoing connections. */
int lk__task_port_of(unsigned number);
/* The name of the backend that a group uses: given; if that is NULL or "", $LOCKSTEP_BACKEND; else "auto". The variable
 * may be nccl, which sums gradients only: the group then uses auto. */
const char *lk__task_backend(const char *given);

/* The number of a quantity, or `otherwise` if it is unknown. */
int lk__task_number(const lk_task *task, lk_task_quantity what, int otherwise);
/* The name of a launcher in messages. The variables of torchrun may also be those of `lockstep run` or, without the
 * name of a job, of "the environment". */
const char *lk__task_launcher_name(const lk_task *task, const lk_launcher *launcher);
/* The name of a quantity, as in "local rank". */
const char *lk__task_quantity_name(lk_task_quantity what);
/* "srun --ntasks-per-node=1 --ntasks=3": the command that starts one task on each node. The number is given because
 * srun would take that of the job otherwise; nodes 0: unknown, "N" is written. */
void lk__task_one_a_node(const lk_launcher *launcher, int nodes, char *text, size_t bytes);
/* "Slurm job 42: 6 tasks on 3 nodes, n1 is first"; "" without a launcher. */
void lk__task_text(const lk_task *task, char *text, size_t bytes);

#endif
