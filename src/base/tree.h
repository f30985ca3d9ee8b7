/* tree.h - the canonical sum tree over shards: pure arithmetic.
 *
 * sum(lo,hi) is the leaf if hi-lo is 1, else sum(lo,mid) + sum(mid,hi) with mid = lo + the largest
 * power of two below hi-lo. To evaluate the tree, push the leaves from left to right onto a stack,
 * and merge the two topmost entries whenever they are the children of one node. The stack then has
 * at most LK_TREE_MAX_DEPTH partial sums. */
#ifndef LK_BASE_TREE_H
#define LK_BASE_TREE_H

#include <stddef.h>

/* The most shards of a run, and the deepest stack that they need: about twice log2 of their number,
 * for a range that does not start at shard 0. */
#define LK_MAX_SHARDS 4096
#define LK_TREE_MAX_DEPTH 26

/* How many merges of the two topmost entries follow after leaf s of [0,shards) was pushed. After
 * the last leaf one entry remains. */
int lk__tree_merges(int shards, int s);

/* Entries on the stack after leaf s and its merges; s = -1: before the first leaf, 0. */
int lk__tree_depth(int shards, int s);

/* Writes the first leaf of each stack entry after leaf s, bottom first, and returns their number;
 * begin has room for LK_TREE_MAX_DEPTH. Entry i ends where entry i+1 begins, the last at s+1. */
int lk__tree_stack(int shards, int s, int *begin);

/* Where the node [lo,hi), which has at least two leaves, is split. */
int lk__tree_middle(int lo, int hi);

/* Finds the maximal subtrees of the tree over [0,shards) inside [first,last), from left to right.
 * Returns their number and writes their first leaves to begin (NULL, or room for
 * LK_TREE_MAX_DEPTH). Subtree i ends where subtree i+1 begins, the last at `last`; an empty range
 * has none. */
int lk__tree_roots(int shards, int first, int last, int *begin);

/* The end of the largest whole subtree that begins at leaf `first` and has at most `most` leaves, all
 * of them before leaf `end`; first < end. merges[i] is how many merges follow
 * leaf i, as lk__tree_merges or with those alone that the range of a rank has. Merges with sums
 * before the subtree follow its last leaf only. */
int lk__tree_subtree_end(const int *merges, int first, int end, int most);

/* First sample of shard s when a batch is cut into near-even shards; s = shards gives batch. */
size_t lk__shard_begin(size_t batch, int shards, int s);
/* Samples of the largest shard of the batch; at least 1. */
size_t lk__shard_largest(size_t batch, int shards);
/* The most samples of `width` neighbouring shards, in this or any smaller batch: a smaller batch
 * can give a range of shards more samples than a larger one. */
size_t lk__shard_most(size_t batch, int shards, int width);

#endif
