/* test_batchnorm_formulas.c - the slots of batch normalisation that compute one formula for each channel (folds,
 * moments, running statistics), on the CPU and on GPUs: the CPU's bits on both. */
#include "tensor/kernel_test.h"

static const float eps = 1e-5f, momentum = 0.1f;

typedef struct formula_case {
    size_t c, batch;
    int shards, wave;
    const float *stats, *running; // (shards, 2, c), (2, c)
    int flag;                     /* -1: none */
} formula_case;

/* Slot 0 after batchnorm_fold, and the sums of the same rows by rows_fold. */
static void run_folds(lk_device *d, const void *arg, float *out)
{
    const formula_case *f = arg;
    size_t c = f->c;
    float *stats = fx_floats(d, f->stats, (size_t)f->shards * 2 * c);
    size_t slots = fx_slots(f->shards);
    float *moments = fx_no_floats(d, slots * 2 * c), *sums = fx_no_floats(d, slots * (c + 3));
    for (int lo = 0; lo < f->shards; lo += f->wave) {
        fx_wave v;
        fx_wave_init(&v, f->batch, f->shards, lo, f->wave);
        const float *leaves = stats + (size_t)lo * 2 * c;
        d->kernels->batchnorm_fold(d, c, 6, &v.shards, leaves, (lk_partials){moments, 2 * c});
        d->kernels->rows_fold(d, c, leaves, 2 * c, &v.shards, (lk_partials){sums, c + 3});
    }
    fx_get_floats(d, moments, 2 * c, out);
    fx_get_floats(d, sums, c, out + 2 * c);
}

static void run_moments(lk_device *d, const void *arg, float *out)
{
    const formula_case *f = arg;
    size_t c = f->c, groups = (size_t)f->shards;
    fx_wave v;
    fx_wave_init(&v, f->batch, f->shards, 0, f->shards);
    float *stats = fx_floats(d, f->stats, groups * 2 * c), *running = fx_floats(d, f->running, 2 * c);
    float *by_group = fx_no_floats(d, 2 * groups * c), *whole = fx_no_floats(d, 2 * c);
    lk_moments m = {.groups = f->shards, .mean = by_group, .scale = by_group + groups * c};
    lk_moments r = {.groups = 1, .mean = whole, .scale = whole + c};
    d->kernels->batchnorm_moments(d, c, 6, stats, v.rows, eps, &m);
    d->kernels->batchnorm_running_moments(d, c, running, running + c, eps, &r);
    fx_get_floats(d, by_group, 2 * groups * c, out);
    fx_get_floats(d, whole, 2 * c, out + 2 * groups * c);
}

static lk_batchnorm_update update_of(size_t c, size_t elements, const float *entry, float *running)
{
    return (lk_batchnorm_update){
        .c = c, .entry = entry, .elements = elements, .momentum = momentum, .mean = running, .variance = running + c};
}

static void run_running_update(lk_device *d, const void *arg, float *out)
{
    const formula_case *f = arg;
    size_t c = f->c;
    lk_flag flag = {.first = f->flag > 0 ? 3 : LK_FLAG_NONE, .bad = f->flag > 0};
    lk_flag *at = f->flag >= 0 ? fx_put(d, &flag, sizeof flag) : NULL;
    float *entry = fx_floats(d, f->stats, 2 * c), *running = fx_floats(d, f->running, 2 * c);
    lk_batchnorm_update update = update_of(c, f->batch, entry, running);
    d->kernels->batchnorm_running_update(d, 1, &update, at);
    fx_get_floats(d, running, 2 * c, out);
}

/* Layers of different numbers of channels by one call: more than a launch on a GPU has. */
enum { LAYERS = 150, LAYER_FLOATS = 2 * 600 };

static void run_running_updates(lk_device *d, const void *arg, float *out)
{
    const formula_case *f = arg;
    size_t count = (size_t)LAYERS * LAYER_FLOATS;
    float *entries = fx_floats(d, f->stats, count), *running = fx_floats(d, f->running, count);
    lk_batchnorm_update updates[LAYERS];
    for (size_t i = 0; i < LAYERS; i++)
        updates[i] = update_of(1 + i * 37 % 600, i % 5, entries + i * LAYER_FLOATS, running + i * LAYER_FLOATS);
    d->kernels->batchnorm_running_update(d, LAYERS, updates, NULL);
    fx_get_floats(d, running, count, out);
}

