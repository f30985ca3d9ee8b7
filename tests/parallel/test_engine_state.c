/* test_engine_state.c - a run that is stopped and continued by other ranks, threads and waves ends
 * with the bits of a run that was not stopped: parameters, buffers and the optimiser's state. Wrong
 * states are refused and change nothing. A rank's signal level reaches all ranks with the next step
 * or evaluation. */
#include <math.h>

#include "ranks.h"

enum { LEFT = 4, ALL = 9 };

/* Convolutions, BatchNorm over the batch or over shards, dropout. */
#define OPS(bn, optimizer, lr)                                          \
    {                                                                   \
        "ops", LAW_SMALL, (bn), (optimizer), (lr), ALL, 12, .shards = 6 \
    }

static const law_case cases[] = {
    OPS(LK_BN_MODE_BATCH, "sgd", 0.05),
    OPS(LK_BN_MODE_SHARD, "sgd:momentum=.9,weight_decay=5e-4,dampening=.1", 0.05),
    OPS(LK_BN_MODE_BATCH, "adam", 1e-3),
    OPS(LK_BN_MODE_SHARD, "adamw", 2e-3),
    OPS(LK_BN_MODE_BATCH, "adadelta", 1.0),
    OPS(LK_BN_MODE_SHARD, "adadelta", 0.7),
};
enum { CASES = COUNT_OF(cases) };

static const law_way ways[] = {
    {.ranks = 1, .transport = "inproc", .threads = 3, .micro_batch = 4},
    {.ranks = 3, .transport = "inproc", .threads = 1, .share = true},
    {.ranks = 5, .transport = "inproc", .threads = 2, .micro_batch = 2, .bucket_bytes = 4 << 10},
    {.ranks = 2, .transport = "shm", .threads = 1, .halves = true},
    {.ranks = 3, .transport = "inproc", .threads = 1, .stages = "3"},
    {.ranks = 4, .transport = "inproc", .threads = 1, .stages = "2", .pipelined = true, .micro_batch = 2},
};
enum { WAYS = COUNT_OF(ways) };

/* The model's and the optimiser's state at some step. */
typedef struct moment {
    lk_state *model, *optimizer;
} moment;

static moment take(const lk_engine *engine)
{
    moment m;
    CHECK_OK(lk_engine_state(engine, &m.model));
    CHECK_OK(lk_engine_optimizer_state(engine, &m.optimizer));
    return m;
}

static void drop(moment *m)
{
    lk_state_destroy(m->model);
    lk_state_destroy(m->optimizer);
}

static void tell_difference(void *arg, const char *key, const char *what)
{
    fprintf(stderr, "%s: %s: %s\n", (const char *)arg, key, what);
}

/* Compares values, keys and the order of the keys. */
static bool same_states(const lk_state *a, const lk_state *b, char *what)
{
    if (lk_state_compare(a, b, tell_difference, what) != 0)
        return false;
    for (size_t i = 0; i < lk_state_count(a); i++) {
        if (strcmp(lk_state_at(a, i)->name, lk_state_at(b, i)->name) != 0)
            return false;
    }
    return lk_state_hash(a) == lk_state_hash(b);
}

static bool is_at(const lk_engine *engine, const moment *want)
{
    moment have = take(engine);
    bool same = same_states(have.model, want->model, "model");
    same = same_states(have.optimizer, want->optimizer, "optimiser") && same;
    drop(&have);
    return same;
}

typedef struct leave_job {
    ranks_job run;
    double other_lr;
    moment start, left, end; /* of a run by one rank */
} leave_job;

static void run_part(const leave_job *job, lk_engine *engine, int first, int last)
{
    ranks_truth metrics;
    ranks_job part = job->run;
    part.c.first = first;
    part.c.steps = last - first;
    ranks_run_steps(&part, engine, &metrics);
}

