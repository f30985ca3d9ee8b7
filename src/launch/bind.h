/* bind.h - which processor cores each rank of a node may use. */
#ifndef LK_LAUNCH_BIND_H
#define LK_LAUNCH_BIND_H

#include <stddef.h>

#include "base/status.h"

/* Shares of the cores that this process may use, whole cores for each of count
 * ranks (shared when there are more ranks than cores), close cores together.
 * *bytes is the size of one set as sched_setaffinity(2) takes it; sets holds
 * count of them and is freed by lk__mem_free. *cores is how many there are.
 * UNSUPPORTED in a build without hwloc. Takes some milliseconds. */
lk_status lk__bind_plan(int count, void **sets, size_t *bytes, int *cores) LK_CHECKED;

#endif
