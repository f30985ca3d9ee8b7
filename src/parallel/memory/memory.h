/* memory.h - measuring the device and host memory of an engine without creating it. */
#ifndef LK_PARALLEL_MEMORY_MEMORY_H
#define LK_PARALLEL_MEMORY_MEMORY_H

#include <lockstep/engine.h>

#include "nn/plan.h"
#include "parallel/layout/grid.h"
#include "parallel/step/waves.h"

/* Bytes, except samples. */
typedef struct lk_engine_size {
    size_t parameters;
    size_t gradients;   /* and their partial sums */
    size_t optimizer;   /* the optimiser's state */
    size_t statistics;  /* BatchNorm's running statistics, and partial sums of a step's statistics */
    size_t activations; /* and their gradients */
    size_t scratch;     /* of kernels */
    size_t copies;      /* staging buffers in host memory (staging.h) */
    size_t samples;     /* number of samples in memory at once */
    bool host_only;     /* only host memory counts: the staging buffers */
} lk_engine_size;

/* Measures the engine of a single rank; opts as for lk_engine_create. */
lk_status lk__engine_measure(const lk_graph *graph, const lk_engine_opts *opts, lk_engine_size *out) LK_CHECKED;

/* A rank of a grid, in the form that is measured. */
typedef struct lk_engine_rank_model {
    const lk_graph *graph;
    lk_device *dev;
    lk_engine_opts opts; /* with all defaults filled in */
    lk_grid grid;        /* measuring uses none of its groups, fit.h uses world and sums */
    lk_plan_hooks hooks; /* of the plan: sums that it gathers need memory */
    const bool *kept;    /* of the plan: its outputs */
    bool host_only;      /* measure host memory only: the device has its own memory */
    bool device_sums;    /* the devices sum gradients, without staging buffers for them */
} lk_engine_rank_model;
lk_status lk__engine_measure_rank(const lk_engine_rank_model *rank, lk_engine_size *out) LK_CHECKED;
/* The sum of all parts that count. */
size_t lk__engine_size_total(const lk_engine_size *size);
/* The bytes of the total that are memory of the group which sums gradients, if there is one. */
size_t lk__engine_size_shared(const lk_engine_size *size);

/* The waves of such a rank, and the largest number of waves under way at once. */
lk_status lk__engine_rank_waves(const lk_engine_rank_model *rank, lk_waves **out, int *lanes) LK_CHECKED;

#endif
