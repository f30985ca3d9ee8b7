/* metrics.c - sums of losses and hits in double, over the same tree as gradients, so that they do not depend
 * on the number of ranks. Weights never depend on them. */
#include "parallel/step/metrics.h"

#include <string.h>

enum { LOSS, CORRECT, TOP5 };

lk_metrics lk__metrics_leaves(lk_engine *engine, size_t total)
{
    const lk_waves *waves = engine->waves;
    size_t start = lk__shard_begin(total, waves->shards, waves->first);
    lk_metrics own = {0};
    for (int s = waves->first; lk__engine_has_losses(engine) && s < waves->last; s++) {
        double *leaf = engine->leaves[s - waves->first];
        size_t begin = lk__shard_begin(total, waves->shards, s), end = lk__shard_begin(total, waves->shards, s + 1);
        leaf[LOSS] = leaf[CORRECT] = leaf[TOP5] = 0;
        for (size_t i = begin - start; i < end - start; i++) {
            leaf[LOSS] += (double)engine->host_losses[i];
            leaf[CORRECT] += engine->host_label_ranks[i] == 0;
            leaf[TOP5] += engine->host_label_ranks[i] < 5;
        }
        own.count += end - begin;
        own.correct += (size_t)leaf[CORRECT];
        own.top5 += (size_t)leaf[TOP5];
        own.loss += leaf[LOSS];
    }
    own.loss = own.count ? own.loss / (double)own.count : 0;
    return own;
}

/* Folds the leaves to the partial sums of this rank's range; returns their number. */
static int fold_leaves(const lk_engine *engine, double (*roots)[LK_METRIC_SUMS])
{
    const lk_waves *waves = engine->waves;
    int depth = 0;
    for (int s = 0; s < waves->last - waves->first; s++, depth++) {
        memcpy(roots[depth], engine->leaves[s], sizeof *roots);
        for (int m = waves->merges[s]; m > 0; m--, depth--) {
            for (int i = 0; i < LK_METRIC_SUMS; i++)
                roots[depth - 1][i] += roots[depth][i];
        }
    }
    return depth;
}

lk_status lk__metrics_total(lk_engine *engine, size_t total, lk_metrics *out)
{
    double roots[LK_TREE_MAX_DEPTH + 1][LK_METRIC_SUMS], sum[LK_METRIC_SUMS] = {0};
    const void *vectors[LK_MAX_ROOTS] = {NULL};
    int count = lk__engine_has_losses(engine) ? fold_leaves(engine, roots) : 0;
    if (engine->grid.world) {
        for (int i = 0; i < count; i++)
            vectors[i] = roots[i];
        lk_shard_sums sums = {.bounds = engine->grid.metric_bounds, .roots = vectors};
        LK_TRY(lk_allreduce_shards(engine->grid.world, &sums, (lk_buffer){sum, LK_METRIC_SUMS, LK_DTYPE_F64},
                                   LK_REDUCTION_SUM, NULL));
    } else {
        memcpy(sum, roots[0], sizeof sum);
    }
    *out = (lk_metrics){
        .count = total, .correct = (size_t)sum[CORRECT], .top5 = (size_t)sum[TOP5], .loss = sum[LOSS] / (double)total};
    return LK_OK;
}
