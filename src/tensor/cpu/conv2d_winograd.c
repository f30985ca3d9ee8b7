/* conv2d_winograd.c - forward pass and input gradients by Winograd's algorithm.
 *
 * Patches are transformed into V (points, tiles, in), weights into U (points, in, out). For each point one matrix
 * product gives M (points, tiles, out), which the last transform turns into tiles of the output. Each product is a sum
 * over the input channels in rising order, in short blocks (LK_WINOGRAD_SUM_BLOCK). How tiles and panels are divided
 * among tasks does not change a bit.
 *
 * By chunks: all of U is made first; a task takes a chunk of tiles, whose V and M fit into its core's cache, through
 * all steps. By panels: U is large and tiles are few; all V is made first, then a task makes one panel of U and
 * multiplies all tiles by it, so that U never leaves the core's cache. */
#include "tensor/cpu/conv2d_winograd.h"

#include "tensor/cpu/decls.h"
#include "tensor/cpu/pack.h"

/* Tiles of a chunk are a multiple of ROWS, which every LK_MR divides. Chunks have about CHUNK_FLOATS floats of V and M;
 * all tiles together have at most PANEL_FLOATS when the tasks are panels. */
enum { ROWS = 24, CHUNK_FLOATS = 64 * 1024, PANEL_FLOATS = 4 * 1024 * 1024 };

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
    size_t in_row, out_row;     /* channels rounded up to V */
    bool by_panels;
    size_t chunk; /* tiles of a chunk at most */
    size_t u_plane, v_plane, m_plane;
    float *zeros;   // (channels of the input or the output, rounded up to LK_NR)
    float *shared;  /* by chunks: U; by panels: V and M of all tiles */
    float *buffers; /* of threads: a patch or a panel of weights; then V and M of a chunk, or a panel of U */
    size_t own;     /* floats of the patch or the panel of weights */
    size_t shared_floats, thread_floats;
} tile_job;

static size_t panel_columns(const tile_job *job)
{
    return lk__panel_count(job->conv.out.c) * LK_NR;
}

static size_t zero_floats(const tile_job *job)
{
    return lk__size_round_up(lk__size_max(panel_columns(job), job->in_row), LK_ALIGN);
}

/* Floats of V and M for one tile. */
static size_t tile_floats(const tile_job *job)
{
    return job->points * (job->in_row + job->out_row);
}

static void measure(tile_job *job)
{
    const correlation *conv = &job->conv;
    job->side = conv->tile + 2;
    job->points = job->side * job->side;
    job->down = (conv->out.h + conv->tile - 1) / conv->tile;
    job->across = (conv->out.w + conv->tile - 1) / conv->tile;
    job->tiles = conv->out.n * job->down * job->across;
    job->in_row = lk__size_round_up(conv->in.c, V);
    job->out_row = lk__size_round_up(conv->out.c, V);
}

/* Sets the sizes in job for one of the two orders; returns the floats of scratch. */
static size_t lay_out(tile_job *job, bool by_panels, size_t chunk, size_t threads)
{
    size_t depth = job->conv.in.c, cols = panel_columns(job);
    job->by_panels = by_panels;
    job->chunk = chunk;
    job->u_plane = depth * (by_panels ? LK_NR : cols) + LK_WINOGRAD_SKEW;
    job->v_plane = chunk * job->in_row + LK_WINOGRAD_SKEW;
    job->m_plane = chunk * job->out_row + LK_WINOGRAD_SKEW;
    size_t u = job->points * job->u_plane, vm = job->points * (job->v_plane + job->m_plane);
    job->own = lk__size_max(job->points * job->in_row, 9 * depth * LK_NR);
    job->thread_floats = lk__size_round_up(job->own + (by_panels ? u : vm), LK_ALIGN);
    job->shared_floats = lk__size_round_up(by_panels ? vm : u, LK_ALIGN);
    return zero_floats(job) + job->shared_floats + threads * job->thread_floats;
}

/* Tiles of a chunk whose V and M fit into a core's cache. */
static size_t chunk_tiles(const tile_job *job)
{
    return lk__size_min(lk__size_round_up(CHUNK_FLOATS / tile_floats(job) + 1, ROWS), job->tiles);
}

/* The tasks are panels up to this number of tiles: V and M of all tiles then have at most half the size of U. */
static size_t panel_tiles(const tile_job *job)
{
    return lk__size_min(PANEL_FLOATS, job->points * job->conv.in.c * job->conv.out.c / 2) / tile_floats(job);
}

size_t lk__winograd_floats(size_t tile, lk_shape in, lk_shape out, size_t threads)
{
    tile_job job = {.conv = {.tile = tile, .in = in, .out = out}};
    measure(&job);
    size_t floats = lay_out(&job, false, chunk_tiles(&job), threads);
    return lk__size_max(floats, lay_out(&job, true, lk__size_min(job.tiles, panel_tiles(&job)), threads));
}

