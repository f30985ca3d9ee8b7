/* test_misuse.c - wrong calls: NaN options, one engine in two threads, an engine of another process.
 * Each returns an error that says what is wrong and changes nothing. A rank without samples is no
 * error. */
#include <math.h>
#include <semaphore.h>

#include "ranks.h"

static const law_case small = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "sgd:momentum=.9", .05, 3, 8, .shards = 4};

enum { SAMPLES = 8, PIXELS = 784, NEVER = 20 };
static float x[SAMPLES * PIXELS];
static int32_t labels[SAMPLES];
static uint32_t ids[SAMPLES];

/* An impossible learning rate is refused, and the old rate stays. */
static void test_learning_rates(void **arg)
{
    static const double bad[] = {NAN, -NAN, -1, -1e-300, INFINITY, -INFINITY, 1e39};
    lk_engine *engine = law_engine(&small, (law_way){.threads = 1});
    lk_batch batch;
    lk_metrics metrics;
    law_batch(&small, 0, x, labels, ids, &batch);
    law_require(lk_engine_step(engine, &batch, &metrics));
    uint64_t before = law_hash_all(engine);
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        assert_fails(lk_engine_set_lr(engine, bad[i]), LK_STATUS_USAGE, "learning rate");
        assert_true(lk_engine_lr(engine) == small.lr);
    }
    assert_true(law_hash_all(engine) == before);
    law_require(lk_engine_set_lr(engine, 0));
    lk_state *was, *is;
    law_require(lk_engine_state(engine, &was));
    law_require(lk_engine_step(engine, &batch, &metrics));
    law_require(lk_engine_state(engine, &is));
    assert_true(lk_state_hash(is) == lk_state_hash(was));
    lk_state_destroy(is);
    lk_state_destroy(was);
    lk_engine_destroy(engine);
}

static void expect_option(lk_engine_opts opts, const char *words)
{
    lk_engine *engine;
    assert_fails(law_create(&small, &opts, &engine), LK_STATUS_USAGE, words);
}

static void test_numbers_of_options(void **arg)
{
    static const double bad[] = {NAN, -1, INFINITY, -INFINITY};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        lk_engine_opts opts = law_opts(&small, &(law_way){.threads = 1});
        opts.lr = bad[i];
        expect_option(opts, "learning rate");
        opts.lr = .1;
        opts.clip_norm = bad[i];
        expect_option(opts, "`clip_norm`");
        opts.clip_norm = 0;
        opts.label_smoothing = bad[i];
        expect_option(opts, "`label_smoothing`");
    }
    lk_engine_opts opts = law_opts(&small, &(law_way){.threads = 1});
    opts.lr = 1e39;
    expect_option(opts, "learning rate");
}

static void test_negative_counts_of_options(void **arg)
{
    lk_engine_opts opts = law_opts(&small, &(law_way){.threads = 1});
    opts.shards = -1;
    expect_option(opts, "`shards`");
    opts.shards = 4;
    opts.threads = -1;
    expect_option(opts, "`threads`");
    opts.threads = 1;
    opts.check_every = -2;
    expect_option(opts, "`check_every`");
}

static void test_values_of_no_enum(void **arg)
{
    const lk_engine_opts usual = law_opts(&small, &(law_way){.threads = 1});
    lk_engine_opts opts = usual;
    opts.batch = 0;
    expect_option(opts, "`batch` 0 is not in 1 to");
    opts = usual;
    opts.precision = (lk_precision)9;
    expect_option(opts, "`precision` 9 is not");
    opts.precision = (lk_precision)-1;
    expect_option(opts, "`precision` -1 is not");
    opts = usual;
    opts.bn = (lk_bn_mode)9;
    expect_option(opts, "`bn` 9 is not");
    opts = usual;
    opts.reduce = (lk_reduce_order)9;
    expect_option(opts, "`reduce` 9 is not");
    opts = usual;
    opts.device = "abacus";
    expect_option(opts, "`device` 'abacus' is not in this build; there is: cpu");
    opts.device = "cpu:x";
    expect_option(opts, "`device` 'cpu:x': the part after ':' must be a number from 0 to 65535, as in cpu:1");
}

