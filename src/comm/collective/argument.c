/* argument.c - checks of arguments before anything is sent. */
#include "comm/collective/argument.h"

#include <stdio.h>

#include "base/forks.h"
#include "base/tree.h"

lk_status lk__argument_set(const void *pointer, const char *name, const char *call)
{
    return lk__fail_unless(pointer != NULL, name, call);
}

lk_status lk__argument_group(const lk_group *group, const char *call)
{
    LK_TRY(lk__argument_set(group, "group", call));
    if (group->forks != lk__forks())
        return lk__fail(LK_STATUS_USAGE,
                        "%s: the group was made before this process was forked, and belongs to its parent; join in "
                        "the child instead",
                        call);
    return LK_OK;
}

lk_status lk__argument_memory(const lk_argument_memory *memory, const char *call)
{
    if (memory->at || memory->count == 0)
        return LK_OK;
    return lk__fail(LK_STATUS_USAGE, "%s: %s is NULL, but the call needs %zu element%s there", call, memory->name,
                    memory->count, memory->count == 1 ? "" : "s");
}

lk_status lk__argument_apart(const lk_argument_memory *a, const lk_argument_memory *b, size_t element, const char *call)
{
    uintptr_t first = (uintptr_t)a->at, second = (uintptr_t)b->at;
    if (first >= second + b->count * element || second >= first + a->count * element)
        return LK_OK;
    return lk__fail(LK_STATUS_USAGE, "%s: %s and %s overlap; give each memory of its own", call, a->name, b->name);
}

static lk_status check_bounds(const lk_group *group, const int *bounds)
{
    for (int r = 0; r <= group->size; r++) {
        if (bounds[r] < (r ? bounds[r - 1] : 0) || (r == 0 && bounds[0] != 0))
            return lk__fail(LK_STATUS_USAGE, "shard bounds must start at 0 and not fall: bounds[%d] is %d", r,
                            bounds[r]);
    }
    int shards = bounds[group->size];
    if (shards < 1 || shards > LK_MAX_SHARDS)
        return lk__fail(LK_STATUS_USAGE, "a sum has 1 to %d shards, not %d", LK_MAX_SHARDS, shards);
    return LK_OK;
}

lk_status lk__argument_sums(const lk_group *group, const lk_shard_sums *sums, size_t count, const char *call)
{
    LK_TRY(lk__argument_set(sums, "sums", call));
    LK_TRY(lk__argument_set(sums->bounds, "sums.bounds", call));
    LK_TRY(check_bounds(group, sums->bounds));
    int own = lk_shard_roots(sums->bounds[group->size], sums->bounds[group->rank], sums->bounds[group->rank + 1], NULL);
    if (own > 0)
        LK_TRY(lk__argument_set(sums->roots, "sums.roots", call));
    for (int i = 0; i < own; i++) {
        char name[32];
        snprintf(name, sizeof name, "sums.roots[%d]", i);
        LK_TRY(lk__argument_memory(&(lk_argument_memory){name, sums->roots[i], count}, call));
    }
    return LK_OK;
}
