/* conv2d_forward.c - the convolution as a matrix product without an im2col copy.
 *
 * With channels last, a window is kh runs of kw*c consecutive floats of the padded image, so the matrix kernel reads
 * windows directly. If the taps of a row are dilated, each tap is a run of c floats. A sum runs over ky, kx, channel. A
 * task computes a band of output rows of one sample and one group of channels; if there are several groups, the group's
 * channels are copied first. */
#include "tensor/cpu/bf16_layer.h"
#include "tensor/cpu/conv2d.h"
#include "tensor/cpu/conv2d_planar.h"
#include "tensor/cpu/conv2d_winograd.h"
#include "tensor/cpu/decls.h"
#include "tensor/cpu/pack.h"

enum { BAND_FLOATS = 256 * 1024, TASKS_A_THREAD = 4 };

typedef struct forward_job {
    const lk_conv2d_desc *conv;
    lk_shape x, y;
    size_t in, out;      /* channels of a group */
    const float *input;  // (n, h, w, groups, in)
    const float *weight; // (groups, out, in, kh, kw)
    float *output;       // (n, h, w, groups, out)
    bool relu;
    bool planar; /* see conv2d_planar.h */
    size_t band, bands;
    size_t cols;       /* out rounded up to LK_NR */
    float *start;      // (groups, cols)
    float *panels;     // for each group, in the form of lk__panel_width; the sum runs over (kh, kw, in)
    uint32_t *offsets; // of lk__planar_gemm
    float *buffers;    // one for each thread
    size_t buffer_floats, offset_floats;
} forward_job;

static size_t window(const forward_job *job)
{
    return job->in * lk__conv2d_desc_taps(job->conv);
}

/* Sets the sizes in job for at least `wanted` bands of each sample; returns the floats of scratch. */
static size_t lay_out(forward_job *job, size_t wanted, size_t threads)
{
    const lk_conv2d_desc *conv = job->conv;
    job->in = job->x.c / conv->groups;
    job->out = job->y.c / conv->groups;
    job->cols = lk__panel_count(job->out) * LK_NR;
    job->planar = conv->w.stride == 1 && lk__planar_fits(job->y.w, job->out);
    size_t width = lk__conv_box(conv, job->y, 0, 1).w * job->in, cols = job->cols * conv->groups;
    job->band = lk__box_band_rows(job->y.h, width * conv->h.stride, BAND_FLOATS, wanted);
    job->bands = (job->y.h + job->band - 1) / job->band;
    lk_box box = lk__conv_box(conv, job->y, 0, job->band);
    bool copies = job->planar || lk__conv_pads(conv) || conv->groups > 1;
    job->buffer_floats = copies ? lk__size_round_up(box.h * width + LK_PLANAR_SLACK, LK_ALIGN) : 0;
    job->offset_floats = job->planar ? lk__size_round_up(window(job), LK_ALIGN) : 0;
    return lk__size_round_up(cols, LK_ALIGN) + lk__size_round_up(cols * window(job), LK_ALIGN) + job->offset_floats +
           threads * job->buffer_floats;
}

size_t lk__conv_forward_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads)
{
    size_t tile = lk__winograd_tile(conv, x, y);
    if (tile > 1)
        return lk__winograd_floats(tile, x, y, threads);
    forward_job job = {.conv = conv, .x = lk__conv_column(conv, x), .y = lk__conv_column(conv, y)};
    return lay_out(&job, 1, threads);
}

static void pack_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const forward_job *job = arg;
    size_t len = window(job), taps = lk__conv2d_desc_taps(job->conv);
    size_t group = index / lk__panel_count(job->out), panel = index % lk__panel_count(job->out), col = panel * LK_NR;
    lk__pack_transposed(job->weight + (group * job->out + col) * len, len, lk__size_min(job->out - col, LK_NR), len,
                        taps, lk__panel_width(job->out, panel), job->panels + (group * job->cols + col) * len);
}