/* A thread that stays in an evaluation until the test lets it go: the engine calls the signal source
 * there. */
typedef struct inside {
    lk_engine *engine;
    sem_t entered, leave;
    lk_metrics metrics;
    lk_status status, nested;
} inside;

static int stay(void *arg)
{
    inside *in = arg;
    lk_metrics unread;
    lk_batch batch = {.count = SAMPLES, .sample_floats = PIXELS, .x = x, .labels = labels, .ids = ids};
    in->nested = lk_engine_eval(in->engine, &batch, &unread);
    sem_post(&in->entered);
    while (sem_wait(&in->leave) != 0)
        continue;
    return 3;
}

static void *evaluate(void *arg)
{
    inside *in = arg;
    lk_batch batch = {.count = SAMPLES, .sample_floats = PIXELS, .x = x, .labels = labels, .ids = ids};
    in->status = lk_engine_eval(in->engine, &batch, &in->metrics);
    return NULL;
}

/* Every call that uses the engine's memory is refused. */
static void expect_all_refused(lk_engine *engine, const char *words)
{
    lk_batch batch = {.count = SAMPLES, .sample_floats = PIXELS, .x = x, .labels = labels, .ids = ids};
    lk_metrics metrics;
    lk_state *unread, *state;
    law_require(lk_state_create(&state));
    assert_fails(lk_engine_step(engine, &batch, &metrics), LK_STATUS_USAGE, words);
    assert_fails(lk_engine_send(engine, &batch), LK_STATUS_USAGE, words);
    assert_fails(lk_engine_receive(engine, &metrics), LK_STATUS_USAGE, words);
    assert_fails(lk_engine_eval(engine, &batch, &metrics), LK_STATUS_USAGE, words);
    assert_fails(lk_engine_gradients(engine, &batch, &metrics), LK_STATUS_USAGE, words);
    assert_fails(lk_engine_update(engine), LK_STATUS_USAGE, words);
    assert_fails(lk_engine_check(engine), LK_STATUS_USAGE, words);
    assert_fails(lk_engine_set_lr(engine, .5), LK_STATUS_USAGE, words);
    assert_fails(lk_engine_state(engine, &unread), LK_STATUS_USAGE, words);
    assert_fails(lk_engine_grads(engine, &unread), LK_STATUS_USAGE, words);
    assert_fails(lk_engine_optimizer_state(engine, &unread), LK_STATUS_USAGE, words);
    assert_fails(lk_engine_set_state(engine, state), LK_STATUS_USAGE, words);
    assert_fails(lk_engine_set_optimizer_state(engine, state), LK_STATUS_USAGE, words);
    assert_fails(lk_engine_set_group(engine, "*", &(lk_param_group){.lr_scale = 1}), LK_STATUS_USAGE, words);
    assert_fails(lk_engine_set_grads(engine, state), LK_STATUS_USAGE, words);
    assert_fails(lk_engine_average(engine, .5), LK_STATUS_USAGE, words);
    assert_fails(lk_engine_averaged_state(engine, &unread), LK_STATUS_USAGE, words);
    assert_fails(lk_engine_set_averaged_state(engine, state), LK_STATUS_USAGE, words);
    assert_fails(lk_engine_input_grads(engine, x), LK_STATUS_USAGE, words);
    lk_state_destroy(state);
}

