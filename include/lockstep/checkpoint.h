/* checkpoint.h - checkpoints: folders from which a run continues to the same bits.
 *
 * A checkpoint is a folder of three files. model.safetensors has parameters and buffers
 * under PyTorch's names. optimizer.safetensors has the optimiser's state. checkpoint.json
 * has the notes (names and texts), a hash of each tensor, the size and the hash of both
 * other files, and a hash of its own content.
 *
 * Threads: several threads may read or save one lk_checkpoint at the same time, as long as
 * no thread sets a note or destroys the checkpoint. Several threads and processes may load or verify one
 * folder at the same time. While a folder is being saved, no other call may use that folder:
 * a reader might find files of the old and of the new checkpoint, and fails with FORMAT.
 * Different folders are independent.
 *
 * Lifetimes: a checkpoint owns its states and notes. What is borrowed from it ends with lk_checkpoint_destroy. */
#ifndef LOCKSTEP_CHECKPOINT_H
#define LOCKSTEP_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include <lockstep/state.h>
#include <lockstep/status.h>

LK_API_BEGIN

typedef struct lk_checkpoint lk_checkpoint;

/* Creates a checkpoint in memory. Takes ownership of both states, also on failure. A state may be NULL: the
 * checkpoint then has notes, and cannot be saved (USAGE). */
lk_status lk_checkpoint_create(lk_state *model, lk_state *optimizer, lk_checkpoint **out) LK_CHECKED;
void lk_checkpoint_destroy(lk_checkpoint *checkpoint);

/* The two states, borrowed from the checkpoint; NULL after lk_checkpoint_load_notes. */
const lk_state *lk_checkpoint_model(const lk_checkpoint *checkpoint);
const lk_state *lk_checkpoint_optimizer(const lk_checkpoint *checkpoint);

/* Sets the text of a note; both strings are copied. A note keeps the position at which it was
 * first set. USAGE if name or text is not UTF-8, the name is empty, or the checkpoint has 4096 other notes. */
lk_status lk_checkpoint_set_note(lk_checkpoint *checkpoint, const char *name, const char *text) LK_CHECKED;
/* The text of a note, borrowed until the note is set again; NULL when there is no such note. */
const char *lk_checkpoint_note(const lk_checkpoint *checkpoint, const char *name);
/* The name of note `index`, counted from 0; NULL after the last note. */
const char *lk_checkpoint_note_name(const lk_checkpoint *checkpoint, size_t index);

/* Saves the checkpoint as `folder`. Blocks until the files are synced to the disk.
 *
 * The files are written to a temporary folder beside `folder` (its name starts with ".lk-"),
 * synced, read back and verified; a rename then gives that folder its name. So `folder` is
 * either complete or does not exist. An existing checkpoint is replaced by an exchange of the
 * two names. Where the file system cannot exchange names and the process is killed between the
 * two renames, the next save or load of `folder` restores the old checkpoint.
 *
 * A failure keeps the old checkpoint and removes the temporary folder, if it can be removed. USAGE: the checkpoint has
 * no states, `folder` exists and is not a checkpoint, its path is too long, or a name cannot be saved (lk_state_save).
 * NOT_FOUND: the folder in which `folder` is to be does not exist. IO: a file cannot be written, or reads back with
 * other bytes. */
lk_status lk_checkpoint_save(const lk_checkpoint *checkpoint, const char *folder) LK_CHECKED;

/* Reads and verifies a checkpoint. NOT_FOUND: folder is not a checkpoint. FORMAT: at least one
 * bit differs from what was saved; the detail names the file and the tensor. UNSUPPORTED: a
 * later version of Lockstep has saved the checkpoint. IO: a file cannot be read. The caller owns *out. */
lk_status lk_checkpoint_load(const char *folder, lk_checkpoint **out) LK_CHECKED;
/* Reads and verifies the notes only; does not read the two large files. Fails as lk_checkpoint_load. */
lk_status lk_checkpoint_load_notes(const char *folder, lk_checkpoint **out) LK_CHECKED;
/* Verifies a checkpoint as lk_checkpoint_load does, and returns only the status. */
lk_status lk_checkpoint_verify(const char *folder) LK_CHECKED;

LK_API_END
#endif
