/* plans.c - the device's table of plans, and running them: once, or leaf by leaf. */
#include "tensor/cuda/kernels/plans.h"

#include <limits.h>
#include <string.h>

#include "base/mem.h"
#include "tensor/cuda/kernels/bias.h"
#include "tensor/cuda/runtime/memory.h"

/* A run has some hundreds of problems: layers times passes times shard sizes. */
enum { BIAS_ALIGN = 256, BUCKETS = 1024, WORDS = sizeof(lk_cuda_problem) / sizeof(int) };

struct lk_cuda_plans {
    lk_cuda_plan *buckets[BUCKETS];
};

lk_status lk__cuda_plans_create(lk_cuda_plans **out)
{
    return LK_ALLOC(1, "plans of convolutions", out);
}

void lk__cuda_plans_destroy(lk_cuda_plans *plans)
{
    if (!plans)
        return;
    for (int i = 0; i < BUCKETS; i++)
        for (lk_cuda_plan *plan = plans->buckets[i], *next; plan; plan = next) {
            next = plan->next;
            plan->destroy(plan);
        }
    lk__mem_free(plans);
}

int lk__cuda_int(size_t value)
{
    return value < INT_MAX ? (int)value : INT_MAX;
}

static lk_cuda_plan **bucket_of(lk_cuda_plans *plans, const lk_cuda_problem *problem)
{
    unsigned words[WORDS], hash = 2166136261u;
    memcpy(words, problem, sizeof words);
    for (int i = 0; i < WORDS; i++)
        hash = (hash ^ words[i]) * 16777619u;
    return &plans->buckets[(hash ^ hash >> 16) % BUCKETS];
}

static lk_status check_sizes(const lk_cuda_problem *problem)
{
    int words[WORDS];
    memcpy(words, problem, sizeof words);
    for (int i = 0; i < WORDS; i++)
        if (words[i] == INT_MAX)
            return lk__fail(LK_STATUS_UNSUPPORTED, "a layer is too large for a GPU: none of its sizes can reach %d",
                            INT_MAX);
    return LK_OK;
}

static lk_status plan_of(lk_cuda_device *dev, const lk_cuda_problem *problem, lk_cuda_planner planner,
                         lk_cuda_plan **out)
{
    lk_cuda_plan **bucket = bucket_of(dev->plans, problem), *plan = *bucket;
    while (plan && memcmp(&plan->problem, problem, sizeof *problem) != 0)
        plan = plan->next;
    if (!plan) {
        LK_TRY(check_sizes(problem));
        LK_TRY(planner(dev, problem, &plan));
        plan->problem = *problem;
        plan->next = *bucket;
        *bucket = plan;
    }
    *out = plan;
    return LK_OK;
}

lk_status lk__cuda_nan_bias(const lk_cuda_problem *problem, const lk_cuda_io *io, size_t bytes, lk_cuda_io *out,
                            void **workspace)
{
    size_t at = lk__size_round_up(bytes, BIAS_ALIGN),
           size = (size_t)problem->y_pitch * lk_dtype_size((lk_dtype)problem->values);
    LK_TRY(lk__cuda_workspace(io, at + size, workspace));
    *out = *io;
    out->b = (char *)*workspace + at;
    /* All bits set are NaN in every type. */
    return lk__cuda_status(io->dev, cudaMemsetAsync((char *)*workspace + at, 0xff, size, io->stream), "a bias of NaNs");
}

static bool is_nan(lk_dtype type, const char *at)
{
    uint32_t wide;
    uint16_t narrow;
    memcpy(&wide, at, sizeof wide);
    memcpy(&narrow, at, sizeof narrow);
    return type == LK_DTYPE_BF16 ? (narrow & 0x7fffu) > 0x7f80u : (wide & 0x7fffffffu) > 0x7f800000u;
}

/* Reads the last row of y, which lies in an incomplete tile of the kernel. */
lk_status lk__cuda_passed_nan(const lk_cuda_problem *problem, const lk_cuda_io *io, bool *out)
{
    size_t size = lk_dtype_size((lk_dtype)problem->values), bytes = (size_t)problem->y_pitch * size;
    const char *row = (const char *)io->y + (lk__cuda_rows(problem) - 1) * bytes;
    char *host;
    bool all = true;
    LK_TRY(LK_ALLOC(bytes + sizeof(uint32_t), "a look for NaNs", &host));
    cudaError_t error = cudaMemcpyAsync(host, row, bytes, cudaMemcpyDeviceToHost, io->stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(io->stream);
    for (size_t i = 0; i < (size_t)problem->y_pitch; i++)
        all = all && is_nan((lk_dtype)problem->values, host + i * size);
    lk__mem_free(host);
    LK_TRY(lk__cuda_status(io->dev, error, "a look for NaNs"));
    *out = all;
    return LK_OK;
}

static lk_status run(const lk_cuda_problem *problem, lk_cuda_planner planner, const lk_cuda_io *io)
{
    lk_cuda_plan *plan;
    LK_TRY(plan_of((lk_cuda_device *)io->dev, problem, planner, &plan));
    LK_TRY(plan->run(plan, io));
    if (io->mask)
        lk__cuda_relu_mask(problem, io);
    return LK_OK;
}

void lk__cuda_run(const lk_cuda_problem *problem, lk_cuda_planner planner, const lk_cuda_io *io)
{
    /* A failure would repeat in every layer, after a long search. */
    if (((lk_cuda_device *)io->dev)->failed == LK_OK)
        (void)lk__cuda_keep_status(io->dev, run(problem, planner, io));
}

/* The leaf of an empty shard. */
static void zero_leaf(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    size_t bytes = lk__cuda_weights(problem) * sizeof(float), bias = (size_t)problem->y_pitch * sizeof(float);
    (void)lk__cuda_keep(io->dev, cudaMemsetAsync(io->dw, 0, bytes, io->stream), "zero gradients");
    if (io->db)
        (void)lk__cuda_keep(io->dev, cudaMemsetAsync(io->db, 0, bias, io->stream), "zero gradients");
}

void lk__cuda_run_leaves(lk_device *dev, lk_cuda_problem problem, lk_cuda_planner planner, const lk_tensor *x,
                         const lk_tensor *dy, const lk_shards *shards, lk_partials dw, lk_partials db)
{
    lk_cuda_io io = {.dev = dev, .stream = lk__cuda_fork(dev), .scratch = lk__cuda_side_scratch};
    int top = shards->depth;
    for (int i = 0; i < shards->count; i++) {
        size_t begin = shards->begin[i], rows = shards->begin[i + 1] - begin;
        io.x = lk__tensor_rows(x, begin, rows).data;
        io.dy = lk__tensor_rows(dy, begin, rows).data;
        io.dw = lk__partials_slot(dw, top);
        io.db = db.slot0 ? lk__partials_slot(db, top) : NULL;
        problem.n = lk__cuda_int(rows);
        if (rows)
            lk__cuda_run(&problem, planner, &io);
        else
            zero_leaf(&problem, &io);
        if (shards->merges[i])
            lk__cuda_merge_slots(&problem, &io, dw, db, top, shards->merges[i]);
        top += 1 - shards->merges[i];
    }
}
