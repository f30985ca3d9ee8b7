/* gemm.c - rows times panels, in register tiles: one instance for each number of rows and vectors, so that all
 * accumulators stay in registers. Rows that do not fill a tile use a smaller one.
 *
 * A tile of rows is multiplied by a group of panels, then the next tile. So the rows stay in the first-level cache and
 * the panels in the second-level one, from where they are prefetched. */
#include "tensor/cpu/gemm.h"

#include "tensor/cpu/decls.h"

/* Floats in a cache line. */
enum { LINE = LK_ALIGN / sizeof(float) };

/* Rows of large tiles that are about a multiple of LONG_ROW floats apart are copied, since they evict each other from
 * the first-level cache; copied rows are ROW floats apart, in PARTS parts at most. The panels of a group, with the
 * terms of one pass, stay in the second-level cache while all rows pass. AHEAD: terms between the prefetch of a panel's
 * row and its load. */
enum { LONG_ROW = 512, ROW = LK_SUM_BLOCK + LINE, GROUP_PANELS = 512 / LK_NR, AHEAD = 8, PARTS = 8 };

/* SHARE rows share a pointer, so that the pointers of a tile fit into registers. Smaller tiles have too few operations
 * to hide prefetches between them. */
enum { LARGE = LK_MR > 8, SHARE = LARGE ? 4 : 1 };

/* Rows of a tile at most; a tile of one vector has room for more than LK_MR. */
enum { MOST_ROWS = LARGE ? 2 * LK_MR : LK_MR };

/* Bytes between the prefetches of what the next tile reads: from term to term of a panel, run to run, and panel to
 * panel. If its rows stay in their place, they are prefetched as one piece of memory; otherwise row by row. */
typedef struct row_ahead {
    size_t term, run, panel;
} row_ahead;

/* The terms of all sums that the kernel adds at once, LK_SUM_BLOCK at most: whole runs, or a part of one. */
typedef struct row_pass {
    size_t at; /* terms of all passes before it */
    size_t runs, len;
    size_t offsets[LK_SUM_BLOCK]; /* of the runs, in floats from the beginning of a row */
    bool copies;                  /* all rows are copied */
    bool ahead;                   /* the next tile is prefetched */
    size_t parts;                 /* of copied rows, */
    size_t part_offsets[PARTS];   /* and where they begin */
    row_ahead in_place, copied;
    bool first, last;
} row_pass;

typedef struct row_tile {
    const float *a[MOST_ROWS]; /* rows; those that share a pointer are `stride` floats apart */
    const size_t *offsets;     /* of the runs in a row */
    size_t stride, runs, len;
    float *c[MOST_ROWS];
    size_t col;   /* of the panel */
    size_t lanes; /* columns of its last vector */
    const float *panel;
    const char *next; /* what the next tile reads; prefetched during this one */
    row_ahead ahead;
} row_tile;

typedef void (*rows_fn)(const lk_gemm *gemm, const row_pass *pass, const row_tile *tile);

/* The sums that a tile begins with. Brings the cache lines of C. */
LK_INLINE void rows_begin(const row_tile *tile, const float *start, v_f32 (*acc)[2], int mr, int nv)
{
    LK_UNROLL for (int i = 0; i < mr; i++)
    {
        for (int j = 0; j < nv * V; j += LINE)
            __builtin_prefetch(tile->c[i] + tile->col + j, 1);
    }
    if (!start) {
        lk__tile_zero(acc, mr, nv);
        return;
    }
    LK_UNROLL for (int i = 0; i < mr; i++)
    {
        acc[i][0] = v_load(start + tile->col);
        acc[i][nv - 1] = v_load(start + tile->col + (nv - 1) * V);
    }
}

/* Adds `count` terms of the rows, which begin `at` floats after them. ahead: prefetches at next, tile->ahead.term bytes
 * further with each term. */
