/* mode.h - which parallel mode a run has, and whether its options fit together.
 * Pure: nothing is read but what is given. */
#ifndef LK_CLI_JOB_MODE_H
#define LK_CLI_JOB_MODE_H

#include "cli/options/args.h"

typedef struct lk_mode_facts {
    lk_args_parallel asked;
    int processes;      /* of the job */
    bool alone;         /* nobody said how many processes there are: there is one */
    int devices;        /* of each process, a rank each */
    const char *stages; /* NULL: not given */
    bool pipelined;
} lk_mode_facts;

enum { LK_STAGES_TEXT = 16 };

typedef struct lk_mode {
    lk_args_parallel parallel;  /* never AUTO */
    char whole[LK_STAGES_TEXT]; /* pp without --stages: a stage a rank, as --stages has it; else "" */
} lk_mode;

/* USAGE for what contradicts itself, with what to write instead. */
lk_status lk__mode_choose(const lk_mode_facts *facts, lk_mode *out) LK_CHECKED;

#endif
