/* bind.h - the processor cores that each rank of a node may use. */
#ifndef LK_LAUNCH_BIND_H
#define LK_LAUNCH_BIND_H

#include <stddef.h>

#include "base/status.h"

/* Divides the cores that this process may use among `count` ranks: whole cores, close to each other; ranks
 * share cores if there are more ranks than cores. *bytes is the size of one set as sched_setaffinity(2) takes
 * it; sets has count of them and is freed by lk__mem_free. *cores is the number of cores. UNSUPPORTED in a
 * build without hwloc. Takes some milliseconds. */
lk_status lk__bind_plan(int count, void **sets, size_t *bytes, int *cores) LK_CHECKED;

#endif
