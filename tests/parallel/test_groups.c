/* test_groups.c - parameter groups: the law over threads, waves, builds, ranks and stages; changes during a run, also
 * of recorded steps; and wrong calls. PyTorch's values are in golden/test_groups.c. */
#include <math.h>

#include "ranks.h"
#include "tape.h"

#include "parallel/step/param_groups.h"
#include "tensor/cpu/cpu.h"

enum { MLP, CNN, RES_BATCH, RES_SHARD, HEAD, HEAD_SHARD, LOWEST, MIDDLE, PARTS, NONE, CASES };
enum { KB = 1024 };

static const law_group scaled[] = {{"*", {.lr_scale = .5}},
                                   {"*.bias", {.lr_scale = 2, .weight_decay = LK_NO_DECAY}},
                                   {"*1.weight", {.weight_decay = .25}},
                                   {0}};
static const law_group norms[] = {
    {"*bn*", {.lr_scale = .125, .weight_decay = LK_NO_DECAY}}, {"fc.*", {.lr_scale = 4, .weight_decay = .01}}, {0}};
static const law_group head[] = {{"*", {.frozen = true}}, {"fc*", {.lr_scale = 2}}, {0}};
static const law_group lowest[] = {{"conv1.*", {.frozen = true}}, {"fc2.bias", {.lr_scale = 2}}, {0}};
static const law_group middle[] = {{"layer2*", {.frozen = true}}, {"*.conv1.*", {.frozen = true}}, {0}};
static const law_group parts[] = {{"*1.weight", {.frozen = true}}, {"*2.bias", {.frozen = true}}, {0}};
static const law_group none[] = {{"*", {.frozen = true}}, {0}};

static const law_case cases[CASES] = {
    [MLP] = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adamw", 1e-3, 4, 19, 16, .first = 3, .groups = scaled},
    [CNN] = {"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "adadelta:weight_decay=.01", 1, 3, 13, 7, .first = 4, .groups = scaled,
             .clip_norm = .25},
    [RES_BATCH] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "sgd:momentum=.9,weight_decay=1e-4", .05, 3, 11, 16,
                   .first = 4, .groups = norms},
    [RES_SHARD] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_SHARD, "rmsprop", 1e-3, 3, 11, 5, .first = 4,
                   .groups = norms},
    [HEAD] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "sgd:momentum=.9", .05, 3, 11, 16, .first = 4,
              .groups = head},
    [HEAD_SHARD] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_SHARD, "adam", 1e-3, 3, 11, 7, .first = 4, .groups = head,
                    .clip_norm = .1},
    [LOWEST] = {"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "adadelta", 1, 3, 13, 16, .first = 4, .groups = lowest},
    [MIDDLE] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "adamw", 1e-3, 3, 11, 16, .first = 4, .groups = middle,
                .clip_norm = .1},
    [PARTS] = {"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, 3, 13, 7, .first = 4, .groups = parts},
    [NONE] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "sgd", .05, 3, 11, 16, .first = 4, .groups = none},
};

