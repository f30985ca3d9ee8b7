/* conv2d_depthwise.c - the convolution where each channel has its own kernel, and its input gradient.
 *
 * Lanes are channels, and a few neighbouring pixels of a row share the loads of a tap. A sum runs over the taps
 * inside the image, row by row. The input gradient is the same sum over dy with the taps of a phase in reverse
 * (see conv2d_grad_input.c), so both passes use the same code for rows. */
#include "tensor/cpu/conv2d.h"
#include "tensor/cpu/conv2d_depthwise_3x3.h"
#include "tensor/cpu/decls.h"

enum { TILE = 4, BAND_FLOATS = 64 * 1024, TASKS_A_THREAD = 4 };

typedef struct lane_job {
    const lk_conv2d_desc *conv;
    lk_shape src, dst;
    const float *input; // (n, h, w, c) of src
    const float *mask;  // (n, h, w, c) of dst, or NULL
    float *output;      // (n, h, w, c) of dst
    bool relu;
    size_t band;  /* rows of dst, counted over all samples, of one task */
    size_t lanes; /* c rounded up to V */
    float *start; // (lanes)
    float *taps;  // (kh * kw, lanes): in order, or phase by phase in reverse
} lane_job;

/* Output pixels of one row, and the taps that they read. */
typedef struct lane_row {
    const float *image; // (h, w, c)
    ptrdiff_t y, x;     /* image coordinates of the first pixel's first tap */
    size_t step;        /* columns of the image from one pixel to the next */
    size_t taps_y, taps_x;
    size_t gap_y, gap_x; /* rows and columns of the image from one tap to the next */
    const float *taps;   // (taps_y, taps_x, lanes)
    size_t first;        /* element of output where the first pixel begins */
    size_t count, pitch;
} lane_row;

/* The part of `count` positions from `at` on, `gap` apart, that lies in [0, size). */
typedef struct span {
    size_t begin, end;
} span;

static span clip(ptrdiff_t at, size_t count, size_t gap, size_t size)
{
    ptrdiff_t end = (ptrdiff_t)count, low = at < 0 ? -at : 0, high = (ptrdiff_t)size - at;
    if (gap > 1) {
        low = (low + (ptrdiff_t)gap - 1) / (ptrdiff_t)gap;
        high = high > 0 ? (high + (ptrdiff_t)gap - 1) / (ptrdiff_t)gap : 0;
    }
    low = low < end ? low : end;
    high = high < end ? high : end;
    return (span){(size_t)low, (size_t)(high > low ? high : low)};
}

/* The pixels of the row for which all columns of taps lie inside the image. */
static span inner(const lane_row *row, size_t width)
{
    ptrdiff_t step = (ptrdiff_t)row->step, last = ((ptrdiff_t)row->taps_x - 1) * (ptrdiff_t)row->gap_x;
    ptrdiff_t room = (ptrdiff_t)width - 1 - last - row->x;
    size_t begin = row->x < 0 ? (size_t)((step - 1 - row->x) / step) : 0;
    size_t end = room < 0 ? 0 : lk__size_min((size_t)(room / step) + 1, row->count);
    return (span){begin, end};
}

/* Neighbouring pixels of a row that all read the same taps. */
typedef struct run_at {
    const float *src, *taps;     /* of the first pixel's first tap */
    size_t ny, nx;               /* numbers of taps */
    size_t src_y, src_x, taps_y; /* floats from one tap to the next */
    size_t src_step, out_step;   /* floats from one pixel to the next */
    size_t out;                  /* offset of the first pixel in output */
} run_at;

/* Adds one row of `nx` taps for pixels that are `step` columns apart. All three numbers are compile-time
 * constants, so a column is loaded once for all pixels that read it. */
LK_INLINE void sum_columns(const run_at *at, const float *src, const float *taps, size_t lanes, size_t n, v_f32 *acc,
                           int nx, int step, int pixels)
{
    v_f32 column[2 * TILE + 1];
    LK_UNROLL for (int i = 0; i < (pixels - 1) * step + nx; i++) column[i] =
        v_load_some(src + (size_t)i * at->src_x, n);
    LK_UNROLL for (int kx = 0; kx < nx; kx++)
    {
        v_f32 tap = v_load(taps + (size_t)kx * lanes);
        LK_UNROLL for (int i = 0; i < pixels; i++) acc[i] = v_fma(column[i * step + kx], tap, acc[i]);
    }
}

/* n channels from channel c on of `pixels` neighbouring pixels. nx 0: the number of taps is known at run time
 * only. */
