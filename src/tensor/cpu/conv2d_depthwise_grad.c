/* conv2d_depthwise_grad.c - dw and db where each channel has its own kernel.
 *
 * Lanes are channels. The sums of a block of taps stay in registers while the pixels of a band are added in
 * rising order. A band is a part of a block of the sum (sums.h), so that a group of one channel has the bits that
 * conv2d_grad_weight.c gives it. A task computes the leaf of one shard for a part of the channels. Leaves are small,
 * so they are folded after all of them are complete. */
#include "tensor/cpu/conv2d.h"
#include "tensor/cpu/decls.h"
#include "tensor/cpu/fold.h"

enum { BAND_FLOATS = 32 * 1024, MAX_LEAVES = 32, STACK = LK_TREE_MAX_DEPTH + 1, TASKS_A_THREAD = 2, SIDE = 3 };

typedef struct leaf_job {
    const lk_conv2d_desc *conv;
    lk_shape x, y;
    const float *input;  // (n, h, w, c)
    const float *dy;     // (n, h, w, c)
    const size_t *begin; /* first samples of the leaves */
    size_t parts, part;  /* number of parts of the channels; channels of a part, a multiple of V */
    lk_sum_rows sum;     /* blocks of the sum */
    size_t band;         /* output rows of a band at most */
    size_t box_floats, thread_floats;
    size_t row; /* floats of a leaf */
    bool bias;
    float *stack;  // (STACK, row): a copy of the partial sums
    float *leaves; // (leaves, row): (c, kh, kw), (c)
    float *scratch;
} leaf_job;

/* A band of pixels of some channels. */
typedef struct lane_band {
    const float *x, *dy;
    size_t x_y, x_x, dy_y, dy_x; /* floats from one output pixel to the next */
    size_t row, column;          /* floats of x from one tap to the next */
    size_t ny, nx;
} lane_band;

static size_t lay_out(leaf_job *job, size_t leaves, size_t threads)
{
    const lk_conv2d_desc *conv = job->conv;
    size_t taps = lk__conv2d_desc_taps(conv), blocks = (job->x.c + V - 1) / V;
    size_t wanted = threads == 1 ? 1 : (threads * TASKS_A_THREAD + leaves - 1) / leaves;
    job->parts = lk__size_min(wanted, blocks);
    job->part = (blocks + job->parts - 1) / job->parts * V;
    job->parts = (blocks * V + job->part - 1) / job->part;
    size_t width = lk__conv_box(conv, job->y, 0, 1).w * lk__size_round_up(job->part, V);
    job->sum = lk__conv_sum_rows(conv, job->y, 1, 1);
    job->band = lk__box_band_rows(job->sum.rows, width * conv->h.stride, BAND_FLOATS, 1);
    job->box_floats = lk__size_round_up(lk__conv_box(conv, job->y, 0, job->band).h * width, LK_ALIGN);
    job->thread_floats = job->box_floats + lk__size_round_up(2 * (taps + 1) * job->part, LK_ALIGN);
    job->row = lk__size_round_up((taps + 1) * job->x.c, LK_ALIGN);
    return threads * job->thread_floats;
}

/* The largest scratch over all numbers of leaves: fewer leaves give more and smaller parts, but rounding of
 * bands can make a smaller number need more. */
size_t lk__depthwise_weight_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads)
{
    leaf_job job = {.conv = conv, .x = x, .y = y};
    size_t most = 0;
    for (size_t leaves = 1; leaves <= MAX_LEAVES; leaves++)
        most = lk__size_max(most, lay_out(&job, leaves, threads));
    return (STACK + MAX_LEAVES) * job.row + most;
}

/* Adds the band to a block of ny by nx taps. The sums of neighbouring taps are `lanes` floats apart, rows of
 * taps sum_y floats. */
LK_INLINE void add_taps(const lane_band *band, size_t n, float *sums, size_t sum_y, size_t lanes, int ny, int nx)
{
    v_f32 acc[SIDE][SIDE];
    LK_UNROLL for (int i = 0; i < ny * nx; i++) acc[i / nx][i % nx] =
        v_load(sums + (size_t)(i / nx) * sum_y + (size_t)(i % nx) * lanes);
    for (size_t y = 0; y < band->ny; y++) {
        const float *x = band->x + y * band->x_y, *dy = band->dy + y * band->dy_y;
        for (size_t left = band->nx; left > 0; left--, x += band->x_x, dy += band->dy_x) {
            v_f32 d = v_load_some(dy, n);
            LK_UNROLL for (int i = 0; i < ny * nx; i++)
            {
                const float *at = x + (size_t)(i / nx) * band->row + (size_t)(i % nx) * band->column;
                acc[i / nx][i % nx] = v_fma(v_load(at), d, acc[i / nx][i % nx]);
            }
        }
    }
    LK_UNROLL for (int i = 0; i < ny * nx; i++)
        v_store(sums + (size_t)(i / nx) * sum_y + (size_t)(i % nx) * lanes, acc[i / nx][i % nx]);
}

