/* test_frozen.c - frozen parameters: they cost no backward pass, the others get the bits that they get without
 * freezing, and a step that was frozen can be unfrozen. */
#include <stdatomic.h>

#include "base/rng.h"
#include "ranks.h"
#include "tensor/device.h"

static const law_case cases[] = {
    {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adamw", 1e-3, 2, 9, .shards = 4},
    {"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "adadelta", 1, 2, 9, .shards = 4},
    {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "sgd:momentum=.9", .05, 2, 7, .shards = 4},
    {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_SHARD, "adam", 1e-3, 2, 7, .shards = 3},
    {"ops", LAW_ODD, LK_BN_MODE_BATCH, "adamw", 1e-3, 2, 7, .shards = 4},
    {"leaky", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 2, 7, .shards = 4},
    {"gates", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 2, 7, .shards = 4},
    {"norms", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 2, 7, .shards = 4},
    {"attention", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 2, 7, .shards = 4},
    {"upsampled", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 2, 7, .shards = 4},
    {"mobilenet_v2:width=.1,cifar", LAW_SMALL, LK_BN_MODE_BATCH, "adamw", 1e-3, 2, 5, .shards = 4},
    {"pyramidnet:blocks=1,alpha=8", LAW_ODD, LK_BN_MODE_SHARD, "adam", 1e-3, 2, 7, .shards = 3},
    {"weighted", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 2, 7, .shards = 4},
    {"robust", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 2, 7, .shards = 4},
};

/* Which of a model's parameters are frozen: the first `lowest`, and the others with a chance of 1 in `odds`, if that is
 * not 0. */
typedef struct choice {
    size_t lowest;
    uint32_t odds, seed;
} choice;

static bool is_frozen(choice ch, size_t index)
{
    lk_rng rng = lk__rng(ch.seed, LK_RNG_PURPOSE_AUGMENT, 0, 0, 0);
    return index < ch.lowest || (ch.odds && lk__rng_u32(&rng, index) % ch.odds == 0);
}

static void make_step(const law_case *c, lk_engine *engine, int step)
{
    law_samples s = law_samples_make(c);
    lk_batch batch;
    lk_metrics metrics;
    law_batch(c, step, s.x, s.labels, s.ids, &batch);
    law_require(lk_engine_step(engine, &batch, &metrics));
    law_samples_free(&s);
}

static lk_state *grads_of(const lk_engine *engine)
{
    lk_state *grads;
    law_require(lk_engine_grads(engine, &grads));
    return grads;
}

static lk_state *state_of(const lk_engine *engine)
{
    lk_state *state;
    law_require(lk_engine_state(engine, &state));
    return state;
}

static void freeze(lk_engine *engine, const lk_state *keys, choice ch)
{
    lk_param_group frozen = {.frozen = true};
    for (size_t i = 0; i < lk_state_count(keys); i++)
        if (is_frozen(ch, i))
            law_require(lk_engine_set_group(engine, lk_state_at(keys, i)->name, &frozen));
}

/* A step in which the chosen parameters get their values from before it back. */
static void restore_step(const law_case *c, lk_engine *engine, int step, choice ch)
{
    lk_state *before = state_of(engine), *grads;
    make_step(c, engine, step);
    lk_state *after = state_of(engine);
    grads = grads_of(engine);
    for (size_t i = 0; i < lk_state_count(grads); i++) {
        const char *key = lk_state_at(grads, i)->name;
        if (is_frozen(ch, i))
            memcpy(lk_state_find(after, key)->data, lk_state_find(before, key)->data, lk_state_at(grads, i)->bytes);
    }
    law_require(lk_engine_set_state(engine, after));
    lk_state_destroy(grads);
    lk_state_destroy(after);
    lk_state_destroy(before);
}

/* Gradients are those of the engine without freezing, and zero for frozen parameters. */
static void compare_grads(const lk_engine *engine, const lk_engine *free_engine, choice ch)
{
    lk_state *ours = grads_of(engine), *all = grads_of(free_engine);
    for (size_t i = 0; i < lk_state_count(ours); i++) {
        const lk_state_entry *a = lk_state_at(ours, i), *b = lk_state_at(all, i);
        if (is_frozen(ch, i))
            memset(b->data, 0, b->bytes);
        if (memcmp(a->data, b->data, a->bytes) != 0)
            fail_msg("the gradient of %s differs", a->name);
    }
    lk_state_destroy(all);
    lk_state_destroy(ours);
}

static void expect_same(const law_case *c, choice ch)
{
    lk_engine *engine = law_engine(c, (law_way){.threads = 2, .micro_batch = ch.seed % 2 ? 3 : 0});
    lk_engine *free_engine = law_engine(c, (law_way){.threads = 1});
    make_step(c, engine, 0);
    make_step(c, free_engine, 0);
    lk_state *keys = grads_of(engine);
    freeze(engine, keys, ch);
    for (int step = 1; step < 1 + c->steps; step++) {
        make_step(c, engine, step);
        restore_step(c, free_engine, step, ch);
        compare_grads(engine, free_engine, ch);
        if (law_hash(engine) != law_hash(free_engine))
            fail_msg("%s %s, the lowest %zu and 1 in %u (seed %u) frozen: other bits than without freezing", c->model,
                     c->optimizer, ch.lowest, ch.odds, ch.seed);
    }
    lk_state_destroy(keys);
    lk_engine_destroy(free_engine);
    lk_engine_destroy(engine);
}

static void test_the_others_keep_their_bits(void **arg)
{
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        for (size_t lowest = 1; lowest < 64; lowest = lowest * 2 + 1)
            expect_same(&cases[i], (choice){.lowest = lowest});
        for (uint32_t seed = 0; seed < 3; seed++)
            expect_same(&cases[i], (choice){.odds = 2 + seed, .seed = seed});
    }
}

/* After unfreezing, the engine computes as one with its state that was never frozen. */
static void test_unfreezing(void **arg)
{
    for (size_t i = 0; i < 4; i++) {
        const law_case *c = &cases[i];
        lk_engine *engine = law_engine(c, (law_way){.threads = 1}), *other = law_engine(c, (law_way){.threads = 1});
        lk_state *unread;
        make_step(c, engine, 0);
        law_require(lk_engine_set_group(engine, "*", &(lk_param_group){.frozen = true}));
        assert_fails(lk_engine_grads(engine, &unread), LK_STATUS_USAGE, "no gradients");
        assert_fails(lk_engine_update(engine), LK_STATUS_USAGE, "no gradients");
        make_step(c, engine, 1);
        law_require(lk_engine_set_group(engine, "*", &(lk_param_group){.frozen = false}));
        lk_state *state = state_of(engine), *optimizer;
        law_require(lk_engine_optimizer_state(engine, &optimizer));
        law_require(lk_engine_set_state(other, state));
        law_require(lk_engine_set_optimizer_state(other, optimizer));
        for (int step = 2; step < 4; step++) {
            make_step(c, engine, step);
            make_step(c, other, step);
        }
        assert_true(law_hash_all(engine) == law_hash_all(other));
        lk_state_destroy(optimizer);
        lk_state_destroy(state);
        lk_engine_destroy(other);
        lk_engine_destroy(engine);
    }
}

/* A model of frozen parameters moves its running statistics only. */
static void test_statistics(void **arg)
{
    const law_case *c = &cases[2];
    lk_engine *engine = law_engine(c, (law_way){.threads = 1});
    law_require(lk_engine_set_group(engine, "*", &(lk_param_group){.frozen = true}));
    lk_state *before = state_of(engine);
    make_step(c, engine, 0);
    lk_state *after = state_of(engine);
    for (size_t i = 0; i < lk_state_count(before); i++) {
        const lk_state_entry *a = lk_state_at(before, i), *b = lk_state_at(after, i);
        bool buffer = strstr(a->name, "running_") || strstr(a->name, "num_batches");
        if ((memcmp(a->data, b->data, a->bytes) != 0) != buffer)
            fail_msg("%s", a->name);
    }
    lk_state_destroy(after);
    lk_state_destroy(before);
    lk_engine_destroy(engine);
}

/* Device "counted" counts calls of the kernels of gradients. */
static lk_device_type counted;
static lk_kernels counting, counted_cpu;
static atomic_int weight_calls, input_calls;

static void count_conv_weight(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *x, const lk_tensor *dy,
                              const lk_shards *shards, lk_partials dw, lk_partials db, void *scratch)
{
    weight_calls++;
    counted_cpu.conv2d_grad_weight(dev, conv, x, dy, shards, dw, db, scratch);
}

static void count_conv_input(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *dy, const void *w,
                             const lk_tensor *mask, lk_tensor *dx, void *scratch)
{
    input_calls++;
    counted_cpu.conv2d_grad_input(dev, conv, dy, w, mask, dx, scratch);
}

static void count_linear_weight(lk_device *dev, const lk_tensor *x, const lk_tensor *dy, const lk_shards *shards,
                                lk_partials dw, lk_partials db, void *scratch)
{
    weight_calls++;
    counted_cpu.linear_grad_weight(dev, x, dy, shards, dw, db, scratch);
}

static void count_linear_input(lk_device *dev, const lk_tensor *dy, const void *w, const lk_tensor *mask,
                               const lk_dropout_desc *dropout, lk_tensor *dx, void *scratch)
{
    input_calls++;
    counted_cpu.linear_grad_input(dev, dy, w, mask, dropout, dx, scratch);
}

static lk_status open_counted(const lk_device_opts *opts, lk_device **out)
{
    LK_TRY(lk__device_cpu.open(opts, out));
    counted_cpu = counting = *(*out)->kernels;
    counting.conv2d_grad_weight = count_conv_weight;
    counting.conv2d_grad_input = count_conv_input;
    counting.linear_grad_weight = count_linear_weight;
    counting.linear_grad_input = count_linear_input;
    (*out)->type = &counted;
    (*out)->kernels = &counting;
    return LK_OK;
}

static int prepare(void **state)
{
    counted = lk__device_cpu;
    counted.name = "counted";
    counted.open = open_counted;
    return lk__device_add(&counted) == LK_OK ? 0 : -1;
}

static void expect_calls(lk_engine *engine, const char *pattern, int weights, int inputs)
{
    static const lk_param_group trained = {.frozen = false}, frozen = {.frozen = true};
    law_require(lk_engine_set_group(engine, "*", &trained));
    law_require(lk_engine_set_group(engine, pattern, &frozen));
    weight_calls = input_calls = 0;
    make_step(&cases[1], engine, 0);
    if (weight_calls != weights || input_calls != inputs)
        fail_msg("'%s' frozen: %d and %d calls, not %d and %d", pattern, weight_calls, input_calls, weights, inputs);
}

/* The cnn is conv1, conv2, fc1, fc2. */
static void test_frozen_layers_cost_no_backward_pass(void **arg)
{
    lk_engine *engine = law_engine(&cases[1], (law_way){.device = "counted", .threads = 1});
    expect_calls(engine, "fc2.bias", 4, 3);
    expect_calls(engine, "conv1.*", 3, 2);
    expect_calls(engine, "conv?.*", 2, 1);
    expect_calls(engine, "*c*1.*", 2, 2);
    expect_calls(engine, "fc?.*", 2, 3);
    expect_calls(engine, "conv2.*", 3, 3);
    expect_calls(engine, "*", 0, 0);
    lk_engine_destroy(engine);
}

TEST_MAIN(prepare, NULL, TEST(test_the_others_keep_their_bits), TEST(test_unfreezing), TEST(test_statistics),
          TEST(test_frozen_layers_cost_no_backward_pass))
