/* test_recorded_ranks.c - recorded steps and evaluations that are sent before earlier ones have finished, by one rank
 * and by several whose gradients are summed between devices. They give the bits of one rank that
 * makes them one by one; failures and timeouts reach all ranks. LAW_ONLY selects rows by a part of their name. */
#include "joined.h"
#include "ranks.h"

#include <math.h>

#include "parallel/step/engine_impl.h"

enum {
    MLP,
    CNN,
    RES_BATCH,
    RES_SHARD,
    RES_ODD,
    OPS,
    LINE,
    STEEP,
    CLIP,
    CLIP_RES,
    CLIP_OPS,
    CLIP_STEEP,
    AUTOENCODER,
    WEIGHTED,
    GROUPS,
    FROZEN,
    CASES
};
enum { KB = 1024, STEPS = 12 };

static const law_group scaled[] = {
    {"*.bias", {.lr_scale = 2}}, {"chunk1*.weight", {.lr_scale = .5, .weight_decay = .1}}, {0}};
static const law_group frozen[] = {{"conv1.*", {.frozen = true}}, {"layer2.*", {.frozen = true}}, {0}};

static const law_case cases[CASES] = {
    [MLP] = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, STEPS, 37, .shards = 11},
    [RES_BATCH] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.05, STEPS, 33, .shards = 16},
    [CNN] = {"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "adadelta", 1, STEPS, 24, .shards = 4},
    [RES_ODD] = {"resnet20", {3, 16, 16, 10}, LK_BN_MODE_BATCH, "sgd:momentum=.9", .1, STEPS, 16, .shards = 3},
    [RES_SHARD] =
        {"resnet20", {3, 16, 16, 10}, LK_BN_MODE_SHARD, "adam", .01, STEPS, 16, .shards = 4, .label_smoothing = .1},
    [OPS] = {"ops", LAW_ODD, LK_BN_MODE_SHARD, "adamw", 1e-3, STEPS, 14, .shards = 7, .label_smoothing = .1},
    [LINE] = {"line", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, STEPS, 37, .shards = 11},
    [STEEP] = {"steep", LAW_SMALL, LK_BN_MODE_BATCH, "sgd", 1e-60, STEPS, 37, .shards = 11},
    [CLIP] = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, STEPS, 37, .shards = 11, .clip_norm = 0.5},
    [CLIP_RES] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.05, STEPS, 33, .shards = 16,
                  .clip_norm = 0.1},
    [CLIP_OPS] = {"ops", LAW_ODD, LK_BN_MODE_SHARD, "adamw", 1e-3, STEPS, 14, .shards = 7, .clip_norm = 2},
    [CLIP_STEEP] = {"steep", LAW_SMALL, LK_BN_MODE_BATCH, "sgd", 1e-60, STEPS, 37, .shards = 11, .clip_norm = 1},
    [AUTOENCODER] = {"autoencoder", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, STEPS, 16, .shards = 8},
    [WEIGHTED] = {"weighted", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, STEPS, 16, .shards = 8},
    [GROUPS] = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adamw", 1e-3, STEPS, 37, .shards = 11, .groups = scaled},
    [FROZEN] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "sgd:momentum=.9", .05, STEPS, 33, .shards = 16,
                .clip_norm = 0.1, .groups = frozen},
};

