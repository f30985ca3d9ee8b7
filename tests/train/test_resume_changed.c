/* test_resume_changed.c - a run that resumes with other options, data or devices than its checkpoint: what would change
 * its past is refused, what may change bits is told. */
#include "resume.h"
#include "tensor/device.h"

static void refuse_with(lk_status status, const lk_train_opts *opts, const char *first, const char *second)
{
    asked told;
    lk_train_outcome result;
    assert_fails(run(opts, 1, 0, 0, &told, &result), status, first);
    assert_detail(second);
    assert_int_equal(told.told.starts, 0);
}

/* Options that contradict the checkpoint. */
static void refuse(const lk_train_opts *opts, const char *first, const char *second)
{
    refuse_with(LK_STATUS_USAGE, opts, first, second);
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
#undef AGAINST
    other = opts;
    other.data = below("relabelled", copy);
    refuse_with(LK_STATUS_MISMATCH, &other, "relabelled", "was trained on");
    other = opts;
    other.model = "cnn";
    other.data = "digits";
    refuse(&other, "`model` cnn", "`model` mlp");
}

/* A machine without NCCL and MPI goes on over the tree with a run that had their order. CPUs alone have no other order,
 * so the checkpoint is changed here, not the run. Earlier versions did not note `reduce`. */
static void another_order_of_sums_may_be_chosen(void **state)
{
    char dir[PATH];
    lk_train_opts opts = options_in("order", dir);
    uint64_t hash = uninterrupted(&opts);
    asked told;
    (void)stop_after(&opts, 1, 2);
    change_note(opts.resume, "--reduce", NULL);
    assert_true(run_well(&opts, 1, &told).hash == hash);
    opts = options_in("engine", dir);
    (void)stop_after(&opts, 1, 2);
    change_note(opts.resume, "--reduce", "engine");
    assert_true(run_well(&opts, 1, &told).hash == hash);
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
    refuse_with(LK_STATUS_MISMATCH, &opts, "constant:warmup=1 has 0.666667", "with the rate 1");
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
          TEST(contradictions_name_both_values), TEST(another_order_of_sums_may_be_chosen),
          TEST(the_same_data_may_lie_elsewhere), TEST(other_shards_only_when_asked_for),
          TEST(a_run_may_become_longer_where_its_past_stays), TEST(another_last_rate_is_refused))
