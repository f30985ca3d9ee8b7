/* kernel_test.h - runs cases of kernel slots on the device under test and compares the results with references
 * in double.
 *
 * A test program of kernels runs on the CPU: every case in every build of the kernels and with several thread
 * counts, which must all give the same bits. With the argument "bf16" the CPU computes in bf16; its inputs are then
 * bf16 numbers, so that their products are exact and the bounds are those of fp32. With the argument "gpu" it runs the
 * same cases on $LOCKSTEP_TEST_DEVICE (default cuda:0), twice with the same bits, in each precision of the program.
 *
 * Host arrays are dense floats (n, h, w, c) that the device's value type can hold. In device memory they are
 * padded tensors of that type. Every run checks the memory around the values: pads must be zero, bytes behind a
 * block must survive.
 *
 * Bounds. fp32: 1e-5 of the largest value. tf32 rounds both factors of a product p to 11 bits, an error of at
 * most 2^-9 p. Errors of one direction add up to 2^-9 |y| for a sum y of products; random errors add up to
 * 2^-9 r, where r is the root of the sum of the products' squares; 4 * 2^-9 r is more than ten standard
 * deviations. bf16: products of bf16 values are exact, but results are rounded to 8 bits (2^-9 y; twice that if
 * addends were rounded before, as leaves of a weight gradient may be): the same bound with 2^-8. fp32 additions
 * round each partial sum to 24 bits: 2^-20 allows sums of 2^8 partial sums of size r, and matters only where a
 * whole tensor cancels. */
#ifndef LK_TESTS_KERNEL_TEST_H
#define LK_TESTS_KERNEL_TEST_H

#include <math.h>

#include "base/rng.h"
#include "check.h"
#include "tensor/cpu/cpu.h"

enum { FX_SKIPPED = 77, FX_GUARD = 64, FX_MAX_BLOCKS = 64, FX_MAX_SETTINGS = 32, FX_SENTINEL = 0xa5 };
#define FX_NEAR 1e-5

static lk_device *dev; /* under test; on the CPU that of the first setting */
static lk_device *cpu; /* the reference where only the CPU's kernels define the result */
static lk_precision precision;

/* A way to run a case; results have the same bits in all settings. */
typedef struct fx_setting {
    lk_device *dev;
    const char *name;
    int threads;
} fx_setting;

static fx_setting fx_settings[FX_MAX_SETTINGS];
static size_t fx_setting_count;
static bool fx_builds; /* the settings are the CPU's builds and thread counts */

static inline const char *fx_name(void)
{
    const char *name = getenv("LOCKSTEP_TEST_DEVICE");
    return name && *name ? name : "cuda:0";
}

/* Whether this build and machine have the device. */
static inline bool fx_present(void)
{
    const lk_device_type *type;
    for (size_t i = 0; (type = lk__device_list(i)); i++) {
        if (strncmp(type->name, fx_name(), strcspn(fx_name(), ":")) == 0)
            return !type->count || type->count() > 0;
    }
    return false;
}

static const char *const fx_precisions[] = {"fp32", "tf32", "bf16"};

/* Whether to test this precision. $LOCKSTEP_TEST_PRECISION selects one; unset: all. tf32 and bf16 are for GPUs
 * only. */
static inline bool fx_has(lk_precision wanted)
{
    const char *only = getenv("LOCKSTEP_TEST_PRECISION");
    if (only && *only && strcmp(only, fx_precisions[wanted]) != 0)
        return false;
    return wanted == LK_PRECISION_FP32 || strncmp(fx_name(), "cpu", 3) != 0;
}

/* Host memory. */

static inline float *new_floats(size_t count)
{
    float *p = calloc(count ? count : 1, sizeof *p);
    assert_non_null(p);
    return p;
}

static inline double *new_doubles(size_t count)
{
    double *p = calloc(count ? count : 1, sizeof *p);
    assert_non_null(p);
    return p;
}

