/* weights.h - gradients of the weights and biases of convolutions and linear layers: all shards of a wave in one or two
 * launches.
 *
 * leaves.h describes the work. A kernel of the table below computes leaves, parts of leaves or roots of groups. If this
 * is not the sum itself, it writes rows to scratch memory, and the fold adds them: the parts of a leaf in runs of
 * LK_CUDA_RUN parts, each run in order, then the runs in order; then the leaves or groups over the tree, from and to
 * the slots of the partial sums. Everything runs on the side stream. Faults are kept with the device. */
#ifndef LK_TENSOR_CUDA_KERNELS_WEIGHTS_H
#define LK_TENSOR_CUDA_KERNELS_WEIGHTS_H

#include "tensor/cuda/kernels/leaves.h"
#include "tensor/cuda/kernels/plans.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Parts of a leaf that are added in one chain. */
enum { LK_CUDA_RUN = 16 };

/* Computes the gradients of dw, and of db unless its slot0 is NULL. problem is the layer's, for the pass
 * LK_CUDA_PASS_GRAD_WEIGHT, with all samples of the wave. */
void lk__cuda_weight_grads(lk_device *dev, const lk_cuda_problem *problem, const lk_tensor *x, const lk_tensor *dy,
                           const lk_shards *shards, lk_partials dw, lk_partials db);

/* A kernel that computes leaves. `most` is lk_shards.most. */
typedef struct lk_cuda_leaf_kernel {
    const char *name;
    bool (*suits)(const lk_cuda_problem *problem, size_t most);
    lk_cuda_cut (*cut)(const lk_cuda_problem *problem, size_t most);
    /* Enqueues the launch on io->stream. out has a row of cut.weights + cut.bias floats for each block row of leaves.h;
     * rows of parts that a leaf does not have are not read. An empty leaf is 0. */
    void (*launch)(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves, size_t most,
                   float *out);
    /* Optional. As launch, for a launch whose only root is the sum (lk__cuda_leaves_is_sum): writes the slots dw and
     * db; db is NULL if it is not wanted. Without it, `launch` writes dw, if cut.bias is 0; otherwise the fold does. */
    void (*launch_sum)(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves, size_t most,
                       float *dw, float *db);
} lk_cuda_leaf_kernel;

/* The rows: tensor cores or fp32 multiplication for dense products (weights_mma.cu, weights_fp32.cu), the same with the
 * copy unit of newer GPUs (weights_hopper.cu; for 3x3 windows weights_taps_hopper.cu in tf32 and
 * weights_slabs_hopper.cu in bf16), first convolutions (weights_rows.cu), linear layers with few samples a shard
 * (weights_few.cu, weights_few_large.cu), the engines of conv2d.h. Sums of columns of dy (bias.cu) are chosen by
 * nobody: they have no `suits`. */
extern const lk_cuda_leaf_kernel lk__cuda_weights_first, lk__cuda_weights_depthwise, lk__cuda_weights_few,
    lk__cuda_weights_taps, lk__cuda_weights_slabs, lk__cuda_weights_hopper, lk__cuda_weights_mma, lk__cuda_weights_rows,
    lk__cuda_weights_direct, lk__cuda_weights_columns;

/* Where a launch writes: (block rows, weights) and (block rows, bias), with `row` floats from one block row to the
 * next. */
typedef struct lk_cuda_rows {
    float *weights, *bias; /* bias: NULL if it is not wanted */
    size_t row;
} lk_cuda_rows;

/* The launch of weights_mma.cu for fp32, where columns are whole vectors and windows have few taps; for groups of at
 * most two leaves. A bias needs a single group of channels. */
bool lk__cuda_weights_fp32_suits(const lk_cuda_problem *problem);
void lk__cuda_weights_fp32(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves,
                           const lk_cuda_rows *out);

/* What the fold adds and where. A row of `in` has `given` floats for weights, then those of the bias. A slot has
 * `weights` floats, of which those from `given` on are pads, which become zero, and `bias` floats in db. Entries of the
 * stack from `limit` on are not in slots but in carry, (entries, weights + bias). */
typedef struct lk_cuda_fold {
    size_t row, given, weights, bias;
    const float *in; // (groups, parts, row)
    lk_partials dw, db;
    int depth, limit;
    float *carry;
} lk_cuda_fold;
void lk__cuda_weights_fold(lk_device *dev, cudaStream_t stream, const lk_cuda_leaves *leaves, const lk_cuda_fold *fold);

#ifdef __cplusplus
}
#endif
#endif
