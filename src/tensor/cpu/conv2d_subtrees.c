/* conv2d_subtrees.c - weight gradients by subtrees of shards; see conv2d_subtrees.h. */
#include "tensor/cpu/conv2d_subtrees.h"

#include "tensor/cpu/cpu.h"
#include "tensor/cpu/decls.h"
#include "tensor/cpu/fold.h"

/* MOST_WEIGHTS: of a layer. Each thread has SUBTREES subtrees if there are enough shards, MOST_SUBTREES at most. */
enum { MOST_WEIGHTS = 40 * 1024, SUBTREES = 2, MOST_SUBTREES = 8, STACK = LK_TREE_MAX_DEPTH + 1 };

typedef struct subtree_job {
    lk_subtrees of;
    size_t weights, width; /* floats of dw; of a row: dw, then db */
    bool bias;
    int count;    /* subtrees */
    int *first;   // (count + 1) shards
    int *merges;  // (count) after each subtree
    float *rows;  // (count, width) sums of subtrees
    float *stack; // (STACK, width)
    float *buffers;
    size_t thread_floats;
} subtree_job;

static size_t weights_of(const lk_conv2d_desc *conv, lk_shape x, lk_shape y)
{
    return x.c / conv->groups * lk__conv2d_desc_taps(conv) * y.c;
}

static size_t row_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y)
{
    return lk__size_round_up(weights_of(conv, x, y) + y.c, LK_ALIGN);
}

static bool fits(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads)
{
    return threads > 1 && conv->groups == 1 && weights_of(conv, x, y) <= MOST_WEIGHTS;
}

size_t lk__subtrees_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads, size_t thread_floats)
{
    if (!fits(conv, x, y, threads))
        return 0;
    return (threads * MOST_SUBTREES + STACK) * row_floats(conv, x, y) +
           threads * lk__size_round_up(thread_floats, LK_ALIGN);
}

/* Cuts the shards into whole subtrees of about `size` shards; false if they are more than `most`, or if the last shards
 * are no whole subtree. */
static bool cut(const lk_shards *shards, int size, int most, subtree_job *out)
{
    int depth = 0, begin = 0;
    out->count = 0;
    for (int i = 0; i < shards->count; i++) {
        int inside = shards->merges[i] < depth ? shards->merges[i] : depth;
        depth += 1 - inside;
        bool ends = i + 1 - begin >= size || inside < shards->merges[i] || i + 1 == shards->count;
        if (depth > 1 || !ends)
            continue;
        if (out->count == most)
            return false;
        out->first[out->count] = begin;
        out->merges[out->count++] = shards->merges[i] - inside;
        begin = i + 1;
        depth = 0;
    }
    out->first[out->count] = begin;
    return begin == shards->count;
}

static lk_partials row_at(const subtree_job *job, float *rows, size_t row, bool bias)
{
    if (bias && !job->bias)
        return (lk_partials){0};
    return (lk_partials){rows + row * job->width + (bias ? job->weights : 0), job->width};
}

static void subtree_task(void *arg, size_t index, int thread)
{
    const subtree_job *job = arg;
    int first = job->first[index], count = job->first[index + 1] - first, merges[LK_MAX_SHARDS];
    lk_shards shards = *job->of.shards;
    shards.count = count;
    shards.begin += first;
    shards.depth = 0;
    shards.rows = NULL;
    shards.merges = merges;
    for (int i = 0; i < count; i++)
        merges[i] = job->of.shards->merges[first + i];
    merges[count - 1] -= job->merges[index];
    job->of.compute(lk__cpu_thread(job->of.dev, thread), job->of.conv, job->of.x, job->of.dy, &shards,
                    row_at(job, job->rows, index, false), row_at(job, job->rows, index, true),
                    job->buffers + (size_t)thread * job->thread_floats);
}

/* Copies partial sums [first, last) between their slots and the stack. */
static void move(const subtree_job *job, int first, int last, bool back)
{
    for (int i = first; i < last; i++) {
        float *row = job->stack + (size_t)i * job->width;
        float *from[] = {lk__partials_slot(job->of.dw, i), job->bias ? lk__partials_slot(job->of.db, i) : NULL};
        float *to[] = {row, row + job->weights};
        size_t bytes[] = {job->weights * sizeof *row, job->of.dy->shape.c * sizeof *row};
        for (int part = 0; part < (job->bias ? 2 : 1); part++)
            memcpy(back ? from[part] : to[part], back ? to[part] : from[part], bytes[part]);
    }
}

static void fold_rows(const subtree_job *job)
{
    lk_lanes fold = lk__lanes_fold(job->of.shards);
    lk_shards subtrees = *job->of.shards;
    subtrees.count = job->count;
    subtrees.merges = job->merges;
    move(job, fold.low, job->of.shards->depth, false);
    LK_KERNEL(rows_fold)
    (job->of.dev, job->weights + (job->bias ? job->of.dy->shape.c : 0), job->rows, job->width, &subtrees,
     (lk_partials){job->stack, job->width});
    move(job, fold.low, fold.end, true);
}

bool lk__subtrees_run(const lk_subtrees *subtrees, float *scratch)
{
    const lk_shards *shards = subtrees->shards;
    const lk_conv2d_desc *conv = subtrees->conv;
    lk_shape x = subtrees->x->shape, y = subtrees->dy->shape;
    int first[LK_MAX_SHARDS + 1], merges[LK_MAX_SHARDS];
    int threads = lk__pool_threads(lk__cpu_pool(subtrees->dev)), filled = 0, size = 1;
    subtree_job job = {.of = *subtrees, .first = first, .merges = merges};
    for (int i = 0; i < shards->count; i++)
        filled += shards->begin[i + 1] > shards->begin[i];
    while (2 * size * SUBTREES * threads <= shards->count)
        size *= 2;
    if (!fits(conv, x, y, (size_t)threads) || filled < threads)
        return false;
    while (!cut(shards, size, threads * MOST_SUBTREES, &job)) {
        if (size == 1)
            return false;
        size /= 2;
    }
    job.weights = weights_of(conv, x, y);
    job.width = row_floats(conv, x, y);
    job.bias = subtrees->db.slot0 != NULL;
    job.thread_floats = lk__size_round_up(subtrees->thread_floats, LK_ALIGN);
    job.rows = scratch;
    job.stack = job.rows + (size_t)job.count * job.width;
    job.buffers = job.stack + STACK * job.width;
    lk__pool_run(lk__cpu_pool(subtrees->dev), (size_t)job.count, subtree_task, &job);
    fold_rows(&job);
    return true;
}
