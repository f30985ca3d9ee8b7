/* conv2d_subtrees.h - cuts the shards of a wave into subtrees of the sum tree, for the weight gradient of a
 * convolution.
 *
 * A task that has few shards reads few samples, but every subtree has a sum of its own for each weight. So layers with
 * few weights have many subtrees, and the largest layers have one. The sums of subtrees are folded like leaves: which
 * task adds what changes no bit. */
#ifndef LK_TENSOR_CPU_CONV2D_SUBTREES_H
#define LK_TENSOR_CPU_CONV2D_SUBTREES_H

#include "tensor/cpu/conv2d.h"
#include "tensor/cpu/division.h"

/* The sums of subtrees of a layer. */
typedef struct lk_subtrees_rows {
    size_t threads, most; /* most: subtrees at most that are wanted, a power of two; uneven waves have up to 2 * most */
    size_t weights, channels;
    size_t width; /* floats of a row: dw, then db */
} lk_subtrees_rows;

#define lk__subtrees_rows_of LK_KERNEL(subtrees_rows_of)
lk_subtrees_rows lk__subtrees_rows_of(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads);

/* Scratch floats of the rows. */
static inline size_t lk__subtrees_floats(const lk_subtrees_rows *rows)
{
    return rows->most > 1 ? 2 * rows->most * rows->width : 0;
}

enum { LK_SUBTREES_MOST = 128 };

typedef struct lk_subtrees {
    lk_division division;
    lk_subtrees_rows rows;
    lk_subtree wave;
    lk_shards roots; /* the subtrees as leaves of the wave; count is 0 if the wave is not cut */
    float *sums;     // (roots.count, rows.width)
    int inner[LK_MAX_SHARDS], outer[LK_SUBTREES_MOST]; /* merges inside of subtrees, and after each */
    lk_subtree trees[LK_SUBTREES_MOST];
} lk_subtrees;

/* Divides the wave; sums: scratch of lk__subtrees_floats. `out` must stay where it is. */
#define lk__subtrees_cut LK_KERNEL(subtrees_cut)
void lk__subtrees_cut(const lk_subtrees_rows *rows, const lk_subtree *wave, float *sums, lk_subtrees *out);

/* Folds the sums of the subtrees into the partial sums of the wave. */
#define lk__subtrees_fold LK_KERNEL(subtrees_fold)
void lk__subtrees_fold(lk_device *dev, const lk_subtrees *subtrees);

#endif
