/* conv2d_grad_input.c - the gradient of the convolution's input.
 *
 * dx is a correlation of zero-padded dy with the flipped weights. With stride s, the input pixels whose padded
 * coordinates are equal modulo s form a phase: the same taps read them, and the elements of dy under these taps
 * are neighbours. So each phase is a matrix product as in the forward pass; its sums run over dy's rows,
 * columns and channels in rising order. Groups of channels are treated as in conv2d_forward.c. */
#include "tensor/cpu/conv2d.h"
#include "tensor/cpu/decls.h"
#include "tensor/cpu/pack.h"

enum { BAND_FLOATS = 64 * 1024, TASKS_A_THREAD = 4, PACK_CHANNELS = 8 };

typedef struct input_job {
    const lk_conv2d_desc *conv;
    lk_shape x, y;
    size_t in, out;      /* channels of a group */
    const float *dy;     // (n, h, w, groups, out)
    const float *weight; // (groups, out, in, kh, kw)
    const float *mask;   // (n, h, w, groups, in) or NULL
    float *dx;           // (n, h, w, groups, in)
    size_t band, bands;
    float *start;        // zeros
    float *panels;       // for each group, phase by phase
    size_t panel_floats; /* of one group */
    float *buffers;      // one for each thread
    size_t buffer_floats;
} input_job;

/* The box of dy that reads input rows [y0, y1): all columns; channels are not set. */
static lk_box input_box(const lk_conv2d_desc *conv, lk_shape x, size_t y0, size_t y1)
{
    size_t s = conv->stride, p = conv->pad, reach = lk__taps_of(conv, 0) - 1;
    size_t top = (y0 + p) / s, bottom = (y1 - 1 + p) / s, left = p / s, right = (x.w - 1 + p) / s;
    return (lk_box){.y = (ptrdiff_t)top - (ptrdiff_t)reach,
                    .x = (ptrdiff_t)left - (ptrdiff_t)reach,
                    .h = bottom - top + 1 + reach,
                    .w = right - left + 1 + reach};
}

static size_t lay_out(input_job *job, size_t wanted, size_t threads)
{
    const lk_conv2d_desc *conv = job->conv;
    job->in = job->x.c / conv->groups;
    job->out = job->y.c / conv->groups;
    size_t width = input_box(conv, job->x, 0, 1).w * job->out, cols = lk__panel_count(job->in) * LK_NR;
    job->panel_floats = cols * conv->kernel * conv->kernel * job->out;
    /* Bands consist of whole strides, so every band starts with the same phase. */
    size_t steps = (job->x.h + conv->stride - 1) / conv->stride;
    job->band = lk__box_band_rows(steps, width, BAND_FLOATS, wanted) * conv->stride;
    job->bands = (job->x.h + job->band - 1) / job->band;
    size_t height = job->band / conv->stride + 1 + lk__taps_of(conv, 0);
    job->buffer_floats = lk__size_round_up(height * width, LK_ALIGN);
    return lk__size_round_up(cols, LK_ALIGN) + lk__size_round_up(job->panel_floats * conv->groups, LK_ALIGN) +
           threads * job->buffer_floats;
}

size_t lk__conv_input_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads)
{
    input_job job = {.conv = conv, .x = x, .y = y};
    return lay_out(&job, 1, threads);
}

/* Packs output channel `channel` of tap (ky, kx) into its row of each panel of its group and phase. */
static void pack_tap(const input_job *job, size_t channel, size_t ky, size_t kx)
{
    const lk_conv2d_desc *conv = job->conv;
    size_t s = conv->stride, taps = conv->kernel * conv->kernel, in = job->in, out = job->out;
    size_t group = channel / out, o = channel % out;
    size_t ny = lk__taps_of(conv, ky % s), nx = lk__taps_of(conv, kx % s), len = ny * nx * out;
    size_t row = ((ny - 1 - ky / s) * nx + (nx - 1 - kx / s)) * out + o;
    float *phase = job->panels + group * job->panel_floats;
    phase += lk__taps_before(conv, ky % s, kx % s) * out * lk__panel_count(in) * LK_NR;
    const float *src = job->weight + channel * in * taps + ky * conv->kernel + kx;
    for (size_t panel = 0; panel < lk__panel_count(in); panel++) {
        size_t width = lk__panel_width(in, panel), col = panel * LK_NR, cols = lk__size_min(in - col, width);
        float *dst = phase + col * len + row * width;
        for (size_t j = 0; j < cols; j++)
            dst[j] = src[(col + j) * taps];
        for (size_t j = cols; j < width; j++)
            dst[j] = 0.0f;
    }
}

static void pack_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const input_job *job = arg;
    size_t end = lk__size_min((index + 1) * PACK_CHANNELS, job->y.c);
    for (size_t o = index * PACK_CHANNELS; o < end; o++) {
        for (size_t ky = 0; ky < job->conv->kernel; ky++) {
            for (size_t kx = 0; kx < job->conv->kernel; kx++)
                pack_tap(job, o, ky, kx);
        }
    }
}

