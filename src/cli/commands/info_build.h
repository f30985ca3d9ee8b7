/* info_build.h - `lockstep info` without a file or a model. */
#ifndef LK_CLI_COMMANDS_INFO_BUILD_H
#define LK_CLI_COMMANDS_INFO_BUILD_H

#include <stdbool.h>

/* Prints what this build and this machine can do: as text, or as one JSON object. */
void lk__cmd_info_build(bool json);

#endif