static const ranks_row rows[] = {
    {"2 ranks", MLP, {.ranks = 2, .transport = "inproc", .threads = 1, .bucket_bytes = 16 * KB}},
    {"3 ranks", CNN, {.ranks = 3, .transport = "inproc", .threads = 2, .bucket_bytes = 8 * KB, .share = true}},
    {"3 ranks, bn batch", RES_BATCH, {.ranks = 3, .transport = "inproc", .threads = 1, .bucket_bytes = 1 * KB}},
    {"2 ranks, bn shard", RES_SHARD, {.ranks = 2, .transport = "inproc", .threads = 1, .halves = true}},
    {"2 stages", MLP, {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "2"}},
    {"3 stages, pipelined", CNN, {.ranks = 3, .transport = "inproc", .threads = 1, .stages = "3", .pipelined = true}},
    {"2 x 2 stages", RES_SHARD, {.ranks = 4, .transport = "inproc", .threads = 1, .stages = "2", .share = true}},
    {"head, 3 ranks", HEAD, {.ranks = 3, .transport = "inproc", .threads = 1, .bucket_bytes = 1 * KB}},
    {"head, 2 ranks, bn shard", HEAD_SHARD, {.ranks = 2, .transport = "inproc", .threads = 2, .share = true}},
    {"head, 2 stages", HEAD, {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "2"}},
    {"head, 3 stages", HEAD_SHARD, {.ranks = 3, .transport = "inproc", .threads = 1, .stages = "3", .pipelined = true}},
    {"lowest, 5 ranks", LOWEST, {.ranks = 5, .transport = "inproc", .threads = 1, .bucket_bytes = 1 * KB}},
    {"lowest, 2 stages", LOWEST, {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "conv2"}},
    {"middle, 2 x 2", MIDDLE, {.ranks = 4, .transport = "inproc", .threads = 1, .stages = "2", .bucket_bytes = 1 * KB}},
    {"middle, 3 ranks", MIDDLE, {.ranks = 3, .transport = "shm", .threads = 1, .bucket_bytes = 1 * KB}},
    {"parts, 3 ranks", PARTS, {.ranks = 3, .transport = "inproc", .threads = 1, .halves = true}},
    {"parts, 2 stages", PARTS, {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "2", .pipelined = true}},
    {"2 processes", RES_BATCH, {.ranks = 2, .transport = "shm", .threads = 1, .stages = "2"}},
};

static lk_device_type tape;
static lk_kernels tape_device_kernels;

static lk_status open_tape(const lk_device_opts *opts, lk_device **out)
{
    LK_TRY(lk__device_cpu.open(opts, out));
    (*out)->type = &tape;
    if (!tape_device_kernels.fetch) {
        tape_device_kernels = *(*out)->kernels;
        tape_watch(&tape_device_kernels);
    }
    (*out)->kernels = &tape_device_kernels;
    return LK_OK;
}

static int prepare(void **state)
{
    tape = lk__device_cpu;
    tape.name = "tape";
    tape.open = open_tape;
    tape_extend(&tape);
    return lk__device_add(&tape) == LK_OK ? 0 : -1;
}

static void test_patterns(void **arg)
{
    static const struct {
        const char *pattern, *key;
        bool matches;
    } table[] = {
        {"fc.*", "fc.weight", true},
        {"fc.*", "fc1.weight", false},
        {"fc?.*", "fc1.weight", true},
        {"fc?.*", "fc.weight", false},
        {"*", "a", true},
        {"*", "", true},
        {"", "", true},
        {"", "a", false},
        {"*.bias", "layer1.0.bn1.bias", true},
        {"*.bias", "bias", false},
        {"layer1*bn?.weight", "layer1.0.bn1.weight", true},
        {"layer1*bn?.weight", "layer1.0.bn1.weights", false},
        {"*a*b*", "xxaxxabx", true},
        {"*ab", "abaab", true},
        {"*ab", "aba", false},
        {"a**b", "ab", true},
        {"[a].weight", "a.weight", false},
        {"conv1.weight", "conv1.weight", true},
        {"conv1.weigh", "conv1.weight", false},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++)
        if (lk__param_groups_match(table[i].pattern, table[i].key) != table[i].matches)
            fail_msg("'%s' and '%s'", table[i].pattern, table[i].key);
}

static void test_threads_waves_and_builds(void **arg)
{
    const lk_cpu_build *build;
    for (int i = 0; i < CASES; i++) {
        const law_case *c = &cases[i];
        law_case plain = *c;
        plain.groups = NULL;
        uint64_t want = law_run(c, (law_way){.threads = 1});
        assert_true(want != law_run(&plain, (law_way){.threads = 1}));
        law_expect(c, (law_way){.threads = 3}, want);
        law_expect(c, (law_way){.threads = 2, .micro_batch = 3}, want);
        law_expect(c, (law_way){.device = "tape", .threads = 1}, want);
        for (size_t b = 0; (build = lk__cpu_build_list(b)); b++)
            law_expect(c, (law_way){.isa = build->name, .threads = 2}, want);
    }
}

