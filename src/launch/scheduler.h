/* scheduler.h - which launcher of several tasks has started this process, as its
 * environment tells. Nothing is joined here. */
#ifndef LK_LAUNCH_SCHEDULER_H
#define LK_LAUNCH_SCHEDULER_H

#include "base/status.h"

/* USAGE where this process is one of several tasks, each of which would do the same
 * alone, with what to write instead. A job of Slurm outside of srun is one process,
 * however many tasks it was granted. command is "train" or "run". */
lk_status lk__scheduler_check_alone(const char *command) LK_CHECKED;

#endif
