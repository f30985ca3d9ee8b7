/* test_pooled.c - a device whose batch normalisation computes the max pooling behind it: in every mode, and whatever is
 * kept or frozen, runs end with the bits of the CPU, which has a kernel for each. The device uses the CPU's kernels. */
#include "ranks.h"

#include "tensor/device.h"

enum { BATCH, SHARD, CASES };

/* Steps 4, 5 and 6 have half a batch, a whole one, and one sample. */
static const law_case cases[CASES] = {
    [BATCH] = {"pooled", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.05, 3, 19, 16, .first = 4},
    [SHARD] = {"pooled", LAW_ODD, LK_BN_MODE_SHARD, "adam", 1e-3, 3, 19, 16, .first = 4},
};

static lk_device_type pooled_type;
static lk_kernels pooled_kernels;
static const lk_kernels *separate;
static _Thread_local size_t pooled_calls; /* forward passes with a pooling, by this thread's engines */

static lk_status pooled_open(const lk_device_opts *opts, lk_device **out)
{
    LK_TRY(lk__device_cpu.open(opts, out));
    (*out)->type = &pooled_type;
    (*out)->kernels = &pooled_kernels;
    return LK_OK;
}

static bool pools(const lk_pool2d_desc *windows)
{
    return windows->h.stride == 2 && windows->w.stride == 2;
}

/* A tensor like x; the caller frees its data. */
static lk_tensor like(const lk_tensor *x)
{
    lk_tensor t = *x;
    t.data = malloc(x->shape.n * lk__tensor_stride(x) + 1);
    CHECK(t.data != NULL);
    return t;
}

/* The same normalisation without the pooling; the index has the ReLU's gradient. */
static lk_batchnorm_desc without(const lk_batchnorm_desc *desc, bool relu)
{
    lk_batchnorm_desc alone = *desc;
    CHECK(!desc->other && !desc->six && !desc->signs);
    alone.pool = NULL;
    alone.relu = relu;
    return alone;
}

static void forward(lk_device *dev, const lk_batchnorm_desc *desc, const lk_tensor *x, const lk_shards *shards,
                    const lk_moments *moments, lk_tensor *y)
{
    if (!desc->pool) {
        separate->batchnorm_forward(dev, desc, x, shards, moments, y);
        return;
    }
    lk_batchnorm_desc alone = without(desc, desc->relu);
    lk_tensor full = like(x);
    separate->batchnorm_forward(dev, &alone, x, shards, moments, &full);
    separate->maxpool_forward(dev, desc->pool, NULL, &full, desc->relu, y, desc->index);
    free(full.data);
    pooled_calls++;
}

/* dy before the pooling. */
static lk_tensor unpooled(lk_device *dev, const lk_batchnorm_desc *desc, const lk_tensor *x, const lk_tensor *dy)
{
    lk_tensor full = like(x);
    separate->maxpool_grad_input(dev, desc->pool, NULL, dy, desc->index, &full);
    return full;
}

static void add_sums(lk_device *dev, const lk_batchnorm_desc *desc, const lk_tensor *x, const lk_tensor *dy,
                     const lk_shards *shards, const lk_moments *moments, const lk_batchnorm_sums *out)
{
    if (!desc->pool) {
        separate->batchnorm_sums(dev, desc, x, dy, shards, moments, out);
        return;
    }
    lk_batchnorm_desc alone = without(desc, false);
    lk_tensor full = unpooled(dev, desc, x, dy);
    separate->batchnorm_sums(dev, &alone, x, &full, shards, moments, out);
    free(full.data);
}

static void grad_input(lk_device *dev, const lk_batchnorm_desc *desc, const lk_batchnorm_grad *grad, const lk_tensor *x,
                       const lk_tensor *dy, const lk_shards *shards, const lk_moments *moments, lk_tensor *dx)
{
    if (!desc->pool) {
        separate->batchnorm_grad_input(dev, desc, grad, x, dy, shards, moments, dx);
        return;
    }
    CHECK(!grad->add);
    lk_batchnorm_desc alone = without(desc, false);
    lk_tensor full = unpooled(dev, desc, x, dy);
    separate->batchnorm_grad_input(dev, &alone, grad, x, &full, shards, moments, dx);
    free(full.data);
}

static lk_status add_device(void)
{
    lk_device *cpu;
    LK_TRY(lk__device_open("cpu", &(lk_device_opts){.threads = 1}, &cpu));
    separate = cpu->kernels;
    pooled_kernels = *separate;
    lk__device_close(cpu);
    pooled_kernels.batchnorm_forward = forward;
    pooled_kernels.batchnorm_sums = add_sums;
    pooled_kernels.batchnorm_grad_input = grad_input;
    pooled_type = lk__device_cpu;
    pooled_type.name = "pooled";
    pooled_type.open = pooled_open;
    pooled_type.pools = pools;
    return lk__device_add(&pooled_type);
}

static const ranks_row rows[] = {
    {"one rank", BATCH, {.ranks = 1, .transport = "inproc", .threads = 2}},
    {"one rank in waves", SHARD, {.ranks = 1, .transport = "inproc", .threads = 1, .micro_batch = 5}},
    {"3 ranks, bn batch", BATCH, {.ranks = 3, .transport = "inproc", .threads = 1, .share = true}},
    {"3 ranks, bn shard", SHARD, {.ranks = 3, .transport = "shm", .threads = 1, .micro_batch = 3}},
    {"2 stages", BATCH, {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "2", .share = true}},
    {"4 stages", BATCH, {.ranks = 4, .transport = "inproc", .threads = 1, .stages = "4"}},
    {"pipelined",
     SHARD,
     {.ranks = 3, .transport = "inproc", .threads = 1, .stages = "3", .pipelined = true, .micro_batch = 3}},
};

static void test_row(void **arg)
{
    static ranks_truth truths[CASES];
    const ranks_row *r = *arg;
    law_way way = r->way;
    way.device = "pooled";
    ranks_expect(&cases[r->c], way, ranks_know(&cases[r->c], &truths[r->c]));
}

/* Trains with these parameters frozen, NULL for none; returns the hash of the state and the pooling's calls. */
static uint64_t train_frozen(const char *device, const char *frozen, size_t *calls)
{
    const law_group groups[] = {{frozen, {.frozen = true}}, {NULL, {0}}};
    law_case c = cases[BATCH];
    c.groups = groups;
    pooled_calls = 0;
    uint64_t hash = law_run(&c, (law_way){.device = device, .threads = 1});
    *calls = pooled_calls;
    return hash;
}

static void test_frozen(void **state)
{
    static const char *const patterns[] = {NULL, "*1.*", "conv*", "bn1.*", "fc.*"};
    size_t calls;
    for (size_t i = 0; i < COUNT_OF(patterns); i++) {
        uint64_t want = train_frozen("cpu", patterns[i], &calls);
        assert_int_equal(calls, 0);
        assert_true(train_frozen("pooled", patterns[i], &calls) == want);
        assert_int_equal(calls, 2 * cases[BATCH].steps);
    }
}

int main(void)
{
    law_require(add_device());
    return ranks_run_rows(rows, COUNT_OF(rows), NULL, test_row) + RUN_TESTS(NULL, NULL, TEST(test_frozen));
}
