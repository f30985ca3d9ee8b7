/* conv2d_winograd.c - forward pass and input gradients by Winograd's algorithm.
 *
 * Patches are transformed into V (points, tiles, in), weights into U (points, in, out). For each point one matrix
 * product gives M (points, tiles, out), which the last transform turns into tiles of the output. Each product is a sum
 * over the input channels in rising order, in short blocks (LK_WINOGRAD_SUM_BLOCK). V and U are divided into slices of
 * as many channels as a block has terms, U and M into panels of columns. How tiles and panels are divided among tasks
 * does not change a bit.
 *
 * By chunks: all of U is made first; a task makes V of a chunk of tiles, which stays in its core's cache while panel
 * after panel of the output is made. By panels: U is large, or there are few tiles; V of a round of tiles is made
 * first, then a task makes one panel of the output for a chunk of tiles: it makes the panel of U slice by slice, so
 * that U never leaves the core's cache.
 *
 * Compact, by chunks: with 4x4 tiles, one slice and one panel, the points of a tile follow each other in V, and M is
 * stored over V. */
#include "tensor/cpu/conv2d_winograd.h"

#include "tensor/cpu/decls.h"
#include "tensor/cpu/pack.h"
#include "tensor/cpu/tile.h"

/* Channels of a slice. */
enum { SLICE = LK_WINOGRAD_SUM_BLOCK };

/* A chunk is a multiple of LK_MR tiles, or of LEAST_TILES where that gives chunks to all threads; the largest one is a
 * multiple of ROWS, which every LK_MR divides. By chunks, V and a panel of M have about CHUNK_FLOATS floats. By panels,
 * a panel of M has about PANEL_FLOATS, and V of a round about ROUND_FLOATS; U is large from LARGE_U floats on. */
enum {
    ROWS = 24,
    LEAST_TILES = 4,
    CHUNK_FLOATS = 64 * 1024,
    PANEL_FLOATS = 144 * 1024,
    ROUND_FLOATS = 4 * 1024 * 1024,
    LARGE_U = 2 * 1024 * 1024
};

/* Compact chunks: their points, the floats of a point of a tile, and about the floats of V. */
enum { COMPACT_POINTS = LK_WINOGRAD_SIDE * LK_WINOGRAD_SIDE, NARROW = 16, WIDE = 32, COMPACT_FLOATS = 27 * 1024 };

/* A correlation of 3x3 windows with stride 1: the forward pass, or the input's gradient with `transposed`. */
typedef struct correlation {
    size_t tile;         /* 2 or 4 */
    lk_shape in, out;    /* with the same number of samples */
    size_t pad_h, pad_w; /* of the convolution */
    const float *input;  // (n, h, w, in)
    const float *weight; // (out, in, 3, 3); transposed: (in, out, 3, 3), rotated by half a turn
    const float *bias;   // (out) or NULL
    const float *mask;   // (n, h, w, out) or NULL: the result is 0 where mask <= 0
    float *output;       // (n, h, w, out)
    bool relu, transposed;
} correlation;

typedef struct tile_job {
    correlation conv;
    size_t side, points;
    size_t down, across, tiles; /* tiles of a column, of a row, of all samples */
    size_t slices, panels;
    bool by_panels;
    size_t line;  /* compact: floats of a point of a tile; otherwise 0 */
    size_t chunk; /* tiles of a chunk at most */
    size_t round; /* tiles that V has room for: by chunks one chunk, by panels several */
    size_t u_plane, v_plane, m_plane;
    size_t begin, end; /* by panels: the tiles of the current round */
    float *zeros;      // (side, in)
    float *shared;     /* by chunks: U; by panels: V */
    float *buffers;    /* of threads: a slice of weights, a panel of M; then by chunks V, by panels a slice of U */
    size_t shared_floats, thread_floats;
} tile_job;

static size_t zero_floats(const tile_job *job)
{
    return lk__size_round_up(job->side * job->conv.in.c, LK_ALIGN);
}

/* Floats of a slice of a panel of U, and of a slice of V. */
static size_t u_floats(const tile_job *job)
{
    return job->points * job->u_plane;
}

static size_t v_floats(const tile_job *job)
{
    return job->points * job->v_plane;
}

