/* gemm.c - register tiles of the two matrix kernels. */
#include "tensor/cpu/gemm.h"

#include "tensor/cpu/decls.h"

/* Floats in a cache line. */
enum { LINE = LK_ALIGN / sizeof(float) };

typedef struct row_tile {
    const float *a[LK_MR];
    float *c[LK_MR];
    const float *panel;
    const float *start;
    size_t last;  /* columns of the last vector */
    size_t terms; /* of a block at most */
    size_t block; /* runs of a block */
    float *sums;  // (LK_MR, LK_NR): the blocks before the current one; not a local array, which would take registers
} row_tile;

typedef void (*rows_fn)(const lk_gemm *gemm, const row_tile *tile);
typedef void (*outer_fn)(const lk_gemm_outer *outer, const float *const *a);

LK_INLINE void rows_begin(const row_tile *tile, v_f32 (*acc)[2], int mr, int nv)
{
    LK_UNROLL for (int i = 0; i < mr; i++)
    {
        acc[i][0] = v_load(tile->start);
        acc[i][nv - 1] = v_load(tile->start + (nv - 1) * V);
        /* Brings the cache lines of the stores at the end. */
        __builtin_prefetch(tile->c[i], 1);
        if (nv * V > LINE)
            __builtin_prefetch(tile->c[i] + V, 1);
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

/* Adds `count` terms of the rows, which begin `at` floats after them; returns where the panel's next terms begin. */
LK_INLINE const float *add_terms(const row_tile *tile, size_t at, size_t count, const float *b, v_f32 (*acc)[2], int mr,
                                 int nv)
{
    const float *a[LK_MR];
    LK_UNROLL for (int i = 0; i < mr; i++) a[i] = tile->a[i] + at;
    /* One index for all rows; the loop ends at the end of the panel. */
    size_t k = 0;
    const float *b_end = b + count / V_REP * (size_t)(V_REP * nv * V);
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
    for (; V_REP > 1 && k < count; k++) {
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

/* Ends a block: its sums are added to those of the blocks before it, and the next block begins at 0. */
LK_INLINE void end_block(float *sums, bool first, v_f32 (*acc)[2], int mr, int nv)
{
    if (!first)
        lk__tile_add(sums, acc, mr, nv);
    lk__tile_store(sums, acc, mr, nv);
    lk__tile_zero(acc, mr, nv);
}

/* Adds the sums that a tile of C has from earlier calls. */
LK_INLINE void add_c(const row_tile *tile, v_f32 (*acc)[2], int mr, int nv)
{
    LK_UNROLL for (int i = 0; i < mr; i++)
    {
        if (nv > 1)
            acc[i][0] = v_add(v_load(tile->c[i]), acc[i][0]);
        acc[i][nv - 1] = v_add(v_load_some(tile->c[i] + (nv - 1) * V, tile->last), acc[i][nv - 1]);
    }
}

/* Continues the sums of a tile with one block. */
LK_INLINE void rows_block(const lk_gemm *gemm, const row_tile *tile, v_f32 (*acc)[2], int mr, int nv)
{
    const float *b = tile->panel;
    /* One loop over both dimensions: it takes a percent less time than two. */
    size_t runs = gemm->runs_y * gemm->runs_x, at = 0, x = 0;
    for (; runs > 0; runs--) {
        b = add_terms(tile, at, gemm->len, b, acc, mr, nv);
        at += gemm->run_x;
        if (++x == gemm->runs_x) {
            at += gemm->run_y - gemm->runs_x * gemm->run_x;
            x = 0;
        }
    }
}

/* The sums of a tile, of any number of blocks. */
LK_INLINE void rows_blocks(const lk_gemm *gemm, const row_tile *tile, v_f32 (*acc)[2], int mr, int nv)
{
    const float *b = tile->panel;
    bool first = true;
    if (tile->start)
        rows_begin(tile, acc, mr, nv);
    else
        lk__tile_zero(acc, mr, nv);
    /* One loop over rows of runs, runs and blocks: several loops take several percent more time. */
    size_t runs = gemm->runs_y * gemm->runs_x, left = gemm->len, at = 0, x = 0, block = tile->block;
    for (;;) {
        size_t count = lk__size_min(left, tile->terms);
        b = add_terms(tile, at, count, b, acc, mr, nv);
        at += count;
        left -= count;
        if (left == 0) {
            if (--runs == 0)
                break;
            left = gemm->len;
            at += gemm->run_x - left;
            if (++x == gemm->runs_x) {
                at += gemm->run_y - gemm->runs_x * gemm->run_x;
                x = 0;
            }
            if (--block > 0)
                continue;
        }
        if (first && !tile->start)
            add_c(tile, acc, mr, nv);
        end_block(tile->sums, first, acc, mr, nv);
        first = false;
        block = tile->block;
    }
    if (!first)
        lk__tile_add(tile->sums, acc, mr, nv);
    else if (!tile->start)
        add_c(tile, acc, mr, nv);
}

/* A function for sums of one block that begin with `start`, and one for all sums, which would be slower. */
#define ROWS(mr, nv)                                                         \
    static void block_##mr##x##nv(const lk_gemm *gemm, const row_tile *tile) \
    {                                                                        \
        v_f32 acc[LK_MR][2];                                                 \
        rows_begin(tile, acc, mr, nv);                                       \
        rows_block(gemm, tile, acc, mr, nv);                                 \
        rows_end(gemm, tile, acc, mr, nv);                                   \
    }                                                                        \
    static void rows_##mr##x##nv(const lk_gemm *gemm, const row_tile *tile)  \
    {                                                                        \
        v_f32 acc[LK_MR][2];                                                 \
        rows_blocks(gemm, tile, acc, mr, nv);                                \
        rows_end(gemm, tile, acc, mr, nv);                                   \
    }
LK_TILE_SIZES(ROWS, 1)
LK_TILE_SIZES(ROWS, 2)
#undef ROWS

static const struct {
    size_t rows;
    rows_fn fn[2][2]; /* by whether there are several blocks, and by vectors */
} rows_table[] = {
#define ENTRY(mr, nv) {mr, {{block_##mr##x1, block_##mr##x2}, {rows_##mr##x1, rows_##mr##x2}}},
    LK_TILE_SIZES(ENTRY, )
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
    size_t terms = gemm->block ? gemm->block : LK_SUM_BLOCK;
    float sums[LK_MR * LK_NR];
    row_tile tile = {
        .terms = terms,
        .block = lk__size_max(terms / lk__size_max(gemm->len, 1), 1),
        .sums = sums,
        .panel = gemm->panels + lk__gemm_depth(gemm) * col,
        .start = gemm->start ? gemm->start + col : NULL,
        .last = lk__size_min(gemm->cols - col, width) - (width - V),
    };
    bool blocks = !gemm->start || tile.block < gemm->runs_y * gemm->runs_x || gemm->len > terms;
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
        rows_table[size].fn[blocks][width > V](gemm, &tile);
        left -= rows;
    }
}

void lk__gemm(const lk_gemm *gemm)
{
    for (size_t panel = 0; panel < lk__panel_count(gemm->cols); panel++)
        gemm_panel(gemm, panel);
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

/* Positions [x, x + count) of rows [y, y1) of samples [z, z1), which are one block. */
LK_INLINE void outer_block(const lk_gemm_outer *outer, const float *const *rows, size_t z, size_t z1, size_t y,
                           size_t y1, size_t x, size_t count, v_f32 (*acc)[2], bool packed, int mr, int nv)
{
    for (; z < z1; z++) {
        size_t a_at = z * outer->a_z + y * outer->a_y + x * outer->a_x;
        size_t b_at = z * outer->b_z + y * outer->b_y + x * outer->b_x;
        for (size_t left = y1 - y; left > 0; left--, a_at += outer->a_y, b_at += outer->b_y)
            outer_run(outer, rows, a_at, outer->b + b_at, count, acc, packed, mr, nv);
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

LK_INLINE void outer_tile(const lk_gemm_outer *outer, const float *const *rows, bool packed, int mr, int nv)
{
    v_f32 acc[LK_MR][2];
    float *top = outer->top;
    for (int leaf = 0; leaf < outer->leaves; leaf++) {
        size_t x = outer->begin[leaf], x1 = outer->begin[leaf + 1];
        lk__tile_zero(acc, mr, nv);
        if (outer->single)
            outer_block(outer, rows, 0, outer->nz, 0, outer->ny, x, x1 - x, acc, packed, mr, nv);
        else
            outer_blocks(outer, rows, x, x1, outer->fresh || leaf > 0, top, acc, packed, mr, nv);
        for (int merge = outer->merges[leaf]; merge > 0; merge--) {
            top -= outer->entry;
            lk__tile_add(top, acc, mr, nv);
        }
        lk__tile_store(top, acc, mr, nv);
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
LK_TILE_SIZES(OUTER, 1)
LK_TILE_SIZES(OUTER, 2)
#undef OUTER

static const struct {
    size_t rows;
    outer_fn fn[2];
} outer_table[] = {
#define ENTRY(mr, nv) {mr, {outer_##mr##x1, outer_##mr##x2}},
    LK_TILE_SIZES(ENTRY, )
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
