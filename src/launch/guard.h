/* guard.h - the process between the launcher and the keeper.
 *
 * Launcher, guard and keeper are subreapers, each below the other: as long as one of them lives, it finds all
 * descendants of the ranks and ends them. The guard has its own process name, so that a kill by the program's
 * name does not hit it. While the keeper lives, the guard does nothing. */
#ifndef LK_LAUNCH_GUARD_H
#define LK_LAUNCH_GUARD_H

#include "launch/keeper.h"

/* Runs the guard in the process made for it: forks the keeper, waits for it, and exits with the keeper's
 * status. Never returns. */
_Noreturn void lk__guard_run(const lk_keeper_plan *plan);

#endif