/* Transforms V columns of a weight. Taps are `step` floats apart. */
LK_INLINE void transform_weight(int m, const float *taps, ptrdiff_t step, float *u, size_t plane)
{
    v_f32 rows[LK_WINOGRAD_SIDE][3], line[3], out[LK_WINOGRAD_SIDE];
    const int side = m + 2;
    LK_UNROLL for (int x = 0; x < 3; x++)
    {
        LK_UNROLL for (int y = 0; y < 3; y++) line[y] = v_load(taps + (y * 3 + x) * step);
        lk__winograd_weight_line(m, line, out);
        LK_UNROLL for (int y = 0; y < side; y++) rows[y][x] = out[y];
    }
    LK_UNROLL for (int y = 0; y < side; y++)
    {
        lk__winograd_weight_line(m, rows[y], out);
        LK_UNROLL for (int x = 0; x < side; x++) v_store(u + (size_t)(y * side + x) * plane, out[x]);
    }
}

/* A tile of the output. */
typedef struct place {
    size_t at;         /* its first element in the output */
    size_t rows, cols; /* those that are in the image */
} place;

/* Turns the products of V channels, of which `lanes` exist, into a tile of the output. whole: all its pixels are in the
 * image, and all channels exist. */
LK_INLINE void transform_back(int m, bool whole, const correlation *conv, const float *products, size_t plane, place to,
                              size_t channel, size_t lanes)
{
    v_f32 rows[4][LK_WINOGRAD_SIDE], line[LK_WINOGRAD_SIDE], out[4];
    const int side = m + 2;
    LK_UNROLL for (int x = 0; x < side; x++)
    {
        LK_UNROLL for (int y = 0; y < side; y++) line[y] = v_load(products + (size_t)(y * side + x) * plane);
        lk__winograd_output_line(m, line, out);
        LK_UNROLL for (int y = 0; y < m; y++) rows[y][x] = out[y];
    }
    lanes = whole ? V : lanes;
    v_f32 bias = conv->bias ? v_load_some(conv->bias + channel, lanes) : v_zero();
    LK_UNROLL for (int y = 0; y < m; y++)
    {
        lk__winograd_output_line(m, rows[y], out);
        LK_UNROLL for (int x = 0; x < m; x++)
        {
            if (!whole && ((size_t)y >= to.rows || (size_t)x >= to.cols))
                continue;
            size_t at = to.at + ((size_t)y * conv->out.w + (size_t)x) * conv->out.c + channel;
            v_f32 value = conv->bias ? v_add(out[x], bias) : out[x];
            if (conv->relu)
                value = v_relu(value);
            if (conv->mask)
                value = v_relu_grad(v_load_some(conv->mask + at, lanes), value);
            v_store_some(conv->output + at, value, lanes);
        }
    }
}

/* Makes one panel of U; `buffer` has room for the panel of weights. */
static void make_panel(const tile_job *job, size_t panel, float *u, float *buffer)
{
    const correlation *conv = &job->conv;
    size_t depth = conv->in.c, cols = conv->out.c, col = panel * LK_NR;
    size_t width = lk__panel_width(cols, panel), some = lk__size_min(cols - col, LK_NR);
    if (!conv->transposed)
        lk__pack_transposed(conv->weight + col * depth * 9, depth * 9, some, depth * 9, 9, width, buffer);
    for (size_t k = 0; k < depth; k++) {
        const float *taps = buffer + k * width;
        ptrdiff_t step = (ptrdiff_t)(depth * width);
        if (conv->transposed) {
            lk__pack_transposed(conv->weight + (k * cols + col) * 9, 9, some, 9, 1, width, buffer);
            taps = buffer + 8 * width;
            step = -(ptrdiff_t)width;
        }
        for (size_t j = 0; j < width; j += V) {
            if (conv->tile == 4)
                transform_weight(4, taps + j, step, u + k * width + j, job->u_plane);
            else
                transform_weight(2, taps + j, step, u + k * width + j, job->u_plane);
        }
    }
}

/* Makes V of tiles [begin, end); `buffer` has room for a patch. v and m of these functions begin at tile `begin`. */
static void make_patches(const tile_job *job, size_t begin, size_t end, float *v, float *buffer)
{
    const correlation *conv = &job->conv;
    lk_box box = {.h = job->side, .w = job->side, .channels = conv->in.c};
    ptrdiff_t pad_h = (ptrdiff_t)conv->pad_h, pad_w = (ptrdiff_t)conv->pad_w;
    for (size_t tile = begin; tile < end; tile++, v += job->in_row) {
        size_t sample = tile / (job->down * job->across);
        box.y = (ptrdiff_t)(tile / job->across % job->down * conv->tile) - (conv->transposed ? 2 - pad_h : pad_h);
        box.x = (ptrdiff_t)(tile % job->across * conv->tile) - (conv->transposed ? 2 - pad_w : pad_w);
        const float *pixels[LK_WINOGRAD_POINTS];
        lk__box_points(conv->input + sample * lk__shape_sample(conv->in), conv->in, box, job->zeros, buffer, pixels);
        for (size_t c = 0; c < job->in_row; c += V) {
            if (conv->tile == 4)
                lk__winograd_patch(4, pixels, c, v + c, job->v_plane);
            else
                lk__winograd_patch(2, pixels, c, v + c, job->v_plane);
        }
    }
}

