/* state_file.h - the names and the notes of state files; lockstep/state.h loads and saves them. */
#ifndef LK_IO_STATE_STATE_FILE_H
#define LK_IO_STATE_STATE_FILE_H

#include <stdbool.h>

#include <lockstep/state.h>

#include "base/status.h"

/* USAGE unless path has the ending of a format that can be written, or no ending and needed is
 * false. */
lk_status lk__state_file_check_ending(const char *path, bool needed) LK_CHECKED;

/* A state without tensors that has the notes of a file, or of a checkpoint's model; the caller owns *out. It has no
 * notes if the file has none or cannot be read: lk_state_load says what is wrong with it. */
lk_status lk__state_file_notes(const char *path, lk_state **out) LK_CHECKED;

#endif
