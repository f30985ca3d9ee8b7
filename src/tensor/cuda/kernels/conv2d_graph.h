/* conv2d_graph.h - one pass of a convolution as an operation graph of cuDNN, run by a given engine.
 *
 * cuDNN offers several engines for a graph, each with settings that it calls knobs: tiles, splits of sums, and so
 * on. An lk_cuda_choice names an engine and all its knobs, so it can be used again for another number of samples. */
#ifndef LK_TENSOR_CUDA_KERNELS_CONV2D_GRAPH_H
#define LK_TENSOR_CUDA_KERNELS_CONV2D_GRAPH_H

#include "tensor/cuda/kernels/pinned.h"

enum { LK_CUDA_MOST_KNOBS = 24 };

typedef struct lk_cuda_choice {
    int64_t engine;
    int knobs;
    int64_t knob[LK_CUDA_MOST_KNOBS], value[LK_CUDA_MOST_KNOBS];
} lk_cuda_choice;

/* What cuDNN offers, and how much each is preferred (lk__cuda_pinned_weight). */
typedef struct lk_cuda_choices {
    int count;
    lk_cuda_choice at[LK_CUDA_MOST_CANDIDATES];
    int weight[LK_CUDA_MOST_CANDIDATES];
} lk_cuda_choices;

/* Adds the engines that cuDNN's heuristics prefer for the problem, without those that are not deterministic or, for
 * fp32, use tensor cores. The forward pass includes the bias and the ReLU that the problem has. Nothing is added if
 * cuDNN does not support the problem. */
lk_status lk__cuda_choices_add(lk_cuda_libraries *libs, const lk_cuda_problem *problem,
                               lk_cuda_choices *out) LK_CHECKED;
/* Sorts them by their weights, the largest first. */
void lk__cuda_choices_sort(lk_cuda_choices *choices);

/* Whether cuDNN, or CUDA below it, had no memory: another time it may have some, so no bits may depend on it. */
bool lk__cuda_graph_lacks_memory(cudnnStatus_t status);

typedef struct lk_cuda_graph lk_cuda_graph;
/* *out is NULL if the engine refuses the problem, or needs more workspace than is allowed. */
lk_status lk__cuda_graph_create(lk_cuda_libraries *libs, const lk_cuda_problem *problem, const lk_cuda_choice *choice,
                                lk_cuda_graph **out) LK_CHECKED;
void lk__cuda_graph_destroy(lk_cuda_graph *graph);
size_t lk__cuda_graph_workspace(const lk_cuda_graph *graph);
cudnnStatus_t lk__cuda_graph_run(lk_cuda_graph *graph, const lk_cuda_io *io, void *workspace);

#endif
