/* plans.c - the device's table of plans, and running them. */
#include "tensor/cuda/kernels/plans.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tensor/cuda/kernels/bias.h"
#include "tensor/cuda/runtime/memory.h"

/* A run has some hundreds of problems: layers times passes times shard sizes. */
enum { LINE = 256, HOW = 96, BIAS_ALIGN = 256, BUCKETS = 1024, WORDS = sizeof(lk_cuda_problem) / sizeof(int) };

struct lk_cuda_plans {
    lk_cuda_plan *buckets[BUCKETS];
    lk_cuda_plan *first; /* list of all, in the order in which they were made */
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

static void link_last(lk_cuda_plans *plans, lk_cuda_plan *plan)
{
    lk_cuda_plan **at = &plans->first;
    while (*at)
        at = &(*at)->later;
    *at = plan;
}

static lk_status plan_of(lk_cuda_device *dev, const lk_cuda_problem *problem, lk_cuda_planner planner,
                         lk_cuda_plan **out)
{
    lk_cuda_problem key = *problem;
    key.n = 0;
    lk_cuda_plan **bucket = bucket_of(dev->plans, &key), *plan = *bucket;
    while (plan && memcmp(&plan->problem, &key, sizeof key) != 0)
        plan = plan->next;
    if (!plan) {
        LK_TRY(check_sizes(problem));
        LK_TRY(planner(dev, &key, &plan));
        plan->problem = key;
        plan->next = *bucket;
        *bucket = plan;
        link_last(dev->plans, plan);
    }
    *out = plan;
    return LK_OK;
}

/* The layer of a plan, as in "conv2d 3x3, 64x56x56 to 128x28x28". */
static int describe_layer(const lk_cuda_problem *p, char text[LINE])
{
    const lk_cuda_window *h = &p->along_h, *w = &p->along_w;
    if (p->linear)
        return snprintf(text, LINE, "linear %d to %d", p->c, p->k);
    int used = snprintf(text, LINE, "conv2d %dx%d, %dx%dx%d to %dx%dx%d", h->kernel, w->kernel, p->c, p->h, p->w, p->k,
                        p->p, p->q);
    if (p->groups > 1)
        used += snprintf(text + used, (size_t)(LINE - used), ", %d groups", p->groups);
    if (h->dilation > 1 || w->dilation > 1)
        used += snprintf(text + used, (size_t)(LINE - used), ", dilation %dx%d", h->dilation, w->dilation);
    return used;
}

static void describe_plan(const lk_cuda_plan *plan, char text[LINE])
{
    static const char *const passes[] = {[LK_CUDA_PASS_FORWARD] = "forward",
                                         [LK_CUDA_PASS_GRAD_INPUT] = "input gradient",
                                         [LK_CUDA_PASS_GRAD_WEIGHT] = "weight gradient"};
    char how[HOW];
    int used = describe_layer(&plan->problem, text);
    plan->describe(plan, how, sizeof how);
    snprintf(text + used, (size_t)(LINE - used), ", %s%s of %d samples: %s", passes[plan->problem.pass],
             plan->problem.relu ? " with ReLU" : "", plan->n, how);
}

void lk__cuda_explain(lk_device *dev, void (*each)(void *arg, const char *line), void *arg)
{
    char text[LINE];
    for (const lk_cuda_plan *plan = ((lk_cuda_device *)dev)->plans->first; plan; plan = plan->later)
        if (plan->n) {
            describe_plan(plan, text);
            each(arg, text);
        }
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
    LK_TRY(plan->run(plan, problem, io));
    plan->n = problem->n;
    if (io->mask && !plan->masks)
        lk__cuda_relu_mask(problem, io);
    return LK_OK;
}

void lk__cuda_run(const lk_cuda_problem *problem, lk_cuda_planner planner, const lk_cuda_io *io)
{
    /* A failure would repeat in every layer, after a long search. */
    if (((lk_cuda_device *)io->dev)->failed == LK_OK)
        (void)lk__cuda_keep_status(io->dev, run(problem, planner, io));
}
