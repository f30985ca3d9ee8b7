/* conv2d_subtrees.h - weight gradients of convolutions with few weights, in several threads.
 *
 * The weights are too few to be divided among the threads. So each thread computes the sum of some shards that are a
 * whole subtree of the sum tree, and reads the samples of these shards alone. The sums of subtrees are then folded like
 * leaves: which thread adds what changes no bit. */
#ifndef LK_TENSOR_CPU_CONV2D_SUBTREES_H
#define LK_TENSOR_CPU_CONV2D_SUBTREES_H

#include "tensor/cpu/conv2d.h"

typedef struct lk_subtrees {
    lk_device *dev;
    const lk_conv2d_desc *conv;
    const lk_tensor *x, *dy;
    const lk_shards *shards;
    lk_partials dw, db;
    /* Computes the gradients in one thread, with thread_floats floats of scratch. */
    __typeof__(*((const lk_kernels *)0)->conv2d_grad_weight) *compute;
    size_t thread_floats;
} lk_subtrees;

/* Scratch floats; thread_floats: as in lk_subtrees. */
#define lk__subtrees_floats LK_KERNEL(subtrees_floats)
size_t lk__subtrees_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads, size_t thread_floats);

/* Computes dw and db; false, and nothing is done, if another way is faster. */
#define lk__subtrees_run LK_KERNEL(subtrees_run)
bool lk__subtrees_run(const lk_subtrees *subtrees, float *scratch);

#endif
