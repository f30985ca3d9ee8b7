/* info_group.h - `lockstep info --group`. */
#ifndef LK_CLI_COMMANDS_INFO_GROUP_H
#define LK_CLI_COMMANDS_INFO_GROUP_H

#include "cli/options/args.h"

/* Prints what the environment says about this process as a task of a job: each quantity, its value and its source,
 * and what `lockstep train` would do. */
void lk__cmd_info_group(const lk_args *args);

#endif
