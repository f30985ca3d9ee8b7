/* test_ranks_faults.c - every rank gets the error for options that disagree, for ranks that die or
 * leave, and for replicas that differ. Non-finite values are in test_ranks_finite.c. */
#include <math.h>
#include <sys/time.h>

#include "ranks.h"

#include "parallel/step/engine_impl.h"

static const law_case mlp = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, 4, 12, .shards = 6};
static const law_case resnet = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.05, 4, 12, 6,
                                .hash = 0};

/* Makes steps until one fails; returns the status of the last. */
static lk_status step_on(lk_engine *engine, const law_case *c, int steps)
{
    law_samples s = law_samples_make(c);
    lk_status status = LK_OK;
    for (int i = 0; i < steps && status == LK_OK; i++) {
        lk_batch batch;
        lk_metrics metrics;
        law_batch(c, i, s.x, s.labels, s.ids, &batch);
        status = lk_engine_step(engine, &batch, &metrics);
    }
    law_samples_free(&s);
    return status;
}

/* Options that differ at one rank. */
typedef struct odd_options {
    const char *word; /* in the message of every rank */
    lk_engine_opts opts;
    const char *model;
} odd_options;

enum { ODD_MOST = 16 };

static size_t make_odd(odd_options odd[ODD_MOST])
{
    const lk_engine_opts usual = law_opts(&mlp, &(law_way){.threads = 1});
    size_t count = 0;
#define ODD(text, field, value) (odd[count] = (odd_options){text, usual, mlp.model}, odd[count++].opts.field = (value))
    ODD("seed", seed, usual.seed + 1);
    ODD("batch", batch, usual.batch + 1);
    ODD("lr", lr, nextafter(usual.lr, 1));
    ODD("shards", shards, usual.shards + 1);
    ODD("bn", bn, LK_BN_MODE_SHARD);
    ODD("optimizer", optimizer, "adam:beta1=.8");
    ODD("clip", clip_norm, 1);
    ODD("bucket", bucket_bytes, 64 << 10);
    ODD("`check_every` 7", check_every, 7);
    ODD("`check_every` never", check_every, -1);
    odd[count++] = (odd_options){"model", usual, "mlp:hidden=65"};
    ODD("`stages`", stages, "2");
    ODD("`pipelined`", pipelined, true);
    ODD("`micro_batch`", micro_batch, 3);
    ODD("allow_nonfinite", allow_nonfinite, true);
#undef ODD
    return count;
}

static bool create_oddly(lk_group *group, const team_spec *team, const void *arg)
{
    const odd_options *how = arg;
    law_case c = mlp;
    lk_engine_opts opts = law_opts(&c, &(law_way){.threads = 1});
    lk_engine *engine;
    if (lk_group_rank(group) == 1) {
        opts = how->opts;
        c.model = how->model;
    }
    opts.group = group;
    lk_status status = law_create(&c, &opts, &engine);
    CHECK_FAILS(status, LK_STATUS_MISMATCH, how->word);
    CHECK_TEXT(lk_error_detail(), "rank 1");
    return false;
}

static void test_options_must_agree(void **arg)
{
    odd_options odd[ODD_MOST];
    size_t count = make_odd(odd);
    for (size_t i = 0; i < count; i++) {
        team_spec team = {.size = 2 + (int)(i % 2), .transport = i == 0 ? "tcp" : "inproc"};
        if (!team_run(team, create_oddly, &odd[i]))
            fail_msg("another %s at rank 1 was not reported at every rank", odd[i].word);
    }
}

/* Devices may differ between ranks, but if one rank cannot open its device, no rank gets an engine. */
static bool open_no_device(lk_group *group, const team_spec *team, const void *arg)
{
    const law_way *way = arg;
    lk_engine_opts opts = law_opts(&mlp, way);
    lk_engine *engine;
    bool odd_one = lk_group_rank(group) == way->ranks - 1;
    opts.group = group;
    opts.device = odd_one ? "abacus" : "cpu";
    lk_status status = law_create(&mlp, &opts, &engine);
    CHECK(odd_one ? status != LK_OK && status != LK_STATUS_PEER : status == LK_STATUS_PEER);
    CHECK_TEXT(lk_error_detail(), "abacus");
    return false;
}

