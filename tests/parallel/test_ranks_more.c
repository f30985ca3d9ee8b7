/* test_ranks_more.c - the law across ranks for many combinations of models, worlds and ways to run;
 * many ranks reach the hashes of law_table.h. */
#include "law_table.h"
#include "ranks.h"

/* The steps 4 to 6 have half a batch, a batch and one sample. */
static const law_case cases[] = {
    {"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.05, 3, 19, .shards = 16, .first = 4},
    {"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, 3, 16, .shards = 20, .first = 4, .clip_norm = 0.5},
    {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, 3, 64, .shards = 16, .first = 4},
    {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "sgd:momentum=.9,nesterov=1", 0.1, 3, 5, .shards = 17, .first = 4},
    {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adadelta", 1.0, 3, 50, .shards = 21, .first = 4},
    {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "adam", 1e-3, 3, 23, .shards = 16, .first = 4},
    {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_SHARD, "sgd:momentum=.9", 0.05, 3, 23, .shards = 16, .first = 4},
    {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "adadelta", 1.0, 3, 37, .shards = 19, .first = 4,
     .clip_norm = 0.1},
    {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_SHARD, "adam", 1e-3, 3, 37, .shards = 19, .first = 4},
    {"ops", LAW_ODD, LK_BN_MODE_BATCH, "adamw", 1e-3, 3, 23, .shards = 16, .first = 4, .label_smoothing = 0.1},
    {"ops", LAW_ODD, LK_BN_MODE_SHARD, "sgd:momentum=.9", 0.05, 3, 19, .shards = 17, .first = 4, .clip_norm = 0.5},
    {"gates", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 3, 23, .shards = 16, .first = 4},
    {"norms", LAW_ODD, LK_BN_MODE_BATCH, "adamw", 1e-3, 3, 19, .shards = 17, .first = 4},
    {"attention", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 3, 23, .shards = 16, .first = 4},
    {"upsampled", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 3, 19, .shards = 17, .first = 4},
    {"windows", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 3, 23, .shards = 16, .first = 4},
    {"cnn:dropout2d", LAW_MNIST, LK_BN_MODE_BATCH, "adadelta", 1.0, 3, 19, .shards = 16, .first = 4,
     .label_smoothing = 0.2},
    {"mobilenet_v2:width=.1,cifar", LAW_SMALL, LK_BN_MODE_BATCH, "adamw", 1e-3, 3, 19, .shards = 16, .first = 4},
    {"pyramidnet:blocks=1,alpha=8", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.1, 3, 19, .shards = 16, .first = 4},
    {"pyramidnet:blocks=1,alpha=8", LAW_ODD, LK_BN_MODE_SHARD, "adam", 1e-3, 3, 21, .shards = 21, .first = 4},
};
enum { CASES = COUNT_OF(cases) };

static ranks_truth truths[CASES];

static int find_truths(void **arg)
{
    for (size_t i = 0; i < CASES; i++)
        ranks_find_truth(&cases[i], &truths[i]);
    return 0;
}

/* Sets the options that are not part of the grid of ranks; `turn` selects their values. */
static law_way varied(law_way way, size_t turn)
{
    static const size_t buckets[] = {64 << 10, 256 << 10, 0, 1 << 30};
    static const size_t waves[] = {0, 1, 3, 8};
    way.threads = 1 + (int)(turn % 3);
    way.bucket_bytes = buckets[turn % 4];
    way.micro_batch = waves[turn / 3 % 4];
    way.share = turn % 2 == 0;
    way.halves = turn % 5 == 0;
    return way;
}

/* Every way with every third case, in turn: each case meets a third of the ways of every kind. */
static void run_all(const law_way *ways, size_t count)
{
    size_t turn = 0;
    for (size_t w = 0; w < count; w++) {
        for (size_t i = w % 3; i < CASES; i += 3)
            ranks_expect(&cases[i], varied(ways[w], turn++), &truths[i]);
    }
}

static void test_threads(void **arg)
{
    static const law_way ways[] = {
        {.ranks = 2, .transport = "inproc"},  {.ranks = 3, .transport = "inproc"}, {.ranks = 4, .transport = "inproc"},
        {.ranks = 5, .transport = "inproc"},  {.ranks = 8, .transport = "inproc"}, {.ranks = 11, .transport = "inproc"},
        {.ranks = 16, .transport = "inproc"},
    };
    run_all(ways, COUNT_OF(ways));
}

static void test_processes(void **arg)
{
    static const law_way ways[] = {
        {.ranks = 2, .transport = "shm"},
        {.ranks = 5, .transport = "shm"},
        {.ranks = 16, .transport = "shm"},
        {.ranks = 3, .transport = "tcp"},
        {.ranks = 8, .transport = "tcp"},
        {.ranks = 3, .transport = "auto", .hosts = "aab"},
        {.ranks = 5, .transport = "auto", .hosts = "abbca"},
        {.ranks = 16, .transport = "auto", .hosts = "aaaabbbbccccdddd"},
        {.ranks = 4, .devices = 2, .transport = "auto", .hosts = "aabb"},
        {.ranks = 6, .devices = 2, .transport = "auto"},
    };
    run_all(ways, COUNT_OF(ways));
}

static void test_stages(void **arg)
{
    static const law_way ways[] = {
        {.ranks = 2, .transport = "inproc", .stages = "2"},
        {.ranks = 3, .transport = "inproc", .stages = "3"},
        {.ranks = 2, .transport = "inproc", .stages = "2", .pipelined = true},
        {.ranks = 3, .transport = "inproc", .stages = "3", .pipelined = true},
        {.ranks = 3, .transport = "shm", .stages = "3", .pipelined = true},
        {.ranks = 2, .transport = "tcp", .stages = "2", .pipelined = true},
        {.ranks = 2, .devices = 2, .transport = "auto", .stages = "2", .pipelined = true},
    };
    run_all(ways, COUNT_OF(ways));
}

static void test_grids(void **arg)
{
    static const law_way ways[] = {
        {.ranks = 4, .transport = "inproc", .stages = "2"},
        {.ranks = 4, .transport = "auto", .hosts = "abab", .stages = "2", .pipelined = true},
        {.ranks = 6, .transport = "inproc", .stages = "3", .pipelined = true},
        {.ranks = 6, .transport = "shm", .stages = "2"},
        {.ranks = 16, .transport = "inproc", .stages = "2", .pipelined = true},
        {.ranks = 15, .transport = "inproc", .stages = "3"},
        {.ranks = 4, .devices = 2, .transport = "auto", .hosts = "aabb", .stages = "2", .pipelined = true},
    };
    run_all(ways, COUNT_OF(ways));
}

/* The hashes of law_table.h; metrics are compared with those of one rank. */
static void test_table(void **arg)
{
    static const law_way ways[] = {
        {.ranks = 2, .transport = "shm", .threads = 1, .share = true},
        {.ranks = 3, .transport = "inproc", .threads = 1, .share = true},
        {.ranks = 5, .transport = "tcp", .threads = 1, .share = true},
        {.ranks = 16, .transport = "inproc", .threads = 1, .bucket_bytes = 64 << 10, .share = true},
        {.ranks = 4, .transport = "inproc", .threads = 1, .stages = "2", .share = true},
        {.ranks = 4, .transport = "shm", .threads = 1, .stages = "2", .pipelined = true, .micro_batch = 2},
    };
    for (size_t row = 0; row < LAW_TABLE; row++) {
        const law_case *c = &law_table[row];
        ranks_truth truth;
        ranks_find_truth(c, &truth);
        assert_true(truth.hash == c->hash);
        for (size_t w = 0; w < COUNT_OF(ways); w++) {
            if (ways[w].stages || ways[w].ranks <= c->shards)
                ranks_expect(c, ways[w], &truth);
        }
    }
}

TEST_MAIN(find_truths, NULL, TEST(test_threads), TEST(test_processes), TEST(test_stages), TEST(test_grids),
          TEST(test_table))