/* Adds the band to all taps of n channels. */
static void add_lanes(const leaf_job *job, lane_band band, size_t n, float *sums)
{
    size_t kh = job->conv->h.kernel, kw = job->conv->w.kernel, lanes = job->part, sum_y = kw * lanes;
    const float *x = band.x;
    for (size_t ky = 0; ky < kh; ky += kh - ky < SIDE ? 1 : SIDE) {
        for (size_t kx = 0; kx < kw; kx += kw - kx < SIDE ? 1 : SIDE) {
            float *to = sums + ky * sum_y + kx * lanes;
            bool tall = kh - ky >= SIDE, broad = kw - kx >= SIDE;
            band.x = x + ky * band.row + kx * band.column;
            if (tall && broad)
                add_taps(&band, n, to, sum_y, lanes, SIDE, SIDE);
            else if (tall)
                add_taps(&band, n, to, sum_y, lanes, SIDE, 1);
            else if (broad)
                add_taps(&band, n, to, sum_y, lanes, 1, SIDE);
            else
                add_taps(&band, n, to, sum_y, lanes, 1, 1);
        }
    }
}

static void add_bias(const lane_band *band, size_t n, float *sums)
{
    v_f32 sum = v_load(sums);
    for (size_t y = 0; y < band->ny; y++) {
        for (size_t x = 0; x < band->nx; x++)
            sum = v_add(sum, v_load_some(band->dy + y * band->dy_y + x * band->dy_x, n));
    }
    v_store(sums, sum);
}

/* Brings dy of the band to the second-level cache in the order of memory, which hardware continues; its channels are
 * then read vector by vector. */
static void fetch(const lane_band *band, const float *dy, size_t channels)
{
    for (size_t y = 0; y < band->ny; y++)
        for (size_t x = 0; x < band->nx; x++)
            for (size_t c = 0; c < channels; c += LK_ALIGN / sizeof *dy)
                __builtin_prefetch(dy + y * band->dy_y + x * band->dy_x + c, 0, 2);
}

/* Output pixels of a sample. */
typedef struct pixels {
    size_t sample, y0, y1, x0, x1;
} pixels;

/* Adds a band to the sums of a part of the channels. */
static void add_band(const leaf_job *job, pixels p, size_t first, float *buffer)
{
    const lk_conv2d_desc *conv = job->conv;
    size_t c = job->x.c, channels = lk__size_min(job->part, c - first), lanes = lk__size_round_up(channels, V);
    lk_box box = lk__conv_box(conv, job->y, p.y0, p.y1);
    box.first = first;
    box.channels = channels;
    lk_box_window view = lk__box_view(job->input + p.sample * lk__shape_sample(job->x), job->x, box, V, buffer);
    lane_band band = {.x_y = conv->h.stride * view.row, .x_x = conv->w.stride * lanes};
    band.row = conv->h.dilation * view.row;
    band.column = conv->w.dilation * lanes;
    band.dy_y = job->y.w * c;
    band.dy_x = c;
    band.ny = p.y1 - p.y0;
    band.nx = p.x1 - p.x0;
    const float *dy = job->dy + p.sample * lk__shape_sample(job->y) + p.y0 * band.dy_y + p.x0 * band.dy_x + first;
    float *sums = buffer + job->box_floats, *bias = sums + lk__conv2d_desc_taps(conv) * job->part;
    fetch(&band, dy, channels);
    for (size_t lane = 0; lane < channels; lane += V) {
        size_t n = lk__size_min(V, channels - lane);
        band.x = view.data + p.x0 * band.x_x + lane;
        band.dy = dy + lane;
        add_lanes(job, band, n, sums + lane);
        if (job->bias)
            add_bias(&band, n, bias + lane);
    }
}

/* Ends a block: adds its sums to those of the blocks before it. The next block begins at 0. */
static void end_block(const leaf_job *job, float *block)
{
    size_t floats = (lk__conv2d_desc_taps(job->conv) + 1) * job->part;
    for (size_t i = 0; i < floats; i += V) {
        v_store(block + floats + i, v_add(v_load(block + floats + i), v_load(block + i)));
        v_store(block + i, v_zero());
    }
}