static void test_row(void **arg)
{
    static ranks_truth truths[CASES];
    const ranks_row *r = *arg;
    ranks_expect(&cases[r->c], r->way, ranks_know(&cases[r->c], &truths[r->c]));
}

/* A group with the optimiser's own values, and a group that is set back to them, give the bits of no group. */
static void test_own_values(void **arg)
{
    static const law_group same[] = {{"*.bias", {.lr_scale = 1, .weight_decay = .01}}, {0}};
    static const law_group back[] = {{"*", {.lr_scale = 3, .weight_decay = LK_NO_DECAY}}, {"*", {.lr_scale = 1}}, {0}};
    law_case c = cases[MLP];
    c.groups = NULL;
    uint64_t want = law_run(&c, (law_way){.threads = 1});
    c.groups = same;
    law_expect(&c, (law_way){.threads = 1}, want);
    c.groups = back;
    law_expect(&c, (law_way){.threads = 1}, want);
}

/* Makes steps, some of them recorded, with other groups in between; returns the hash. */
static uint64_t run_changes(const char *device)
{
    enum { STEPS = 12 };
    law_case c = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, STEPS, 12, .shards = 4};
    law_samples s = law_samples_make(&c);
    lk_engine *engine = law_engine(&c, (law_way){.device = device, .threads = 1});
    for (int i = 0; i < STEPS; i++) {
        lk_batch batch;
        lk_metrics metrics;
        lk_param_group group = {.lr_scale = 1 + i};
        law_batch(&c, i % 4, s.x, s.labels, s.ids, &batch);
        if (i % 4 == 3)
            law_require(lk_engine_set_group(engine, i == 3 ? "chunk1.*" : "*.weight", &group));
        law_require(lk_engine_step(engine, &batch, &metrics));
    }
    uint64_t hash = law_hash_all(engine);
    lk_engine_destroy(engine);
    law_samples_free(&s);
    return hash;
}

/* The tape ends the process if a recording is played with other arguments. */
static void test_changes_of_recorded_steps(void **arg)
{
    size_t recorded = tape_recorded, played = tape_played;
    assert_true(run_changes("cpu") == run_changes("tape"));
    assert_int_equal(tape_recorded - recorded, 4);
    assert_true(tape_played - played >= 8);
    assert_int_equal(tape_kept, 0);
}

static void expect_refused(lk_engine *engine, const char *pattern, lk_param_group group, lk_status status,
                           const char *words)
{
    assert_fails(lk_engine_set_group(engine, pattern, &group), status, words);
}

static void test_misuse(void **arg)
{
    lk_engine *engine = law_engine(&cases[MLP], (law_way){.threads = 1});
    expect_refused(engine, "conv*", (lk_param_group){0}, LK_STATUS_MISMATCH,
                   "no parameter's key matches the pattern 'conv*'; the keys are chunk1.1.weight, chunk1.1.bias");
    expect_refused(engine, "*", (lk_param_group){.lr_scale = -1}, LK_STATUS_USAGE, "`lr_scale` -1");
    expect_refused(engine, "*", (lk_param_group){.lr_scale = NAN}, LK_STATUS_USAGE, "`lr_scale`");
    expect_refused(engine, "*", (lk_param_group){.lr_scale = 1e39}, LK_STATUS_USAGE, "`lr_scale`");
    expect_refused(engine, "*", (lk_param_group){.weight_decay = -.5}, LK_STATUS_USAGE, "`weight_decay` -0.5");
    expect_refused(engine, "*", (lk_param_group){.weight_decay = NAN}, LK_STATUS_USAGE, "`weight_decay`");
    expect_refused(engine, "*", (lk_param_group){.weight_decay = INFINITY}, LK_STATUS_USAGE, "`weight_decay`");
    expect_refused(engine, "*", (lk_param_group){.reserved = {1}}, LK_STATUS_USAGE, "reserved");
    assert_fails(lk_engine_set_group(engine, NULL, &(lk_param_group){0}), LK_STATUS_USAGE, "pattern");
    assert_fails(lk_engine_set_group(engine, "*", NULL), LK_STATUS_USAGE, "group");
    assert_fails(lk_engine_set_group(NULL, "*", &(lk_param_group){0}), LK_STATUS_USAGE, "engine");
    lk_engine_destroy(engine);
}

