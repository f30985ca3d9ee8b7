/* move.c - moves shards: the ranks compare what they will need with the memory that is left, then each changes its
 * waves, and its memory where that is too small. Memory never shrinks, so shards that move back cost nothing. */
#include "parallel/engine/move.h"

#include <string.h>

#include "base/available.h"
#include "base/mem.h"
#include "comm/collective/group_memory.h"
#include "parallel/engine/engine.h"
#include "parallel/engine/ranged.h"
#include "parallel/step/room.h"

bool lk__engine_can_move(const lk_engine *engine)
{
    const lk_grid *grid = &engine->grid;
    return grid->replicas > 1 && grid->stages == 1 && engine->dev->type->host_memory && !engine->channel &&
           !engine->own_sums && !engine->recorded && !engine->opts.eval_only && !engine->opts.input_grads;
}

lk_shard_range lk__engine_train_range(const lk_engine *engine)
{
    return (lk_shard_range){
        .shards = engine->waves->shards, .first = engine->waves->first, .last = engine->waves->last};
}

const int *lk__engine_train_bounds(const lk_engine *engine)
{
    return lk__engine_bounds(engine);
}

/* What each rank gives to an allgather. */
typedef struct needs {
    int64_t bytes;  /* that it lacks */
    int64_t shared; /* bytes of its gradients in the group's memory, if these must grow */
    int64_t grows;  /* something must grow */
} needs;

enum { NEEDS = sizeof(needs) / sizeof(int64_t) };

static lk_status measure(lk_engine *engine, const int *bounds, size_t *total)
{
    lk_engine_rank_model model = lk__engine_model(engine);
    lk_engine_size size;
    model.grid.bounds = (int *)(uintptr_t)bounds;
    LK_TRY(lk__engine_measure_rank(&model, &size));
    *total = lk__engine_size_total(&size);
    return LK_OK;
}

static bool exceeds(const lk_engine_extent *a, const lk_engine_extent *b)
{
    return a->capacity > b->capacity || a->shards > b->shards || a->grad_slots > b->grad_slots || a->slots > b->slots ||
           a->all_roots > b->all_roots || a->total_slots > b->total_slots;
}

/* Gradients exist twice for a moment. */
static lk_status find_needs(lk_engine *engine, const int *bounds, const lk_engine_extent *extent, needs *out)
{
    size_t now, then, grads = (size_t)extent->grad_slots * engine->params->count * sizeof(float);
    *out = (needs){.grows = exceeds(extent, &engine->extent)};
    if (!out->grows)
        return LK_OK;
    LK_TRY(measure(engine, lk__engine_bounds(engine), &now));
    LK_TRY(measure(engine, bounds, &then));
    if (extent->grad_slots > engine->extent.grad_slots)
        out->shared = (int64_t)grads;
    out->bytes = (int64_t)(then > now ? then - now : 0) + out->shared;
    return LK_OK;
}

/* Whether what the ranks of this host need is at most half of what is left. */
static bool fits(const lk_engine *engine, const needs *host)
{
    lk_available left = lk__available();
    size_t room = lk__size_min(left.host.bytes, left.process.bytes) / 2;
    return (size_t)host->bytes <= room && (size_t)host->shared <= lk__group_room(engine->grid.sums);
}

