/* test_optim.c - optimisers and schedules against torch.optim: 20 steps with
 * given gradients, and 20 epochs. The golden file's names are the specs. */
#include "golden/golden.h"

#include "optim/optim.h"

enum { STEPS = 20 };

static lk_state *golden;
static lk_device *dev;

static int setup(void **state)
{
    (void)state;
    golden = golden_load(LK_TESTS_DIR "/golden/data", "optim.safetensors");
    golden_ok(lk__device_open("cpu", &(lk_device_opts){.threads = 2}, &dev));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    lk_state_destroy(golden);
    lk__device_close(dev);
    return 0;
}

static float *upload(const lk_entry *entry)
{
    void *block;
    golden_ok(dev->type->alloc(dev, entry->bytes, "test", &block));
    golden_ok(dev->type->upload(dev, entry->data, entry->bytes, block));
    return block;
}

static void check_row(const lk_entry *truth, size_t step, const float *params, size_t count)
{
    float *host = golden_alloc(count, sizeof *host);
    double max = 0;
    golden_ok(dev->type->sync(dev));
    golden_ok(dev->type->download(dev, params, count * sizeof *host, host));
    for (size_t i = 0; i < count; i++)
        max = fmax(max, fabs(golden_at(truth, step * count + i)));
    for (size_t i = 0; i < count; i++)
        golden_near(truth->name, step * count + i, host[i], golden_at(truth, step * count + i), max);
    free(host);
}

/* PyTorch's default rates are ours: asked for as 0. */
static double rate(const char *spec)
{
    bool default_rate = strcmp(spec, "adam") == 0 || strcmp(spec, "adadelta") == 0;
    return default_rate ? 0 : golden_at(golden_get(golden, "lr", spec), 0);
}

static void run_optim(const char *spec, const lk_entry *truth)
{
    lk_optim *optim;
    float *params = upload(lk_state_find(golden, "params")), *grads = upload(lk_state_find(golden, "grads"));
    size_t count = truth->dims[1];
    assert_int_equal(truth->dims[0], STEPS);
    golden_ok(lk__optim_create(spec, rate(spec), dev, count, &optim));
    for (size_t step = 0; step < STEPS; step++) {
        lk__optim_begin(optim);
        lk__optim_range(optim, grads + step * count, params, count / 2, count);
        lk__optim_range(optim, grads + step * count, params, 0, count / 2);
        check_row(truth, step, params, count);
    }
    assert_int_equal(lk__optim_steps(optim), STEPS);
    lk__optim_destroy(optim);
    dev->type->free(dev, params);
    dev->type->free(dev, grads);
}

/* Calls run for each entry under a prefix; there must be some. */
static void for_each(const char *prefix, void (*run)(const char *spec, const lk_entry *truth))
{
    size_t found = 0, length = strlen(prefix);
    for (size_t i = 0; i < lk_state_count(golden); i++) {
        const lk_entry *entry = lk_state_at(golden, i);
        if (strncmp(entry->name, prefix, length) != 0)
            continue;
        run(entry->name + length, entry);
        found++;
    }
    assert_true(found > 0);
}

static void test_optimisers(void **state)
{
    (void)state;
    for_each("optim/", run_optim);
}

/* Both sides multiply or raise doubles: 20 roundings at most. */
static void run_schedule(const char *spec, const lk_entry *truth)
{
    lk_schedule *schedule;
    golden_ok(lk__schedule_create(spec, &schedule));
    for (size_t epoch = 0; epoch < STEPS; epoch++) {
        double ours = lk__schedule_lr(schedule, 0.3, epoch), theirs = golden_at(truth, epoch);
        if (!(fabs(ours - theirs) <= 1e-14 * theirs))
            fail_msg("%s: epoch %zu has rate %.17g, PyTorch %.17g", spec, epoch, ours, theirs);
    }
    lk__schedule_destroy(schedule);
}

static void test_schedules(void **state)
{
    (void)state;
    for_each("schedule/", run_schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_optimisers), cmocka_unit_test(test_schedules)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