/* A batch with fewer samples than shards is not recorded, and a size that comes once is not. */
static const ranks_row rows[] = {
    {"one rank", MLP, {.ranks = 1, .threads = 1}},
    {"one rank: cnn", CNN, {.ranks = 1, .threads = 1}},
    {"one rank, bn batch", RES_ODD, {.ranks = 1, .threads = 1}},
    {"one rank, bn shard", RES_SHARD, {.ranks = 1, .threads = 1}},
    {"one rank in waves", CNN, {.ranks = 1, .threads = 1, .micro_batch = 5}},
    {"one rank in waves, bn shard", RES_SHARD, {.ranks = 1, .threads = 1, .micro_batch = 5}},
    {"one rank in waves of many samples", MLP, {.ranks = 1, .threads = 1, .micro_batch = 5}},
    {"one rank, clipped", CLIP, {.ranks = 1, .threads = 1}},
    {"one rank, clipped in waves", CLIP_OPS, {.ranks = 1, .threads = 1, .micro_batch = 3}},
    {"2 ranks", MLP, {.ranks = 2, .threads = 1, .bucket_bytes = 64 * KB}},
    {"3 ranks", MLP, {.ranks = 3, .threads = 1, .bucket_bytes = 16 * KB, .share = true}},
    {"5 ranks", MLP, {.ranks = 5, .threads = 1, .bucket_bytes = 256 * KB, .share = true}},
    {"2 ranks that are compared", MLP, {.ranks = 2, .threads = 1, .check_every = 3}},
    {"2 ranks, bn batch", RES_BATCH, {.ranks = 2, .threads = 1, .bucket_bytes = 4 * KB, .share = true}},
    {"3 ranks, bn batch", RES_BATCH, {.ranks = 3, .threads = 1}},
    {"5 ranks, bn batch", RES_BATCH, {.ranks = 5, .threads = 1, .bucket_bytes = 16 * KB, .share = true}},
    {"3 ranks: ops", OPS, {.ranks = 3, .threads = 1, .bucket_bytes = 1 * KB, .share = true, .check_every = 2}},
    {"5 ranks: ops", OPS, {.ranks = 5, .threads = 1, .share = true}},
    {"3 ranks in waves", MLP, {.ranks = 3, .threads = 1, .micro_batch = 4, .share = true}},
    {"5 ranks in waves, bn shard", OPS, {.ranks = 5, .threads = 1, .micro_batch = 2, .bucket_bytes = 1 * KB}},
    {"2 ranks, of which one has waves", MLP, {.ranks = 2, .threads = 1, .micro_batch = 18}},
    {"3 ranks, clipped", CLIP, {.ranks = 3, .threads = 1, .bucket_bytes = 16 * KB, .share = true}},
    {"5 ranks, clipped, bn batch", CLIP_RES, {.ranks = 5, .threads = 1, .check_every = 3}},
    {"3 ranks, clipped in waves", CLIP_OPS, {.ranks = 3, .threads = 1, .micro_batch = 3}},
    {"one rank: autoencoder", AUTOENCODER, {.ranks = 1, .threads = 1}},
    {"one rank in waves: autoencoder", AUTOENCODER, {.ranks = 1, .threads = 1, .micro_batch = 3}},
    {"3 ranks: autoencoder", AUTOENCODER, {.ranks = 3, .threads = 1, .share = true}},
    {"3 ranks: weighted", WEIGHTED, {.ranks = 3, .threads = 1, .share = true, .unrecorded = true}},
    {"one rank, groups", GROUPS, {.ranks = 1, .threads = 1}},
    {"3 ranks, groups", GROUPS, {.ranks = 3, .threads = 1, .bucket_bytes = 16 * KB, .share = true}},
    {"one rank, frozen", FROZEN, {.ranks = 1, .threads = 1}},
    {"3 ranks, frozen", FROZEN, {.ranks = 3, .threads = 1, .bucket_bytes = 1 * KB, .share = true}},
    {"2 stages", MLP, {.ranks = 4, .threads = 1, .stages = "2", .unrecorded = true}},
};

/* All batches of a case. */
typedef struct history {
    law_samples samples[STEPS];
    lk_batch batches[STEPS];
} history;

static void make_history(const law_case *c, history *h)
{
    for (int i = 0; i < STEPS; i++) {
        law_samples *s = &h->samples[i];
        *s = law_samples_make(c);
        law_batch(c, i, s->x, s->labels, s->ids, &h->batches[i]);
    }
}

static void free_history(history *h)
{
    for (int i = 0; i < STEPS; i++)
        law_samples_free(&h->samples[i]);
}

typedef struct job {
    const ranks_row *row;
    const law_case *c;
    ranks_truth truth;
} job;

/* Sends one step until its size is recorded; then as many as the engine accepts. */
static void run_ahead(const job *j, lk_engine *engine, const history *h, ranks_truth *out)
{
    int most = 0, every = j->row->way.check_every;
    for (int received = 0, sent = 0; received < STEPS; received++) {
        while (sent == received || (sent < STEPS && lk_engine_can_send(engine, h->batches[sent].count))) {
            lk_batch batch = h->batches[sent];
            if (j->row->way.share)
                batch = ranks_cut(batch, lk_engine_shard_range(engine));
            CHECK_OK(lk_engine_set_grad_norm(engine, sent % 2 == 0));
            CHECK_OK(lk_engine_send(engine, &batch));
            sent++;
            /* No step is sent past a comparison of replicas. */
            if (j->row->way.ranks > 1 && every && sent % every == 0)
                CHECK(!lk_engine_can_send(engine, j->c->batch));
        }
        most = sent - received > most ? sent - received : most;
        CHECK_OK(lk_engine_receive(engine, &out->steps[received]));
        out->norms[received] = lk_engine_grad_norm(engine);
        CHECK(received % 2 == 0 || isnan(out->norms[received]) || j->c->clip_norm > 0);
    }
    CHECK(most == (j->row->way.unrecorded ? 1 : every ? every : lk_engine_depth(engine)));
}

