/* plans.h - how convolutions and linear layers are done, found out once a problem.
 *
 * A problem is one pass of a layer over the rows of one call. Its plan, an algorithm
 * of a library or own kernels, follows from the problem alone, so that the same
 * problem has the same bits in every run on one kind of GPU with one version of the
 * libraries. The first run of a plan loads kernels and may find that an algorithm
 * that was offered is refused, so it must be outside of a capture.
 *
 * Memory is as cuda.h says. What is not a tensor of fewer than 4 channels is aligned
 * to 16 bytes. Gradients of weights and biases are f32, with pads that come out zero. */
#ifndef LK_TENSOR_CUDA_KERNELS_PLANS_H
#define LK_TENSOR_CUDA_KERNELS_PLANS_H

#include "tensor/cuda/runtime/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lk_cuda_pass { LK_CUDA_PASS_FORWARD, LK_CUDA_PASS_GRAD_INPUT, LK_CUDA_PASS_GRAD_WEIGHT } lk_cuda_pass;

/* Compared and hashed as bytes, so all are ints; INT_MAX stands for what is larger. */
typedef struct lk_cuda_problem {
    int linear;            /* 1: a linear layer; its rows are pixels, and h, w, p, q, kernel, stride and groups are 1 */
    int pass;              /* lk_cuda_pass */
    int values, precision; /* lk_dtype and lk_precision of the device */
    int n;
    int h, w, c, x_pitch; /* of x and dx */
    int p, q, k, y_pitch; /* of y and dy: height, width and channels */
    int kernel, stride, pad, groups;
    int bias; /* forward: b is given; gradient of the weights: db is asked for */
    int relu; /* of the forward */
} lk_cuda_problem;

/* What a run reads and writes; what its pass does not use is NULL. */
typedef struct lk_cuda_io {
    lk_device *dev;
    cudaStream_t stream;
    void *(*scratch)(lk_device *dev, size_t bytes); /* of the stream: lk__cuda_scratch or lk__cuda_side_scratch */
    const void *x, *w, *b;
    void *y;
    const void *dy;
    const void *mask; /* NULL, or x where it is the result of a ReLU: dx is 0 where it is <= 0 */
    void *dx;
    float *dw, *db;
} lk_cuda_io;

/* Plans of a kind begin with this. */
typedef struct lk_cuda_plan lk_cuda_plan;
struct lk_cuda_plan {
    lk_cuda_problem problem;
    /* All of the pass but the mask. Own kernels keep their faults with the device. */
    lk_status (*run)(lk_cuda_plan *plan, const lk_cuda_io *io);
    void (*destroy)(lk_cuda_plan *plan);
    lk_cuda_plan *next; /* of the cache's */
};

/* Makes the plan of a problem that has none yet. */
typedef lk_status (*lk_cuda_planner)(lk_cuda_device *dev, const lk_cuda_problem *problem, lk_cuda_plan **out);

lk_status lk__cuda_plans_create(lk_cuda_plans **out) LK_CHECKED;
/* Before lk__cuda_libraries_fini, as plans hold objects of the libraries. */
void lk__cuda_plans_destroy(lk_cuda_plans *plans);

int lk__cuda_int(size_t value);

/* Pixels of dy, which are the rows of y as a matrix. */
static inline size_t lk__cuda_rows(const lk_cuda_problem *problem)
{
    return (size_t)problem->n * (size_t)problem->p * (size_t)problem->q;
}

/* Channels of x that an output channel sees, with the pads that weights have. */
static inline int lk__cuda_depth(const lk_cuda_problem *problem)
{
    return problem->groups == 1 ? problem->x_pitch : problem->c / problem->groups;
}

/* Elements of the weights. */
static inline size_t lk__cuda_weights(const lk_cuda_problem *problem)
{
    size_t taps = (size_t)problem->kernel * (size_t)problem->kernel;
    return (size_t)problem->y_pitch * taps * (size_t)lk__cuda_depth(problem);
}

/* Memory of the device for this run; NULL for no bytes. */
lk_status lk__cuda_workspace(const lk_cuda_io *io, size_t bytes, void **out) LK_CHECKED;

/* Whether a library's ReLU lets a NaN pass, which none promises: a plan asks before its
 * first run, by a run with *out for io, whose bias is NaN, and with *workspace, of
 * `bytes`; then lk__cuda_passed_nan looks at y, and waits for it. Where the ReLU drops
 * NaNs it is left to lk__cuda_bias_relu. */
lk_status lk__cuda_nan_bias(const lk_cuda_problem *problem, const lk_cuda_io *io, size_t bytes, lk_cuda_io *out,
                            void **workspace) LK_CHECKED;
lk_status lk__cuda_passed_nan(const lk_cuda_problem *problem, const lk_cuda_io *io, bool *out) LK_CHECKED;

/* Runs the problem, n rows being there. Failures are kept with the device. */
void lk__cuda_run(const lk_cuda_problem *problem, lk_cuda_planner planner, const lk_cuda_io *io);
/* The gradients of the weights: a leaf a shard on the side stream, and their merges.
 * The problem's n is set here. */
void lk__cuda_run_leaves(lk_device *dev, lk_cuda_problem problem, lk_cuda_planner planner, const lk_tensor *x,
                         const lk_tensor *dy, const lk_shards *shards, lk_partials dw, lk_partials db);

#ifdef __cplusplus
}
#endif
#endif
