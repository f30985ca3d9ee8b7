/* steps.c - whole training steps and evaluations: results are near those of the CPU's engine, and repeated runs, waves,
 * clipped steps, steps and evaluations sent ahead and saved states give the same bits.
 *
 * "Way" is the distance of a tensor from its first state. The tolerance of the loss is relative to the loss. That of a
 * tensor is relative to its way plus the usual way of the same number of elements, because some tensors have only noise
 * as gradients, such as a bias before BatchNorm. fp32 errors begin at 1e-6, but the input of a ReLU may change its
 * sign, which changes a gradient by 0.004. Rounding only weights and samples to 11 and 8 bits changes the direction of
 * the CPU's gradients by 0.08 and 0.27 in resnet20, and by 0.02 and 0.08 in the other models; here activations are
 * rounded, too, in three steps.
 *
 * bf16's tolerance would accept a tensor that does not change. So a tensor whose way is at least half of the usual way
 * must move in the direction of the CPU's: rounding to 8 bits as above leaves 0.9 of the way (0.74 for 8 elements), and
 * rounding to 6 bits leaves 0.8 (0.41). */
#include "cuda/outcome.h"

static const struct {
    double loss, way;
} tolerances[] = {
    [LK_PRECISION_FP32] = {1e-4, 0.02},
    [LK_PRECISION_TF32] = {0.01, 0.3},
    [LK_PRECISION_BF16] = {0.05, 0.9},
};

enum { FEW = 16 };

static double length(const float *a, const float *b, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += pow((double)a[i] - (b ? (double)b[i] : 0), 2);
    return sqrt(sum);
}

/* Dot product of a - from and b - from. */
static double dot(const float *from, const float *a, const float *b, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += ((double)a[i] - (double)from[i]) * ((double)b[i] - (double)from[i]);
    return sum;
}

static size_t count_of(const lk_state_entry *entry)
{
    return entry->dtype == LK_DTYPE_F32 ? entry->bytes / sizeof(float) : 0;
}

static bool is_buffer(const lk_state_entry *entry)
{
    return strstr(entry->name, "running_") != NULL;
}

static double way_of(const outcome *o, const lk_state_entry *entry)
{
    return length(entry->data, lk_state_find(o->first, entry->name)->data, count_of(entry));
}

/* Root mean square of the ways of all elements of parameters, or of buffers. */
static double usual_way(const outcome *o, bool buffers)
{
    double sum = 0, count = 0;
    for (size_t i = 0; i < lk_state_count(o->last); i++) {
        const lk_state_entry *entry = lk_state_at(o->last, i);
        if (is_buffer(entry) != buffers || count_of(entry) == 0)
            continue;
        sum += pow(way_of(o, entry), 2);
        count += (double)count_of(entry);
    }
    return count > 0 ? sqrt(sum / count) : 0;
}

/* A tensor with a long way must move at least half of the CPU's way in its direction. With few elements, where noise
 * can be half of the way, any distance in that direction is enough. */
static void check_direction(const law_case *c, const lk_state_entry *got, const lk_state_entry *want, const outcome *o,
                            double usual)
{
    double way = way_of(o, want), least = count_of(want) < FEW ? 0 : 0.5;
    if (way == 0 || way < 0.5 * usual * sqrt((double)count_of(want)))
        return;
    double along = dot(lk_state_find(o->first, want->name)->data, got->data, want->data, count_of(want)) / (way * way);
    if (!(along > least))
        fail_msg("%s, %s: %s came %.3g of the CPU's way", c->model, c->optimizer, want->name, along);
}

/* Returns the largest relative error of all tensors. */
static double compare_states(const law_case *c, const outcome *got, const outcome *want)
{
    double usual[] = {usual_way(want, false), usual_way(want, true)}, farthest = 0;
    for (size_t i = 0; i < lk_state_count(want->last); i++) {
        const lk_state_entry *entry = lk_state_at(want->last, i), *ours = lk_state_find(got->last, entry->name);
        assert_non_null(ours);
        if (count_of(entry) == 0) {
            assert_memory_equal(ours->data, entry->data, entry->bytes);
            continue;
        }
        double between = length(ours->data, entry->data, count_of(entry));
        double off = between / (way_of(want, entry) + usual[is_buffer(entry)] * sqrt((double)count_of(entry)));
        farthest = fmax(farthest, off);
        if (!(off <= tolerances[precision].way))
            fail_msg("%s, %s: %s is off by %.3g of its way", c->model, c->optimizer, entry->name, off);
        check_direction(c, ours, entry, want, usual[is_buffer(entry)]);
    }
    return farthest;
}