static lk_engine *make_engine(const law_case *c, law_way way, lk_group *group)
{
    way.device = "far";
    return ranks_engine(c, &way, group);
}

/* Evaluates batches of two sizes, each known from ranks_run_evals, as many under way as the engine accepts. */
static void evaluate_ahead(const ranks_job *r, lk_engine *engine, int ranks)
{
    enum { EVALS = 9 };
    bool recorded = !r->way.unrecorded;
    int most = 0, sent = 0;
    size_t played = 0;
    for (int received = 0; received < EVALS; received++) {
        /* Two batches of one sample after the others; several ranks do these at once. */
        while (sent < EVALS && lk_engine_can_send_eval(engine, sent < 7 ? 2 * r->c.batch + 3 : 1)) {
            law_case c = ranks_eval_case(&r->c, sent >= 7);
            law_samples s = law_samples_make(&c);
            lk_batch batch;
            law_batch(&c, 0, s.x, s.labels, s.ids, &batch);
            CHECK_OK(lk_engine_send_eval(engine, &batch));
            law_samples_free(&s);
            played += recorded && (sent < 7 || ranks == 1);
            sent++;
        }
        lk_metrics metrics;
        most = sent - received > most ? sent - received : most;
        CHECK_OK(lk_engine_receive(engine, &metrics));
        CHECK(ranks_same(&metrics, &r->truth.evals[received >= 7]));
    }
    CHECK(most == lk_engine_depth(engine));
    CHECK(played == (size_t)(!recorded ? 0 : ranks == 1 ? EVALS : 7));
    CHECK(law_hash(engine) == r->truth.hash);
}

static bool be_ahead(lk_group *group, const team_spec *team, const void *arg)
{
    const job *j = arg;
    /* Whole batches without and with the norm, half batches without; clipped steps always take the norm. */
    bool recorded = !j->row->way.unrecorded;
    int recordings = j->c->clip_norm > 0 ? 2 : 3;
    history h;
    ranks_truth ours = {0};
    ranks_job r = {.c = *j->c, .way = j->row->way, .truth = j->truth};
    lk_engine *engine = make_engine(j->c, j->row->way, group);
    make_history(j->c, &h);
    run_ahead(j, engine, &h, &ours);
    ranks_run_evals(&r, engine, ours.evals);
    ours.hash = law_hash(engine);
    ranks_compare(&r, lk_group_rank(group), &ours);
    ranks_check_layout(&r, engine, lk_group_rank(group));
    ranks_check_own(&r, engine, group);
    CHECK_OK(lk_engine_check(engine));
    CHECK_OK(lk_barrier(group, NULL));
    CHECK(tape_recorded == (size_t)(recorded ? recordings * team->size : 0));
    /* The first whole batch, the first half batch and the single sample are not played. */
    CHECK(tape_played == (size_t)(recorded ? team->size * (STEPS - 3) : 0));
    CHECK(lk_engine_depth(engine) == (recorded ? 4 : 1));
    CHECK_OK(lk_barrier(group, NULL));
    evaluate_ahead(&r, engine, team->size);
    lk_engine_destroy(engine);
    CHECK(joined_given_up == 0);
    free_history(&h);
    return false;
}

static void test_row(void **arg)
{
    static ranks_truth truths[CASES];
    const ranks_row *r = *arg;
    law_way way = r->way;
    way.transport = "inproc";
    job j = {.row = r, .c = &cases[r->c], .truth = *ranks_know(&cases[r->c], &truths[r->c])};
    assert_true(team_run(ranks_team(&way), be_ahead, &j));
}

