/* tile.h - register tiles of the matrix kernels: one instance of a kernel for each number of rows and vectors, so that
 * all accumulators stay in registers. Rows that do not fill a tile use the next smaller one. */
#ifndef LK_TENSOR_CPU_TILE_H
#define LK_TENSOR_CPU_TILE_H

#include "tensor/cpu/vec.h"

/* A register tile is LK_MR rows by LK_NR columns (two vectors). A wide one is LK_WIDE_ROWS rows by LK_WIDE vectors;
 * memory and registers hold its vectors, row by row, in pairs like those of other tiles. */
#if defined(LK_VEC_AVX512)
enum { LK_MR = 12, LK_WIDE_ROWS = 8 };
#elif defined(LK_VEC_NEON)
enum { LK_MR = 8, LK_WIDE_ROWS = 6 };
#else
enum { LK_MR = 6, LK_WIDE_ROWS = 4 };
#endif
enum { LK_NR = 2 * V, LK_WIDE = 3 };
/* Rows of LK_NR floats that hold a wide tile: at least LK_MR. */
enum { LK_TILE_ROWS = LK_WIDE_ROWS * LK_WIDE / 2 };

/* clang-format off */
/* Instances, by number of rows, in falling order. */
#if defined(LK_VEC_AVX512)
#define LK_TILE_SIZES(X, nv) X(12, nv) X(8, nv) X(4, nv) X(2, nv) X(1, nv)
#define LK_WIDE_SIZES(X) X(8, 3) X(4, 3) X(2, 3)
#elif defined(LK_VEC_NEON)
#define LK_TILE_SIZES(X, nv) X(8, nv) X(4, nv) X(2, nv) X(1, nv)
#define LK_WIDE_SIZES(X) X(6, 3) X(4, 3) X(2, 3)
#else
#define LK_TILE_SIZES(X, nv) X(6, nv) X(4, nv) X(2, nv) X(1, nv)
#define LK_WIDE_SIZES(X) X(4, 3) X(2, 3)
#endif
/* clang-format on */

/* Rows of one or two vectors that a tile is kept in. */
LK_INLINE int lk__tile_rows(int mr, int nv)
{
    return nv == LK_WIDE ? mr * LK_WIDE / 2 : mr;
}

LK_INLINE void lk__tile_zero(v_f32 (*acc)[2], int mr, int nv)
{
    LK_UNROLL for (int i = 0; i < lk__tile_rows(mr, nv); i++) acc[i][0] = acc[i][nv > 1] = v_zero();
}

/* Loads a tile in memory, whose rows are LK_NR floats. */
LK_INLINE void lk__tile_load(const float *from, v_f32 (*acc)[2], int mr, int nv)
{
    LK_UNROLL for (int i = 0; i < lk__tile_rows(mr, nv); i++)
    {
        acc[i][0] = v_load(from + i * LK_NR);
        if (nv > 1)
            acc[i][1] = v_load(from + i * LK_NR + V);
    }
}

/* Adds a tile in memory, whose rows are LK_NR floats: acc = left + acc. */
LK_INLINE void lk__tile_add(const float *left, v_f32 (*acc)[2], int mr, int nv)
{
    LK_UNROLL for (int i = 0; i < lk__tile_rows(mr, nv); i++)
    {
        acc[i][0] = v_add(v_load(left + i * LK_NR), acc[i][0]);
        if (nv > 1)
            acc[i][1] = v_add(v_load(left + i * LK_NR + V), acc[i][1]);
    }
}

/* Adds the outer product of mr neighbouring elements and one or two vectors. */
LK_INLINE void lk__tile_multiply(const float *a, const float *b, v_f32 (*acc)[2], int mr, int nv)
{
    v_f32 b0 = v_load(b), b1 = nv > 1 ? v_load(b + V) : b0;
    LK_UNROLL for (int i = 0; i < mr; i++)
    {
        v_f32 value = v_set1(a[i]);
        acc[i][0] = v_fma(value, b0, acc[i][0]);
        if (nv > 1)
            acc[i][1] = v_fma(value, b1, acc[i][1]);
    }
}

LK_INLINE void lk__tile_store(float *to, v_f32 (*acc)[2], int mr, int nv)
{
    LK_UNROLL for (int i = 0; i < lk__tile_rows(mr, nv); i++)
    {
        v_store(to + i * LK_NR, acc[i][0]);
        if (nv > 1)
            v_store(to + i * LK_NR + V, acc[i][1]);
    }
}

#endif