static inline float bf16_to_float(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounds to nearest, ties to even. */
static inline uint16_t float_to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (isnan(x))
        return 0x7fc0;
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

/* x rounded to the type of the factors of products of the device under test. */
static inline float fx_round(float x)
{
    return precision == LK_PRECISION_BF16 ? bf16_to_float(float_to_bf16(x)) : x;
}

/* Random numbers, uniform in [-1,1), rounded to the value type. They depend on the stream only. */
static inline float *random_values(size_t count, uint32_t stream)
{
    float *p = new_floats(count);
    lk_rng rng = lk__rng(11, LK_RNG_PURPOSE_DIGITS, 0, 0, stream);
    for (size_t i = 0; i < count; i++)
        p[i] = fx_round(2.0f * lk__rng_unit(lk__rng_u32(&rng, i)) - 1.0f);
    return p;
}

/* Random numbers as those of random_values, but not rounded. */
static inline float *random_floats(size_t count, uint32_t stream)
{
    float *p = new_floats(count);
    lk_rng rng = lk__rng(11, LK_RNG_PURPOSE_DIGITS, 0, 0, stream);
    for (size_t i = 0; i < count; i++)
        p[i] = 2.0f * lk__rng_unit(lk__rng_u32(&rng, i)) - 1.0f;
    return p;
}

/* Device memory; fx_release frees all of it after each run. */

static struct {
    void *at;
    size_t bytes;
} fx_blocks[FX_MAX_BLOCKS];
static size_t fx_block_count;

static inline void *fx_put(lk_device *d, const void *host, size_t bytes)
{
    uint8_t guard[FX_GUARD];
    void *block;
    assert_true(fx_block_count < FX_MAX_BLOCKS);
    memset(guard, FX_SENTINEL, sizeof guard);
    assert_ok(d->type->alloc(d, bytes + FX_GUARD, "test", &block));
    if (bytes)
        assert_ok(d->type->upload(d, host, bytes, block));
    assert_ok(d->type->upload(d, guard, sizeof guard, (char *)block + bytes));
    fx_blocks[fx_block_count].at = block;
    fx_blocks[fx_block_count++].bytes = bytes;
    return block;
}

/* The byte that fills unwritten memory: NaNs in every type, and numbers in every other run, so that an unwritten
 * element is found also where a NaN is expected. */
static uint8_t fx_garbage = 0xff;

static inline void *fx_blank(lk_device *d, size_t bytes)
{
    uint8_t *image = malloc(bytes + 1);
    assert_non_null(image);
    memset(image, fx_garbage, bytes);
    void *block = fx_put(d, image, bytes);
    free(image);
    return block;
}

static inline void fx_get(lk_device *d, const void *src, size_t bytes, void *host)
{
    if (bytes)
        assert_ok(d->type->download(d, src, bytes, host));
}

static inline void fx_release(lk_device *d)
{
    uint8_t guard[FX_GUARD];
    assert_ok(d->type->sync(d));
    while (fx_block_count) {
        fx_block_count--;
        char *block = fx_blocks[fx_block_count].at;
        fx_get(d, block + fx_blocks[fx_block_count].bytes, FX_GUARD, guard);
        for (size_t i = 0; i < FX_GUARD; i++) {
            if (guard[i] != FX_SENTINEL)
                fail_msg("byte %zu behind a block of %zu bytes was written", i, fx_blocks[fx_block_count].bytes);
        }
        d->type->free(d, block);
    }
}

/* Tensors. */

static inline lk_tensor fx_shape(const lk_device *d, lk_shape shape)
{
    return (lk_tensor){.dtype = d->values, .shape = shape, .pitch = lk__device_pitch(d, shape.c)};
}

static inline size_t fx_bytes(const lk_tensor *t)
{
    return t->shape.n * lk__tensor_stride(t);
}

/* A tensor that is not written yet. */
static inline lk_tensor fx_tensor(lk_device *d, lk_shape shape)
{
    lk_tensor t = fx_shape(d, shape);
    t.data = fx_blank(d, fx_bytes(&t));
    return t;
}

/* Writes element i of an array of this type. */
static inline void fx_store(lk_dtype dtype, float x, size_t i, void *array)
{
    if (dtype == LK_DTYPE_BF16)
        ((uint16_t *)array)[i] = float_to_bf16(x);
    else
        ((float *)array)[i] = x;
}

static inline float fx_load(lk_dtype dtype, const void *array, size_t i)
{
    return dtype == LK_DTYPE_BF16 ? bf16_to_float(((const uint16_t *)array)[i]) : ((const float *)array)[i];
}

/* Allocates memory for t and copies dense to it; pads are zero. */
static inline void fx_fill(lk_device *d, lk_tensor *t, const float *dense)
{
    size_t pixels = t->shape.n * t->shape.h * t->shape.w, c = t->shape.c, pitch = lk__tensor_pitch(t);
    void *image = calloc(1, fx_bytes(t) + 1);
    assert_non_null(image);
    for (size_t p = 0; p < pixels; p++) {
        for (size_t i = 0; i < c; i++)
            fx_store(t->dtype, dense[p * c + i], p * pitch + i, image);
    }
    t->data = fx_put(d, image, fx_bytes(t));
    free(image);
}

static inline lk_tensor fx_input(lk_device *d, lk_shape shape, const float *dense)
{
    lk_tensor t = fx_shape(d, shape);
    fx_fill(d, &t, dense);
    return t;
}

static inline void fx_read(lk_device *d, const lk_tensor *t, float *dense)
{
    size_t pixels = t->shape.n * t->shape.h * t->shape.w, c = t->shape.c, pitch = lk__tensor_pitch(t);
    void *image = malloc(fx_bytes(t) + 1);
    assert_non_null(image);
    fx_get(d, t->data, fx_bytes(t), image);
    for (size_t p = 0; p < pixels; p++) {
        for (size_t i = 0; i < pitch; i++) {
            float value = fx_load(t->dtype, image, p * pitch + i);
            if (i < c)
                dense[p * c + i] = value;
            else if (!(value == 0))
                fail_msg("pad %zu of pixel %zu with %zu channels is %g, not 0", i - c, p, c, (double)value);
        }
    }
    free(image);
}

static inline float *fx_floats(lk_device *d, const float *host, size_t count)
{
    return fx_put(d, host, count * sizeof *host);
}

static inline float *fx_no_floats(lk_device *d, size_t count)
{
    return fx_blank(d, count * sizeof(float));
}

static inline void fx_get_floats(lk_device *d, const float *src, size_t count, float *host)
{
    fx_get(d, src, count * sizeof *host, host);
}

/* Converts each byte to a float, so that comparing floats compares all bits. */
static inline void fx_spread(const void *bytes, size_t count, float *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (float)((const uint8_t *)bytes)[i];
}

/* Runs. */

/* Runs the case on d and writes all elements of out. */
typedef void (*fx_run)(lk_device *d, const void *arg, float *out);

static inline float *fx_once(lk_device *d, fx_run run, const void *arg, size_t count)
{
    float *out = new_floats(count);
    fx_block_count = 0; /* blocks that a failed test left are not freed */
    fx_garbage = fx_garbage == 0xff ? 0x3c : 0xff;
    run(d, arg, out);
    fx_release(d);
    return out;
}

static inline bool fx_equal(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* Compares bits; all NaNs are equal. */
static inline void fx_same(const char *what, const float *got, const float *want, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!fx_equal(got[i], want[i]))
            fail_msg("%s: element %zu of %zu is %.9g, not %.9g", what, i, count, (double)got[i], (double)want[i]);
    }
}