static lk_engine *create(const leave_job *job, lk_group *group, double lr)
{
    lk_engine *engine;
    lk_engine_opts opts = law_opts(&job->run.c, &job->run.way);
    opts.group = group;
    opts.lr = lr;
    CHECK_OK(law_create(&job->run.c, &opts, &engine));
    return engine;
}

/* All ranks take replica 0's state and its learning rate. */
static void go_on(const leave_job *job, lk_engine *engine)
{
    bool first = lk_engine_layout(engine).replica == 0;
    CHECK_OK(lk_engine_set_state(engine, job->left.model));
    CHECK_OK(lk_engine_set_optimizer_state(engine, first ? job->left.optimizer : job->start.optimizer));
    CHECK(lk_engine_steps(engine) == LEFT);
    CHECK(lk_engine_lr(engine) == job->run.c.lr);
    CHECK(is_at(engine, &job->left));
    run_part(job, engine, LEFT, ALL);
    CHECK(is_at(engine, &job->end));
    CHECK_OK(lk_engine_check(engine));
}

/* A team_fn: runs to step LEFT, and continues from the states of one rank with a new engine. */
static bool leave_and_go_on(lk_group *group, const team_spec *team, const void *arg)
{
    const leave_job *job = arg;
    lk_engine *engine = create(job, group, job->run.c.lr);
    run_part(job, engine, 0, LEFT);
    CHECK(is_at(engine, &job->left));
    lk_engine_destroy(engine);
    engine = create(job, group, job->other_lr);
    go_on(job, engine);
    /* Once more, with the engine that has finished. */
    go_on(job, engine);
    lk_engine_destroy(engine);
    return false;
}

static void find_moments(leave_job *job)
{
    job->run.way = (law_way){.threads = 1};
    lk_engine *engine = create(job, NULL, job->run.c.lr);
    job->start = take(engine);
    run_part(job, engine, 0, LEFT);
    job->left = take(engine);
    run_part(job, engine, LEFT, ALL);
    job->end = take(engine);
    lk_engine_destroy(engine);
}

static void test_left_and_taken_up(void **arg)
{
    for (size_t i = 0; i < CASES; i++) {
        leave_job job = {.run = {.c = cases[i]}, .other_lr = 0.25};
        find_moments(&job);
        for (size_t w = 0; w < WAYS; w++) {
            job.run.way = ways[w];
            if (!team_run(ranks_team(&ways[w]), leave_and_go_on, &job))
                fail_msg("%s, way %zu: not the run that was never left", cases[i].optimizer, w);
        }
        drop(&job.start);
        drop(&job.left);
        drop(&job.end);
    }
}

static void test_names(void **arg)
{
    static const struct {
        const char *optimizer, *arrays[2];
    } rows[] = {
        {"sgd", {NULL}},
        {"sgd:momentum=.9", {"momentum_buffer"}},
        {"adam", {"exp_avg", "exp_avg_sq"}},
        {"adamw", {"exp_avg", "exp_avg_sq"}},
        {"adadelta", {"square_avg", "acc_delta"}},
    };
    static const char *const params[] = {"one.weight", "one.bias", "bn.weight", "bn.bias",
                                         "two.weight", "two.bias", "fc.weight", "fc.bias"};
    enum { PARAMS = COUNT_OF(params) };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        law_case c = OPS(LK_BN_MODE_BATCH, rows[i].optimizer, 0.5);
        lk_engine *engine = law_engine(&c, (law_way){.threads = 1});
        moment m = take(engine);
        size_t at = 0;
        for (size_t a = 0; a < 2 && rows[i].arrays[a]; a++) {
            for (size_t p = 0; p < PARAMS; p++, at++) {
                char key[64];
                snprintf(key, sizeof key, "%s.%s", rows[i].arrays[a], params[p]);
                const lk_state_entry *entry = lk_state_at(m.optimizer, at), *param = lk_state_find(m.model, params[p]);
                assert_non_null(entry);
                assert_string_equal(entry->name, key);
                assert_int_equal(entry->dtype, LK_DTYPE_F32);
                assert_int_equal(entry->ndim, param->ndim);
                assert_memory_equal(entry->dims, param->dims, sizeof entry->dims);
            }
        }
        assert_int_equal(lk_state_count(m.optimizer), at + 3);
        assert_string_equal(lk_state_at(m.optimizer, at)->name, "steps");
        assert_int_equal(*(int64_t *)lk_state_find(m.optimizer, "steps")->data, 0);
        assert_true(*(double *)lk_state_find(m.optimizer, "lr")->data == 0.5);
        assert_true(((double *)lk_state_find(m.optimizer, "powers")->data)[1] == 1);
        drop(&m);
        lk_engine_destroy(engine);
    }
}

