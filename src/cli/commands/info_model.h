/* info_model.h - `lockstep info --model`. */
#ifndef LK_CLI_COMMANDS_INFO_MODEL_H
#define LK_CLI_COMMANDS_INFO_MODEL_H

#include "cli/options/args.h"

/* Prints a model's layers, and its cost in operations and memory. */
lk_status lk__cmd_info_model(const lk_args *args) LK_CHECKED;

#endif
