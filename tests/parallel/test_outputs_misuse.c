/* test_outputs_misuse.c - wrong calls of forward passes: every one is an error that says so, and the engine can be used
 * afterwards; ranks that ask for different things. */
#include "ranks.h"

enum { MOST_SAMPLES = 6 };

static const law_case cnn = {"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "sgd", 0.05, 2, 8, .shards = 5};
static const law_case mlp = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "sgd", 0.05, 2, 7, .shards = 6};

static lk_status create_with(const char *outputs, lk_engine **out)
{
    lk_engine_opts opts = law_opts(&cnn, &(law_way){.threads = 1});
    opts.outputs = outputs;
    return law_create(&cnn, &opts, out);
}

static void test_misuse(void **arg)
{
    const law_case *c = &cnn;
    lk_engine *engine;
    law_samples s;
    static float room[32 * 26 * 26], scores[MOST_SAMPLES * 10];
    law_require(create_with("fc1", &engine));
    lk_batch good = law_samples_only(c, 2, &s), bad = good;
    lk_output one = {"fc1", room};
    assert_fails(lk_engine_forward(NULL, &good, scores), LK_STATUS_USAGE, "engine");
    assert_fails(lk_engine_forward(engine, NULL, scores), LK_STATUS_USAGE, "batch");
    assert_fails(lk_engine_forward(engine, &good, NULL), LK_STATUS_USAGE, "scores");
    assert_fails(lk_engine_forward_outputs(engine, &good, NULL, 1), LK_STATUS_USAGE, "outputs");
    assert_fails(lk_engine_forward_outputs(engine, &good, &one, 0), LK_STATUS_USAGE, "0 outputs");
    one.values = NULL;
    assert_fails(lk_engine_forward_outputs(engine, &good, &one, 1), LK_STATUS_USAGE, "`values` is NULL");
    one = (lk_output){"fc2", room};
    assert_fails(lk_engine_forward_outputs(engine, &good, &one, 1), LK_STATUS_USAGE, "no output 'fc2'");
    assert_contains(lk_error_detail(), "fc1");
    bad.sample_floats = 5;
    assert_fails(lk_engine_forward(engine, &bad, scores), LK_STATUS_MISMATCH, "5 values a sample");
    bad = good;
    bad.x = NULL;
    assert_fails(lk_engine_forward(engine, &bad, scores), LK_STATUS_USAGE, "its `x` is NULL");
    bad = (lk_batch){.sample_floats = good.sample_floats};
    assert_fails(lk_engine_forward(engine, &bad, scores), LK_STATUS_USAGE, "at least one sample");
    bad = good;
    bad.reserved[0] = 1;
    assert_fails(lk_engine_forward(engine, &bad, scores), LK_STATUS_USAGE, "reserved");
    law_require(lk_engine_forward(engine, &good, scores)); /* the engine can still be used */
    good.labels = s.labels;
    good.ids = s.ids;
    lk_metrics metrics;
    law_require(lk_engine_send(engine, &good));
    assert_fails(lk_engine_forward(engine, &good, scores), LK_STATUS_USAGE, "under way");
    law_require(lk_engine_receive(engine, &metrics));
    law_samples_free(&s);
    lk_engine_destroy(engine);
    law_require(create_with(NULL, &engine));
    good = law_samples_only(c, 2, &s);
    assert_fails(lk_engine_forward_outputs(engine, &good, &one, 1), LK_STATUS_USAGE, "without `outputs`");
    law_samples_free(&s);
    lk_engine_destroy(engine);
}

/* Ranks that ask for different things get an error, not a mixture. */
static bool be_different(lk_group *group, const team_spec *team, const void *arg)
{
    const law_case *c = &mlp;
    int what = *(const int *)arg, rank = lk_group_rank(group);
    lk_engine *engine = NULL;
    lk_engine_opts opts = law_opts(c, &(law_way){.threads = 1});
    opts.group = group;
    opts.outputs = what == 0 && rank == 1 ? "chunk2.0" : "chunk1.1,chunk2.0";
    lk_status status = law_create(c, &opts, &engine);
    if (what == 0) {
        CHECK(status == LK_STATUS_MISMATCH);
        CHECK_TEXT(lk_error_detail(), "outputs");
        return false;
    }
    CHECK_OK(status);
    law_samples s;
    static _Thread_local float out[MOST_SAMPLES * 1024];
    lk_batch batch = law_samples_only(c, what == 1 && rank == 1 ? 5 : 6, &s);
    lk_output wanted = {what == 2 && rank == 1 ? NULL : "chunk1.1", out};
    CHECK(lk_engine_output_floats(engine, "chunk1.1") <= 1024);
    CHECK(lk_engine_forward_outputs(engine, &batch, &wanted, 1) != LK_OK);
    CHECK_TEXT(lk_error_detail(), what == 1 ? "batch of" : "allgather");
    law_samples_free(&s);
    lk_engine_destroy(engine);
    return false;
}

static void test_different_ranks(void **arg)
{
    for (int what = 0; what < 3; what++)
        if (!team_run((team_spec){.size = 2, .transport = "inproc", .timeout = 20}, be_different, &what))
            fail_msg("difference %d", what);
}

TEST_MAIN(NULL, NULL, cmocka_unit_test(test_misuse), cmocka_unit_test(test_different_ranks))
