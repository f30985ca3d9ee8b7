/* weights.c - runs the kernels of weight gradients: chooses the kernel, divides the wave into launches, and folds. */
#include "tensor/cuda/kernels/weights.h"

#include <limits.h>
#include <stdio.h>

#include "base/mem.h"

enum { ROW_ALIGN = 64 }; /* floats */

/* The first one that suits is used; the last one suits every layer. */
static const lk_cuda_leaf_kernel *const kernels[] = {
    &lk__cuda_weights_rows,   &lk__cuda_weights_first, &lk__cuda_weights_depthwise,
    &lk__cuda_weights_few,    &lk__cuda_weights_taps,  &lk__cuda_weights_slabs,
    &lk__cuda_weights_hopper, &lk__cuda_weights_mma,   &lk__cuda_weights_direct,
};

static const lk_cuda_leaf_kernel *kernel_of(const lk_cuda_problem *problem, size_t most)
{
    const lk_cuda_leaf_kernel *const *kernel = kernels;
    while (!(*kernel)->suits(problem, most))
        kernel++;
    return *kernel;
}

/* The launches of a wave. */
typedef struct launches {
    size_t rows; /* of scratch memory that a launch needs, at most */
    int end;     /* entries on the stack after the last one */
    int deepest; /* entries after any of them, at most */
} launches;

static lk_status count_launches(const lk_cuda_cut *cut, const lk_shards *shards, launches *out)
{
    launches all = {.end = shards->depth};
    lk_cuda_leaves leaves;
    for (int first = 0; first < shards->count; first += leaves.count) {
        LK_TRY(lk__cuda_leaves_take(cut, shards, first, &leaves));
        all.rows = lk__size_max(all.rows, (size_t)leaves.groups * (size_t)leaves.parts);
        all.end = lk__cuda_leaves_depth(&leaves, all.end);
        all.deepest = all.end > all.deepest ? all.end : all.deepest;
    }
    *out = all;
    return LK_OK;
}

/* A kernel, its problem, and the sums that it adds to. */
typedef struct wave_sums {
    const lk_cuda_leaf_kernel *kernel;
    const lk_cuda_problem *problem;
    const lk_cuda_io *io;
    const lk_shards *shards;
    lk_cuda_cut cut;
    lk_cuda_fold fold;
} wave_sums;

/* Scratch memory: entries of the stack that have no slot, then the rows of a launch. */
static lk_status take_scratch(wave_sums *w, float **rows)
{
    launches all;
    lk_cuda_fold *fold = &w->fold;
    LK_TRY(count_launches(&w->cut, w->shards, &all));
    fold->limit = all.end > fold->depth ? all.end : fold->depth;
    size_t spare = all.deepest > fold->limit ? (size_t)(all.deepest - fold->limit) : 0;
    size_t carry = lk__size_round_up(spare * (fold->weights + fold->bias), ROW_ALIGN);
    void *memory;
    LK_TRY(lk__cuda_workspace(w->io, (carry + all.rows * fold->row) * sizeof(float), &memory));
    fold->carry = memory;
    *rows = (float *)memory + carry;
    return LK_OK;
}

static lk_status run_launches(wave_sums *w)
{
    lk_cuda_fold *fold = &w->fold;
    lk_cuda_leaves leaves;
    float *rows;
    LK_TRY(take_scratch(w, &rows));
    for (int first = 0; first < w->shards->count; first += leaves.count) {
        LK_TRY(lk__cuda_leaves_take(&w->cut, w->shards, first, &leaves));
        w->kernel->launch(w->problem, w->io, &leaves, w->shards->most, rows);
        if (first + leaves.count == w->shards->count)
            lk__cuda_side_multiplied(w->io->dev);
        fold->in = rows;
        lk__cuda_weights_fold(w->io->dev, w->io->stream, &leaves, fold);
        fold->depth = lk__cuda_leaves_depth(&leaves, fold->depth);
    }
    return LK_OK;
}

/* Whether the kernel can write the wave's sum to its slots; then *out is its launch. */
static lk_status is_one_launch(const wave_sums *w, lk_cuda_leaves *out, bool *one)
{
    LK_TRY(lk__cuda_leaves_take(&w->cut, w->shards, 0, out));
    *one = (w->cut.bias == 0 || w->kernel->launch_sum) && w->fold.given == w->fold.weights &&
           lk__cuda_leaves_is_sum(out, w->shards);
    return LK_OK;
}