static void near_outcomes(const law_case *c, const outcome *got, const outcome *want)
{
    double allowed = tolerances[precision].loss, farthest = 0;
    for (int i = 0; i < c->steps; i++) {
        double off = fabs(got->loss[i] / want->loss[i] - 1);
        farthest = fmax(farthest, off);
        if (!(off <= allowed))
            fail_msg("%s, %s: the loss of step %d is %.9g, the CPU's %.9g", c->model, c->optimizer, i, got->loss[i],
                     want->loss[i]);
    }
    double state = compare_states(c, got, want), eval = fabs(got->eval.loss / want->eval.loss - 1);
    print_message("%s, %s: off by %.2g in losses, %.2g in evaluation, %.2g of a tensor's way\n", c->model, c->optimizer,
                  farthest, eval, state);
    if (!(eval <= 10 * allowed))
        fail_msg("%s: the loss in evaluation is %.9g, the CPU's %.9g", c->model, got->eval.loss, want->eval.loss);
}

static void check(const law_case *c)
{
    outcome got = run_case(c, fx_name(), (law_way){0}), again = run_case(c, fx_name(), (law_way){0});
    same_outcomes("a second run", &got, &again);
    outcome want = run_case(c, "cpu", (law_way){0});
    same_states("first weights", got.first, want.first);
    near_outcomes(c, &got, &want);
    outcome_free(&got);
    outcome_free(&again);
    outcome_free(&want);
}

/* The second of the steps 3, 4 and 5 has half a batch. The learning rate of resnet20 is so small that a change of
 * direction by 0.08 (see above) changes the loss by less than its tolerance. */
static const law_case models[] = {
    {"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.02, 3, 10, 4, .first = 3},
    {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.02, 3, 13, 4, .first = 3},
    {"resnet20:width=8", LAW_SMALL, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.002, 3, 16, 4, .first = 3},
    {"resnet20:width=8", LAW_SMALL, LK_BN_MODE_SHARD, "sgd:momentum=.9", 0.002, 3, 16, 2, .first = 3},
    {"pyramidnet:blocks=1,alpha=8", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.02, 3, 16, 4, .first = 3},
    {"pyramidnet:blocks=1,alpha=8", LAW_ODD, LK_BN_MODE_SHARD, "sgd:momentum=.9", 0.02, 3, 16, 2, .first = 3},
    {"ops", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.02, 3, 12, 3, .first = 3},
    {"gates", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.02, 3, 12, 3, .first = 3},
    {"norms", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.02, 3, 12, 3, .first = 3},
    {"attention", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.02, 3, 12, 3, .first = 3},
    {"upsampled", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.01, 3, 12, 3, .first = 3},
    {"robust", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.05, 3, 12, 3, .first = 3},
    {"weighted", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.02, 3, 12, 3, .first = 3},
    {"autoencoder", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.02, 3, 12, 3, .first = 3},
    {"pooled", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.01, 3, 12, 3, .first = 3},
    {"windows", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.01, 3, 12, 3, .first = 3},
};
enum { MODELS = sizeof models / sizeof *models };

/* A few models, for tests that need no particular one: creating an engine on a GPU takes long. */
enum { CNN = 0, RESNET = 2, RESNET_BY_SHARD = 3, PYRAMIDNET_BY_SHARD = 5, AUTOENCODER = MODELS - 1 };
static const size_t some[] = {CNN, RESNET, PYRAMIDNET_BY_SHARD};
enum { SOME = sizeof some / sizeof *some };

static void test_models(void **state)
{
    for (size_t i = 0; i < MODELS; i++)
        check(&models[i]);
}

/* Adam divides a gradient by its size, also if it is noise, so only fp32 can be compared. */
static void test_optimisers(void **state)
{
    static const char *const optimisers[] = {"sgd",      "sgd:momentum=.9,nesterov=1,weight_decay=1e-4",
                                             "adam",     "adamw:weight_decay=.1",
                                             "adadelta", "rmsprop:centered,momentum=.9"};
    if (precision != LK_PRECISION_FP32)
        return;
    for (size_t i = 0; i < sizeof optimisers / sizeof *optimisers; i++) {
        law_case c = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, optimisers[i], 0, 3, 12, 4, .first = 3};
        check(&c);
        c.clip_norm = 0.25;
        c.label_smoothing = 0.1;
        check(&c);
    }
    law_case cnn = {"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "adadelta", 1.0, 3, 10, 4, .first = 3};
    check(&cnn);
}

/* Models whose steps may have several waves: those without BatchNorm over the batch. */
static void test_waves(void **state)
{
    static const size_t chosen[] = {CNN, RESNET_BY_SHARD};
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++) {
        const law_case *c = &models[chosen[i]];
        outcome whole = run_case(c, fx_name(), (law_way){0});
        outcome waves = run_case(c, fx_name(), (law_way){.micro_batch = c->batch / 2});
        same_outcomes("in waves", &whole, &waves);
        outcome_free(&whole);
        outcome_free(&waves);
    }
}

