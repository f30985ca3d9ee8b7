/* tree.h - the tree over the shards, by its definition: the reference for tests of sums. */
#ifndef LK_TESTS_COMM_TREE_H
#define LK_TESTS_COMM_TREE_H

/* Returns where the node [lo,hi) is split: lo plus the largest power of two below hi - lo. */
static inline int tree_middle(int lo, int hi)
{
    int power = 1;
    while (2 * power < hi - lo)
        power *= 2;
    return lo + power;
}

#endif
