/* conv2d_graph.h - one pass of a convolution as an operation graph of cuDNN, run by a given engine.
 *
 * cuDNN offers several engines for a graph, each with settings that it calls knobs: tiles, splits of sums, and so
 * on. An lk_cuda_choice names an engine and all its knobs, so it can be used again for another number of samples. */
#ifndef LK_TENSOR_CUDA_KERNELS_CONV2D_GRAPH_H
#define LK_TENSOR_CUDA_KERNELS_CONV2D_GRAPH_H

#include "tensor/cuda/kernels/plans.h"

enum { LK_CUDA_MOST_KNOBS = 24, LK_CUDA_MOST_CHOICES = 12 };

typedef struct lk_cuda_choice {
    int64_t engine;
    int knobs;
    int64_t knob[LK_CUDA_MOST_KNOBS], value[LK_CUDA_MOST_KNOBS];
} lk_cuda_choice;

/* The engines that cuDNN offers for the problem, in its order of preference, without those that are not deterministic
 * or, for fp32, use tensor cores. The forward pass includes the bias and the ReLU that the problem has. *count is 0 if
 * cuDNN does not support the problem. */
lk_status lk__cuda_choices(lk_cuda_libraries *libs, const lk_cuda_problem *problem, lk_cuda_choice *out,
                           int *count) LK_CHECKED;

typedef struct lk_cuda_graph lk_cuda_graph;
/* *out is NULL if the engine refuses the problem, or needs more workspace than is allowed. */
lk_status lk__cuda_graph_create(lk_cuda_libraries *libs, const lk_cuda_problem *problem, const lk_cuda_choice *choice,
                                lk_cuda_graph **out) LK_CHECKED;
void lk__cuda_graph_destroy(lk_cuda_graph *graph);
size_t lk__cuda_graph_workspace(const lk_cuda_graph *graph);
cudnnStatus_t lk__cuda_graph_run(lk_cuda_graph *graph, const lk_cuda_io *io, void *workspace);

#endif
