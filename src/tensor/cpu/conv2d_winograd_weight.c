/* conv2d_winograd_weight.c - dw by Winograd's algorithm.
 *
 * The leaf of a shard is a sum over its tiles: V (points, in, tiles) of x times D (points, tiles, out) of dy gives P
 * (points, in, out), which the last transform turns into the 3x3 weights of the leaf. Leaves are folded over shards as
 * in conv2d_grad_weight.c. A task owns a block of input by output channels, small enough that P stays in its core's
 * cache; it transforms the channels of its block itself.
 *
 * Products go over CHUNK tiles at a time, counted from the first tile of the shard. CHUNK belongs to the result. */
#include "tensor/cpu/conv2d_winograd.h"
#include "tensor/cpu/decls.h"
#include "tensor/cpu/fold.h"

/* The widest vector divides CHUNK and the channels of a block on either side: at most BLOCK_2 with tiles of 2 pixels
 * and BLOCK_4 with tiles of 4, whose P has more points. */
enum { CHUNK = 48, BLOCK_2 = 128, BLOCK_4 = 64, SMALL_BLOCK = 16, TAPS = 9 };

typedef struct weight_job {
    size_t tile, side, points;
    lk_shape x, y;
    size_t pad_h, pad_w;
    const float *input; // (n, h, w, in)
    const float *dy;    // (n, h, w, out)
    const lk_shards *shards;
    lk_partials dw; // (out, in, 3, 3)
    lk_lanes fold;
    size_t down, across; /* tiles of a column, of a row */
    size_t in, out;      /* channels of a block at most, multiples of V */
    size_t ins, outs;    /* blocks */
    /* Floats of a point; some: of V tiles before they are transposed. */
    size_t some_plane, v_plane, d_plane, p_plane;
    size_t thread_floats;
    float *zeros; // (BLOCK_2)
    float *buffers;
} weight_job;

/* A block of channels, and the buffers of the task that owns it. */
typedef struct block {
    size_t in_first, in, out_first, out;
    float *patch, *some, *v, *d, *p;
    float *stack; /* partial sums from fold.low on: (9, in, out) each */
} block;

/* Floats of a partial sum. */
static size_t entry_floats(const weight_job *job)
{
    return TAPS * job->in * job->out;
}

static size_t lay_out(weight_job *job, size_t threads)
{
    job->side = job->tile + 2;
    job->points = job->side * job->side;
    job->down = (job->y.h + job->tile - 1) / job->tile;
    job->across = (job->y.w + job->tile - 1) / job->tile;
    size_t most = job->tile == 4 ? BLOCK_4 : BLOCK_2;
    job->in = lk__size_min(lk__size_round_up(job->x.c, SMALL_BLOCK), most);
    job->out = lk__size_min(lk__size_round_up(job->y.c, SMALL_BLOCK), most);
    for (;;) {
        job->ins = (job->x.c + job->in - 1) / job->in;
        job->outs = (job->y.c + job->out - 1) / job->out;
        size_t *wide = job->in > job->out ? &job->in : &job->out;
        if (job->ins * job->outs >= threads || *wide == SMALL_BLOCK)
            break;
        *wide = lk__size_round_up(*wide / 2, SMALL_BLOCK);
    }
    job->v_plane = job->in * CHUNK + LK_WINOGRAD_SKEW;
    job->d_plane = job->out * CHUNK + LK_WINOGRAD_SKEW;
    job->p_plane = job->in * job->out + LK_WINOGRAD_SKEW;
    job->some_plane = V * job->in + LK_WINOGRAD_SKEW;
    job->thread_floats = lk__size_max(job->in, job->out) + job->some_plane + job->v_plane + job->d_plane + job->p_plane;
    job->thread_floats = job->points * job->thread_floats + LK_TREE_MAX_DEPTH * entry_floats(job);
    job->thread_floats = lk__size_round_up(job->thread_floats, LK_ALIGN);
    return BLOCK_2 + threads * job->thread_floats;
}

size_t lk__winograd_weight_floats(size_t tile, lk_shape x, lk_shape y, size_t threads)
{
    weight_job job = {.tile = tile, .x = x, .y = y};
    return lay_out(&job, threads);
}

/* Transforms V channels of a tile of dy, from `channel` on. */
LK_INLINE void transform_gradient(int m, const float *const *pixels, size_t channel, float *d, size_t plane)
{
    v_f32 rows[LK_WINOGRAD_SIDE][4], line[4], out[LK_WINOGRAD_SIDE];
    const int side = m + 2;
    LK_UNROLL for (int x = 0; x < m; x++)
    {
        LK_UNROLL for (int y = 0; y < m; y++) line[y] = v_load(pixels[y * m + x] + channel);
        lk__winograd_gradient_line(m, line, out);
        LK_UNROLL for (int y = 0; y < side; y++) rows[y][x] = out[y];
    }
    LK_UNROLL for (int y = 0; y < side; y++)
    {
        lk__winograd_gradient_line(m, rows[y], out);
        LK_UNROLL for (int x = 0; x < side; x++) v_store(d + (size_t)(y * side + x) * plane, out[x]);
    }
}

