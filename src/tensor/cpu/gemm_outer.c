/* gemm_outer.c - sums of outer products in register tiles. */
#include "tensor/cpu/decls.h"
#include "tensor/cpu/gemm.h"

typedef void (*outer_fn)(const lk_gemm_outer *outer, const float *const *a);

/* Ends a block: its sums are added to those of the blocks before it, and the next block begins at 0. */
LK_INLINE void end_block(float *sums, bool first, v_f32 (*acc)[2], int mr, int nv)
{
    if (!first)
        lk__tile_add(sums, acc, mr, nv);
    lk__tile_store(sums, acc, mr, nv);
    lk__tile_zero(acc, mr, nv);
}

/* One position of a wide tile. */
LK_INLINE void wide_step(const lk_gemm_outer *outer, const float *const *rows, size_t at, const float *b,
                         v_f32 (*acc)[2], bool packed, int mr)
{
    v_f32 vectors[LK_WIDE] = {v_load(b), v_load(b + outer->b_more[0]), v_load(b + outer->b_more[1])};
    LK_UNROLL for (int i = 0; i < mr; i++)
    {
        v_f32 value = v_set1(packed ? rows[0][at + (size_t)i] : rows[i][at]);
        LK_UNROLL for (int j = 0; j < LK_WIDE; j++)
        {
            v_f32 *sum = &acc[(i * LK_WIDE + j) / 2][(i * LK_WIDE + j) % 2];
            *sum = v_fma(value, vectors[j], *sum);
        }
    }
}

/* One run of count positions along x. packed: the elements of the rows are neighbours in memory, so one pointer
 * is enough. */
LK_INLINE void outer_run(const lk_gemm_outer *outer, const float *const *rows, size_t at, const float *b, size_t count,
                         v_f32 (*acc)[2], bool packed, int mr, int nv)
{
    size_t a_x = outer->a_x, b_x = outer->b_x;
    const float *first = rows[0] + at, *b_end = b + count * b_x;
    for (; nv == LK_WIDE && b != b_end; at += a_x, b += b_x)
        wide_step(outer, rows, at, b, acc, packed, mr);
    for (; b != b_end; at += a_x, first += a_x, b += b_x) {
        v_f32 b0 = v_load(b), b1 = nv > 1 ? v_load(b + V) : b0;
        LK_UNROLL for (int i = 0; i < mr; i++)
        {
            v_f32 value = v_set1(packed ? first[i] : rows[i][at]);
            acc[i][0] = v_fma(value, b0, acc[i][0]);
            if (nv > 1)
                acc[i][1] = v_fma(value, b1, acc[i][1]);
        }
    }
}

/* Prefetches the part of row (z, y). */
LK_INLINE void prefetch_ahead(const lk_gemm_outer *outer, size_t z, size_t y)
{
    for (size_t i = 0; i < outer->ahead_row; i += LK_ALIGN)
        __builtin_prefetch(outer->ahead + (z * outer->ny + y) * outer->ahead_row + i, 0, 2);
}

/* Positions [x, x + count) of rows [y, y1) of samples [z, z1), which are one block. */
LK_INLINE void outer_block(const lk_gemm_outer *outer, const float *const *rows, size_t z, size_t z1, size_t y,
                           size_t y1, size_t x, size_t count, v_f32 (*acc)[2], bool packed, int mr, int nv)
{
    for (; z < z1; z++) {
        size_t a_at = z * outer->a_z + y * outer->a_y + x * outer->a_x;
        size_t b_at = z * outer->b_z + y * outer->b_y + x * outer->b_x;
        for (size_t left = y1 - y; left > 0; left--, a_at += outer->a_y, b_at += outer->b_y) {
            prefetch_ahead(outer, z, y1 - left);
            outer_run(outer, rows, a_at, outer->b + b_at, count, acc, packed, mr, nv);
        }
    }
}

