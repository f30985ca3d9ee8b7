/* test_device_sums.c - gradients that are summed between devices: the bits are those of one rank on
 * the CPU, and the group moves no gradients; devices that cannot do it, and lost peers. */
#include "joined.h"
#include "ranks.h"

#include "parallel/step/engine_impl.h"

enum { MLP, ODD, CLIP, RES_BATCH, OPS, CASES };
enum { KB = 1024 };

static const law_case cases[CASES] = {
    [MLP] = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, 3, 37, .shards = 16, .first = 4},
    [ODD] = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, 3, 37, .shards = 11, .first = 4},
    [CLIP] = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.1, 3, 20, 5, .first = 4, .clip_norm = 0.5},
    [RES_BATCH] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.05, 3, 19, 16, .first = 4},
    [OPS] = {"ops", LAW_ODD, LK_BN_MODE_SHARD, "adamw", 1e-3, 3, 11, 7, .first = 4, .clip_norm = .5,
             .label_smoothing = .1},
};

static const ranks_row rows[] = {
    {"one rank", MLP, {.ranks = 1, .threads = 1}},
    {"2 ranks", MLP, {.ranks = 2, .threads = 1, .bucket_bytes = 64 * KB, .share = true}},
    {"3 ranks", MLP, {.ranks = 3, .threads = 1, .bucket_bytes = 256 * KB}},
    {"4 ranks", MLP, {.ranks = 4, .threads = 1, .share = true}},
    {"5 ranks in waves", MLP, {.ranks = 5, .threads = 1, .micro_batch = 1, .share = true}},
    {"2 ranks, 11 shards", ODD, {.ranks = 2, .threads = 1, .bucket_bytes = 64 * KB, .share = true}},
    {"3 ranks, 11 shards", ODD, {.ranks = 3, .threads = 1, .bucket_bytes = 4 * KB}},
    {"4 ranks, 11 shards", ODD, {.ranks = 4, .threads = 1, .share = true}},
    {"5 ranks, 11 shards", ODD, {.ranks = 5, .threads = 1, .bucket_bytes = 16 * KB}},
    {"3 ranks in halves", ODD, {.ranks = 3, .threads = 1, .halves = true}},
    {"3 ranks, clip", CLIP, {.ranks = 3, .threads = 1, .share = true}},
    {"5 ranks of a shard each, clip", CLIP, {.ranks = 5, .threads = 1}},
    {"3 ranks, bn batch", RES_BATCH, {.ranks = 3, .threads = 1, .bucket_bytes = 16 * KB}},
    {"5 ranks: ops", OPS, {.ranks = 5, .threads = 1, .bucket_bytes = 1 * KB, .share = true}},
    {"2 stages", RES_BATCH, {.ranks = 2, .threads = 1, .stages = "2", .share = true}},
    {"3 stages in waves", OPS, {.ranks = 3, .threads = 1, .stages = "3", .micro_batch = 3}},
    {"4 stages, pipelined", OPS, {.ranks = 4, .threads = 1, .stages = "4", .pipelined = true, .micro_batch = 1}},
    {"grid, bn batch", RES_BATCH, {.ranks = 4, .threads = 1, .stages = "2", .bucket_bytes = 16 * KB, .share = true}},
    {"grid, pipelined: ops", OPS, {.ranks = 6, .threads = 1, .stages = "2", .pipelined = true, .micro_batch = 1}},
};

/* Ends of channels: each rank has one for sums, and each pair of neighbouring stages has two links. On one device,
 * channels are tried before they are chosen. */
static int ends_of(const law_way *way)
{
    int stages = way->stages ? (int)strtol(way->stages, NULL, 10) : 1, replicas = way->ranks / stages;
    int trials = joined_places == 1;
    return (1 + trials) * (replicas > 1 ? way->ranks : 0) + (4 + 2 * trials) * replicas * (stages - 1);
}

static void test_row(void **arg)
{
    static ranks_truth truths[CASES];
    const ranks_row *r = *arg;
    law_way way = r->way;
    way.device = "far";
    way.transport = "inproc";
    int before = *joined_opened;
    ranks_expect(&cases[r->c], way, ranks_know(&cases[r->c], &truths[r->c]));
    assert_int_equal(*joined_opened - before, ends_of(&way));
}