/* Turns V sums of products into V weights of the leaf, and adds the leaf to the `merges` partial sums below `top`. */
LK_INLINE void transform_sums(int m, const float *p, size_t plane, float *top, size_t tap, size_t entry, int merges)
{
    v_f32 rows[3][LK_WINOGRAD_SIDE], line[LK_WINOGRAD_SIDE], out[3];
    const int side = m + 2;
    LK_UNROLL for (int x = 0; x < side; x++)
    {
        LK_UNROLL for (int y = 0; y < side; y++) line[y] = v_load(p + (size_t)(y * side + x) * plane);
        lk__winograd_sum_line(m, line, out);
        LK_UNROLL for (int y = 0; y < 3; y++) rows[y][x] = out[y];
    }
    LK_UNROLL for (int y = 0; y < 3; y++)
    {
        lk__winograd_sum_line(m, rows[y], out);
        LK_UNROLL for (int x = 0; x < 3; x++)
        {
            float *sum = top + (size_t)(y * 3 + x) * tap;
            for (int merge = 0; merge < merges; merge++) {
                sum -= entry;
                out[x] = v_add(v_load(sum), out[x]);
            }
            v_store(sum, out[x]);
        }
    }
}

/* Where a tile begins in its image. */
typedef struct place {
    size_t sample;
    ptrdiff_t y, x;
} place;

static place place_of(const weight_job *job, size_t tile)
{
    return (place){tile / (job->down * job->across), (ptrdiff_t)(tile / job->across % job->down * job->tile),
                   (ptrdiff_t)(tile % job->across * job->tile)};
}

/* Makes V of `count` tiles from `first` on. */
static void make_patches(const weight_job *job, const block *b, size_t first, size_t count)
{
    lk_box box = {.h = job->side, .w = job->side, .first = b->in_first, .channels = b->in};
    size_t row = lk__size_round_up(b->in, V), plane = job->some_plane;
    for (size_t i = 0; i < count; i++) {
        place at = place_of(job, first + i);
        box.y = at.y - (ptrdiff_t)job->pad_h;
        box.x = at.x - (ptrdiff_t)job->pad_w;
        const float *pixels[LK_WINOGRAD_POINTS];
        lk__box_points(job->input + at.sample * lk__shape_sample(job->x), job->x, box, job->zeros, b->patch, pixels);
        float *to = b->some + i % V * job->in;
        for (size_t c = 0; c < row; c += V) {
            if (job->tile == 4)
                lk__winograd_patch(4, pixels, c, to + c, plane);
            else
                lk__winograd_patch(2, pixels, c, to + c, plane);
        }
        if (i % V != V - 1 && i + 1 < count)
            continue;
        for (size_t point = 0; point < job->points; point++) {
            float *v = b->v + point * job->v_plane + i / V * V;
            for (size_t c = 0; c < row; c += V)
                v_transpose(b->some + point * plane + c, job->in, v + c * CHUNK, CHUNK);
        }
    }
}

/* Makes D of `count` tiles from `first` on, in panels. */
static void make_gradients(const weight_job *job, const block *b, size_t first, size_t count)
{
    lk_box box = {.h = job->tile, .w = job->tile, .first = b->out_first, .channels = b->out};
    size_t row = lk__size_round_up(b->out, V);
    for (size_t i = 0; i < count; i++) {
        place at = place_of(job, first + i);
        box.y = at.y;
        box.x = at.x;
        const float *pixels[LK_WINOGRAD_POINTS];
        lk__box_points(job->dy + at.sample * lk__shape_sample(job->y), job->y, box, job->zeros, b->patch, pixels);
        for (size_t c = 0; c < row; c += V) {
            size_t panel = c / LK_NR, width = lk__panel_width(b->out, panel);
            float *d = b->d + panel * LK_NR * count + i * width + c % LK_NR;
            if (job->tile == 4)
                transform_gradient(4, pixels, c, d, job->d_plane);
            else
                transform_gradient(2, pixels, c, d, job->d_plane);
        }
    }
}

