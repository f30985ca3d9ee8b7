/* own_op.c - ops of the program's own on the device under test: lk_op_check, the law over waves and steps that are
 * recorded, and activations in bf16. */
#define OWN_OPS_CUDA
#include "parallel/law.h"

#include "tensor/kernel_test.h"

static void test_checks(void **arg)
{
    static const char *const ops[] = {"swish", "gate", "bucket"};
    static const size_t channels[] = {3, 5, 8, 40};
    own_ops_register();
    for (size_t i = 0; i < COUNT_OF(ops); i++)
        for (size_t k = 0; k < COUNT_OF(channels); k++) {
            lk_op_size size = {2, 3, channels[k]};
            lk_op_check_opts opts = {.x = {size, size}, .device = fx_name()};
            if (strcmp(ops[i], "bucket") == 0) { /* where it has no steps */
                opts.low = 3;
                opts.high = 5;
            }
            assert_ok(lk_op_check(ops[i], &opts));
        }
}

static void test_law(void **arg)
{
    static const law_case c = {"own", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-2, 10, 21, 16, .hash = 0};
    law_way way = {.device = fx_name(), .threads = 1};
    uint64_t want = law_run(&c, way);
    for (way.micro_batch = 1; way.micro_batch < 16; way.micro_batch *= 3)
        law_expect(&c, way, want);
}

static void test_bf16(void **arg)
{
    static const law_case c = {"own", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-2, 10, 12, 3, .hash = 0};
    lk_graph *g;
    lk_engine *engine;
    lk_batch batch;
    lk_metrics first, last;
    law_samples s = law_samples_make(&c);
    lk_engine_opts opts = {
        .device = fx_name(), .batch = c.batch, .shards = 3, .lr = 0.05, .precision = LK_PRECISION_BF16};
    assert_ok(lk_graph_create(&g));
    lk_node x = lk_input(g, c.shape.channels, c.shape.height, c.shape.width);
    x = lk_conv2d(g, x, "conv", (lk_conv2d_opts){.out = 7, .kernel = 3, .stride = 2});
    x = lk_op_add(g, "swish", "swish", &x, 1, NULL, 0);
    lk_cross_entropy(g, lk_linear(g, lk_flatten(g, x), "fc", c.shape.classes));
    assert_ok(lk_engine_create(g, &opts, &engine));
    law_batch(&c, 0, s.x, s.labels, s.ids, &batch);
    assert_ok(lk_engine_step(engine, &batch, &first));
    for (int i = 0; i < 10; i++)
        assert_ok(lk_engine_step(engine, &batch, &last));
    assert_true(last.loss < first.loss);
    lk_engine_destroy(engine);
    lk_graph_destroy(g);
    law_samples_free(&s);
}

int main(void)
{
    if (fx_present())
        return RUN_TESTS(NULL, NULL, TEST(test_checks), TEST(test_law), TEST(test_bf16));
    puts("skipped: no GPU");
    return FX_SKIPPED;
}