/* Multiplies `tiles` tiles by panels [begin, end) of U, which start at u. */
static void multiply(const tile_job *job, size_t tiles, size_t begin, size_t end, const float *v, const float *u,
                     float *m)
{
    size_t depth = job->conv.in.c;
    lk_gemm gemm = {.ny = 1, .nx = tiles, .a_x = job->in_row, .runs_y = 1, .runs_x = 1, .len = depth};
    gemm.block = LK_WINOGRAD_SUM_BLOCK;
    gemm.start = job->zeros;
    gemm.c_x = job->out_row;
    gemm.cols = lk__size_min(job->conv.out.c, end * LK_NR) - begin * LK_NR;
    for (size_t point = 0; point < job->points; point++) {
        gemm.a = v + point * job->v_plane;
        gemm.panels = u + point * job->u_plane;
        gemm.c = m + point * job->m_plane + begin * LK_NR;
        lk__gemm(&gemm);
    }
}

/* Writes tiles [begin, end) of the output. */
static void make_outputs(const tile_job *job, size_t begin, size_t end, const float *m)
{
    const correlation *conv = &job->conv;
    for (size_t tile = begin; tile < end; tile++, m += job->out_row) {
        size_t sample = tile / (job->down * job->across);
        size_t y = tile / job->across % job->down * conv->tile, x = tile % job->across * conv->tile;
        place to = {((sample * conv->out.h + y) * conv->out.w + x) * conv->out.c, conv->out.h - y, conv->out.w - x};
        bool inside = to.rows >= conv->tile && to.cols >= conv->tile;
        for (size_t c = 0; c < conv->out.c; c += V) {
            size_t lanes = lk__size_min(conv->out.c - c, V);
            if (conv->tile == 4 && inside && lanes == V)
                transform_back(4, true, conv, m + c, job->m_plane, to, c, lanes);
            else if (conv->tile == 4)
                transform_back(4, false, conv, m + c, job->m_plane, to, c, lanes);
            else
                transform_back(2, false, conv, m + c, job->m_plane, to, c, lanes);
        }
    }
}

static float *own_buffer(const tile_job *job, int thread)
{
    return job->buffers + (size_t)thread * job->thread_floats;
}

/* By chunks. */

static void panel_task(void *arg, size_t index, int thread)
{
    const tile_job *job = arg;
    make_panel(job, index, job->shared + index * LK_NR * job->conv.in.c, own_buffer(job, thread));
}

static void chunk_task(void *arg, size_t index, int thread)
{
    const tile_job *job = arg;
    size_t begin = index * job->chunk, end = lk__size_min(begin + job->chunk, job->tiles);
    float *buffer = own_buffer(job, thread), *v = buffer + job->own, *m = v + job->points * job->v_plane;
    make_patches(job, begin, end, v, buffer);
    multiply(job, end - begin, 0, lk__panel_count(job->conv.out.c), v, job->shared, m);
    make_outputs(job, begin, end, m);
}

/* By panels. */

static void patch_task(void *arg, size_t index, int thread)
{
    const tile_job *job = arg;
    make_patches(job, index, index + 1, job->shared + index * job->in_row, own_buffer(job, thread));
}

static void multiply_task(void *arg, size_t index, int thread)
{
    const tile_job *job = arg;
    float *buffer = own_buffer(job, thread), *u = buffer + job->own;
    make_panel(job, index, u, buffer);
    multiply(job, job->tiles, index, index + 1, job->shared, u, job->shared + job->points * job->v_plane);
}

static void output_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const tile_job *job = arg;
    make_outputs(job, index, index + 1, job->shared + job->points * job->v_plane + index * job->out_row);
}

static void correlate(lk_pool *pool, const correlation *conv, float *scratch)
{
    tile_job job = {.conv = *conv};
    size_t threads = (size_t)lk__pool_threads(pool), panels = lk__panel_count(conv->out.c);
    measure(&job);
    if (job.tiles == 0)
        return;
    bool by_panels = job.tiles <= panel_tiles(&job);
    size_t chunk = by_panels ? job.tiles : chunk_tiles(&job);
    size_t chunks = lk__size_round_up((job.tiles + chunk - 1) / chunk, threads);
    size_t even = lk__size_round_up((job.tiles + chunks - 1) / chunks, LK_MR);
    lay_out(&job, by_panels, by_panels ? chunk : lk__size_min(even, chunk), threads);
    job.zeros = scratch;
    job.shared = job.zeros + zero_floats(&job);
    job.buffers = job.shared + job.shared_floats;
    memset(job.zeros, 0, zero_floats(&job) * sizeof *job.zeros);
    if (by_panels) {
        lk__pool_run(pool, job.tiles, patch_task, &job);
        lk__pool_run(pool, panels, multiply_task, &job);
        lk__pool_run(pool, job.tiles, output_task, &job);
    } else {
        lk__pool_run(pool, panels, panel_task, &job);
        lk__pool_run(pool, (job.tiles + job.chunk - 1) / job.chunk, chunk_task, &job);
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
