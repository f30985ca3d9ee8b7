/* decls.h - prototypes of this build's kernels, derived from lk_kernels. */
#ifndef LK_TENSOR_CPU_DECLS_H
#define LK_TENSOR_CPU_DECLS_H

#include "tensor/cpu/cpu.h"
#include "tensor/cpu/vec.h"

/* clang-format off */
#define LK_KERNEL_LIST(X)                                                                                              \
    X(conv2d_scratch) X(conv2d_forward) X(conv2d_grad_input) X(conv2d_grad_weight)                                     \
    X(linear_scratch) X(linear_forward) X(linear_grad_input) X(linear_grad_weight)                                     \
    X(batchnorm_stats) X(batchnorm_fold) X(batchnorm_moments) X(batchnorm_running_moments)                             \
    X(batchnorm_running_update) X(batchnorm_forward) X(batchnorm_sums) X(batchnorm_grad_input)                         \
    X(rows_fold) X(relu_forward) X(relu_grad_input) X(relu6_forward) X(relu6_grad_input)                               \
    X(add) X(copy) X(fit_channels) X(dropout) X(flatten_forward) X(flatten_grad_input)                                 \
    X(maxpool_forward) X(maxpool_grad_input) X(avgpool_forward) X(avgpool_grad_input)                                  \
    X(global_avgpool_forward) X(global_avgpool_grad_input)                                                             \
    X(log_softmax_forward) X(log_softmax_grad_input) X(nll_forward) X(nll_grad_input)                                  \
    X(cross_entropy_forward) X(cross_entropy_grad_input)                                                               \
    X(sgd_step) X(adam_step) X(adadelta_step) X(find_above)                                                            \
    X(sum_squares) X(scale) X(reduce) X(divide) X(copy_bytes)
/* clang-format on */

#define LK_DECLARE(slot) __typeof__(*((const lk_kernels *)0)->slot) LK_KERNEL(slot);
LK_KERNEL_LIST(LK_DECLARE)
#undef LK_DECLARE

#endif
