/* memory.h - what an engine would take of its device's memory and of the host's,
 * without making one. */
#ifndef LK_PARALLEL_MEMORY_MEMORY_H
#define LK_PARALLEL_MEMORY_MEMORY_H

#include <lockstep/engine.h>

#include "nn/plan.h"
#include "parallel/layout/grid.h"
#include "parallel/step/waves.h"

/* Bytes. */
typedef struct lk_engine_size {
    size_t parameters;
    size_t gradients;   /* with the partial sums that are alive at once */
    size_t optimizer;   /* its state */
    size_t statistics;  /* BatchNorm's running ones, and partial sums of a step's */
    size_t activations; /* and their gradients */
    size_t scratch;     /* of kernels */
    size_t copies;      /* the host's: of what ranks exchange, where the device's memory is another (staging.h) */
    size_t samples;     /* in memory at once */
    bool host_only;     /* of these, the copies alone count */
} lk_engine_size;

/* Of a rank that is alone; opts as for lk_engine_create. */
lk_status lk__engine_measure(const lk_graph *graph, const lk_engine_opts *opts, lk_engine_size *out) LK_CHECKED;

/* A rank of a grid. */
typedef struct lk_engine_rank_model {
    const lk_graph *graph;
    lk_device *dev;
    lk_engine_opts opts; /* with nothing left to defaults */
    lk_grid grid;        /* measuring looks at none of its groups, fit.h at world and sums */
    lk_plan_hooks hooks; /* of its plan: what it gathers takes memory, too */
    bool host_only;      /* the host's memory is asked about, and the device has its own */
    bool direct;         /* the devices add gradients up, and the host has no copy of them */
} lk_engine_rank_model;
lk_status lk__engine_measure_rank(const lk_engine_rank_model *rank, lk_engine_size *out) LK_CHECKED;
/* All parts of it that count. */
size_t lk__engine_size_total(const lk_engine_size *size);
/* What of those is memory of the group that sums gradients, where there is one. */
size_t lk__engine_size_shared(const lk_engine_size *size);

/* The waves of such a rank, and how many of them are under way at once. */
lk_status lk__engine_rank_waves(const lk_engine_rank_model *rank, lk_waves **out, int *lanes) LK_CHECKED;

#endif
