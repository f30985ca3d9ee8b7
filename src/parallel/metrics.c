/* metrics.c - losses and hits of a batch, summed in double over the same tree as
 * gradients, so that every world prints the same numbers. They never reach a
 * weight. */
#include "parallel/engine_impl.h"

lk_metrics lk__metrics_leaves(lk_engine *engine, size_t total)
{
    const lk_waves *waves = engine->waves;
    size_t start = lk__shard_begin(total, waves->shards, waves->first);
    lk_metrics own = {0};
    for (int s = waves->first; s < waves->last; s++) {
        double *leaf = engine->leaves[s - waves->first];
        size_t begin = lk__shard_begin(total, waves->shards, s), end = lk__shard_begin(total, waves->shards, s + 1);
        leaf[0] = leaf[1] = 0;
        for (size_t i = begin - start; i < end - start; i++) {
            leaf[0] += (double)engine->loss[i];
            leaf[1] += (double)engine->correct[i];
        }
        own.count += end - begin;
        own.correct += (size_t)leaf[1];
        own.loss += leaf[0];
    }
    own.loss = own.count ? own.loss / (double)own.count : 0;
    return own;
}

/* Folds the leaves to the roots of this rank's range; returns how many. */
static int fold_leaves(const lk_engine *engine, double (*roots)[2])
{
    const lk_waves *waves = engine->waves;
    int depth = 0;
    for (int s = 0; s < waves->last - waves->first; s++, depth++) {
        roots[depth][0] = engine->leaves[s][0];
        roots[depth][1] = engine->leaves[s][1];
        for (int m = waves->merges[s]; m > 0; m--, depth--) {
            roots[depth - 1][0] += roots[depth][0];
            roots[depth - 1][1] += roots[depth][1];
        }
    }
    return depth;
}

lk_status lk__metrics_total(lk_engine *engine, size_t total, lk_metrics *out)
{
    double roots[LK_TREE_MAX_DEPTH + 1][2], sum[2] = {0};
    const void *vectors[LK_MAX_ROOTS] = {NULL};
    int count = lk__has_losses(engine) ? fold_leaves(engine, roots) : 0;
    if (engine->grid.world) {
        for (int i = 0; i < count; i++)
            vectors[i] = roots[i];
        lk_shard_sums sums = {.bounds = engine->grid.metric_bounds, .roots = vectors};
        LK_TRY(lk_allreduce_shards(engine->grid.world, &sums, (lk_data){sum, 2, LK_DTYPE_F64}, LK_REDUCTION_SUM, NULL));
    } else {
        sum[0] = roots[0][0];
        sum[1] = roots[0][1];
    }
    *out = (lk_metrics){.count = total, .correct = (size_t)sum[1], .loss = sum[0] / (double)total};
    return LK_OK;
}