/* Floats of a slice of a panel of weights. */
static size_t weight_floats(void)
{
    return (size_t)9 * SLICE * LK_NR;
}

static void measure(tile_job *job)
{
    const correlation *conv = &job->conv;
    job->side = conv->tile + 2;
    job->points = job->side * job->side;
    job->down = lk__size_divide_up(conv->out.h, conv->tile);
    job->across = lk__size_divide_up(conv->out.w, conv->tile);
    job->tiles = conv->out.n * job->down * job->across;
    job->slices = lk__size_divide_up(conv->in.c, SLICE);
    job->panels = lk__panel_count(conv->out.c);
}

/* The most tiles with which V and M have at most half the size of U. */
static size_t few_tiles(const tile_job *job)
{
    size_t in = job->conv.in.c, out = job->conv.out.c;
    return in * out / 2 / (in + out);
}

static bool is_large(const tile_job *job)
{
    return job->points * job->conv.in.c * job->conv.out.c >= LARGE_U;
}

/* Floats of a point of a tile, if chunks are compact; 0 if they are not. */
static size_t compact_line(const tile_job *job)
{
    size_t in = job->conv.in.c, width = lk__panel_width(job->conv.out.c, 0);
    if (job->by_panels || job->points != COMPACT_POINTS || job->slices > 1 || job->panels > 1)
        return 0;
    return lk__size_max(in, width) <= NARROW ? NARROW : WIDE;
}

/* Tiles of a chunk at most. */
static size_t most_tiles(const tile_job *job)
{
    size_t line = compact_line(job);
    if (line)
        return lk__size_round_up(COMPACT_FLOATS / (COMPACT_POINTS * line), ROWS);
    size_t floats = job->by_panels ? LK_NR : job->slices * SLICE + LK_NR;
    return lk__size_round_up((job->by_panels ? PANEL_FLOATS : CHUNK_FLOATS) / (job->points * floats) + 1, ROWS);
}

/* Sets all sizes that follow from those of a chunk and a round; returns the floats of scratch. */
static size_t set_sizes(tile_job *job, size_t chunk, size_t round, size_t threads)
{
    job->chunk = chunk;
    job->round = job->by_panels ? round : chunk;
    job->line = compact_line(job);
    job->u_plane = lk__size_min(job->conv.in.c, SLICE) * lk__panel_width(job->conv.out.c, 0) + LK_WINOGRAD_SKEW;
    job->v_plane = job->round * SLICE + LK_WINOGRAD_SKEW;
    job->m_plane = job->chunk * LK_NR + LK_WINOGRAD_SKEW;
    size_t u = job->slices * job->panels * u_floats(job), v = job->slices * v_floats(job),
           m = job->points * job->m_plane;
    job->shared_floats = lk__size_round_up(job->by_panels ? v : u, LK_ALIGN);
    job->thread_floats =
        weight_floats() + (job->line ? job->chunk * job->points * job->line : m + (job->by_panels ? u_floats(job) : v));
    job->thread_floats = lk__size_round_up(job->thread_floats, LK_ALIGN);
    return zero_floats(job) + job->shared_floats + threads * job->thread_floats;
}

/* Chunks of a round, of which a task computes one for each panel. A slice of U is made again for each chunk: many
 * threads gain more than that by tasks that the faster ones can take. */
static size_t round_chunks(const tile_job *job, size_t threads)
{
    return lk__size_divide_up(lk__cpu_tasks(threads, 1), job->panels);
}

/* Chooses the sizes of chunks and rounds. The tasks of a round, and chunks where they are the tasks, are about a
 * multiple of the threads. Chunks that would be too few for the threads are smaller than a register tile wants. */
static void lay_out(tile_job *job, size_t threads)
{
    job->by_panels = is_large(job) || job->tiles <= few_tiles(job);
    size_t most = most_tiles(job), tasks = job->by_panels ? round_chunks(job, threads) : threads;
    size_t chunks = lk__size_round_up(lk__size_divide_up(job->tiles, most), tasks);
    size_t fair = lk__size_divide_up(job->tiles, chunks), chunk = lk__size_min(lk__size_round_up(fair, LK_MR), most);
    if (lk__size_divide_up(job->tiles, chunk) < tasks)
        chunk = lk__size_round_up(fair, LEAST_TILES);
    size_t some = lk__size_max(ROUND_FLOATS / (job->points * job->slices * SLICE * chunk), tasks);
    set_sizes(job, chunk, lk__size_min(some * chunk, job->tiles), threads);
}