/* Runs the case in each setting with this number of threads; 0: in all. If wave is not NULL, runs differ in the
 * number of shards of a wave. */
static inline float *fx_runs(const char *what, fx_run run, const void *arg, size_t count, int threads, int *wave)
{
    static const int waves[] = {0, 1, 2, 3, 5, 11}; /* 0: all shards */
    size_t runs = wave && fx_setting_count < 2 * COUNT_OF(waves) ? 2 * COUNT_OF(waves) : fx_setting_count;
    float *first = NULL;
    for (size_t r = 0; r < runs; r++) {
        const fx_setting *how = &fx_settings[r % fx_setting_count];
        if (threads && how->threads != threads)
            continue;
        if (wave)
            *wave = waves[(r + r / COUNT_OF(waves)) % COUNT_OF(waves)];
        float *out = fx_once(how->dev, run, arg, count);
        for (size_t i = 0; first && i < count; i++) {
            if (!fx_equal(out[i], first[i]))
                fail_msg("%s: %s with %d threads, waves of %d shards (0: all): element %zu is %.9g, and %.9g in the "
                         "first run",
                         what, how->name, how->threads, wave ? *wave : 0, i, (double)out[i], (double)first[i]);
        }
        if (first)
            free(out);
        else
            first = out;
    }
    assert_non_null(first);
    return first;
}

/* Returns the results of a case, which have the same bits in all settings. Owned by the caller. */
static inline float *fx_bits(const char *what, fx_run run, const void *arg, size_t count)
{
    return fx_runs(what, run, arg, count, 0, NULL);
}

/* fx_bits with two threads only, for loops over many cases. */
static inline float *fx_bits_brief(const char *what, fx_run run, const void *arg, size_t count)
{
    return fx_runs(what, run, arg, count, fx_builds ? 2 : 0, NULL);
}

