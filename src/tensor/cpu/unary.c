/* unary.c - sigmoid, tanh, SiLU and GELU, with the functions of base/math.h, and their gradients.
 *
 * Each element is computed alone, in plain C that the compiler vectorises for each instruction set. */
#include <string.h>

#include "base/math.h"
#include "tensor/cpu/chunks.h"
#include "tensor/cpu/decls.h"

static const float root_two_over_pi = 0.797884561f, one_over_root_two_pi = 0.398942280f, cubic = 0.044715f;

LK_INLINE float silu(float x)
{
    return x * lk__math_sigmoidf(x);
}

LK_INLINE float gelu(float x)
{
    return x * lk__math_phif(x);
}

/* The logistic function's argument in GELU's approximation: twice tanh's. */
LK_INLINE float gelu_argument(float x)
{
    return 2.0f * root_two_over_pi * __builtin_fmaf(cubic * x * x, x, x);
}

LK_INLINE float gelu_tanh(float x)
{
    return x * lk__math_sigmoidf(gelu_argument(x));
}

/* The slopes below are f'(x), from y = f(x) or from x. */
LK_INLINE float sigmoid_slope(float y)
{
    return y * (1.0f - y);
}

LK_INLINE float tanh_slope(float y)
{
    return __builtin_fmaf(-y, y, 1.0f);
}

LK_INLINE float silu_slope(float x)
{
    float s = lk__math_sigmoidf(x);
    return s * __builtin_fmaf(x, 1.0f - s, 1.0f);
}

LK_INLINE float gelu_slope(float x)
{
    return __builtin_fmaf(x, one_over_root_two_pi * lk__math_expf(-0.5f * x * x), lk__math_phif(x));
}

/* Where the sigmoid is 0 or 1, the factor of the second term may overflow. */
LK_INLINE float gelu_tanh_slope(float x)
{
    float s = lk__math_sigmoidf(gelu_argument(x)), rest = s * (1.0f - s);
    float argument_slope = 2.0f * root_two_over_pi * __builtin_fmaf(3.0f * cubic * x, x, 1.0f);
    return rest == 0.0f ? s : __builtin_fmaf(x * argument_slope, rest, s);
}

typedef struct operands {
    size_t count;
    const float *v, *dy; /* dy is unused by the forward pass */
    float *y;
} operands;

/* exp costs about ten plain operations. Results of a block are written after all its inputs were read, so that the
 * compiler vectorises in place too. */
enum { CHUNK = LK_CHUNK / 16, BLOCK = 64 };

typedef float (*element_fn)(float);

LK_INLINE void map(const operands *op, size_t index, element_fn f)
{
    lk_chunk_range range = lk__chunk(op->count, CHUNK, index);
    float y[BLOCK];
    for (size_t i = range.begin; i < range.end; i += BLOCK) {
        size_t n = lk__size_min(BLOCK, range.end - i);
        for (size_t k = 0; k < n; k++)
            y[k] = f(op->v[i + k]);
        memcpy(op->y + i, y, n * sizeof *y);
    }
}

LK_INLINE void map_grad(const operands *op, size_t index, element_fn slope)
{
    lk_chunk_range range = lk__chunk(op->count, CHUNK, index);
    float dx[BLOCK];
    for (size_t i = range.begin; i < range.end; i += BLOCK) {
        size_t n = lk__size_min(BLOCK, range.end - i);
        for (size_t k = 0; k < n; k++)
            dx[k] = op->dy[i + k] * slope(op->v[i + k]);
        memcpy(op->y + i, dx, n * sizeof *dx);
    }
}

/* The tasks of one function. */
#define TASKS(name, value, slope)                                     \
    static void name##_task(void *arg, size_t index, int thread)      \
    {                                                                 \
        (void)thread;                                                 \
        map(arg, index, value);                                       \
    }                                                                 \
    static void name##_grad_task(void *arg, size_t index, int thread) \
    {                                                                 \
        (void)thread;                                                 \
        map_grad(arg, index, slope);                                  \
    }

TASKS(sigmoid, lk__math_sigmoidf, sigmoid_slope)
TASKS(tanh, lk__math_tanhf, tanh_slope)
TASKS(silu, silu, silu_slope)
TASKS(gelu, gelu, gelu_slope)
TASKS(gelu_tanh, gelu_tanh, gelu_tanh_slope)

static const struct {
    lk_pool_fn forward, grad;
} tasks[LK_UNARY_COUNT] = {
    [LK_UNARY_SIGMOID] = {sigmoid_task, sigmoid_grad_task},
    [LK_UNARY_TANH] = {tanh_task, tanh_grad_task},
    [LK_UNARY_SILU] = {silu_task, silu_grad_task},
    [LK_UNARY_GELU] = {gelu_task, gelu_grad_task},
    [LK_UNARY_GELU_TANH] = {gelu_tanh_task, gelu_tanh_grad_task},
};

static void run(lk_device *dev, lk_pool_fn task, operands op)
{
    lk__pool_run(lk__cpu_pool(dev), (op.count + CHUNK - 1) / CHUNK, task, &op);
}

void LK_KERNEL(unary_forward)(lk_device *dev, lk_unary f, const lk_tensor *x, lk_tensor *y)
{
    run(dev, tasks[f].forward,
        (operands){.count = lk__shape_count(x->shape), .v = lk__tensor_f32(x), .y = lk__tensor_f32(y)});
}

void LK_KERNEL(unary_grad_input)(lk_device *dev, lk_unary f, const lk_tensor *v, const lk_tensor *dy, lk_tensor *dx)
{
    run(dev, tasks[f].grad,
        (operands){.count = lk__shape_count(v->shape),
                   .v = lk__tensor_f32(v),
                   .dy = lk__tensor_f32(dy),
                   .y = lk__tensor_f32(dx)});
}