static void test_a_rank_has_no_device(void **arg)
{
    static const law_way ways[] = {
        {.ranks = 2, .transport = "inproc", .threads = 1},
        {.ranks = 3, .transport = "shm", .threads = 1},
        {.ranks = 4, .transport = "tcp", .threads = 1, .stages = "2"},
    };
    for (size_t i = 0; i < COUNT_OF(ways); i++) {
        if (!team_run(ranks_team(&ways[i]), open_no_device, &ways[i]))
            fail_msg("way %zu: a device that one rank does not have was not told to every rank", i);
    }
}

/* Equal options that are impossible for this number of ranks. */
typedef struct bad_world {
    const char *word;
    lk_engine_opts opts;
    int ranks;
} bad_world;

static bool create_badly(lk_group *group, const team_spec *team, const void *arg)
{
    const bad_world *how = arg;
    lk_engine_opts opts = how->opts;
    lk_engine *engine;
    opts.batch = mlp.batch;
    opts.threads = 1;
    opts.group = group;
    CHECK(law_create(&mlp, &opts, &engine) == LK_STATUS_USAGE);
    CHECK_TEXT(lk_error_detail(), how->word);
    return false;
}

static void test_worlds_must_fit(void **arg)
{
    static const bad_world worlds[] = {
        {"`shards`", {.shards = 5}, 6},
        {"`shards`", {.shards = 1}, 2},
        {"`shards`", {.shards = 2, .stages = "2"}, 6},
        {"`stages`", {.shards = 8, .stages = "2"}, 3},
        {"`stages`", {.shards = 8, .stages = "3"}, 2},
        {"`stages`", {.shards = 8, .stages = "15"}, 15},
        {"`stages`", {.shards = 8, .stages = "0"}, 2},
        {"chunk2.1", {.shards = 8, .stages = "chunk2.1"}, 2},
    };
    for (size_t i = 0; i < COUNT_OF(worlds); i++) {
        team_spec team = {.size = worlds[i].ranks, .transport = "inproc"};
        if (!team_run(team, create_badly, &worlds[i]))
            fail_msg("row %zu: no message about %s at every rank", i, worlds[i].word);
    }
}

/* Every rank takes the state of replica 0. */
static bool set_states(lk_group *group, const team_spec *team, const void *arg)
{
    lk_engine *engine = ranks_engine(&resnet, arg, group);
    lk_state *state;
    CHECK_OK(lk_engine_state(engine, &state));
    int replica = lk_engine_layout(engine).replica;
    for (size_t i = 0; i < lk_state_count(state); i++) {
        const lk_state_entry *entry = lk_state_at(state, i);
        if (entry->dtype == LK_DTYPE_F32)
            ((float *)entry->data)[0] = (float)(i + 1) + 0.5f * (float)replica;
    }
    CHECK_OK(lk_engine_set_state(engine, state));
    lk_state_destroy(state);
    CHECK_OK(lk_engine_check(engine));
    CHECK_OK(lk_engine_state(engine, &state));
    for (size_t i = 0; i < lk_state_count(state); i++) {
        const lk_state_entry *entry = lk_state_at(state, i);
        CHECK(entry->dtype != LK_DTYPE_F32 || ((const float *)entry->data)[0] == (float)(i + 1));
    }
    lk_state_destroy(state);
    lk_engine_destroy(engine);
    return false;
}

static void test_state_is_replica_0s(void **arg)
{
    static const law_way ways[] = {
        {.ranks = 3, .transport = "inproc", .threads = 1},
        {.ranks = 4, .transport = "tcp", .threads = 1, .stages = "2"},
    };
    for (size_t i = 0; i < COUNT_OF(ways); i++)
        assert_true(team_run(ranks_team(&ways[i]), set_states, &ways[i]));
}

