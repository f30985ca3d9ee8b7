/* bind.c - divides cores among ranks with hwloc, if the build has it. */
#define _GNU_SOURCE /* cpu_set_t */
#include "launch/bind.h"

#include <limits.h>
#include <sched.h>
#include <stdbool.h>

#include "base/cores.h"
#include "base/mem.h"

#ifdef LK_HAVE_HWLOC

#include <hwloc.h>
#include <hwloc/glibc-sched.h>

enum { SET_BYTES = LK_CORES_SETS * sizeof(cpu_set_t) };

static lk_status distribute(hwloc_topology_t topology, int count, cpu_set_t *sets)
{
    hwloc_cpuset_t *shares;
    LK_TRY(LK_ALLOC((size_t)count, "core sets", &shares));
    hwloc_obj_t root = hwloc_get_root_obj(topology);
    int depth = hwloc_get_type_or_below_depth(topology, HWLOC_OBJ_CORE);
    int result = hwloc_distrib(topology, &root, 1, shares, (unsigned)count, depth, 0);
    for (int i = 0; result == 0 && i < count; i++) {
        hwloc_cpuset_to_glibc_sched_affinity(topology, shares[i], &sets[i * LK_CORES_SETS], SET_BYTES);
        hwloc_bitmap_free(shares[i]);
    }
    lk__mem_free(shares);
    if (result != 0)
        return lk__fail(LK_STATUS_UNSUPPORTED, "hwloc cannot share the cores of this machine among %d ranks", count);
    return LK_OK;
}

/* Restricts the topology to the CPU mask of this process (taskset, or an outer launcher). The topology only
 * knows the limits of control groups. */
static lk_status keep_own(hwloc_topology_t topology)
{
    hwloc_bitmap_t own = hwloc_bitmap_alloc();
    if (!own)
        return lk__fail_memory(0, "the CPUs of this process");
    /* If the mask cannot be read, all CPUs stay. */
    bool known = hwloc_get_cpubind(topology, own, HWLOC_CPUBIND_THREAD) == 0;
    int result = known ? hwloc_topology_restrict(topology, own, 0) : 0;
    hwloc_bitmap_free(own);
    if (result != 0)
        return lk__fail(LK_STATUS_UNSUPPORTED, "hwloc cannot find which cores this process may use; use `bind` none");
    return LK_OK;
}

static lk_status plan(hwloc_topology_t topology, int count, cpu_set_t **out, int *cores)
{
    cpu_set_t *sets;
    if (hwloc_topology_load(topology) != 0)
        return lk__fail(LK_STATUS_UNSUPPORTED, "hwloc cannot find the cores of this machine; use `bind` none");
    LK_TRY(keep_own(topology));
    LK_TRY(LK_ALLOC((size_t)count * LK_CORES_SETS, "core sets", &sets));
    lk_status status = distribute(topology, count, sets);
    if (status != LK_OK) {
        lk__mem_free(sets);
        return status;
    }
    *cores = (int)hwloc_get_nbobjs_by_depth(topology, hwloc_get_type_or_below_depth(topology, HWLOC_OBJ_CORE));
    *out = sets;
    return LK_OK;
}

lk_status lk__bind_plan(int count, void **sets, size_t *bytes, int *cores)
{
    hwloc_topology_t topology;
    cpu_set_t *planned = NULL;
    if (hwloc_topology_init(&topology) != 0)
        return lk__fail_memory(0, "the machine's topology");
    lk_status status = plan(topology, count, &planned, cores);
    hwloc_topology_destroy(topology);
    LK_TRY(status);
    *sets = planned;
    *bytes = SET_BYTES;
    return LK_OK;
}

#else

lk_status lk__bind_plan(int count, void **sets, size_t *bytes, int *cores)
{
    (void)count, (void)sets, (void)bytes, (void)cores;
    return lk__fail(
        LK_STATUS_UNSUPPORTED,
        "`bind` core needs hwloc, which this build is without; use `bind` none, or build with libhwloc-dev");
}

#endif