/* Shards without samples, and the last batch of one sample. */
static void test_small_batches(void **state)
{
    law_case c = {"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "sgd", 0.02, 3, 3, 8, .first = 4};
    check(&c);
    c.model = "mlp";
    c.batch = 1;
    check(&c);
}

/* Sends as many steps ahead as the engine accepts. */
static void run_ahead(lk_engine *engine, const law_case *c, outcome *o)
{
    for (int sent = 0, received = 0; received < c->steps;) {
        while (sent < c->steps && lk_engine_can_send(engine, law_count(c, c->first + sent)))
            take_step(engine, c, c->first + sent++, SENT);
        lk_metrics metrics;
        law_require(lk_engine_receive(engine, &metrics));
        o->norm[received] = c->clip_norm > 0 ? lk_engine_grad_norm(engine) : 0;
        o->loss[received++] = metrics.loss;
    }
}

/* Against steps in halves, which no device records. */
static void check_sent_ahead(size_t model, bool in_waves, double clip_norm)
{
    law_case c = models[model];
    c.steps = MAX_STEPS;
    c.clip_norm = clip_norm;
    outcome one = run_case(&c, fx_name(), (law_way){.halves = true}), many = {0};
    lk_engine *engine = make_engine(&c, fx_name(), (law_way){.micro_batch = in_waves ? c.batch / 2 : 0});
    assert_true(lk_engine_depth(engine) > 1 || strncmp(fx_name(), "cpu", 3) == 0);
    run_ahead(engine, &c, &many);
    finish(engine, &c, &many);
    same_outcomes(in_waves ? "sent ahead, in waves" : "sent ahead", &one, &many);
    outcome_free(&one);
    outcome_free(&many);
}

static void test_steps_sent_ahead(void **state)
{
    for (size_t i = 0; i < SOME; i++)
        check_sent_ahead(some[i], false, 0);
    check_sent_ahead(AUTOENCODER, false, 0);
    check_sent_ahead(AUTOENCODER, true, 0);
}

/* Limits that clip every step, some steps, and none. */
static void test_clipped_sent_ahead(void **state)
{
    static const double limits[] = {1e-3, 1, 1e6};
    for (size_t i = 0; i < SOME; i++)
        check_sent_ahead(some[i], false, limits[i]);
    check_sent_ahead(CNN, true, 0.5);
}

/* Lets the engine do evaluations of other sizes than 1 to 4 samples at once: it keeps recordings of four sizes. */
static void use_up_sizes(lk_engine *engine, const law_case *c)
{
    for (size_t count = 1; count <= 4; count++)
        evaluate_samples(engine, c, count, false);
}

/* Evaluations of two sizes after each step; the second is larger than a batch of training. */
static size_t eval_count(const law_case *c, int step)
{
    return step % 3 == 2 ? 2 * c->batch + 3 : c->batch;
}

/* Steps in halves and evaluations at once: nothing is recorded. */
static outcome evaluate_at_once(const law_case *c, law_way way)
{
    outcome o = {0};
    lk_engine *engine = make_engine(c, fx_name(), way);
    use_up_sizes(engine, c);
    for (int i = 0; i < c->steps; i++) {
        o.loss[i] = take_step(engine, c, c->first + i, IN_HALVES);
        o.evals[i] = evaluate_samples(engine, c, eval_count(c, i), false);
    }
    finish(engine, c, &o);
    return o;
}

static void receive_two(lk_engine *engine, outcome *o, int *received)
{
    lk_metrics metrics;
    law_require(lk_engine_receive(engine, *received % 2 ? &o->evals[*received / 2] : &metrics));
    if (*received % 2 == 0)
        o->loss[*received / 2] = metrics.loss;
    ++*received;
}

/* A step and an evaluation in turn, as many under way as the engine accepts; returns the largest number. */
static int evaluate_ahead(lk_engine *engine, const law_case *c, outcome *o)
{
    int most = 0, received = 0;
    for (int i = 0; i < 2 * c->steps; i++) {
        size_t step = law_count(c, c->first + i / 2), eval = eval_count(c, i / 2);
        while (!(i % 2 ? lk_engine_can_send_eval(engine, eval) : lk_engine_can_send(engine, step)))
            receive_two(engine, o, &received);
        if (i % 2)
            evaluate_samples(engine, c, eval, true);
        else
            take_step(engine, c, c->first + i / 2, SENT);
        most = i + 1 - received > most ? i + 1 - received : most;
    }
    while (received < 2 * c->steps)
        receive_two(engine, o, &received);
    return most;
}

static void test_evaluations_sent_ahead(void **state)
{
    for (size_t i = 0; i < SOME; i++) {
        law_case c = models[some[i]];
        law_way way = {.micro_batch = c.bn == LK_BN_MODE_SHARD ? c.batch / 2 : 0};
        c.steps = MAX_STEPS;
        outcome one = evaluate_at_once(&c, way), many = {0};
        lk_engine *engine = make_engine(&c, fx_name(), way);
        assert_int_equal(evaluate_ahead(engine, &c, &many), lk_engine_depth(engine));
        finish(engine, &c, &many);
        same_outcomes("evaluations sent ahead", &one, &many);
        outcome_free(&one);
        outcome_free(&many);
    }
}

/* One recording of several waves is played for samples, steps and rates that differ. */
static void test_waves_sent_ahead(void **state)
{
    static const size_t chosen[] = {CNN, PYRAMIDNET_BY_SHARD};
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++)
        check_sent_ahead(chosen[i], true, 0);
}

