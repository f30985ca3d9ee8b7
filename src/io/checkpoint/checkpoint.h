/* checkpoint.h - more of checkpoints: what differs between two, and checkpoints in
 * their folder: names, by step, and what is left of saves that a crash cut short. */
#ifndef LK_IO_CHECKPOINT_CHECKPOINT_H
#define LK_IO_CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/checkpoint.h>

enum { LK_CHECKPOINT_PATH = 4096 };

/* Names of the files of a checkpoint. */
extern const char lk__checkpoint_model[], lk__checkpoint_optimizer[], lk__checkpoint_notes[];

/* Whether path is a folder that has the notes of a checkpoint, sound or not. */
bool lk__checkpoint_is(const char *path);

/* What a checkpoint that is whole consists of. */
typedef struct lk_checkpoint_size {
    size_t model, optimizer; /* tensors */
    uint64_t bytes;          /* of all three files */
} lk_checkpoint_size;
/* lk_checkpoint_verify, which also tells that. */
lk_status lk__checkpoint_verify(const char *folder, lk_checkpoint_size *out) LK_CHECKED;

/* Verifies and loads the model alone. */
lk_status lk__checkpoint_load_model(const char *folder, lk_state **out) LK_CHECKED;

/* A note's text for people: real numbers are noted in hexadecimal. */
void lk__checkpoint_note_readable(const char *text, char *out, size_t bytes);

/* What a difference is of. Options are told, but are none of the result's. */
typedef enum lk_difference_kind {
    LK_DIFFERENCE_PARAMETER,
    LK_DIFFERENCE_BUFFER, /* running statistics */
    LK_DIFFERENCE_OPTIMIZER,
    LK_DIFFERENCE_POSITION, /* notes that are no option: step, epoch ... */
    LK_DIFFERENCE_OPTION,   /* notes that are named like one: "--model" */
    LK_DIFFERENCE_KINDS
} lk_difference_kind;

/* Called once per difference, with one sentence without a newline. */
typedef void (*lk_difference_kind_fn)(void *arg, lk_difference_kind kind, const char *key, const char *what);

/* Each counts differences by kind, from what counts has; report may be NULL. */
void lk__checkpoint_compare_models(const lk_state *a, const lk_state *b, lk_difference_kind_fn report, void *arg,
                                   size_t counts[LK_DIFFERENCE_KINDS]);
void lk__checkpoint_compare(const lk_checkpoint *a, const lk_checkpoint *b, lk_difference_kind_fn report, void *arg,
                            size_t counts[LK_DIFFERENCE_KINDS]);

/* dir/step-000000500; USAGE where it does not fit. */
lk_status lk__checkpoint_path(const char *dir, uint64_t step, char *out, size_t bytes) LK_CHECKED;

/* The steps that dir has checkpoints of, by name alone, ascending; freed by
 * lk__mem_free. A folder that is not there has none. */
lk_status lk__checkpoint_list(const char *dir, uint64_t **steps, size_t *count) LK_CHECKED;

/* Where a file system cannot exchange two names, a save that replaces a checkpoint
 * and is killed between two moves leaves that one aside, with nothing in its place.
 * Gives such ones, if they are whole, their names back: to be called before a list.
 * Any number of processes may call it at once, and while another one saves. */
lk_status lk__checkpoint_mend(const char *dir) LK_CHECKED;
/* Whether `name`, in dir, is one of those; own gets the name that it had, or "". */
enum { LK_CHECKPOINT_NAME = 256 };
lk_status lk__checkpoint_waiting(const char *dir, const char *name, char own[LK_CHECKPOINT_NAME]) LK_CHECKED;

/* Checkpoints that may hold what a rank computed wrongly are set aside: step-N becomes
 * suspect-step-N, which no list has and no run resumes from. Sets those of later steps
 * than `last` aside, and removes the link `best` where it leads to one. *count tells
 * how many; example is the new path of the first. */
lk_status lk__checkpoint_distrust(const char *dir, uint64_t last, size_t *count,
                                  char example[LK_CHECKPOINT_PATH]) LK_CHECKED;
/* Whether path, or what it links to, is named as one of those. */
bool lk__checkpoint_is_suspect(const char *path);

/* Removes dir/step-... : first renamed aside, so that a crash leaves no half of it. */
lk_status lk__checkpoint_remove(const char *dir, uint64_t step) LK_CHECKED;
/* Mends, and removes what else saves and removals left aside when they were cut
 * short; nobody else may be saving in dir. */
lk_status lk__checkpoint_sweep(const char *dir) LK_CHECKED;

/* dir/best becomes a link to the checkpoint of that step, in one move. */
lk_status lk__checkpoint_set_best(const char *dir, uint64_t step) LK_CHECKED;
/* The step that dir/best leads to; false where there is none. */
bool lk__checkpoint_best(const char *dir, uint64_t *step);

#endif
