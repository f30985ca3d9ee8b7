/* gemm.h - the two matrix kernels under convolution and linear layers.
 *
 * Every output is one chain of fused multiply-adds in the order of its sum;
 * vectors run across outputs. lk__gemm multiplies rows that lie in memory as
 * they are by packed panels (forward, input gradients). lk__gemm_outer sums outer
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
    const float *mask; /* NULL, or laid out as C: the result is 0 where this is <= 0 */
} lk_gemm;

#define lk__gemm LK_KERNEL(gemm)
void lk__gemm(const lk_gemm *gemm);

/* B is packed in panels of LK_NR columns, each (runs*len, width) with the width
 * given here, missing columns zero; panel p begins at p * runs*len * LK_NR. */
static inline size_t lk__panel_width(size_t cols, size_t panel)
{
    return cols - panel * LK_NR > V ? LK_NR : V;
}

static inline size_t lk__panel_count(size_t cols)
{
    return (cols + LK_NR - 1) / LK_NR;
}

/* Sums of outer products: row i of a tile of any number of rows, and one panel
 * of columns, get the sum over positions (z, y, x) of
 * a[i][z*a_z + y*a_y + x*a_x] * b[z*b_z + y*b_y + x*b_x + column]. The range of x is
 * cut into leaves that are folded as shards.h says. */
typedef struct lk_gemm_outer {
    size_t nz, ny;
    size_t a_z, a_y, a_x;
    const float *b;
    size_t b_z, b_y, b_x; /* b_x is at least the width */
    size_t width;         /* V or LK_NR */
    int leaves;
    const size_t *begin; /* (leaves + 1) leaf l is the positions with x in [begin[l], begin[l+1]) */
    const int *merges;   /* (leaves) */
    float *top;          /* (rows, LK_NR) where leaf 0 goes */
    size_t entry;        /* floats from a partial sum to the next above it */
    bool fresh;          /* leaves start at zero; else leaf 0 goes on from top */
} lk_gemm_outer;

#define lk__gemm_outer LK_KERNEL(outer)
void lk__gemm_outer(const lk_gemm_outer *outer, size_t rows, const float *const *a);

#endif
