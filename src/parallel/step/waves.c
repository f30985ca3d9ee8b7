/* waves.c - waves of whole shards, and the stack of partial sums across waves. */
#include "parallel/step/waves.h"

#include "base/mem.h"
#include "base/tree.h"

/* Computes the merges after each of `count` entries that are pushed on a stack; entry i covers shards
 * [begin[i], begin[i+1]). Returns the largest number of entries on the stack, including the one being
 * pushed. */
static int plan_merges(int shards, int count, const int *begin, int *merges)
{
    int depth = 0, most = 0;
    for (int i = 0; i < count; i++) {
        int after = lk__tree_roots(shards, begin[0], begin[i + 1], NULL);
        most = depth + 1 > most ? depth + 1 : most;
        merges[i] = depth + 1 - after;
        depth = after;
    }
    return most;
}

static int count_roots(const lk_waves_opts *opts)
{
    int count = 0;
    for (int r = 0; r < opts->replicas; r++)
        count += lk__tree_roots(opts->shards, opts->bounds[r], opts->bounds[r + 1], NULL);
    return count;
}

static lk_status plan_roots(lk_waves *waves, const lk_waves_opts *opts)
{
    waves->all_roots = count_roots(opts);
    size_t count = (size_t)waves->all_roots;
    LK_TRY(LK_ALLOC(count + 1, "shards", &waves->root_shard));
    LK_TRY(LK_ALLOC(count + 1, "shards", &waves->root_begin));
    LK_TRY(LK_ALLOC(count, "shards", &waves->root_merges));
    int *at = waves->root_shard;
    for (int r = 0; r < opts->replicas; r++) {
        int roots[LK_TREE_MAX_DEPTH];
        int own = lk__tree_roots(opts->shards, opts->bounds[r], opts->bounds[r + 1], roots);
        for (int i = 0; i < own; i++)
            *at++ = roots[i];
    }
    *at = opts->shards;
    waves->total_slots = plan_merges(opts->shards, waves->all_roots, waves->root_shard, waves->root_merges);
    return LK_OK;
}

static lk_status plan_own(lk_waves *waves)
{
    size_t own = (size_t)(waves->last - waves->first);
    int *begin;
    LK_TRY(LK_ALLOC(own, "shards", &waves->merges));
    LK_TRY(LK_ALLOC(own + 1, "shards", &waves->wave_shard));
    LK_TRY(LK_ALLOC(2 * own, "shards", &waves->begin));
    LK_TRY(LK_ALLOC(own * LK_TREE_MAX_DEPTH, "shards", &waves->rows));
    LK_TRY(LK_ALLOC(own + 1, "shards", &begin));
    for (int i = 0; i <= (int)own; i++)
        begin[i] = waves->first + i;
    waves->most_roots = plan_merges(waves->shards, (int)own, begin, waves->merges);
    waves->own_roots = lk__tree_roots(waves->shards, waves->first, waves->last, NULL);
    lk__mem_free(begin);
    return LK_OK;
}

/* The samples of the largest wave of at most `wanted` samples, which hold one shard at least: memory for more would
 * never be used. */
static size_t largest_wave(const lk_waves_opts *opts, int own, size_t wanted)
{
    int width = 1;
    while (width < own && lk__shard_most(opts->batch, opts->shards, width + 1) <= wanted)
        width++;
    size_t most = lk__shard_most(opts->batch, opts->shards, width);
    if (width == own)
        return most;
    /* Of the runs with one shard more, some may have a sample less than others. */
    size_t least = lk__shard_begin(opts->batch, opts->shards, width + 1);
    return least <= wanted ? lk__size_max(least, most) : most;
}

lk_status lk__waves_create(const lk_waves_opts *opts, lk_waves **out)
{
    lk_waves *waves;
    lk_status status;
    LK_TRY(LK_ALLOC(1, "waves", &waves));
    waves->shards = opts->shards;
    waves->first = opts->bounds[opts->replica];
    waves->last = opts->bounds[opts->replica + 1];
    size_t all = lk__shard_most(opts->batch, opts->shards, waves->last - waves->first);
    waves->capacity = all;
    if (opts->micro_batch && opts->micro_batch < all)
        waves->capacity = largest_wave(opts, waves->last - waves->first,
                                       lk__size_max(opts->micro_batch, lk__shard_most(opts->batch, opts->shards, 1)));
    waves->single = waves->capacity == all;
    LK_TRY_GOTO(plan_roots(waves, opts), destroy_waves);
    LK_TRY_GOTO(plan_own(waves), destroy_waves);
    *out = waves;
    return LK_OK;

destroy_waves:
    lk__waves_destroy(waves);
    return status;
}

