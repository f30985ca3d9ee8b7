/* tree.c - the canonical sum tree over shards.
 *
 * A left subtree always has a power of two of leaves. So the stack mirrors the binary digits of the
 * number of leaves pushed, like a counter. The last leaf is different: it closes all open nodes. */
#include "base/tree.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

static int popcount(unsigned value)
{
    return __builtin_popcount(value);
}

int lk__tree_merges(int shards, int s)
{
    assert(s >= 0 && s < shards && shards <= LK_MAX_SHARDS);
    if (s + 1 == shards)
        return popcount((unsigned)s);
    return __builtin_ctz((unsigned)s + 1);
}

int lk__tree_depth(int shards, int s)
{
    assert(s >= -1 && s < shards && shards <= LK_MAX_SHARDS);
    return s + 1 == shards ? 1 : popcount((unsigned)s + 1);
}

int lk__tree_stack(int shards, int s, int *begin)
{
    int depth = lk__tree_depth(shards, s);
    int start = 0;
    int rest = s + 1;
    for (int i = 0; i < depth; i++) {
        begin[i] = start;
        if (rest == 0)
            break;
        int size = 1 << (31 - __builtin_clz((unsigned)rest));
        start += size;
        rest -= size;
    }
    return depth;
}

int lk__tree_middle(int lo, int hi)
{
    assert(hi - lo >= 2);
    return lo + (1 << (31 - __builtin_clz((unsigned)(hi - lo - 1))));
}

int lk__tree_roots(int shards, int first, int last, int *begin)
{
    assert(0 <= first && first <= last && last <= shards && shards <= LK_MAX_SHARDS);
    int count = 0;
    while (first < last) {
        /* Goes down from the root to the largest node that begins at first and ends at or before
         * last. */
        int lo = 0, hi = shards;
        while (lo != first || hi > last) {
            int middle = lk__tree_middle(lo, hi);
            if (first < middle)
                hi = middle;
            else
                lo = middle;
        }
        if (begin)
            begin[count] = first;
        count++;
        first = hi;
    }
    return count;
}

int lk__tree_subtree_end(const int *merges, int first, int end, int most)
{
    int depth = 0, found = first + 1;
    for (int i = first; i < end && i < first + most; i++) {
        bool outside = merges[i] > depth;
        depth += 1 - (outside ? depth : merges[i]);
        if (depth == 1)
            found = i + 1;
        if (outside)
            break;
    }
    return found;
}

size_t lk__shard_begin(size_t batch, int shards, int s)
{
    /* Written so that batch * s cannot overflow. */
    size_t count = (size_t)shards;
    size_t index = (size_t)s;
    return batch / count * index + batch % count * index / count;
}

size_t lk__shard_most(size_t batch, int shards, int width)
{
    size_t count = (size_t)shards, part = (size_t)width;
    return batch / count * part + (batch % count * part + count - 1) / count;
}

size_t lk__shard_largest(size_t batch, int shards)
{
    size_t most = lk__shard_most(batch, shards, 1);
    return most > 0 ? most : 1;
}
