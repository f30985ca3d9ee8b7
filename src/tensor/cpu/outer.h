/* outer.h - weight gradients of layers with many channels: sums of outer products over pixels, folded over shards.
 *
 * For each group of channels dw is a matrix of `out` rows by (in, taps) columns. A panel of columns is one tap and up
 * to LK_NR input channels, a unit of rows is LK_MR output channels. A task owns some units and all taps of some blocks
 * of channels, for the shards of a subtree (division.h). It walks over the pixels of dy in segments, small
 * enough that what a segment reads stays in cache, copies x and dy in the order in which tiles read them, and keeps its
 * partial sums in memory between segments. A sum runs over samples, rows and columns in the order of sums.h. */
#ifndef LK_TENSOR_CPU_OUTER_H
#define LK_TENSOR_CPU_OUTER_H

#include "tensor/cpu/conv2d.h"
#include "tensor/cpu/division.h"
#include "tensor/cpu/tile.h"

typedef struct lk_outer {
    const lk_conv2d_desc *conv;
    lk_shape x, y;
    const float *input;          // (n, h, w, groups, in)
    const float *dy;             // (n, h, w, groups, out)
    lk_sum_rows sum;             /* blocks of a leaf's sum */
    const lk_division *division; /* of dw: (groups, out, in, kh, kw) */
} lk_outer;

/* Whether panels have two vectors. */
static inline bool lk__outer_fits(const lk_conv2d_desc *conv, lk_shape x)
{
    return x.c / conv->groups >= LK_NR;
}

/* Scratch floats. */
#define lk__outer_floats LK_KERNEL(outer_floats)
size_t lk__outer_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, lk_sum_rows sum,
                        const lk_division *division);

#define lk__outer_run LK_KERNEL(outer_run)
void lk__outer_run(lk_device *dev, const lk_outer *outer, void *scratch);

#endif
