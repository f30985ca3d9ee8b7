/* conv2d.c - convolutions of the CUDA device: chooses the engine of each pass. */
#include "tensor/cuda/kernels/conv2d.h"

#include <assert.h>

#include "base/mem.h"
#include "tensor/cuda/kernels/bias.h"

typedef enum engine { ENGINE_FIRST, ENGINE_DEPTHWISE, ENGINE_DIRECT, ENGINE_CUDNN } engine;

/* An engine of own kernels. */
typedef struct own_engine {
    size_t (*bytes)(const lk_cuda_problem *problem);
    void (*run)(const lk_cuda_problem *problem, const lk_cuda_io *io, void *workspace);
    bool sums_bias; /* computes db together with dw */
} own_engine;

static const own_engine own_engines[] = {
    [ENGINE_FIRST] = {lk__cuda_first_bytes, lk__cuda_first, true},
    [ENGINE_DEPTHWISE] = {lk__cuda_depthwise_bytes, lk__cuda_depthwise, true},
    [ENGINE_DIRECT] = {lk__cuda_direct_bytes, lk__cuda_direct, false},
};

typedef struct conv2d_plan {
    lk_cuda_plan base;
    engine engine;
    lk_cuda_cudnn *cudnn; /* NULL for other engines */
} conv2d_plan;

/* 3x3 without dilation; both strides are equal and at most `stride`; at most one pixel of padding on each side. */
static bool is_3x3(const lk_cuda_problem *problem, int stride)
{
    const lk_cuda_window *h = &problem->along_h, *w = &problem->along_w;
    return h->kernel == 3 && w->kernel == 3 && h->dilation == 1 && w->dilation == 1 && h->stride == w->stride &&
           h->stride <= stride && h->pad <= 1 && w->pad <= 1;
}

static bool is_first(const lk_cuda_problem *problem)
{
    return problem->pass != LK_CUDA_PASS_GRAD_INPUT && problem->c <= 4 && is_3x3(problem, 1) && problem->groups == 1 &&
           problem->y_pitch <= 256 && problem->y_pitch % 8 == 0;
}

static bool is_depthwise(const lk_cuda_problem *problem)
{
    return problem->groups > 1 && problem->groups == problem->c && problem->c == problem->k &&
           problem->x_pitch % 8 == 0 && is_3x3(problem, 2);
}

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
    return is_first(problem)       ? ENGINE_FIRST
           : is_depthwise(problem) ? ENGINE_DEPTHWISE
           : suits_cudnn(problem)  ? ENGINE_CUDNN
                                   : ENGINE_DIRECT;
}

static lk_status run(lk_cuda_plan *base, const lk_cuda_io *io)
{
    conv2d_plan *plan = (conv2d_plan *)base;
    const lk_cuda_problem *problem = &base->problem;
    bool bias = problem->pass == LK_CUDA_PASS_GRAD_WEIGHT && io->db, refused = false;
    if (plan->engine == ENGINE_CUDNN) {
        LK_TRY(lk__cuda_cudnn_run(plan->cudnn, io, &refused));
        plan->engine = refused ? ENGINE_DIRECT : ENGINE_CUDNN;
    }
    if (plan->engine != ENGINE_CUDNN) {
        const own_engine *own = &own_engines[plan->engine];
        void *workspace;
        LK_TRY(lk__cuda_workspace(io, own->bytes(problem), &workspace));
        own->run(problem, io, workspace);
        bias = bias && !own->sums_bias;
    }
    return bias ? lk__cuda_bias_grad(problem, io) : LK_OK;
}

static void destroy(lk_cuda_plan *base)
{
    lk__cuda_cudnn_destroy(((conv2d_plan *)base)->cudnn);
    lk__mem_free(base);
}

static lk_status make_plan(lk_cuda_device *dev, const lk_cuda_problem *problem, lk_cuda_plan **out)
{
    conv2d_plan *plan;
    lk_status status;
    LK_TRY(LK_ALLOC(1, "the plan of a convolution", &plan));
    plan->base.run = run;
    plan->base.destroy = destroy;
    plan->engine = engine_of(problem);
    if (plan->engine == ENGINE_CUDNN) {
        LK_TRY_GOTO(lk__cuda_cudnn_create(&dev->libraries, problem, &plan->cudnn), free_plan);
        plan->engine = plan->cudnn ? ENGINE_CUDNN : ENGINE_DIRECT;
    }
    *out = &plan->base;
    return LK_OK;
free_plan:
    lk__mem_free(plan);
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
        .precision = (int)((lk_cuda_device *)dev)->precision,
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
    lk_cuda_io io = {.dev = dev, .stream = lk__cuda_beside(dev), .scratch = lk__cuda_scratch};
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
    problem.bias = db.slot0 != NULL;
    lk__cuda_run_leaves(dev, problem, make_plan, x, dy, shards, dw, db);
}
