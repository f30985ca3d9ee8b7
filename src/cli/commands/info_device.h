/* info_device.h - `lockstep info --model --devices`: how a device computes the layers of a model. */
#ifndef LK_CLI_COMMANDS_INFO_DEVICE_H
#define LK_CLI_COMMANDS_INFO_DEVICE_H

#include <lockstep/engine.h>

#include "base/status.h"

/* Takes one step of opts->batch samples, all zero, on opts->device. Then calls `each` with the lines of the device's
 * slot `explain`. */
lk_status lk__cmd_info_device(const lk_graph *graph, const lk_engine_opts *opts,
                              void (*each)(void *arg, const char *line), void *arg) LK_CHECKED;

#endif