/* Resnet20 has 65 parameters; with the optimiser's own settings, 16 of them can differ. */
static void test_too_many_groups(void **arg)
{
    static const char *const keys[] = {"layer1.0.conv1.*", "layer1.0.conv2.*", "layer1.1.conv1.*", "layer1.1.conv2.*",
                                       "layer1.2.conv1.*", "layer1.2.conv2.*", "layer2.0.conv1.*", "layer2.0.conv2.*",
                                       "layer2.1.conv1.*", "layer2.1.conv2.*", "layer2.2.conv1.*", "layer2.2.conv2.*",
                                       "layer3.0.conv1.*", "layer3.0.conv2.*", "layer3.1.conv1.*", "layer3.1.conv2.*"};
    lk_engine *engine = law_engine(&cases[RES_BATCH], (law_way){.threads = 1});
    law_require(lk_engine_set_group(engine, "*", &(lk_param_group){0}));
    for (size_t i = 0; i < 15; i++)
        law_require(lk_engine_set_group(engine, keys[i], &(lk_param_group){.lr_scale = 2 + (double)i}));
    expect_refused(engine, keys[15], (lk_param_group){.lr_scale = 99}, LK_STATUS_USAGE, "16 different groups");
    law_require(lk_engine_set_group(engine, keys[15], &(lk_param_group){.lr_scale = 3}));
    lk_engine_destroy(engine);
}

/* Ranks that set different groups all get the same error; a wrong call that all ranks make does not break the job. */
static bool be_odd(lk_group *group, const team_spec *team, const void *arg)
{
    lk_engine *engine = ranks_engine(&cases[MLP], &(law_way){.threads = 1}, group);
    lk_param_group own = {.lr_scale = lk_group_rank(group) == 1 ? 2 : 3};
    CHECK(lk_engine_set_group(engine, "nothing", &(lk_param_group){0}) == LK_STATUS_MISMATCH);
    CHECK(lk_engine_set_group(engine, "*", &(lk_param_group){.lr_scale = -1}) == LK_STATUS_USAGE);
    CHECK(lk_engine_set_group(engine, "chunk1.*", &own) == LK_STATUS_MISMATCH);
    CHECK(strstr(lk_error_detail(), "rank 1 has `lr_scale` 2, rank 0 has `lr_scale` 3"));
    CHECK(lk_engine_set_group(engine, lk_group_rank(group) ? "chunk1.*" : "chunk2.*", &(lk_param_group){0}) ==
          LK_STATUS_MISMATCH);
    CHECK_OK(lk_engine_set_group(engine, "chunk1.*", &(lk_param_group){.lr_scale = 2}));
    lk_engine_destroy(engine);
    return false;
}

static void test_ranks_that_differ(void **arg)
{
    assert_true(team_run((team_spec){.size = 3, .transport = "inproc", .timeout = RANKS_TIMEOUT}, be_odd, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_patterns),         TEST(test_threads_waves_and_builds),
                                       TEST(test_own_values),       TEST(test_changes_of_recorded_steps),
                                       TEST(test_misuse),           TEST(test_too_many_groups),
                                       TEST(test_ranks_that_differ)};
    int failed = cmocka_run_group_tests(tests, prepare, NULL);
    return failed + ranks_run_rows(rows, COUNT_OF(rows), getenv("LAW_ONLY"), test_row);
}
