/* conv2d_fp32.cu - forward passes and input gradients of convolutions in fp32 as products of dense matrices, by fused
 * multiply-adds.
 *
 * A row of the product is a pixel of the result, a column is one of its channels, and a sum goes over taps and channels
 * of the source, which is x, or dy for an input gradient. Each sum is one chain of additions, taps in the order of the
 * window and channels within a tap, so its bits depend on the layer only: neither the number of samples nor the size of
 * the tiles changes them, and tiles are chosen by the size of the whole call.
 *
 * With strides, a pixel of dx is read by some taps only. An input gradient has a launch for each class of pixels, whose
 * coordinates have the same remainders by the strides: all pixels of a class are read by the same taps. */
#include "tensor/cuda/kernels/conv2d.h"
#include "tensor/cuda/kernels/conv2d_fp32.cuh"

enum { MULTIPROCESSORS = 132, SCHEDULERS = 4 }; /* of a large GPU, and of a multiprocessor */
enum { MOST_PIXELS = 1 << 30 };                 /* of a launch */

static conv_axis forward_axis(const lk_cuda_window *window, int ins, int outs)
{
    conv_axis axis = {};
    axis.step = 1;
    axis.outs = outs;
    axis.taps = window->kernel;
    axis.tap_step = 1;
    axis.in_first = -window->pad;
    axis.in_stride = window->stride;
    axis.in_step = window->dilation;
    axis.ins = ins;
    return axis;
}

