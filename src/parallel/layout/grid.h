/* grid.h - the ranks of a job as replicas times stages, and the groups that the
 * parts of a step talk in.
 *
 * Calls of one group run in their order, so what must not wait for each other
 * has groups of its own. */
#ifndef LK_PARALLEL_LAYOUT_GRID_H
#define LK_PARALLEL_LAYOUT_GRID_H

#include "nn/graph.h"
#include "parallel/layout/partition.h"

typedef struct lk_grid {
    int replicas, replica, stages, stage;
    int first_layer, last_layer; /* of this stage */
    int *bounds;                 /* (replicas + 1) shards of each replica */
    int *metric_bounds;          /* (ranks + 1) the same by rank: the last stage has the losses */
    int sharers;                 /* ranks that compute on this rank's cores, itself included */
    lk_group *world;             /* all ranks, borrowed; NULL: this rank alone */
    /* Owned; NULL where there would be one rank only. */
    lk_group *sums;     /* this stage's ranks: gradients */
    lk_group *moments;  /* the same ranks: sums in mid-pass */
    lk_group *pipeline; /* this replica's ranks */
} lk_grid;

typedef struct lk_grid_opts {
    lk_group *world;    /* or NULL */
    const char *stages; /* or NULL */
    int shards;
} lk_grid_opts;

/* Together. */
lk_status lk__grid_init(lk_grid *grid, const lk_graph *graph, const lk_grid_opts *opts) LK_CHECKED;
void lk__grid_fini(lk_grid *grid);
/* Ranks of this host, itself included. */
int lk__grid_neighbours(const lk_grid *grid);

#endif
