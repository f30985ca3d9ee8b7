/* group_memory.c - memory of a group that the other ranks of the host can read. */
#include "comm/collective/group_memory.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/forks.h"
#include "base/mem.h"
#include "comm/collective/argument.h"
#include "comm/collective/group_impl.h"
#include "comm/collective/progress.h"

static lk_status plain_block(lk_group *group, size_t bytes, void **out)
{
    void *block = NULL;
    void **more = realloc(group->blocks, (group->block_count + 1) * sizeof *more);
    if (!more)
        return lk__fail_memory((group->block_count + 1) * sizeof *more, "blocks of a group");
    group->blocks = more;
    LK_TRY(lk__mem_alloc(bytes, 1, "memory of a group", &block));
    group->blocks[group->block_count++] = block;
    *out = block;
    return LK_OK;
}

static lk_status alloc(lk_group *group, size_t bytes, void **out)
{
    LK_TRY(lk__group_check(group));
    if (!group->transport->type->alloc)
        return plain_block(group, bytes, out);
    lk_status status = group->transport->type->alloc(group->transport, bytes, out);
    return status == LK_OK ? LK_OK : lk__group_break(group, status);
}

lk_status lk_group_alloc(lk_group *group, size_t bytes, void **out)
{
    LK_TRY(lk__argument_group(group, "lk_group_alloc"));
    LK_TRY(lk__argument_set(out, "out", "lk_group_alloc"));
    lk__progress_take(group);
    lk_status status = alloc(group, bytes, out);
    lk__progress_give(group);
    return status;
}

void lk_group_free(lk_group *group, void *block)
{
    if (!block || !group || group->forks != lk__forks())
        return;
    if (group->transport->type->alloc) {
        lk__progress_take(group);
        group->transport->type->free(group->transport, block);
        lk__progress_give(group);
        return;
    }
    for (size_t i = 0; i < group->block_count; i++) {
        if (group->blocks[i] == block) {
            group->blocks[i] = group->blocks[--group->block_count];
            lk__mem_free(block);
            return;
        }
    }
}

lk_status lk__group_exchange(lk_group *group, const void *mine, size_t bytes, void *all)
{
    lk__progress_take(group);
    lk_status status = lk__group_check(group);
    if (status == LK_OK)
        status = group->boot.exchange(group->boot.arg, mine, bytes, all);
    if (status != LK_OK)
        status = lk__group_break(group, status);
    lk__progress_give(group);
    return status;
}

size_t lk__group_room(const lk_group *group)
{
    const lk_transport_type *type = group->transport->type;
    return type->room ? type->room(group->transport) : SIZE_MAX;
}