/* The rows on one device. */
static void test_near_row(void **arg)
{
    joined_places = 1;
    test_row(arg);
    joined_places = 0;
}

/* The expected results of making an engine and of a step with it. */
typedef struct attempt {
    lk_engine_opts opts;
    lk_status create, step;
    const char *text;
    const char *places;                                            /* a letter for the device of each rank, or NULL */
    const char *gradient_backend, *stage_backend, *stage_obstacle; /* of the layout; of the obstacle only a part */
} attempt;

static void check_name(const char *name, const char *want)
{
    CHECK(!name == !want && (!name || strcmp(name, want) == 0));
}

static void check_layout(lk_layout layout, const attempt *a)
{
    check_name(layout.gradient_backend, a->gradient_backend);
    check_name(layout.stage_backend, a->stage_backend);
    CHECK(!layout.stage_obstacle == !a->stage_obstacle);
    if (a->stage_obstacle)
        CHECK_TEXT(layout.stage_obstacle, a->stage_obstacle);
}

static bool try_it(lk_group *group, const team_spec *team, const void *arg)
{
    const attempt *a = arg;
    const law_case *c = &cases[ODD];
    lk_engine_opts opts = law_opts(c, &(law_way){.device = "far", .threads = 1});
    lk_engine *engine;
    lk_batch batch;
    lk_metrics metrics;
    law_samples s = law_samples_make(c);
    opts.group = group;
    opts.reduce = a->opts.reduce;
    opts.backend = a->opts.backend;
    opts.stages = a->opts.stages;
    opts.device = a->opts.device ? a->opts.device : opts.device;
    joined_at = a->places ? a->places[lk_group_rank(group)] : 0;
    lk_status status = law_create(c, &opts, &engine);
    CHECK(status == a->create);
    if (status == LK_OK) {
        check_layout(lk_engine_layout(engine), a);
        law_batch(c, 0, s.x, s.labels, s.ids, &batch);
        status = lk_engine_step(engine, &batch, &metrics);
        CHECK(status == a->step);
        if (status == LK_OK)
            CHECK_OK(lk_engine_check(engine));
    }
    if (a->text)
        CHECK_TEXT(lk_error_detail(), a->text);
    if (a->create == LK_OK)
        lk_engine_destroy(engine);
    law_samples_free(&s);
    return false;
}

static void expect(int ranks, double timeout, attempt a)
{
    law_way way = {.ranks = ranks, .transport = "inproc", .threads = 1};
    team_spec team = ranks_team(&way);
    team.timeout = timeout > 0 ? timeout : team.timeout;
    assert_true(team_run(team, try_it, &a));
}

static void test_choice(void **arg)
{
    expect(3, 0, (attempt){.gradient_backend = "joined"});
    expect(3, 0, (attempt){.opts.backend = "host"});
    joined_places = 2;
    expect(3, 0, (attempt){0});
    expect(3, 0,
           (attempt){.opts.backend = "joined",
                     .create = LK_STATUS_USAGE,
                     .text = "`backend` joined: gradients cannot be summed between the devices: ranks "});
    expect(3, 0,
           (attempt){.opts.backend = "near",
                     .create = LK_STATUS_USAGE,
                     .text = "`backend` near: gradients cannot be summed between the devices: ranks "});
    joined_places = 1;
    expect(3, 0, (attempt){.gradient_backend = "near"});
    joined_refuses = 2;
    expect(3, 0, (attempt){0});
    expect(3, 0,
           (attempt){.opts.backend = "near",
                     .create = LK_STATUS_USAGE,
                     .text = "`backend` near: gradients cannot be summed between the devices: rank 1: no memory"});
    joined_refuses = 0;
    expect(
        2, 0,
        (attempt){.opts.reduce = LK_REDUCE_ORDER_ENGINE,
                  .create = LK_STATUS_USAGE,
                  .text = "`reduce` engine: gradients cannot be summed between the devices: ranks 0 and 1 have one"});
    joined_places = 0;
    expect(2, 0,
           (attempt){.opts.backend = "joint",
                     .create = LK_STATUS_USAGE,
                     .text = "`backend` joint: gradients cannot be summed between the devices: this build has nothing "
                             "for that between devices of kind far"});
    joined_missing = true;
    expect(2, 0, (attempt){0});
    expect(2, 0,
           (attempt){.opts.reduce = LK_REDUCE_ORDER_ENGINE,
                     .create = LK_STATUS_USAGE,
                     .text = "`reduce` engine: gradients cannot be summed between the devices: rank 0: no library"});
    joined_missing = false;
    expect(1, 0,
           (attempt){.opts = {.reduce = LK_REDUCE_ORDER_ENGINE, .device = "cpu"},
                     .create = LK_STATUS_USAGE,
                     .text = "`reduce` engine: gradients cannot be summed between the devices: this build has nothing "
                             "for that between devices of kind cpu"});
}