LK_INLINE void tile(const lane_job *job, const run_at *at, size_t c, size_t n, int nx, int step, int pixels)
{
    v_f32 acc[TILE];
    const float *src = at->src + c, *taps = at->taps + c;
    LK_UNROLL for (int i = 0; i < pixels; i++) acc[i] = v_load(job->start + c);
    for (size_t ky = at->ny; ky > 0; ky--, src += at->src_y, taps += at->taps_y) {
        if (nx > 0)
            sum_columns(at, src, taps, job->lanes, n, acc, nx, step, pixels);
        for (size_t kx = 0; nx == 0 && kx < at->nx; kx++) {
            v_f32 tap = v_load(taps + kx * job->lanes);
            LK_UNROLL for (int i = 0; i < pixels; i++) acc[i] =
                v_fma(v_load_some(src + kx * at->src_x + (size_t)i * at->src_step, n), tap, acc[i]);
        }
    }
    LK_UNROLL for (int i = 0; i < pixels; i++)
    {
        size_t offset = at->out + (size_t)i * at->out_step + c;
        if (job->relu)
            acc[i] = v_relu(acc[i]);
        if (job->mask)
            acc[i] = v_relu_grad(v_load_some(job->mask + offset, n), acc[i]);
        v_store_some(job->output + offset, acc[i], n);
    }
}

/* As many whole tiles as fit; advances `at` past them. */
LK_INLINE void tiles(const lane_job *job, run_at *at, size_t count, int nx, int step, int pixels)
{
    for (; count > 0; count--) {
        size_t channels = job->dst.c, c = 0;
        for (; c + V <= channels; c += V)
            tile(job, at, c, V, nx, step, pixels);
        if (c < channels)
            tile(job, at, c, channels - c, nx, step, pixels);
        at->src += (size_t)pixels * at->src_step;
        at->out += (size_t)pixels * at->out_step;
    }
}

static void run_pixels(const lane_job *job, run_at *at, size_t count)
{
    /* Neighbouring pixels are `step` taps apart; 0: not a whole number of taps, so they share no columns. */
    size_t whole = count / TILE, step = at->src_step % at->src_x ? 0 : at->src_step / at->src_x;
    if (at->nx == 3 && step == 1)
        tiles(job, at, whole, 3, 1, TILE);
    else if (at->nx == 3 && step == 2)
        tiles(job, at, whole, 3, 2, TILE);
    else if (at->nx == 2 && step == 1)
        tiles(job, at, whole, 2, 1, TILE);
    else if (at->nx == 1 && step == 1)
        tiles(job, at, whole, 1, 1, TILE);
    else
        tiles(job, at, whole, 0, 0, TILE);
    tiles(job, at, count % TILE, 0, 0, 1);
}

/* `count` pixels of the row from pixel `index` on, which all read the same columns of taps. */
static void do_run(const lane_job *job, const lane_row *row, span ky, size_t index, size_t count)
{
    size_t c = job->src.c, line = job->src.w * c;
    ptrdiff_t x = row->x + (ptrdiff_t)(index * row->step);
    span kx = clip(x, row->taps_x, row->gap_x, job->src.w);
    run_at at = {.src = row->image, .src_y = row->gap_y * line, .src_x = row->gap_x * c, .src_step = row->step * c};
    at.out_step = row->pitch;
    at.taps_y = row->taps_x * job->lanes;
    at.taps = row->taps + ky.begin * at.taps_y + kx.begin * job->lanes;
    at.out = row->first + index * row->pitch;
    if (ky.end > ky.begin && kx.end > kx.begin) {
        at.ny = ky.end - ky.begin;
        at.nx = kx.end - kx.begin;
        at.src += (size_t)(row->y + (ptrdiff_t)(ky.begin * row->gap_y)) * line;
        at.src += (size_t)(x + (ptrdiff_t)(kx.begin * row->gap_x)) * c;
    }
    run_pixels(job, &at, count);
}

static void do_row(const lane_job *job, const lane_row *row)
{
    span ky = clip(row->y, row->taps_y, row->gap_y, job->src.h), inside = inner(row, job->src.w);
    for (size_t i = 0; i < row->count;) {
        size_t count = i >= inside.begin && i < inside.end ? inside.end - i : 1;
        do_run(job, row, ky, i, count);
        i += count;
    }
}

/* Rows are counted over all samples. */
static void forward_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const lane_job *job = arg;
    const lk_conv2d_desc *conv = job->conv;
    size_t end = lk__size_min((index + 1) * job->band, job->dst.n * job->dst.h), width = job->dst.w * job->dst.c;
    lane_row row = {.x = -(ptrdiff_t)conv->w.pad, .step = conv->w.stride, .taps = job->taps, .pitch = job->dst.c};
    row.taps_y = conv->h.kernel;
    row.taps_x = conv->w.kernel;
    row.gap_y = conv->h.dilation;
    row.gap_x = conv->w.dilation;
    row.count = job->dst.w;
    for (size_t at = index * job->band; at < end; at++) {
        row.image = job->input + at / job->dst.h * lk__shape_sample(job->src);
        row.y = (ptrdiff_t)(at % job->dst.h * conv->h.stride) - (ptrdiff_t)conv->h.pad;
        row.first = at * width;
        do_row(job, &row);
    }
}