LK_INLINE void add_terms(const row_tile *tile, size_t at, const float *b, size_t count, const char *next,
                         v_f32 (*acc)[2], bool ahead, int mr, int nv)
{
    const float *a[MOST_ROWS], *b_end = b + count / V_REP * (size_t)(V_REP * nv * V);
    const size_t steps[4] = {0, tile->stride, 2 * tile->stride, 3 * tile->stride};
    size_t k = 0;
    LK_UNROLL for (int i = 0; i < mr; i += SHARE) a[i] = tile->a[i] + at;
    while (b != b_end) {
        v_rep rep[MOST_ROWS];
        /* A panel of one vector, mostly the only one, stays in the first-level cache. */
        for (int j = 0; LARGE && nv > 1 && j < V_REP * nv * V; j += LINE)
            __builtin_prefetch(b + AHEAD * nv * V + j);
        if (ahead) {
            __builtin_prefetch(next);
            next += V_REP * tile->ahead.term;
        }
/* Either pointers or an index advance, whatever takes fewer registers. */
#define ROW_AT(i) (a[(i) / SHARE * SHARE] + (SHARE > 1 ? steps[(i) % SHARE] : 0) + k)
#define STEP(lane)                                                  \
    {                                                               \
        v_f32 b0 = v_load(b), b1 = nv > 1 ? v_load(b + V) : b0;     \
        LK_UNROLL for (int i = 0; i < mr; i++)                      \
        {                                                           \
            if (lane == 0)                                          \
                rep[i] = v_rep_load(ROW_AT(i));                     \
            acc[i][0] = v_fma_rep(rep[i], lane, b0, acc[i][0]);     \
            if (nv > 1)                                             \
                acc[i][1] = v_fma_rep(rep[i], lane, b1, acc[i][1]); \
        }                                                           \
        b += nv * V;                                                \
    }
        V_REP_EACH(STEP)
#undef STEP
        if (SHARE == 1)
            k += V_REP;
        LK_UNROLL for (int i = 0; SHARE > 1 && i < mr; i += SHARE) a[i] += V_REP;
    }
    for (size_t left = V_REP > 1 ? count % V_REP : 0; left > 0; left--, k++) {
        v_f32 b0 = v_load(b), b1 = nv > 1 ? v_load(b + V) : b0;
        LK_UNROLL for (int i = 0; i < mr; i++)
        {
            v_f32 x = v_set1(*ROW_AT(i));
            acc[i][0] = v_fma(x, b0, acc[i][0]);
            if (nv > 1)
                acc[i][1] = v_fma(x, b1, acc[i][1]);
        }
        b += nv * V;
    }
#undef ROW_AT
}

/* Adds the sums that a tile of C has from earlier passes or calls. */
LK_INLINE void add_c(const row_tile *tile, v_f32 (*acc)[2], int mr, int nv)
{
    LK_UNROLL for (int i = 0; i < mr; i++)
    {
        const float *c = tile->c[i] + tile->col;
        if (nv > 1)
            acc[i][0] = v_add(v_load(c), acc[i][0]);
        acc[i][nv - 1] = v_add(v_load_some(c + (nv - 1) * V, tile->lanes), acc[i][nv - 1]);
    }
}

LK_INLINE void rows_end(const lk_gemm *gemm, const row_tile *tile, bool last, v_f32 (*acc)[2], int mr, int nv)
{
    bool relu = gemm->relu && last;
    const float *mask = last ? gemm->mask : NULL;
    if (!relu && !mask && tile->lanes == V) {
        LK_UNROLL for (int i = 0; i < mr; i++)
        {
            v_store(tile->c[i] + tile->col, acc[i][0]);
            if (nv > 1)
                v_store(tile->c[i] + tile->col + V, acc[i][1]);
        }
        return;
    }
    LK_UNROLL for (int i = 0; i < mr; i++)
    {
        float *c = tile->c[i] + tile->col;
        if (relu) {
            acc[i][0] = v_relu(acc[i][0]);
            if (nv > 1)
                acc[i][1] = v_relu(acc[i][1]);
        }
        if (mask) {
            const float *m = mask + (c - gemm->c);
            if (nv > 1)
                acc[i][0] = v_relu_grad(v_load(m), acc[i][0]);
            acc[i][nv - 1] = v_relu_grad(v_load_some(m + (nv - 1) * V, tile->lanes), acc[i][nv - 1]);
        }
        if (nv > 1)
            v_store(c, acc[i][0]);
        v_store_some(c + (nv - 1) * V, acc[i][nv - 1], tile->lanes);
    }
}

/* One pass of a tile. Several rows of C may be the same: all are read before the first is written. */
LK_INLINE void rows_tile(const lk_gemm *gemm, const row_pass *pass, const row_tile *tile, bool ahead, int mr, int nv)
{
    v_f32 acc[MOST_ROWS][2];
    const float *b = tile->panel, *start = pass->first ? gemm->start : NULL;
    rows_begin(tile, start, acc, mr, nv);
    for (size_t run = 0; run < tile->runs; run++, b += tile->len * (size_t)(nv * V))
        add_terms(tile, tile->offsets[run], b, tile->len, tile->next + run * tile->ahead.run, acc, ahead, mr, nv);
    if (!start)
        add_c(tile, acc, mr, nv);
    rows_end(gemm, tile, pass->last, acc, mr, nv);
}

/* Instances, by number of rows, in rising order; ROW_SIZES_1 are larger ones for one vector. A tile of fewer rows takes
 * as long as the smallest: the additions of a chain wait for each other. */