/* The bits of the CPU: one formula for each channel. */
static void check_same(const char *what, fx_run run, const formula_case *f, size_t count)
{
    float *got = fx_bits_brief(what, run, f, count), *want = fx_once(cpu, run, f, count);
    fx_same(what, got, want, count);
    free(got);
    free(want);
}

static void check_formulas(size_t c, size_t batch, int shards)
{
    size_t count = (size_t)shards * 2 * c;
    float *stats = random_floats(count, 5), *running = random_floats(2 * c, 6);
    for (size_t k = 0; k < count; k++)
        stats[k] = k / c % 2 ? fabsf(stats[k]) : stats[k];
    for (size_t k = c; k < 2 * c; k++)
        running[k] = fabsf(running[k]);
    formula_case f = {.c = c, .batch = batch, .shards = shards, .stats = stats, .running = running, .flag = -1};
    for (f.wave = shards; f.wave > 0; f.wave -= 5)
        check_same("folds", run_folds, &f, 3 * c);
    check_same("moments", run_moments, &f, count + 2 * c);
    for (; f.flag <= 1; f.flag++)
        check_same("running_update", run_running_update, &f, 2 * c);
    free(stats);
    free(running);
}

static void test_formulas(void **state)
{
    static const size_t channels[] = {1, 3, 21, 64, 300}, batches[] = {1, 2, 9, 64};
    for (size_t i = 0; i < 5; i++) {
        for (size_t k = 0; k < 4; k++) {
            for (int shards = 1; shards <= 16; shards += 5)
                check_formulas(channels[i], batches[k], shards);
        }
    }
}

static void test_layers_at_once(void **state)
{
    size_t count = (size_t)LAYERS * LAYER_FLOATS;
    float *stats = random_floats(count, 7), *running = random_floats(count, 8);
    formula_case f = {.stats = stats, .running = running};
    check_same("running_update of many layers", run_running_updates, &f, count);
    free(stats);
    free(running);
}

static void test_running_moments(void **state)
{
    enum { C = 21 };
    float *running = random_floats(2 * C, 1), stats[2 * C] = {0};
    double want[2 * C];
    for (size_t i = 0; i < C; i++) {
        running[C + i] = fabsf(running[C + i]);
        want[i] = (double)running[i];
        want[C + i] = 1 / sqrt((double)running[C + i] + (double)eps);
    }
    formula_case f = {.c = C, .batch = 1, .shards = 1, .stats = stats, .running = running};
    float *got = fx_bits("running moments", run_moments, &f, 4 * C);
    fx_near("mean", got + 2 * C, want, 0, C);
    fx_near("scale", got + 3 * C, want + C, 1e-6, C);
    free(got);
    free(running);
}

/* One element leaves the running variance as it is; the running mean moves by a tenth. */
static void test_single_element(void **state)
{
    const float entry[2] = {3.0f, 0.0f}, running[2] = {1.0f, 5.0f};
    const double want[2] = {0.9 * 1 + 0.1 * 3, 5};
    formula_case f = {.c = 1, .batch = 1, .stats = entry, .running = running, .flag = -1};
    float *got = fx_bits("single element", run_running_update, &f, 2);
    fx_near("running mean", got, want, 1e-6, 1);
    fx_near("running variance", got + 1, want + 1, 0, 1);
    free(got);
}

/* The first of two groups is empty: its moments are 0, and those of the second are right. */
static void test_empty_group(void **state)
{
    const float stats[4] = {1, 2, 3, 6}, running[2] = {0, 1};
    const double want[4] = {0, 3, 0, 1 / sqrt(1 + (double)eps)}; /* means, scales: 6 pixels */
    formula_case f = {.c = 1, .batch = 1, .shards = 2, .stats = stats, .running = running};
    float *got = fx_bits("empty group", run_moments, &f, 6);
    fx_near("means", got, want, 0, 2);
    fx_near("scales", got + 2, want + 2, 1e-6, 2);
    assert_true(got[2] == 0.0f);
    free(got);
}

int main(int argc, char **argv)
{
    return fx_kernel_main(argc, argv,
                          TESTS(TEST(test_formulas), TEST(test_layers_at_once), TEST(test_running_moments),
                                TEST(test_single_element), TEST(test_empty_group)),
                          FX_FP32 | FX_BF16);
}
