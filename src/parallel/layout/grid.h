/* grid.h - the ranks of a job as replicas times stages, and the groups of a step.
 *
 * The calls of one group run one after another, so calls that must not wait for each other use
 * different groups. */
#ifndef LK_PARALLEL_LAYOUT_GRID_H
#define LK_PARALLEL_LAYOUT_GRID_H

#include "nn/graph.h"
#include "parallel/layout/partition.h"

typedef struct lk_grid {
    int replicas, replica, stages, stage;
    int first_layer, last_layer; /* of this stage */
    int *bounds;                 /* (replicas + 1) replica r has shards [bounds[r], bounds[r+1]) */
    int *metric_bounds;          /* (ranks + 1) shards whose losses a rank has; only ranks of the last stage have any */
    int sharers;                 /* ranks of the host that may use this rank's cores, including itself */
    lk_group *world;             /* all ranks, borrowed; NULL: one rank */
    /* Owned; NULL if the group would have one rank. */
    lk_group *sums;     /* the ranks of this stage: sums of gradients */
    lk_group *moments;  /* the same ranks: sums gathered during a pass */
    lk_group *pipeline; /* the ranks of this replica */
} lk_grid;

typedef struct lk_grid_opts {
    lk_group *world;    /* or NULL */
    const char *stages; /* or NULL */
    int shards;
} lk_grid_opts;

/* Collective. */
lk_status lk__grid_init(lk_grid *grid, const lk_graph *graph, const lk_grid_opts *opts) LK_CHECKED;
void lk__grid_fini(lk_grid *grid);
/* The number of ranks of this host, including this one. */
int lk__grid_neighbours(const lk_grid *grid);

#endif
