/* test_train.c - the training loop on a small data set: its events, the models it saves, and mistakes,
 * which are found before the first step. */
#include "tiny.h"
#include "train/parts.h"

static void events_tell_the_run(void **state)
{
    lk_train_opts opts = options();
    record told;
    lk_train_outcome result = train_well(&opts, &told);
    assert_int_equal(told.starts, 1);
    assert_int_equal(told.start.batches, 3);
    assert_int_equal(told.start.steps, 6);
    assert_int_equal(told.start.self.layout.threads, 2);
    assert_true(told.has_test);
    assert_int_equal(told.steps, 6);
    for (size_t i = 0; i < 6; i++) {
        const lk_train_step *step = &told.step[i];
        assert_int_equal(step->epoch, i / 3 + 1);
        assert_int_equal(step->batch, i % 3);
        assert_int_equal(step->seen, i % 3 * 32);
        assert_int_equal(step->step, i + 1);
        assert_int_equal(step->metrics.count, i % 3 == 2 ? 26 : 32);
        assert_true(step->lr == (i < 3 ? 1.0 : 0.5));
    }
    assert_int_equal(told.step[5].samples, 2 * TRAIN_COUNT);
    assert_int_equal(told.tests, 2);
    assert_int_equal(result.steps, 6);
    assert_int_equal(result.samples, 2 * TRAIN_COUNT);
    assert_string_equal(result.saved, "");
    assert_int_equal(told.ends, 1);
    assert_true(told.end.hash == result.hash);
    assert_int_equal(told.start.self.ranks, 1);
    assert_int_equal(told.step[0].own.count, 32);
}

static void activities_are_told(void **state)
{
    lk_train_opts opts = options();
    record told;
    (void)train_well(&opts, &told);
    assert_string_equal(told.activities, "O P S T0/3 T1/3 T2/3 T3/3 S T0/3 T1/3 T2/3 T3/3 E ");
    /* Three linear layers and what is between them, forward and backward; fused layers count once or not. */
    assert_true(told.meter.total > 0 && told.meter.done > 0 && told.meter.done <= told.meter.total);
    opts.model = "cnm";
    lk_train_outcome result;
    assert_int_equal(train(&opts, &told, &result), LK_STATUS_USAGE);
    assert_string_equal(told.activities, "O ");
}

static void each_test_sample_counts_once(void **state)
{
    const size_t batches[] = {1, 7, 16, TEST_COUNT, 1000};
    lk_train_outcome first = {0};
    for (size_t i = 0; i < COUNT_OF(batches); i++) {
        lk_train_opts opts = options();
        opts.test_batch = batches[i];
        record told;
        lk_train_outcome result = train_well(&opts, &told);
        assert_int_equal(result.test.count, TEST_COUNT);
        if (i == 0)
            first = result;
        assert_int_equal(result.test.correct, first.test.correct);
        assert_true(fabs(result.test.loss - first.test.loss) < 1e-5 * (1 + first.test.loss));
        assert_true(result.hash == first.hash);
    }
}

static void train_loss_is_the_mean_over_samples(void **state)
{
    lk_train_opts opts = options();
    record told;
    (void)train_well(&opts, &told);
    double sum = 0;
    for (size_t i = 0; i < 3; i++)
        sum += told.step[i].metrics.loss * (double)told.step[i].metrics.count;
    assert_true(fabs(told.test[0].train_loss - sum / TRAIN_COUNT) < 1e-12 * sum);
}

/* Sums over the steps of an epoch, and the results of the epochs. */
typedef struct weighted_sums {
    double loss, weight;
    size_t stop_at; /* the step after which the run stops; 0: never */
    size_t epochs;
    double train_loss[4];
} weighted_sums;

static void sum_step(void *arg, const lk_train_step *step)
{
    weighted_sums *sums = arg;
    assert_true(step->metrics.weight != (double)step->metrics.count);
    sums->loss += step->metrics.loss * step->metrics.weight;
    sums->weight += step->metrics.weight;
    if (step->step == sums->stop_at)
        lk_train_stop(step->run);
}

static void keep_epoch(void *arg, const lk_train_epoch *epoch)
{
    weighted_sums *sums = arg;
    sums->train_loss[sums->epochs++] = epoch->train_loss;
    if (sums->epochs == 1 && sums->weight > 0)
        assert_true(epoch->train_loss == sums->loss / sums->weight);
}

