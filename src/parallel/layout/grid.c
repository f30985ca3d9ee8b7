/* grid.c - dividing layers, shards and groups among the ranks. */
#include "parallel/layout/grid.h"

#include "base/cores.h"
#include "base/mem.h"
#include "base/tree.h"
#include "nn/plan.h"

static lk_status cut_stages(lk_grid *grid, const lk_graph *graph, const char *stages, int ranks)
{
    int first[LK_MAX_STAGES + 1];
    LK_TRY(lk__partition(graph, stages ? stages : "1", &grid->stages, first));
    if (ranks % grid->stages != 0)
        return lk__fail(LK_STATUS_USAGE,
                        "`stages` %s makes %d stages, but there %s %d rank%s: a multiple of %d is needed", stages,
                        grid->stages, ranks == 1 ? "is" : "are", ranks, ranks == 1 ? "" : "s", grid->stages);
    int rank = grid->world ? lk_group_rank(grid->world) : 0;
    grid->replicas = ranks / grid->stages;
    grid->replica = rank / grid->stages;
    grid->stage = rank % grid->stages;
    grid->first_layer = first[grid->stage];
    grid->last_layer = first[grid->stage + 1];
    return LK_OK;
}

static lk_status share_shards(lk_grid *grid, int shards, int ranks)
{
    if (grid->replicas > shards)
        return lk__fail(LK_STATUS_USAGE,
                        "%d replicas cannot share %d shard%s; `shards` %d or more is needed, on every run that is to "
                        "give the same bits",
                        grid->replicas, shards, shards == 1 ? "" : "s", grid->replicas);
    LK_TRY(LK_ALLOC((size_t)grid->replicas + 1, "shards", &grid->bounds));
    LK_TRY(LK_ALLOC((size_t)ranks + 1, "shards", &grid->metric_bounds));
    for (int r = 0; r <= grid->replicas; r++)
        grid->bounds[r] = (int)lk__shard_begin((size_t)shards, grid->replicas, r);
    for (int r = 0; r <= ranks; r++)
        grid->metric_bounds[r] = grid->bounds[r / grid->stages];
    return LK_OK;
}

/* Counts the ranks of this host that may use the same cores. */
static lk_status count_sharers(lk_grid *grid)
{
    int ranks = lk_group_size(grid->world);
    uint64_t mine = lk__cores_set(), *all;
    LK_TRY(LK_ALLOC((size_t)ranks, "ranks", &all));
    lk_status status = lk_allgather(grid->world, (lk_buffer){&mine, 1, LK_DTYPE_I64}, NULL, all, NULL);
    grid->sharers = 0;
    for (int r = 0; r < ranks; r++)
        grid->sharers += all[r] == mine && lk_group_is_local(grid->world, r);
    lk__mem_free(all);
    return status;
}

/* Splitting is collective: every rank makes each call. */
static lk_status split_groups(lk_grid *grid, bool has_moments)
{
    if (grid->replicas > 1) {
        LK_TRY(lk_group_split(grid->world, grid->stage, grid->replica, &grid->sums));
        if (has_moments)
            LK_TRY(lk_group_split(grid->world, grid->stage, grid->replica, &grid->moments));
    }
    if (grid->stages > 1)
        LK_TRY(lk_group_split(grid->world, grid->replica, grid->stage, &grid->pipeline));
    return LK_OK;
}

lk_status lk__grid_init(lk_grid *grid, const lk_graph *graph, const lk_grid_opts *opts)
{
    int ranks = opts->world ? lk_group_size(opts->world) : 1;
    *grid = (lk_grid){.world = ranks > 1 ? opts->world : NULL, .sharers = 1};
    lk_status status;
    LK_TRY_GOTO(cut_stages(grid, graph, opts->stages, ranks), free_grid);
    LK_TRY_GOTO(share_shards(grid, opts->shards, ranks), free_grid);
    if (!grid->world)
        return LK_OK;
    LK_TRY_GOTO(count_sharers(grid), free_grid);
    LK_TRY_GOTO(split_groups(grid, lk__graph_has_sums(graph)), free_grid);
    return LK_OK;

free_grid:
    lk__grid_fini(grid);
    return status;
}

void lk__grid_fini(lk_grid *grid)
{
    lk_group_destroy(grid->pipeline);
    lk_group_destroy(grid->moments);
    lk_group_destroy(grid->sums);
    lk__mem_free(grid->metric_bounds);
    lk__mem_free(grid->bounds);
    *grid = (lk_grid){0};
}

int lk__grid_neighbours(const lk_grid *grid)
{
    return grid->world ? lk_group_local_size(grid->world) : 1;
}
