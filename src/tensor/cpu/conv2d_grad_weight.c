/* conv2d_grad_weight.c - dw and db, summed over samples and pixels and folded
 * over shards.
 *
 * dw is a matrix of (kh, kw, i) rows by o columns; each pixel of dy adds the
 * outer product of its window of x and its channels. It is cut into units of
 * LK_MR rows by LK_NR columns, and db is one more row of windows that are all 1.
 * A task owns a chunk of units, small enough that its partial sums stay in
 * cache, and goes through the samples band by band, the chains carried in
 * memory. Slots have PyTorch's order: units are turned when they move. */
#include "tensor/cpu/conv2d.h"
#include "tensor/cpu/decls.h"
#include "tensor/cpu/fold.h"
#include "tensor/cpu/gemm.h"

enum { UNIT = LK_MR * LK_NR, CHUNK_UNITS = 24 * 1024 / UNIT, BAND_FLOATS = 64 * 1024 };

typedef struct weight_job {
    const lk_conv2d_desc *conv;
    lk_shape x, y;
    const float *input; // (n, h, w, i)
    const float *dy;    // (n, h, w, o)
    const lk_shards *shards;
    lk_partials dw; // (o, i, kh, kw)
    lk_partials db; // (o)
    lk_fold fold;
    size_t rows;  /* of the matrix, without db */
    size_t units; /* of a panel of columns */
    size_t chunk, chunks;
    size_t band;
    size_t box_floats, dy_floats, thread_floats;
    float *scratch;
} weight_job;

/* What a thread works on: a chunk and one band of one sample. */
typedef struct band_view {
    lk_view x, dy;
    size_t rows;
} band_view;

static size_t place(weight_job *job, bool bias, size_t threads)
{
    const lk_conv2d_desc *conv = job->conv;
    size_t width = ((job->y.w - 1) * conv->stride + conv->kernel) * job->x.c;
    size_t dy_row = job->y.w * lk__round_up(job->y.c, V);
    job->rows = conv->kernel * conv->kernel * job->x.c;
    job->units = (job->rows + LK_MR - 1) / LK_MR + bias;
    size_t total = job->units * lk__panels(job->y.c);
    job->chunk = lk__min_size((total + threads - 1) / threads, CHUNK_UNITS);
    job->chunks = (total + job->chunk - 1) / job->chunk;
    job->band = lk__band_rows(job->y.h, width * conv->stride + dy_row, BAND_FLOATS, 1);
    lk_box box = lk__conv_box(conv, job->y, 0, job->band);
    job->box_floats = conv->pad ? lk__round_up(box.h * width, LK_ALIGN) : 0;
    job->dy_floats = job->y.c % V ? lk__round_up(job->band * dy_row, LK_ALIGN) : 0;
    job->thread_floats = (size_t)LK_TREE_MAX_DEPTH * job->chunk * UNIT + job->box_floats + job->dy_floats;
    job->thread_floats = lk__round_up(job->thread_floats, LK_ALIGN);
    return threads * job->thread_floats;
}

size_t lk__conv_weight_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads)
{
    weight_job job = {.conv = conv, .x = x, .y = y};
    return place(&job, true, threads);
}

/* Moves a unit between an entry of the chunk and its slot. */
static void move_unit(const weight_job *job, size_t unit, int entry, bool store, float *tile)
{
    size_t col = unit / job->units * LK_NR, row = unit % job->units * LK_MR;
    size_t cols = lk__min_size(job->y.c - col, LK_NR), taps = job->conv->kernel * job->conv->kernel;
    bool bias = row >= job->rows;
    size_t rows = bias ? 1 : lk__min_size(job->rows - row, LK_MR), step = bias ? 1 : job->rows;
    float *slot = (bias ? lk__slot(job->db, entry) : lk__slot(job->dw, entry)) + col * step;
    for (size_t i = 0; i < rows; i++) {
        size_t at = bias ? 0 : (row + i) % job->x.c * taps + (row + i) / job->x.c;
        for (size_t j = 0; j < cols; j++) {
            if (store)
                slot[j * step + at] = tile[i * LK_NR + j];
            else
                tile[i * LK_NR + j] = slot[j * step + at];
        }
    }
}

