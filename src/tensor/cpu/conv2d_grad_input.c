/* conv2d_grad_input.c - the gradient of the convolution's input.
 *
 * dx is a correlation of zero-padded dy with the flipped weights. Input pixels of a phase (lk_taps) have the same taps,
 * and the elements of dy under these taps are at fixed distances; without dilation they are neighbours. So each phase
 * is a matrix product as in the forward pass; its sums run over dy's rows, columns and channels in rising order. Groups
 * of channels are treated as in conv2d_forward.c. */
#include "tensor/cpu/bf16_layer.h"
#include "tensor/cpu/conv2d.h"
#include "tensor/cpu/conv2d_planar.h"
#include "tensor/cpu/conv2d_winograd.h"
#include "tensor/cpu/decls.h"
#include "tensor/cpu/pack.h"

enum { BAND_FLOATS = 256 * 1024, TASKS_A_THREAD = 4, PACK_CHANNELS = 8 };

typedef struct input_job {
    const lk_conv2d_desc *conv;
    lk_shape x, y;
    size_t in, out;      /* channels of a group */
    const float *dy;     // (n, h, w, groups, out)
    const float *weight; // (groups, out, in, kh, kw)
    const float *mask;   // (n, h, w, groups, in) or NULL
    float *dx;           // (n, h, w, groups, in)
    bool planar;         /* see conv2d_planar.h */
    size_t band, bands;
    float *start;        // zeros
    float *panels;       // for each group, phase by phase
    size_t panel_floats; /* of one group */
    uint32_t *offsets;   // of lk__planar_gemm, phase by phase
    float *buffers;      // one for each thread
    size_t buffer_floats, offset_floats;
} input_job;

typedef struct span {
    ptrdiff_t begin;
    size_t count;
} span;

/* The windows that read input coordinates [begin, end) along one axis; they may be outside of dy. */
static span windows_over(const lk_window *window, size_t begin, size_t end)
{
    size_t reach = (window->kernel - 1) * window->dilation / window->stride;
    size_t first = (begin + window->pad) / window->stride, last = (end - 1 + window->pad) / window->stride;
    return (span){.begin = (ptrdiff_t)first - (ptrdiff_t)reach, .count = last - first + 1 + reach};
}

/* The box of dy that reads input rows [y0, y1): all columns; channels are not set. */
static lk_box input_box(const lk_conv2d_desc *conv, lk_shape x, size_t y0, size_t y1)
{
    span rows = windows_over(&conv->h, y0, y1), columns = windows_over(&conv->w, 0, x.w);
    return (lk_box){.y = rows.begin, .x = columns.begin, .h = rows.count, .w = columns.count};
}

static size_t lay_out(input_job *job, size_t wanted, size_t threads)
{
    const lk_conv2d_desc *conv = job->conv;
    job->in = job->x.c / conv->groups;
    job->out = job->y.c / conv->groups;
    size_t width = input_box(conv, job->x, 0, 1).w * job->out, cols = lk__panel_count(job->in) * LK_NR;
    size_t terms = lk__conv2d_desc_taps(conv) * job->out;
    job->panel_floats = cols * terms;
    job->planar = lk__planar_fits(job->x.w / conv->w.stride, job->in);
    job->offset_floats = job->planar ? lk__size_round_up(terms, LK_ALIGN) : 0;
    /* Bands consist of whole strides. */
    size_t stride = conv->h.stride, steps = (job->x.h + stride - 1) / stride;
    job->band = lk__box_band_rows(steps, width, BAND_FLOATS, wanted) * stride;
    job->bands = (job->x.h + job->band - 1) / job->band;
    size_t height = job->band / stride + 1 + (lk__window_extent(&conv->h) - 1) / stride + 1;
    job->buffer_floats = lk__size_round_up(height * width + LK_PLANAR_SLACK, LK_ALIGN);
    return lk__size_round_up(cols, LK_ALIGN) + lk__size_round_up(job->panel_floats * conv->groups, LK_ALIGN) +
           job->offset_floats + threads * job->buffer_floats;
}

size_t lk__conv_input_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads)
{
    size_t tile = lk__winograd_tile(conv, y, x);
    if (tile > 1)
        return lk__winograd_floats(tile, y, x, threads);
    input_job job = {.conv = conv, .x = lk__conv_column(conv, x), .y = lk__conv_column(conv, y)};
    return lay_out(&job, 1, threads);
}

