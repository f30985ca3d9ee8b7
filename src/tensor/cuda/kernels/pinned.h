/* pinned.h - the bits of a layer, pinned to those of one of a library's algorithms, with the bits of each sample alone.
 *
 * Forward passes and input gradients do not sum over samples. The bits of a library depend on the number of samples
 * all the same: for another number it chooses another algorithm, or divides sums among processors that would be idle.
 * Layers prevent this by the following rule.
 * 1. The bits of a sample are those of a call with this sample alone, by the pinned algorithm of the layer.
 * 2. Candidates are the algorithms that the library offers for fixed numbers of samples, within a fixed limit of
 *    workspace. A candidate weighs the more the more the library prefers it.
 * 3. A trial of n samples fills input, weights and bias with random numbers and computes all samples in one call.
 *    Candidates with equal results in a trial of N samples are of one kind: as a rule they differ in the size of their
 *    tiles. N is 8 to 64, of linear layers 8 to 512; it depends on the bytes of a sample. Only the first four kinds
 *    count, in the order of the candidates. Of these, the kind with the largest weight is taken in which an algorithm
 *    also gives its bits in calls with 3, 7 and 16 samples and of each sample alone; the first one that does is pinned.
 *    If there is none, an own kernel, whose bits do not depend on n, computes the layer. linear.c gives the first
 * choice for few samples more weight than all other places together.
 * 4. Before the first call with another n, the kind's algorithms are tried with n samples. The fastest of those that
 *    give the bits of each sample alone computes calls with n samples. Where n > N, results are compared with those of
 *    calls of N samples by the pinned algorithm, which step 3 has compared with each sample alone. If no algorithm has
 *    these bits, calls with n samples are divided into parts of N samples, or samples alone where n < N. The same
 *    happens if the device has no memory for the trial.
 * Steps 2 and 3 choose bits; they depend on the layer, the kind of GPU and the version of the library, not on n,
 * free memory, time or other ranks. If a trial of step 3 gets no memory, the run fails. Step 4 chooses speed only: what
 * it measures decides no bit. A kernel's order of sums depends on shapes, not on values, so what agrees on random
 * numbers agrees on all numbers.
 *
 * Trials allocate memory of the device and wait for it, so the first run with each n must be outside of a capture. */
#ifndef LK_TENSOR_CUDA_KERNELS_PINNED_H
#define LK_TENSOR_CUDA_KERNELS_PINNED_H

#include "tensor/cuda/kernels/trial.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LK_CUDA_MOST_CANDIDATES = 32, LK_CUDA_PINNED_TEXT = 48 };

/* A library's algorithms of a layer. `layer` is the library's own data of the layer, `call` that of one number of
 * samples and one algorithm. */
typedef struct lk_cuda_pinned_type {
    /* Makes a candidate, numbered from 0, the algorithm of `suits` and of the calls that are prepared next. */
    void (*take)(void *layer, int candidate);
    /* *out: whether the candidate can be used, apart from its bits; may write to the output of io. Optional: it can. */
    lk_status (*suits)(void *layer, const lk_cuda_problem *problem, const lk_cuda_io *io, bool *out);
    /* *call is NULL if the algorithm refuses problem->n samples. */
    lk_status (*prepare)(void *layer, const lk_cuda_problem *problem, void **call);
    size_t (*workspace)(const void *call);
    /* Enqueues problem->n samples. UNSUPPORTED if the algorithm refuses them. */
    lk_status (*run)(void *layer, void *call, const lk_cuda_problem *problem, const lk_cuda_io *io, void *workspace);
    void (*destroy)(void *layer, void *call);
} lk_cuda_pinned_type;

typedef struct lk_cuda_pinned {
    const lk_cuda_pinned_type *type;
    const lk_cuda_trial_type *trial;
    void *layer;
    bool chosen;                        /* the layer's algorithm is pinned */
    int basis;                          /* that algorithm */
    int count;                          /* of candidates of its kind */
    int alike[LK_CUDA_MOST_CANDIDATES]; /* these */
    struct lk_cuda_pinned_size *sizes;  /* list of the numbers of samples that have occurred */
} lk_cuda_pinned;

/* How much a library prefers its algorithm number `rank` of a list, from 0 on. The weight of a candidate is the sum
 * over all lists that have it. */
int lk__cuda_pinned_weight(int rank);

/* Destroys the calls, not the layer; then nothing is pinned. */
void lk__cuda_pinned_clear(lk_cuda_pinned *pinned);
/* Step 3 of the rule, for candidates with these weights, the largest first; sets pinned->chosen. problem->n does not
 * count. */
lk_status lk__cuda_pinned_choose(lk_cuda_pinned *pinned, const int *weights, int candidates,
                                 const lk_cuda_problem *problem, const lk_cuda_io *io) LK_CHECKED;
/* Step 4, and the run of problem->n samples. UNSUPPORTED if the algorithm fails. */
lk_status lk__cuda_pinned_run(lk_cuda_pinned *pinned, const lk_cuda_problem *problem, const lk_cuda_io *io) LK_CHECKED;
/* Whether the ReLU of the candidate that was taken passes NaN: one sample with a bias of NaNs. For
 * lk_cuda_pinned_type.suits. */
lk_status lk__cuda_pinned_passes_nan(const lk_cuda_pinned *pinned, const lk_cuda_problem *problem, const lk_cuda_io *io,
                                     bool *out) LK_CHECKED;
/* N of the rule. */
int lk__cuda_pinned_samples(const lk_cuda_problem *problem);
/* How calls with n samples are computed: "whole", "in parts of at most 64 samples" or "each sample alone". The last one
 * also before the first run with n. Returns the candidate that computes them. */
int lk__cuda_pinned_describe(const lk_cuda_pinned *pinned, const lk_cuda_problem *problem, int n,
                             char text[LK_CUDA_PINNED_TEXT]);

#ifdef __cplusplus
}
#endif
#endif
