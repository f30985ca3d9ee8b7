/* launch.h - starting ranks as processes of this host, and watching them. */
#ifndef LOCKSTEP_LAUNCH_H
#define LOCKSTEP_LAUNCH_H

#include <lockstep/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a spawned process runs; its return value is the process's exit status.
 * RANK, WORLD_SIZE and the other variables of env:// are set, so that
 * lk_group_join(NULL, &group) meets the others. */
typedef int (*lk_spawn_fn)(int rank, void *arg);

/* Runs fn in nprocs processes made by fork and returns when all have ended.
 * When one ends with another status than 0 or by a signal, the rest are stopped
 * within a second and the detail tells which was first and why (PEER). No
 * process is left behind, not even when the caller is killed. The caller should
 * have no other threads. */
lk_status lk_spawn(int nprocs, lk_spawn_fn fn, void *arg) LK_CHECKED;

#ifdef __cplusplus
}
#endif
#endif