/* Ranks that only evaluate need no channel to record. */
static bool be_testing(lk_group *group, const team_spec *team, const void *arg)
{
    const ranks_job *r = arg;
    lk_engine *engine;
    lk_engine_opts opts = law_opts(&r->c, &(law_way){.threads = 1, .device = "far"});
    opts.group = group;
    opts.eval_only = true;
    lk_metrics first[RANKS_EVALS];
    CHECK_OK(law_create(&r->c, &opts, &engine));
    ranks_run_evals(r, engine, first);
    for (int i = 0; i < RANKS_EVALS; i++)
        CHECK(ranks_same(&first[i], &r->truth.evals[i]));
    evaluate_ahead(r, engine, team->size);
    lk_engine_destroy(engine);
    return false;
}

static void test_only_evaluations(void **arg)
{
    for (int ranks = 1; ranks <= 3; ranks += 2) {
        ranks_job r = {.c = cases[CNN], .way = {.ranks = ranks, .threads = 1, .transport = "inproc"}};
        lk_engine *engine = law_engine(&r.c, (law_way){.threads = 1});
        ranks_run_evals(&r, engine, r.truth.evals);
        r.truth.hash = law_hash(engine);
        lk_engine_destroy(engine);
        assert_true(team_run(ranks_team(&r.way), be_testing, &r));
    }
}

/* Samples of several waves, or of an evaluation, that are too large to be uploaded together are not recorded. */
static void test_large_samples(void **arg)
{
    far_type.prompt_upload = 37 * 784 * sizeof(float) / 16 - 1;
    for (size_t micro_batch = 0; micro_batch < 10; micro_batch += 9) {
        lk_engine *engine = make_engine(&cases[MLP], (law_way){.threads = 1, .micro_batch = micro_batch}, NULL);
        lk_metrics metrics;
        history h;
        make_history(&cases[MLP], &h);
        law_require(lk_engine_step(engine, &h.batches[0], &metrics));
        law_require(lk_engine_eval(engine, &h.batches[0], &metrics));
        law_require(lk_engine_send(engine, &h.batches[1]));
        assert_int_equal(lk_engine_can_send(engine, cases[MLP].batch), micro_batch == 0);
        assert_false(lk_engine_can_send_eval(engine, cases[MLP].batch));
        assert_int_equal(lk_engine_send_eval(engine, &h.batches[2]), LK_STATUS_USAGE);
        law_require(lk_engine_receive(engine, &metrics));
        lk_engine_destroy(engine);
        free_history(&h);
    }
    far_type.prompt_upload = TAPE_PROMPT;
}

/* A batch with a bad sample. */
typedef struct bad_batch {
    int c;
    size_t sample; /* in the batch; it does not belong to rank 0 */
    float value;
    const char *text;
    size_t micro_batch;
    uint64_t before, after; /* hashes after the steps before it, and after one more good step */
} bad_batch;

enum { BAD = 2 };

static void spoil(const bad_batch *bad, history *h)
{
    const lk_batch *batch = &h->batches[BAD];
    float *x = h->samples[BAD].x + bad->sample * batch->sample_floats;
    for (size_t i = 0; i < batch->sample_floats; i++)
        x[i] = bad->value;
}

/* The third step is bad; a fourth and an evaluation are sent before that is known. */
static bool be_spoilt(lk_group *group, const team_spec *team, const void *arg)
{
    const bad_batch *bad = arg;
    const law_case *c = &cases[bad->c];
    history h;
    lk_metrics metrics;
    lk_engine *engine = make_engine(c, (law_way){.threads = 1, .micro_batch = bad->micro_batch}, group);
    make_history(c, &h);
    spoil(bad, &h);
    CHECK_OK(lk_engine_step(engine, &h.batches[0], &metrics));
    CHECK_OK(lk_engine_eval(engine, &h.batches[0], &metrics));
    for (int i = 1; i < 4; i++)
        CHECK_OK(lk_engine_send(engine, &h.batches[i]));
    if (lk_engine_can_send_eval(engine, c->batch))
        CHECK_OK(lk_engine_send_eval(engine, &h.batches[0]));
    CHECK_OK(lk_engine_receive(engine, &metrics));
    CHECK(lk_engine_receive(engine, &metrics) == LK_STATUS_NONFINITE);
    CHECK_TEXT(lk_error_detail(), bad->text);
    CHECK(lk_engine_steps(engine) == BAD && lk_engine_can_send(engine, c->batch));
    CHECK(law_hash_all(engine) == bad->before);
    if (team->size == 1)
        CHECK(lk_engine_receive(engine, &metrics) == LK_STATUS_USAGE);
    CHECK_OK(lk_engine_step(engine, &h.batches[3], &metrics));
    CHECK(law_hash_all(engine) == bad->after);
    CHECK_OK(lk_engine_check(engine));
    lk_engine_destroy(engine);
    free_history(&h);
    return false;
}

