/* conv2d_subtrees.h - weight gradients of convolutions with few weights, in several threads.
 *
 * The weights are too few to be divided among the threads. So each thread computes the sum of some shards that are a
 * whole subtree of the sum tree, and reads the samples of these shards alone. The sums of subtrees are then folded like
 * leaves: which thread adds what changes no bit. */
#ifndef LK_TENSOR_CPU_CONV2D_SUBTREES_H
#define LK_TENSOR_CPU_CONV2D_SUBTREES_H

#include "tensor/cpu/conv2d.h"

/* Scratch floats. */
#define lk__subtrees_floats LK_KERNEL(subtrees_floats)
size_t lk__subtrees_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads);

/* Computes dw and db as conv2d_grad_weight; false, and nothing is done, if another way is faster. */
#define lk__subtrees_run LK_KERNEL(subtrees_run)
bool lk__subtrees_run(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *x, const lk_tensor *dy,
                      const lk_shards *shards, lk_partials dw, lk_partials db, float *scratch);

#endif
