/* place.c - greedy placement of blocks, largest first. */
#include "nn/place.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/mem.h"

static int larger_first(const void *a, const void *b)
{
    const lk_block *x = *(lk_block *const *)a;
    const lk_block *y = *(lk_block *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x < y ? -1 : 1; /* a total order, so that plans are the same everywhere */
}

static bool live_together(const lk_block *a, const lk_block *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* placed is sorted by offset. */
static size_t lowest_gap(const lk_block *block, lk_block *const *placed, size_t count)
{
    size_t offset = 0;
    for (size_t i = 0; i < count; i++) {
        if (!live_together(block, placed[i]))
            continue;
        if (offset + block->bytes <= placed[i]->offset)
            break;
        offset = lk__max_size(offset, lk__round_up(placed[i]->offset + placed[i]->bytes, LK_ALIGN));
    }
    return offset;
}

static void insert_by_offset(lk_block **placed, size_t count, lk_block *block)
{
    size_t i = count;
    for (; i > 0 && placed[i - 1]->offset > block->offset; i--)
        placed[i] = placed[i - 1];
    placed[i] = block;
}

lk_status lk__place(lk_block *blocks, size_t count, size_t *total)
{
    lk_block **order;
    LK_TRY(LK_ALLOC(2 * count + 1, "memory plan", &order));
    lk_block **placed = order + count;
    for (size_t i = 0; i < count; i++)
        order[i] = &blocks[i];
    qsort(order, count, sizeof(lk_block *), larger_first);
    size_t end = 0;
    for (size_t i = 0; i < count; i++) {
        order[i]->offset = lowest_gap(order[i], placed, i);
        end = lk__max_size(end, order[i]->offset + order[i]->bytes);
        insert_by_offset(placed, i, order[i]);
    }
    lk__free(order);
    *total = end;
    return LK_OK;
}