/* Row y of one image of dx, phase by phase. */
static void input_row(const lane_job *job, lane_row row, size_t y)
{
    const lk_window *h = &job->conv->h, *w = &job->conv->w;
    size_t line = row.first;
    lk_taps taps_y = lk__taps_at(h, y);
    row.taps_y = taps_y.count;
    row.gap_y = taps_y.gap;
    row.y = (ptrdiff_t)((y + h->pad) / h->stride) - (ptrdiff_t)taps_y.back;
    for (size_t x = 0; x < lk__size_min(w->stride, job->dst.w); x++) {
        lk_taps taps_x = lk__taps_at(w, x);
        row.taps_x = taps_x.count;
        row.gap_x = taps_x.gap;
        row.x = (ptrdiff_t)((x + w->pad) / w->stride) - (ptrdiff_t)taps_x.back;
        row.taps = job->taps + lk__taps_before(job->conv, taps_y, taps_x) * job->lanes;
        row.first = line + x * job->dst.c;
        row.count = (job->dst.w - x + w->stride - 1) / w->stride;
        do_row(job, &row);
    }
}

static void input_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const lane_job *job = arg;
    size_t end = lk__size_min((index + 1) * job->band, job->dst.n * job->dst.h), width = job->dst.w * job->dst.c;
    lane_row row = {.step = 1, .pitch = job->conv->w.stride * job->dst.c};
    for (size_t at = index * job->band; at < end; at++) {
        row.image = job->input + at / job->dst.h * lk__shape_sample(job->src);
        row.first = at * width;
        input_row(job, row, at % job->dst.h);
    }
}

size_t lk__depthwise_floats(const lk_conv2d_desc *conv, lk_shape x)
{
    return (lk__conv2d_desc_taps(conv) + 1) * lk__size_round_up(x.c, V);
}

static void lay_out(lane_job *job, lk_device *dev, float *scratch)
{
    size_t rows = job->dst.n * job->dst.h, threads = (size_t)lk__pool_threads(lk__cpu_pool(dev));
    job->lanes = lk__size_round_up(job->src.c, V);
    job->band = lk__box_band_rows(rows, job->dst.w * job->dst.c, BAND_FLOATS, lk__cpu_tasks(threads, TASKS_A_THREAD));
    job->start = scratch;
    job->taps = scratch + job->lanes;
    memset(scratch, 0, lk__depthwise_floats(job->conv, job->src) * sizeof *scratch);
}

/* by_3x3: conv2d_depthwise_3x3.h computes the pass. */
static void run(lane_job *job, lk_device *dev, bool by_3x3, lk_pool_fn task)
{
    if (by_3x3) {
        lk_depthwise_pass pass = {.src = job->src,
                                  .dst = job->dst,
                                  .stride = job->conv->h.stride,
                                  .input = job->input,
                                  .taps = job->taps,
                                  .lanes = job->lanes,
                                  .start = job->start,
                                  .mask = job->mask,
                                  .output = job->output,
                                  .relu = job->relu};
        lk__depthwise_pass_run(lk__cpu_pool(dev), &pass);
        return;
    }
    size_t rows = job->dst.n * job->dst.h;
    lk__pool_run(lk__cpu_pool(dev), (rows + job->band - 1) / job->band, task, job);
}

/* Packs one tap of each channel into row `to` of job->taps. */
static void pack_tap(lane_job *job, const float *w, size_t tap, size_t to)
{
    size_t taps = lk__conv2d_desc_taps(job->conv);
    for (size_t c = 0; c < job->src.c; c++)
        job->taps[to * job->lanes + c] = w[c * taps + tap];
}

void lk__depthwise_forward(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *x, const void *w, const void *b,
                           bool relu, lk_tensor *y, void *scratch)
{
    if (x->shape.n == 0)
        return;
    lane_job job = {.conv = conv, .src = x->shape, .dst = y->shape, .relu = relu};
    job.input = lk__tensor_f32(x);
    job.output = lk__tensor_f32(y);
    lay_out(&job, dev, scratch);
    if (b)
        memcpy(job.start, b, job.dst.c * sizeof *job.start);
    for (size_t tap = 0; tap < lk__conv2d_desc_taps(conv); tap++)
        pack_tap(&job, w, tap, tap);
    run(&job, dev, lk__depthwise_pass_fits(conv, x->shape), forward_task);
}

void lk__depthwise_grad_input(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *dy, const void *w,
                              const lk_tensor *mask, lk_tensor *dx, void *scratch)
{
    if (dx->shape.n == 0)
        return;
    lane_job job = {.conv = conv, .src = dy->shape, .dst = dx->shape};
    job.input = lk__tensor_f32(dy);
    job.mask = mask ? lk__tensor_f32(mask) : NULL;
    job.output = lk__tensor_f32(dx);
    lay_out(&job, dev, scratch);
    for (size_t ky = 0; ky < conv->h.kernel; ky++) {
        for (size_t kx = 0; kx < conv->w.kernel; kx++) {
            lk_taps y = lk__taps_with(&conv->h, ky), x = lk__taps_with(&conv->w, kx);
            size_t at = lk__taps_before(conv, y, x) + lk__taps_place(y, ky) * x.count + lk__taps_place(x, kx);
            pack_tap(&job, w, ky * conv->w.kernel + kx, at);
        }
    }
    run(&job, dev, lk__depthwise_pass_fits(conv, dx->shape) && conv->h.stride == 1, input_task);
}