/* Collective: what the ranks need. *all: of all ranks. *enough: every host has the memory. */
static lk_status compare_needs(const lk_engine *engine, const needs *mine, needs *all, bool *enough)
{
    lk_group *group = engine->grid.sums;
    needs host = {0}, *each;
    LK_TRY(LK_ALLOC((size_t)lk_group_size(group), "ranks", &each));
    lk_status status = lk_allgather(group, (lk_buffer){(void *)(uintptr_t)mine, NEEDS, LK_DTYPE_I64}, NULL, each, NULL);
    *all = (needs){0};
    for (int r = 0; status == LK_OK && r < lk_group_size(group); r++) {
        needs *sums[] = {all, lk_group_is_local(group, r) ? &host : NULL};
        for (int i = 0; i < 2 && sums[i]; i++) {
            sums[i]->bytes += each[r].bytes;
            sums[i]->shared += each[r].shared;
            sums[i]->grows += each[r].grows;
        }
    }
    lk__mem_free(each);
    LK_TRY(status);
    int64_t vote = all->grows == 0 || fits(engine, &host);
    if (all->grows > 0)
        LK_TRY(lk_allreduce(group, (lk_buffer){&vote, 1, LK_DTYPE_I64}, LK_REDUCTION_MIN, NULL));
    *enough = vote;
    return LK_OK;
}

/* Collective: larger gradients for every rank. No rank reads the old ones: all have finished their last step before
 * they compared their needs. The sum of the last step stays readable. */
static lk_status grow_grads(lk_engine *engine)
{
    float *old = engine->shared;
    engine->shared = NULL;
    lk_status status = lk__engine_alloc_grads(engine);
    if (status == LK_OK)
        memcpy(engine->shared, old, engine->params->count * sizeof *old);
    lk_group_free(engine->grid.sums, old);
    return status;
}

/* The plan has the addresses of the gradients. */
static lk_status grow(lk_engine *engine, const lk_engine_extent *extent, bool grads)
{
    engine->extent = *extent;
    lk__engine_free_plan(engine);
    if (grads)
        LK_TRY(grow_grads(engine));
    LK_TRY(lk__engine_alloc_plan(engine));
    LK_TRY(lk__engine_alloc_lanes(engine));
    return lk__engine_alloc_leaves(engine);
}

/* Takes over the waves. */
static lk_status set_waves(lk_engine *engine, lk_waves *waves, const int *bounds)
{
    size_t count = (size_t)engine->grid.replicas + 1;
    if (engine->waves != engine->even)
        lk__waves_destroy(engine->waves);
    engine->waves = waves;
    if (!engine->bounds)
        LK_TRY(LK_ALLOC(count, "shards", &engine->bounds));
    memcpy(engine->bounds, bounds, count * sizeof *bounds);
    engine->buckets->bounds = engine->bounds;
    engine->buckets->roots = waves->own_roots;
    engine->most = lk__shard_most(engine->opts.batch, waves->shards, waves->last - waves->first);
    return lk__engine_ensure_room(engine, engine->most);
}

static lk_status move_shards(lk_engine *engine, const int *bounds, bool *moved)
{
    lk_engine_rank_model model = lk__engine_model(engine);
    lk_waves *waves;
    needs mine, all;
    bool enough = false;
    int lanes;
    model.grid.bounds = (int *)(uintptr_t)bounds;
    LK_TRY(lk__engine_rank_waves(&model, &waves, &lanes));
    lk_engine_extent extent = lk__engine_extent_most(engine->extent, lk__engine_extent(waves));
    lk_status status;
    LK_TRY_GOTO(find_needs(engine, bounds, &extent, &mine), destroy_waves);
    LK_TRY_GOTO(compare_needs(engine, &mine, &all, &enough), destroy_waves);
    if (!enough)
        goto destroy_waves;
    if (mine.grows > 0 || all.shared > 0)
        LK_TRY_GOTO(grow(engine, &extent, all.shared > 0), destroy_waves);
    *moved = true;
    return set_waves(engine, waves, bounds);

destroy_waves:
    lk__waves_destroy(waves);
    return status;
}

lk_status lk__engine_move_shards(lk_engine *engine, const int *bounds, bool *moved)
{
    bool done = false;
    LK_TRY(lk__engine_enter_idle(engine));
    engine->agreed = false;
    lk_status status = move_shards(engine, bounds, &done);
    if (status == LK_OK)
        *moved = done;
    return lk__engine_leave(engine, lk__engine_abort_on_failure(engine, status));
}