/* Runs with one rank and with three. */
static void expect_bad(bad_batch bad)
{
    const law_case *c = &cases[bad.c];
    lk_engine *engine = law_engine(c, (law_way){.threads = 1});
    lk_metrics metrics;
    history h;
    make_history(c, &h);
    for (int i = 0; i < BAD; i++)
        law_require(lk_engine_step(engine, &h.batches[i], &metrics));
    bad.before = law_hash_all(engine);
    law_require(lk_engine_step(engine, &h.batches[3], &metrics));
    bad.after = law_hash_all(engine);
    lk_engine_destroy(engine);
    free_history(&h);
    for (int ranks = 1; ranks <= 3; ranks += 2) {
        law_way way = {.ranks = ranks, .transport = "inproc", .threads = 1};
        assert_true(team_run(ranks_team(&way), be_spoilt, &bad));
    }
}

static void test_nonfinite(void **arg)
{
    far_type.prompt_upload = 1 << 20;
    expect_bad((bad_batch){LINE, 30, NAN, .text = "step 3: the loss of sample 104 (shard 9) is "});
    expect_bad((bad_batch){AUTOENCODER, 10, NAN, .text = "step 3: the loss of sample 42 (shard 5) is "});
    expect_bad((bad_batch){RES_BATCH, 20, NAN, .text = "step 3: the loss of sample 66 (shard 0) is "});
    expect_bad(
        (bad_batch){STEEP, 20, 1e20f, .text = "step 3: the gradient of first.weight is not finite (shard 6); if"});
    const char *steep = "step 3: the gradient of first.weight is not finite (shard 6); if";
    expect_bad((bad_batch){CLIP_STEEP, 20, 1e20f, .text = steep});
    expect_bad((bad_batch){CLIP_STEEP, 20, 1e20f, .micro_batch = 7, .text = steep});
    expect_bad((bad_batch){CLIP, 30, NAN, .text = "step 3: the loss of sample 104 (shard 9) is "});
    /* Without a copy of the samples, the shard cannot be named when the step is found to be bad. */
    far_type.prompt_upload = 0;
    expect_bad((bad_batch){LINE, 30, NAN, .text = "step 3: the loss of sample 104 (shard 9) is "});
    expect_bad((bad_batch){STEEP, 20, 1e20f, .text = "step 3: the gradient of first.weight is not finite; if"});
    far_type.prompt_upload = TAPE_PROMPT;
}

/* The message names the non-finite weight, not the loss that follows from it. */
static void test_nonfinite_weight(void **arg)
{
    lk_engine *engine = make_engine(&cases[CNN], (law_way){.threads = 1}, NULL);
    lk_metrics metrics;
    lk_state *state;
    history h;
    make_history(&cases[CNN], &h);
    for (int i = 0; i < 2; i++)
        law_require(lk_engine_step(engine, &h.batches[i], &metrics));
    law_require(lk_engine_state(engine, &state));
    ((float *)lk_state_find(state, "conv2.weight")->data)[77] = NAN;
    law_require(lk_engine_set_state(engine, state));
    lk_state_destroy(state);
    law_require(lk_engine_send(engine, &h.batches[2]));
    assert_int_equal(lk_engine_receive(engine, &metrics), LK_STATUS_NONFINITE);
    assert_non_null(strstr(lk_error_detail(), "step 3: before the step conv2.weight has a value that is not finite"));
    lk_engine_destroy(engine);
    free_history(&h);
}

/* A batch with weights is done at once, after the steps under way. */
static void test_weights_wait(void **arg)
{
    float weights[64] = {[3] = 2};
    lk_metrics metrics;
    history h;
    lk_engine *engine = make_engine(&cases[MLP], (law_way){.threads = 1}, NULL);
    make_history(&cases[MLP], &h);
    law_require(lk_engine_step(engine, &h.batches[0], &metrics));
    law_require(lk_engine_send(engine, &h.batches[1]));
    h.batches[2].weights = weights;
    assert_fails(lk_engine_send(engine, &h.batches[2]), LK_STATUS_USAGE, "needs their results first");
    law_require(lk_engine_receive(engine, &metrics));
    law_require(lk_engine_step(engine, &h.batches[2], &metrics));
    assert_true(metrics.weight == 2);
    lk_engine_destroy(engine);
    free_history(&h);
}

