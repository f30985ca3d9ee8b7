/* gemm.c - register tiles of the two matrix kernels: one instance for each number of rows and vectors, so that
 * all accumulators stay in registers. Rows that do not fill a tile use the next smaller one. */
#include "tensor/cpu/gemm.h"

#include "tensor/cpu/decls.h"

/* Floats in a cache line. */
enum { LINE = LK_ALIGN / sizeof(float) };

typedef struct row_tile {
    const float *a[LK_MR];
    float *c[LK_MR];
    const float *panel;
    const float *start;
    size_t last; /* columns of the last vector */
} row_tile;

typedef void (*rows_fn)(const lk_gemm *gemm, const row_tile *tile);
typedef void (*outer_fn)(const lk_gemm_outer *outer, const float *const *a);

/* clang-format off */
/* Instances, by number of rows, in falling order. */
#if defined(LK_VEC_AVX512)
#define SIZES(X, nv) X(12, nv) X(8, nv) X(4, nv) X(2, nv) X(1, nv)
#elif defined(LK_VEC_NEON)
#define SIZES(X, nv) X(8, nv) X(4, nv) X(2, nv) X(1, nv)
#else
#define SIZES(X, nv) X(6, nv) X(4, nv) X(2, nv) X(1, nv)
#endif
/* clang-format on */

LK_INLINE void rows_begin(const row_tile *tile, v_f32 (*acc)[2], int mr, int nv)
{
    LK_UNROLL for (int i = 0; i < mr; i++)
    {
        if (tile->start) {
            acc[i][0] = v_load(tile->start);
            acc[i][nv - 1] = v_load(tile->start + (nv - 1) * V);
            /* Brings the cache lines of the stores at the end. */
            __builtin_prefetch(tile->c[i], 1);
            if (nv * V > LINE)
                __builtin_prefetch(tile->c[i] + V, 1);
        } else {
            acc[i][0] = nv > 1 ? v_load(tile->c[i]) : v_zero();
            acc[i][nv - 1] = v_load_some(tile->c[i] + (nv - 1) * V, tile->last);
        }
    }
}

LK_INLINE void rows_end(const lk_gemm *gemm, const row_tile *tile, v_f32 (*acc)[2], int mr, int nv)
{
    size_t last = tile->last;
    LK_UNROLL for (int i = 0; i < mr; i++)
    {
        if (gemm->relu) {
            acc[i][0] = v_relu(acc[i][0]);
            if (nv > 1)
                acc[i][1] = v_relu(acc[i][1]);
        }
        if (gemm->mask) {
            const float *mask = gemm->mask + (tile->c[i] - gemm->c);
            if (nv > 1)
                acc[i][0] = v_relu_grad(v_load(mask), acc[i][0]);
            acc[i][nv - 1] = v_relu_grad(v_load_some(mask + (nv - 1) * V, last), acc[i][nv - 1]);
        }
        if (nv > 1)
            v_store(tile->c[i], acc[i][0]);
        v_store_some(tile->c[i] + (nv - 1) * V, acc[i][nv - 1], last);
    }
}

/* Adds one run of the rows, which begins `at` floats after them; returns where the panel's next run begins. */
LK_INLINE const float *add_run(const lk_gemm *gemm, const row_tile *tile, size_t at, const float *b, v_f32 (*acc)[2],
                               int mr, int nv)
{
    const float *a[LK_MR];
    LK_UNROLL for (int i = 0; i < mr; i++) a[i] = tile->a[i] + at;
    /* One index for all rows; the loop ends at the end of the panel. */
    size_t k = 0;
    const float *b_end = b + gemm->len / V_REP * (size_t)(V_REP * nv * V);
    for (; b != b_end; k += V_REP) {
        v_rep rep[LK_MR];
#define STEP(lane)                                                  \
    {                                                               \
        v_f32 b0 = v_load(b), b1 = nv > 1 ? v_load(b + V) : b0;     \
        LK_UNROLL for (int i = 0; i < mr; i++)                      \
        {                                                           \
            if (lane == 0)                                          \
                rep[i] = v_rep_load(a[i] + k);                      \
            acc[i][0] = v_fma_rep(rep[i], lane, b0, acc[i][0]);     \
            if (nv > 1)                                             \
                acc[i][1] = v_fma_rep(rep[i], lane, b1, acc[i][1]); \
        }                                                           \
        b += nv * V;                                                \
    }
        V_REP_EACH(STEP)
#undef STEP
    }
    for (; V_REP > 1 && k < gemm->len; k++) {
        v_f32 b0 = v_load(b), b1 = nv > 1 ? v_load(b + V) : b0;
        LK_UNROLL for (int i = 0; i < mr; i++)
        {
            v_f32 x = v_set1(a[i][k]);
            acc[i][0] = v_fma(x, b0, acc[i][0]);
            if (nv > 1)
                acc[i][1] = v_fma(x, b1, acc[i][1]);
        }
        b += nv * V;
    }
    return b;
}