static void zero_phase(const lk_gemm *gemm)
{
    for (size_t y = 0; y < gemm->ny; y++) {
        for (size_t x = 0; x < gemm->nx; x++)
            memset(gemm->c + y * gemm->c_y + x * gemm->c_x, 0, gemm->cols * sizeof *gemm->c);
    }
}

/* The first coordinate at or after `from` whose padded value is r modulo the stride. */
static size_t first_of(const lk_conv2d_desc *conv, size_t from, size_t r)
{
    return from + (r + conv->stride - (from + conv->pad) % conv->stride) % conv->stride;
}

/* Computes the input pixels of rows [y0, y1) in phase (ry, rx) of the image that begins at element `image` of
 * dx. */
static void phase(const input_job *job, lk_box_window view, lk_box box, size_t y0, size_t y1, size_t ry, size_t rx,
                  size_t image)
{
    const lk_conv2d_desc *conv = job->conv;
    size_t s = conv->stride, p = conv->pad, in = job->in, out = job->out, group = box.first / out;
    size_t y = first_of(conv, y0, ry), x = first_of(conv, 0, rx);
    size_t taps_y = lk__taps_of(conv, ry), taps_x = lk__taps_of(conv, rx);
    if (y >= y1 || x >= job->x.w)
        return;
    size_t first = image + (y * job->x.w + x) * job->x.c + group * in;
    lk_gemm gemm = {
        .ny = (y1 - y + s - 1) / s,
        .nx = (job->x.w - x + s - 1) / s,
        .a_y = view.row,
        .a_x = out,
        .runs = taps_y,
        .len = taps_x * out,
        .run = view.row,
        .panels =
            job->panels + group * job->panel_floats + lk__taps_before(conv, ry, rx) * out * lk__panel_count(in) * LK_NR,
        .start = job->start,
        .mask = job->mask ? job->mask + first : NULL,
        .c = job->dx + first,
        .c_y = s * job->x.w * job->x.c,
        .c_x = s * job->x.c,
        .cols = in,
    };
    if (taps_y == 0 || taps_x == 0) {
        zero_phase(&gemm);
        return;
    }
    ptrdiff_t top = (ptrdiff_t)((y + p) / s + 1 - taps_y) - box.y, left = (ptrdiff_t)((x + p) / s + 1 - taps_x) - box.x;
    gemm.a = view.data + (size_t)top * view.row + (size_t)left * out;
    lk__gemm(&gemm);
}

static void input_task(void *arg, size_t index, int thread)
{
    const input_job *job = arg;
    size_t group = index % job->conv->groups, band = index / job->conv->groups;
    size_t sample = band / job->bands, y0 = band % job->bands * job->band;
    size_t y1 = lk__size_min(y0 + job->band, job->x.h);
    lk_box box = lk__box_group(input_box(job->conv, job->x, y0, y1), group, job->out);
    lk_box_window view = lk__box_view(job->dy + sample * lk__shape_sample(job->y), job->y, box, 1,
                                      job->buffers + (size_t)thread * job->buffer_floats);
    for (size_t ry = 0; ry < job->conv->stride; ry++) {
        for (size_t rx = 0; rx < job->conv->stride; rx++)
            phase(job, view, box, y0, y1, ry, rx, sample * lk__shape_sample(job->x));
    }
}

void LK_KERNEL(conv2d_grad_input)(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *dy, const void *w,
                                  const lk_tensor *mask, lk_tensor *dx, void *scratch)
{
    if (lk__depthwise_fits(conv, dx->shape, dy->shape)) {
        lk__depthwise_grad_input(dev, conv, dy, w, mask, dx, scratch);
        return;
    }
    lk_pool *pool = lk__cpu_pool(dev);
    size_t threads = (size_t)lk__pool_threads(pool), n = dx->shape.n;
    input_job job = {.conv = conv, .x = dx->shape, .y = dy->shape, .weight = w};
    job.dy = lk__tensor_f32(dy);
    job.mask = mask ? lk__tensor_f32(mask) : NULL;
    job.dx = lk__tensor_f32(dx);
    if (n == 0)
        return;
    size_t images = n * conv->groups;
    lay_out(&job, threads == 1 ? 1 : (threads * TASKS_A_THREAD + images - 1) / images, threads);
    size_t cols = lk__panel_count(job.in) * LK_NR;
    job.start = scratch;
    job.panels = job.start + lk__size_round_up(cols, LK_ALIGN);
    job.buffers = job.panels + lk__size_round_up(job.panel_floats * conv->groups, LK_ALIGN);
    memset(job.start, 0, cols * sizeof *job.start);
    lk__pool_run(pool, (job.y.c + PACK_CHANNELS - 1) / PACK_CHANNELS, pack_task, &job);
    lk__pool_run(pool, images * job.bands, input_task, &job);
}