/* How a copy of a state is changed. */
typedef struct wrong {
    const char *key;   /* the entry that is changed */
    const char *to;    /* its new name; "": it is left out */
    bool retype;       /* f64 becomes f32, other types i32 */
    bool reshape;      /* its dimensions are reversed */
    const void *value; /* its new first element */
    const char *words[3];
} wrong;

static lk_state *copy_wrong(const lk_state *from, const wrong *w)
{
    lk_state *state;
    law_require(lk_state_create(&state));
    for (size_t i = 0; i < lk_state_count(from); i++) {
        lk_state_entry e = *lk_state_at(from, i), *entry;
        bool it = strcmp(e.name, w->key) == 0;
        if (it && w->to && !*w->to)
            continue;
        if (it && w->retype)
            e.dtype = e.dtype == LK_DTYPE_F64 ? LK_DTYPE_F32 : LK_DTYPE_I32;
        for (int d = 0; it && w->reshape && d < e.ndim; d++)
            e.dims[d] = lk_state_at(from, i)->dims[e.ndim - 1 - d];
        law_require(lk_state_add(state, it && w->to ? w->to : e.name, e.dtype, e.ndim, e.dims, &entry));
        memcpy(entry->data, e.data, entry->bytes);
        if (it && w->value)
            memcpy(entry->data, w->value, lk_dtype_size(e.dtype));
    }
    return state;
}

static const int64_t minus_one = -1, too_many = (int64_t)UINT32_MAX + 1;
static const double minus = -0.5, not_a_number = NAN, endless = INFINITY, above_one = 1.0000001;

static const wrong wrongs[] = {
    {.key = "exp_avg.two.weight", .to = "", .words = {"no key 'exp_avg.two.weight'", "the optimiser adam needs"}},
    {.key = "steps", .to = "", .words = {"no key 'steps'"}},
    {.key = "lr", .to = "", .words = {"no key 'lr'"}},
    {.key = "powers", .to = "", .words = {"no key 'powers'"}},
    {.key = "exp_avg.fc.bias", .to = "square_avg.fc.bias", .words = {"no key 'exp_avg.fc.bias'"}},
    {.key = "exp_avg_sq.fc.weight", .reshape = true, .words = {"key 'exp_avg_sq.fc.weight' is f32 ("}},
    {.key = "exp_avg_sq.bn.bias", .retype = true, .words = {"'exp_avg_sq.bn.bias' is i32 (12)", "needs f32 (12)"}},
    {.key = "steps", .retype = true, .words = {"key 'steps' is i32 ()", "needs i64 ()"}},
    {.key = "lr", .retype = true, .words = {"key 'lr' is f32 ()", "needs f64 ()"}},
    {.key = "powers", .retype = true, .words = {"key 'powers' is f32 (2)", "needs f64 (2)"}},
    {.key = "steps", .value = &minus_one, .words = {"key 'steps' is -1"}},
    {.key = "steps", .value = &too_many, .words = {"key 'steps' is 4294967296"}},
    {.key = "lr", .value = &minus, .words = {"key 'lr' is -0.5"}},
    {.key = "lr", .value = &not_a_number, .words = {"key 'lr' is "}},
    {.key = "lr", .value = &endless, .words = {"key 'lr' is inf"}},
    {.key = "powers", .value = &minus, .words = {"key 'powers' has a -0.5"}},
    {.key = "powers", .value = &above_one, .words = {"key 'powers' has a 1"}},
    {.key = "powers", .value = &not_a_number, .words = {"key 'powers' has a "}},
};

