/* checkpoint.h - all that a run needs to go on, in a folder that cannot tear.
 *
 * A checkpoint is a folder of three files: model.safetensors with parameters and
 * buffers under PyTorch's names, optimizer.safetensors with what the optimiser
 * keeps, and checkpoint.json with notes (names and texts), a hash of each tensor,
 * size and hash of both files, and a hash over all of that.
 *
 * Threads: several threads may read or save one lk_checkpoint at the same time as long
 * as none sets a note or destroys it. Several threads and processes may load or verify
 * one folder at the same time, but while one saves that folder no other call on it may
 * run: it might read files of the old checkpoint and of the new one, which is FORMAT.
 * Different folders are independent. */
#ifndef LOCKSTEP_CHECKPOINT_H
#define LOCKSTEP_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include <lockstep/state.h>
#include <lockstep/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_checkpoint lk_checkpoint;

/* Takes both states over, on failure too. */
lk_status lk_checkpoint_create(lk_state *model, lk_state *optimizer, lk_checkpoint **out) LK_CHECKED;
void lk_checkpoint_destroy(lk_checkpoint *checkpoint);

/* NULL where only the notes were loaded. */
const lk_state *lk_checkpoint_model(const lk_checkpoint *checkpoint);
const lk_state *lk_checkpoint_optimizer(const lk_checkpoint *checkpoint);

/* Notes are in the order in which they were first set; setting one again
 * replaces its text. Names are not empty; both are UTF-8. */
lk_status lk_checkpoint_set_note(lk_checkpoint *checkpoint, const char *name, const char *text) LK_CHECKED;
/* NULL when there is none. */
const char *lk_checkpoint_note(const lk_checkpoint *checkpoint, const char *name);
/* The names by place, NULL after the last. */
const char *lk_checkpoint_note_name(const lk_checkpoint *checkpoint, size_t index);

/* Writes a folder beside `folder` under a name that starts with ".lk-", syncs it,
 * reads it back, renames it and syncs the folder around: `folder` is there whole
 * or not at all. One that is there already is replaced, and in no moment is
 * neither there, as long as the file system can exchange two names; where it cannot
 * and the process is killed in such a moment, the old one is put back by the next
 * save or load of `folder`. A failure leaves what was there, and removes what was
 * written, unless that fails as well: then it stays under that name. */
lk_status lk_checkpoint_save(const lk_checkpoint *checkpoint, const char *folder) LK_CHECKED;

/* Reads and verifies. NOT_FOUND where folder is no checkpoint; FORMAT, naming file
 * and tensor, where anything differs from what was saved, in one bit say;
 * UNSUPPORTED where a later version has made it. */
lk_status lk_checkpoint_load(const char *folder, lk_checkpoint **out) LK_CHECKED;
/* The same for the notes alone: the two large files are not looked at. */
lk_status lk_checkpoint_load_notes(const char *folder, lk_checkpoint **out) LK_CHECKED;
/* Verifies without keeping anything. */
lk_status lk_checkpoint_verify(const char *folder) LK_CHECKED;

#ifdef __cplusplus
}
#endif
#endif