static void copy_states(const lk_engine *from, lk_engine *to)
{
    lk_state *weights, *optimizer, *weights_back, *optimizer_back;
    law_require(lk_engine_state(from, &weights));
    law_require(lk_engine_optimizer_state(from, &optimizer));
    law_require(lk_engine_set_state(to, weights));
    law_require(lk_engine_set_optimizer_state(to, optimizer));
    law_require(lk_engine_state(to, &weights_back));
    law_require(lk_engine_optimizer_state(to, &optimizer_back));
    same_states("a state that came back", weights, weights_back);
    same_states("an optimiser's state that came back", optimizer, optimizer_back);
    lk_state_destroy(weights);
    lk_state_destroy(optimizer);
    lk_state_destroy(weights_back);
    lk_state_destroy(optimizer_back);
}

/* A state that is read and set again is the same, and leads to the same bits. */
static void test_states(void **state)
{
    for (size_t i = 0; i < SOME; i++) {
        const law_case *c = &models[some[i]];
        lk_engine *a = make_engine(c, fx_name(), (law_way){0}), *b = make_engine(c, fx_name(), (law_way){0});
        take_step(a, c, 0, AT_ONCE);
        take_step(a, c, 1, AT_ONCE);
        copy_states(a, b);
        assert_true(evaluate(a, c).loss == evaluate(b, c).loss);
        outcome in_a = {0}, in_b = {0};
        in_a.loss[0] = take_step(a, c, 2, AT_ONCE);
        in_b.loss[0] = take_step(b, c, 2, AT_ONCE);
        finish(a, c, &in_a);
        finish(b, c, &in_b);
        same_outcomes("from a saved state", &in_a, &in_b);
        outcome_free(&in_a);
        outcome_free(&in_b);
    }
}

/* A failed step changes nothing, whether it was sent ahead or not. */
static void check_nonfinite(const law_case *c, bool ahead)
{
    outcome good = run_case(c, fx_name(), (law_way){0}), o = {0};
    lk_engine *engine = make_engine(c, fx_name(), (law_way){0});
    law_samples s = law_samples_make(c);
    lk_batch batch;
    lk_metrics metrics;
    for (int i = 0; i < c->steps; i++) {
        if (i == c->steps - 1) {
            law_batch(c, c->first, s.x, s.labels, s.ids, &batch);
            s.x[5] = INFINITY;
            lk_status status = ahead ? lk_engine_send(engine, &batch) : lk_engine_step(engine, &batch, &metrics);
            if (ahead && status == LK_OK)
                status = lk_engine_receive(engine, &metrics);
            assert_int_equal(status, LK_STATUS_NONFINITE);
        }
        keep_step(engine, c, i, AT_ONCE, &o);
    }
    law_samples_free(&s);
    finish(engine, c, &o);
    same_outcomes("after a step that failed", &good, &o);
    outcome_free(&good);
    outcome_free(&o);
}

static void test_nonfinite(void **state)
{
    law_case clipped = models[CNN];
    clipped.clip_norm = 0.1;
    for (size_t i = 0; i < SOME; i++) {
        check_nonfinite(&models[some[i]], false);
        check_nonfinite(&models[some[i]], true);
    }
    check_nonfinite(&clipped, true);
}

/* Where the samples of a run come from. */
typedef enum samples_way { BROUGHT, CACHED } samples_way;