/* Floats of scratch for `tiles` tiles or fewer in one of the two orders: with the largest chunk and round. */
static size_t most_floats(tile_job *job, bool by_panels, size_t tiles, size_t threads)
{
    job->by_panels = by_panels;
    size_t most = most_tiles(job), round = ROUND_FLOATS / (job->points * job->slices * SLICE);
    round = lk__size_max(round, round_chunks(job, threads) * most);
    return set_sizes(job, lk__size_min(lk__size_round_up(tiles, LK_MR), most), lk__size_min(round, tiles), threads);
}

size_t lk__winograd_floats(size_t tile, lk_shape in, lk_shape out, size_t threads)
{
    tile_job job = {.conv = {.tile = tile, .in = in, .out = out}};
    measure(&job);
    if (is_large(&job))
        return most_floats(&job, true, job.tiles, threads);
    return lk__size_max(most_floats(&job, false, job.tiles, threads),
                        most_floats(&job, true, lk__size_min(job.tiles, few_tiles(&job)), threads));
}

/* A tile of the output. */
typedef struct output_tile {
    size_t at;         /* its first element in the output */
    size_t rows, cols; /* those that are in the image */
} output_tile;

/* Turns the products of V channels, of which `lanes` exist, into a tile of the output. whole: all of them exist;
 * inside: all pixels of the tile are in the image. */
LK_INLINE void transform_back(int m, bool whole, bool inside, const correlation *conv, const float *products,
                              size_t plane, output_tile to, size_t channel, size_t lanes)
{
    v_f32 rows[4][LK_WINOGRAD_SIDE], line[LK_WINOGRAD_SIDE], out[4];
    const int side = m + 2;
    LK_UNROLL for (int x = 0; x < side; x++, products += plane)
    {
        LK_UNROLL for (int y = 0; y < side; y++) line[y] = v_load(products + (size_t)(y * side) * plane);
        lk__winograd_output_line(m, line, out);
        LK_UNROLL for (int y = 0; y < m; y++) rows[y][x] = out[y];
    }
    const bool relu = conv->relu, has_bias = conv->bias != NULL;
    const size_t pixel = conv->out.c, row = conv->out.w * pixel;
    v_f32 bias = !has_bias ? v_zero() : whole ? v_load(conv->bias + channel) : v_load_n(conv->bias + channel, lanes);
    float *output = conv->output + to.at + channel;
    const float *mask = conv->mask ? conv->mask + to.at + channel : NULL;
    const int cols = (int)lk__size_min(to.cols, (size_t)m);
    LK_UNROLL for (int y = 0; y < m; y++, output += row)
    {
        if (!inside && (size_t)y >= to.rows)
            break;
        LK_UNROLL for (int x = 0; x < side; x++) line[x] = rows[y][x];
        lk__winograd_output_line(m, line, out);
        if (has_bias) {
            LK_UNROLL for (int x = 0; x < m; x++) out[x] = v_add(out[x], bias);
        }
        if (relu) {
            LK_UNROLL for (int x = 0; x < m; x++) out[x] = v_relu(out[x]);
        }
        if (mask) {
            LK_UNROLL for (int x = 0; x < m; x++)
            {
                const float *at = mask + (size_t)x * pixel;
                if (inside || x < cols)
                    out[x] = v_relu_grad(whole ? v_load(at) : v_load_n(at, lanes), out[x]);
            }
            mask += row;
        }
        LK_UNROLL for (int x = 0; x < m; x++)
        {
            float *at = output + (size_t)x * pixel;
            if (!inside && x >= cols)
                break;
            if (whole)
                v_store(at, out[x]);
            else
                v_store_n(at, out[x], lanes);
        }
    }
}

/* The slice that begins at channel k. */
static size_t slice_terms(const tile_job *job, size_t k)
{
    return lk__size_min(job->conv.in.c - k, SLICE);
}