static void expect_one_thread(int threads)
{
    lk_engine *engine = law_engine(&small, (law_way){.threads = threads});
    lk_batch batch;
    lk_metrics want;
    pthread_t thread;
    law_batch(&small, 0, x, labels, ids, &batch);
    law_require(lk_engine_step(engine, &batch, &want));
    law_require(lk_engine_eval(engine, &batch, &want));
    uint64_t before = law_hash_all(engine);
    inside in = {.engine = engine};
    sem_init(&in.entered, 0, 0);
    sem_init(&in.leave, 0, 0);
    lk_engine_set_signal_source(engine, stay, &in);
    assert_int_equal(pthread_create(&thread, NULL, evaluate, &in), 0);
    while (sem_wait(&in.entered) != 0)
        continue;
    expect_all_refused(engine, "in use");
    sem_post(&in.leave);
    pthread_join(thread, NULL);
    assert_int_equal(in.status, LK_OK);
    assert_int_equal(in.nested, LK_STATUS_USAGE);
    assert_memory_equal(&in.metrics, &want, sizeof want);
    assert_int_equal(lk_engine_agreed_signal(engine), 3);
    /* Another thread may use the engine at another time. */
    lk_engine_set_signal_source(engine, NULL, NULL);
    assert_true(law_hash_all(engine) == before);
    assert_int_equal(pthread_create(&thread, NULL, evaluate, &in), 0);
    pthread_join(thread, NULL);
    assert_int_equal(in.status, LK_OK);
    sem_destroy(&in.leave);
    sem_destroy(&in.entered);
    lk_engine_destroy(engine);
}

static void test_one_thread_at_a_time(void **arg)
{
    expect_one_thread(1);
    expect_one_thread(2);
}

typedef struct sender {
    lk_engine *engine;
    const lk_batch *batch;
    lk_status status;
} sender;

static void *send_one(void *arg)
{
    sender *s = arg;
    s->status = lk_engine_send(s->engine, s->batch);
    return NULL;
}

/* One thread may send a step and another may receive it. */
static void test_send_and_receive_in_two_threads(void **arg)
{
    lk_engine *engine = law_engine(&small, (law_way){.threads = 2});
    lk_batch batch;
    lk_metrics metrics;
    pthread_t thread;
    law_batch(&small, 0, x, labels, ids, &batch);
    sender s = {.engine = engine, .batch = &batch};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&thread, NULL, send_one, &s), 0);
        pthread_join(thread, NULL);
        assert_int_equal(s.status, LK_OK);
        law_require(lk_engine_receive(engine, &metrics));
    }
    assert_int_equal(lk_engine_steps(engine), 3);
    lk_engine_destroy(engine);
}

/* Objects of the parent that a child process has inherited. */
typedef struct legacy {
    lk_engine *engine;
    lk_loader *loader;
    lk_group *group;
} legacy;

static int use_legacy(const legacy *given)
{
    static const char advice[] = "create engines inside the spawned function";
    lk_batch batch = {.count = SAMPLES, .sample_floats = PIXELS, .x = x, .labels = labels, .ids = ids};
    const lk_batch *next;
    lk_metrics metrics;
    lk_state *unread;
    CHECK(lk_engine_step(given->engine, &batch, &metrics) == LK_STATUS_USAGE);
    CHECK_TEXT(lk_error_detail(), advice);
    CHECK(lk_engine_state(given->engine, &unread) == LK_STATUS_USAGE);
    CHECK_TEXT(lk_error_detail(), advice);
    CHECK_FAILS(lk_loader_start(given->loader, 0, 0), LK_STATUS_USAGE, "create loaders inside the spawned function");
    CHECK(lk_loader_next(given->loader, &next) == LK_STATUS_USAGE);
    int32_t one = 1;
    CHECK(lk_allreduce(given->group, (lk_buffer){&one, 1, LK_DTYPE_I32}, LK_REDUCTION_SUM, NULL) == LK_STATUS_USAGE);
    CHECK_TEXT(lk_error_detail(), "join in the child");
    CHECK(lk_group_poll(given->group) == LK_STATUS_USAGE);
    lk_engine_destroy(given->engine);
    lk_loader_destroy(given->loader);
    lk_group_destroy(given->group);
    return 0;
}

static int be_spawned(int rank, void *arg)
{
    alarm(NEVER);
    return use_legacy(arg);
}