/* The windows of output rows [y0, y1) in a view of their box. */
static lk_gemm windows_of(const forward_job *job, lk_box_window view, size_t y0, size_t y1)
{
    const lk_conv2d_desc *conv = job->conv;
    lk_gemm gemm = {
        .ny = y1 - y0,
        .nx = job->y.w,
        .a = view.data,
        .a_y = conv->h.stride * view.row,
        .a_x = conv->w.stride * job->in,
        .runs_y = conv->h.kernel,
        .run_y = conv->h.dilation * view.row,
    };
    lk__gemm_set_taps(&gemm, conv->w.kernel, conv->w.dilation, job->in);
    return gemm;
}

static void set_offsets(const forward_job *job)
{
    size_t width = lk__conv_box(job->conv, job->y, 0, 1).w;
    lk_gemm gemm = windows_of(job, (lk_box_window){.row = width * job->in}, 0, 1);
    lk__planar_offsets(&gemm, job->in, width, job->offsets);
}

static void forward_task(void *arg, size_t index, int thread)
{
    const forward_job *job = arg;
    const lk_conv2d_desc *conv = job->conv;
    size_t group = index % conv->groups, band = index / conv->groups;
    size_t sample = band / job->bands, y0 = band % job->bands * job->band;
    size_t y1 = lk__size_min(y0 + job->band, job->y.h);
    const float *image = job->input + sample * lk__shape_sample(job->x);
    lk_box box = lk__box_group(lk__conv_box(conv, job->y, y0, y1), group, job->in);
    float *buffer = job->buffers + (size_t)thread * job->buffer_floats;
    lk_box_window view =
        job->planar ? lk__planar_box(image, job->x, box, buffer) : lk__box_view(image, job->x, box, 1, buffer);
    lk_gemm gemm = windows_of(job, view, y0, y1);
    gemm.panels = job->panels + group * job->cols * window(job);
    gemm.start = job->start + group * job->cols;
    gemm.c = job->output + sample * lk__shape_sample(job->y) + y0 * job->y.w * job->y.c + group * job->out;
    gemm.c_y = job->y.w * job->y.c;
    gemm.c_x = job->y.c;
    gemm.cols = job->out;
    gemm.relu = job->relu;
    if (job->planar)
        lk__planar_gemm(&gemm, job->offsets);
    else
        lk__gemm(&gemm);
}

void LK_KERNEL(conv2d_forward)(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *x, const void *w,
                               const void *b, bool relu, lk_tensor *y, void *scratch)
{
    if (lk__depthwise_fits(conv, x->shape, y->shape)) {
        lk__depthwise_forward(dev, conv, x, w, b, relu, y, scratch);
        return;
    }
    if (lk__bf16_of(dev)) {
        lk__bf16_conv_forward(dev, conv, x, w, b, relu, y, scratch);
        return;
    }
    if (lk__winograd_tile(conv, x->shape, y->shape) > 1) {
        lk__winograd_forward(dev, conv, x, w, b, relu, y, scratch);
        return;
    }
    lk_pool *pool = lk__cpu_pool(dev);
    size_t threads = (size_t)lk__pool_threads(pool);
    forward_job job = {.conv = conv, .weight = w, .relu = relu};
    job.x = lk__conv_column(conv, x->shape);
    job.y = lk__conv_column(conv, y->shape);
    job.input = lk__tensor_f32(x);
    job.output = lk__tensor_f32(y);
    if (x->shape.n == 0)
        return;
    size_t groups = conv->groups, images = job.x.n * groups;
    lay_out(&job, lk__size_divide_up(lk__cpu_tasks(threads, TASKS_A_THREAD), images), threads);
    size_t cols = job.cols * groups;
    job.start = scratch;
    job.panels = job.start + lk__size_round_up(cols, LK_ALIGN);
    job.offsets = (uint32_t *)(void *)(job.panels + lk__size_round_up(cols * window(&job), LK_ALIGN));
    job.buffers = (float *)(void *)job.offsets + job.offset_floats;
    memset(job.start, 0, cols * sizeof *job.start);
    const float *bias = b;
    for (size_t group = 0; bias && group < groups; group++)
        memcpy(job.start + group * job.cols, bias + group * job.out, job.out * sizeof *bias);
    if (job.planar)
        set_offsets(&job);
    lk__pool_run(pool, lk__panel_count(job.out) * groups, pack_task, &job);
    lk__pool_run(pool, images * job.bands, forward_task, &job);
}
