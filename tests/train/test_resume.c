/* test_resume.c - a run that is stopped at any step and resumes from its checkpoint, in another layout
 * of ranks, ends with the bits of a run that was not stopped. */
#include "base/mem.h"
#include "resume.h"

static void any_step_and_any_layout_go_on_to_the_same_bits(void **state)
{
    static const struct {
        int ranks;
        const char *stages;
        bool pipelined;
    } layouts[] = {{1, NULL, false}, {2, NULL, false}, {3, NULL, false},
                   {2, "2", false},  {4, "2", true},   {5, NULL, false}};
    enum { LAYOUTS = COUNT_OF(layouts) };
    char name[32], dir[PATH];
    lk_train_opts opts = options();
    uint64_t hash = uninterrupted(&opts);
    for (size_t after = 1; after < STEPS; after++) {
        snprintf(name, sizeof name, "any%zu", after);
        lk_train_opts here = options_in(name, dir);
        here.stages = layouts[after % LAYOUTS].stages;
        here.pipelined = layouts[after % LAYOUTS].pipelined;
        asked first;
        lk_train_outcome result = stop_after(&here, layouts[after % LAYOUTS].ranks, after);
        assert_true(result.steps >= after && result.steps <= after + 1);
        for (size_t i = 0; i < LAYOUTS; i++) {
            lk_train_opts there = here;
            char away[PATH];
            snprintf(name, sizeof name, "any%zu-%zu", after, i);
            there.checkpoint = below(name, away);
            there.stages = layouts[i].stages;
            there.pipelined = layouts[i].pipelined;
            there.threads = 1 + (int)(i % 2);
            lk_train_outcome end = run_well(&there, layouts[i].ranks, &first);
            assert_false(end.stopped);
            assert_int_equal(first.told.start.done, result.steps);
            assert_int_equal(end.steps, STEPS);
            assert_true(end.hash == hash);
        }
    }
}

/* 90 samples are 3 batches of 24, and 18 that are left out; tests use every sample. */
static void a_run_without_the_last_batches_goes_on(void **state)
{
    char name[32], dir[PATH];
    for (size_t after = 1; after < STEPS; after++) {
        snprintf(name, sizeof name, "drop%zu", after);
        lk_train_opts opts = options_in(name, dir);
        opts.batch = 24;
        opts.drop_last = true;
        uint64_t hash = uninterrupted(&opts);
        asked told;
        (void)stop_after(&opts, 1 + (int)after % 3, after);
        lk_train_outcome result = run_well(&opts, 1 + (int)(after + 1) % 3, &told);
        assert_int_equal(told.told.start.batches, BATCHES);
        assert_int_equal(result.steps, STEPS);
        assert_int_equal(result.test.count, TEST_COUNT);
        assert_true(result.hash == hash);
    }
}

static void an_epoch_without_a_batch_is_refused(void **state)
{
    lk_train_opts opts = options();
    record told[2];
    lk_train_outcome result;
    lk_train_failure failure;
    opts.batch = TRAIN_COUNT + 1;
    opts.drop_last = true;
    assert_fails(train_ranks(&opts, 2, told, &result, &failure), LK_STATUS_USAGE, "use a smaller `batch`");
    assert_int_equal(failure.fault, LK_TRAIN_FAULT_COMMON);
    lk__train_failure_fini(&failure);
}

static void every_optimiser_goes_on(void **state)
{
    static const char *const optimizers[] = {"sgd:momentum=.9,weight_decay=.01", "adam", "adamw", "adadelta"};
    char name[32], dir[PATH];
    for (size_t i = 0; i < COUNT_OF(optimizers); i++) {
        snprintf(name, sizeof name, "optim%zu", i);
        lk_train_opts opts = options_in(name, dir);
        opts.optimizer = optimizers[i];
        opts.lr = .01;
        opts.model = "cnn";
        opts.data = "digits";
        opts.max_steps = 4;
        opts.no_test = true;
        uint64_t hash = uninterrupted(&opts);
        asked first;
        (void)stop_after(&opts, 2, 1);
        assert_true(run_well(&opts, 1, &first).hash == hash);
    }
}