LK_INLINE void rows_tile(const lk_gemm *gemm, const row_tile *tile, int mr, int nv)
{
    v_f32 acc[LK_MR][2];
    rows_begin(tile, acc, mr, nv);
    const float *b = tile->panel;
    /* One loop over both dimensions: it takes a percent less time than two. */
    size_t runs = gemm->runs_y * gemm->runs_x, at = 0, x = 0;
    for (; runs > 0; runs--) {
        b = add_run(gemm, tile, at, b, acc, mr, nv);
        at += gemm->run_x;
        if (++x == gemm->runs_x) {
            at += gemm->run_y - gemm->runs_x * gemm->run_x;
            x = 0;
        }
    }
    rows_end(gemm, tile, acc, mr, nv);
}

#define ROWS(mr, nv)                                                        \
    static void rows_##mr##x##nv(const lk_gemm *gemm, const row_tile *tile) \
    {                                                                       \
        rows_tile(gemm, tile, mr, nv);                                      \
    }
SIZES(ROWS, 1)
SIZES(ROWS, 2)
#undef ROWS

static const struct {
    size_t rows;
    rows_fn fn[2];
} rows_table[] = {
#define ENTRY(mr, nv) {mr, {rows_##mr##x1, rows_##mr##x2}},
    SIZES(ENTRY, )
#undef ENTRY
};

/* Prefetches a part of the next panel during this one: tiles read a panel faster than it can come from memory. */
static void prefetch_panel(const lk_gemm *gemm, size_t panel, size_t done, size_t rows)
{
    if ((panel + 1) * LK_NR >= gemm->cols)
        return;
    size_t depth = lk__gemm_depth(gemm), floats = depth * lk__panel_width(gemm->cols, panel + 1);
    size_t total = gemm->ny * gemm->nx;
    const float *next = gemm->panels + depth * (panel + 1) * LK_NR;
    size_t end = lk__size_min(floats * (done + rows) / total, floats);
    for (size_t i = floats * done / total; i < end; i += LINE)
        __builtin_prefetch(next + i, 0, 2);
}

/* One panel of columns for the whole grid of rows. */
static void gemm_panel(const lk_gemm *gemm, size_t panel)
{
    size_t col = panel * LK_NR;
    size_t width = lk__panel_width(gemm->cols, panel);
    row_tile tile = {
        .panel = gemm->panels + lk__gemm_depth(gemm) * col,
        .start = gemm->start ? gemm->start + col : NULL,
        .last = lk__size_min(gemm->cols - col, width) - (width - V),
    };
    size_t total = gemm->ny * gemm->nx, left = total, y = 0, x = 0;
    for (size_t size = 0; left > 0;) {
        size_t rows = rows_table[size].rows;
        if (rows > left) {
            size++;
            continue;
        }
        for (size_t i = 0; i < rows; i++) {
            tile.a[i] = gemm->a + y * gemm->a_y + x * gemm->a_x;
            tile.c[i] = gemm->c + y * gemm->c_y + x * gemm->c_x + col;
            if (!gemm->start && x + rows < gemm->nx) {
                /* The sums of the next tile continue from C. */
                __builtin_prefetch(tile.c[i] + rows * gemm->c_x, 1);
                __builtin_prefetch(tile.c[i] + rows * gemm->c_x + width - 1, 1);
            }
            if (++x == gemm->nx)
                x = 0, y++;
        }
        prefetch_panel(gemm, panel, total - left, rows);
        rows_table[size].fn[width > V](gemm, &tile);
        left -= rows;
    }
}

