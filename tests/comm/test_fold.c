/* test_fold.c - fold plans give the sums of the tree's definition: for random inputs and outputs,
 * every type, in place, and with the mean at the end. */
#include "base/tree.h"
#include "check.h"
#include "comm/collective/fold.h"
#include "comm/tree.h"

/* More than one block of every type, and not a multiple of a block. */
enum { COUNT = 9001, MAX_SHARDS = 24 };

static lk_device *device;

static float leaf(int shard, size_t i)
{
    uint32_t x = (uint32_t)shard * 2654435761u + (uint32_t)i * 40503u + 99u;
    x ^= x >> 15;
    x *= 2246822519u;
    return (float)(int32_t)x * (1.0f / (float)(1 + (x >> 7) % 100));
}

static float tree_sum(int lo, int hi, size_t i)
{
    if (hi - lo == 1)
        return leaf(lo, i);
    return tree_sum(lo, tree_middle(lo, hi), i) + tree_sum(tree_middle(lo, hi), hi, i);
}

static float *vector_of(lk_schedule_subtree tree)
{
    float *x = malloc(COUNT * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < COUNT; i++)
        x[i] = tree_sum(tree.first, tree.last, i);
    return x;
}

static void check_vector(const float *got, lk_schedule_subtree tree, float divisor)
{
    for (size_t i = 0; i < COUNT; i++) {
        float want = tree_sum(tree.first, tree.last, i) / divisor;
        if (memcmp(got + i, &want, sizeof want) != 0)
            fail_msg("[%d,%d) has %.9g at %zu, not %.9g", tree.first, tree.last, (double)got[i], i, (double)want);
    }
}

/* Divides the node at random into subtrees. */
static int cut(lk_schedule_subtree tree, lk_schedule_subtree *out, int count)
{
    if (tree.last - tree.first == 1 || rand() % 4 == 0) {
        out[count] = tree;
        return count + 1;
    }
    int mid = tree_middle(tree.first, tree.last);
    count = cut((lk_schedule_subtree){tree.first, mid}, out, count);
    return cut((lk_schedule_subtree){mid, tree.last}, out, count);
}

static void shuffle(lk_schedule_subtree *trees, int count)
{
    for (int i = count - 1; i > 0; i--) {
        int j = rand() % (i + 1);
        lk_schedule_subtree swap = trees[i];
        trees[i] = trees[j];
        trees[j] = swap;
    }
}

typedef struct problem {
    lk_schedule_subtree in[MAX_SHARDS], out[MAX_SHARDS];
    float *inputs[MAX_SHARDS], *outputs[MAX_SHARDS];
    int in_count, out_count;
} problem;

/* Random outputs, and inputs that are subtrees of them; in_place: each output overwrites an input. */
static void problem_init(problem *p, int shards, bool in_place)
{
    p->in_count = 0;
    p->out_count = cut((lk_schedule_subtree){0, shards}, p->out, 0);
    shuffle(p->out, p->out_count);
    for (int i = 0; i < p->out_count; i++)
        p->in_count = cut(p->out[i], p->in, p->in_count);
    shuffle(p->in, p->in_count);
    for (int i = 0; i < p->in_count; i++)
        p->inputs[i] = vector_of(p->in[i]);
    for (int i = 0; i < p->out_count; i++) {
        p->outputs[i] = in_place ? p->inputs[i] : malloc(COUNT * sizeof(float));
        assert_non_null(p->outputs[i]);
    }
}

static void problem_fini(problem *p, bool in_place)
{
    for (int i = 0; i < p->in_count; i++)
        free(p->inputs[i]);
    for (int i = 0; i < p->out_count && !in_place; i++)
        free(p->outputs[i]);
}

static void run(const problem *p, int shards, bool mean, bool last)
{
    lk_fold_plan *plan;
    assert_int_equal(lk__fold_plan_create(shards, p->in, p->in_count, p->out, p->out_count, &plan), LK_OK);
    lk_fold fold = {.device = device, .dtype = LK_DTYPE_F32, .count = COUNT, .divisor = shards, .last = last};
    fold.op = mean ? LK_REDUCTION_MEAN : LK_REDUCTION_SUM;
    fold.inputs = (const void *const *)p->inputs;
    fold.outputs = (void *const *)p->outputs;
    lk__fold_run(plan, &fold);
    lk__fold_plan_destroy(plan);
}