/* Calls that would see the state between two steps are refused. */
static void test_order_of_calls(void **arg)
{
    lk_engine *engine = make_engine(&cases[CNN], (law_way){.threads = 1}, NULL);
    const lk_batch *batches;
    lk_metrics metrics;
    lk_state *unread;
    history h;
    make_history(&cases[CNN], &h);
    batches = h.batches;
    assert_int_equal(lk_engine_receive(engine, &metrics), LK_STATUS_USAGE);
    assert_true(lk_engine_can_send(engine, cases[CNN].batch));
    law_require(lk_engine_send(engine, &batches[0]));
    assert_false(lk_engine_can_send(engine, cases[CNN].batch));
    assert_int_equal(lk_engine_send(engine, &batches[1]), LK_STATUS_USAGE);
    assert_int_equal(lk_engine_step(engine, &batches[1], &metrics), LK_STATUS_USAGE);
    assert_int_equal(lk_engine_eval(engine, &batches[1], &metrics), LK_STATUS_USAGE);
    assert_int_equal(lk_engine_send_eval(engine, &batches[1]), LK_STATUS_USAGE);
    assert_int_equal(lk_engine_gradients(engine, &batches[1], &metrics), LK_STATUS_USAGE);
    assert_int_equal(lk_engine_update(engine), LK_STATUS_USAGE);
    assert_int_equal(lk_engine_check(engine), LK_STATUS_USAGE);
    assert_int_equal(lk_engine_state(engine, &unread), LK_STATUS_USAGE);
    assert_int_equal(lk_engine_optimizer_state(engine, &unread), LK_STATUS_USAGE);
    law_require(lk_engine_receive(engine, &metrics));
    law_require(lk_engine_eval(engine, &batches[1], &metrics));
    law_require(lk_engine_send_eval(engine, &batches[1]));
    assert_int_equal(lk_engine_state(engine, &unread), LK_STATUS_USAGE);
    assert_int_equal(lk_engine_step(engine, &batches[1], &metrics), LK_STATUS_USAGE);
    law_require(lk_engine_receive(engine, &metrics));
    lk_engine_destroy(engine);
    free_history(&h);
}

/* In the second step a peer sends nothing, or work does not end. */
static bool be_stuck(lk_group *group, const team_spec *team, const void *arg)
{
    const law_case *c = &cases[MLP];
    bool stuck = *(const bool *)arg;
    history h;
    lk_metrics metrics;
    lk_engine *engine = make_engine(c, (law_way){.threads = 1}, group);
    make_history(c, &h);
    CHECK_OK(lk_engine_step(engine, &h.batches[0], &metrics));
    CHECK_OK(lk_barrier(group, NULL));
    joined_mute = stuck ? 0 : 2;
    tape_stuck = stuck;
    CHECK_OK(lk_barrier(group, NULL));
    CHECK(lk_engine_step(engine, &h.batches[1], &metrics) == LK_STATUS_PEER);
    CHECK_TEXT(lk_error_detail(), "s for other ranks over joined: that is its timeout");
    lk_engine_destroy(engine);
    free_history(&h);
    if (stuck)
        CHECK(joined_given_up > 0);
    return false;
}

static void test_stuck(void **arg)
{
    law_way way = {.ranks = 3, .transport = "inproc", .threads = 1};
    team_spec team = ranks_team(&way);
    team.timeout = 3;
    assert_true(team_run(team, be_stuck, &(bool){false}));
    assert_true(team_run(team, be_stuck, &(bool){true}));
}

int main(void)
{
    law_require(joined_add_device());
    tape_extend(&far_type);
    tape_watch(&far_kernels);
    return ranks_run_rows(rows, COUNT_OF(rows), getenv("LAW_ONLY"), test_row) +
           RUN_TESTS(NULL, NULL, TEST(test_nonfinite), TEST(test_nonfinite_weight), TEST(test_order_of_calls),
                     TEST(test_weights_wait), TEST(test_only_evaluations), TEST(test_large_samples), TEST(test_stuck));
}
