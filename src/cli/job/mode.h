/* mode.h - the parallel mode of a run, and whether its options fit together. Depends on the given facts only. */
#ifndef LK_CLI_JOB_MODE_H
#define LK_CLI_JOB_MODE_H

#include "cli/options/args.h"

typedef struct lk_mode_facts {
    lk_args_parallel asked;
    int processes;      /* of the job */
    bool alone;         /* the number of processes was not given: there is one */
    int devices;        /* of each process; one rank for each */
    const char *stages; /* NULL: not given */
    bool pipelined;
} lk_mode_facts;

enum { LK_STAGES_TEXT = 16 };

typedef struct lk_mode {
    lk_args_parallel parallel;  /* never AUTO */
    char whole[LK_STAGES_TEXT]; /* pp without --stages: the --stages text of one stage for each rank; otherwise "" */
} lk_mode;

/* USAGE for contradictions, with what to write instead. */
lk_status lk__mode_choose(const lk_mode_facts *facts, lk_mode *out) LK_CHECKED;

#endif