static void expect_refused(lk_engine *engine, const lk_state *state, const char *const *words)
{
    moment before = take(engine);
    assert_int_equal(lk_engine_set_optimizer_state(engine, state), LK_STATUS_MISMATCH);
    for (int i = 0; words[i]; i++)
        assert_detail(words[i]);
    assert_true(is_at(engine, &before));
    drop(&before);
}

/* The wrong copies are of a state that differs in every entry: none of it may be taken. */
static void test_refused(void **arg)
{
    leave_job job = {.run = {.c = OPS(LK_BN_MODE_BATCH, "adam", 1e-3)}};
    job.run.way.threads = 1;
    lk_engine *engine = create(&job, NULL, 0.5);
    run_part(&job, engine, 0, 1);
    moment other = take(engine);
    run_part(&job, engine, 1, 2);
    for (size_t i = 0; i < COUNT_OF(wrongs); i++) {
        lk_state *state = copy_wrong(other.optimizer, &wrongs[i]);
        expect_refused(engine, state, wrongs[i].words);
        lk_state_destroy(state);
    }
    lk_state_entry *entry;
    law_require(lk_state_add(other.optimizer, "exp_avg.three.weight", LK_DTYPE_F32, 0, NULL, &entry));
    expect_refused(engine, other.optimizer,
                   (const char *[]){"a key 'exp_avg.three.weight'", "the optimiser adam does not know", NULL});
    expect_refused(engine, other.model, (const char *[]){"no key 'steps'", NULL});
    drop(&other);
    lk_engine_destroy(engine);
}

static void test_other_optimisers(void **arg)
{
    law_case adam = OPS(LK_BN_MODE_BATCH, "adam", 0), sgd = OPS(LK_BN_MODE_BATCH, "sgd", 0),
             momentum = OPS(LK_BN_MODE_BATCH, "sgd:momentum=.9", 0);
    lk_engine *engines[] = {law_engine(&adam, (law_way){.threads = 1}), law_engine(&sgd, (law_way){.threads = 1}),
                            law_engine(&momentum, (law_way){.threads = 1})};
    moment of_adam = take(engines[0]), of_sgd = take(engines[1]), of_momentum = take(engines[2]);
    expect_refused(engines[0], of_sgd.optimizer, (const char *[]){"no key 'exp_avg.one.weight'", "adam", NULL});
    expect_refused(engines[1], of_momentum.optimizer,
                   (const char *[]){"a key 'momentum_buffer.one.weight'", "sgd does not know", NULL});
    expect_refused(engines[2], of_adam.optimizer, (const char *[]){"no key 'momentum_buffer.one.weight'", NULL});
    drop(&of_adam);
    drop(&of_sgd);
    drop(&of_momentum);
    for (int i = 0; i < 3; i++)
        lk_engine_destroy(engines[i]);
}

/* A wrong state at one rank makes the call fail at all ranks. */
static bool refuse_at_one(lk_group *group, const team_spec *team, const void *arg)
{
    const leave_job *job = arg;
    lk_engine *engine = create(job, group, 0.5);
    bool mine = lk_group_rank(group) == job->run.way.ranks - 1;
    moment m = take(engine);
    team_await_all(team);
    lk_status status = lk_engine_set_optimizer_state(engine, mine ? m.model : m.optimizer);
    CHECK(status == (mine ? LK_STATUS_MISMATCH : LK_STATUS_PEER));
    CHECK_TEXT(lk_error_detail(), "no key 'steps'");
    drop(&m);
    lk_engine_destroy(engine);
    return false;
}

