/* guard.h - the process between the launcher and the keeper.
 *
 * The launcher, the guard and the keeper are all subreapers, one below the other: as
 * long as one of them lives, it finds all descendants of the ranks and ends them. The
 * guard has a name of its own, so that it is not hit by who kills processes by the
 * program's name, and touches nothing while the keeper lives. */
#ifndef LK_LAUNCH_GUARD_H
#define LK_LAUNCH_GUARD_H

#include "launch/keeper.h"

/* The guard's life, in the process made for it: forks the keeper, waits for it, and
 * ends as the keeper did. */
_Noreturn void lk__guard_run(const lk_keeper_plan *plan);

#endif