/* Makes a slice of a panel of U, (points, SLICE, width), which begins at channel `first`; `buffer` has room for its
 * weights. */
static void make_u(const tile_job *job, size_t panel, size_t first, float *u, float *buffer)
{
    const correlation *conv = &job->conv;
    size_t depth = conv->in.c, cols = conv->out.c, col = panel * LK_NR, terms = slice_terms(job, first);
    size_t width = lk__panel_width(cols, panel), some = lk__size_min(cols - col, LK_NR);
    if (!conv->transposed)
        lk__pack_transposed(conv->weight + (col * depth + first) * 9, depth * 9, some, terms * 9, 9, width, buffer);
    for (size_t k = 0; k < terms; k++) {
        const float *taps = buffer + k * width;
        ptrdiff_t step = (ptrdiff_t)(terms * width);
        if (conv->transposed) {
            lk__pack_transposed(conv->weight + ((first + k) * cols + col) * 9, 9, some, 9, 1, width, buffer);
            taps = buffer + 8 * width;
            step = -(ptrdiff_t)width;
        }
        for (size_t j = 0; j < width; j += V) {
            if (conv->tile == 4)
                lk__winograd_weights(4, taps + j, step, u + k * width + j, job->u_plane);
            else
                lk__winograd_weights(2, taps + j, step, u + k * width + j, job->u_plane);
        }
    }
}

/* Makes V of tiles [begin, end), whose tiles are `step` and points `plane` floats apart. */
LK_INLINE void make_patches(const tile_job *job, int m, size_t begin, size_t end, float *v, size_t step, size_t plane)
{
    const correlation *conv = &job->conv;
    ptrdiff_t pad_h = (ptrdiff_t)(conv->transposed ? 2 - conv->pad_h : conv->pad_h);
    ptrdiff_t pad_w = (ptrdiff_t)(conv->transposed ? 2 - conv->pad_w : conv->pad_w);
    lk_winograd_place at = lk__winograd_place((size_t)m, job->down, job->across, begin);
    for (size_t tile = begin; tile < end; tile++, v += step) {
        lk_winograd_square square = lk__winograd_square(conv->input, conv->in, at.sample, (ptrdiff_t)at.y - pad_h,
                                                        (ptrdiff_t)at.x - pad_w, 0, m + 2, job->zeros);
        lk__winograd_fetch(m, conv->input, conv->in, at, m + 1, false);
        for (size_t k = 0; k < conv->in.c; k += SLICE)
            lk__winograd_patch_run(m, &square, k, slice_terms(job, k), v + k / SLICE * v_floats(job), plane);
        lk__winograd_next((size_t)m, conv->out, &at);
    }
}

/* Makes V of tiles [begin, end), (slices, points, tiles, SLICE); the first tile begins at v. */
static void make_v(const tile_job *job, size_t begin, size_t end, float *v)
{
    if (job->conv.tile == 4)
        make_patches(job, 4, begin, end, v, SLICE, job->v_plane);
    else
        make_patches(job, 2, begin, end, v, SLICE, job->v_plane);
}

/* Rows of a register tile of one vector: twice LK_MR where there are registers for it. */
#if defined(LK_VEC_AVX512)
enum { TALL = 24 };
#define TALL_SIZES(X) X(24, 1) LK_TILE_SIZES(X, 1)
#else
enum { TALL = LK_MR };
#define TALL_SIZES(X) LK_TILE_SIZES(X, 1)
#endif

/* Adds the products of one slice to mr tiles of M at one point; first: M starts at zero. Tiles of V and of M are v_step
 * and m_step floats apart. */
