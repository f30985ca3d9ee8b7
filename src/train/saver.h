/* saver.h - the saver: a thread that writes checkpoints while training continues.
 *
 * A saver locks its folder against other runs. It keeps the newest `keep` checkpoints and the best one; an
 * older checkpoint is removed only after a newer one has been written and verified. */
#ifndef LK_TRAIN_SAVER_H
#define LK_TRAIN_SAVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/checkpoint/checkpoint.h"

typedef struct lk_saver lk_saver;

typedef struct lk_saver_opts {
    const char *dir; /* created if needed, with its parent folders */
    size_t keep;     /* at least 1 */
    /* The checkpoint that the run resumes from, or NULL. Unless it is in dir, dir must have no checkpoints. */
    const char *from;
    uint64_t step; /* of `from` */
    bool exact;    /* the user has named `from`, and newer checkpoints in dir are USAGE; otherwise newer ones are
                    * damaged, and are replaced when the run reaches their steps */
    uint64_t best; /* the step with the best test result, to which the link dir/best leads; 0: none */
    /* Called in the saver's thread, to add notes to a checkpoint that take long to compute; or NULL. */
    lk_status (*complete)(void *arg, lk_checkpoint *checkpoint);
    void *arg;
} lk_saver_opts;

/* Opens and locks the folder, and finds in advance what would fail later: the folder cannot be created or
 * written, another run uses it, or it has checkpoints of another run (the detail names --resume auto).
 * Removes temporary files of a crashed run. Blocks for a few seconds if the folder is locked. */
lk_status lk__saver_open(const lk_saver_opts *opts, lk_saver **out) LK_CHECKED;
/* Blocks until nothing is being written. */
void lk__saver_close(lk_saver *saver);

/* Starts writing a checkpoint and takes ownership of it, also on failure. Blocks until the previous one is
 * written, and fails if that has failed; the detail then names the last checkpoint that was saved. best: the
 * link `best` will lead to this one. A model with non-finite values is not saved; that is a failure, too. */
lk_status lk__saver_put(lk_saver *saver, lk_checkpoint *checkpoint, uint64_t step, bool best) LK_CHECKED;

/* A checkpoint that was saved. */
typedef struct lk_saver_saved {
    uint64_t step;
    bool best;
    bool again; /* this run had saved this step before; its test result is new */
    char path[4096];
    double seconds; /* of writing */
} lk_saver_saved;
/* The result of the last lk__saver_put. *done is false while it is being written, and if an earlier call has
 * returned the result. A failure is returned by every call. Does not block. */
lk_status lk__saver_poll(lk_saver *saver, bool *done, lk_saver_saved *out) LK_CHECKED;
/* As lk__saver_poll, but blocks until nothing is being written. */
lk_status lk__saver_wait(lk_saver *saver, bool *done, lk_saver_saved *out) LK_CHECKED;
/* The step of the checkpoint that is being written; 0: none. */
uint64_t lk__saver_writing(lk_saver *saver);
/* Blocks until nothing is being written, then calls lk__checkpoint_distrust for the saver's folder. */
lk_status lk__saver_distrust(lk_saver *saver, uint64_t last, size_t *count,
                             char example[LK_CHECKPOINT_PATH]) LK_CHECKED;
/* The path of the last checkpoint that was saved, as known at the last call of a function above. Before the
 * first save, the checkpoint that the run resumes from, if it is in dir; "" if there is none. */
const char *lk__saver_last(const lk_saver *saver);

#endif