void lk__gemm(const lk_gemm *gemm)
{
    for (size_t panel = 0; panel < lk__panel_count(gemm->cols); panel++)
        gemm_panel(gemm, panel);
}

LK_INLINE void load_tile(const float *from, v_f32 (*acc)[2], bool zero, int mr, int nv)
{
    LK_UNROLL for (int i = 0; i < mr; i++)
    {
        acc[i][0] = zero ? v_zero() : v_load(from + i * LK_NR);
        if (nv > 1)
            acc[i][1] = zero ? v_zero() : v_load(from + i * LK_NR + V);
    }
}

LK_INLINE void add_tile(const float *left, v_f32 (*acc)[2], int mr, int nv)
{
    LK_UNROLL for (int i = 0; i < mr; i++)
    {
        acc[i][0] = v_add(v_load(left + i * LK_NR), acc[i][0]);
        if (nv > 1)
            acc[i][1] = v_add(v_load(left + i * LK_NR + V), acc[i][1]);
    }
}

LK_INLINE void store_tile(float *to, v_f32 (*acc)[2], int mr, int nv)
{
    LK_UNROLL for (int i = 0; i < mr; i++)
    {
        v_store(to + i * LK_NR, acc[i][0]);
        if (nv > 1)
            v_store(to + i * LK_NR + V, acc[i][1]);
    }
}

/* One run of count positions along x. packed: the elements of the rows are neighbours in memory, so one pointer
 * is enough. */
LK_INLINE void outer_run(const lk_gemm_outer *outer, const float *const *rows, size_t at, const float *b, size_t count,
                         v_f32 (*acc)[2], bool packed, int mr, int nv)
{
    size_t a_x = outer->a_x, b_x = outer->b_x;
    const float *first = rows[0] + at, *b_end = b + count * b_x;
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

LK_INLINE void outer_tile(const lk_gemm_outer *outer, const float *const *rows, bool packed, int mr, int nv)
{
    v_f32 acc[LK_MR][2];
    float *top = outer->top;
    for (int leaf = 0; leaf < outer->leaves; leaf++) {
        size_t x = outer->begin[leaf], count = outer->begin[leaf + 1] - x;
        load_tile(top, acc, outer->fresh || leaf > 0, mr, nv);
        for (size_t z = 0; z < outer->nz; z++) {
            size_t a_at = z * outer->a_z + x * outer->a_x, b_at = z * outer->b_z + x * outer->b_x;
            for (size_t y = outer->ny; y > 0; y--, a_at += outer->a_y, b_at += outer->b_y)
                outer_run(outer, rows, a_at, outer->b + b_at, count, acc, packed, mr, nv);
        }
        for (int merge = outer->merges[leaf]; merge > 0; merge--) {
            top -= outer->entry;
            add_tile(top, acc, mr, nv);
        }
        store_tile(top, acc, mr, nv);
        top += outer->entry;
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
SIZES(OUTER, 1)
SIZES(OUTER, 2)
#undef OUTER

static const struct {
    size_t rows;
    outer_fn fn[2];
} outer_table[] = {
#define ENTRY(mr, nv) {mr, {outer_##mr##x1, outer_##mr##x2}},
    SIZES(ENTRY, )
#undef ENTRY
};

void lk__gemm_outer(const lk_gemm_outer *outer, size_t rows, const float *const *a)
{
    lk_gemm_outer part = *outer;
    for (size_t size = 0; rows > 0;) {
        size_t count = outer_table[size].rows;
        if (count > rows) {
            size++;
            continue;
        }
        outer_table[size].fn[outer->width > V](&part, a);
        part.top += count * LK_NR;
        a += count;
        rows -= count;
    }
}