LK_INLINE void multiply_tiles(const float *v, const float *u, size_t terms, bool first, float *m, int mr, int nv,
                              int v_step, int m_step)
{
    v_f32 acc[TALL][2];
    size_t k = 0;
    lk__tile_zero(acc, mr, nv);
    for (; k + V_REP <= terms; k += V_REP) {
        v_rep rep[TALL];
        /* Compact tiles are as fast without. */
        if (v_step == SLICE)
            __builtin_prefetch(v + mr * v_step + k * (size_t)mr);
#define STEP(lane)                                                  \
    {                                                               \
        v_f32 b0 = v_load(u), b1 = nv > 1 ? v_load(u + V) : b0;     \
        LK_UNROLL for (int i = 0; i < mr; i++)                      \
        {                                                           \
            if (lane == 0)                                          \
                rep[i] = v_rep_load(v + i * v_step + k);            \
            acc[i][0] = v_fma_rep(rep[i], lane, b0, acc[i][0]);     \
            if (nv > 1)                                             \
                acc[i][1] = v_fma_rep(rep[i], lane, b1, acc[i][1]); \
        }                                                           \
        u += nv * V;                                                \
    }
        V_REP_EACH(STEP)
#undef STEP
    }
    for (; V_REP > 1 && k < terms; k++, u += nv * V) {
        v_f32 b0 = v_load(u), b1 = nv > 1 ? v_load(u + V) : b0;
        LK_UNROLL for (int i = 0; i < mr; i++)
        {
            v_f32 value = v_set1(v[i * v_step + (int)k]);
            acc[i][0] = v_fma(value, b0, acc[i][0]);
            if (nv > 1)
                acc[i][1] = v_fma(value, b1, acc[i][1]);
        }
    }
    LK_UNROLL for (int i = 0; i < mr; i++, m += m_step)
    {
        LK_UNROLL for (int j = 0; j < nv; j++)
            v_store(m + j * V, first ? acc[i][j] : v_add(v_load(m + j * V), acc[i][j]));
    }
}

typedef void (*multiply_fn)(const float *v, const float *u, size_t terms, bool first, float *m);

/* Register tiles by falling number of rows. */
typedef struct multiply_size {
    size_t rows;
    multiply_fn fn;
} multiply_size;

#define PLANES(mr, nv)                                                                                   \
    static void multiply_##mr##x##nv(const float *v, const float *u, size_t terms, bool first, float *m) \
    {                                                                                                    \
        multiply_tiles(v, u, terms, first, m, mr, nv, SLICE, LK_NR);                                     \
    }
#define COMPACT(mr, nv, line)                                                                                    \
    static void compact_##line##_##mr##x##nv(const float *v, const float *u, size_t terms, bool first, float *m) \
    {                                                                                                            \
        (void)first;                                                                                             \
        multiply_tiles(v, u, terms, true, m, mr, nv, COMPACT_POINTS *line, COMPACT_POINTS *line);                \
    }
#define COMPACT_NARROW(mr, nv) COMPACT(mr, nv, NARROW)
#define COMPACT_WIDE(mr, nv) COMPACT(mr, nv, WIDE)
LK_TILE_SIZES(PLANES, 1)
LK_TILE_SIZES(PLANES, 2)
TALL_SIZES(COMPACT_NARROW)
LK_TILE_SIZES(COMPACT_NARROW, 2)
TALL_SIZES(COMPACT_WIDE)
LK_TILE_SIZES(COMPACT_WIDE, 2)

#define PLANES_ENTRY(mr, nv) {mr, multiply_##mr##x##nv},
#define NARROW_ENTRY(mr, nv) {mr, compact_NARROW_##mr##x##nv},
#define WIDE_ENTRY(mr, nv) {mr, compact_WIDE_##mr##x##nv},
static const multiply_size planes_1[] = {LK_TILE_SIZES(PLANES_ENTRY, 1)}, planes_2[] = {LK_TILE_SIZES(PLANES_ENTRY, 2)};
static const multiply_size narrow_1[] = {TALL_SIZES(NARROW_ENTRY)}, narrow_2[] = {LK_TILE_SIZES(NARROW_ENTRY, 2)};
static const multiply_size wide_1[] = {TALL_SIZES(WIDE_ENTRY)}, wide_2[] = {LK_TILE_SIZES(WIDE_ENTRY, 2)};
#undef PLANES
#undef COMPACT
#undef COMPACT_NARROW
#undef COMPACT_WIDE
#undef PLANES_ENTRY
#undef NARROW_ENTRY
#undef WIDE_ENTRY

