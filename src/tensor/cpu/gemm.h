/* gemm.h - the two matrix kernels of convolutions and linear layers.
 *
 * Every output is a sum in the order of sums.h; a vector holds several outputs.
 * lk__gemm multiplies rows, which need not be packed, by packed panels (forward, input gradients).
 * lk__gemm_outer sums outer products over positions (weight gradients) and adds the leaf of a shard to the
 * partial sums while the leaf is in registers. */
#ifndef LK_TENSOR_CPU_GEMM_H
#define LK_TENSOR_CPU_GEMM_H

#include <stdbool.h>

#include "base/mem.h"
#include "tensor/cpu/sums.h"
#include "tensor/cpu/tile.h"

/* C = start + A B for a grid of ny by nx rows. Row (y, x) of A starts at
 * a + y*a_y + x*a_x and is runs_y by runs_x runs of `len` floats; run (i, j) begins
 * i*run_y + j*run_x floats later. Row (y, x) of C is `cols` floats at c + y*c_y + x*c_x. */
typedef struct lk_gemm {
    size_t ny, nx;
    const float *a;
    size_t a_y, a_x;
    size_t runs_y, runs_x, run_y, run_x, len;
    const float *panels; /* see lk__panel_width */
    const float *start;  /* (cols rounded up to LK_NR) first term of each sum; NULL: C has the sum of earlier blocks */
    float *c;
    size_t c_y, c_x;
    size_t cols;
    bool relu;
    const float *mask; /* NULL, or in the layout of C: the result is 0 where mask <= 0 */
} lk_gemm;

/* Floats of a row of A. */
static inline size_t lk__gemm_depth(const lk_gemm *gemm)
{
    return gemm->runs_y * gemm->runs_x * gemm->len;
}

/* Sets runs_x, run_x and len for `taps` taps of `channels` floats each that are `gap` pixels apart: neighbouring
 * taps are one run. */
static inline void lk__gemm_set_taps(lk_gemm *gemm, size_t taps, size_t gap, size_t channels)
{
    bool apart = gap > 1;
    gemm->runs_x = apart ? taps : 1;
    gemm->run_x = gap * channels;
    gemm->len = apart ? channels : taps * channels;
}

#define lk__gemm LK_KERNEL(gemm)
void lk__gemm(const lk_gemm *gemm);

/* B is packed in panels of LK_NR columns. A panel is (lk__gemm_depth, width) with this width; missing columns are
 * zero. Panel p begins at p * lk__gemm_depth * LK_NR. */
static inline size_t lk__panel_width(size_t cols, size_t panel)
{
    return cols - panel * LK_NR > V ? LK_NR : V;
}

static inline size_t lk__panel_count(size_t cols)
{
    return (cols + LK_NR - 1) / LK_NR;
}

/* Sums of outer products. Row i of a tile (any number of rows) and one panel of columns get the sum over
 * positions (z, y, x) of a[i][z*a_z + y*a_y + x*a_x] * b[z*b_z + y*b_y + x*b_x + column]. The range of x is
 * divided into leaves, which are folded as shards.h says. */
typedef struct lk_gemm_outer {
    size_t nz, ny;
    lk_sum_rows block; /* z are samples, y rows; all but the last of a sample or a leaf are in whole blocks */
    size_t a_z, a_y, a_x;
    const float *b;
    size_t b_z, b_y, b_x;
    size_t width;     /* V, LK_NR, or LK_WIDE * V for wide tiles, which need an even number of rows */
    size_t b_more[2]; /* wide tiles: floats from the first vector of b to the others */
    int leaves;
    const size_t *begin; /* (leaves + 1) leaf l is the positions with x in [begin[l], begin[l+1]) */
    const int *merges;   /* (leaves) */
    float *top;          /* (rows, LK_NR) or wide (rows, LK_WIDE * V): where leaf 0 is summed */
    size_t entry;        /* floats from one partial sum to the next above it */
    bool fresh;          /* leaves start at zero; otherwise leaf 0 continues from top */
    const char *ahead;   /* what the caller reads next: prefetched, ahead_row bytes during each row (z, y); */
    size_t ahead_row;    /* 0: nothing */
} lk_gemm_outer;

#define lk__gemm_outer LK_KERNEL(gemm_outer)
void lk__gemm_outer(const lk_gemm_outer *outer, size_t rows, const float *const *a);

#endif
