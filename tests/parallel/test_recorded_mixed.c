/* test_recorded_mixed.c - recorded steps and evaluations of several sizes under way together, with calls between them
 * that need an idle engine. They give the bits of one rank that makes all calls one by one. */
#include "joined.h"
#include "ranks.h"

enum { MLP, CLIP, CLIP_RES, CLIP_OPS, CASES };

static const law_case cases[CASES] = {
    [MLP] = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, 1, 37, .shards = 11},
    [CLIP] = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, 1, 37, .shards = 11, .clip_norm = 0.5},
    [CLIP_RES] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.05, 1, 33, .shards = 16,
                  .clip_norm = 0.1},
    [CLIP_OPS] = {"ops", LAW_ODD, LK_BN_MODE_SHARD, "adamw", 1e-3, 1, 14, .shards = 7, .clip_norm = 2},
};

/* What a caller does in a run that mixes everything; the sizes of batches differ. */
typedef enum act { STEP, EVAL, LARGE_EVAL, HALVES, EVAL_BETWEEN, OWN_UPDATE, ACTS } act;

static const act plan[] = {STEP,       EVAL, STEP,       EVAL,       STEP, STEP,         EVAL,   EVAL,
                           EVAL,       STEP, LARGE_EVAL, STEP,       EVAL, STEP,         HALVES, STEP,
                           OWN_UPDATE, EVAL, STEP,       LARGE_EVAL, STEP, EVAL_BETWEEN, STEP,   EVAL};
enum { PLAN = COUNT_OF(plan) };

static lk_batch make_batch(const law_case *c, int i, law_samples *s)
{
    law_case sized = *c;
    lk_batch batch;
    if (plan[i] == LARGE_EVAL)
        sized.batch = 2 * c->batch + 3;
    *s = law_samples_make(&sized);
    law_batch(&sized, plan[i] == STEP ? i % 3 + 3 : 0, s->x, s->labels, s->ids, &batch);
    return batch;
}

/* Halves every parameter by a set state. */
static void update_by_hand(lk_engine *engine)
{
    lk_state *state;
    CHECK_OK(lk_engine_state(engine, &state));
    for (size_t i = 0; i < lk_state_count(state); i++) {
        const lk_state_entry *entry = lk_state_at(state, i);
        for (size_t k = 0; entry->dtype == LK_DTYPE_F32 && k < entry->bytes / sizeof(float); k++)
            ((float *)entry->data)[k] *= 0.5f;
    }
    CHECK_OK(lk_engine_set_state(engine, state));
    lk_state_destroy(state);
}

/* Everything but STEP, EVAL and LARGE_EVAL needs an idle engine. */
static void act_idle(lk_engine *engine, act what, const lk_batch *batch, lk_metrics *out)
{
    lk_metrics between;
    CHECK_OK(lk_engine_gradients(engine, batch, out));
    if (what == EVAL_BETWEEN)
        CHECK_OK(lk_engine_eval(engine, batch, &between));
    if (what == OWN_UPDATE)
        update_by_hand(engine);
    else
        CHECK_OK(lk_engine_update(engine));
}

/* The metrics of all acts, and the state at the end. */
typedef struct mixed_outcome {
    lk_metrics metrics[PLAN];
    double norms[PLAN];
    uint64_t hash;
} mixed_outcome;

static bool can_go_on(const lk_engine *engine, act what, size_t total)
{
    return what == STEP ? lk_engine_can_send(engine, total) : lk_engine_can_send_eval(engine, total);
}

static void receive_all(lk_engine *engine, int *received, int sent, mixed_outcome *out)
{
    for (; *received < sent; ++*received) {
        CHECK_OK(lk_engine_receive(engine, &out->metrics[*received]));
        out->norms[*received] = lk_engine_grad_norm(engine);
    }
}

/* Keeps as many steps and evaluations under way as the engine accepts; returns the largest number. */
static int run_mixed(const law_case *c, lk_engine *engine, mixed_outcome *out)
{
    int most = 0, received = 0;
    CHECK_OK(lk_engine_set_grad_norm(engine, true));
    for (int i = 0; i < PLAN; i++) {
        law_samples s;
        lk_batch batch = make_batch(c, i, &s);
        if (plan[i] > LARGE_EVAL || !can_go_on(engine, plan[i], batch.count))
            receive_all(engine, &received, i, out);
        if (plan[i] == STEP)
            CHECK_OK(lk_engine_send(engine, &batch));
        else if (plan[i] <= LARGE_EVAL)
            CHECK_OK(lk_engine_send_eval(engine, &batch));
        else
            act_idle(engine, plan[received++], &batch, &out->metrics[i]);
        most = i + 1 - received > most ? i + 1 - received : most;
        law_samples_free(&s);
    }
    receive_all(engine, &received, PLAN, out);
    out->hash = law_hash_all(engine);
    return most;
}

typedef struct mixed_job {
    const law_case *c;
    law_way way;
    mixed_outcome truth;
} mixed_job;

static bool be_mixed(lk_group *group, const team_spec *team, const void *arg)
{
    const mixed_job *j = arg;
    mixed_outcome ours = {0};
    law_way way = j->way;
    way.device = "far";
    lk_engine *engine = ranks_engine(j->c, &way, group);
    CHECK(run_mixed(j->c, engine, &ours) == lk_engine_depth(engine));
    for (int i = 0; i < PLAN; i++) {
        CHECK(ranks_same(&ours.metrics[i], &j->truth.metrics[i]));
        CHECK(plan[i] != STEP || memcmp(&ours.norms[i], &j->truth.norms[i], sizeof *ours.norms) == 0);
    }
    CHECK(ours.hash == j->truth.hash);
    lk_engine_destroy(engine);
    return false;
}

/* Steps and evaluations of several sizes under way together, and calls that need an idle engine between them. */
static void test_mixed(void **arg)
{
    static const struct {
        int c;
        law_way way;
    } ways[] = {{MLP, {.ranks = 1, .threads = 1}},
                {MLP, {.ranks = 3, .threads = 1}},
                {CLIP, {.ranks = 1, .threads = 1, .micro_batch = 9}},
                {CLIP_RES, {.ranks = 3, .threads = 1}},
                {CLIP_OPS, {.ranks = 2, .threads = 1, .micro_batch = 3}}};
    for (size_t i = 0; i < COUNT_OF(ways); i++) {
        mixed_job j = {.c = &cases[ways[i].c], .way = ways[i].way};
        lk_engine *engine = law_engine(j.c, (law_way){.threads = 1});
        assert_int_equal(run_mixed(j.c, engine, &j.truth), 1);
        lk_engine_destroy(engine);
        j.way.transport = "inproc";
        assert_true(team_run(ranks_team(&j.way), be_mixed, &j));
    }
}

int main(void)
{
    law_require(joined_add_device());
    tape_extend(&far_type);
    tape_watch(&far_kernels);
    return RUN_TESTS(NULL, NULL, TEST(test_mixed));
}
