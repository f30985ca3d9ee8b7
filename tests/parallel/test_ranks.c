/* test_ranks.c - the law across ranks: weights and metrics do not depend on the number of ranks,
 * transports, hosts, threads, buckets, waves, stages and grids. All combinations are in
 * test_ranks_more.c. LAW_ONLY selects rows by a part of their name. */
#include "ranks.h"

enum {
    MLP,
    MLP_SGD,
    MLP_CLIP,
    MLP_48,
    CNN,
    CNN_CLIP,
    RES_BATCH,
    RES_SHARD,
    RES_5,
    RES_7,
    RES_CLIP,
    OPS,
    OPS_SHARD,
    GATES,
    NORMS,
    ATTENTION,
    UPSAMPLED,
    WINDOWS,
    CNN_2D,
    MOBILE,
    MOBILE_SHARD,
    PYRAMID,
    CASES
};
enum { KB = 1024, WHOLE = 1 << 30 };

/* Steps 4, 5 and 6 have half a batch, a whole one, and one sample. */
static const law_case cases[CASES] = {
    [MLP] = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, 8, 37, .shards = 16},
    [MLP_SGD] = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.05, 5, 11, .shards = 16, .first = 3},
    [MLP_CLIP] = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.1, 5, 20, 5, .first = 3, .clip_norm = 0.5},
    [MLP_48] = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adadelta", 1.0, 4, 51, .shards = 48, .first = 4},
    [CNN] = {"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "adadelta", 1.0, 3, 16, .shards = 16, .first = 4},
    [CNN_CLIP] = {"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, 3, 13, 7, .first = 4, .clip_norm = 0.25},
    [RES_BATCH] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.05, 4, 19, 16, .first = 4},
    [RES_SHARD] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_SHARD, "adam", 1e-3, 4, 19, 16, .first = 4},
    [RES_5] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_SHARD, "adadelta", 1.0, 4, 11, 5, .first = 4},
    [RES_7] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "adam", 1e-3, 4, 23, 7, .first = 4},
    [RES_CLIP] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "sgd", 0.1, 3, 9, 16, .first = 4, .clip_norm = 0.1},
    [OPS] = {"ops", LAW_ODD, LK_BN_MODE_BATCH, "adamw", 1e-3, 4, 19, 16, .first = 4, .label_smoothing = 0.1},
    [OPS_SHARD] = {"ops", LAW_ODD, LK_BN_MODE_SHARD, "sgd:momentum=.9", 0.05, 4, 19, 16, .first = 4, .clip_norm = 0.5},
    [GATES] = {"gates", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 4, 19, 16, .first = 4},
    [NORMS] = {"norms", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.05, 4, 19, 16, .first = 4, .clip_norm = 0.5},
    [ATTENTION] = {"attention", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 4, 19, 16, .first = 4},
    [UPSAMPLED] = {"upsampled", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 4, 19, 16, .first = 4},
    [WINDOWS] = {"windows", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 4, 19, 16, .first = 4},
    [CNN_2D] = {"cnn:dropout2d", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, 3, 13, 16, .first = 4,
                .label_smoothing = 0.2},
    [MOBILE] = {"mobilenet_v2:width=.1,cifar", LAW_SMALL, LK_BN_MODE_BATCH, "adamw", 1e-3, 2, 11, 16, .first = 3},
    [MOBILE_SHARD] = {"mobilenet_v2:width=.1,cifar", LAW_SMALL, LK_BN_MODE_SHARD, "adamw", 1e-3, 2, 11, 16, .first = 4},
    [PYRAMID] = {"pyramidnet:blocks=1,alpha=8", LAW_ODD, LK_BN_MODE_SHARD, "sgd:momentum=.9", 0.1, 3, 11, 16,
                 .first = 4},
};

