/* test_watch.c - the validation split, the schedule that watches results, and the early end: the same decisions and
 * bits with any number of ranks and after a resume from any step. */
#include "tiny.h"
#include "train/parts.h"

enum { EPOCHS = 4, VAL = 18 };

/* Accuracies seldom become better by half, so rates drop. */
static lk_train_opts watched(void)
{
    lk_train_opts opts = options();
    opts.optimizer = "sgd";
    opts.lr = .5;
    opts.epochs = EPOCHS;
    opts.schedule = "plateau:patience=0,factor=.5,accuracy,threshold=.5";
    opts.val_split = .2;
    return opts;
}

static void the_validation_data_are_held_back(void **state)
{
    lk_train_opts opts = watched(), plain = opts;
    record told[3];
    lk_train_outcome one = train_well(&opts, told), three;
    lk_train_failure failure;
    assert_int_equal(told->counts[0], TRAIN_COUNT - VAL);
    assert_int_equal(told->counts[1], VAL);
    assert_int_equal(told->counts[2], TEST_COUNT);
    assert_int_equal(told->tests, 2 * EPOCHS);
    for (int i = 0; i < told->tests; i++) {
        assert_int_equal(told->test[i].val, i % 2 == 0);
        assert_int_equal(told->test[i].metrics.count, i % 2 == 0 ? VAL : TEST_COUNT);
    }
    assert_int_equal(one.val.count, VAL);
    lk_metrics first = told->test[0].metrics;
    assert_int_equal(train_ranks(&opts, 3, told, &three, &failure), LK_OK);
    assert_true(one.hash == three.hash);
    assert_memory_equal(&told[0].test[0].metrics, &first, sizeof first);
    plain.val_split = 0;
    assert_true(train_well(&plain, told).hash != one.hash);
    opts.no_test = true;
    assert_true(train_well(&opts, told).hash == one.hash);
    assert_int_equal(told->tests, EPOCHS);
}

/* Counts the labels of a data set, and writes them. */
static size_t labels_of(const lk_dataset *data, size_t counts[10], int32_t *labels)
{
    uint8_t pixels[SIDE * SIDE];
    size_t count = lk_dataset_get_info(data)->count;
    for (size_t i = 0; i < count; i++) {
        assert_ok(lk_dataset_get(data, i, pixels, &labels[i]));
        counts[labels[i]]++;
    }
    return count;
}

/* Every sample is in one part, and another seed draws other samples. */
static void the_seed_draws_them(void **state)
{
    lk_train_opts opts = watched();
    lk_dataset *whole, *train, *val;
    int32_t labels[2][TRAIN_COUNT], rest[TRAIN_COUNT];
    assert_ok(lk_dataset_open(opts.data, NULL, LK_SPLIT_TRAIN, &whole));
    for (opts.seed = 0; opts.seed < 2; opts.seed++) {
        size_t counts[10] = {0}, all[10] = {0};
        assert_ok(lk__train_split(&opts, whole, &train, &val));
        assert_int_equal(labels_of(val, counts, labels[opts.seed]), VAL);
        assert_int_equal(labels_of(train, counts, rest), TRAIN_COUNT - VAL);
        assert_int_equal(labels_of(whole, all, rest), TRAIN_COUNT);
        assert_memory_equal(counts, all, sizeof all);
        lk_dataset_destroy(train);
        lk_dataset_destroy(val);
    }
    assert_memory_not_equal(labels[0], labels[1], VAL * sizeof *labels[0]);
    lk_dataset_destroy(whole);
}

static void rates_follow_the_results(void **state)
{
    lk_train_opts opts = watched();
    record told;
    lk_lr_schedule *schedule;
    lk_lr_schedule_watch watch = {0};
    (void)train_well(&opts, &told);
    assert_ok(lk_lr_schedule_create(opts.schedule, &schedule));
    for (size_t i = 0; i < told.steps; i++) {
        size_t epoch = told.step[i].epoch - 1;
        lk_lr_schedule_at at = {epoch, EPOCHS, told.step[i].batch, told.start.batches, watch.drops};
        assert_true(told.step[i].lr == lk_lr_schedule_lr(schedule, opts.lr, at));
        const lk_metrics *result = &told.test[2 * epoch].metrics;
        lk_lr_schedule_result seen = {.loss = result->loss, .accuracy = (double)result->correct / VAL};
        if (told.step[i].batch + 1 == told.start.batches)
            lk_lr_schedule_observe(schedule, at, seen, &watch);
    }
    lk_lr_schedule_destroy(schedule);
    assert_true(watch.drops > 0 && told.step[told.steps - 1].lr < opts.lr);
}

