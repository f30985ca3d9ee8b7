/* scheduler.h - which MPI launcher or batch scheduler has started this process, according to its environment.
 * Nothing is joined here. */
#ifndef LK_LAUNCH_SCHEDULER_H
#define LK_LAUNCH_SCHEDULER_H

#include "base/status.h"

/* USAGE, with the right command line, if this process is one of several tasks that would each run the same
 * job alone. A Slurm batch script outside srun is one process, however many tasks it has. command: "train" or
 * "run". */
lk_status lk__scheduler_check_alone(const char *command) LK_CHECKED;

#endif