/* A run that stopped within an epoch and was resumed gives the same mean, to the bit. */
static void train_loss_is_the_mean_by_weights(void **state)
{
    static const float weights[10] = {1, .5f, 3, 0, 2, .25f, 1, 7, .125f, 1};
    char data[PATH], dir[PATH];
    lk_graph *graph;
    assert_ok(lk_graph_create(&graph));
    lk_node x = lk_flatten(graph, lk_input(graph, 1, SIDE, SIDE));
    lk_weigh_classes(graph, lk_cross_entropy(graph, lk_linear(graph, x, "fc", 10)), weights, 10);
    lk_train_opts opts = {.graph = graph, .data = below("tiny", data), .batch = 16, .epochs = 2, .alone = true};
    weighted_sums whole = {0}, first = {.stop_at = 2}, rest = {.epochs = 0};
    lk_train_result result, resumed;
    assert_ok(lk_train(&opts, &(lk_train_events){.arg = &whole, .step = sum_step, .epoch = keep_epoch}, &result));
    assert_int_equal(whole.epochs, 2);
    opts.checkpoint = below("weighted", dir);
    opts.resume = "auto";
    assert_ok(lk_train(&opts, &(lk_train_events){.arg = &first, .step = sum_step}, &resumed));
    assert_true(resumed.stopped);
    assert_ok(lk_train(&opts, &(lk_train_events){.arg = &rest, .epoch = keep_epoch}, &resumed));
    assert_true(resumed.hash == result.hash);
    assert_memory_equal(rest.train_loss, whole.train_loss, sizeof whole.train_loss);
    /* A run that has nothing left to do reads the results of its last evaluation. */
    assert_ok(lk_train(&opts, NULL, &resumed));
    assert_true(resumed.test.weight == result.test.weight && resumed.test.loss == result.test.loss);
    assert_true(result.test.weight != (double)result.test.count);
    lk_graph_destroy(graph);
}

static void a_model_learns(void **state)
{
    lk_train_opts opts = options();
    opts.epochs = 6;
    record told;
    lk_train_outcome result = train_well(&opts, &told);
    assert_true(told.test[5].metrics.loss < told.test[0].metrics.loss);
    assert_true(result.test.correct > TEST_COUNT / 2);
}

static void the_division_of_work_leaves_no_trace(void **state)
{
    record told;
    lk_train_outcome plain, other;
    lk_train_opts opts = options();
    opts.threads = 1;
    opts.workers = 0;
    plain = train_well(&opts, &told);
    opts.threads = 3;
    opts.workers = 3;
    opts.micro_batch = 5;
    other = train_well(&opts, &told);
    assert_true(plain.hash == other.hash);
    opts.seed = 2;
    other = train_well(&opts, &told);
    assert_true(plain.hash != other.hash);
}

static void short_runs_end_in_time(void **state)
{
    record told;
    lk_train_outcome result;
    lk_train_opts opts = options();
    opts.max_steps = 4;
    result = train_well(&opts, &told);
    assert_int_equal(told.steps, 4);
    assert_int_equal(told.tests, 2);
    opts.dry_run = true;
    result = train_well(&opts, &told);
    assert_int_equal(told.steps, 1);
    assert_int_equal(told.tests, 1);
    assert_int_equal(result.test.count, 16);
    opts.no_test = true;
    result = train_well(&opts, &told);
    assert_int_equal(told.tests, 0);
    assert_false(told.has_test);
    assert_int_equal(result.test.count, 0);
}

static void a_batch_larger_than_the_data_is_the_data(void **state)
{
    record told;
    lk_train_opts opts = options();
    opts.batch = 1000000000;
    (void)train_well(&opts, &told);
    assert_int_equal(told.steps, 2);
    assert_int_equal(told.step[0].metrics.count, TRAIN_COUNT);
}

static void saved_models_come_back(void **state)
{
    char pattern[PATH], path[PATH];
    record told;
    lk_train_outcome result;
    lk_train_opts opts = options();
    opts.save_model = below("of-{rank}.safetensors", pattern);
    result = train_well(&opts, &told);
    assert_string_equal(result.saved, below("of-0.safetensors", path));

    lk_state *saved;
    assert_int_equal(lk_state_load(path, &saved), LK_OK);
    assert_true(lk_state_hash(saved) == result.hash);
    lk_state_destroy(saved);

    lk_metrics metrics;
    opts.init_from = path;
    size_t classes;
    assert_int_equal(lk__train_evaluate(&opts, &opts.device, 1, NULL, &metrics, &classes), LK_OK);
    assert_int_equal(classes, 10);
    assert_int_equal(metrics.count, TEST_COUNT);
    assert_int_equal(metrics.correct, result.test.correct);
    assert_true(metrics.loss == result.test.loss);
    assert_int_equal(metrics.top5, result.test.top5);

    uint64_t hash = result.hash;
    opts.epochs = 0;
    opts.save_model = NULL;
    result = train_well(&opts, &told);
    assert_true(result.hash == hash);
    opts.model = "mlp:hidden=8";
    assert_int_equal(train(&opts, &told, &result), LK_STATUS_MISMATCH);
    assert_int_equal(told.starts, 0);
}

