/* test_law.c - the law in one process: the weights do not depend on threads, waves or the build of
 * the kernels, also with uneven and tiny batches. LAW_STEPS limits the steps of a run, and the runs to
 * one of each kind, for slow sanitizer builds. */
#include "law.h"
#include "tensor/cpu/cpu.h"

static const law_case cases[] = {
    {"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "adadelta", 1.0, 8, 16, .shards = 16},
    {"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.05, 8, 37, .shards = 16},
    {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, 8, 64, .shards = 16},
    {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "sgd", 0.1, 8, 5, .shards = 16},
    {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, 8, 50, .shards = 7},
    {"resnet20", LAW_CIFAR, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.05, 2, 19, .shards = 16},
    {"resnet20", LAW_CIFAR, LK_BN_MODE_SHARD, "adam", 1e-3, 2, 21, .shards = 6},
    {"resnet20:width=5", LAW_CIFAR, LK_BN_MODE_SHARD, "adadelta", 1.0, 8, 9, .shards = 16},
    {"resnet20:width=5", LAW_CIFAR, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.05, 8, 9, .shards = 16},
    {"ops", LAW_ODD, LK_BN_MODE_BATCH, "adamw", 1e-3, 8, 21, .shards = 16, .label_smoothing = 0.1},
    {"ops", LAW_ODD, LK_BN_MODE_SHARD, "sgd:momentum=.9", 0.05, 8, 11, .shards = 5},
    {"gates", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 8, 21, .shards = 16},
    {"norms", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 8, 21, .shards = 16},
    {"attention", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 8, 21, .shards = 16},
    {"upsampled", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 8, 21, .shards = 16},
    {"own", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-2, 8, 21, .shards = 16},
    {"autoencoder", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 8, 21, .shards = 16},
    {"robust", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.05, 8, 21, .shards = 16, .clip_norm = 0.25},
    {"robust", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 8, 19, .shards = 5},
    {"own_loss", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 8, 21, .shards = 16},
    {"weighted", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 8, 21, .shards = 16, .label_smoothing = 0.1},
    {"windows", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 8, 21, .shards = 16},
    {"cnn:dropout2d", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, 3, 19, .shards = 16, .label_smoothing = 0.2},
    {"mobilenet_v2:width=.1,cifar", LAW_SMALL, LK_BN_MODE_BATCH, "adamw", 1e-3, 3, 19, .shards = 16, .first = 4},
    {"mobilenet_v2:width=.1,cifar", LAW_SMALL, LK_BN_MODE_SHARD, "sgd:momentum=.9", 0.05, 3, 11, .shards = 4,
     .first = 4},
    {"pyramidnet:blocks=1,alpha=8", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9,weight_decay=1e-4", 0.1, 4, 13,
     .shards = 16},
    {"pyramidnet:blocks=1,alpha=8", LAW_ODD, LK_BN_MODE_SHARD, "adam", 1e-3, 4, 13, .shards = 7},
    {"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "adadelta", 1.0, 3, 19, .shards = 16, .precision = LK_PRECISION_BF16},
    {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, 8, 50, .shards = 7, .precision = LK_PRECISION_BF16},
    {"resnet20:width=5", LAW_CIFAR, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.05, 3, 9, .shards = 16,
     .precision = LK_PRECISION_BF16},
    {"windows", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 8, 21, .shards = 16, .precision = LK_PRECISION_BF16},
};

static void check(const law_case *c, bool all)
{
    static const int threads[] = {2, 3, 5};
    static const size_t waves[] = {1, 2, 3, 7, 16};
    const lk_cpu_build *build;
    uint64_t want = law_run(c, (law_way){.threads = 1});
    for (size_t i = all ? 0 : 1; i < (all ? COUNT_OF(threads) : 2); i++)
        law_expect(c, (law_way){.threads = threads[i]}, want);
    for (size_t i = all ? 0 : 3; i < (all ? COUNT_OF(waves) : 4); i++)
        law_expect(c, (law_way){.threads = 2, .micro_batch = waves[i]}, want);
    for (size_t i = 0; (build = lk__cpu_build_list(i)); i++)
        law_expect(c, (law_way){.isa = build->name, .threads = 2, .micro_batch = i * 4}, want);
}

static void test_threads_waves_and_builds(void **arg)
{
    for (size_t i = 0; i < COUNT_OF(cases); i += law_every())
        check(&cases[i], !getenv("LAW_STEPS"));
}

/* Another number of shards gives other bits. If the hash did not change, the test above would show
 * nothing. */
static void test_shards_matter(void **arg)
{
    law_case other = cases[2];
    other.shards = 8;
    uint64_t one = law_run(&cases[2], (law_way){.threads = 1});
    assert_true(one != law_run(&other, (law_way){.threads = 1}));
}

TEST_MAIN(NULL, NULL, TEST(test_threads_waves_and_builds), TEST(test_shards_matter))
