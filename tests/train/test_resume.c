/* test_resume.c - runs that are stopped at any place and go on from their
 * checkpoint, in another layout of ranks, end with the bits of the run that was
 * never stopped; what contradicts a checkpoint is refused. */
#include "base/mem.h"
#include "io/checkpoint/checkpoint.h"
#include "tiny.h"

enum { STEPS = 6, BATCHES = 3 };

/* A run that is asked for something after one of its steps. */
typedef struct asked {
    record told;
    size_t after; /* step; 0: never */
    int wish;
    atomic_int *to;
    int saves;
    lk_train_saved saved[32];
    char paths[32][PATH];
} asked;

static void step_and_ask(void *arg, const lk_train_step *step)
{
    asked *a = arg;
    on_step(&a->told, step);
    if (a->to && step->step == a->after)
        atomic_store(a->to, a->wish);
}

static void count_saved(void *arg, const lk_train_saved *saved)
{
    asked *a = arg;
    assert_true(a->saves < 32);
    a->saved[a->saves] = *saved;
    snprintf(a->paths[a->saves], PATH, "%s", saved->path);
    a->saves++;
}

static lk_status run(const lk_train_opts *opts, int count, size_t after, int wish, asked *first,
                     lk_train_result *result)
{
    static asked all[MAX_RANKS];
    atomic_int to = LK_WISH_NONE;
    lk_train_events events[MAX_RANKS];
    const char *devices[MAX_RANKS];
    for (int i = 0; i < count; i++) {
        asked *a = i == 0 ? first : &all[i];
        *a = (asked){.after = after, .wish = wish, .to = i == 0 && after ? &to : NULL};
        events[i] =
            (lk_train_events){.arg = a, .start = on_start, .step = step_and_ask, .test = on_test, .saved = count_saved};
        devices[i] = "cpu";
    }
    lk_group_opts group = {.timeout = 60};
    lk_train_ranks ranks = {.opts = opts,
                            .count = count,
                            .devices = devices,
                            .group = &group,
                            .alone = true,
                            .events = events,
                            .wish = &to};
    lk_train_failure failure;
    lk_status status = lk__train(&ranks, result, &failure);
    if (status != LK_OK)
        lk__train_failure_fini(&failure);
    return status;
}

/* A folder of checkpoints for each case. */
static lk_train_opts options_in(const char *name, char dir[PATH])
{
    lk_train_opts opts = options();
    opts.checkpoint = below(name, dir);
    opts.keep = 3;
    return opts;
}

static uint64_t uninterrupted(const lk_train_opts *opts)
{
    lk_train_opts plain = *opts;
    record told;
    lk_train_result result;
    plain.checkpoint = plain.resume = NULL;
    assert_int_equal(train(&plain, &told, &result), LK_OK);
    return result.hash;
}

/* The newest checkpoint in opts->checkpoint becomes the one to go on from. */
static void resume_newest(lk_train_opts *opts, lk_resume *found)
{
    assert_int_equal(lk__resume_find(NULL, opts->checkpoint, found), LK_OK);
    opts->resume = found->path;
}

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
        lk_train_result result;
        assert_int_equal(run(&here, layouts[after % LAYOUTS].ranks, after, LK_WISH_STOP, &first, &result), LK_OK);
        assert_true(result.stopped);
        assert_true(result.steps >= after && result.steps <= after + 1);
        for (size_t i = 0; i < LAYOUTS; i++) {
            lk_resume found;
            lk_train_opts there = here;
            char away[PATH];
            snprintf(name, sizeof name, "any%zu-%zu", after, i);
            resume_newest(&there, &found);
            there.checkpoint = below(name, away);
            there.stages = layouts[i].stages;
            there.pipelined = layouts[i].pipelined;
            there.threads = 1 + (int)(i % 2);
            lk_train_result end;
            assert_int_equal(run(&there, layouts[i].ranks, 0, 0, &first, &end), LK_OK);
            assert_false(end.stopped);
            assert_int_equal(first.told.start.done, result.steps);
            assert_int_equal(end.steps, STEPS);
            assert_true(end.hash == hash);
            lk__resume_fini(&found);
        }
    }
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
        lk_train_result result;
        lk_resume found;
        assert_int_equal(run(&opts, 2, 1, LK_WISH_STOP, &first, &result), LK_OK);
        resume_newest(&opts, &found);
        assert_int_equal(run(&opts, 1, 0, 0, &first, &result), LK_OK);
        assert_true(result.hash == hash);
        lk__resume_fini(&found);
    }
}

