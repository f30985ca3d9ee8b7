/* test_losses.c - float targets, own losses and weights through the engine: metrics, bits and wrong uses. */
#include <math.h>

#include "ranks.h"
#include "tensor/device.h"

enum { N = 12, FEATURES = 6, OUT = 3, STEPS = 4 };
static float x[N * FEATURES], targets[N * OUT];
static int32_t labels[N];
static uint32_t ids[N];

static int fill(void **state)
{
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < FEATURES; k++)
            x[i * FEATURES + k] = (float)((i * 7 + k * 5) % 16 - 8) / 8;
        for (int k = 0; k < OUT; k++)
            targets[i * OUT + k] = (float)((i * 3 + k) % 8) / 8;
        labels[i] = i % OUT;
        ids[i] = (uint32_t)i;
    }
    return 0;
}

static lk_batch the_batch(bool with_targets)
{
    lk_batch batch = {.count = N, .sample_floats = FEATURES, .x = x, .ids = ids};
    if (with_targets) {
        batch.targets = targets;
        batch.target_floats = OUT;
    } else {
        batch.labels = labels;
    }
    return batch;
}

/* A graph up to its scores. */
static lk_node begin(lk_graph **graph)
{
    assert_ok(lk_graph_create(graph));
    lk_node node = lk_tanh(*graph, lk_linear(*graph, lk_input(*graph, FEATURES, 1, 1), "fc1", 5));
    return lk_linear(*graph, node, "fc2", OUT);
}

static const lk_engine_opts usual = {.batch = N, .shards = 4, .threads = 1, .seed = 5, .optimizer = "adam", .lr = 0.01};

static lk_engine *engine_of(lk_graph *graph, int threads)
{
    lk_engine *engine;
    lk_engine_opts opts = usual;
    opts.threads = threads;
    assert_ok(lk_engine_create(graph, &opts, &engine));
    lk_graph_destroy(graph);
    return engine;
}

/* An engine with one of the library's or the program's losses. */
static lk_engine *named_engine(const char *loss, int threads)
{
    lk_graph *graph;
    lk_node scores = begin(&graph);
    lk_loss(graph, scores, loss);
    return engine_of(graph, threads);
}

/* The hash after some steps and the metrics of the last; destroys the engine. */
static uint64_t hash_of(lk_engine *engine, lk_batch batch, lk_metrics *metrics)
{
    for (int i = 0; i < STEPS; i++)
        assert_ok(lk_engine_step(engine, &batch, metrics));
    uint64_t hash = law_hash(engine);
    lk_engine_destroy(engine);
    return hash;
}

/* The two losses below are those of the library, written as a program would. */
static float own_square(void *arg, const float *v, size_t floats, int32_t label, const float *target,
                        size_t target_floats, float *dx)
{
    double sum = 0;
    CHECK(target_floats == floats && arg == NULL);
    for (size_t i = 0; i < floats; i++) {
        double d = (double)v[i] - (double)target[i];
        sum += d * d;
        if (dx)
            dx[i] = (float)(2 * d / (double)floats);
    }
    return (float)(sum / (double)floats);
}

/* The sum of the scores that are less than `margin` below the label's. */
static float own_hinge(void *arg, const float *v, size_t floats, int32_t label, const float *target,
                       size_t target_floats, float *dx)
{
    float margin = *(const float *)arg, loss = 0;
    CHECK(target_floats == 0 && target == NULL && label >= 0 && (size_t)label < floats);
    for (size_t k = 0; dx && k < floats; k++)
        dx[k] = 0;
    for (size_t k = 0; k < floats; k++) {
        float short_by = margin - (v[label] - v[k]);
        if (k == (size_t)label || short_by <= 0)
            continue;
        loss += short_by;
        if (dx) {
            dx[k] += 1;
            dx[label] -= 1;
        }
    }
    return loss;
}

/* Does not write the last element of dx. */
static float own_careless(void *arg, const float *v, size_t floats, int32_t label, const float *target,
                          size_t target_floats, float *dx)
{
    return own_square(arg, v, floats - 1, label, target, target_floats - 1, dx);
}