static void the_run_ends_early(void **state)
{
    lk_train_opts opts = watched();
    record told[3];
    lk_train_outcome result;
    lk_train_failure failure;
    opts.lr = 1e-30; /* nothing changes, so nothing becomes better */
    opts.early_stop = 2;
    result = train_well(&opts, told);
    assert_int_equal(result.stale, 2);
    assert_int_equal(result.steps, 3 * told->start.batches);
    assert_int_equal(train_ranks(&opts, 3, told, &result, &failure), LK_OK);
    assert_int_equal(result.steps, 3 * told->start.batches);
    opts.early_stop = EPOCHS;
    assert_int_equal(train_well(&opts, told).stale, 0);
}

/* A run that is stopped after a step. */
typedef struct stopped_run {
    record told;
    size_t after;
    atomic_int level;
} stopped_run;

static void step_and_stop(void *arg, const lk_train_step *step)
{
    stopped_run *run = arg;
    if (step->step == run->after)
        atomic_store(&run->level, LK_SIGNAL_LEVEL_STOP);
}

static void stop_after(const lk_train_opts *opts, size_t after)
{
    stopped_run run = {.after = after};
    lk_train_hooks hooks = {.arg = &run, .step = step_and_stop};
    const char *device = "cpu";
    lk_group_opts group = {.timeout = 60};
    lk_train_ranks ranks = {.opts = opts,
                            .count = 1,
                            .devices = &device,
                            .group = &group,
                            .one_process = true,
                            .hooks = &hooks,
                            .signal_level = &run.level};
    lk_train_outcome result;
    lk_train_failure failure;
    assert_ok(lk__train(&ranks, &result, &failure));
    assert_true(result.stopped);
}

static void resume(lk_train_opts opts, size_t after, const lk_train_outcome *whole)
{
    char name[32], dir[PATH];
    record told[2];
    lk_resume found;
    lk_train_outcome result;
    lk_train_failure failure;
    snprintf(name, sizeof name, "resume%zu", after);
    opts.checkpoint = below(name, dir);
    opts.keep = 1;
    stop_after(&opts, after);
    assert_ok(lk__resume_find(NULL, dir, &found));
    opts.resume = found.path;
    assert_int_equal(train_ranks(&opts, 2, told, &result, &failure), LK_OK);
    assert_true(result.hash == whole->hash);
    assert_int_equal(result.steps, whole->steps);
    assert_int_equal(result.stale, whole->stale);
    lk__resume_fini(&found);
}

static void a_resumed_run_decides_alike(void **state)
{
    lk_train_opts opts = watched();
    record told;
    opts.early_stop = 2;
    lk_train_outcome whole = train_well(&opts, &told);
    for (size_t after = 1; after < whole.steps; after++)
        resume(opts, after, &whole);
}

/* After the end, the same line ends again at once. */
static void an_ended_run_stays_ended(void **state)
{
    char dir[PATH];
    lk_train_opts opts = watched();
    record told;
    lk_resume found;
    opts.lr = 1e-30;
    opts.early_stop = 1;
    opts.checkpoint = below("ended", dir);
    opts.keep = 1;
    lk_train_outcome whole = train_well(&opts, &told);
    assert_int_equal(whole.stale, 1);
    assert_ok(lk__resume_find(NULL, dir, &found));
    opts.resume = found.path;
    lk_train_outcome again = train_well(&opts, &told);
    assert_int_equal(told.steps, 0);
    assert_int_equal(again.steps, whole.steps);
    assert_true(again.hash == whole.hash);
    opts.test_batch = 7;
    lk_train_outcome result;
    assert_int_equal(train(&opts, &told, &result), LK_STATUS_USAGE);
    assert_detail("`test_batch` 7");
    opts.test_batch = 16;
    opts.val_split = .3;
    assert_int_equal(train(&opts, &told, &result), LK_STATUS_USAGE);
    assert_detail("`val_split` 0.3");
    lk__resume_fini(&found);
}

static void refuse(const lk_train_opts *opts, const char *hint)
{
    record told;
    lk_train_outcome result;
    assert_int_equal(train(opts, &told, &result), LK_STATUS_USAGE);
    assert_detail(hint);
}

static void results_are_needed(void **state)
{
    lk_train_opts opts = watched();
    opts.val_split = 0;
    opts.no_test = true;
    refuse(&opts, "`schedule` plateau");
    opts.early_stop = 1;
    refuse(&opts, "`early_stop` watches the results of epochs, and `no_test` leaves none: add `val_split`");
}

TEST_MAIN(make_data, temp_folder_tear_down, TEST(the_validation_data_are_held_back), TEST(the_seed_draws_them),
          TEST(rates_follow_the_results), TEST(the_run_ends_early), TEST(a_resumed_run_decides_alike),
          TEST(an_ended_run_stays_ended), TEST(results_are_needed))