static lk_status run(wave_sums *w)
{
    lk_cuda_leaves leaves;
    bool one;
    w->fold.row = w->cut.weights + w->cut.bias;
    w->fold.given = w->cut.weights;
    w->fold.depth = w->shards->depth;
    LK_TRY(is_one_launch(w, &leaves, &one));
    if (!one)
        return run_launches(w);
    float *dw = lk__partials_slot(w->fold.dw, w->shards->depth);
    if (w->kernel->launch_sum)
        w->kernel->launch_sum(w->problem, w->io, &leaves, w->shards->most, dw,
                              w->fold.bias ? lk__partials_slot(w->fold.db, w->shards->depth) : NULL);
    else
        w->kernel->launch(w->problem, w->io, &leaves, w->shards->most, dw);
    lk__cuda_side_multiplied(w->io->dev);
    return LK_OK;
}

/* The plan of a layer's weight gradient; the kernel is that of the last run. */
typedef struct weights_plan {
    lk_cuda_plan base;
    const lk_cuda_leaf_kernel *kernel;
} weights_plan;

static lk_status add_bias(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    wave_sums w = {.kernel = &lk__cuda_weights_columns, .problem = problem, .io = io, .shards = io->shards};
    w.cut = lk__cuda_weights_columns.cut(problem, io->shards->most);
    w.fold = (lk_cuda_fold){.weights = (size_t)problem->y_pitch, .dw = io->db};
    return run(&w);
}

/* Kernels for fp32 count pixels of x in ints. */
static lk_status check_pixels(const lk_cuda_problem *problem)
{
    size_t pixels = (size_t)problem->n * (size_t)problem->h * (size_t)problem->w;
    if (problem->precision != LK_PRECISION_FP32 || pixels <= INT_MAX)
        return LK_OK;
    return lk__fail(LK_STATUS_UNSUPPORTED,
                    "the gradients of a layer's weights in fp32: %zu pixels are too many for a GPU; smaller "
                    "micro-batches have fewer",
                    pixels);
}

static lk_status run_plan(lk_cuda_plan *base, const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    weights_plan *plan = (weights_plan *)base;
    LK_TRY(check_pixels(problem));
    wave_sums w = {.problem = problem, .io = io, .shards = io->shards};
    w.kernel = plan->kernel = kernel_of(problem, io->shards->most);
    w.cut = w.kernel->cut(problem, io->shards->most);
    w.fold = (lk_cuda_fold){.weights = lk__cuda_weights(problem), .dw = io->dw};
    if (io->db.slot0 && w.cut.bias) {
        w.fold.bias = w.cut.bias;
        w.fold.db = io->db;
    }
    LK_TRY(run(&w));
    return io->db.slot0 && !w.cut.bias ? add_bias(problem, io) : LK_OK;
}

static void describe(const lk_cuda_plan *base, char *text, size_t bytes)
{
    snprintf(text, bytes, "own kernel for %s, all shards at once", ((const weights_plan *)base)->kernel->name);
}

static void destroy(lk_cuda_plan *base)
{
    lk__mem_free(base);
}

static lk_status make_plan(lk_cuda_device *dev, const lk_cuda_problem *problem, lk_cuda_plan **out)
{
    weights_plan *plan;
    (void)dev, (void)problem;
    LK_TRY(LK_ALLOC(1, "the plan of a weight gradient", &plan));
    plan->base.run = run_plan;
    plan->base.destroy = destroy;
    plan->base.describe = describe;
    *out = &plan->base;
    return LK_OK;
}

void lk__cuda_weight_grads(lk_device *dev, const lk_cuda_problem *problem, const lk_tensor *x, const lk_tensor *dy,
                           const lk_shards *shards, lk_partials dw, lk_partials db)
{
    lk_cuda_io io = {.dev = dev, .stream = lk__cuda_fork(dev, dy->data), .scratch = lk__cuda_side_scratch};
    io.x = x->data;
    io.dy = dy->data;
    io.shards = shards;
    io.dw = dw;
    io.db = db;
    lk_cuda_problem asked = *problem;
    asked.bias = db.slot0 != NULL;
    if (shards->count > 0)
        lk__cuda_run(&asked, make_plan, &io);
}