/* The training loss of an epoch includes the batches before the stop. */
static void what_is_told_goes_on(void **state)
{
    char dir[PATH];
    lk_train_opts opts = options_in("told", dir);
    asked whole, part;
    lk_train_opts plain = opts;
    plain.checkpoint = NULL;
    (void)run_well(&plain, 1, &whole);
    (void)stop_after(&opts, 1, 1);
    (void)run_well(&opts, 2, &part);
    assert_int_equal(part.told.tests, 2);
    for (int i = 0; i < 2; i++) {
        assert_true(part.told.test[i].train_loss == whole.told.test[i].train_loss);
        assert_true(part.told.test[i].metrics.loss == whole.told.test[i].metrics.loss);
        assert_int_equal(part.told.test[i].metrics.correct, whole.told.test[i].metrics.correct);
    }
    size_t skipped = STEPS - part.told.steps;
    for (size_t i = 0; i < part.told.steps; i++) {
        const lk_train_step *a = &part.told.step[i], *b = &whole.told.step[skipped + i];
        assert_int_equal(a->step, b->step);
        assert_int_equal(a->epoch, b->epoch);
        assert_int_equal(a->batch, b->batch);
        assert_int_equal(a->seen, b->seen);
        assert_true(a->lr == b->lr);
        assert_true(a->metrics.loss == b->metrics.loss);
    }
}

static void a_signal_saves_and_the_run_goes_on(void **state)
{
    char dir[PATH];
    lk_train_opts opts = options_in("signal", dir);
    opts.save_every = 1000;
    asked first;
    lk_train_outcome result;
    assert_int_equal(run(&opts, 2, 1, LK_SIGNAL_LEVEL_SAVE, &first, &result), LK_OK);
    assert_false(result.stopped);
    assert_int_equal(result.steps, STEPS);
    assert_true(result.hash == uninterrupted(&opts));
    assert_true(first.saves >= 2);
    assert_int_equal(first.saved[0].step, 2);
    assert_int_equal(first.saved[first.saves - 1].step, STEPS);
    assert_string_equal(result.checkpoint, first.paths[first.saves - 1]);
}

static void the_newest_and_the_best_stay(void **state)
{
    char dir[PATH];
    lk_train_opts opts = options_in("keep", dir);
    opts.save_every = 1;
    opts.epochs = 5;
    opts.keep = 2;
    opts.lr = 1e-30; /* learns nothing: the first test result stays the best */
    asked first;
    (void)run_well(&opts, 1, &first);
    uint64_t *steps, best = 0;
    size_t count;
    assert_int_equal(lk__checkpoint_list(dir, &steps, &count), LK_OK);
    assert_int_equal(count, 3);
    assert_int_equal(steps[0], BATCHES);
    assert_int_equal(steps[1], 5 * BATCHES - 1);
    assert_int_equal(steps[2], 5 * BATCHES);
    assert_true(lk__checkpoint_best(dir, &best));
    assert_int_equal(best, BATCHES);
    for (size_t i = 0; i < count; i++) {
        char path[PATH];
        assert_int_equal(lk__checkpoint_path(dir, steps[i], path, sizeof path), LK_OK);
        assert_int_equal(lk_checkpoint_verify(path), LK_OK);
    }
    lk__mem_free(steps);
}

/* Learning rates follow from the position in the run, also in a warm-up. */
static void a_warm_up_goes_on(void **state)
{
    char dir[PATH];
    lk_train_opts opts = options_in("warmup", dir);
    asked told;
    opts.schedule = "step:gamma=.5,warmup=2";
    uint64_t hash = uninterrupted(&opts);
    (void)stop_after(&opts, 1, 1);
    assert_true(run_well(&opts, 2, &told).hash == hash);
    lk_lr_schedule_rates rates = told.told.start.rates;
    assert_true(rates.first == 0.5 && rates.highest == 1 && rates.last == 1);
}

static void a_finished_run_has_nothing_left_to_do(void **state)
{
    char dir[PATH];
    lk_train_opts opts = options_in("finished", dir);
    asked told;
    lk_train_outcome first = run_well(&opts, 1, &told);
    resume_newest(&opts);
    lk_train_outcome again = run_well(&opts, 1, &told);
    assert_int_equal(told.told.steps, 0);
    assert_int_equal(told.told.tests, 0);
    assert_true(again.hash == first.hash);
    assert_int_equal(again.test.correct, first.test.correct);
}