static void test_choice_of_links(void **arg)
{
    const lk_engine_opts two = {.stages = "2"}, host = {.stages = "2", .backend = "host"};
    const lk_engine_opts joined = {.stages = "2", .backend = "joined"};
    const lk_engine_opts three = {.stages = "3"}, near = {.stages = "3", .backend = "near"};
    expect(2, 0, (attempt){.opts = two, .stage_backend = "joined"});
    expect(2, 0, (attempt){.opts = two, .places = "AA", .stage_backend = "near"});
    expect(2, 0, (attempt){.opts = joined, .stage_backend = "joined"});
    expect(2, 0, (attempt){.opts = host});
    expect(4, 0, (attempt){.opts = joined, .gradient_backend = "joined", .stage_backend = "joined"});
    expect(3, 0, (attempt){.opts = three, .places = "AAB", .stage_backend = "joined and near"});
    expect(2, 0,
           (attempt){.opts = joined,
                     .places = "AA",
                     .create = LK_STATUS_USAGE,
                     .text = "`backend` joined: activations cannot be sent from device to device: ranks 0 and "
                             "1 have one device (far A), where joined needs one for each rank; leave it out"});
    expect(3, 0,
           (attempt){.opts = near,
                     .places = "AAB",
                     .create = LK_STATUS_USAGE,
                     .text = "`backend` near: activations cannot be sent from device to device: ranks 1 and 2 "
                             "have two devices (far A; far B)"});
    joined_refuses = 2;
    expect(3, 0, (attempt){.opts = three, .places = "AAA", .stage_obstacle = "rank 1: no memory to lend"});
    joined_refuses = 0;
    joined_missing = true;
    expect(4, 0, (attempt){.opts = two, .stage_obstacle = "rank 0: no library for it"});
    expect(2, 0, (attempt){.opts = host});
    expect(2, 0,
           (attempt){.opts = joined,
                     .create = LK_STATUS_USAGE,
                     .text = "`backend` joined: activations cannot be sent from device to device: rank 0: no"});
    joined_missing = false;
}

/* With the order of the backend, replicas are still equal. */
static void test_engine_order(void **arg)
{
    for (int ranks = 1; ranks <= 5; ranks++)
        expect(ranks, 0,
               (attempt){.opts.reduce = LK_REDUCE_ORDER_ENGINE, .gradient_backend = ranks > 1 ? "joined" : NULL});
}

static void test_stuck(void **arg)
{
    joined_mute = 2;
    expect(3, 3,
           (attempt){.gradient_backend = "joined",
                     .step = LK_STATUS_PEER,
                     .text = "s for other ranks over joined: that is its timeout; is one of them stopped"});
    joined_mute = 0;
}

int main(void)
{
    law_require(joined_add_device());
    return ranks_run_rows(rows, COUNT_OF(rows), NULL, test_row) +
           ranks_run_rows(rows, COUNT_OF(rows), NULL, test_near_row) +
           RUN_TESTS(NULL, NULL, TEST(test_choice), TEST(test_choice_of_links), TEST(test_engine_order),
                     TEST(test_stuck));
}