static void check_problem(int shards, bool in_place, bool mean, bool last)
{
    problem p;
    problem_init(&p, shards, in_place);
    run(&p, shards, mean, last);
    for (int i = 0; i < p.out_count; i++)
        check_vector(p.outputs[i], p.out[i], mean && last ? (float)shards : 1.0f);
    if (!in_place) {
        for (int i = 0; i < p.in_count; i++)
            check_vector(p.inputs[i], p.in[i], 1.0f);
    }
    problem_fini(&p, in_place);
}

static void test_random_cuts(void **state)
{
    srand(1);
    for (int shards = 1; shards <= MAX_SHARDS; shards++) {
        for (int i = 0; i < 8; i++)
            check_problem(shards, i & 1, i & 2, i & 4);
    }
}

/* Two outputs overwrite inputs of each other. */
static void test_outputs_over_others_inputs(void **state)
{
    problem p = {.in = {{0, 1}, {1, 2}, {2, 3}, {3, 4}}, .out = {{0, 2}, {2, 4}}, .in_count = 4, .out_count = 2};
    for (int i = 0; i < 4; i++)
        p.inputs[i] = vector_of(p.in[i]);
    p.outputs[0] = p.inputs[3];
    p.outputs[1] = p.inputs[0];
    run(&p, 4, false, true);
    check_vector(p.outputs[0], p.out[0], 1.0f);
    check_vector(p.outputs[1], p.out[1], 1.0f);
    problem_fini(&p, true);
}

/* Four equal shards of every type: their mean and their maximum are equal to each shard. */
static void test_types(void **state)
{
    static const lk_dtype dtypes[] = {LK_DTYPE_F32, LK_DTYPE_F64, LK_DTYPE_BF16,
                                      LK_DTYPE_I64, LK_DTYPE_I32, LK_DTYPE_U8};
    static const lk_schedule_subtree in[] = {{0, 1}, {1, 2}, {2, 3}, {3, 4}}, out[] = {{0, 4}};
    static uint8_t x[COUNT * 8], y[COUNT * 8];
    lk_fold_plan *plan;
    assert_int_equal(lk__fold_plan_create(4, in, 4, out, 1, &plan), LK_OK);
    for (size_t d = 0; d < COUNT_OF(dtypes); d++) {
        /* 0 or 32 in the top byte of each element; four times that overflows signed integers only. */
        size_t size = lk_dtype_size(dtypes[d]);
        memset(x, 0, sizeof x);
        memset(y, 0xff, sizeof y);
        for (size_t i = 0; i < COUNT; i++)
            x[i * size + size - 1] = i % 3 ? 32 : 0;
        lk_fold fold = {.device = device, .dtype = dtypes[d], .op = LK_REDUCTION_MEAN, .last = true, .divisor = 4};
        fold.count = COUNT;
        fold.inputs = (const void *const[]){x, x, x, x};
        fold.outputs = (void *const[]){y};
        lk__fold_run(plan, &fold);
        bool wraps = dtypes[d] == LK_DTYPE_I64 || dtypes[d] == LK_DTYPE_I32;
        for (size_t i = 0; i < COUNT * size && !wraps; i++)
            assert_int_equal(y[i], x[i]);
        fold.op = LK_REDUCTION_MAX;
        lk__fold_run(plan, &fold);
        assert_memory_equal(x, y, COUNT * size);
    }
    lk__fold_plan_destroy(plan);
}

static void test_nothing(void **state)
{
    lk_fold_plan *plan;
    assert_int_equal(lk__fold_plan_create(4, NULL, 0, NULL, 0, &plan), LK_OK);
    lk_fold fold = {.device = device, .dtype = LK_DTYPE_F32, .op = LK_REDUCTION_SUM, .count = COUNT};
    lk__fold_run(plan, &fold);
    lk__fold_plan_destroy(plan);
    lk__fold_plan_destroy(NULL);
}

static void test_missing_input(void **state)
{
    lk_fold_plan *plan = NULL;
    lk_schedule_subtree in[] = {{0, 1}, {2, 4}}, out[] = {{0, 4}};
    assert_fails(lk__fold_plan_create(4, in, 2, out, 1, &plan), LK_STATUS_USAGE, "shard 1");
    assert_null(plan);
    assert_int_equal(lk__fold_plan_create(4, in, 1, out, 1, &plan), LK_STATUS_USAGE);
    assert_null(plan);
}

static int open_device(void **state)
{
    return lk__device_open("cpu", &(lk_device_opts){.threads = 1}, &device) != LK_OK;
}

static int close_device(void **state)
{
    lk__device_close(device);
    return 0;
}

TEST_MAIN(open_device, close_device, TEST(test_random_cuts), TEST(test_outputs_over_others_inputs), TEST(test_types),
          TEST(test_nothing), TEST(test_missing_input))
