/* gemm.h - the two matrix kernels under convolution and linear layers.
 *
 * Every output is one chain of fused multiply-adds in the order of its sum;
 * vectors run across outputs. lk__gemm multiplies rows that lie in memory as
 * they are by packed panels (forward, input gradients). lk__outer sums outer
 * products over positions (weight gradients) and folds the leaf of a shard into
 * the partial sums while it is in registers. */
#ifndef LK_TENSOR_CPU_GEMM_H
#define LK_TENSOR_CPU_GEMM_H

#include <stdbool.h>

#include "base/mem.h"
#include "tensor/cpu/vec.h"

/* A register tile is LK_MR rows by LK_NR columns (two vectors). */
#if defined(LK_VEC_AVX512)
enum { LK_MR = 12 };
#elif defined(LK_VEC_NEON)
enum { LK_MR = 8 };
#else
enum { LK_MR = 6 };
#endif
enum { LK_NR = 2 * V };

/* C = start + A B for a grid of ny by nx rows. Row (y, x) of A starts at
 * a + y*a_y + x*a_x and is `runs` runs of `len` floats, `run` floats apart; row
 * (y, x) of C is `cols` floats at c + y*c_y + x*c_x. */
typedef struct lk_gemm {
    size_t ny, nx;
    const float *a;
    size_t a_y, a_x;
    size_t runs, len, run;
    const float *panels; /* see lk__panel_width */
    const float *start;  /* (cols rounded up to LK_NR) first term of each sum; NULL goes on from C */
    float *c;
    size_t c_y, c_x;
    size_t cols;
    bool relu;
} lk_gemm;

#define lk__gemm LK_KERNEL(gemm)
void lk__gemm(const lk_gemm *gemm);

/* B is packed in panels of LK_NR columns, each (runs*len, width) with the width
 * given here, missing columns zero; panel p begins at p * runs*len * LK_NR. */
static inline size_t lk__panel_width(size_t cols, size_t panel)
{
    return cols - panel * LK_NR > V ? LK_NR : V;
}

static inline size_t lk__panels(size_t cols)
{
    return (cols + LK_NR - 1) / LK_NR;
}

/* Rows [0,rows) of a tile (any number) and one panel's columns: the sum over
 * positions (y, x) of a[row + y*a_y + x*a_x] * b[y*b_y + x*b_x + column], where
 * row i begins at a[i]. */
typedef struct lk_outer {
    size_t ny, nx;
    size_t a_y, a_x;
    const float *b;
    size_t b_y, b_x;
    size_t width; /* V or LK_NR */
    float *top;   /* (rows, LK_NR) where the sum goes on and is left */
    bool fresh;   /* start at zero instead */
    int merges;   /* then that often: top -= entry; top = old top + sum */
    size_t entry; /* floats from a partial sum to the next */
} lk_outer;

#define lk__outer LK_KERNEL(outer)
void lk__outer(const lk_outer *outer, size_t rows, const float *const *a);

#endif
