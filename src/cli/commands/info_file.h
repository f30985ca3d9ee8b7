/* info_file.h - `lockstep info FILE`. */
#ifndef LK_CLI_COMMANDS_INFO_FILE_H
#define LK_CLI_COMMANDS_INFO_FILE_H

#include <stdbool.h>

#include "base/status.h"

/* Prints what a model file or a checkpoint holds: as text, or as one JSON object. */
lk_status lk__cmd_info_file(const char *path, bool json) LK_CHECKED;

#endif
