/* metrics.c - sums of losses, hits, weights and errors in double, over the same tree as gradients, so that they do not
 * depend on the number of ranks. Of all of them parameters depend on the samples' weights only. */
#include "parallel/step/metrics.h"

#include <string.h>

enum { LOSS, CORRECT, TOP5, WEIGHT, ABSOLUTE, SQUARED };

/* The weight of sample i. */
static double weight_of(const lk_engine *engine, const lk_engine_part *part, size_t i)
{
    const float *classes = lk__graph_label_weights(engine->graph);
    double weight = part->weights ? (double)part->weights[i] : 1;
    return classes ? weight * (double)classes[part->labels[i]] : weight;
}

/* Adds sample i, whose loss has its weight. */
static void add_sample(const lk_engine *engine, const lk_engine_part *part, size_t i, double *leaf)
{
    leaf[LOSS] += (double)engine->host_losses[i];
    leaf[CORRECT] += engine->host_label_ranks[i] == 0;
    leaf[TOP5] += engine->host_label_ranks[i] < 5;
    leaf[WEIGHT] += weight_of(engine, part, i);
    if (engine->host_errors) {
        leaf[ABSOLUTE] += (double)engine->host_errors[2 * i];
        leaf[SQUARED] += (double)engine->host_errors[2 * i + 1];
    }
}

/* The metrics of `count` samples with these sums. */
static lk_metrics as_metrics(size_t count, const double *sum)
{
    return (lk_metrics){.count = count,
                        .correct = (size_t)sum[CORRECT],
                        .top5 = (size_t)sum[TOP5],
                        .loss = sum[WEIGHT] > 0 ? sum[LOSS] / sum[WEIGHT] : 0,
                        .absolute_error = count ? sum[ABSOLUTE] / (double)count : 0,
                        .squared_error = count ? sum[SQUARED] / (double)count : 0,
                        .weight = sum[WEIGHT]};
}

static const lk_waves *waves_of(const lk_engine *engine, const lk_engine_part *part)
{
    return part->eval ? engine->even : engine->waves;
}

lk_metrics lk__metrics_leaves(lk_engine *engine, const lk_engine_part *part)
{
    const lk_waves *waves = waves_of(engine, part);
    size_t start = lk__shard_begin(part->total, waves->shards, waves->first), count = 0;
    double own[LK_METRIC_SUMS] = {0};
    for (int s = waves->first; lk__engine_has_losses(engine) && s < waves->last; s++) {
        double *leaf = engine->leaves[s - waves->first];
        size_t begin = lk__shard_begin(part->total, waves->shards, s);
        size_t end = lk__shard_begin(part->total, waves->shards, s + 1);
        memset(leaf, 0, sizeof *engine->leaves);
        for (size_t i = begin - start; i < end - start; i++)
            add_sample(engine, part, i, leaf);
        for (int i = 0; i < LK_METRIC_SUMS; i++)
            own[i] += leaf[i];
        count += end - begin;
    }
    return as_metrics(count, own);
}

/* Folds the leaves to the partial sums of this rank's range; returns their number. */
static int fold_leaves(const lk_engine *engine, const lk_waves *waves, double (*roots)[LK_METRIC_SUMS])
{
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

/* The shards whose losses each rank has. Only ranks without other stages move shards. */
static const int *bounds_of(const lk_engine *engine, const lk_engine_part *part)
{
    return engine->bounds && !part->eval ? engine->bounds : engine->grid.metric_bounds;
}

lk_status lk__metrics_total(lk_engine *engine, const lk_engine_part *part, lk_metrics *out)
{
    double roots[LK_TREE_MAX_DEPTH + 1][LK_METRIC_SUMS], sum[LK_METRIC_SUMS] = {0};
    const void *vectors[LK_MAX_ROOTS] = {NULL};
    int count = lk__engine_has_losses(engine) ? fold_leaves(engine, waves_of(engine, part), roots) : 0;
    if (engine->grid.world) {
        for (int i = 0; i < count; i++)
            vectors[i] = roots[i];
        lk_shard_sums sums = {.bounds = bounds_of(engine, part), .roots = vectors};
        LK_TRY(lk_allreduce_shards(engine->grid.world, &sums, (lk_buffer){sum, LK_METRIC_SUMS, LK_DTYPE_F64},
                                   LK_REDUCTION_SUM, NULL));
    } else {
        memcpy(sum, roots[0], sizeof sum);
    }
    *out = as_metrics(part->total, sum);
    return LK_OK;
}