static void sum_unit(const weight_job *job, const band_view *band, size_t unit, lk_outer *outer)
{
    static const float one = 1.0f;
    size_t panel = unit / job->units, row = unit % job->units * LK_MR;
    size_t run = job->conv->kernel * job->x.c;
    const float *a[LK_MR] = {&one};
    outer->width = lk__panel_width(job->y.c, panel);
    outer->b = band->dy.data + panel * LK_NR;
    if (row >= job->rows) {
        outer->a_y = outer->a_x = 0;
        lk__outer(outer, 1, a);
        return;
    }
    size_t rows = lk__min_size(job->rows - row, LK_MR);
    for (size_t i = 0; i < rows; i++)
        a[i] = band->x.data + (row + i) / run * band->x.row + (row + i) % run;
    outer->a_y = job->conv->stride * band->x.row;
    outer->a_x = job->conv->stride * job->x.c;
    lk__outer(outer, rows, a);
}

/* Adds a band to all units of the chunk [begin, end), whose top entry is top. */
static void sum_band(const weight_job *job, const band_view *band, size_t begin, size_t end, lk_outer *outer)
{
    float *top = outer->top;
    outer->ny = band->rows;
    outer->nx = job->y.w;
    outer->b_x = lk__round_up(job->y.c, V);
    outer->b_y = band->dy.row;
    for (size_t unit = begin; unit < end; unit++) {
        outer->top = top + (unit - begin) * UNIT;
        sum_unit(job, band, unit, outer);
    }
    outer->top = top;
}

/* The leaf of samples [first, last); merges are folded in with the last band. */
static void sum_shard(const weight_job *job, size_t first, size_t last, size_t begin, size_t end, int merges,
                      lk_outer *outer, float *buffer)
{
    outer->fresh = true;
    if (first == last) {
        outer->merges = merges;
        sum_band(job, &(band_view){.rows = 0}, begin, end, outer);
        return;
    }
    for (size_t sample = first; sample < last; sample++) {
        const float *image = job->input + sample * lk__shape_sample(job->x);
        const float *dy = job->dy + sample * lk__shape_sample(job->y);
        for (size_t y = 0; y < job->y.h; y += job->band) {
            band_view band = {.rows = lk__min_size(job->band, job->y.h - y)};
            lk_box box = lk__conv_box(job->conv, job->y, y, y + band.rows);
            band.x = lk__box_view(image, job->x, box, 1, buffer);
            box = (lk_box){(ptrdiff_t)y, 0, band.rows, job->y.w};
            band.dy = lk__box_view(dy, job->y, box, V, buffer + job->box_floats);
            outer->merges = sample + 1 == last && y + band.rows == job->y.h ? merges : 0;
            sum_band(job, &band, begin, end, outer);
            outer->fresh = false;
        }
    }
}

static void weight_task(void *arg, size_t index, int thread)
{
    const weight_job *job = arg;
    const lk_shards *shards = job->shards;
    size_t begin = index * job->chunk;
    size_t end = lk__min_size(begin + job->chunk, job->units * lk__panels(job->y.c));
    float *buffer = job->scratch + (size_t)thread * job->thread_floats;
    float *stack = buffer + job->box_floats + job->dy_floats;
    size_t entry = job->chunk * UNIT;
    int low = job->fold.low;
    for (int e = low; e < shards->depth; e++) {
        for (size_t unit = begin; unit < end; unit++)
            move_unit(job, unit, e, false, stack + (size_t)(e - low) * entry + (unit - begin) * UNIT);
    }
    lk_outer outer = {.top = stack + (size_t)(shards->depth - low) * entry, .entry = entry};
    for (int s = 0; s < shards->count; s++) {
        sum_shard(job, shards->begin[s], shards->begin[s + 1], begin, end, shards->merges[s], &outer, buffer);
        outer.top += entry;
        outer.top -= (size_t)shards->merges[s] * entry;
    }
    for (int e = low; e < job->fold.end; e++) {
        for (size_t unit = begin; unit < end; unit++)
            move_unit(job, unit, e, true, stack + (size_t)(e - low) * entry + (unit - begin) * UNIT);
    }
}

void LK_KERNEL(conv2d_grad_weight)(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *x, const lk_tensor *dy,
                                   const lk_shards *shards, lk_partials dw, lk_partials db, void *scratch)
{
    lk_pool *pool = lk__cpu_pool(dev);
    weight_job job = {.conv = conv, .x = x->shape, .y = dy->shape, .shards = shards, .dw = dw, .db = db};
    job.input = lk__f32(x);
    job.dy = lk__f32(dy);
    job.fold = lk__fold(shards);
    job.scratch = scratch;
    place(&job, db.slot0 != NULL, (size_t)lk__pool_threads(pool));
    lk__pool_run(pool, job.chunks, weight_task, &job);
}
