/* test_law.c - the law within one process: threads, waves, builds of the
 * kernels, uneven and tiny batches leave no trace in the weights. LAW_STEPS
 * shortens the runs where they are slow, under a sanitizer. */
#include "law.h"
#include "tensor/cpu/cpu.h"

static const law_case cases[] = {
    {"cnn", LAW_MNIST, LK_BN_BATCH, "adadelta", 1.0, 8, 16, .shards = 16},
    {"cnn", LAW_MNIST, LK_BN_BATCH, "sgd:momentum=.9", 0.05, 8, 37, .shards = 16},
    {"mlp", LAW_MNIST, LK_BN_BATCH, "adam", 1e-3, 8, 64, .shards = 16},
    {"mlp", LAW_MNIST, LK_BN_BATCH, "sgd", 0.1, 8, 5, .shards = 16},
    {"mlp", LAW_MNIST, LK_BN_BATCH, "adam", 1e-3, 8, 50, .shards = 7},
    {"resnet20", LAW_CIFAR, LK_BN_BATCH, "sgd:momentum=.9", 0.05, 2, 19, .shards = 16},
    {"resnet20", LAW_CIFAR, LK_BN_SHARD, "adam", 1e-3, 2, 21, .shards = 6},
    {"resnet20:width=5", LAW_CIFAR, LK_BN_SHARD, "adadelta", 1.0, 8, 9, .shards = 16},
    {"resnet20:width=5", LAW_CIFAR, LK_BN_BATCH, "sgd:momentum=.9", 0.05, 8, 9, .shards = 16},
    {"ops", LAW_ODD, LK_BN_BATCH, "adamw", 1e-3, 8, 21, .shards = 16, .label_smoothing = 0.1},
    {"ops", LAW_ODD, LK_BN_SHARD, "sgd:momentum=.9", 0.05, 8, 11, .shards = 5},
    {"cnn:dropout2d", LAW_MNIST, LK_BN_BATCH, "adam", 1e-3, 3, 19, .shards = 16, .label_smoothing = 0.2},
    {"mobilenet_v2:width=.1,cifar", LAW_SMALL, LK_BN_BATCH, "adamw", 1e-3, 3, 19, .shards = 16, .first = 4},
    {"mobilenet_v2:width=.1,cifar", LAW_SMALL, LK_BN_SHARD, "sgd:momentum=.9", 0.05, 3, 11, .shards = 4, .first = 4},
    {"pyramidnet:blocks=1,alpha=8", LAW_ODD, LK_BN_BATCH, "sgd:momentum=.9,weight_decay=1e-4", 0.1, 4, 13,
     .shards = 16},
    {"pyramidnet:blocks=1,alpha=8", LAW_ODD, LK_BN_SHARD, "adam", 1e-3, 4, 13, .shards = 7},
};

static void for_each_case(void (*check)(const law_case *c, uint64_t want))
{
    const char *steps = getenv("LAW_STEPS");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        law_case c = cases[i];
        if (steps && strtol(steps, NULL, 10) < c.steps)
            c.steps = (int)strtol(steps, NULL, 10);
        check(&c, law_run(&c, (law_way){.threads = 1}));
    }
}

static void check_threads(const law_case *c, uint64_t want)
{
    for (size_t i = 0; i < 3; i++)
        law_expect(c, (law_way){.threads = (int[]){2, 3, 5}[i]}, want);
}

static void check_waves(const law_case *c, uint64_t want)
{
    for (size_t i = 0; i < 5; i++)
        law_expect(c, (law_way){.threads = 2, .micro_batch = (size_t[]){1, 2, 3, 7, 16}[i]}, want);
}

static void check_builds(const law_case *c, uint64_t want)
{
    const lk_cpu_build *build;
    for (size_t i = 0; (build = lk__cpu_build_list(i)); i++)
        law_expect(c, (law_way){.isa = build->name, .threads = 2, .micro_batch = i * 4}, want);
}

static void test_threads(void **arg)
{
    for_each_case(check_threads);
}

static void test_waves(void **arg)
{
    for_each_case(check_waves);
}

static void test_builds(void **arg)
{
    for_each_case(check_builds);
}

/* The shards are part of the result: another number gives other bits. A hash
 * that did not notice would make every test here empty. */
static void test_shards_matter(void **arg)
{
    law_case other = cases[2];
    other.shards = 8;
    uint64_t one = law_run(&cases[2], (law_way){.threads = 1});
    assert_true(one != law_run(&other, (law_way){.threads = 1}));
}

int main(void)
{
    return RUN_TESTS(test_threads, test_waves, test_builds, test_shards_matter);
}