/* The register tiles of a panel. */
static const multiply_size *multiply_sizes(const tile_job *job, size_t panel)
{
    bool wide = lk__panel_width(job->conv.out.c, panel) > V;
    if (!job->line)
        return wide ? planes_2 : planes_1;
    if (job->line == NARROW)
        return wide ? narrow_2 : narrow_1;
    return wide ? wide_2 : wide_1;
}

/* Adds the products of a slice of a panel of U, which begins at channel k, to M of `tiles` tiles. */
static void multiply(const tile_job *job, size_t tiles, size_t panel, size_t k, const float *v, const float *u,
                     float *m)
{
    const multiply_size *sizes = multiply_sizes(job, panel);
    size_t compact_step = job->points * job->line, terms = slice_terms(job, k);
    size_t v_step = job->line ? compact_step : SLICE, m_step = job->line ? compact_step : LK_NR;
    size_t v_plane = job->line ? job->line : job->v_plane, m_plane = job->line ? job->line : job->m_plane;
    for (size_t point = 0; point < job->points; point++, u += job->u_plane, v += v_plane, m += m_plane) {
        const multiply_size *size = sizes;
        for (size_t tile = 0; tile < tiles; tile += size->rows) {
            while (size->rows > tiles - tile)
                size++;
            size->fn(v + tile * v_step, u, terms, k == 0, m + tile * m_step);
        }
    }
}

/* Writes a panel of the output of tiles [begin, end), whose tiles in M are `step` and points `plane` floats apart. */
LK_INLINE void write_outputs(const tile_job *job, int m, size_t begin, size_t end, size_t panel, const float *from,
                             size_t step, size_t plane)
{
    const correlation *conv = &job->conv;
    size_t first = panel * LK_NR, last = lk__size_min(first + LK_NR, conv->out.c);
    lk_winograd_place at = lk__winograd_place((size_t)m, job->down, job->across, begin);
    for (size_t tile = begin; tile < end; tile++, from += step) {
        output_tile to = {((at.sample * conv->out.h + at.y) * conv->out.w + at.x) * conv->out.c, conv->out.h - at.y,
                          conv->out.w - at.x};
        lk__winograd_fetch(m, conv->output, conv->out, at, m, true);
        bool inside = to.rows >= (size_t)m && to.cols >= (size_t)m;
        for (size_t c = first; c < last; c += V) {
            size_t lanes = lk__size_min(last - c, V);
            const float *products = from + (c - first);
            if (inside && lanes == V)
                transform_back(m, true, true, conv, products, plane, to, c, lanes);
            else if (lanes == V)
                transform_back(m, true, false, conv, products, plane, to, c, lanes);
            else
                transform_back(m, false, false, conv, products, plane, to, c, lanes);
        }
        lk__winograd_next((size_t)m, conv->out, &at);
    }
}

/* Writes a panel of the output of tiles [begin, end); the first tile begins at m. */
static void make_outputs(const tile_job *job, size_t begin, size_t end, size_t panel, const float *m)
{
    if (job->conv.tile == 4)
        write_outputs(job, 4, begin, end, panel, m, LK_NR, job->m_plane);
    else
        write_outputs(job, 2, begin, end, panel, m, LK_NR, job->m_plane);
}

static float *own_buffer(const tile_job *job, int thread)
{
    return job->buffers + (size_t)thread * job->thread_floats;
}

/* By chunks. */

static float *shared_u(const tile_job *job, size_t panel, size_t k)
{
    return job->shared + (panel * job->slices + k / SLICE) * u_floats(job);
}

static void u_task(void *arg, size_t index, int thread)
{
    const tile_job *job = arg;
    size_t panel = index / job->slices, k = index % job->slices * SLICE;
    make_u(job, panel, k, shared_u(job, panel, k), own_buffer(job, thread));
}

/* The constants give their loops fixed addresses. */
static void compact_task(const tile_job *job, size_t begin, size_t end, float *v)
{
    if (job->line == NARROW)
        make_patches(job, 4, begin, end, v, COMPACT_POINTS * NARROW, NARROW);
    else
        make_patches(job, 4, begin, end, v, COMPACT_POINTS * WIDE, WIDE);
    multiply(job, end - begin, 0, 0, v, shared_u(job, 0, 0), v);
    if (job->line == NARROW)
        write_outputs(job, 4, begin, end, 0, v, COMPACT_POINTS * NARROW, NARROW);
    else
        write_outputs(job, 4, begin, end, 0, v, COMPACT_POINTS * WIDE, WIDE);
}