/* fx_bits in all settings and with waves of all, 1, 2, 3, 5 and 11 shards. */
static inline float *fx_bits_in_waves(const char *what, fx_run run, const void *arg, size_t count, int *wave)
{
    float *results = fx_runs(what, run, arg, count, 0, wave);
    *wave = 0;
    return results;
}

/* Returns the results of a case, which are f32 and have the CPU's bits. Owned by the caller. */
static inline float *fx_bits_of_cpu(const char *what, fx_run run, const void *arg, size_t count)
{
    float *got = fx_bits(what, run, arg, count), *want = fx_once(cpu, run, arg, count);
    fx_same(what, got, want, count);
    free(want);
    return got;
}

/* The results are the f32 values of a reference, rounded once to the value type. */
static inline void fx_same_values(const char *what, const float *got, const float *want, size_t count)
{
    float *rounded = new_floats(count);
    for (size_t i = 0; i < count; i++)
        rounded[i] = fx_round(want[i]);
    fx_same(what, got, rounded, count);
    free(rounded);
}

/* Runs a case whose results are exact. */
static inline void fx_check(const char *what, fx_run run, const void *arg, const float *want, size_t count)
{
    float *got = fx_bits(what, run, arg, count);
    fx_same_values(what, got, want, count);
    free(got);
}

/* Whether to skip a case of this number of values: on the CPU, cases that fill a GPU test nothing more. */
static inline bool fx_too_large(size_t values)
{
    return fx_builds && values > 190000;
}

/* The error of each element is at most `part` of the largest value plus bound[i]; bound may be NULL. */
static inline void fx_near_each(const char *what, const float *got, const double *want, double part,
                                const double *bound, size_t count)
{
    double largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(want[i]));
    for (size_t i = 0; i < count; i++) {
        double allowed = part * largest + (bound ? bound[i] : 0);
        if (!(fabs((double)got[i] - want[i]) <= allowed))
            fail_msg("%s: element %zu of %zu is %.9g, not %.9g (%.3g is allowed, the largest is %g)", what, i, count,
                     (double)got[i], want[i], allowed, largest);
    }
}

/* fx_near_each for f32 results. */
static inline void fx_near(const char *what, const float *got, const double *want, double part, size_t count)
{
    fx_near_each(what, got, want, part, NULL, count);
}

/* fx_near_each for results of the value type. */
static inline void fx_near_values(const char *what, const float *got, const double *want, double part, size_t count)
{
    double *bound = new_doubles(count);
    for (size_t i = 0; i < count && dev->values == LK_DTYPE_BF16; i++)
        bound[i] = 0x1p-8 * fabs(want[i]);
    fx_near_each(what, got, want, part, bound, count);
    free(bound);
}

/* The bound of the error of a sum of products, from the sum and the sum of squares of the products; see the head
 * of this file. */
static inline double fx_bound(double sum, double squares)
{
    static const double units[] = {
        [LK_PRECISION_FP32] = 0x1p-20, [LK_PRECISION_TF32] = 0x1p-9, [LK_PRECISION_BF16] = 0x1p-8};
    return units[fx_builds ? LK_PRECISION_FP32 : precision] * (fabs(sum) + 4 * sqrt(squares));
}

/* Waves of shards. */

enum { FX_MAX_SHARDS = 1200 };

typedef struct fx_wave {
    size_t begin[FX_MAX_SHARDS + 1];
    size_t rows[FX_MAX_SHARDS]; /* of each shard */
    int merges[FX_MAX_SHARDS];
    size_t stack_rows[LK_TREE_MAX_DEPTH];
    size_t first, n; /* samples */
    lk_shards shards;
} fx_wave;

/* A wave of shards [lo, lo + count), or up to the last one, of a batch with `shards` shards. */
static inline void fx_wave_init(fx_wave *v, size_t batch, int shards, int lo, int count)
{
    int hi = lo + count < shards ? lo + count : shards, starts[LK_TREE_MAX_DEPTH];
    assert_true(hi - lo <= FX_MAX_SHARDS);
    *v = (fx_wave){.first = lk__shard_begin(batch, shards, lo)};
    for (int s = lo; s <= hi; s++)
        v->begin[s - lo] = lk__shard_begin(batch, shards, s) - v->first;
    for (int s = lo; s < hi; s++) {
        v->merges[s - lo] = lk__tree_merges(shards, s);
        v->rows[s - lo] = v->begin[s - lo + 1] - v->begin[s - lo];
    }
    int depth = lk__tree_stack(shards, lo - 1, starts);
    for (int d = 0; d < depth; d++) {
        size_t end = d + 1 < depth ? lk__shard_begin(batch, shards, starts[d + 1]) : v->first;
        v->stack_rows[d] = end - lk__shard_begin(batch, shards, starts[d]);
    }
    v->n = v->begin[hi - lo];
    v->shards = (lk_shards){.count = hi - lo,
                            .begin = v->begin,
                            .most = lk__shard_largest(batch, shards),
                            .all = shards,
                            .merges = v->merges,
                            .depth = depth,
                            .rows = v->stack_rows};
}