#if defined(LK_VEC_AVX512)
#define ROW_SIZES(X, nv) X(4, nv) X(8, nv) X(12, nv)
#define ROW_SIZES_1(X) X(16, 1) X(20, 1) X(24, 1)
#elif defined(LK_VEC_NEON)
#define ROW_SIZES(X, nv) X(4, nv) X(8, nv)
#define ROW_SIZES_1(X)
#else
#define ROW_SIZES(X, nv) X(4, nv) X(6, nv)
#define ROW_SIZES_1(X)
#endif

#define ROWS(mr, nv)                                                                                    \
    static void rows_##mr##x##nv(const lk_gemm *gemm, const row_pass *pass, const row_tile *tile)       \
    {                                                                                                   \
        rows_tile(gemm, pass, tile, false, mr, nv);                                                     \
    }                                                                                                   \
    static void rows_ahead_##mr##x##nv(const lk_gemm *gemm, const row_pass *pass, const row_tile *tile) \
    {                                                                                                   \
        rows_tile(gemm, pass, tile, true, mr, nv);                                                      \
    }
ROW_SIZES(ROWS, 1)
ROW_SIZES_1(ROWS)
ROW_SIZES(ROWS, 2)
#undef ROWS

static const struct {
    size_t rows;
    rows_fn fn[2][2]; /* by whether the next tile is prefetched, and by vectors */
} rows_table[] = {
#define ENTRY(mr, nv) {mr, {{rows_##mr##x1, rows_##mr##x2}, {rows_ahead_##mr##x1, rows_ahead_##mr##x2}}},
    ROW_SIZES(ENTRY, )
#undef ENTRY
#define ENTRY(mr, nv) {mr, {{rows_##mr##x1}, {rows_ahead_##mr##x1}}},
        ROW_SIZES_1(ENTRY)
#undef ENTRY
};

/* Copies count floats; up to V - 1 floats behind them are written too. */
LK_INLINE void copy_floats(const float *src, size_t count, float *dst)
{
    size_t k = 0;
    for (; k + V <= count; k += V)
        v_store(dst + k, v_load(src + k));
    if (k < count)
        v_store(dst + k, v_load_n(src + k, count - k));
}

/* Copies what a pass reads of a row. */
static void copy_row(const row_pass *pass, const float *row, float *dst)
{
    for (size_t i = 0; i < pass->runs; i++)
        copy_floats(row + pass->offsets[i], pass->len, dst + i * pass->len);
}

static size_t most_rows(const lk_gemm *gemm)
{
    return gemm->cols <= V ? MOST_ROWS : LK_MR;
}

/* Rows of the next tile if `left` rows are left, `rest` of them in its row of the grid. The tiles of a row of the grid
 * are about equally large if that needs no copies. Rows of 4 pixels are joined instead: tiles of fewer than 8 rows wait
 * for the loads of the panels. */
static size_t tile_rows(const lk_gemm *gemm, size_t left, size_t rest)
{
    size_t most = most_rows(gemm);
    if (SHARE == 1 || gemm->nx % 4 > 0 || gemm->nx < 8 || rest % 4 > 0 || rest >= 2 * most)
        return lk__size_min(left, most);
    return rest <= most ? rest : lk__size_round_up(rest / 2, 4);
}

/* Sets the rows of a tile that begins at row (y, x) and is computed by an instance for `size` rows, of which `count`
 * exist; the last one is repeated. Rows stay in their place if those that share a pointer are in one row of the grid;
 * others are copied. */
static void set_rows(const lk_gemm *gemm, const row_pass *pass, size_t y, size_t x, size_t count, size_t size,
                     float *copy, row_tile *tile)
{
    bool whole = count == size && x + count <= gemm->nx; /* all of it is in one row of the grid */
    bool shares = count == size && x % SHARE + gemm->nx % SHARE == 0;
    bool in_place = !pass->copies && (SHARE == 1 || whole || shares);
    tile->stride = in_place ? gemm->a_x : ROW;
    tile->offsets = in_place ? pass->offsets : pass->part_offsets;
    tile->runs = in_place ? pass->runs : pass->parts;
    tile->len = in_place ? pass->len : pass->runs * pass->len / pass->parts;
    tile->ahead = in_place ? pass->in_place : pass->copied;
    const float *a = gemm->a + y * gemm->a_y + x * gemm->a_x;
    float *c = gemm->c + y * gemm->c_y + x * gemm->c_x;
    if (in_place && whole) {
        for (size_t i = 0; i < size; i += SHARE)
            tile->a[i] = a + i * gemm->a_x;
        for (size_t i = 0; i < size; i++)
            tile->c[i] = c + i * gemm->c_x;
        return;
    }
    for (size_t i = 0; i < size; i++) {
        tile->a[i] = in_place ? a : copy + i * ROW;
        tile->c[i] = c;
        if (!in_place)
            copy_row(pass, a, copy + i * ROW);
        if (i + 1 >= count)
            continue;
        a += gemm->a_x;
        c += gemm->c_x;
        if (++x == gemm->nx) {
            x = 0, y++;
            a = gemm->a + y * gemm->a_y;
            c = gemm->c + y * gemm->c_y;
        }
    }
}

