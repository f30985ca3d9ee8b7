/* conv2d.c - convolutions of the CUDA device: chooses the engine of forward passes and input gradients. */
#include "tensor/cuda/kernels/conv2d.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tensor/cuda/kernels/weights.h"

typedef enum engine {
    ENGINE_STEM,
    ENGINE_FIRST,
    ENGINE_DEPTHWISE,
    ENGINE_FP32,
    ENGINE_TAPS,
    ENGINE_DIRECT,
    ENGINE_CUDNN
} engine;

/* An engine of own kernels. */
typedef struct own_engine {
    const char *name;
    void (*run)(const lk_cuda_problem *problem, const lk_cuda_io *io);
} own_engine;

static const own_engine own_engines[] = {
    [ENGINE_STEM] = {"own kernel for few channels by tensor cores", lk__cuda_stem},
    [ENGINE_FIRST] = {"own kernel for few channels", lk__cuda_first},
    [ENGINE_DEPTHWISE] = {"own depthwise kernel", lk__cuda_depthwise},
    [ENGINE_FP32] = {"own kernel for fp32", lk__cuda_fp32},
    [ENGINE_TAPS] = {"own kernel with bulk copies", lk__cuda_taps},
    [ENGINE_DIRECT] = {"own direct kernel", lk__cuda_direct},
};

typedef struct conv2d_plan {
    lk_cuda_plan base;
    engine engine;
    bool scatters;        /* the engine computes compact_problem */
    lk_cuda_cudnn *cudnn; /* NULL for other engines */
} conv2d_plan;

/* cuDNN needs the samples of a shard to begin at multiples of 16 bytes. It does not know pads, so it computes
 * them as channels, which is impossible with groups. With a stride and a dilation along one axis, some of its kernels
 * for tf32 fail with an illegal instruction (cuDNN 9 on an H200: kernel 2x3, stride 3x4, dilation 3x2), after which
 * nothing runs any more. */
static bool suits_cudnn(const lk_cuda_problem *problem)
{
    size_t sample = (size_t)problem->h * (size_t)problem->w * (size_t)problem->x_pitch;
    bool padded = problem->x_pitch != problem->c || problem->y_pitch != problem->k;
    bool sparse = (problem->along_h.stride > 1 && problem->along_h.dilation > 1) ||
                  (problem->along_w.stride > 1 && problem->along_w.dilation > 1);
    return !sparse && problem->y_pitch % 8 == 0 && sample % 8 == 0 && !(padded && problem->groups > 1);
}

static engine engine_of(const lk_cuda_problem *problem)
{
    return lk__cuda_stem_suits(problem)                   ? ENGINE_STEM
           : lk__cuda_weights_first.suits(problem, 0)     ? ENGINE_FIRST
           : lk__cuda_weights_depthwise.suits(problem, 0) ? ENGINE_DEPTHWISE
           : lk__cuda_fp32_suits(problem)                 ? ENGINE_FP32
           : lk__cuda_taps_suits(problem)                 ? ENGINE_TAPS
           : suits_cudnn(problem)                         ? ENGINE_CUDNN
                                                          : ENGINE_DIRECT;
}

/* Whether most pixels of dx have no gradient: the kernel does not read them. */
static bool is_sparse(const lk_cuda_problem *problem)
{
    const lk_cuda_window *h = &problem->along_h, *w = &problem->along_w;
    return problem->pass == LK_CUDA_PASS_GRAD_INPUT && h->kernel == 1 && w->kernel == 1 && h->pad == 0 && w->pad == 0 &&
           (h->stride > 1 || w->stride > 1) && problem->x_pitch % 8 == 0;
}

/* The problem without the pixels that the kernel does not read. */
static lk_cuda_problem compact_problem(const lk_cuda_problem *problem)
{
    lk_cuda_problem compact = *problem;
    compact.h = problem->p;
    compact.w = problem->q;
    compact.along_h.stride = compact.along_w.stride = 1;
    return compact;
}

static lk_status run_engine(conv2d_plan *plan, const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    bool refused = false;
    if (plan->engine == ENGINE_CUDNN) {
        LK_TRY(lk__cuda_cudnn_run(plan->cudnn, problem, io, &refused));
        plan->engine = refused ? ENGINE_DIRECT : ENGINE_CUDNN;
    }
    if (plan->engine != ENGINE_CUDNN)
        own_engines[plan->engine].run(problem, io);
    return LK_OK;
}

static lk_status run(lk_cuda_plan *base, const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    enum { ALIGN = 256 };
    conv2d_plan *plan = (conv2d_plan *)base;
    if (!plan->scatters)
        return run_engine(plan, problem, io);
    size_t size = problem->values == LK_DTYPE_BF16 ? 2 : 4;
    lk_cuda_problem compact = compact_problem(problem);
    lk_cuda_io inner = *io;
    size_t bytes = lk__size_round_up(lk__cuda_rows(&compact) * (size_t)compact.x_pitch * size, ALIGN);
    inner.reserved = io->reserved + bytes;
    inner.mask = NULL;
    LK_TRY(lk__cuda_workspace(io, bytes, &inner.dx));
    LK_TRY(run_engine(plan, &compact, &inner));
    lk__cuda_scatter(problem, io, inner.dx);
    return LK_OK;
}

