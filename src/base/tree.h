/* tree.h - the canonical sum tree over shards, as pure arithmetic.
 *
 * sum(lo,hi) is the leaf when hi-lo is 1, else sum(lo,mid) + sum(mid,hi) with
 * mid = lo + the largest power of two below hi-lo. Pushing the leaves from left
 * to right onto a stack and merging the two topmost entries whenever they are
 * the two children of one node evaluates the tree with few live partial sums:
 * at most LK_TREE_MAX_DEPTH. */
#ifndef LK_BASE_TREE_H
#define LK_BASE_TREE_H

#include <stddef.h>

/* Shards a run may have, and room for the deepest stack that they make: twice
 * log2 of their number, as a range that does not start at shard 0 may need. */
#define LK_MAX_SHARDS 4096
#define LK_TREE_MAX_DEPTH 26

/* How many times the two topmost entries are merged once leaf s of [0,shards)
 * has been pushed: all stack entries become one when s is the last leaf. */
int lk__tree_merges(int shards, int s);

/* Entries on the stack after leaf s and its merges; before any leaf there are
 * none (s = -1). */
int lk__tree_depth(int shards, int s);

/* First leaf of each stack entry after leaf s, bottom first; begin has room for
 * LK_TREE_MAX_DEPTH. Entry i ends where entry i+1 begins, the last at s+1. */
int lk__tree_stack(int shards, int s, int *begin);

/* Where the node [lo,hi) of two leaves or more is split. */
int lk__tree_middle(int lo, int hi);

/* The maximal subtrees of the tree over [0,shards) inside [first,last), left to
 * right: returns how many there are, and the first leaf of each in begin (may be
 * NULL, else room for LK_TREE_MAX_DEPTH). Root i ends where root i+1 begins, the
 * last at `last`; an empty range has none. */
int lk__tree_roots(int shards, int first, int last, int *begin);

/* First sample of shard s when batch samples are cut into shards near-evenly;
 * s = shards gives batch. */
size_t lk__shard_begin(size_t batch, int shards, int s);
/* Samples that `width` neighbouring shards have at most, in any batch up to this
 * one: a smaller batch may give a range of shards more than a larger one does. */
size_t lk__shard_most(size_t batch, int shards, int width);

#endif