/* The largest number of partial sums that exist at the same time. */
static inline size_t fx_slots(int shards)
{
    int most = 0;
    for (int s = 0; s < shards; s++)
        most = lk__tree_depth(shards, s - 1) + 1 > most ? lk__tree_depth(shards, s - 1) + 1 : most;
    return (size_t)most;
}

enum { FX_FP32 = 1 << LK_PRECISION_FP32, FX_TF32 = 1 << LK_PRECISION_TF32, FX_BF16 = 1 << LK_PRECISION_BF16 };

static inline void fx_add_setting(lk_device *d, const char *name, int threads)
{
    assert_true(fx_setting_count < FX_MAX_SETTINGS);
    fx_settings[fx_setting_count++] = (fx_setting){d, name, threads};
}

static inline int fx_open(void)
{
    lk_device_opts opts = {.threads = 1, .precision = precision};
    if (lk__device_open(fx_name(), &opts, &dev) == LK_OK &&
        lk__device_open("cpu", &(lk_device_opts){.threads = 1}, &cpu) == LK_OK) {
        fx_setting_count = 0;
        fx_add_setting(dev, fx_name(), 1);
        fx_add_setting(dev, fx_name(), 1);
        return 0;
    }
    fprintf(stderr, "%s: %s\n", fx_name(), lk_error_detail());
    return 1;
}

/* Runs the tests once for each of these precisions that the device has. */
static inline int fx_main(const struct CMUnitTest *tests, size_t count, int precisions)
{
    int failed = 0, groups = 0;
    if (!fx_present()) {
        puts("skipped: no GPU");
        return FX_SKIPPED;
    }
    for (int p = LK_PRECISION_FP32; p <= LK_PRECISION_BF16; p++) {
        precision = (lk_precision)p;
        if (!(precisions & 1 << p) || !fx_has(precision))
            continue;
        if (fx_open() != 0)
            return 1;
        groups++;
        failed += _cmocka_run_group_tests(fx_precisions[p], tests, count, NULL, NULL);
        lk__device_close(dev);
        lk__device_close(cpu);
    }
    if (groups == 0) {
        printf("skipped: %s has no such precision\n", fx_name());
        return FX_SKIPPED;
    }
    return failed ? 1 : 0;
}

/* Runs the tests with every build of the CPU's kernels and 1, 2, 3 and 5 threads. */
static inline int fx_main_builds(const struct CMUnitTest *tests, size_t count)
{
    static const int threads[] = {1, 2, 3, 5};
    const lk_cpu_build *build;
    fx_builds = true;
    for (size_t b = 0; (build = lk__cpu_build_list(b)); b++) {
        for (size_t t = 0; t < COUNT_OF(threads); t++) {
            lk_device_opts opts = {.threads = threads[t], .isa = build->name, .precision = precision};
            lk_device *d;
            if (lk__device_cpu.open(&opts, &d) != LK_OK)
                return 1;
            fx_add_setting(d, build->name, threads[t]);
        }
    }
    dev = cpu = fx_settings[0].dev;
    int failed = _cmocka_run_group_tests("cpu", tests, count, NULL, NULL);
    while (fx_setting_count)
        lk__device_close(fx_settings[--fx_setting_count].dev);
    return failed ? 1 : 0;
}

/* The main function of kernel tests. */
static inline int fx_kernel_main(int argc, char **argv, const struct CMUnitTest *tests, size_t count, int precisions)
{
    if (argc == 1)
        return fx_main_builds(tests, count);
    if (argc == 2 && strcmp(argv[1], "bf16") == 0) {
        precision = LK_PRECISION_BF16;
        return fx_main_builds(tests, count);
    }
    if (argc == 2 && strcmp(argv[1], "gpu") == 0)
        return fx_main(tests, count, precisions);
    fprintf(stderr, "usage: %s [bf16|gpu]\n", argv[0]);
    return 2;
}

#endif