void lk__waves_destroy(lk_waves *waves)
{
    if (!waves)
        return;
    lk__mem_free(waves->rows);
    lk__mem_free(waves->begin);
    lk__mem_free(waves->wave_shard);
    lk__mem_free(waves->merges);
    lk__mem_free(waves->root_merges);
    lk__mem_free(waves->root_begin);
    lk__mem_free(waves->root_shard);
    lk__mem_free(waves);
}

int lk__waves_slots(const lk_waves *waves)
{
    return waves->single ? waves->own_roots : waves->most_roots;
}

size_t lk__waves_sample(const lk_waves *waves, int s)
{
    return lk__shard_begin(waves->batch, waves->shards, s);
}

size_t lk__waves_own(const lk_waves *waves, int s)
{
    return lk__waves_sample(waves, s) - lk__waves_sample(waves, waves->first);
}

/* The end of the wave that begins at shard `first`. */
static int wave_end(const lk_waves *waves, int first)
{
    int last = first + 1;
    size_t start = lk__waves_sample(waves, first);
    while (last < waves->last && lk__waves_sample(waves, last + 1) - start <= waves->capacity)
        last++;
    return last;
}

/* The entries of a wave in waves->begin. A wave has one entry more than it has shards, so the entry of shard
 * s in wave i is s - first + i. */
static size_t *wave_begin(const lk_waves *waves, int index)
{
    return waves->begin + (waves->wave_shard[index] - waves->first) + index;
}

static void describe_wave(lk_waves *waves, int index)
{
    int first = waves->wave_shard[index], last = waves->wave_shard[index + 1];
    size_t *begin = wave_begin(waves, index), *rows = waves->rows + (size_t)index * LK_TREE_MAX_DEPTH;
    for (int s = first; s <= last; s++)
        begin[s - first] = lk__waves_sample(waves, s) - lk__waves_sample(waves, first);
    int roots[LK_TREE_MAX_DEPTH + 1];
    int depth = lk__tree_roots(waves->shards, waves->first, first, roots);
    roots[depth] = first;
    for (int d = 0; d < depth; d++)
        rows[d] = lk__waves_sample(waves, roots[d + 1]) - lk__waves_sample(waves, roots[d]);
}

void lk__waves_cut(lk_waves *waves, size_t batch)
{
    waves->batch = batch;
    waves->count = 0;
    for (int first = waves->first; first < waves->last; waves->count++) {
        waves->wave_shard[waves->count] = first;
        first = waves->single ? waves->last : wave_end(waves, first);
    }
    waves->wave_shard[waves->count] = waves->last;
    for (int i = 0; i < waves->count; i++)
        describe_wave(waves, i);
    for (int i = 0; i <= waves->all_roots; i++)
        waves->root_begin[i] = lk__waves_sample(waves, waves->root_shard[i]);
}

size_t lk__waves_begin(const lk_waves *waves, int index)
{
    return lk__waves_own(waves, waves->wave_shard[index]);
}

lk_op_wave lk__waves_at(const lk_waves *waves, int index)
{
    int first = waves->wave_shard[index], last = waves->wave_shard[index + 1];
    lk_shards shards = {.count = last - first,
                        .begin = wave_begin(waves, index),
                        .most = lk__shard_largest(waves->batch, waves->shards),
                        .all = waves->shards,
                        .merges = waves->merges + (first - waves->first),
                        .depth = lk__tree_roots(waves->shards, waves->first, first, NULL),
                        .rows = waves->rows + (size_t)index * LK_TREE_MAX_DEPTH};
    return (lk_op_wave){.shards = shards,
                        .leaves = shards,
                        .search = -1,
                        .own_roots = waves->own_roots,
                        .roots = {.count = waves->all_roots,
                                  .begin = waves->root_begin,
                                  .most = lk__size_max(waves->batch, 1),
                                  .all = waves->shards,
                                  .merges = waves->root_merges},
                        .n = shards.begin[shards.count],
                        .last = last == waves->last};
}

int lk__waves_find(const lk_waves *waves, int s)
{
    int index = 0;
    while (waves->wave_shard[index + 1] <= s)
        index++;
    return index;
}

lk_op_wave lk__waves_leaf(const lk_waves *waves, int index, int s)
{
    static const int no_merge = 0;
    lk_op_wave wave = lk__waves_at(waves, index);
    int leaf = s - waves->wave_shard[index];
    wave.leaves = (lk_shards){.count = 1,
                              .begin = wave.shards.begin + leaf,
                              .most = wave.shards.most,
                              .all = wave.shards.all,
                              .merges = &no_merge};
    wave.search = leaf;
    return wave;
}
