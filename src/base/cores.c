/* cores.c - counts cores by affinity and by the CPU quota of control groups, as containers set it. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "base/cores.h"

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/cgroup.h"
#include "base/hash.h"

static bool get_affinity(cpu_set_t sets[LK_CORES_SETS])
{
    memset(sets, 0, LK_CORES_SETS * sizeof *sets);
    return sched_getaffinity(0, LK_CORES_SETS * sizeof *sets, sets) == 0;
}

/* Reads `count` numbers from the start of a file; false if it has fewer. */
static bool read_numbers(const char *folder, const char *name, int count, long long *out)
{
    char path[LK_CGROUP_PATH + 64];
    int got = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    while (file && got < count && fscanf(file, "%lld", &out[got]) == 1)
        got++;
    if (file)
        fclose(file);
    return got == count;
}

/* Lowers *arg to the cores that the group's quota allows: microseconds of CPU time per period.
 * "max" or -1 means no limit. */
static void lower_to_group(void *arg, const char *folder, int version)
{
    int *least = arg;
    long long quota[2];
    bool limited = version == 2 ? read_numbers(folder, "cpu.max", 2, quota)
                                : read_numbers(folder, "cpu.cfs_quota_us", 1, &quota[0]) &&
                                      read_numbers(folder, "cpu.cfs_period_us", 1, &quota[1]);
    if (!limited || quota[0] <= 0 || quota[1] <= 0)
        return;
    if (quota[0] / quota[1] < *least)
        *least = (int)(quota[0] / quota[1]);
}

int lk__cores_quota(const char *root)
{
    int least = INT_MAX;
    lk__cgroup_visit(root, "cpu", lower_to_group, &least);
    return least;
}

int lk__cores_part(int sharers, int neighbours)
{
    cpu_set_t sets[LK_CORES_SETS];
    int mine = get_affinity(sets) ? CPU_COUNT_S(sizeof sets, sets) / sharers : 1;
    int ours = lk__cores_quota("") / neighbours;
    return mine < ours ? mine : ours;
}

int lk__cores(void)
{
    int part = lk__cores_part(1, 1);
    return part > 0 ? part : 1;
}

uint64_t lk__cores_set(void)
{
    cpu_set_t sets[LK_CORES_SETS];
    (void)get_affinity(sets);
    return lk__hash(sets, sizeof sets, 0);
}