static const ranks_row rows[] = {
    /* Thread ranks. */
    {"2 ranks: mlp", MLP, {.ranks = 2, .transport = "inproc", .threads = 1, .share = true}},
    {"3 ranks: mlp", MLP, {.ranks = 3, .transport = "inproc", .threads = 2, .bucket_bytes = 64 * KB}},
    {"4 ranks: mlp", MLP, {.ranks = 4, .transport = "inproc", .threads = 1, .bucket_bytes = 256 * KB, .share = true}},
    {"5 ranks: mlp", MLP, {.ranks = 5, .transport = "inproc", .threads = 1, .bucket_bytes = 64 * KB, .share = true}},
    {"8 ranks: mlp", MLP, {.ranks = 8, .transport = "inproc", .threads = 1, .bucket_bytes = WHOLE}},
    {"16 ranks: mlp", MLP, {.ranks = 16, .transport = "inproc", .threads = 1, .bucket_bytes = 64 * KB, .share = true}},
    {"16 ranks, 11 samples", MLP_SGD, {.ranks = 16, .transport = "inproc", .threads = 1, .share = true}},
    {"2 ranks: cnn", CNN, {.ranks = 2, .transport = "inproc", .threads = 1, .bucket_bytes = 256 * KB, .share = true}},
    {"3 ranks: cnn", CNN, {.ranks = 3, .transport = "inproc", .threads = 1}},
    {"5 ranks, bn batch", RES_BATCH, {.ranks = 5, .transport = "inproc", .threads = 1, .share = true}},
    {"16 ranks, bn batch", RES_BATCH, {.ranks = 16, .transport = "inproc", .threads = 1, .share = true}},
    {"3 threads, bn batch", RES_BATCH, {.ranks = 2, .transport = "inproc", .threads = 3, .bucket_bytes = 64 * KB}},
    {"4 ranks, bn shard", RES_SHARD, {.ranks = 4, .transport = "inproc", .threads = 2, .share = true}},
    {"8 ranks, bn shard", RES_SHARD, {.ranks = 8, .transport = "inproc", .threads = 1, .bucket_bytes = 16 * KB}},
    {"5 ranks, 5 shards", RES_5, {.ranks = 5, .transport = "inproc", .threads = 1, .share = true}},
    {"7 ranks, 7 shards", RES_7, {.ranks = 7, .transport = "inproc", .threads = 1, .share = true}},
    {"3 ranks, 7 shards", RES_7, {.ranks = 3, .transport = "inproc", .threads = 1, .bucket_bytes = 64 * KB}},
    {"steps in halves", RES_7, {.ranks = 2, .transport = "inproc", .threads = 1, .share = true, .halves = true}},
    {"a group of one", RES_BATCH, {.ranks = 1, .transport = "inproc", .threads = 2, .share = true}},
    /* Processes. */
    {"shm, 2 ranks", CNN, {.ranks = 2, .transport = "shm", .threads = 1, .share = true}},
    {"shm, 3 ranks", RES_BATCH, {.ranks = 3, .transport = "shm", .threads = 2, .bucket_bytes = 64 * KB}},
    {"shm, 5 ranks", MLP, {.ranks = 5, .transport = "shm", .threads = 1, .bucket_bytes = 64 * KB, .share = true}},
    {"tcp, 2 ranks", RES_SHARD, {.ranks = 2, .transport = "tcp", .threads = 3, .share = true}},
    {"tcp, 3 ranks", MLP, {.ranks = 3, .transport = "tcp", .threads = 1, .bucket_bytes = 64 * KB, .share = true}},
    {"tcp, 5 ranks", RES_7, {.ranks = 5, .transport = "tcp", .threads = 1}},
    {"auto, 2 hosts", MLP, {.ranks = 2, .transport = "auto", .hosts = "ab", .threads = 1, .share = true}},
    {"auto, 3 on 2 hosts", RES_5, {.ranks = 3, .transport = "auto", .hosts = "aab", .threads = 1, .share = true}},
    {"auto, 5 on 3 hosts",
     RES_BATCH,
     {.ranks = 5, .transport = "auto", .hosts = "abbca", .threads = 1, .bucket_bytes = 64 * KB, .share = true}},
    /* Threads of processes. */
    {"nested, 2 processes", RES_BATCH, {.ranks = 4, .devices = 2, .transport = "auto", .threads = 1, .share = true}},
    {"nested, 3 on 2 hosts",
     MLP,
     {.ranks = 6, .devices = 2, .transport = "auto", .hosts = "aabbaa", .threads = 1, .share = true}},
    /* Waves, and a batch of 3 times 17 samples and 16 shards run in waves. */
    {"waves of 1", MLP, {.ranks = 3, .transport = "inproc", .threads = 1, .micro_batch = 1, .share = true}},
    {"waves of 3", RES_SHARD, {.ranks = 2, .transport = "inproc", .threads = 1, .micro_batch = 3, .share = true}},
    {"waves, 5 shards",
     MLP_CLIP,
     {.ranks = 2, .transport = "inproc", .threads = 2, .micro_batch = 3, .bucket_bytes = 64 * KB}},
    {"accumulate 3", MLP_48, {.ranks = 2, .transport = "inproc", .threads = 1, .micro_batch = 9, .share = true}},
    {"accumulate 3, 5 ranks",
     MLP_48,
     {.ranks = 5, .transport = "inproc", .threads = 1, .micro_batch = 4, .bucket_bytes = 64 * KB, .share = true}},
    /* The norm of the gradient. */
    {"clip, 3 ranks: mlp", MLP_CLIP, {.ranks = 3, .transport = "inproc", .threads = 1, .share = true}},
    {"clip, 2 ranks: cnn", CNN_CLIP, {.ranks = 2, .transport = "shm", .threads = 1, .bucket_bytes = 256 * KB}},
    {"clip, 5 ranks: resnet", RES_CLIP, {.ranks = 5, .transport = "inproc", .threads = 1, .bucket_bytes = 16 * KB}},
    {"clip, 2 stages", CNN_CLIP, {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "2", .share = true}},
    {"clip, 3 stages of 2 replicas",
     RES_CLIP,
     {.ranks = 6, .transport = "inproc", .threads = 1, .stages = "3", .share = true}},
    /* Every operation in every mode. */
    {"2 ranks: ops", OPS, {.ranks = 2, .transport = "inproc", .threads = 2, .share = true}},
    {"5 ranks: ops", OPS_SHARD, {.ranks = 5, .transport = "inproc", .threads = 1, .bucket_bytes = 16 * KB}},
    {"shm: ops", OPS, {.ranks = 3, .transport = "shm", .threads = 1, .share = true}},
    {"tcp: ops", OPS_SHARD, {.ranks = 2, .transport = "tcp", .threads = 1, .share = true}},
    {"nested: ops", OPS, {.ranks = 4, .devices = 2, .transport = "auto", .threads = 1, .share = true}},
    {"2 stages: ops", OPS, {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "2", .share = true}},
    {"pipelined: ops",
     OPS_SHARD,
     {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "2", .pipelined = true, .micro_batch = 3}},
    {"grid: ops",
     OPS_SHARD,
     {.ranks = 4, .transport = "inproc", .threads = 1, .stages = "2", .pipelined = true, .share = true}},
    {"3 ranks: gates", GATES, {.ranks = 3, .transport = "inproc", .threads = 1, .share = true}},
    {"pipelined: gates",
     GATES,
     {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "2", .pipelined = true, .micro_batch = 3}},
    {"3 ranks: norms", NORMS, {.ranks = 3, .transport = "shm", .threads = 1, .share = true}},
    {"pipelined: norms",
     NORMS,
     {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "2", .pipelined = true, .micro_batch = 3}},
    {"3 ranks: attention", ATTENTION, {.ranks = 3, .transport = "tcp", .threads = 1, .share = true}},
    {"pipelined: attention",
     ATTENTION,
     {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "2", .pipelined = true, .micro_batch = 3}},
    {"3 ranks: upsampled", UPSAMPLED, {.ranks = 3, .transport = "inproc", .threads = 1, .share = true}},
    {"pipelined: upsampled",
     UPSAMPLED,
     {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "2", .pipelined = true, .micro_batch = 3}},
    {"3 ranks: windows", WINDOWS, {.ranks = 3, .transport = "inproc", .threads = 1, .share = true}},
    {"pipelined: windows",
     WINDOWS,
     {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "2", .pipelined = true, .micro_batch = 3}},
    {"3 ranks: dropout2d", CNN_2D, {.ranks = 3, .transport = "inproc", .threads = 1, .share = true}},
    {"pipelined: dropout2d",
     CNN_2D,
     {.ranks = 2, .transport = "shm", .threads = 1, .stages = "2", .pipelined = true, .share = true}},
    {"grid: dropout2d", CNN_2D, {.ranks = 4, .transport = "inproc", .threads = 1, .stages = "2", .share = true}},
    {"4 ranks: mobilenet", MOBILE, {.ranks = 4, .transport = "inproc", .threads = 1, .share = true}},
    {"tcp: mobilenet", MOBILE, {.ranks = 2, .transport = "tcp", .threads = 1, .bucket_bytes = 64 * KB}},
    {"2 stages: mobilenet", MOBILE, {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "2", .share = true}},
    {"grid: mobilenet", MOBILE, {.ranks = 6, .transport = "inproc", .threads = 1, .stages = "3", .share = true}},
    {"shm: mobilenet", MOBILE, {.ranks = 3, .transport = "shm", .threads = 1, .share = true}},
    {"nested: mobilenet", MOBILE, {.ranks = 4, .devices = 2, .transport = "auto", .threads = 1, .share = true}},
    {"pipelined: mobilenet",
     MOBILE_SHARD,
     {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "2", .pipelined = true, .micro_batch = 3}},
    {"5 ranks: pyramidnet", PYRAMID, {.ranks = 5, .transport = "inproc", .threads = 1, .share = true}},
    {"shm: pyramidnet", PYRAMID, {.ranks = 2, .transport = "shm", .threads = 1, .bucket_bytes = 16 * KB}},
    {"pipelined: pyramidnet",
     PYRAMID,
     {.ranks = 3, .transport = "inproc", .threads = 1, .stages = "3", .pipelined = true, .micro_batch = 4}},
    {"grid: pyramidnet", PYRAMID, {.ranks = 4, .transport = "inproc", .threads = 1, .stages = "2", .share = true}},
    /* Stages, one at a time. */
    {"2 stages: cnn", CNN, {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "2", .share = true}},
    {"2 stages: mlp", MLP, {.ranks = 2, .transport = "shm", .threads = 1, .stages = "2"}},
    {"3 stages: mlp", MLP, {.ranks = 3, .transport = "tcp", .threads = 1, .stages = "3", .share = true}},
    {"3 stages, bn batch", RES_BATCH, {.ranks = 3, .transport = "inproc", .threads = 1, .stages = "3", .share = true}},
    {"3 stages, bn shard", RES_SHARD, {.ranks = 3, .transport = "auto", .hosts = "aba", .threads = 1, .stages = "3"}},
    {"2 stages in waves",
     RES_SHARD,
     {.ranks = 2, .transport = "inproc", .threads = 2, .stages = "2", .micro_batch = 5, .share = true}},
    {"stage by name: mlp", MLP, {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "chunk2.0", .share = true}},
    {"stages by name: resnet",
     RES_7,
     {.ranks = 3, .transport = "inproc", .threads = 1, .stages = "layer2.0.conv1,layer3.1.conv1", .share = true}},
    /* Stages that compute at the same time. */
    {"pipelined: cnn",
     CNN,
     {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "2", .pipelined = true, .share = true}},
    {"pipelined, waves of 1",
     MLP,
     {.ranks = 3, .transport = "inproc", .threads = 1, .stages = "3", .pipelined = true, .micro_batch = 1}},
    {"pipelined, waves of 3",
     RES_SHARD,
     {.ranks = 2, .transport = "shm", .threads = 1, .stages = "2", .pipelined = true, .micro_batch = 3, .share = true}},
    {"pipelined, waves of 8",
     RES_5,
     {.ranks = 3, .transport = "tcp", .threads = 1, .stages = "3", .pipelined = true, .micro_batch = 8, .share = true}},
    {"pipelined, bn batch",
     RES_BATCH,
     {.ranks = 2, .transport = "inproc", .threads = 2, .stages = "2", .pipelined = true, .micro_batch = 4}},
    {"pipelined by name",
     CNN,
     {.ranks = 2, .transport = "auto", .hosts = "ab", .threads = 1, .stages = "fc1", .pipelined = true, .share = true}},
    /* Replicas of stages. */
    {"grid 2x2: mlp",
     MLP,
     {.ranks = 4, .transport = "inproc", .threads = 1, .stages = "2", .bucket_bytes = 64 * KB, .share = true}},
    {"grid 2x2: cnn, pipelined",
     CNN,
     {.ranks = 4, .transport = "shm", .threads = 1, .stages = "2", .pipelined = true, .micro_batch = 2, .share = true}},
    {"grid 2x2, bn batch",
     RES_BATCH,
     {.ranks = 4, .transport = "auto", .hosts = "aabb", .threads = 1, .stages = "2", .share = true}},
    {"grid of 2 replicas, 3 stages",
     RES_SHARD,
     {.ranks = 6, .transport = "inproc", .threads = 1, .stages = "3", .pipelined = true, .micro_batch = 3}},
    {"grid of 3 replicas, 2 stages",
     RES_7,
     {.ranks = 6, .transport = "inproc", .threads = 1, .stages = "2", .share = true}},
    {"grid of 5 replicas, 2 stages",
     RES_5,
     {.ranks = 10, .transport = "inproc", .threads = 1, .stages = "2", .pipelined = true, .share = true}},
    {"grid, nested",
     RES_SHARD,
     {.ranks = 4, .devices = 2, .transport = "auto", .threads = 1, .stages = "2", .pipelined = true, .share = true}},
};

static void test_row(void **arg)
{
    static ranks_truth truths[CASES];
    const ranks_row *r = *arg;
    ranks_expect(&cases[r->c], r->way, ranks_know(&cases[r->c], &truths[r->c]));
}

/* A run with clipping must differ from one without, or the rows with clipping would show nothing. */
static void test_clipping_matters(void **arg)
{
    static const int clipped[] = {MLP_CLIP, CNN_CLIP, RES_CLIP};
    for (size_t i = 0; i < 3; i++) {
        law_case c = cases[clipped[i]], free_run = c;
        free_run.clip_norm = 0;
        assert_true(law_run(&c, (law_way){.threads = 2}) != law_run(&free_run, (law_way){.threads = 2}));
    }
}

int main(void)
{
    const char *only = getenv("LAW_ONLY");
    int failed = ranks_run_rows(rows, COUNT_OF(rows), only, test_row);
    return only ? failed : failed + RUN_TESTS(NULL, NULL, TEST(test_clipping_matters));
}