/* A run that is stopped in an evaluation repeats the evaluation when it resumes. */
static void a_stopped_evaluation_is_repeated(void **state)
{
    char dir[PATH];
    lk_train_opts opts = options_in("evaluation", dir);
    opts.test_batch = 1;
    uint64_t hash = uninterrupted(&opts);
    asked told;
    lk_train_outcome result;
    assert_ok(run(&opts, 1, BATCHES, LK_SIGNAL_LEVEL_STOP, &told, &result));
    assert_true(result.stopped);
    assert_int_equal(result.steps, BATCHES);
    assert_int_equal(told.told.tests, 0);
    resume_newest(&opts);
    result = run_well(&opts, 3, &told);
    assert_int_equal(told.told.tests, 2);
    assert_true(result.hash == hash);
}

static void checkpoints_are_the_same_bytes_in_any_layout(void **state)
{
    char dir[PATH], other[PATH], path[PATH];
    lk_train_opts opts = options_in("bytes1", dir), more = options_in("bytes3", other);
    opts.max_steps = more.max_steps = 4;
    asked told;
    (void)run_well(&opts, 1, &told);
    (void)run_well(&more, 3, &told);
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "checkpoint.json"};
    for (size_t i = 0; i < 3; i++) {
        static char bytes[2][1 << 20];
        size_t sizes[2];
        for (int side = 0; side < 2; side++) {
            assert_int_equal(lk__checkpoint_path(side ? other : dir, 4, path, sizeof path), LK_OK);
            strncat(path, "/", sizeof path - strlen(path) - 1);
            strncat(path, files[i], sizeof path - strlen(path) - 1);
            FILE *file = fopen(path, "rb");
            assert_non_null(file);
            sizes[side] = fread(bytes[side], 1, sizeof bytes[side], file);
            fclose(file);
        }
        assert_int_equal(sizes[0], sizes[1]);
        assert_memory_equal(bytes[0], bytes[1], sizes[0]);
    }
}

static void damaged_ones_are_passed_over(void **state)
{
    char dir[PATH], path[sizeof((lk_train_outcome *)NULL)->checkpoint + 32];
    lk_train_opts opts = options_in("passed", dir);
    opts.save_every = 1;
    uint64_t hash = uninterrupted(&opts);
    asked told;
    lk_train_outcome result;
    assert_int_equal(run(&opts, 1, 3, LK_SIGNAL_LEVEL_STOP, &told, &result), LK_OK);
    snprintf(path, sizeof path, "%s/model.safetensors", result.checkpoint);
    assert_int_equal(truncate(path, 100), 0);
    resume_newest(&opts);
    assert_null(strchr(found.why, '\n')); /* one line */
    assert_contains(found.why, result.checkpoint);
    assert_true(run_well(&opts, 2, &told).hash == hash);
}

static void when_replicas_were_equal_is_noted_and_told(void **state)
{
    static const struct {
        const char *note;
        size_t told;
    } rows[] = {{"3", 3}, {"1", 1}, {NULL, 0}};
    char name[32], dir[PATH];
    lk_train_opts opts = options();
    uint64_t hash = uninterrupted(&opts);
    for (size_t i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "agreed%zu", i);
        lk_train_opts here = options_in(name, dir);
        here.max_steps = 3;
        here.no_test = true;
        asked told;
        lk_train_outcome result = run_well(&here, 2, &told);
        lk_checkpoint *notes;
        assert_int_equal(lk_checkpoint_load_notes(result.checkpoint, &notes), LK_OK);
        assert_string_equal(lk_checkpoint_note(notes, "agreed"), "3");
        lk_checkpoint_destroy(notes);
        change_note(result.checkpoint, "agreed", rows[i].note);
        here.max_steps = 0;
        here.no_test = false;
        resume_newest(&here);
        result = run_well(&here, 2, &told);
        assert_int_equal(told.told.start.agreed, rows[i].told);
        assert_true(result.hash == hash);
    }
}

TEST_MAIN(make_data, clean_up, TEST(any_step_and_any_layout_go_on_to_the_same_bits),
          TEST(a_run_without_the_last_batches_goes_on), TEST(an_epoch_without_a_batch_is_refused),
          TEST(every_optimiser_goes_on), TEST(what_is_told_goes_on), TEST(a_signal_saves_and_the_run_goes_on),
          TEST(the_newest_and_the_best_stay), TEST(a_warm_up_goes_on), TEST(a_finished_run_has_nothing_left_to_do),
          TEST(a_stopped_evaluation_is_repeated), TEST(checkpoints_are_the_same_bytes_in_any_layout),
          TEST(damaged_ones_are_passed_over), TEST(when_replicas_were_equal_is_noted_and_told))
