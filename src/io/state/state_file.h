/* state_file.h - the names of state files; lockstep/state.h loads and saves them. */
#ifndef LK_IO_STATE_STATE_FILE_H
#define LK_IO_STATE_STATE_FILE_H

#include <stdbool.h>

#include "base/status.h"

/* USAGE unless path has the ending of a format that can be written, or no ending and needed is
 * false. */
lk_status lk__state_file_check_ending(const char *path, bool needed) LK_CHECKED;

#endif
