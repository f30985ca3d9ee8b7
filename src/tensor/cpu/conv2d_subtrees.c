/* conv2d_subtrees.c - cuts waves into subtrees; see conv2d_subtrees.h. */
#include "tensor/cpu/conv2d_subtrees.h"

#include "tensor/cpu/decls.h"

/* The sums of all subtrees have at most about so many floats for each thread, so that they stay in the caches. */
enum { THREAD_FLOATS = 160 * 1024 };

lk_subtrees_rows lk__subtrees_rows_of(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads)
{
    lk_subtrees_rows rows = {.threads = threads, .most = 1, .channels = y.c};
    size_t wanted = threads > 1 && conv->groups == 1 ? lk__size_min(2 * threads, LK_SUBTREES_MOST / 2) : 1;
    rows.weights = x.c / conv->groups * lk__conv2d_desc_taps(conv) * y.c;
    rows.width = lk__size_round_up(rows.weights + y.c, LK_ALIGN);
    while (2 * rows.most <= wanted && 2 * rows.most * rows.weights <= threads * THREAD_FLOATS)
        rows.most *= 2;
    return rows;
}

static lk_partials row_at(const lk_subtrees *s, size_t row, bool bias)
{
    if (bias && !s->wave.db.slot0)
        return (lk_partials){0};
    return (lk_partials){s->sums + row * s->rows.width + (bias ? s->rows.weights : 0), s->rows.width};
}

/* Adds the subtree of shards [first, end). */
static void add_tree(lk_subtrees *s, int first, int end)
{
    const lk_shards *all = &s->wave.shards;
    int merges = 0, row = s->roots.count++;
    for (int i = first; i < end; i++)
        merges += s->inner[i] = all->merges[i];
    s->outer[row] = merges - (end - first - 1); /* n leaves become one sum by n - 1 merges */
    s->inner[end - 1] -= s->outer[row];
    lk_shards shards = {.count = end - first, .begin = all->begin + first, .merges = s->inner + first};
    shards.most = all->most;
    shards.all = all->all;
    s->trees[row] = lk__subtree(&shards, row_at(s, (size_t)row, false), row_at(s, (size_t)row, true));
}

/* Cuts the wave into whole subtrees of at most `size` shards; false if there would be more than 2 * rows.most. */
static bool cut(lk_subtrees *s, int size)
{
    const lk_shards *shards = &s->wave.shards;
    s->roots = (lk_shards){.merges = s->outer, .depth = shards->depth, .most = shards->most, .all = shards->all};
    for (int first = 0; first < shards->count;) {
        int end = lk__tree_subtree_end(shards->merges, first, shards->count, size);
        if ((size_t)s->roots.count == 2 * s->rows.most)
            return false;
        add_tree(s, first, end);
        first = end;
    }
    return true;
}

void lk__subtrees_cut(const lk_subtrees_rows *rows, const lk_subtree *wave, float *sums, lk_subtrees *out)
{
    const lk_shards *shards = &wave->shards;
    size_t wanted = rows->most, filled = 0;
    int size = 1;
    for (int i = 0; i < shards->count; i++)
        filled += shards->begin[i + 1] > shards->begin[i];
    while (wanted > lk__size_max(filled, 1))
        wanted /= 2;
    while ((size_t)size * wanted < (size_t)shards->count)
        size *= 2;
    out->rows = *rows;
    out->wave = *wave;
    out->sums = sums;
    if (wanted > 1 && cut(out, size) && out->roots.count > 1) {
        out->division = lk__division(rows->threads, wanted);
        out->division.trees = out->trees;
        out->division.count = (size_t)out->roots.count;
        return;
    }
    out->roots.count = 0;
    out->division = lk__division_whole(rows->threads, &out->wave);
}

void lk__subtrees_fold(lk_device *dev, const lk_subtrees *subtrees)
{
    const lk_subtrees *s = subtrees;
    const lk_subtrees_rows *rows = &s->rows;
    if (s->roots.count == 0)
        return;
    LK_KERNEL(rows_fold)(dev, rows->weights, s->sums, rows->width, &s->roots, s->wave.dw);
    if (s->wave.db.slot0)
        LK_KERNEL(rows_fold)(dev, rows->channels, s->sums + rows->weights, rows->width, &s->roots, s->wave.db);
}
