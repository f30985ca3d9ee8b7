/* arena.c - greedy assignment of offsets to blocks, largest block first. */
#include "nn/arena.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/mem.h"

static int larger_first(const void *a, const void *b)
{
    const lk_arena_block *x = *(lk_arena_block *const *)a;
    const lk_arena_block *y = *(lk_arena_block *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x < y ? -1 : 1; /* a total order, so that plans are the same everywhere */
}

static bool live_together(const lk_arena_block *a, const lk_arena_block *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* assigned is sorted by offset. */
static size_t lowest_gap(const lk_arena_block *block, lk_arena_block *const *assigned, size_t count)
{
    size_t offset = 0;
    for (size_t i = 0; i < count; i++) {
        if (!live_together(block, assigned[i]))
            continue;
        if (offset + block->bytes <= assigned[i]->offset)
            break;
        offset = lk__size_max(offset, lk__size_round_up(assigned[i]->offset + assigned[i]->bytes, LK_ALIGN));
    }
    return offset;
}

static void insert_by_offset(lk_arena_block **assigned, size_t count, lk_arena_block *block)
{
    size_t i = count;
    for (; i > 0 && assigned[i - 1]->offset > block->offset; i--)
        assigned[i] = assigned[i - 1];
    assigned[i] = block;
}

lk_status lk__arena_pack(lk_arena_block *blocks, size_t count, size_t *total)
{
    lk_arena_block **order;
    LK_TRY(LK_ALLOC(2 * count + 1, "memory plan", &order));
    lk_arena_block **assigned = order + count;
    for (size_t i = 0; i < count; i++)
        order[i] = &blocks[i];
    qsort(order, count, sizeof(lk_arena_block *), larger_first);
    size_t end = 0;
    for (size_t i = 0; i < count; i++) {
        order[i]->offset = lowest_gap(order[i], assigned, i);
        end = lk__size_max(end, order[i]->offset + order[i]->bytes);
        insert_by_offset(assigned, i, order[i]);
    }
    lk__mem_free(order);
    *total = end;
    return LK_OK;
}
