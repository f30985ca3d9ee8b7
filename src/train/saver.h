/* saver.h - checkpoints of a run, written by a thread of their own while training
 * goes on.
 *
 * One saver has a folder to itself: a lock keeps a second run out. The newest
 * `keep` checkpoints stay, and the best one; an older one is removed only when a
 * newer one was read back and found whole. */
#ifndef LK_TRAIN_SAVER_H
#define LK_TRAIN_SAVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/checkpoint/checkpoint.h"

typedef struct lk_saver lk_saver;

typedef struct lk_saver_opts {
    const char *dir; /* created, with the folders around it */
    size_t keep;     /* at least 1 */
    const char
        *from;     /* the checkpoint that the run goes on from; NULL: none. Unless it is in dir, dir must have none */
    uint64_t step; /* of that: with `exact`, newer ones in dir are refused; else they were found damaged, and make
                    * way when they are reached */
    bool exact;    /* it was named by the user */
    uint64_t best; /* the step that tested best, which `best` leads to where dir has it; 0: none was tested */
    /* Adds to a checkpoint what takes time to find out, in the saver's thread; or NULL. */
    lk_status (*complete)(void *arg, lk_checkpoint *checkpoint);
    void *arg;
} lk_saver_opts;

/* Finds out now what would go wrong later: a folder that cannot be created or
 * written, that another run is using, or that has checkpoints of another run (the
 * message names --resume auto). Sweeps what a crash has left. */
lk_status lk__saver_open(const lk_saver_opts *opts, lk_saver **out) LK_CHECKED;
/* Waits for what is being written. */
void lk__saver_close(lk_saver *saver);

/* Starts writing, and takes checkpoint over, on failure too. Waits for the one
 * before, and fails as it did: then the last that was saved is still there, and
 * the message names it. best makes it the one that `best` leads to. A model that is
 * not finite is not saved: that is a failure, too. */
lk_status lk__saver_put(lk_saver *saver, lk_checkpoint *checkpoint, uint64_t step, bool best) LK_CHECKED;

/* One that was saved. */
typedef struct lk_saver_saved {
    uint64_t step;
    bool best;
    bool again; /* this run had saved that step before: what was tested since is new */
    char path[4096];
    double seconds; /* that writing took */
} lk_saver_saved;
/* What has become of the last put: false in *done while it is being written, and
 * where it was told before. A failure stays, and is told each time. Never waits. */
lk_status lk__saver_poll(lk_saver *saver, bool *done, lk_saver_saved *out) LK_CHECKED;
/* The same, but waits. */
lk_status lk__saver_wait(lk_saver *saver, bool *done, lk_saver_saved *out) LK_CHECKED;
/* The step whose checkpoint is being written, 0 where none is. */
uint64_t lk__saver_writing(lk_saver *saver);
/* Waits for what is being written, then lk__checkpoint_distrust in the saver's folder. */
lk_status lk__saver_distrust(lk_saver *saver, uint64_t last, size_t *count,
                             char example[LK_CHECKPOINT_PATH]) LK_CHECKED;
/* The path of the last that was saved, as of the last call of a function above; before the
 * first, of the one that the run goes on from, where dir has it; "" for none. */
const char *lk__saver_last(const lk_saver *saver);

#endif
