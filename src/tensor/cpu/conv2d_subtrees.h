/* conv2d_subtrees.h - how the work of a convolution's weight gradient is divided among tasks.
 *
 * A task owns a block of outputs and some shards: all shards of the wave, or those of a whole subtree of the sum tree.
 * A task that has few shards reads few samples, but every subtree has a sum of its own for each weight. So layers with
 * few weights have many subtrees. The sums of subtrees are then folded like leaves: which task adds what changes no
 * bit. */
#ifndef LK_TENSOR_CPU_CONV2D_SUBTREES_H
#define LK_TENSOR_CPU_CONV2D_SUBTREES_H

#include "tensor/cpu/conv2d.h"

/* Shards and where their sum goes: partial sums of the wave, or slot 0 of a row of its own. */
typedef struct lk_subtree {
    lk_shards shards;
    lk_partials dw, db;
} lk_subtree;

/* Tasks are `count` times the blocks. */
typedef struct lk_division {
    size_t threads;          /* that have scratch memory */
    size_t blocks;           /* of outputs for each subtree that are wanted */
    size_t least;            /* blocks that give each thread a task */
    size_t depth;            /* partial sums of a subtree, at most */
    const lk_subtree *trees; // (count)
    size_t count;
} lk_division;

/* All shards in one task for each block. */
#define lk__division_whole LK_KERNEL(division_whole)
lk_division lk__division_whole(const lk_subtree *wave, size_t threads);

/* A wave that is cut into subtrees. */
enum { LK_SUBTREES_MOST = 128 };
typedef struct lk_subtrees {
    lk_division division;
    lk_shards roots; /* the subtrees as leaves of the wave; count is 0 if the wave is not cut */
    lk_partials dw, db;
    float *rows; // (count, width) sums of subtrees: dw, then db
    size_t weights, channels, width;
    int inner[LK_MAX_SHARDS], outer[LK_SUBTREES_MOST]; /* merges inside of subtrees, and after each */
    lk_subtree trees[LK_SUBTREES_MOST];
} lk_subtrees;

/* Scratch floats of the rows. */
#define lk__subtrees_floats LK_KERNEL(subtrees_floats)
size_t lk__subtrees_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads);

/* The divisions that a layer may have, for the size of scratch memory: that of index 0, 1, ... until it returns false.
 * trees is NULL. */
#define lk__subtrees_division LK_KERNEL(subtrees_division)
bool lk__subtrees_division(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads, size_t index,
                           lk_division *out);

/* Divides the wave; `out` must stay where it is. wave.db.slot0 may be NULL. */
#define lk__subtrees_cut LK_KERNEL(subtrees_cut)
void lk__subtrees_cut(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads, const lk_subtree *wave,
                      float *rows, lk_subtrees *out);

/* Folds the sums of subtrees into the partial sums of the wave. */
#define lk__subtrees_fold LK_KERNEL(subtrees_fold)
void lk__subtrees_fold(lk_device *dev, const lk_subtrees *subtrees);

#endif