/* Sums a leaf of several blocks in acc; top has the sum of its blocks so far unless `first`. */
LK_INLINE void outer_blocks(const lk_gemm_outer *outer, const float *const *rows, size_t begin, size_t end, bool first,
                            float *top, v_f32 (*acc)[2], bool packed, int mr, int nv)
{
    bool begun = false;
    for (size_t z = 0; z < outer->nz; z += outer->block.samples) {
        size_t z1 = lk__size_min(z + outer->block.samples, outer->nz);
        for (size_t y = 0; y < outer->ny; y += outer->block.rows) {
            size_t y1 = lk__size_min(y + outer->block.rows, outer->ny);
            for (size_t x = begin; x < end; x += LK_SUM_BLOCK) {
                if (begun) {
                    end_block(top, first, acc, mr, nv);
                    first = false;
                }
                begun = true;
                outer_block(outer, rows, z, z1, y, y1, x, lk__size_min(LK_SUM_BLOCK, end - x), acc, packed, mr, nv);
            }
        }
    }
    if (!first)
        lk__tile_add(top, acc, mr, nv);
}

/* Merges the leaf in acc with partial sums and stores the result; returns where the next leaf is summed. */
LK_INLINE float *push_leaf(const lk_gemm_outer *outer, int leaf, float *top, v_f32 (*acc)[2], int mr, int nv)
{
    for (int merge = outer->merges[leaf]; merge > 0; merge--) {
        top -= outer->entry;
        lk__tile_add(top, acc, mr, nv);
    }
    lk__tile_store(top, acc, mr, nv);
    return top + outer->entry;
}

LK_INLINE void outer_tile(const lk_gemm_outer *outer, const float *const *rows, bool packed, int mr, int nv)
{
    v_f32 acc[LK_TILE_ROWS][2];
    float *top = outer->top;
    for (int leaf = 0; leaf < outer->leaves; leaf++) {
        size_t x = outer->begin[leaf], x1 = outer->begin[leaf + 1];
        lk__tile_zero(acc, mr, nv);
        outer_blocks(outer, rows, x, x1, outer->fresh || leaf > 0, top, acc, packed, mr, nv);
        top = push_leaf(outer, leaf, top, acc, mr, nv);
    }
}

#define OUTER(mr, nv)                                                                \
    static void outer_##mr##x##nv(const lk_gemm_outer *outer, const float *const *a) \
    {                                                                                \
        bool packed = true;                                                          \
        for (int i = 1; i < mr; i++)                                                 \
            packed = packed && a[i] == a[0] + i;                                     \
        if (packed)                                                                  \
            outer_tile(outer, a, true, mr, nv);                                      \
        else                                                                         \
            outer_tile(outer, a, false, mr, nv);                                     \
    }
LK_TILE_SIZES(OUTER, 1)
LK_TILE_SIZES(OUTER, 2)
LK_WIDE_SIZES(OUTER)
#undef OUTER

/* Instances, by number of rows, in falling order. */
typedef struct outer_size {
    size_t rows;
    outer_fn fn;
} outer_size;

#define ENTRY(mr, nv) {mr, outer_##mr##x##nv},
static const outer_size one_vector[] = {LK_TILE_SIZES(ENTRY, 1)};
static const outer_size two_vectors[] = {LK_TILE_SIZES(ENTRY, 2)};
static const outer_size wide[] = {LK_WIDE_SIZES(ENTRY)};
#undef ENTRY

void lk__gemm_outer(const lk_gemm_outer *outer, size_t rows, const float *const *a)
{
    const outer_size *const sizes[] = {one_vector, two_vectors, wide};
    const outer_size *size = sizes[outer->width / V - 1];
    lk_gemm_outer part = *outer;
    while (rows > 0) {
        if (size->rows > rows) {
            size++;
            continue;
        }
        size->fn(&part, a);
        part.top += size->rows * lk__size_max(outer->width, LK_NR);
        a += size->rows;
        rows -= size->rows;
    }
}
