/* own_ops.h - ops of the tests' own: registered from outside, as a program does it. */
#ifndef LK_TESTS_OWN_OPS_H
#define LK_TESTS_OWN_OPS_H

#include <math.h>
#include <pthread.h>

#include <lockstep/op.h>

#include "check.h"

/* Swish with a learnt slope for each channel: y = x sigmoid(slope x). The workspace keeps the sigmoid. */
static inline lk_status swish_shape(lk_op_shape *shape)
{
    size_t channels = shape->x[0].channels;
    shape->param[0] = (lk_op_param){.ndim = 1, .dims = {channels}, .first = LK_OP_FIRST_CONSTANT, .number = 1};
    shape->workspace = shape->y.height * shape->y.width * channels;
    return LK_OK;
}

static inline size_t swish_floats(const lk_op_args *args)
{
    return args->n * args->y_size.height * args->y_size.width * args->y_size.channels;
}

static inline void swish_forward(const lk_op_args *args)
{
    for (size_t i = 0; i < swish_floats(args); i++) {
        float s = lk_op_sigmoid(args->param[0][i % args->y_size.channels] * args->x[0][i]);
        args->workspace[i] = s;
        args->y[i] = args->x[0][i] * s;
    }
}

static inline void swish_backward(const lk_op_args *args)
{
    for (size_t i = 0; i < swish_floats(args); i++) {
        size_t channel = i % args->y_size.channels;
        float x = args->x[0][i], s = args->workspace[i], dy = args->dy[i];
        if (args->dx[0])
            args->dx[0][i] = dy * (s + args->param[0][channel] * x * s * (1.0f - s));
        if (args->grad[0])
            args->grad[0][channel] += dy * x * x * s * (1.0f - s);
    }
}

/* Two inputs and two parameters of which the second may be missing: y = weight a b + bias, for each channel. */
typedef struct gate_attr {
    int32_t no_bias;
} gate_attr;

static inline lk_status gate_shape(lk_op_shape *shape)
{
    lk_op_size a = shape->x[0], b = shape->x[1];
    if (a.height != b.height || a.width != b.width || a.channels != b.channels)
        return lk_fail(LK_STATUS_USAGE, "a gate needs two inputs of one shape");
    shape->param[0] = shape->param[1] = (lk_op_param){.ndim = 1, .dims = {a.channels}};
    shape->param[0].first = LK_OP_FIRST_UNIFORM;
    shape->param[0].number = 4;
    if (shape->attr && ((const gate_attr *)shape->attr)->no_bias)
        shape->param_count = 1;
    return LK_OK;
}

static inline void gate_forward(const lk_op_args *args)
{
    for (size_t i = 0; i < swish_floats(args); i++) {
        size_t channel = i % args->y_size.channels;
        float bias = args->param[1] ? args->param[1][channel] : 0.0f;
        args->y[i] = args->param[0][channel] * args->x[0][i] * args->x[1][i] + bias;
    }
}

static inline void gate_backward(const lk_op_args *args)
{
    for (size_t i = 0; i < swish_floats(args); i++) {
        size_t channel = i % args->y_size.channels;
        float a = args->x[0][i], b = args->x[1][i], w = args->param[0][channel], dy = args->dy[i];
        if (args->dx[0])
            args->dx[0][i] = w * b * dy;
        if (args->dx[1])
            args->dx[1][i] = w * a * dy;
        if (args->grad[0])
            args->grad[0][channel] += a * b * dy;
        if (args->grad[1])
            args->grad[1][channel] += dy;
    }
}

/* Ids for an embedding: the range [-1, 1) is cut into 16 parts. It has no gradient. */
enum { BUCKETS = 16 };

static inline lk_status bucket_shape(lk_op_shape *shape)
{
    (void)shape;
    return LK_OK;
}

static inline void bucket_forward(const lk_op_args *args)
{
    for (size_t i = 0; i < swish_floats(args); i++) {
        float id = floorf((args->x[0][i] + 1.0f) * (BUCKETS / 2));
        args->y[i] = id < 0.0f ? 0.0f : id > BUCKETS - 1 ? BUCKETS - 1 : id;
    }
}

static inline void bucket_backward(const lk_op_args *args)
{
    for (size_t i = 0; i < swish_floats(args) && args->dx[0]; i++)
        args->dx[0][i] = 0.0f;
}

/* With OWN_OPS_CUDA the program has the functions of CUDA (cuda/own_ops.cu). */
#ifdef OWN_OPS_CUDA
void own_cuda_swish_forward(const lk_op_args *args);
void own_cuda_swish_backward(const lk_op_args *args);
void own_cuda_gate_forward(const lk_op_args *args);
void own_cuda_gate_backward(const lk_op_args *args);
void own_cuda_bucket_forward(const lk_op_args *args);
void own_cuda_bucket_backward(const lk_op_args *args);
#define OWN_OPS_SET_CUDA(op) \
    ((op).cuda_forward = own_cuda_##op##_forward, (op).cuda_backward = own_cuda_##op##_backward)
#else
#define OWN_OPS_SET_CUDA(op) ((void)0)
#endif

static inline void own_ops_register_now(void)
{
    lk_op_def swish = {.name = "swish",
                       .inputs = 1,
                       .params = {"slope"},
                       .shape = swish_shape,
                       .forward = swish_forward,
                       .backward = swish_backward};
    lk_op_def gate = {.name = "gate",
                      .inputs = 2,
                      .params = {"weight", "bias"},
                      .shape = gate_shape,
                      .forward = gate_forward,
                      .backward = gate_backward};
    lk_op_def bucket = {
        .name = "bucket", .inputs = 1, .shape = bucket_shape, .forward = bucket_forward, .backward = bucket_backward};
    OWN_OPS_SET_CUDA(swish);
    OWN_OPS_SET_CUDA(gate);
    OWN_OPS_SET_CUDA(bucket);
    CHECK_OK(lk_op_register(&swish));
    CHECK_OK(lk_op_register(&gate));
    CHECK_OK(lk_op_register(&bucket));
}

/* Registers all of them; later calls in the same process do nothing. Any thread may call it. */
static inline void own_ops_register(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, own_ops_register_now);
}

#endif