static float margin = 0.5f;
static const lk_loss_def square = {.name = "own_square", .target_floats = LK_TARGETS_AS_X, .sample = own_square};
static const lk_loss_def careless = {.name = "own_careless", .target_floats = LK_TARGETS_AS_X, .sample = own_careless};
static const lk_loss_def hinge = {.name = "own_hinge", .sample = own_hinge, .arg = &margin};

static int set_up(void **state)
{
    assert_ok(lk_loss_register(&square));
    assert_ok(lk_loss_register(&hinge));
    assert_ok(lk_loss_register(&careless));
    return fill(state);
}

static bool same_metrics(const lk_metrics *a, const lk_metrics *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* An own loss has the bits of the library's, for any number of threads, and with weights. */
static void test_own_losses(void **state)
{
    static const float weights[N] = {1, 2, 0, 0.5f, 1, 3, 1, 1, 0.25f, 1, 1, 7};
    for (int weighted = 0; weighted < 2; weighted++) {
        lk_batch batch = the_batch(true);
        lk_metrics want, got;
        batch.weights = weighted ? weights : NULL;
        uint64_t hash = hash_of(named_engine("mse_loss", 1), batch, &want);
        for (int threads = 1; threads < 4; threads++) {
            assert_true(hash_of(named_engine("own_square", threads), batch, &got) == hash);
            assert_true(same_metrics(&got, &want));
        }
        assert_true(want.squared_error > 0 && want.correct == 0 && want.count == N);
        assert_true(fabs(want.loss - want.squared_error) < (weighted ? 1 : 1e-7));
    }
    lk_metrics one, three;
    uint64_t hash = hash_of(named_engine("own_hinge", 1), the_batch(false), &one);
    assert_true(hash_of(named_engine("own_hinge", 3), the_batch(false), &three) == hash);
    assert_true(same_metrics(&one, &three) && one.loss > 0 && one.absolute_error == 0);
}

/* Memory that an own loss leaves unwritten never reaches the weights; evaluations have no gradient. */
static void test_unwritten_gradient(void **state)
{
    lk_engine *engine = named_engine("own_careless", 2);
    lk_batch batch = the_batch(true);
    lk_metrics metrics;
    assert_ok(lk_engine_eval(engine, &batch, &metrics));
    assert_fails(lk_engine_step(engine, &batch, &metrics), LK_STATUS_NONFINITE, "gradient");
    lk_engine_destroy(engine);
}

/* Sets all parameters to 0, so that all scores are 0. */
static void silence(lk_engine *engine)
{
    lk_state *state;
    assert_ok(lk_engine_state(engine, &state));
    for (size_t i = 0; i < lk_state_count(state); i++)
        memset(lk_state_at(state, i)->data, 0, lk_state_at(state, i)->bytes);
    assert_ok(lk_engine_set_state(engine, state));
    lk_state_destroy(state);
}

static lk_metrics evaluate(const char *loss, lk_batch batch)
{
    lk_engine *engine = named_engine(loss, 2);
    lk_metrics metrics;
    silence(engine);
    assert_ok(lk_engine_eval(engine, &batch, &metrics));
    lk_engine_destroy(engine);
    return metrics;
}

/* Label 0 is right, label 1 among the best five, label 2 counts in neither. */
static int32_t rank_of_two(void *arg, const float *v, size_t floats, int32_t label, const float *target,
                           size_t target_floats)
{
    CHECK(arg == &margin && floats == OUT && !target && target_floats == 0);
    (void)v;
    return label == 2 ? -1 : 4 * label;
}

static const lk_loss_def counted = {.name = "counted", .sample = own_hinge, .arg = &margin, .rank = lk_loss_label_rank};
static const lk_loss_def odd = {.name = "odd", .sample = own_hinge, .arg = &margin, .rank = rank_of_two};
static const lk_loss_def probable = {
    .name = "probable", .target_floats = LK_TARGETS_AS_X, .sample = own_square, .rank = lk_loss_label_rank};

/* Trains some steps, then evaluates. */
static void train_and_evaluate(const char *loss, int threads, lk_batch batch, lk_metrics *step, lk_metrics *eval)
{
    lk_engine *engine = named_engine(loss, threads);
    for (int i = 0; i < STEPS; i++)
        assert_ok(lk_engine_step(engine, &batch, step));
    assert_ok(lk_engine_eval(engine, &batch, eval));
    lk_engine_destroy(engine);
}

/* An own loss with `rank` counts right labels as cross_entropy does; without it nothing else changes. */
static void test_own_ranks(void **state)
{
    lk_metrics step, eval, plain, plain_eval;
    assert_ok(lk_loss_register(&counted));
    assert_ok(lk_loss_register(&odd));
    assert_ok(lk_loss_register(&probable));
    train_and_evaluate("own_hinge", 1, the_batch(false), &plain, &plain_eval);
    assert_true(plain.correct == 0 && plain.top5 == 0 && plain_eval.correct == 0 && plain_eval.top5 == 0);
    for (int threads = 1; threads < 4; threads++) {
        train_and_evaluate("counted", threads, the_batch(false), &step, &eval);
        assert_true(step.correct > 0 && step.correct < N && step.top5 == N && eval.top5 == N);
        assert_true(step.loss == plain.loss && eval.loss == plain_eval.loss);
    }
    assert_true(evaluate("counted", the_batch(false)).correct == evaluate("cross_entropy", the_batch(false)).correct);
    assert_true(evaluate("probable", the_batch(true)).correct ==
                evaluate("soft_cross_entropy", the_batch(true)).correct);
    train_and_evaluate("odd", 2, the_batch(false), &step, &eval);
    assert_true(step.correct == N / 3 && step.top5 == 2 * N / 3 && eval.correct == N / 3 && eval.top5 == 2 * N / 3);
}

static void assert_near(double got, double want)
{
    if (fabs(got - want) > 1e-6)
        fail_msg("%.9g, not %.9g", got, want);
}

/* The metrics of scores that are 0. */
static void test_metrics(void **state)
{
    double absolute = 0, squared = 0, half = 0, weighted = 0;
    size_t low = 0;
    float weights[N];
    for (int i = 0; i < N; i++) {
        double sum = 0;
        bool all_low = true;
        for (int k = 0; k < OUT; k++) {
            double t = (double)targets[i * OUT + k];
            absolute += t / (N * OUT);
            squared += t * t / (N * OUT);
            half += fabs(0.5 - t) / (N * OUT);
            sum += t * t / OUT;
            all_low = all_low && t <= 0.5;
        }
        weights[i] = (float)(i % 3);
        weighted += sum * (double)weights[i] / 12;
        low += all_low;
    }
    lk_batch batch = the_batch(true);
    lk_metrics mse = evaluate("mse_loss", batch), l1 = evaluate("l1_loss", batch);
    lk_metrics bce = evaluate("bce_with_logits_loss", batch), soft = evaluate("soft_cross_entropy", batch);
    assert_near(mse.loss, squared);
    assert_near(mse.squared_error, squared);
    assert_near(mse.absolute_error, absolute);
    assert_near(l1.loss, absolute);
    assert_near(bce.loss, log(2));
    assert_near(bce.absolute_error, half);
    assert_true(mse.weight == N && mse.correct == 0 && mse.top5 == 0 && l1.correct == 0);
    assert_true(bce.correct == low && bce.top5 == low && low > 0 && low < N);
    assert_near(soft.loss, absolute * OUT * log(3));
    assert_true(soft.correct > 0 && soft.correct < N && soft.top5 == N);
    batch.weights = weights;
    mse = evaluate("mse_loss", batch);
    assert_near(mse.loss, weighted);
    assert_near(mse.squared_error, squared);
    assert_true(mse.weight == 12);
}

/* Weights count by their proportions only; powers of two keep all bits. */
static void test_equal_weights(void **state)
{
    static const char *const losses[] = {"mse_loss", "bce_with_logits_loss", "cross_entropy", "nll_loss"};
    float weights[N];
    for (size_t i = 0; i < COUNT_OF(losses); i++) {
        lk_batch batch = the_batch(i < 2);
        lk_metrics want, got;
        uint64_t hash = hash_of(named_engine(losses[i], 1), batch, &want);
        for (float weight = 0.25f; weight < 9; weight *= 2) {
            for (int k = 0; k < N; k++)
                weights[k] = weight;
            batch.weights = weights;
            assert_true(hash_of(named_engine(losses[i], 1), batch, &got) == hash);
            assert_true(got.loss == want.loss && got.weight == (double)weight * N);
        }
        weights[1] = 0;
        assert_true(hash_of(named_engine(losses[i], 1), batch, &got) != hash);
    }
}

/* A sample of weight 0 adds nothing: the step has the gradient of the other samples alone. */
static void test_weight_zero(void **state)
{
    lk_engine *all = named_engine("mse_loss", 1), *part = named_engine("mse_loss", 1);
    static const float weights[N] = {1, 1, 1, 1};
    lk_batch batch = the_batch(true), few = batch;
    lk_metrics a, b;
    lk_state *left, *right;
    few.count = 4;
    batch.weights = weights;
    assert_ok(lk_engine_gradients(all, &batch, &a));
    assert_ok(lk_engine_gradients(part, &few, &b));
    assert_near(a.loss, b.loss);
    assert_ok(lk_engine_grads(all, &left));
    assert_ok(lk_engine_grads(part, &right));
    for (size_t i = 0; i < lk_state_count(left); i++) {
        const lk_state_entry *l = lk_state_at(left, i), *r = lk_state_find(right, l->name);
        for (size_t k = 0; k < l->bytes / sizeof(float); k++)
            assert_near((double)((float *)l->data)[k], (double)((float *)r->data)[k]);
    }
    lk_state_destroy(left);
    lk_state_destroy(right);
    lk_engine_destroy(all);
    lk_engine_destroy(part);
}

/* Refuses a batch, and is in its state before. */
static void refuse(lk_engine *engine, lk_batch batch, lk_status status, const char *words)
{
    lk_metrics metrics;
    uint64_t before = law_hash_all(engine);
    assert_fails(lk_engine_step(engine, &batch, &metrics), status, words);
    assert_true(law_hash_all(engine) == before);
}

static void test_wrong_batches(void **state)
{
    lk_engine *engine = named_engine("mse_loss", 1), *classes = named_engine("cross_entropy", 1);
    float weights[N] = {0}, bad[N * OUT];
    lk_metrics metrics;
    lk_batch batch = the_batch(true);
    refuse(engine, the_batch(false), LK_STATUS_MISMATCH, "mse_loss learns targets of 3 floats");
    refuse(classes, batch, LK_STATUS_MISMATCH, "cross_entropy learns labels");
    batch.labels = labels;
    refuse(classes, batch, LK_STATUS_MISMATCH, "cross_entropy learns labels");
    batch.target_floats = OUT + 1;
    refuse(engine, batch, LK_STATUS_MISMATCH, "the batch has 4");
    batch.target_floats = OUT;
    batch.targets = NULL;
    refuse(engine, batch, LK_STATUS_USAGE, "`targets`");
    batch.targets = targets;
    batch.weights = weights;
    refuse(engine, batch, LK_STATUS_USAGE, "all 12 samples of the batch have weight 0");
    weights[5] = -1;
    refuse(engine, batch, LK_STATUS_MISMATCH, "sample 5 has weight -1");
    weights[5] = NAN;
    refuse(engine, batch, LK_STATUS_MISMATCH, "sample 5 has weight");
    weights[5] = INFINITY;
    refuse(engine, batch, LK_STATUS_MISMATCH, "sample 5 has weight inf");
    batch.weights = NULL;
    memcpy(bad, targets, sizeof bad);
    bad[7 * OUT] = NAN;
    batch.targets = bad;
    refuse(engine, batch, LK_STATUS_NONFINITE, "the loss of sample 7");
    batch.targets = targets;
    assert_ok(lk_engine_step(engine, &batch, &metrics));
    lk_engine_destroy(classes);
    lk_engine_destroy(engine);
}

static void expect_mistake(lk_graph *graph, const char *words)
{
    assert_fails(lk_graph_check(graph), LK_STATUS_USAGE, words);
    lk_graph_destroy(graph);
}

static void expect_weights(const char *loss, const float *weights, size_t classes, const char *words)
{
    lk_graph *graph;
    lk_node scores = begin(&graph);
    lk_weigh_classes(graph, lk_loss(graph, scores, loss), weights, classes);
    expect_mistake(graph, words);
}

static void test_wrong_graphs(void **state)
{
    static const float fine[OUT] = {1, 2, 3}, negative[OUT] = {1, -1, 1}, nothing[OUT];
    lk_graph *graph;
    lk_node scores = begin(&graph);
    lk_huber_loss(graph, scores, 0);
    expect_mistake(graph, "`delta` 0");
    scores = begin(&graph);
    lk_smooth_l1_loss(graph, scores, -1);
    expect_mistake(graph, "`beta` -1");
    scores = begin(&graph);
    lk_loss(graph, scores, "no_such_loss");
    expect_mistake(graph, "no loss 'no_such_loss'");
    scores = begin(&graph);
    lk_loss(graph, scores, NULL);
    expect_mistake(graph, "name");
    assert_ok(lk_graph_create(&graph));
    lk_soft_cross_entropy(graph, lk_input(graph, 3, 2, 2));
    expect_mistake(graph, "soft_cross_entropy works on vectors");
    expect_weights("mse_loss", fine, OUT, "(mse_loss) is no loss with classes");
    expect_weights("own_hinge", fine, OUT, "(own_hinge) is no loss with classes");
    expect_weights("cross_entropy", fine, OUT - 1, "2 weights for the 3 classes");
    expect_weights("cross_entropy", negative, OUT, "the weight of class 1 is -1");
    expect_weights("nll_loss", nothing, OUT, "all 3 weights are 0");
    expect_weights("soft_cross_entropy", NULL, OUT, "weights");
    scores = begin(&graph);
    lk_node loss = lk_weigh_classes(graph, lk_cross_entropy(graph, scores), fine, OUT);
    lk_weigh_classes(graph, loss, fine, OUT);
    expect_mistake(graph, "call it once");
}

/* A device whose memory the host cannot reach. */
static lk_device_type distant;

static lk_status open_distant(const lk_device_opts *opts, lk_device **out)
{
    LK_TRY(lk__device_cpu.open(opts, out));
    (*out)->type = &distant;
    return LK_OK;
}

static void test_losses_without_a_function_of_the_device(void **state)
{
    lk_engine *engine;
    lk_graph *graph;
    lk_engine_opts opts = usual;
    distant = lk__device_cpu;
    distant.name = "distant";
    distant.host_memory = false;
    distant.open = open_distant;
    assert_ok(lk__device_add(&distant));
    opts.device = "distant";
    lk_node scores = begin(&graph);
    lk_loss(graph, scores, "own_square");
    assert_fails(lk_engine_create(graph, &opts, &engine), LK_STATUS_UNSUPPORTED,
                 "loss 'own_square' has no function for distant: set `cuda` of its lk_loss_def");
    lk_graph_destroy(graph);
}

static void test_wrong_losses(void **state)
{
    lk_loss_def def = square;
    lk_engine *engine;
    lk_graph *graph;
    lk_engine_opts opts = usual;
    assert_fails(lk_loss_register(NULL), LK_STATUS_USAGE, "def");
    assert_fails(lk_loss_register(&square), LK_STATUS_USAGE, "there is a loss named 'own_square'");
    def.name = "smooth_l1_loss";
    assert_fails(lk_loss_register(&def), LK_STATUS_USAGE, "there is a loss named 'smooth_l1_loss'");
    def.name = "";
    assert_fails(lk_loss_register(&def), LK_STATUS_USAGE, "`name`");
    def.name = "another";
    def.sample = NULL;
    assert_fails(lk_loss_register(&def), LK_STATUS_USAGE, "sample");
    def.sample = own_square;
    def.reserved[0] = 1;
    assert_fails(lk_loss_register(&def), LK_STATUS_USAGE, "lk_loss_def");
    lk_node scores = begin(&graph);
    lk_mse_loss(graph, scores);
    opts.label_smoothing = 0.1;
    assert_fails(lk_engine_create(graph, &opts, &engine), LK_STATUS_USAGE, "`label_smoothing`");
    lk_graph_destroy(graph);
}

/* Only the ranks of an array give weights: all ranks name one that does not, in steps and in evaluations. */
static bool disagree(lk_group *group, const team_spec *team, const void *arg)
{
    const law_way *way = arg;
    law_case c = {"robust", LAW_SMALL, LK_BN_MODE_BATCH, "sgd", 0.1, 1, 16, .shards = 16};
    lk_engine *engine = ranks_engine(&c, way, group);
    law_samples s = law_samples_make(&c);
    lk_batch batch;
    lk_metrics metrics;
    static const float none[16];
    law_batch(&c, 0, s.x, s.labels, s.ids, &batch);
    CHECK_OK(lk_engine_step(engine, &batch, &metrics));
    uint64_t before = law_hash(engine);
    if (lk_group_rank(group) == 1)
        batch.weights = NULL;
    CHECK_FAILS(lk_engine_step(engine, &batch, &metrics), LK_STATUS_MISMATCH, "rank 1 has a batch without `weights`");
    CHECK_FAILS(lk_engine_eval(engine, &batch, &metrics), LK_STATUS_MISMATCH, "rank 1 has a batch without `weights`");
    batch.weights = none;
    CHECK_FAILS(lk_engine_step(engine, &batch, &metrics), LK_STATUS_USAGE, "all 16 samples of the batch have weight 0");
    CHECK(law_hash(engine) == before);
    batch.weights = NULL;
    CHECK_OK(lk_engine_step(engine, &batch, &metrics));
    CHECK(metrics.weight == 16);
    lk_engine_destroy(engine);
    law_samples_free(&s);
    return false;
}

static void test_ranks_disagree(void **state)
{
    static const law_way ways[] = {
        {.ranks = 2, .transport = "inproc", .threads = 1},
        {.ranks = 3, .transport = "shm", .threads = 1, .bucket_bytes = 16 << 10},
        {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "2"},
    };
    for (size_t i = 0; i < COUNT_OF(ways); i++)
        assert_true(team_run(ranks_team(&ways[i]), disagree, &ways[i]));
}

/* A loader of float targets gives batches that the engine learns; the CPU caches no data sets. */
static void test_loader(void **state)
{
    lk_dataset_opts opts = {.count = N, .dims = {FEATURES}, .targets = OUT};
    lk_loader_opts load = {.batch = N};
    lk_engine *engine = named_engine("mse_loss", 1);
    lk_dataset *data;
    lk_loader *loader;
    const lk_batch *batch;
    lk_metrics got, want;
    bool cached = true;
    lk_batch whole = the_batch(true);
    assert_ok(lk_dataset_from_memory(&opts, x, targets, &data));
    assert_ok(lk_loader_create(data, &load, &loader));
    assert_ok(lk_engine_cache_dataset(engine, loader, &cached));
    assert_false(cached);
    assert_ok(lk_loader_start(loader, 0, 0));
    assert_ok(lk_loader_next(loader, &batch));
    assert_ok(lk_engine_eval(engine, batch, &got));
    assert_ok(lk_engine_eval(engine, &whole, &want));
    assert_true(same_metrics(&got, &want));
    lk_loader_destroy(loader);
    lk_dataset_destroy(data);
    lk_engine_destroy(engine);
}

TEST_MAIN(set_up, NULL, TEST(test_own_losses), TEST(test_own_ranks), TEST(test_unwritten_gradient), TEST(test_metrics),
          TEST(test_equal_weights), TEST(test_weight_zero), TEST(test_wrong_batches), TEST(test_wrong_graphs),
          TEST(test_losses_without_a_function_of_the_device), TEST(test_wrong_losses), TEST(test_ranks_disagree),
          TEST(test_loader))
