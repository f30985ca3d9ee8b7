/* test_resume.c - a run that is stopped at any step and resumes from its checkpoint, in another layout
 * of ranks, ends with the bits of a run that was not stopped; options that contradict the checkpoint
 * are refused. */
#include "base/mem.h"
#include "io/checkpoint/checkpoint.h"
#include "tensor/device.h"
#include "tiny.h"

enum { STEPS = 6, BATCHES = 3 };

/* A run that gets a signal (to save or to stop) after one of its steps. */
typedef struct asked {
    record told;
    size_t after; /* step; 0: never */
    int signal_level;
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
        atomic_store(a->to, a->signal_level);
}

static void count_saved(void *arg, const lk_train_saved *saved)
{
    asked *a = arg;
    assert_true(a->saves < 32);
    a->saved[a->saves] = *saved;
    snprintf(a->paths[a->saves], PATH, "%s", saved->path);
    a->saves++;
}

static lk_status run(const lk_train_opts *opts, int count, size_t after, int signal_level, asked *first,
                     lk_train_outcome *result)
{
    static asked all[MAX_RANKS];
    atomic_int to = LK_SIGNAL_LEVEL_NONE;
    lk_train_hooks hooks[MAX_RANKS];
    const char *devices[MAX_RANKS];
    for (int i = 0; i < count; i++) {
        asked *a = i == 0 ? first : &all[i];
        *a = (asked){.after = after, .signal_level = signal_level, .to = i == 0 && after ? &to : NULL};
        hooks[i] =
            (lk_train_hooks){.arg = a, .begin = on_start, .step = step_and_ask, .test = on_test, .saved = count_saved};
        devices[i] = "cpu";
    }
    lk_group_opts group = {.timeout = 60};
    lk_train_ranks ranks = {.opts = opts,
                            .count = count,
                            .devices = devices,
                            .group = &group,
                            .one_process = true,
                            .hooks = hooks,
                            .signal_level = &to};
    lk_train_failure failure;
    lk_status status = lk__train(&ranks, result, &failure);
    if (status != LK_OK)
        lk__train_failure_fini(&failure);
    return status;
}

static lk_train_outcome run_well(const lk_train_opts *opts, int count, asked *told)
{
    lk_train_outcome result;
    assert_ok(run(opts, count, 0, LK_SIGNAL_LEVEL_NONE, told, &result));
    return result;
}

/* Each case has its own folder of checkpoints. */
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
    plain.checkpoint = plain.resume = NULL;
    return train_well(&plain, &told).hash;
}

static lk_resume found; /* by resume_newest */

/* Sets opts->resume to the newest checkpoint in opts->checkpoint; valid until the next call. */
static void resume_newest(lk_train_opts *opts)
{
    lk__resume_fini(&found);
    assert_ok(lk__resume_find(NULL, opts->checkpoint, &found));
    opts->resume = found.path;
}

/* Stops a run after the step; opts->resume is then its checkpoint. */
static lk_train_outcome stop_after(lk_train_opts *opts, int count, size_t after)
{
    asked told;
    lk_train_outcome result;
    assert_ok(run(opts, count, after, LK_SIGNAL_LEVEL_STOP, &told, &result));
    assert_true(result.stopped);
    resume_newest(opts);
    return result;
}