/* Adds the products of `count` tiles to P, panel by panel; fresh: P starts at zero. */
static void multiply(const weight_job *job, const block *b, size_t count, bool fresh)
{
    lk_gemm gemm = {.ny = 1, .nx = b->in, .a_x = CHUNK, .runs_y = 1, .runs_x = 1, .len = count};
    gemm.start = fresh ? job->zeros : NULL;
    gemm.c_x = job->out;
    for (size_t point = 0; point < job->points; point++) {
        gemm.a = b->v + point * job->v_plane;
        for (size_t col = 0; col < b->out; col += LK_NR) {
            gemm.panels = b->d + point * job->d_plane + col * count;
            gemm.c = b->p + point * job->p_plane + col;
            gemm.cols = lk__size_min(b->out - col, LK_NR);
            lk__gemm(&gemm);
        }
    }
}

/* Sums P of the leaf of samples [first, last). */
static void sum_leaf(const weight_job *job, const block *b, size_t first, size_t last)
{
    size_t tiles = job->down * job->across, begin = first * tiles, end = last * tiles;
    if (begin == end)
        memset(b->p, 0, job->points * job->p_plane * sizeof *b->p);
    for (size_t at = begin; at < end; at += CHUNK) {
        size_t count = lk__size_min(end - at, CHUNK);
        make_patches(job, b, at, count);
        make_gradients(job, b, at, count);
        multiply(job, b, count, at == begin);
    }
}

/* Puts the leaf at `top` and merges it with the partial sums below. */
static void push_leaf(const weight_job *job, const block *b, float *top, int merges)
{
    size_t tap = job->in * job->out, entry = entry_floats(job);
    for (size_t i = 0; i < b->in; i++) {
        for (size_t c = 0; c < b->out; c += V) {
            size_t at = i * job->out + c;
            if (job->tile == 4)
                transform_sums(4, b->p + at, job->p_plane, top + at, tap, entry, merges);
            else
                transform_sums(2, b->p + at, job->p_plane, top + at, tap, entry, merges);
        }
    }
}

/* Copies entry e of the block from or to its slot. */
static void move_block(const weight_job *job, const block *b, int e, bool store)
{
    float *entry = b->stack + (size_t)(e - job->fold.low) * entry_floats(job);
    for (size_t o = 0; o < b->out; o++) {
        float *slot = lk__partials_slot(job->dw, e) + ((b->out_first + o) * job->x.c + b->in_first) * TAPS;
        for (size_t i = 0; i < b->in; i++) {
            float *from = entry + i * job->out + o;
            for (size_t tap = 0; tap < TAPS; tap++, slot++, from += job->in * job->out) {
                if (store)
                    *slot = *from;
                else
                    *from = *slot;
            }
        }
    }
}

static void weight_task(void *arg, size_t index, int thread)
{
    const weight_job *job = arg;
    const lk_shards *shards = job->shards;
    block b = {.in_first = index % job->ins * job->in, .out_first = index / job->ins * job->out};
    b.in = lk__size_min(job->x.c - b.in_first, job->in);
    b.out = lk__size_min(job->y.c - b.out_first, job->out);
    b.patch = job->buffers + (size_t)thread * job->thread_floats;
    b.some = b.patch + job->points * lk__size_max(job->in, job->out);
    b.v = b.some + job->points * job->some_plane;
    b.d = b.v + job->points * job->v_plane;
    b.p = b.d + job->points * job->d_plane;
    b.stack = b.p + job->points * job->p_plane;
    for (int e = job->fold.low; e < shards->depth; e++)
        move_block(job, &b, e, false);
    int top = shards->depth - job->fold.low;
    for (int s = 0; s < shards->count; s++) {
        sum_leaf(job, &b, shards->begin[s], shards->begin[s + 1]);
        push_leaf(job, &b, b.stack + (size_t)top * entry_floats(job), shards->merges[s]);
        top += 1 - shards->merges[s];
    }
    for (int e = job->fold.low; e < job->fold.end; e++)
        move_block(job, &b, e, true);
}

void lk__winograd_grad_weight(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *x, const lk_tensor *dy,
                              const lk_shards *shards, lk_partials dw, lk_partials db, void *scratch)
{
    (void)db;
    lk_pool *pool = lk__cpu_pool(dev);
    weight_job job = {.tile = lk__winograd_weight_tile(conv, x->shape, dy->shape), .x = x->shape, .y = dy->shape};
    job.pad_h = conv->h.pad;
    job.pad_w = conv->w.pad;
    job.input = lk__tensor_f32(x);
    job.dy = lk__tensor_f32(dy);
    job.shards = shards;
    job.dw = dw;
    job.fold = lk__lanes_fold(shards);
    lay_out(&job, (size_t)lk__pool_threads(pool));
    job.zeros = scratch;
    job.buffers = job.zeros + BLOCK_2;
    memset(job.zeros, 0, BLOCK_2 * sizeof *job.zeros);
    lk__pool_run(pool, job.ins * job.outs, weight_task, &job);
}
