/* memory.h - what an engine would take of its device's memory, without making
 * one. */
#ifndef LK_PARALLEL_MEMORY_H
#define LK_PARALLEL_MEMORY_H

#include <lockstep/engine.h>

/* Bytes. */
typedef struct lk_engine_size {
    size_t parameters;
    size_t gradients;   /* with the partial sums that are alive at once */
    size_t optimizer;   /* its state */
    size_t statistics;  /* BatchNorm's running ones, and partial sums of a step's */
    size_t activations; /* and their gradients */
    size_t scratch;     /* of kernels */
    size_t samples;     /* in memory at once */
} lk_engine_size;

/* Of a rank that is alone; opts as for lk_engine_create. */
lk_status lk__engine_measure(const lk_graph *graph, const lk_engine_opts *opts, lk_engine_size *out) LK_CHECKED;

#endif