static int clean_up(void **state)
{
    lk__resume_fini(&found);
    return temp_folder_tear_down(state);
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

static void refuse(const lk_train_opts *opts, const char *first, const char *second)
{
    asked told;
    lk_train_outcome result;
    assert_fails(run(opts, 1, 0, 0, &told, &result), LK_STATUS_MISMATCH, first);
    assert_detail(second);
    assert_int_equal(told.told.starts, 0);
}

static void contradictions_name_both_values(void **state)
{
    char dir[PATH], copy[PATH];
    lk_train_opts opts = options_in("against", dir), other;
    (void)stop_after(&opts, 1, 1);
#define AGAINST(field, value, given, saved) (other = opts, other.field = (value), refuse(&other, given, saved))
    AGAINST(batch, 16, "`batch` 16", "`batch` 32");
    AGAINST(seed, 7, "`seed` 7", "`seed` 1");
    AGAINST(optimizer, "sgd", "`optimizer` sgd", "`optimizer` adadelta");
    AGAINST(lr, .5, "`lr` 0.5", "`lr` 1");
    AGAINST(schedule, "constant", "`schedule` constant", "`schedule` step:size=1,gamma=.5");
    AGAINST(clip_norm, 1, "`clip_norm` 1", "(not given)");
    AGAINST(drop_last, true, "`drop_last` true", "`drop_last` false");
    AGAINST(val_split, .25, "`val_split` 0.25", "(not given)");
    AGAINST(shards, 8, "8 shards", "16");
    AGAINST(shards, 8, "`reshard`", "other bits");
    AGAINST(data, below("relabelled", copy), "relabelled", "was trained on");
#undef AGAINST
    other = opts;
    other.model = "cnn";
    other.data = "digits";
    refuse(&other, "`model` cnn", "`model` mlp");
}

static void the_same_data_may_lie_elsewhere(void **state)
{
    char dir[PATH], copy[PATH];
    lk_train_opts opts = options_in("elsewhere", dir);
    uint64_t hash = uninterrupted(&opts);
    asked told;
    (void)stop_after(&opts, 1, 1);
    opts.data = below("copy", copy);
    assert_true(run_well(&opts, 1, &told).hash == hash);
}

static void other_shards_only_when_asked_for(void **state)
{
    char dir[PATH];
    lk_train_opts opts = options_in("reshard", dir);
    uint64_t hash = uninterrupted(&opts);
    asked told;
    (void)stop_after(&opts, 1, 2);
    opts.shards = 5;
    opts.reshard = true;
    lk_train_outcome result = run_well(&opts, 1, &told);
    assert_int_equal(told.told.start.saved_shards, 16);
    assert_int_equal(result.steps, STEPS);
    assert_true(result.hash != hash);
}

static void a_run_may_become_longer_where_its_past_stays(void **state)
{
    char dir[PATH];
    lk_train_opts opts = options_in("longer", dir), longer = opts;
    asked told;
    longer.epochs = 4;
    uint64_t hash = uninterrupted(&longer);
    (void)run_well(&opts, 1, &told);
    resume_newest(&longer);
    lk_train_outcome result = run_well(&longer, 2, &told);
    assert_int_equal(result.steps, 4 * BATCHES);
    assert_true(result.hash == hash);

    lk_train_opts cosine = options_in("cosine", dir);
    cosine.schedule = "cosine";
    (void)stop_after(&cosine, 1, 4);
    cosine.epochs = 4;
    refuse(&cosine, "`epochs` 4", "`epochs` 2");
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

/* A checkpoint whose last rate is not that of the schedule was saved by a version with other
 * schedules: to resume it would silently change the rates. */
static void another_last_rate_is_refused(void **state)
{
    char dir[PATH];
    lk_train_opts opts = options_in("bent", dir);
    lk_checkpoint *checkpoint;
    opts.schedule = "constant";
    (void)stop_after(&opts, 1, 1);
    opts.schedule = "constant:warmup=1";
    assert_ok(lk_checkpoint_load(opts.resume, &checkpoint));
    assert_ok(lk_checkpoint_set_note(checkpoint, "--schedule", opts.schedule));
    assert_ok(lk_checkpoint_save(checkpoint, opts.resume));
    lk_checkpoint_destroy(checkpoint);
    refuse(&opts, "constant:warmup=1 has 0.666667", "with the rate 1");
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

/* Copies the checkpoint with another note of the step at which replicas were last equal; agreed NULL:
 * without this note, as earlier versions saved it. */
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
        lk_train_outcome result = run_well(&here, 2, &told);
        lk_checkpoint *notes;
        assert_int_equal(lk_checkpoint_load_notes(result.checkpoint, &notes), LK_OK);
        assert_string_equal(lk_checkpoint_note(notes, "agreed"), "3");
        lk_checkpoint_destroy(notes);
        renote(result.checkpoint, rows[i].note);
        here.max_steps = 0;
        here.no_test = false;
        resume_newest(&here);
        result = run_well(&here, 2, &told);
        assert_int_equal(told.told.start.agreed, rows[i].told);
        assert_true(result.hash == hash);
    }
}

/* The CPU as devices "gpu:0", "gpu:1" and so on, with facts that a case sets. */
static lk_device_type gpu;
static const char *kinds[MAX_RANKS], *version;

static size_t gpu_facts(int index, lk_device_fact out[LK_DEVICE_FACTS])
{
    out[0] = (lk_device_fact){.name = "GPU"};
    snprintf(out[0].value, sizeof out[0].value, "%s", kinds[index]);
    out[1] = (lk_device_fact){.name = "cuDNN"};
    snprintf(out[1].value, sizeof out[1].value, "%s", version);
    return 2;
}

static int make_all(void **state)
{
    gpu = lk__device_cpu;
    gpu.name = "gpu";
    gpu.facts = gpu_facts;
    return make_data(state) == 0 && lk__device_add(&gpu) == LK_OK ? 0 : -1;
}

/* What a run says at its start. */
typedef struct heard {
    char other[1024];
    bool mixed;
    char notices[2048];
} heard;

static void hear_notice(void *arg, const char *text)
{
    heard *h = arg;
    size_t used = strlen(h->notices);
    snprintf(h->notices + used, sizeof h->notices - used, "%s\n", text);
}

static void hear(void *arg, const lk_train_begin *begin)
{
    heard *h = arg;
    snprintf(h->other, sizeof h->other, "%s", begin->other_device);
    h->mixed = begin->mixed_devices;
}

static heard run_on(lk_train_opts *opts, const char *const *devices, int count)
{
    heard all[MAX_RANKS] = {0};
    lk_train_hooks hooks[MAX_RANKS];
    lk_train_outcome result;
    lk_train_failure failure;
    for (int i = 0; i < count; i++)
        hooks[i] = (lk_train_hooks){.arg = &all[i], .begin = hear, .notice = hear_notice};
    lk_train_ranks ranks = {.opts = opts,
                            .count = count,
                            .devices = devices,
                            .group = &(lk_group_opts){.timeout = 60},
                            .one_process = true,
                            .hooks = hooks};
    assert_ok(lk__train(&ranks, &result, &failure));
    for (int i = 1; i < count; i++) {
        assert_int_equal(all[i].mixed, all[0].mixed);
        assert_string_equal(all[i].notices, "");
    }
    assert_int_equal(strstr(all[0].notices, "from here on bits may differ") != NULL, *all[0].other != '\0');
    assert_true(strstr(all[0].notices, all[0].other) != NULL);
    assert_int_equal(strstr(all[0].notices, "which rank has which") != NULL, all[0].mixed);
    return all[0];
}

static void another_device_is_told(void **state)
{
    static const char *const on_gpu[] = {"gpu:0"}, *const on_cpu[] = {"cpu"};
    char dir[PATH];
    lk_train_opts opts = options_in("devices", dir);
    kinds[0] = "Model A";
    version = "9.1.0";
    opts.max_steps = 2;
    assert_string_equal(run_on(&opts, on_gpu, 1).other, "");
    resume_newest(&opts);
    assert_string_equal(lk_checkpoint_note(found.notes, "device"), "gpu");
    assert_string_equal(lk_checkpoint_note(found.notes, "device.GPU"), "Model A");
    assert_string_equal(lk_checkpoint_note(found.notes, "device.cuDNN"), "9.1.0");
    assert_string_equal(lk_checkpoint_note(found.notes, "--precision"), "fp32");
    assert_string_equal(run_on(&opts, on_gpu, 1).other, "");
    version = "9.2.0";
    assert_string_equal(run_on(&opts, on_gpu, 1).other, "cuDNN 9.2.0 instead of 9.1.0");
    kinds[0] = "Model B";
    assert_string_equal(run_on(&opts, on_gpu, 1).other, "GPU Model B instead of Model A, cuDNN 9.2.0 instead of 9.1.0");
    opts.max_steps = 3;
    assert_string_equal(run_on(&opts, on_cpu, 1).other, "device cpu instead of gpu");
    resume_newest(&opts);
    assert_null(lk_checkpoint_note(found.notes, "device.GPU"));
    assert_string_equal(run_on(&opts, on_cpu, 1).other, "");
    assert_string_equal(run_on(&opts, on_gpu, 1).other, "device gpu instead of cpu");
}

static void different_devices_of_ranks_are_told(void **state)
{
    static const char *const devices[] = {"gpu:0", "gpu:1", "gpu:2"}, *const cpus[] = {"cpu", "cpu"};
    lk_train_opts opts = options();
    opts.max_steps = 1;
    version = "9.1.0";
    kinds[0] = kinds[1] = kinds[2] = "Model A";
    assert_false(run_on(&opts, devices, 3).mixed);
    kinds[2] = "Model B";
    assert_false(run_on(&opts, devices, 2).mixed);
    assert_true(run_on(&opts, devices, 3).mixed);
    assert_false(run_on(&opts, cpus, 2).mixed);
}

TEST_MAIN(make_all, clean_up, TEST(another_device_is_told), TEST(different_devices_of_ranks_are_told),
          TEST(any_step_and_any_layout_go_on_to_the_same_bits), TEST(a_run_without_the_last_batches_goes_on),
          TEST(an_epoch_without_a_batch_is_refused), TEST(every_optimiser_goes_on), TEST(what_is_told_goes_on),
          TEST(a_signal_saves_and_the_run_goes_on), TEST(the_newest_and_the_best_stay),
          TEST(contradictions_name_both_values), TEST(the_same_data_may_lie_elsewhere),
          TEST(other_shards_only_when_asked_for), TEST(a_run_may_become_longer_where_its_past_stays),
          TEST(a_warm_up_goes_on), TEST(another_last_rate_is_refused), TEST(a_finished_run_has_nothing_left_to_do),
          TEST(a_stopped_evaluation_is_repeated), TEST(checkpoints_are_the_same_bytes_in_any_layout),
          TEST(damaged_ones_are_passed_over), TEST(when_replicas_were_equal_is_noted_and_told))