/* The run fails with the status and the word, makes no step and writes no result. */
static void refuse(const lk_train_opts *opts, lk_status wanted, const char *word)
{
    record told;
    lk_train_outcome result = {.steps = 77};
    lk_status status = train(opts, &told, &result);
    if (status != wanted || !strstr(lk_error_detail(), word))
        fail_msg("status %d, not %d: '%s' should name '%s'", (int)status, (int)wanted, lk_error_detail(), word);
    assert_int_equal(told.starts, 0);
    assert_int_equal(result.steps, 77);
}

static void mistakes_are_found_before_the_first_step(void **state)
{
    char path[PATH];
    lk_train_opts opts = options();
    opts.save_model = below("missing/model.safetensors", path);
    refuse(&opts, LK_STATUS_USAGE, "`save_model`");
    opts.save_model = temp_folder;
    refuse(&opts, LK_STATUS_USAGE, "is a folder");
    opts.save_model = "/dev/null";
    refuse(&opts, LK_STATUS_USAGE, "not a regular file");

    opts = options();
    opts.init_from = below("absent.safetensors", path);
    refuse(&opts, LK_STATUS_NOT_FOUND, "absent.safetensors");
    opts.init_from = below("tiny/train-labels-idx1-ubyte", path);
    refuse(&opts, LK_STATUS_FORMAT, "train-labels");

    opts = options();
    opts.schedule = "stepp";
    refuse(&opts, LK_STATUS_USAGE, "stepp");
    opts = options();
    opts.model = "cnm";
    refuse(&opts, LK_STATUS_USAGE, "cnm");
    opts = options();
    opts.data = below("half", path);
    refuse(&opts, LK_STATUS_NOT_FOUND, "half");
    opts.data = below("odd", path);
    refuse(&opts, LK_STATUS_MISMATCH, "1x9x9");
}

static void a_run_that_diverges_saves_nothing(void **state)
{
    char path[PATH];
    record told;
    lk_train_outcome result;
    lk_train_opts opts = options();
    opts.optimizer = "sgd";
    opts.lr = 1e30;
    opts.save_model = below("never.safetensors", path);
    assert_int_equal(train(&opts, &told, &result), LK_STATUS_NONFINITE);
    assert_int_equal(told.starts, 1);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void weights_that_are_not_finite_are_not_saved(void **state)
{
    char path[PATH];
    record told;
    lk_train_outcome result;
    lk_train_opts opts = options();
    opts.optimizer = "sgd:weight_decay=1e6";
    opts.lr = 1e36;
    opts.max_steps = 1;
    opts.no_test = true;
    opts.save_model = below("burst.safetensors", path);
    assert_int_equal(train(&opts, &told, &result), LK_STATUS_NONFINITE);
    assert_int_equal(told.steps, 1);
    assert_detail("key \"");
    assert_int_not_equal(access(path, F_OK), 0);
}

static void rank_in_a_path(void **state)
{
    char out[32];
    assert_int_equal(lk__train_save_path("a{rank}b{rank}", 12, out, sizeof out), LK_OK);
    assert_string_equal(out, "a12b12");
    assert_int_equal(lk__train_save_path("plain {ran}", 0, out, sizeof out), LK_OK);
    assert_string_equal(out, "plain {ran}");
    assert_int_equal(lk__train_save_path("abcd", 0, out, 5), LK_OK);
    assert_int_equal(lk__train_save_path("abcde", 0, out, 5), LK_STATUS_USAGE);
    assert_int_equal(lk__train_save_path("abc{rank}", 12, out, 5), LK_STATUS_USAGE);
}

TEST_MAIN(make_data, temp_folder_tear_down, TEST(events_tell_the_run), TEST(activities_are_told),
          TEST(each_test_sample_counts_once), TEST(train_loss_is_the_mean_over_samples),
          TEST(train_loss_is_the_mean_by_weights), TEST(a_model_learns), TEST(the_division_of_work_leaves_no_trace),
          TEST(short_runs_end_in_time), TEST(a_batch_larger_than_the_data_is_the_data), TEST(saved_models_come_back),
          TEST(mistakes_are_found_before_the_first_step), TEST(a_run_that_diverges_saves_nothing),
          TEST(weights_that_are_not_finite_are_not_saved), TEST(rank_in_a_path))
