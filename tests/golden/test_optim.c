/* test_optim.c - optimisers and schedules against torch.optim: 20 steps with given gradients, and the rates of 30
 * epochs. Names in the golden files are the specs. */
#include "golden/golden.h"

#include "optim/optim.h"

#define BASE_LR 0.3

enum { STEPS = 20 };

static lk_state *golden, *rates;
static lk_device *dev;

static int setup(void **state)
{
    golden = golden_load(LK_TESTS_DIR "/golden/data", "optim.safetensors");
    rates = golden_load(LK_TESTS_DIR "/golden/data", "schedules.safetensors");
    assert_ok(lk__device_open("cpu", &(lk_device_opts){.threads = 2}, &dev));
    return 0;
}

static int teardown(void **state)
{
    lk_state_destroy(golden);
    lk_state_destroy(rates);
    lk__device_close(dev);
    return 0;
}

static float *upload(const lk_state_entry *entry)
{
    void *block;
    assert_ok(dev->type->alloc(dev, entry->bytes, "test", &block));
    assert_ok(dev->type->upload(dev, entry->data, entry->bytes, block));
    return block;
}

static void check_row(const lk_state_entry *truth, size_t step, const float *params, size_t count)
{
    float *host = golden_alloc(count, sizeof *host);
    double max = 0;
    assert_ok(dev->type->sync(dev));
    assert_ok(dev->type->download(dev, params, count * sizeof *host, host));
    for (size_t i = 0; i < count; i++)
        max = fmax(max, fabs(golden_at(truth, step * count + i)));
    for (size_t i = 0; i < count; i++)
        golden_near(truth->name, step * count + i, host[i], golden_at(truth, step * count + i), max);
    free(host);
}

/* The default learning rates, asked for as 0, are those of PyTorch. */
static double rate(const char *spec)
{
    bool default_rate = strcmp(spec, "adam") == 0 || strcmp(spec, "adamw") == 0 || strcmp(spec, "adadelta") == 0 ||
                        strcmp(spec, "rmsprop") == 0;
    return default_rate ? 0 : golden_at(golden_get(golden, "lr", spec), 0);
}

static void run_optim(const char *spec, const lk_state_entry *truth)
{
    lk_optim *optim;
    float *params = upload(lk_state_find(golden, "params")), *grads = upload(lk_state_find(golden, "grads"));
    size_t count = truth->dims[1];
    assert_int_equal(truth->dims[0], STEPS);
    assert_ok(lk__optim_create(spec, rate(spec), dev, count, &optim));
    for (size_t step = 0; step < STEPS; step++) {
        lk_optim_range range = {.grads = grads + step * count, .params = params, .begin = count / 2, .end = count};
        lk__optim_count(optim);
        assert_ok(lk__optim_begin(optim));
        lk__optim_range(optim, &range);
        range.begin = 0;
        range.end = count / 2;
        lk__optim_range(optim, &range);
        check_row(truth, step, params, count);
    }
    assert_int_equal(lk__optim_steps(optim), STEPS);
    lk__optim_destroy(optim);
    dev->type->free(dev, params);
    dev->type->free(dev, grads);
}

static void test_optimisers(void **state)
{
    static const char prefix[] = "optim/";
    size_t found = 0, length = strlen(prefix);
    for (size_t i = 0; i < lk_state_count(golden); i++) {
        const lk_state_entry *entry = lk_state_at(golden, i);
        if (strncmp(entry->name, prefix, length) != 0)
            continue;
        run_optim(entry->name + length, entry);
        found++;
    }
    assert_true(found > 0);
}

/* PyTorch computes a rate from the one before it, so rounding errors add up. They matter most where 1 + cos is
 * small: 120 steps, and a rate of 10^-4 of the first. */
static void run_schedule(const char *spec, const lk_state_entry *truth)
{
    lk_lr_schedule *schedule;
    const lk_state_entry *results = lk_state_find(rates, "results");
    lk_lr_schedule_at at = {.epochs = truth->dims[0], .batches = truth->dims[1]};
    lk_lr_schedule_watch watch = {0};
    assert_ok(lk_lr_schedule_create(spec, &schedule));
    assert_ok(lk_lr_schedule_check(schedule, BASE_LR, at));
    for (at.epoch = 0; at.epoch < at.epochs; at.epoch++) {
        for (at.batch = 0; at.batch < at.batches; at.batch++) {
            double theirs = golden_at(truth, at.epoch * at.batches + at.batch);
            double ours = lk_lr_schedule_lr(schedule, BASE_LR, at);
            if (!(fabs(ours - theirs) <= 1e-12 * theirs))
                fail_msg("%s: epoch %zu, batch %zu has rate %.17g, PyTorch %.17g", spec, at.epoch, at.batch, ours,
                         theirs);
        }
        double result = golden_at(results, at.epoch);
        at.batch--;
        lk_lr_schedule_observe(schedule, at, (lk_lr_schedule_result){.loss = result, .accuracy = 1 - result}, &watch);
        at.drops = watch.drops;
    }
    assert_true(strncmp(spec, "plateau:", 8) != 0 || watch.drops > 1);
    lk_lr_schedule_destroy(schedule);
}

/* The golden file must have every schedule of the table. */
static void test_schedules(void **state)
{
    const lk_optim_info *info;
    for (size_t i = 0; (info = lk_lr_schedule_list(i)); i++)
        assert_non_null(lk_state_find(rates, info->name));
    for (size_t i = 0; i < lk_state_count(rates); i++)
        if (strcmp(lk_state_at(rates, i)->name, "results") != 0)
            run_schedule(lk_state_at(rates, i)->name, lk_state_at(rates, i));
}

TEST_MAIN(setup, teardown, TEST(test_optimisers), TEST(test_schedules))