static void chunk_task(void *arg, size_t index, int thread)
{
    const tile_job *job = arg;
    size_t begin = index * job->chunk, end = lk__size_min(begin + job->chunk, job->tiles);
    if (job->line) {
        compact_task(job, begin, end, own_buffer(job, thread) + weight_floats());
        return;
    }
    float *m = own_buffer(job, thread) + weight_floats(), *v = m + job->points * job->m_plane;
    make_v(job, begin, end, v);
    for (size_t panel = 0; panel < job->panels; panel++) {
        for (size_t k = 0; k < job->conv.in.c; k += SLICE)
            multiply(job, end - begin, panel, k, v + k / SLICE * v_floats(job), shared_u(job, panel, k), m);
        make_outputs(job, begin, end, panel, m);
    }
}

/* By panels. */

static void v_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const tile_job *job = arg;
    make_v(job, job->begin + index, job->begin + index + 1, job->shared + index * SLICE);
}

static void panel_task(void *arg, size_t index, int thread)
{
    const tile_job *job = arg;
    size_t panel = index % job->panels, offset = index / job->panels * job->chunk;
    size_t begin = job->begin + offset, end = lk__size_min(begin + job->chunk, job->end);
    float *weights = own_buffer(job, thread), *m = weights + weight_floats(), *u = m + job->points * job->m_plane;
    for (size_t k = 0; k < job->conv.in.c; k += SLICE) {
        make_u(job, panel, k, u, weights);
        multiply(job, end - begin, panel, k, job->shared + k / SLICE * v_floats(job) + offset * SLICE, u, m);
    }
    make_outputs(job, begin, end, panel, m);
}

static void correlate(lk_pool *pool, const correlation *conv, float *scratch)
{
    tile_job job = {.conv = *conv};
    measure(&job);
    if (job.tiles == 0)
        return;
    lay_out(&job, (size_t)lk__pool_threads(pool));
    job.zeros = scratch;
    job.shared = job.zeros + zero_floats(&job);
    job.buffers = job.shared + job.shared_floats;
    memset(job.zeros, 0, zero_floats(&job) * sizeof *job.zeros);
    if (!job.by_panels) {
        lk__pool_run(pool, job.panels * job.slices, u_task, &job);
        lk__pool_run(pool, lk__size_divide_up(job.tiles, job.chunk), chunk_task, &job);
        return;
    }
    for (; job.begin < job.tiles; job.begin = job.end) {
        job.end = lk__size_min(job.begin + job.round, job.tiles);
        lk__pool_run(pool, job.end - job.begin, v_task, &job);
        lk__pool_run(pool, job.panels * lk__size_divide_up(job.end - job.begin, job.chunk), panel_task, &job);
    }
}

void lk__winograd_forward(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *x, const void *w, const void *b,
                          bool relu, lk_tensor *y, void *scratch)
{
    correlation job = {.tile = lk__winograd_tile(conv, x->shape, y->shape), .in = x->shape, .out = y->shape};
    job.pad_h = conv->h.pad;
    job.pad_w = conv->w.pad;
    job.input = lk__tensor_f32(x);
    job.weight = w;
    job.bias = b;
    job.output = lk__tensor_f32(y);
    job.relu = relu;
    correlate(lk__cpu_pool(dev), &job, scratch);
}

void lk__winograd_grad_input(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *dy, const void *w,
                             const lk_tensor *mask, lk_tensor *dx, void *scratch)
{
    correlation job = {.tile = lk__winograd_tile(conv, dy->shape, dx->shape), .in = dy->shape, .out = dx->shape};
    job.pad_h = conv->h.pad;
    job.pad_w = conv->w.pad;
    job.input = lk__tensor_f32(dy);
    job.weight = w;
    job.mask = mask ? lk__tensor_f32(mask) : NULL;
    job.output = lk__tensor_f32(dx);
    job.transposed = true;
    correlate(lk__cpu_pool(dev), &job, scratch);
}