static lk_loader *open_loader(const law_case *c, const lk_dataset *data, lk_engine *engine, samples_way way)
{
    lk_loader *loader;
    lk_loader_opts opts = {.batch = c->batch, .shuffle = true, .seed = 11};
    if (lk_dataset_get_info(data)->dtype == LK_DTYPE_U8)
        opts.augment = "crop=2,flip";
    law_require(lk_loader_create(data, &opts, &loader));
    if (way == CACHED) {
        bool cached;
        law_require(lk_engine_cache_dataset(engine, loader, &cached));
        assert_int_equal(cached, strncmp(fx_name(), "cpu", 3) != 0);
    }
    return loader;
}

/* The next batch of an epoch; it has no samples if they are on the device. */
static const lk_batch *next_batch(lk_loader *loader)
{
    const lk_batch *batch;
    law_require(lk_loader_next(loader, &batch));
    assert_non_null(batch);
    assert_true((batch->x == NULL) == (batch->source != NULL));
    return batch;
}

enum { EPOCHS = 3, STEPS_OF_EPOCH = MAX_STEPS / EPOCHS };

/* The last steps of some epochs, which end with a small batch, and an evaluation. */
static outcome run_loader(const law_case *c, const lk_dataset *data, samples_way samples, law_way way)
{
    outcome o = {0};
    lk_engine *engine = make_engine(c, fx_name(), way);
    lk_loader *loader = open_loader(c, data, engine, samples);
    size_t begin = lk_loader_batches(loader) - STEPS_OF_EPOCH;
    for (size_t i = 0; i < MAX_STEPS; i++) {
        lk_metrics metrics;
        if (i % STEPS_OF_EPOCH == 0)
            law_require(lk_loader_start(loader, i / STEPS_OF_EPOCH, begin));
        law_require(lk_engine_step(engine, next_batch(loader), &metrics));
        o.loss[i] = metrics.loss;
    }
    law_require(lk_loader_start(loader, EPOCHS, begin));
    for (size_t i = 0; i < STEPS_OF_EPOCH; i++) /* all but the first one of a size are recorded */
        law_require(lk_engine_eval(engine, next_batch(loader), &o.evals[i]));
    o.eval = o.evals[0];
    keep_states(engine, &o);
    lk_loader_destroy(loader);
    lk_engine_destroy(engine);
    return o;
}

/* A data set that is cached on the device, in whole steps and in waves, against samples of the loader. */
static void check_cached(const law_case *c, const lk_dataset *data)
{
    assert_true(lk_dataset_get_info(data)->count % c->batch != 0);
    outcome brought = run_loader(c, data, BROUGHT, (law_way){0});
    outcome cached = run_loader(c, data, CACHED, (law_way){0});
    outcome waves = run_loader(c, data, CACHED, (law_way){.micro_batch = c->batch / 2});
    same_outcomes("samples on the device", &brought, &cached);
    same_outcomes("samples on the device, in waves", &brought, &waves);
    outcome_free(&brought);
    outcome_free(&cached);
    outcome_free(&waves);
}

static void test_cached_dataset(void **state)
{
    law_case c = {"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.02, .batch = 22, .shards = 4};
    lk_dataset *data;
    law_require(lk_dataset_open("digits", NULL, LK_SPLIT_TRAIN, &data));
    check_cached(&c, data);
    lk_dataset_destroy(data);
}

/* Images of floats, which are their own targets. */
static void test_cached_floats(void **state)
{
    enum { COUNT = 95, FLOATS = 15 * 13 * 3 };
    law_case c = {"autoencoder", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.02, .batch = 22, .shards = 4};
    lk_dataset_opts opts = {.count = COUNT, .dims = {15, 13, 3}, .order = LK_SAMPLE_ORDER_HWC, .targets = FLOATS};
    float *x = random_floats((size_t)COUNT * FLOATS, 3);
    lk_dataset *data;
    law_require(lk_dataset_from_memory(&opts, x, x, &data));
    check_cached(&c, data);
    lk_dataset_destroy(data);
    free(x);
}

int main(void)
{
    return fx_main(TESTS(TEST(test_models), TEST(test_optimisers), TEST(test_waves), TEST(test_small_batches),
                         TEST(test_steps_sent_ahead), TEST(test_states), TEST(test_nonfinite),
                         TEST(test_cached_dataset), TEST(test_cached_floats), TEST(test_waves_sent_ahead),
                         TEST(test_clipped_sent_ahead), TEST(test_evaluations_sent_ahead)),
                   FX_FP32 | FX_TF32 | FX_BF16);
}