/* Decides which rows are copied and what is prefetched, for `panels` panels. The terms of copied rows are divided into
 * parts: during each, one row of the next tile is prefetched. */
static void plan_rows(const lk_gemm *gemm, row_pass *pass, size_t panels)
{
    size_t terms = pass->runs * pass->len, row = gemm->a_x * sizeof(float), parts = 1;
    /* Windows of several runs overlap, so most of the next tile is in the cache already. */
    pass->ahead = LARGE && gemm->runs_y * gemm->runs_x == 1;
    while (pass->ahead && parts < PARTS && parts * panels < most_rows(gemm) && terms % (2 * parts) == 0)
        parts *= 2;
    for (size_t i = 0; i < parts; i++)
        pass->part_offsets[i] = i * (terms / parts);
    pass->parts = parts;
    pass->copies = LARGE && panels > 1 && gemm->a_x >= LONG_ROW && (gemm->a_x + 2 * LINE) % LONG_ROW <= 4 * LINE;
    pass->copied = (row_ahead){.term = parts * sizeof(float), .run = row, .panel = parts * row};
    size_t share = most_rows(gemm) * row / lk__size_max(panels * terms, 1);
    pass->in_place = (row_ahead){.term = share, .run = pass->len * share, .panel = terms * share};
}

/* One pass of all rows, for the panels [begin, end). */
static void gemm_pass(const lk_gemm *gemm, const row_pass *pass, size_t begin, size_t end)
{
    _Alignas(LK_ALIGN) float copy[MOST_ROWS * ROW];
    row_tile tile;
    for (size_t left = gemm->ny * gemm->nx, y = 0, x = 0; left > 0;) {
        size_t count = tile_rows(gemm, left, gemm->nx - x), size = 0;
        while (rows_table[size].rows < count)
            size++;
        set_rows(gemm, pass, y, x, count, rows_table[size].rows, copy, &tile);
        left -= count;
        for (x += count; x >= gemm->nx; x -= gemm->nx)
            y++;
        const float *next = gemm->a + y * gemm->a_y + x * gemm->a_x + pass->offsets[0];
        for (size_t panel = begin; panel < end; panel++) {
            size_t width = lk__panel_width(gemm->cols, panel);
            tile.col = panel * LK_NR;
            tile.lanes = lk__size_min(gemm->cols - tile.col, width) - (width - V);
            tile.panel = gemm->panels + lk__gemm_depth(gemm) * tile.col + pass->at * width;
            tile.next = (const char *)next + (panel - begin) * tile.ahead.panel;
            rows_table[size].fn[pass->ahead][width > V](gemm, pass, &tile);
        }
    }
}

/* Continues with the next pass. `run` is the number of the run that it begins with, of which `done` terms were in
 * passes before. */
static void next_pass(const lk_gemm *gemm, row_pass *pass, size_t *run, size_t *done)
{
    size_t runs = gemm->runs_y * gemm->runs_x;
    pass->at += pass->runs * pass->len;
    pass->first = *run == 0 && *done == 0;
    if (gemm->len > LK_SUM_BLOCK) {
        pass->runs = 1;
        pass->len = lk__size_min(gemm->len - *done, LK_SUM_BLOCK);
    } else {
        pass->runs = lk__size_min(LK_SUM_BLOCK / lk__size_max(gemm->len, 1), runs - *run);
        pass->len = gemm->len;
    }
    for (size_t i = 0; i < pass->runs; i++)
        pass->offsets[i] = (*run + i) / gemm->runs_x * gemm->run_y + (*run + i) % gemm->runs_x * gemm->run_x + *done;
    *done += pass->len;
    if (*done == gemm->len) {
        *run += pass->runs;
        *done = 0;
    }
    pass->last = *run == runs;
}

void lk__gemm(const lk_gemm *gemm)
{
    lk_gemm grid = *gemm;
    if (grid.a_y == grid.nx * grid.a_x && grid.c_y == grid.nx * grid.c_x) {
        grid.nx *= grid.ny;
        grid.ny = 1;
    }
    size_t panels = lk__panel_count(gemm->cols);
    for (size_t begin = 0; begin < panels; begin += GROUP_PANELS) {
        row_pass pass; /* without a value: its offsets are large */
        pass.at = pass.runs = pass.len = 0;
        size_t run = 0, done = 0, end = lk__size_min(begin + GROUP_PANELS, panels);
        do {
            next_pass(&grid, &pass, &run, &done);
            plan_rows(&grid, &pass, end - begin);
            gemm_pass(&grid, &pass, begin, end);
        } while (!pass.last);
    }
}
