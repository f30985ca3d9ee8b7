/* conv2d_subtrees.c - divides the shards of a weight gradient into subtrees; see conv2d_subtrees.h. */
#include "tensor/cpu/conv2d_subtrees.h"

#include "tensor/cpu/cpu.h"
#include "tensor/cpu/decls.h"

/* THREAD_FLOATS: sums of all subtrees for each thread, about; they stay in the caches. DEPTH: of a subtree of
 * LK_MAX_SHARDS shards. */
enum { THREAD_FLOATS = 160 * 1024, DEPTH = 13 };
_Static_assert(LK_MAX_SHARDS == 1 << (DEPTH - 1), "a whole subtree has a partial sum for each level");

static size_t weights_of(const lk_conv2d_desc *conv, lk_shape x, lk_shape y)
{
    return x.c / conv->groups * lk__conv2d_desc_taps(conv) * y.c;
}

static size_t row_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y)
{
    return lk__size_round_up(weights_of(conv, x, y) + y.c, LK_ALIGN);
}

/* Subtrees at most, a power of two. Uneven waves have up to twice as many. */
static size_t most_subtrees(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads)
{
    size_t most = 1, wanted = threads > 1 && conv->groups == 1 ? 2 * threads : 1;
    wanted = lk__size_min(wanted, LK_SUBTREES_MOST / 2);
    while (2 * most <= wanted && 2 * most * weights_of(conv, x, y) <= threads * THREAD_FLOATS)
        most *= 2;
    return most;
}

static lk_division divide(size_t threads, size_t subtrees)
{
    return (lk_division){
        .threads = threads,
        .blocks = lk__size_divide_up(lk__cpu_tasks(threads), subtrees),
        .least = lk__size_divide_up(threads, subtrees),
        .depth = subtrees > 1 ? DEPTH : LK_TREE_MAX_DEPTH,
    };
}

lk_division lk__division_whole(const lk_subtree *wave, size_t threads)
{
    lk_division division = divide(threads, 1);
    division.trees = wave;
    division.count = 1;
    return division;
}

size_t lk__subtrees_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads)
{
    size_t most = most_subtrees(conv, x, y, threads);
    return most > 1 ? 2 * most * row_floats(conv, x, y) : 0;
}

bool lk__subtrees_division(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads, size_t index,
                           lk_division *out)
{
    size_t most = most_subtrees(conv, x, y, threads);
    if (most >> index == 0)
        return false;
    *out = divide(threads, (size_t)1 << index);
    return true;
}

/* Cuts the wave into whole subtrees of at most `size` shards; false if they are more than `most`. */
static bool cut(const lk_shards *shards, int size, size_t most, lk_subtrees *out)
{
    out->roots = *shards;
    out->roots.count = 0;
    out->roots.merges = out->outer;
    for (int first = 0; first < shards->count;) {
        int end = lk__tree_subtree_end(shards->merges, first, shards->count, size), merges = 0;
        if ((size_t)out->roots.count == most)
            return false;
        lk_subtree *tree = &out->trees[out->roots.count];
        tree->shards = *shards;
        tree->shards.count = end - first;
        tree->shards.begin = shards->begin + first;
        tree->shards.merges = out->inner + first;
        tree->shards.depth = 0;
        tree->shards.rows = NULL;
        for (int i = first; i < end; i++)
            merges += out->inner[i] = shards->merges[i];
        int outer = merges - (end - first - 1); /* n leaves become one sum by n - 1 merges */
        out->inner[end - 1] -= outer;
        out->outer[out->roots.count++] = outer;
        first = end;
    }
    return true;
}

static void place_sums(lk_subtrees *out)
{
    for (int i = 0; i < out->roots.count; i++) {
        float *row = out->rows + (size_t)i * out->width;
        out->trees[i].dw = (lk_partials){row, out->width};
        out->trees[i].db = (lk_partials){out->db.slot0 ? row + out->weights : NULL, out->width};
    }
}

void lk__subtrees_cut(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads, const lk_subtree *wave,
                      float *rows, lk_subtrees *out)
{
    const lk_shards *shards = &wave->shards;
    size_t most = most_subtrees(conv, x, y, threads), wanted = most, filled = 0;
    for (int i = 0; i < shards->count; i++)
        filled += shards->begin[i + 1] > shards->begin[i];
    while (wanted > lk__size_max(filled, 1))
        wanted /= 2;
    int size = 1;
    while ((size_t)size * wanted < (size_t)shards->count)
        size *= 2;
    out->dw = wave->dw;
    out->db = wave->db;
    out->rows = rows;
    out->weights = weights_of(conv, x, y);
    out->channels = y.c;
    out->width = row_floats(conv, x, y);
    if (wanted > 1 && cut(shards, size, 2 * most, out) && out->roots.count > 1) {
        place_sums(out);
        out->division = divide(threads, wanted);
        out->division.trees = out->trees;
        out->division.count = (size_t)out->roots.count;
        return;
    }
    out->roots.count = 0;
    out->trees[0] = *wave;
    out->division = lk__division_whole(out->trees, threads);
}

void lk__subtrees_fold(lk_device *dev, const lk_subtrees *subtrees)
{
    const lk_subtrees *s = subtrees;
    if (s->roots.count == 0)
        return;
    LK_KERNEL(rows_fold)(dev, s->weights, s->rows, s->width, &s->roots, s->dw);
    if (s->db.slot0)
        LK_KERNEL(rows_fold)(dev, s->channels, s->rows + s->weights, s->width, &s->roots, s->db);
}