static void test_refused_at_one_rank(void **arg)
{
    leave_job job = {.run = {.c = OPS(LK_BN_MODE_BATCH, "adam", 0), .way = ways[1]}};
    assert_true(team_run(ranks_team(&ways[1]), refuse_at_one, &job));
}

/* Makes a step or an evaluation; nan: one sample has a NaN. */
static lk_status turn(const ranks_job *job, lk_engine *engine, bool eval, bool nan)
{
    law_samples s = law_samples_make(&job->c);
    lk_batch batch;
    lk_metrics metrics;
    law_batch(&job->c, 0, s.x, s.labels, s.ids, &batch);
    if (nan)
        s.x[5 * batch.sample_floats] = NAN;
    lk_status status =
        eval ? lk_engine_eval(engine, &batch, &metrics) : ranks_step(engine, &job->way, &batch, &metrics);
    law_samples_free(&s);
    return status;
}

/* The signal level of a rank, which is a thread, in its next step or evaluation. */
static _Thread_local int pending;

static int take_pending(void *arg)
{
    int level = pending;
    pending = 0;
    return level;
}

static void raise_and_look(const ranks_job *job, lk_engine *engine, int rank, bool eval)
{
    int last = job->way.ranks - 1;
    CHECK(lk_engine_agreed_signal(engine) == 0);
    if (rank == last)
        pending = 2;
    CHECK(lk_engine_agreed_signal(engine) == 0);
    CHECK_OK(turn(job, engine, eval, false));
    CHECK(lk_engine_agreed_signal(engine) == 2 && lk_engine_agreed_signal_rank(engine) == last);
    CHECK_OK(turn(job, engine, eval, false));
    CHECK(lk_engine_agreed_signal(engine) == 0);
    /* The highest level counts. */
    pending = rank == 0 ? 7 : 3;
    CHECK_OK(turn(job, engine, eval, false));
    CHECK(lk_engine_agreed_signal(engine) == 7 && lk_engine_agreed_signal_rank(engine) == 0);
    /* Of several ranks with this level the lowest is named. */
    pending = rank > 0 ? 4 : 0;
    CHECK_OK(turn(job, engine, eval, false));
    CHECK(lk_engine_agreed_signal_rank(engine) == (last > 0 ? 1 : -1));
    CHECK_OK(turn(job, engine, !eval, false));
    CHECK(lk_engine_agreed_signal(engine) == 0);
}

static void raise_and_fail(const ranks_job *job, lk_engine *engine)
{
    pending = 5;
    CHECK(turn(job, engine, false, true) == LK_STATUS_NONFINITE);
    CHECK(lk_engine_agreed_signal(engine) == 0);
    CHECK_OK(turn(job, engine, false, false));
    CHECK(lk_engine_agreed_signal(engine) == 0);
}

static bool be_raised(lk_group *group, const team_spec *team, const void *arg)
{
    const ranks_job *job = arg;
    lk_engine *engine = ranks_engine(&job->c, &job->way, group);
    int rank = group ? lk_group_rank(group) : 0;
    lk_engine_set_signal_source(engine, take_pending, NULL);
    raise_and_look(job, engine, rank, false);
    raise_and_look(job, engine, rank, true);
    raise_and_fail(job, engine);
    lk_engine_destroy(engine);
    return false;
}

static void test_raise(void **arg)
{
    ranks_job job = {.c = OPS(LK_BN_MODE_SHARD, "sgd", 0.01), .way = {.ranks = 1, .threads = 1}};
    be_raised(NULL, NULL, &job);
    for (size_t w = 0; w < WAYS; w++) {
        job.way = ways[w];
        if (!team_run(ranks_team(&ways[w]), be_raised, &job))
            fail_msg("way %zu: what was raised did not reach all, or stayed", w);
    }
}

TEST_MAIN(NULL, NULL, TEST(test_left_and_taken_up), TEST(test_names), TEST(test_refused), TEST(test_other_optimisers),
          TEST(test_refused_at_one_rank), TEST(test_raise))