/* Packs one tap of one output channel, whose weights of the input channels begin at src: row `row` of each panel of a
 * phase, whose panels have `len` rows. */
static void pack_row(const input_job *job, const float *src, size_t row, size_t len, float *phase)
{
    size_t taps = lk__conv2d_desc_taps(job->conv), in = job->in;
    for (size_t panel = 0; panel < lk__panel_count(in); panel++) {
        size_t width = lk__panel_width(in, panel), col = panel * LK_NR, cols = lk__size_min(in - col, width);
        float *dst = phase + col * len + row * width;
        for (size_t j = 0; j < cols; j++)
            dst[j] = src[(col + j) * taps];
        for (size_t j = cols; j < width; j++)
            dst[j] = 0.0f;
    }
}

/* Packs tap (ky, kx) of output channels [begin, end) into the panels of their groups and of the tap's phase. */
static void pack_tap(const input_job *job, size_t ky, size_t kx, size_t begin, size_t end)
{
    const lk_conv2d_desc *conv = job->conv;
    size_t taps = lk__conv2d_desc_taps(conv), in = job->in, out = job->out;
    lk_taps y = lk__taps_with(&conv->h, ky), x = lk__taps_with(&conv->w, kx);
    size_t place = lk__taps_place(y, ky) * x.count + lk__taps_place(x, kx);
    float *phase = job->panels + lk__taps_before(conv, y, x) * out * lk__panel_count(in) * LK_NR;
    for (size_t channel = begin; channel < end; channel++) {
        const float *src = job->weight + channel * in * taps + ky * conv->w.kernel + kx;
        pack_row(job, src, place * out + channel % out, y.count * x.count * out,
                 phase + channel / out * job->panel_floats);
    }
}

static void pack_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const input_job *job = arg;
    size_t begin = index * PACK_CHANNELS, end = lk__size_min(begin + PACK_CHANNELS, job->y.c);
    for (size_t ky = 0; ky < job->conv->h.kernel; ky++) {
        for (size_t kx = 0; kx < job->conv->w.kernel; kx++)
            pack_tap(job, ky, kx, begin, end);
    }
}

static void zero_phase(const lk_gemm *gemm)
{
    for (size_t y = 0; y < gemm->ny; y++) {
        for (size_t x = 0; x < gemm->nx; x++)
            memset(gemm->c + y * gemm->c_y + x * gemm->c_x, 0, gemm->cols * sizeof *gemm->c);
    }
}

/* What the sums of a phase read of a view of dy, whose rows are `row` floats apart. */
static lk_gemm windows_of(const input_job *job, lk_taps y, lk_taps x, size_t row)
{
    lk_gemm gemm = {.a_y = row, .a_x = job->out, .runs_y = y.count, .run_y = y.gap * row};
    lk__gemm_set_taps(&gemm, x.count, x.gap, job->out);
    return gemm;
}

static void set_offsets(const input_job *job)
{
    const lk_window *h = &job->conv->h, *w = &job->conv->w;
    size_t width = input_box(job->conv, job->x, 0, 1).w;
    for (size_t y = 0; y < h->stride; y++) {
        for (size_t x = 0; x < w->stride; x++) {
            lk_taps taps_y = lk__taps_at(h, y), taps_x = lk__taps_at(w, x);
            lk_gemm gemm = windows_of(job, taps_y, taps_x, width * job->out);
            if (taps_y.count > 0 && taps_x.count > 0)
                lk__planar_offsets(&gemm, job->out, width,
                                   job->offsets + lk__taps_before(job->conv, taps_y, taps_x) * job->out);
        }
    }
}

/* Computes the phase of input pixel (y, x), which is its first pixel in the band: all its pixels before row y1 of the
 * image that begins at element `image` of dx. */
