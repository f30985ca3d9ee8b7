/* plans.h - how each convolution and linear layer is computed; decided once for each problem.
 *
 * A problem is one pass of a layer over the samples of one call. Its plan, which is an algorithm of a library or
 * own kernels, depends on the problem only, so the same problem gives the same bits in every run on the same
 * kind of GPU with the same versions of the libraries. Plans of forward passes and input gradients do not depend on
 * the number of samples either: each sample has the same bits in every batch (pinned.h). Weight gradients are computed
 * by own kernels (weights.h). The first run of a plan loads kernels and may find that an offered algorithm is refused,
 * so it must be outside of a capture.
 *
 * Memory is as in cuda.h. All tensors but those with fewer than 4 channels are aligned to 16 bytes. Gradients
 * of weights and biases are f32; their pads are written as zero. */
#ifndef LK_TENSOR_CUDA_KERNELS_PLANS_H
#define LK_TENSOR_CUDA_KERNELS_PLANS_H

#include "tensor/cuda/runtime/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lk_cuda_pass { LK_CUDA_PASS_FORWARD, LK_CUDA_PASS_GRAD_INPUT, LK_CUDA_PASS_GRAD_WEIGHT } lk_cuda_pass;

/* lk_window in ints. */
typedef struct lk_cuda_window {
    int kernel, stride, pad, dilation;
} lk_cuda_window;

/* Compared and hashed as bytes, so all fields are ints; INT_MAX stands for larger values. */
typedef struct lk_cuda_problem {
    int linear;            /* 1: a linear layer; its rows are pixels; h, w, p, q, groups and its window are 1 */
    int pass;              /* lk_cuda_pass */
    int values, precision; /* lk_dtype of the device, and lk__cuda_precision */
    int n;
    int h, w, c, x_pitch; /* of x and dx */
    int p, q, k, y_pitch; /* of y and dy: height, width and channels */
    lk_cuda_window along_h, along_w;
    int groups;
    int bias; /* forward: b is given; gradient of weights: db is wanted */
    int relu; /* of the forward pass */
} lk_cuda_problem;

/* Arguments of a run; those that its pass does not use are NULL. */
typedef struct lk_cuda_io {
    lk_device *dev;
    cudaStream_t stream;
    void *(*scratch)(lk_device *dev, size_t bytes); /* the stream's lk__cuda_scratch or lk__cuda_side_scratch */
    size_t reserved; /* bytes at the begin of scratch that are in use; if scratch grows, they stay where they were */
    const void *x, *w, *b;
    void *y;
    const void *dy;
    const void *mask; /* NULL, or x if x is the result of a ReLU: then dx is 0 where x <= 0 */
    void *dx;
    /* NULL, or of a linear layer: the dropout behind it (forward), or between that ReLU and it (input gradient). */
    const lk_dropout_desc *dropout;
    const lk_shards *shards; /* of a weight gradient */
    lk_partials dw, db;      /* slot0 of db is NULL if it is not wanted */
} lk_cuda_io;

/* The first member of every kind of plan. */
typedef struct lk_cuda_plan lk_cuda_plan;
struct lk_cuda_plan {
    lk_cuda_problem problem; /* n is 0 */
    /* The whole pass; an input gradient without the mask, unless `masks` is set. problem is the plan's, with the n of
     * this run. Own kernels keep their faults with the device. */
    lk_status (*run)(lk_cuda_plan *plan, const lk_cuda_problem *problem, const lk_cuda_io *io);
    void (*destroy)(lk_cuda_plan *plan);
    /* Writes what computes the plan, and how its samples are divided among calls, as the last run did it. */
    void (*describe)(const lk_cuda_plan *plan, char *text, size_t bytes);
    bool masks;          /* run applies io->mask, and the gradient of io->dropout with it */
    int n;               /* of the last run; 0: there was none */
    lk_cuda_plan *next;  /* in the table's bucket */
    lk_cuda_plan *later; /* the plan that was made after this one */
};

/* Creates the plan of a new problem. */
typedef lk_status (*lk_cuda_planner)(lk_cuda_device *dev, const lk_cuda_problem *problem, lk_cuda_plan **out);

lk_status lk__cuda_plans_create(lk_cuda_plans **out) LK_CHECKED;
/* Call before lk__cuda_libraries_fini, because plans hold objects of the libraries. */
void lk__cuda_plans_destroy(lk_cuda_plans *plans);

/* The slot `explain` of lk_device_type. */
void lk__cuda_explain(lk_device *dev, void (*each)(void *arg, const char *line), void *arg);

int lk__cuda_int(size_t value);

static inline lk_cuda_window lk__cuda_window(const lk_window *window)
{
    lk_cuda_window w;
    w.kernel = lk__cuda_int(window->kernel);
    w.stride = lk__cuda_int(window->stride);
    w.pad = lk__cuda_int(window->pad);
    w.dilation = lk__cuda_int(window->dilation);
    return w;
}

/* Pixels of y, which are its rows as a matrix. */
static inline size_t lk__cuda_rows(const lk_cuda_problem *problem)
{
    return (size_t)problem->n * (size_t)problem->p * (size_t)problem->q;
}

/* Channels of x that an output channel reads, with the pads of the weights. */
static inline int lk__cuda_depth(const lk_cuda_problem *problem)
{
    return problem->groups == 1 ? problem->x_pitch : problem->c / problem->groups;
}

/* Elements of the weights. */
static inline size_t lk__cuda_weights(const lk_cuda_problem *problem)
{
    size_t taps = (size_t)problem->along_h.kernel * (size_t)problem->along_w.kernel;
    return (size_t)problem->y_pitch * taps * (size_t)lk__cuda_depth(problem);
}

/* Memory of the device for this run; NULL for no bytes. */
lk_status lk__cuda_workspace(const lk_cuda_io *io, size_t bytes, void **out) LK_CHECKED;

/* Tests whether a library's ReLU passes NaN, which no library promises. Before its first run a plan runs with
 * *out instead of io, whose bias is NaN, and with *workspace, of `bytes`; then lk__cuda_passed_nan waits for y
 * and looks at it. If the ReLU drops NaN, lk__cuda_bias_relu computes the ReLU instead. */
lk_status lk__cuda_nan_bias(const lk_cuda_problem *problem, const lk_cuda_io *io, size_t bytes, lk_cuda_io *out,
                            void **workspace) LK_CHECKED;
lk_status lk__cuda_passed_nan(const lk_cuda_problem *problem, const lk_cuda_io *io, bool *out) LK_CHECKED;

/* Runs the problem for n rows. Failures are kept with the device. */
void lk__cuda_run(const lk_cuda_problem *problem, lk_cuda_planner planner, const lk_cuda_io *io);

#ifdef __cplusplus
}
#endif
#endif