/* A forked process has no threads of its parent: the parent's engines, loaders and groups refuse
 * calls there, and still work in the parent. */
static void test_an_engine_made_before_a_spawn(void **arg)
{
    legacy given;
    lk_dataset *data;
    lk_batch batch;
    lk_metrics metrics;
    const lk_batch *next;
    law_require(lk_group_create_threads(1, NULL, &given.group));
    lk_engine_opts opts = law_opts(&small, &(law_way){.threads = 2});
    opts.group = given.group;
    law_require(law_create(&small, &opts, &given.engine));
    law_require(lk_dataset_open("digits", NULL, LK_SPLIT_TEST, &data));
    law_require(lk_loader_create(data, &(lk_loader_opts){.batch = 8, .workers = 1}, &given.loader));
    law_require(lk_loader_start(given.loader, 0, 0));
    law_require(lk_loader_next(given.loader, &next));
    law_batch(&small, 0, x, labels, ids, &batch);
    law_require(lk_engine_step(given.engine, &batch, &metrics));
    law_require(lk_spawn(2, be_spawned, &given));
    law_require(lk_engine_step(given.engine, &batch, &metrics));
    law_require(lk_loader_next(given.loader, &next));
    assert_non_null(next);
    lk_engine_destroy(given.engine);
    lk_loader_destroy(given.loader);
    lk_group_destroy(given.group);
    lk_dataset_destroy(data);
}

/* A batch of one sample: the second rank has no sample, and its pointers may be NULL, like those of
 * an empty std::vector. */
static bool be_empty(lk_group *group, const team_spec *team, const void *arg)
{
    lk_engine *engine = ranks_engine(&small, arg, group);
    lk_metrics metrics;
    lk_batch batch = {.count = 1, .sample_floats = PIXELS, .x = x, .labels = labels, .ids = ids, .total = 1};
    if (lk_shard_range_count(lk_engine_shard_range(engine), 1) == 0)
        batch = (lk_batch){.total = 1};
    CHECK_OK(lk_engine_step(engine, &batch, &metrics));
    CHECK_OK(lk_engine_gradients(engine, &batch, &metrics));
    CHECK_OK(lk_engine_update(engine));
    CHECK_OK(lk_engine_eval(engine, &batch, &metrics));
    CHECK(metrics.count == 1);
    CHECK_OK(lk_engine_check(engine));
    lk_engine_destroy(engine);
    return false;
}

static void test_empty_shares(void **arg)
{
    law_batch(&(law_case){.shape = LAW_MNIST, .batch = 1}, 0, x, labels, ids, &(lk_batch){0});
    static const law_way ways[] = {{.threads = 1, .ranks = 2}, {.threads = 1, .ranks = 4, .stages = "2"}};
    for (size_t i = 0; i < 2; i++)
        assert_true(team_run((team_spec){.size = ways[i].ranks, .transport = "inproc", .timeout = RANKS_TIMEOUT},
                             be_empty, &ways[i]));
    /* A batch with samples must have pointers. */
    lk_engine *engine = law_engine(&small, (law_way){.threads = 1});
    lk_metrics metrics;
    assert_fails(lk_engine_step(engine, &(lk_batch){.count = 1, .sample_floats = PIXELS}, &metrics), LK_STATUS_USAGE,
                 "NULL");
    assert_fails(lk_engine_step(engine, &(lk_batch){.sample_floats = PIXELS}, &metrics), LK_STATUS_USAGE, "0 samples");
    lk_engine_destroy(engine);
}

TEST_MAIN(NULL, NULL, TEST(test_learning_rates), TEST(test_numbers_of_options), TEST(test_negative_counts_of_options),
          TEST(test_values_of_no_enum), TEST(test_one_thread_at_a_time), TEST(test_send_and_receive_in_two_threads),
          TEST(test_an_engine_made_before_a_spawn), TEST(test_empty_shares))