/* The train loss of an epoch is of all its batches, those before the stop too. */
static void what_is_told_goes_on(void **state)
{
    char dir[PATH];
    lk_train_opts opts = options_in("told", dir);
    asked whole, part;
    lk_train_result result;
    lk_train_opts plain = opts;
    plain.checkpoint = NULL;
    assert_int_equal(run(&plain, 1, 0, 0, &whole, &result), LK_OK);
    assert_int_equal(run(&opts, 1, 1, LK_WISH_STOP, &part, &result), LK_OK);
    lk_resume found;
    resume_newest(&opts, &found);
    assert_int_equal(run(&opts, 2, 0, 0, &part, &result), LK_OK);
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
    lk__resume_fini(&found);
}

static void a_wish_saves_and_the_run_goes_on(void **state)
{
    char dir[PATH];
    lk_train_opts opts = options_in("wish", dir);
    opts.save_every = 1000;
    asked first;
    lk_train_result result;
    assert_int_equal(run(&opts, 2, 1, LK_WISH_SAVE, &first, &result), LK_OK);
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
    opts.lr = 1e-30; /* learns nothing: the first test stays the best */
    asked first;
    lk_train_result result;
    assert_int_equal(run(&opts, 1, 0, 0, &first, &result), LK_OK);
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

static void refuse(const lk_train_opts *opts, const char *first, const char *second)
{
    asked told;
    lk_train_result result;
    assert_fails(run(opts, 1, 0, 0, &told, &result), LK_STATUS_MISMATCH, first);
    assert_detail(second);
    assert_int_equal(told.told.starts, 0);
}

static void contradictions_name_both_values(void **state)
{
    char dir[PATH], copy[PATH];
    lk_train_opts opts = options_in("against", dir);
    asked told;
    lk_train_result result;
    assert_int_equal(run(&opts, 1, 1, LK_WISH_STOP, &told, &result), LK_OK);
    lk_resume found;
    resume_newest(&opts, &found);
    lk_train_opts other = opts;
    other.model = "cnn";
    other.data = "digits";
    refuse(&other, "`model` cnn", "`model` mlp");
    other = opts;
    other.batch = 16;
    refuse(&other, "`batch` 16", "`batch` 32");
    other = opts;
    other.seed = 7;
    refuse(&other, "`seed` 7", "`seed` 1");
    other = opts;
    other.optimizer = "sgd";
    refuse(&other, "`optimizer` sgd", "`optimizer` adadelta");
    other = opts;
    other.lr = .5;
    refuse(&other, "`lr` 0.5", "`lr` 1");
    other = opts;
    other.schedule = "constant";
    refuse(&other, "`schedule` constant", "`schedule` step:size=1,gamma=.5");
    other = opts;
    other.clip_norm = 1;
    refuse(&other, "`clip_norm` 1", "(not given)");
    other = opts;
    other.shards = 8;
    refuse(&other, "8 shards", "16");
    refuse(&other, "`reshard`", "other bits");
    other = opts;
    other.data = below("relabelled", copy);
    refuse(&other, "relabelled", "was trained on");
    lk__resume_fini(&found);
}

static void the_same_data_may_lie_elsewhere(void **state)
{
    char dir[PATH], copy[PATH];
    lk_train_opts opts = options_in("elsewhere", dir);
    uint64_t hash = uninterrupted(&opts);
    asked told;
    lk_train_result result;
    assert_int_equal(run(&opts, 1, 1, LK_WISH_STOP, &told, &result), LK_OK);
    lk_resume found;
    resume_newest(&opts, &found);
    opts.data = below("copy", copy);
    assert_int_equal(run(&opts, 1, 0, 0, &told, &result), LK_OK);
    assert_true(result.hash == hash);
    lk__resume_fini(&found);
}

static void other_shards_only_when_asked_for(void **state)
{
    char dir[PATH];
    lk_train_opts opts = options_in("reshard", dir);
    uint64_t hash = uninterrupted(&opts);
    asked told;
    lk_train_result result;
    assert_int_equal(run(&opts, 1, 2, LK_WISH_STOP, &told, &result), LK_OK);
    lk_resume found;
    resume_newest(&opts, &found);
    opts.shards = 5;
    opts.reshard = true;
    assert_int_equal(run(&opts, 1, 0, 0, &told, &result), LK_OK);
    assert_int_equal(told.told.start.saved_shards, 16);
    assert_int_equal(result.steps, STEPS);
    assert_true(result.hash != hash);
    lk__resume_fini(&found);
}

static void a_run_may_become_longer_where_its_past_stays(void **state)
{
    char dir[PATH];
    lk_train_opts opts = options_in("longer", dir), longer = opts;
    asked told;
    lk_train_result result;
    longer.epochs = 4;
    uint64_t hash = uninterrupted(&longer);
    assert_int_equal(run(&opts, 1, 0, 0, &told, &result), LK_OK);
    lk_resume found;
    resume_newest(&longer, &found);
    assert_int_equal(run(&longer, 2, 0, 0, &told, &result), LK_OK);
    assert_int_equal(result.steps, 4 * BATCHES);
    assert_true(result.hash == hash);
    lk__resume_fini(&found);

    lk_train_opts cosine = options_in("cosine", dir);
    cosine.schedule = "cosine";
    assert_int_equal(run(&cosine, 1, 4, LK_WISH_STOP, &told, &result), LK_OK);
    resume_newest(&cosine, &found);
    cosine.epochs = 4;
    refuse(&cosine, "`epochs` 4", "`epochs` 2");
    lk__resume_fini(&found);
}

/* Rates follow from the place, in the middle of a warm-up too. */
static void a_warm_up_goes_on(void **state)
{
    char dir[PATH];
    lk_train_opts opts = options_in("warmup", dir);
    asked told;
    lk_train_result result;
    lk_resume found;
    opts.schedule = "step:gamma=.5,warmup=2";
    uint64_t hash = uninterrupted(&opts);
    assert_int_equal(run(&opts, 1, 1, LK_WISH_STOP, &told, &result), LK_OK);
    resume_newest(&opts, &found);
    assert_int_equal(run(&opts, 2, 0, 0, &told, &result), LK_OK);
    assert_true(result.hash == hash);
    lk_lr_schedule_rates rates = told.told.start.rates;
    assert_true(rates.first == 0.5 && rates.highest == 1 && rates.last == 1);
    lk__resume_fini(&found);
}

/* A checkpoint whose last rate is not the schedule's was saved by a version of other
 * schedules: going on would bend the course in silence. */
static void another_last_rate_is_refused(void **state)
{
    char dir[PATH];
    lk_train_opts opts = options_in("bent", dir);
    asked told;
    lk_train_result result;
    lk_resume found;
    lk_checkpoint *checkpoint;
    opts.schedule = "constant";
    assert_int_equal(run(&opts, 1, 1, LK_WISH_STOP, &told, &result), LK_OK);
    resume_newest(&opts, &found);
    opts.schedule = "constant:warmup=1";
    assert_int_equal(lk_checkpoint_load(opts.resume, &checkpoint), LK_OK);
    assert_int_equal(lk_checkpoint_set_note(checkpoint, "--schedule", opts.schedule), LK_OK);
    assert_int_equal(lk_checkpoint_save(checkpoint, opts.resume), LK_OK);
    lk_checkpoint_destroy(checkpoint);
    refuse(&opts, "constant:warmup=1 has 0.666667", "with the rate 1");
    lk__resume_fini(&found);
}

static void a_finished_run_has_nothing_left_to_do(void **state)
{
    char dir[PATH];
    lk_train_opts opts = options_in("finished", dir);
    asked told;
    lk_train_result first, again;
    assert_int_equal(run(&opts, 1, 0, 0, &told, &first), LK_OK);
    lk_resume found;
    resume_newest(&opts, &found);
    assert_int_equal(run(&opts, 1, 0, 0, &told, &again), LK_OK);
    assert_int_equal(told.told.steps, 0);
    assert_int_equal(told.told.tests, 0);
    assert_true(again.hash == first.hash);
    assert_int_equal(again.test.correct, first.test.correct);
    lk__resume_fini(&found);
}

/* Stopped in an evaluation: the one that goes on repeats it. */
static void a_stopped_evaluation_is_repeated(void **state)
{
    char dir[PATH];
    lk_train_opts opts = options_in("evaluation", dir);
    opts.test_batch = 1;
    uint64_t hash = uninterrupted(&opts);
    asked told;
    lk_train_result result;
    assert_int_equal(run(&opts, 1, BATCHES, LK_WISH_STOP, &told, &result), LK_OK);
    assert_true(result.stopped);
    assert_int_equal(result.steps, BATCHES);
    assert_int_equal(told.told.tests, 0);
    lk_resume found;
    resume_newest(&opts, &found);
    assert_int_equal(run(&opts, 3, 0, 0, &told, &result), LK_OK);
    assert_int_equal(told.told.tests, 2);
    assert_true(result.hash == hash);
    lk__resume_fini(&found);
}

static void checkpoints_are_the_same_bytes_in_any_layout(void **state)
{
    char dir[PATH], other[PATH], path[PATH];
    lk_train_opts opts = options_in("bytes1", dir), more = options_in("bytes3", other);
    opts.max_steps = more.max_steps = 4;
    asked told;
    lk_train_result result;
    assert_int_equal(run(&opts, 1, 0, 0, &told, &result), LK_OK);
    assert_int_equal(run(&more, 3, 0, 0, &told, &result), LK_OK);
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
    char dir[PATH], path[sizeof((lk_train_result *)NULL)->checkpoint + 32];
    lk_train_opts opts = options_in("passed", dir);
    opts.save_every = 1;
    uint64_t hash = uninterrupted(&opts);
    asked told;
    lk_train_result result;
    assert_int_equal(run(&opts, 1, 3, LK_WISH_STOP, &told, &result), LK_OK);
    snprintf(path, sizeof path, "%s/model.safetensors", result.checkpoint);
    assert_int_equal(truncate(path, 100), 0);
    lk_resume found;
    resume_newest(&opts, &found);
    assert_null(strchr(found.why, '\n')); /* one line */
    assert_contains(found.why, result.checkpoint);
    assert_int_equal(run(&opts, 2, 0, 0, &told, &result), LK_OK);
    assert_true(result.hash == hash);
    lk__resume_fini(&found);
}

/* Copies the checkpoint, with another note of when replicas were equal or, where that is
 * NULL, without one, as earlier versions saved it. */
static void renote(const char *path, const char *agreed)
{
    lk_checkpoint *notes, *copy;
    lk_state *states[2];
    char file[PATH + 32];
    const char *name;
    assert_int_equal(lk_checkpoint_load_notes(path, &notes), LK_OK);
    for (int i = 0; i < 2; i++) {
        snprintf(file, sizeof file, "%.400s/%s.safetensors", path, i ? "optimizer" : "model");
        assert_int_equal(lk_state_load(file, &states[i]), LK_OK);
    }
    assert_int_equal(lk_checkpoint_create(states[0], states[1], &copy), LK_OK);
    for (size_t i = 0; (name = lk_checkpoint_note_name(notes, i)) != NULL; i++) {
        const char *text = strcmp(name, "agreed") == 0 ? agreed : lk_checkpoint_note(notes, name);
        if (text)
            assert_int_equal(lk_checkpoint_set_note(copy, name, text), LK_OK);
    }
    assert_int_equal(lk_checkpoint_save(copy, path), LK_OK);
    lk_checkpoint_destroy(copy);
    lk_checkpoint_destroy(notes);
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
        lk_train_result result;
        assert_int_equal(run(&here, 2, 0, 0, &told, &result), LK_OK);
        lk_checkpoint *notes;
        assert_int_equal(lk_checkpoint_load_notes(result.checkpoint, &notes), LK_OK);
        assert_string_equal(lk_checkpoint_note(notes, "agreed"), "3");
        lk_checkpoint_destroy(notes);
        renote(result.checkpoint, rows[i].note);
        lk_resume found;
        here.max_steps = 0;
        here.no_test = false;
        resume_newest(&here, &found);
        assert_int_equal(run(&here, 2, 0, 0, &told, &result), LK_OK);
        assert_int_equal(told.told.start.agreed, rows[i].told);
        assert_true(result.hash == hash);
        lk__resume_fini(&found);
    }
}

int main(void)
{
    return RUN_TESTS_WITH(make_data, temp_folder_tear_down, any_step_and_any_layout_go_on_to_the_same_bits,
                          every_optimiser_goes_on, what_is_told_goes_on, a_wish_saves_and_the_run_goes_on,
                          the_newest_and_the_best_stay, contradictions_name_both_values,
                          the_same_data_may_lie_elsewhere, other_shards_only_when_asked_for,
                          a_run_may_become_longer_where_its_past_stays, a_warm_up_goes_on, another_last_rate_is_refused,
                          a_finished_run_has_nothing_left_to_do, a_stopped_evaluation_is_repeated,
                          checkpoints_are_the_same_bytes_in_any_layout, damaged_ones_are_passed_over,
                          when_replicas_were_equal_is_noted_and_told);
}
