/* join.h - how this process joins a job, from its options and the environment. */
#ifndef LK_CLI_JOB_JOIN_H
#define LK_CLI_JOB_JOIN_H

#include <lockstep/group.h>

#include "cli/options/args.h"

typedef enum lk_join_way {
    LK_JOIN_WAY_ALONE,  /* the only process */
    LK_JOIN_WAY_LAUNCH, /* it starts the ranks of this node and watches them */
    LK_JOIN_WAY_ENV,    /* a launcher started it, and ends it if another rank fails */
    LK_JOIN_WAY_HAND    /* --init-method, --rank, --world-size */
} lk_join_way;

enum { LK_JOIN_TEXT = 384 };

typedef struct lk_join {
    lk_join_way way;
    bool size_known;            /* options or a launcher say how many processes there are */
    int rank, processes;        /* for ENV and HAND; ALONE: 0 of 1; LAUNCH: 0 of the number that it starts */
    int local_rank, local_size; /* among the processes that a launcher started here; 0 of 0: unknown */
    int cpus;                   /* of this process, by its scheduler; 0: unknown */
    lk_group_opts group;        /* for ENV and HAND; otherwise only its timeout is set */
    char started[LK_JOIN_TEXT]; /* "Slurm job 42: 6 tasks on 3 nodes, n1 is first"; "": no scheduler or MPI launcher */
    char note[LK_JOIN_TEXT];    /* advice for rank 0 to print; "": none */
} lk_join;

/* The environment is read by comm/detect/task.h. Tasks of a scheduler or of an MPI launcher join without options
 * (ENV). --init-method with tcp:// or file:// takes a rank and a size that are not given from the task, or from the
 * job array. USAGE, with a complete command line, for options that contradict each other or the environment, or that
 * need others, and for a process in an allocation of several tasks that is none of them. Pointers in *out belong to
 * args and the environment. */
lk_status lk__join_find(const lk_args *args, lk_join *out) LK_CHECKED;
/* As lk__join_find, for a rank that `train -n` has started: its launcher has read the options of ranks and
 * nodes, and the environment has the other values. */
lk_status lk__join_launched(const lk_args *args, lk_join *out) LK_CHECKED;

#endif