static void phase(const input_job *job, lk_box_window view, lk_box box, size_t y1, size_t y, size_t x, size_t image)
{
    const lk_window *h = &job->conv->h, *w = &job->conv->w;
    size_t in = job->in, out = job->out, group = box.first / out;
    size_t first = image + (y * job->x.w + x) * job->x.c + group * in;
    lk_taps taps_y = lk__taps_at(h, y), taps_x = lk__taps_at(w, x);
    size_t before = lk__taps_before(job->conv, taps_y, taps_x) * out;
    lk_gemm gemm = windows_of(job, taps_y, taps_x, view.row);
    gemm.ny = (y1 - y + h->stride - 1) / h->stride;
    gemm.nx = (job->x.w - x + w->stride - 1) / w->stride;
    gemm.panels = job->panels + group * job->panel_floats + before * lk__panel_count(in) * LK_NR;
    gemm.start = job->start;
    gemm.mask = job->mask ? job->mask + first : NULL;
    gemm.c = job->dx + first;
    gemm.c_y = h->stride * job->x.w * job->x.c;
    gemm.c_x = w->stride * job->x.c;
    gemm.cols = in;
    if (taps_y.count == 0 || taps_x.count == 0) {
        zero_phase(&gemm);
        return;
    }
    ptrdiff_t top = (ptrdiff_t)((y + h->pad) / h->stride) - (ptrdiff_t)taps_y.back - box.y;
    ptrdiff_t left = (ptrdiff_t)((x + w->pad) / w->stride) - (ptrdiff_t)taps_x.back - box.x;
    gemm.a = view.data + (size_t)top * view.row + (size_t)left * (job->planar ? 1 : out);
    if (job->planar)
        lk__planar_gemm(&gemm, job->offsets + before);
    else
        lk__gemm(&gemm);
}

static void input_task(void *arg, size_t index, int thread)
{
    const input_job *job = arg;
    size_t group = index % job->conv->groups, band = index / job->conv->groups;
    size_t sample = band / job->bands, y0 = band % job->bands * job->band;
    size_t y1 = lk__size_min(y0 + job->band, job->x.h);
    lk_box box = lk__box_group(input_box(job->conv, job->x, y0, y1), group, job->out);
    const float *image = job->dy + sample * lk__shape_sample(job->y);
    float *buffer = job->buffers + (size_t)thread * job->buffer_floats;
    lk_box_window view =
        job->planar ? lk__planar_box(image, job->y, box, buffer) : lk__box_view(image, job->y, box, 1, buffer);
    for (size_t y = y0; y < lk__size_min(y0 + job->conv->h.stride, y1); y++) {
        for (size_t x = 0; x < lk__size_min(job->conv->w.stride, job->x.w); x++)
            phase(job, view, box, y1, y, x, sample * lk__shape_sample(job->x));
    }
}

void LK_KERNEL(conv2d_grad_input)(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *dy, const void *w,
                                  const lk_tensor *mask, lk_tensor *dx, void *scratch)
{
    if (lk__depthwise_fits(conv, dx->shape, dy->shape)) {
        lk__depthwise_grad_input(dev, conv, dy, w, mask, dx, scratch);
        return;
    }
    if (lk__bf16_of(dev)) {
        lk__bf16_conv_grad_input(dev, conv, dy, w, mask, dx, scratch);
        return;
    }
    if (lk__winograd_tile(conv, dy->shape, dx->shape) > 1) {
        lk__winograd_grad_input(dev, conv, dy, w, mask, dx, scratch);
        return;
    }
    lk_pool *pool = lk__cpu_pool(dev);
    size_t threads = (size_t)lk__pool_threads(pool);
    input_job job = {.conv = conv, .weight = w};
    job.x = lk__conv_column(conv, dx->shape);
    job.y = lk__conv_column(conv, dy->shape);
    job.dy = lk__tensor_f32(dy);
    job.mask = mask ? lk__tensor_f32(mask) : NULL;
    job.dx = lk__tensor_f32(dx);
    if (dx->shape.n == 0)
        return;
    size_t images = job.x.n * conv->groups;
    lay_out(&job, lk__size_divide_up(lk__cpu_tasks(threads, TASKS_A_THREAD), images), threads);
    size_t cols = lk__panel_count(job.in) * LK_NR;
    job.start = scratch;
    job.panels = job.start + lk__size_round_up(cols, LK_ALIGN);
    job.offsets = (uint32_t *)(void *)(job.panels + lk__size_round_up(job.panel_floats * conv->groups, LK_ALIGN));
    job.buffers = (float *)(void *)job.offsets + job.offset_floats;
    memset(job.start, 0, cols * sizeof *job.start);
    if (job.planar)
        set_offsets(&job);
    lk__pool_run(pool, (job.y.c + PACK_CHANNELS - 1) / PACK_CHANNELS, pack_task, &job);
    lk__pool_run(pool, images * job.bands, input_task, &job);
}
