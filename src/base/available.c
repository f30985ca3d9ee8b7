/* available.c - reads the memory limits from /proc, the cgroup and ulimit.
 *
 * Callers refuse to start a run when memory is too small, so unclear cases count as more memory: a
 * file that is missing or not understood means no limit. */
#include "base/available.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/cgroup.h"
#include "base/mem.h"

enum { LINE = 512, PATH = 4096 };

static size_t add(size_t a, size_t b)
{
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

static size_t subtract(size_t a, size_t b)
{
    return a > b ? a - b : 0;
}

/* Reads the number after `key` at the start of a line, times unit; false if no line has it. */
static bool find_value(const char *path, const char *key, size_t unit, size_t *out)
{
    FILE *file = fopen(path, "re");
    char line[LINE];
    size_t length = strlen(key);
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file)) {
        char *end;
        if (strncmp(line, key, length) != 0)
            continue;
        unsigned long long value = strtoull(line + length, &end, 10);
        found = end != line + length && value <= SIZE_MAX / unit;
        if (found)
            *out = (size_t)value * unit;
    }
    if (file)
        fclose(file);
    return found;
}

static size_t value_or(const char *path, const char *key, size_t unit, size_t otherwise)
{
    size_t value;
    return find_value(path, key, unit, &value) ? value : otherwise;
}

/* File and line names of one cgroup version. */
typedef struct cgroup_names {
    const char *max, *used; /* files of a group; each holds a number of bytes */
    const char *cached[3];  /* lines of memory.stat that count memory which can be freed, subgroups included */
} cgroup_names;

static const cgroup_names names_of[] = {
    [1] = {"memory.limit_in_bytes",
           "memory.usage_in_bytes",
           {"total_inactive_file ", "total_active_file ", "total_slab_reclaimable "}},
    [2] = {"memory.max", "memory.current", {"inactive_file ", "active_file ", "slab_reclaimable "}},
};

/* Lowers *arg to the memory that this group has left. Without a limit the file says "max", which is
 * no number. */
static void lower_to_group(void *arg, const char *folder, int version)
{
    const cgroup_names *names = &names_of[version];
    char path[LK_CGROUP_PATH + 64];
    size_t *least = arg, max, used, cached = 0;
    snprintf(path, sizeof path, "%s/%s", folder, names->max);
    if (!find_value(path, "", 1, &max))
        return;
    snprintf(path, sizeof path, "%s/%s", folder, names->used);
    if (!find_value(path, "", 1, &used))
        return;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    for (size_t i = 0; i < sizeof names->cached / sizeof *names->cached; i++)
        cached += value_or(path, names->cached[i], 1, 0);
    *least = lk__size_min(*least, add(subtract(max, used), cached < used ? cached : used));
}

static size_t cgroup_left(const char *root)
{
    size_t least = SIZE_MAX;
    lk__cgroup_visit(root, "memory", lower_to_group, &least);
    return least;
}

lk_available_room lk__available_below(const char *root)
{
    char path[PATH];
    size_t memory;
    lk_available_room room = {SIZE_MAX, "the memory of this host"};
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    size_t swap = value_or(path, "SwapFree:", 1024, 0);
    if (find_value(path, "MemAvailable:", 1024, &memory))
        room = (lk_available_room){add(memory, swap), "the free memory of this host"};
    /* The limit on the group's own swap is not read: a group may use all of it. */
    size_t group = add(cgroup_left(root), swap);
    if (group < room.bytes)
        room = (lk_available_room){group, "the memory limit of the cgroup"};
    return room;
}

/* Lowers room to what the resource limit `which` leaves. `used` is the line of /proc/self/status
 * with the usage. */
static void limit_process(lk_available_room *room, int which, const char *used, const char *name)
{
    struct rlimit limit;
    if (getrlimit(which, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > SIZE_MAX)
        return;
    size_t left = subtract((size_t)limit.rlim_cur, value_or("/proc/self/status", used, 1024, 0));
    if (left < room->bytes)
        *room = (lk_available_room){left, name, which == RLIMIT_DATA};
}

lk_available lk__available(void)
{
    lk_available out = {.host = lk__available_below(""), .process = {SIZE_MAX, "ulimit -v"}};
    limit_process(&out.process, RLIMIT_AS, "VmSize:", "ulimit -v");
    limit_process(&out.process, RLIMIT_DATA, "VmData:", "ulimit -d");
    return out;
}