typedef struct going {
    law_way way;
    int rank;
} going;

static void die(int signal)
{
    kill(getpid(), SIGKILL);
}

/* Kills this process after some CPU time, wherever it is then. */
static void die_soon(int microseconds)
{
    struct sigaction action = {.sa_handler = die};
    struct itimerval timer = {.it_value = {.tv_usec = microseconds}};
    CHECK(sigaction(SIGVTALRM, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_VIRTUAL, &timer, NULL) == 0);
}

static bool lose_a_rank(lk_group *group, const team_spec *team, const void *arg)
{
    const going *how = arg;
    lk_engine *engine = ranks_engine(&resnet, &how->way, group);
    char who[32];
    bool goes = lk_group_rank(group) == how->rank;
    CHECK_OK(step_on(engine, &resnet, 2));
    if (goes && team->killed)
        die_soon(20000 + 3000 * how->rank);
    if (goes && !team->killed) {
        lk_engine_destroy(engine);
        return false;
    }
    CHECK(step_on(engine, &resnet, INT32_MAX) == LK_STATUS_PEER);
    snprintf(who, sizeof who, "rank %d", how->rank);
    CHECK_TEXT(lk_error_detail(), who);
    lk_engine_destroy(engine);
    return false;
}

/* The timeout is longer than the test: only the loss of the rank can end the others in time. */
static void test_a_rank_goes(void **arg)
{
    static const going rows[] = {
        {{.ranks = 2, .transport = "inproc", .threads = 1}, 1},
        {{.ranks = 4, .transport = "inproc", .threads = 1, .stages = "2", .pipelined = true}, 2},
        {{.ranks = 3, .transport = "shm", .threads = 1}, 2},
        {{.ranks = 3, .transport = "tcp", .threads = 2}, 1},
        {{.ranks = 4, .transport = "auto", .hosts = "aabb", .threads = 1, .stages = "2"}, 3},
        {{.ranks = 2, .transport = "shm", .threads = 1, .stages = "2", .pipelined = true, .micro_batch = 2}, 1},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        team_spec team = ranks_team(&rows[i].way);
        team.timeout = 10 * PROCESS_SECONDS;
        if (!team_run(team, lose_a_rank, &rows[i]))
            fail_msg("row %zu: rank %d left, and not all know", i, rows[i].rank);
        team.killed = 1u << rows[i].rank;
        if (strcmp(team.transport, "inproc") != 0 && !team_run(team, lose_a_rank, &rows[i]))
            fail_msg("row %zu: rank %d was killed, and not all know", i, rows[i].rank);
    }
}

typedef struct flip {
    law_way way;
    int rank;        /* whose bit flips */
    const char *who; /* in the message; of two ranks both are named */
    bool buffer;     /* in BatchNorm's statistics; else in a weight */
    double position; /* 0 to 1, in the flat array */
    bool in_a_step;  /* found by a step; else by lk_engine_check */
} flip;

/* Flips a middle bit of a value that is not zero; key is the name of its tensor. */
static void turn_a_bit(lk_engine *engine, const flip *how, char key[LK_MAX_KEY])
{
    lk_params *params = engine->params;
    size_t count = how->buffer ? params->buffer_count : params->count;
    float *values = how->buffer ? params->buffers : params->params;
    size_t at = (size_t)(how->position * (double)(count - 1));
    while (values[at] == 0)
        at = at > 0 ? at - 1 : count - 1;
    uint32_t bits;
    memcpy(&bits, &values[at], sizeof bits);
    bits ^= 1u << 20;
    memcpy(&values[at], &bits, sizeof bits);
    if (how->buffer)
        snprintf(key, LK_MAX_KEY, "running_");
    else
        lk__params_key_at(params, at, key);
}

