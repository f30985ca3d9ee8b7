/* checkpoint.h - compares and verifies checkpoints, and manages a folder of checkpoints: names by
 * step, removal, repair after a save that was killed. */
#ifndef LK_IO_CHECKPOINT_CHECKPOINT_H
#define LK_IO_CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/checkpoint.h>

enum { LK_CHECKPOINT_PATH = 4096 };

/* Names of the files of a checkpoint. */
extern const char lk__checkpoint_model[], lk__checkpoint_optimizer[], lk__checkpoint_notes[];

/* Whether path is a folder with the notes file of a checkpoint, valid or not. */
bool lk__checkpoint_is(const char *path);

/* The size of a complete checkpoint. */
typedef struct lk_checkpoint_size {
    size_t model, optimizer; /* numbers of tensors */
    uint64_t bytes;          /* of all three files */
} lk_checkpoint_size;
/* lk_checkpoint_verify that also returns the size. */
lk_status lk__checkpoint_verify(const char *folder, lk_checkpoint_size *out) LK_CHECKED;

/* Verifies and loads the model only. */
lk_status lk__checkpoint_load_model(const char *folder, lk_state **out) LK_CHECKED;

/* Writes a note's text for people: decimal instead of hexadecimal real numbers. */
void lk__checkpoint_note_readable(const char *text, char *out, size_t bytes);

/* What differs. Differing options are reported, but do not belong to the result. */
typedef enum lk_difference_kind {
    LK_DIFFERENCE_KIND_PARAMETER,
    LK_DIFFERENCE_KIND_BUFFER, /* running statistics */
    LK_DIFFERENCE_KIND_OPTIMIZER,
    LK_DIFFERENCE_KIND_POSITION, /* notes that are not options: step, epoch ... */
    LK_DIFFERENCE_KIND_OPTION,   /* notes that are named like options: "--model" */
    LK_DIFFERENCE_KIND_COUNT
} lk_difference_kind;

/* Called once for each difference, with one sentence without a newline. */
typedef void (*lk_difference_kind_fn)(void *arg, lk_difference_kind kind, const char *key, const char *what);

/* Each function adds the number of differences of each kind to counts; report may be NULL. */
void lk__checkpoint_compare_models(const lk_state *a, const lk_state *b, lk_difference_kind_fn report, void *arg,
                                   size_t counts[LK_DIFFERENCE_KIND_COUNT]);
void lk__checkpoint_compare(const lk_checkpoint *a, const lk_checkpoint *b, lk_difference_kind_fn report, void *arg,
                            size_t counts[LK_DIFFERENCE_KIND_COUNT]);

/* Writes dir/step-000000500; USAGE if it does not fit. */
lk_status lk__checkpoint_path(const char *dir, uint64_t step, char *out, size_t bytes) LK_CHECKED;

/* Lists the steps of dir's checkpoints by their names, ascending; free with lk__mem_free. A missing
 * folder has none. */
lk_status lk__checkpoint_list(const char *dir, uint64_t **steps, size_t *count) LK_CHECKED;

/* Repairs dir after a killed save; call before lk__checkpoint_list. If a file system cannot
 * exchange two names, a save replaces a checkpoint by two renames. Killed between them, it leaves
 * the old checkpoint under a temporary name and nothing under its own. Renames such checkpoints
 * back if they are complete. Several processes may call this at once, also during a save. */
lk_status lk__checkpoint_mend(const char *dir) LK_CHECKED;
/* Whether `name` in dir is such a checkpoint: own becomes the name that it had, or "". */
enum { LK_CHECKPOINT_NAME = 256 };
lk_status lk__checkpoint_waiting(const char *dir, const char *name, char own[LK_CHECKPOINT_NAME]) LK_CHECKED;

/* Marks the checkpoints of steps after `last` as suspect, because a rank may have computed wrongly:
 * step-N becomes suspect-step-N, which is not listed and not resumed from. Removes the link `best`
 * if it points to one of them. *count becomes their number; example becomes the first new path,
 * if there is one. */
lk_status lk__checkpoint_distrust(const char *dir, uint64_t last, size_t *count,
                                  char example[LK_CHECKPOINT_PATH]) LK_CHECKED;
/* Whether path, or the target of the link at path, is named suspect-step-N. */
bool lk__checkpoint_is_suspect(const char *path);

/* Removes dir/step-...: renames it to a temporary name first, so that a crash leaves no partial
 * checkpoint. */
lk_status lk__checkpoint_remove(const char *dir, uint64_t step) LK_CHECKED;
/* Repairs dir, then removes everything else that interrupted saves and removals have left. No other
 * process may save in dir. */
lk_status lk__checkpoint_sweep(const char *dir) LK_CHECKED;

/* Makes dir/best a link to the checkpoint of this step, atomically. */
lk_status lk__checkpoint_set_best(const char *dir, uint64_t step) LK_CHECKED;
/* The step that dir/best points to; false without one. */
bool lk__checkpoint_best(const char *dir, uint64_t *step);

#endif