/* Adds a sample; last: the last one of its block. */
static void add_sample(const leaf_job *job, size_t sample, bool last, size_t first, float *buffer)
{
    size_t h = job->y.h, w = job->y.w;
    for (size_t y0 = 0, y1; y0 < h; y0 = y1) {
        size_t end = lk__size_min(y0 - y0 % job->sum.rows + job->sum.rows, h);
        y1 = lk__size_min(y0 + job->band, end);
        for (size_t x = 0; x < w; x += LK_SUM_BLOCK) {
            add_band(job, (pixels){sample, y0, y1, x, lk__size_min(x + LK_SUM_BLOCK, w)}, first, buffer);
            if (y1 == end && (last || y1 < h || x + LK_SUM_BLOCK < w))
                end_block(job, buffer + job->box_floats);
        }
    }
}

static void leaf_task(void *arg, size_t index, int thread)
{
    const leaf_job *job = arg;
    size_t leaf = index / job->parts, first = index % job->parts * job->part;
    size_t taps = lk__conv2d_desc_taps(job->conv), channels = lk__size_min(job->part, job->x.c - first);
    float *buffer = job->scratch + (size_t)thread * job->thread_floats, *block = buffer + job->box_floats;
    float *sums = block + (taps + 1) * job->part;
    memset(block, 0, 2 * (taps + 1) * job->part * sizeof *sums);
    for (size_t sample = job->begin[leaf]; sample < job->begin[leaf + 1]; sample++) {
        bool last = (sample + 1 - job->begin[leaf]) % job->sum.samples == 0 || sample + 1 == job->begin[leaf + 1];
        add_sample(job, sample, last, first, buffer);
    }
    float *dw = job->leaves + leaf * job->row + first * taps, *db = job->leaves + leaf * job->row + job->x.c * taps;
    for (size_t tap = 0; tap < taps; tap++) {
        for (size_t c = 0; c < channels; c++)
            dw[c * taps + tap] = sums[tap * job->part + c];
    }
    memcpy(db + first, sums + taps * job->part, channels * sizeof *db);
}

/* Copies partial sums [first, last) from their slots to the stack, or back. */
static void move(const leaf_job *job, int first, int last, lk_partials dw, lk_partials db, bool back)
{
    size_t width = job->x.c * lk__conv2d_desc_taps(job->conv);
    for (int i = first; i < last; i++) {
        float *weight = job->stack + (size_t)i * job->row, *bias = weight + width;
        memcpy(back ? lk__partials_slot(dw, i) : weight, back ? weight : lk__partials_slot(dw, i),
               width * sizeof *weight);
        if (job->bias)
            memcpy(back ? lk__partials_slot(db, i) : bias, back ? bias : lk__partials_slot(db, i),
                   job->x.c * sizeof *bias);
    }
}

void lk__depthwise_grad_weight(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *x, const lk_tensor *dy,
                               const lk_shards *shards, lk_partials dw, lk_partials db, void *scratch)
{
    lk_pool *pool = lk__cpu_pool(dev);
    leaf_job job = {.conv = conv, .x = x->shape, .y = dy->shape, .bias = db.slot0 != NULL, .stack = scratch};
    lk_fold_range fold = lk__fold_range_of(shards);
    lk_shards some = *shards;
    size_t width = (lk__conv2d_desc_taps(conv) + 1) * job.x.c;
    job.input = lk__tensor_f32(x);
    job.dy = lk__tensor_f32(dy);
    lay_out(&job, 1, (size_t)lk__pool_threads(pool));
    job.leaves = job.stack + STACK * job.row;
    job.scratch = job.leaves + MAX_LEAVES * job.row;
    move(&job, fold.low, shards->depth, dw, db, false);
    for (int s = 0; s < shards->count; s += some.count) {
        some.count = shards->count - s < MAX_LEAVES ? shards->count - s : MAX_LEAVES;
        some.begin = shards->begin + s;
        some.merges = shards->merges + s;
        job.begin = some.begin;
        lay_out(&job, (size_t)some.count, (size_t)lk__pool_threads(pool));
        lk__pool_run(pool, (size_t)some.count * job.parts, leaf_task, &job);
        LK_KERNEL(rows_fold)(dev, width, job.leaves, job.row, &some, (lk_partials){job.stack, job.row});
        for (int i = 0; i < some.count; i++)
            some.depth += 1 - some.merges[i];
    }
    move(&job, fold.low, fold.end, dw, db, true);
}