static void describe(const lk_cuda_plan *base, char *text, size_t bytes)
{
    const conv2d_plan *plan = (const conv2d_plan *)base;
    if (plan->engine == ENGINE_CUDNN)
        lk__cuda_cudnn_describe(plan->cudnn, base->n, text, bytes);
    else
        snprintf(text, bytes, "%s, whole", own_engines[plan->engine].name);
    size_t end = strlen(text);
    if (plan->scatters)
        snprintf(text + end, bytes - end, "; pixels between strides by an own kernel");
}

static void destroy(lk_cuda_plan *base)
{
    lk__cuda_cudnn_destroy(((conv2d_plan *)base)->cudnn);
    lk__mem_free(base);
}

static lk_status make_plan(lk_cuda_device *dev, const lk_cuda_problem *problem, lk_cuda_plan **out)
{
    conv2d_plan *plan;
    LK_TRY(LK_ALLOC(1, "the plan of a convolution", &plan));
    plan->base.run = run;
    plan->base.destroy = destroy;
    plan->base.describe = describe;
    lk_cuda_problem compact = compact_problem(problem);
    engine inner = is_sparse(problem) ? engine_of(&compact) : ENGINE_DIRECT;
    plan->scatters = inner == ENGINE_CUDNN || inner == ENGINE_TAPS;
    plan->engine = plan->scatters ? inner : engine_of(problem);
    plan->base.masks = !plan->scatters && (plan->engine == ENGINE_FP32 || plan->engine == ENGINE_TAPS);
    lk_status status = LK_OK;
    if (plan->engine == ENGINE_CUDNN)
        status = lk__cuda_cudnn_create(&dev->libraries, plan->scatters ? &compact : problem, &plan->cudnn);
    if (status != LK_OK)
        lk__mem_free(plan);
    else
        *out = &plan->base;
    return status;
}

/* x and y, or their gradients. */
static lk_cuda_problem problem_of(lk_device *dev, lk_cuda_pass pass, const lk_conv2d_desc *conv, const lk_tensor *x,
                                  const lk_tensor *y)
{
    assert(lk__tensor_pitch(x) == lk__cuda_pitch(x->shape.c) && lk__tensor_pitch(y) == lk__cuda_pitch(y->shape.c));
    return (lk_cuda_problem){
        .pass = (int)pass,
        .values = (int)dev->values,
        .precision = (int)lk__cuda_precision(dev, true),
        .n = lk__cuda_int(x->shape.n),
        .h = lk__cuda_int(x->shape.h),
        .w = lk__cuda_int(x->shape.w),
        .c = lk__cuda_int(x->shape.c),
        .x_pitch = lk__cuda_int(lk__tensor_pitch(x)),
        .p = lk__cuda_int(y->shape.h),
        .q = lk__cuda_int(y->shape.w),
        .k = lk__cuda_int(y->shape.c),
        .y_pitch = lk__cuda_int(lk__tensor_pitch(y)),
        .along_h = lk__cuda_window(&conv->h),
        .along_w = lk__cuda_window(&conv->w),
        .groups = lk__cuda_int(conv->groups),
    };
}

/* Scratch is memory of the device itself (lk__cuda_scratch). */
size_t lk__cuda_conv2d_scratch(lk_device *dev, const lk_conv2d_desc *conv, lk_shape x, lk_shape y)
{
    (void)dev, (void)conv, (void)x, (void)y;
    return 0;
}

void lk__cuda_conv2d_forward(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *x, const void *w,
                             const void *b, bool relu, lk_tensor *y, void *scratch)
{
    (void)scratch;
    if (!x->shape.n)
        return;
    lk_cuda_problem problem = problem_of(dev, LK_CUDA_PASS_FORWARD, conv, x, y);
    problem.bias = b != NULL;
    problem.relu = relu;
    lk_cuda_io io = {.dev = dev, .stream = lk__cuda_stream(dev), .scratch = lk__cuda_scratch};
    io.x = x->data;
    io.w = w;
    io.b = b;
    io.y = y->data;
    lk__cuda_run(&problem, make_plan, &io);
}

void lk__cuda_conv2d_grad_input(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *dy, const void *w,
                                const lk_tensor *mask, lk_tensor *dx, void *scratch)
{
    (void)scratch;
    if (!dy->shape.n)
        return;
    lk_cuda_problem problem = problem_of(dev, LK_CUDA_PASS_GRAD_INPUT, conv, dx, dy);
    lk_cuda_io io = {.dev = dev, .stream = lk__cuda_beside_own(dev, dy->data), .scratch = lk__cuda_scratch};
    io.dy = dy->data;
    io.w = w;
    io.mask = mask ? mask->data : NULL;
    io.dx = dx->data;
    lk__cuda_run(&problem, make_plan, &io);
}

void lk__cuda_conv2d_grad_weight(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *x, const lk_tensor *dy,
                                 const lk_shards *shards, lk_partials dw, lk_partials db, void *scratch)
{
    (void)scratch;
    lk_cuda_problem problem = problem_of(dev, LK_CUDA_PASS_GRAD_WEIGHT, conv, x, dy);
    lk__cuda_weight_grads(dev, &problem, x, dy, shards, dw, db);
}