static int common_divisor(int a, int b)
{
    while (b) {
        int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Pixels of dx whose coordinates have this remainder. Tap r of pixel (in + pad - r * dilation) / stride of y reads
 * pixel `in` of x, if that is whole. The first such r is below tap_step, or there is none. */
static conv_axis class_axis(const lk_cuda_window *window, int ins, int outs, int remainder)
{
    int common = common_divisor(window->stride, window->dilation), moved = remainder + window->pad;
    conv_axis axis = {};
    axis.first = remainder;
    axis.step = window->stride;
    axis.outs = (outs - remainder + window->stride - 1) / window->stride;
    axis.tap_step = window->stride / common;
    while (axis.tap < axis.tap_step && (moved - axis.tap * window->dilation) % window->stride != 0)
        axis.tap++;
    if (axis.tap < axis.tap_step && axis.tap < window->kernel)
        axis.taps = (window->kernel - axis.tap + axis.tap_step - 1) / axis.tap_step;
    axis.in_first = (moved - axis.tap * window->dilation) / window->stride;
    axis.in_stride = 1;
    axis.in_step = -window->dilation / common;
    axis.ins = ins;
    return axis;
}

/* The class with these axes, of this many samples. */
static conv_class class_of(const lk_cuda_problem *problem, conv_axis h, conv_axis w, int samples)
{
    bool forward = problem->pass == LK_CUDA_PASS_FORWARD;
    int channels = forward ? problem->x_pitch : problem->y_pitch;
    conv_class s = {};
    s.h = h;
    s.w = w;
    s.rows = (unsigned)samples * (unsigned)h.outs * (unsigned)w.outs;
    s.height = forward ? problem->p : problem->h;
    s.width = forward ? problem->q : problem->w;
    s.columns = forward ? problem->y_pitch : problem->x_pitch;
    s.depth = h.taps * w.taps * channels;
    s.kernel_w = problem->along_w.kernel;
    s.taps = problem->along_h.kernel * problem->along_w.kernel;
    s.channels = divisor_of((unsigned)channels);
    s.row_taps = divisor_of(w.taps > 0 ? (unsigned)w.taps : 1);
    s.row = divisor_of((unsigned)w.outs);
    s.image = divisor_of((unsigned)h.outs * (unsigned)w.outs);
    return s;
}

/* The arguments of a launch. */
typedef struct conv_call {
    lk_device *dev;
    cudaStream_t stream;
    const float *in, *weights;
    conv_end end;
    float *out;
} conv_call;

template <class P>
static void launch(const conv_class *s, const conv_call *call)
{
    unsigned blocks = lk__cuda_parts(s->rows, P::M) * lk__cuda_parts((size_t)s->columns, P::N);
    (void)lk__cuda_keep(call->dev,
                        cudaFuncSetAttribute(convolve<P>, cudaFuncAttributeMaxDynamicSharedMemorySize, P::BYTES),
                        "convolution in fp32");
    lk__cuda_follow({blocks, P::THREADS, P::BYTES, call->stream, !P::FORWARD}, convolve<P>, *s, call->end, call->in,
                    call->weights, call->out);
    lk__cuda_launched(call->dev, "convolution in fp32");
}

/* A size of tiles. Arrays have an element for input gradients, then one for forward passes. */
typedef struct conv_size {
    int m, n, chunk;
    int sums;       /* of a thread */
    double rate[2]; /* the part of the multiprocessor's products that full tiles reach */
    void (*launch[2][2])(const conv_class *s, const conv_call *call); /* for any channels, and EVEN */
} conv_size;

#define LAUNCH(m, n, tm, tn, lanes, warps, chunk, slots, forward)                      \
    {                                                                                  \
        launch<conv_tile<m, n, tm, tn, lanes, warps, chunk, slots, forward, false>>,   \
            launch<conv_tile<m, n, tm, tn, lanes, warps, chunk, slots, forward, true>> \
    }
#define SIZE(m, n, tm, tn, lanes, warps_dx, warps_y, chunk, slots, rate_dx, rate_y) \
    {                                                                               \
        m, n, chunk, tm *tn, {rate_dx, rate_y},                                     \
        {                                                                           \
            LAUNCH(m, n, tm, tn, lanes, warps_dx, chunk, slots, false),             \
                LAUNCH(m, n, tm, tn, lanes, warps_y, chunk, slots, true)            \
        }                                                                           \
    }
static const conv_size sizes[] = {
    SIZE(128, 64, 8, 8, 8, 12, 16, 32, 2, 0.71, 0.73),
    SIZE(128, 32, 8, 8, 4, 12, 12, 16, 2, 0.70, 0.63),
    SIZE(64, 32, 4, 8, 4, 20, 20, 16, 2, 0.60, 0.54),
    SIZE(32, 32, 4, 4, 8, 24, 24, 16, 2, 0.47, 0.43),
};
#undef SIZE
#undef LAUNCH

/* Cycles for a step of the sums: those of a multiprocessor for its warps, of which each of four schedulers adds a sum
 * of each lane in a cycle, or those of a single warp, which waits for memory, too. */
static double cycles_of(const conv_size *size, const conv_class *s, bool forward)
{
    size_t blocks =
        (size_t)lk__cuda_parts(s->rows, (size_t)size->m) * lk__cuda_parts((size_t)s->columns, (size_t)size->n);
    size_t warps = (size_t)(size->m * size->n / (size->sums * LK_WARP));
    double all = (double)lk__cuda_parts(lk__cuda_parts(blocks, MULTIPROCESSORS) * warps, SCHEDULERS) * size->sums /
                 size->rate[forward];
    double alone = 1.7 * size->sums;
    return all > alone ? all : alone;
}

static bool is_even(const lk_cuda_problem *problem, const conv_class *s, const conv_size *size)
{
    return problem->x_pitch % QUAD == 0 && problem->y_pitch % QUAD == 0 && (int)s->channels.by % size->chunk == 0 &&
           s->h.taps <= MOST_TAPS && s->w.taps <= MOST_TAPS;
}

static void run_class(const lk_cuda_problem *problem, const conv_class *s, const conv_call *call)
{
    const conv_size *best = &sizes[0];
    bool forward = problem->pass == LK_CUDA_PASS_FORWARD;
    if (s->rows == 0)
        return;
    for (const conv_size *size = sizes; size < sizes + sizeof sizes / sizeof *sizes; size++)
        if (cycles_of(size, s, forward) < cycles_of(best, s, forward))
            best = size;
    best->launch[forward][is_even(problem, s, best)](s, call);
}

static void run_samples(const lk_cuda_problem *problem, int samples, const conv_call *call)
{
    const lk_cuda_window *h = &problem->along_h, *w = &problem->along_w;
    if (problem->pass == LK_CUDA_PASS_FORWARD) {
        conv_class all = class_of(problem, forward_axis(h, problem->h, problem->p),
                                  forward_axis(w, problem->w, problem->q), samples);
        run_class(problem, &all, call);
        return;
    }
    for (int i = 0; i < h->stride && i < problem->h; i++)
        for (int j = 0; j < w->stride && j < problem->w; j++) {
            conv_class some = class_of(problem, class_axis(h, problem->p, problem->h, i),
                                       class_axis(w, problem->q, problem->w, j), samples);
            run_class(problem, &some, call);
        }
}

static bool is_short(const lk_cuda_window *window, int x, int y)
{
    return x <= MOST_SIDE && y <= MOST_SIDE && window->pad <= MOST_SIDE && window->stride <= MOST_SIDE &&
           window->kernel <= MOST_SIDE / window->dilation;
}

bool lk__cuda_fp32_suits(const lk_cuda_problem *problem)
{
    return problem->values == LK_DTYPE_F32 && problem->precision == LK_PRECISION_FP32 && problem->groups == 1 &&
           is_short(&problem->along_h, problem->h, problem->p) && is_short(&problem->along_w, problem->w, problem->q);
}

void lk__cuda_fp32(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    bool forward = problem->pass == LK_CUDA_PASS_FORWARD;
    size_t x = (size_t)problem->h * (size_t)problem->w, y = (size_t)problem->p * (size_t)problem->q;
    size_t in = (forward ? x : y) * (size_t)(forward ? problem->x_pitch : problem->y_pitch);
    size_t out = (forward ? y : x) * (size_t)(forward ? problem->y_pitch : problem->x_pitch);
    int most = MOST_PIXELS / (int)(x > y ? x : y);
    conv_call call = {};
    call.dev = io->dev;
    call.stream = io->stream;
    call.weights = (const float *)io->w;
    call.end.b = (const float *)io->b;
    call.end.relu = problem->relu;
    for (int first = 0; first < problem->n; first += most) {
        call.in = (const float *)(forward ? io->x : io->dy) + (size_t)first * in;
        call.out = (float *)(forward ? io->y : io->dx) + (size_t)first * out;
        call.end.mask = io->mask ? (const float *)io->mask + (size_t)first * out : NULL;
        run_samples(problem, problem->n - first < most ? problem->n - first : most, &call);
    }
}