static bool find_a_flip(lk_group *group, const team_spec *team, const void *arg)
{
    const flip *how = arg;
    law_way way = how->way;
    way.check_every = 3;
    lk_engine *engine = ranks_engine(&resnet, &way, group);
    CHECK_OK(step_on(engine, &resnet, 4));
    CHECK_OK(lk_engine_check(engine));
    char key[LK_MAX_KEY] = "";
    if (lk_group_rank(group) == how->rank)
        turn_a_bit(engine, how, key);
    CHECK_OK(lk_broadcast(group, (lk_buffer){key, sizeof key, LK_DTYPE_U8}, how->rank, NULL));
    CHECK(key[0] != '\0');
    lk_status status = how->in_a_step ? step_on(engine, &resnet, 3) : lk_engine_check(engine);
    CHECK_FAILS(status, LK_STATUS_MISMATCH, how->who);
    CHECK_TEXT(lk_error_detail(), key);
    CHECK_TEXT(lk_error_detail(), "step");
    lk_engine_destroy(engine);
    return false;
}

static void test_a_bit_flips(void **arg)
{
    static const flip rows[] = {
        {{.ranks = 2, .transport = "inproc", .threads = 1}, 1, "ranks 0 and 1", false, 0.0, false},
        {{.ranks = 2, .transport = "inproc", .threads = 1}, 1, "ranks 0 and 1", false, 0.5, true},
        {{.ranks = 3, .transport = "inproc", .threads = 1}, 2, "rank 2 differs", false, 1.0, true},
        {{.ranks = 3, .transport = "inproc", .threads = 1}, 1, "rank 1 differs", true, 0.5, false},
        {{.ranks = 4, .transport = "inproc", .threads = 1, .stages = "2"}, 3, "ranks 1 and 3", false, 0.3, false},
        {{.ranks = 4, .transport = "inproc", .threads = 1, .stages = "2"}, 2, "ranks 0 and 2", false, 0.7, true},
        {{.ranks = 3, .transport = "tcp", .threads = 1}, 1, "rank 1 differs", false, 0.2, true},
        {{.ranks = 3, .transport = "shm", .threads = 1}, 2, "rank 2 differs", true, 0.9, false},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        if (!team_run(ranks_team(&rows[i].way), find_a_flip, &rows[i]))
            fail_msg("row %zu: a bit flipped at rank %d was not found at every rank", i, rows[i].rank);
    }
}

/* Rank 1 gets one sample less than the others: all ranks name rank 1. */
static bool bring_too_few(lk_group *group, const team_spec *team, const void *arg)
{
    lk_engine *engine = ranks_engine(&mlp, arg, group);
    lk_metrics metrics;
    law_samples s = law_samples_make(&mlp);
    lk_batch batch;
    law_batch(&mlp, 0, s.x, s.labels, s.ids, &batch);
    /* total may be set for a whole batch. */
    batch.total = batch.count;
    CHECK_OK(lk_engine_step(engine, &batch, &metrics));
    batch.total = 0;
    batch.count -= lk_group_rank(group) == 1;
    CHECK(lk_engine_step(engine, &batch, &metrics) == LK_STATUS_MISMATCH);
    CHECK_TEXT(lk_error_detail(), "rank 1 has a batch of");
    CHECK(lk_engine_steps(engine) == 1);
    CHECK(lk_engine_eval(engine, &batch, &metrics) == LK_STATUS_MISMATCH);
    CHECK_TEXT(lk_error_detail(), "rank 1 has a batch of");
    lk_engine_destroy(engine);
    law_samples_free(&s);
    return false;
}

static void test_batches_must_agree(void **arg)
{
    static const law_way ways[] = {
        {.ranks = 2, .transport = "inproc", .threads = 1},
        {.ranks = 3, .transport = "shm", .threads = 1, .bucket_bytes = 64 << 10},
    };
    for (size_t i = 0; i < COUNT_OF(ways); i++)
        assert_true(team_run(ranks_team(&ways[i]), bring_too_few, &ways[i]));
}

TEST_MAIN(NULL, NULL, TEST(test_batches_must_agree), TEST(test_options_must_agree), TEST(test_a_rank_has_no_device),
          TEST(test_worlds_must_fit), TEST(test_state_is_replica_0s), TEST(test_a_rank_goes), TEST(test_a_bit_flips))
