/* cuda_fixture.h - runs kernel slots on the device under test, twice for the same
 * bits, and compares with the CPU device or with references in double.
 *
 * The device is $LOCKSTEP_TEST_DEVICE, or cuda:0. Host arrays are dense floats
 * (n, h, w, c) that the device's value type can hold; here they become padded
 * tensors of that type and come back, and everything outside the values is
 * looked at: pads must be zero, bytes behind a block must survive.
 *
 * Bounds. fp32: 1e-5 of the largest value. tf32 cuts both factors of a product p to
 * 11 bits, which is off by 2^-9 p at most, and in one direction for all: a sum y of
 * products is off by up to 2^-9 |y|, and by random parts that add up as r, the root of
 * the sum of the products' squares; 4 * 2^-9 r is more than ten standard deviations.
 * bf16 products of bf16 values are exact, but results are rounded to 8 bits (2^-9 y,
 * doubled where addends were rounded before, as leaves of a gradient of weights may
 * be): the same with 2^-8. In fp32, adding rounds each partial sum to 24 bits: 2^-20
 * leaves room for sums of 2^8 partial sums of size r, and matters only where all of a
 * tensor cancels. */
#ifndef LK_TESTS_CUDA_FIXTURE_H
#define LK_TESTS_CUDA_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tensor/device.h"

enum { FX_SKIPPED = 77, FX_GUARD = 64, FX_MAX_BLOCKS = 64, FX_GARBAGE = 0xff, FX_SENTINEL = 0xa5 };
/* Parameters of a layer lie on multiples of so many elements; what is between is zero. */
enum { FX_GAP = 16 };
#define FX_TOLERANCE 1e-5

static lk_device *dev; /* under test */
static lk_device *cpu; /* what it is compared with */
static lk_precision precision;

static inline void require(lk_status status)
{
    if (status != LK_OK)
        fail_msg("%s: %s", lk_status_string(status), lk_error_detail());
}

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

/* Whether to test this precision: $LOCKSTEP_TEST_PRECISION is one, or unset for all;
 * others than fp32 are for GPUs only. */
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

/* Nearest, ties to even. */
static inline uint16_t float_to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (isnan(x))
        return 0x7fc0;
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

/* What the device under test can hold of x. */
static inline float fx_round(float x)
{
    return dev->values == LK_DTYPE_BF16 ? bf16_to_float(float_to_bf16(x)) : x;
}

/* Uniform in [-1,1), rounded to the value type; a function of the stream. */
static inline float *random_values(size_t count, uint32_t stream)
{
    float *p = new_floats(count);
    lk_rng rng = lk__rng(11, LK_RNG_DIGITS, 0, 0, stream);
    for (size_t i = 0; i < count; i++)
        p[i] = fx_round(2.0f * lk__rng_unit(lk__rng_u32(&rng, i)) - 1.0f);
    return p;
}

/* The same as floats of all their bits. */
static inline float *random_floats(size_t count, uint32_t stream)
{
    float *p = new_floats(count);
    lk_rng rng = lk__rng(11, LK_RNG_DIGITS, 0, 0, stream);
    for (size_t i = 0; i < count; i++)
        p[i] = 2.0f * lk__rng_unit(lk__rng_u32(&rng, i)) - 1.0f;
    return p;
}

static inline size_t fx_round_up(size_t count, size_t unit)
{
    return (count + unit - 1) / unit * unit;
}

/* Device memory, all of it given back after each run. */

static struct {
    void *at;
    size_t bytes;
} fx_blocks[FX_MAX_BLOCKS];
static size_t fx_block_count;

static inline void *fx_put(lk_device *d, const void *host, size_t bytes)
{
    uint8_t *image = malloc(bytes + FX_GUARD);
    void *block;
    assert_non_null(image);
    assert_true(fx_block_count < FX_MAX_BLOCKS);
    if (bytes)
        memcpy(image, host, bytes);
    memset(image + bytes, FX_SENTINEL, FX_GUARD);
    require(d->type->alloc(d, bytes + FX_GUARD, "test", &block));
    require(d->type->upload(d, image, bytes + FX_GUARD, block));
    free(image);
    fx_blocks[fx_block_count].at = block;
    fx_blocks[fx_block_count++].bytes = bytes;
    return block;
}

/* Full of NaNs, whatever the type. */
static inline void *fx_blank(lk_device *d, size_t bytes)
{
    uint8_t *image = malloc(bytes + 1);
    assert_non_null(image);
    memset(image, FX_GARBAGE, bytes);
    void *block = fx_put(d, image, bytes);
    free(image);
    return block;
}

static inline void fx_get(lk_device *d, const void *src, size_t bytes, void *host)
{
    if (bytes)
        require(d->type->download(d, src, bytes, host));
}

static inline void fx_release(lk_device *d)
{
    uint8_t guard[FX_GUARD];
    require(d->type->sync(d));
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

/* Not written yet. */
static inline lk_tensor fx_tensor(lk_device *d, lk_shape shape)
{
    lk_tensor t = fx_shape(d, shape);
    t.data = fx_blank(d, fx_bytes(&t));
    return t;
}

/* Element i of an array of that type. */
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

/* Gives t memory that holds dense, pads being zero. */
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

/* Runs. */

/* Does the case on d and fills out, all of it, with results. */
typedef void (*fx_run)(lk_device *d, const void *arg, float *out);

static inline float *fx_once(lk_device *d, fx_run run, const void *arg, size_t count)
{
    float *out = new_floats(count);
    fx_block_count = 0; /* what a test that failed left is lost */
    run(d, arg, out);
    fx_release(d);
    return out;
}

/* On the device under test; the result is to be freed. */
static inline float *fx_twice(const char *what, fx_run run, const void *arg, size_t count)
{
    float *first = fx_once(dev, run, arg, count), *second = fx_once(dev, run, arg, count);
    for (size_t i = 0; i < count; i++) {
        if (memcmp(first + i, second + i, sizeof *first) != 0)
            fail_msg("%s: element %zu is %.9g, and %.9g the second time", what, i, (double)first[i], (double)second[i]);
    }
    free(second);
    return first;
}

/* By bits; any NaN is as good as another. */
static inline void fx_same(const char *what, const float *got, const float *want, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (memcmp(got + i, want + i, sizeof *got) != 0 && !(isnan(got[i]) && isnan(want[i])))
            fail_msg("%s: element %zu of %zu is %.9g, not %.9g", what, i, count, (double)got[i], (double)want[i]);
    }
}

/* The CPU's values, rounded once to the device's type. */
static inline void fx_same_values(const char *what, const float *got, const float *want, size_t count)
{
    float *rounded = new_floats(count);
    for (size_t i = 0; i < count; i++)
        rounded[i] = fx_round(want[i]);
    fx_same(what, got, rounded, count);
    free(rounded);
}

/* Runs a case on both devices: equal values. */
static inline void fx_check_same(const char *what, fx_run run, const void *arg, size_t count)
{
    float *got = fx_twice(what, run, arg, count), *want = fx_once(cpu, run, arg, count);
    fx_same_values(what, got, want, count);
    free(got);
    free(want);
}

/* Each within 1e-5 of the largest and bound[i]; bound may be NULL. */
static inline void fx_near_each(const char *what, const float *got, const double *want, const double *bound,
                                size_t count)
{
    double largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(want[i]));
    for (size_t i = 0; i < count; i++) {
        double allowed = FX_TOLERANCE * largest + (bound ? bound[i] : 0);
        if (!(fabs((double)got[i] - want[i]) <= allowed))
            fail_msg("%s: element %zu of %zu is %.9g, not %.9g (%.3g is allowed, the largest is %g)", what, i, count,
                     (double)got[i], want[i], allowed, largest);
    }
}

/* f32 results. */
static inline void fx_near(const char *what, const float *got, const double *want, size_t count)
{
    fx_near_each(what, got, want, NULL, count);
}

/* Results of the value type. */
static inline void fx_near_values(const char *what, const float *got, const double *want, size_t count)
{
    double *bound = new_doubles(count);
    for (size_t i = 0; i < count && dev->values == LK_DTYPE_BF16; i++)
        bound[i] = 0x1p-8 * fabs(want[i]);
    fx_near_each(what, got, want, bound, count);
    free(bound);
}

/* How far a sum of products may be off, from the sum and the sum of squares of the
 * products: the head of this file. */
static inline double fx_bound(double sum, double squares)
{
    static const double units[] = {
        [LK_PRECISION_FP32] = 0x1p-20, [LK_PRECISION_TF32] = 0x1p-9, [LK_PRECISION_BF16] = 0x1p-8};
    return units[precision] * (fabs(sum) + 4 * sqrt(squares));
}

/* Waves of shards. */

enum { FX_MAX_SHARDS = 32, FX_SLOTS = 8 };

typedef struct fx_wave {
    size_t begin[FX_MAX_SHARDS + 1];
    size_t rows[FX_MAX_SHARDS]; /* of each shard */
    int merges[FX_MAX_SHARDS];
    size_t stack_rows[LK_TREE_MAX_DEPTH];
    size_t first, n; /* samples */
    lk_shards shards;
} fx_wave;

/* Shards [lo, lo + count), or as many as there are, of `shards` over a batch. */
static inline void fx_wave_init(fx_wave *v, size_t batch, int shards, int lo, int count)
{
    int hi = lo + count < shards ? lo + count : shards, starts[LK_TREE_MAX_DEPTH];
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
    v->shards =
        (lk_shards){.count = hi - lo, .begin = v->begin, .merges = v->merges, .depth = depth, .rows = v->stack_rows};
}

/* Weights. */

static inline size_t fx_weight_count(const lk_device *d, const lk_device_weight *w)
{
    size_t plain = w->out * w->in * (w->kernel ? w->kernel * w->kernel : 1);
    return d->type->weight_count ? d->type->weight_count(w) : plain;
}

static inline void fx_pack(const lk_device *d, const lk_device_weight *w, const float *plain, float *packed)
{
    if (d->type->pack)
        d->type->pack(w, plain, packed);
    else
        memcpy(packed, plain, fx_weight_count(d, w) * sizeof *plain);
}

static inline void fx_unpack(const lk_device *d, const lk_device_weight *w, const float *packed, float *plain)
{
    if (d->type->unpack)
        d->type->unpack(w, packed, plain);
    else
        memcpy(plain, packed, fx_weight_count(d, w) * sizeof *plain);
}

/* An array of the value type, with the gap that parameters have. */
static inline void *fx_parameter(lk_device *d, const float *values, size_t count)
{
    size_t size = lk_dtype_size(d->values), whole = fx_round_up(count, FX_GAP);
    void *image = calloc(whole, size);
    assert_non_null(image);
    for (size_t i = 0; i < count; i++)
        fx_store(d->values, values[i], i, image);
    void *block = fx_put(d, image, whole * size);
    free(image);
    return block;
}

static inline void *fx_weights(lk_device *d, const lk_device_weight *w, const float *plain)
{
    size_t count = fx_weight_count(d, w);
    float *packed = new_floats(count);
    fx_pack(d, w, plain, packed);
    void *block = fx_parameter(d, packed, count);
    free(packed);
    return block;
}

/* Partial sums of a layer's gradients, as the engine keeps them: a weight, then a
 * bias, in each slot; values not written yet, pads and gaps zero. */
typedef struct fx_grads {
    lk_device_weight weight;
    size_t weights, biases, bias_at, stride;
    float *slots; /* device */
} fx_grads;

static inline float *fx_nans(size_t count)
{
    float *p = new_floats(count);
    for (size_t i = 0; i < count; i++)
        p[i] = NAN;
    return p;
}

static inline fx_grads fx_grads_make(lk_device *d, lk_device_weight weight, size_t plain_count)
{
    fx_grads g = {.weight = weight, .weights = fx_weight_count(d, &weight), .biases = weight.out};
    g.bias_at = fx_round_up(g.weights, FX_GAP);
    g.stride = g.bias_at + fx_round_up(g.biases, FX_GAP);
    float *nans = fx_nans(plain_count), *image = new_floats(FX_SLOTS * g.stride);
    for (size_t s = 0; s < FX_SLOTS; s++) {
        fx_pack(d, &weight, nans, image + s * g.stride);
        memcpy(image + s * g.stride + g.bias_at, nans, g.biases * sizeof *nans);
    }
    g.slots = fx_floats(d, image, FX_SLOTS * g.stride);
    free(nans);
    free(image);
    return g;
}

static inline lk_partials fx_weight_sums(const fx_grads *g)
{
    return (lk_partials){g->slots, g->stride};
}

static inline lk_partials fx_bias_sums(const fx_grads *g)
{
    return (lk_partials){g->slots + g->bias_at, g->stride};
}

/* Slot 0: the weight's gradient in PyTorch's order, then the bias's, which is left
 * out where it was not asked for. */
static inline void fx_grads_read(lk_device *d, const fx_grads *g, size_t plain_count, bool bias, float *out)
{
    float *image = new_floats(g->stride), *again = new_floats(g->weights);
    fx_get_floats(d, g->slots, g->stride, image);
    fx_unpack(d, &g->weight, image, out);
    fx_pack(d, &g->weight, out, again);
    for (size_t i = 0; i < g->weights; i++) {
        if (!(image[i] == again[i]) && !(isnan(image[i]) && isnan(again[i])))
            fail_msg("pad %zu of a gradient of weights is %g, not 0", i, (double)image[i]);
    }
    for (size_t i = g->weights; i < g->stride; i++) {
        bool gap = i < g->bias_at || i >= g->bias_at + g->biases;
        if (gap && !(image[i] == 0))
            fail_msg("element %zu of the gap behind a gradient is %g, not 0", i, (double)image[i]);
    }
    if (bias)
        memcpy(out + plain_count, image + g->bias_at, g->biases * sizeof *out);
    free(image);
    free(again);
}

enum { FX_FP32 = 1 << LK_PRECISION_FP32, FX_TF32 = 1 << LK_PRECISION_TF32, FX_BF16 = 1 << LK_PRECISION_BF16 };

static inline int fx_open(void)
{
    lk_device_opts opts = {.threads = 1, .precision = precision};
    if (lk__device_open(fx_name(), &opts, &dev) == LK_OK &&
        lk__device_open("cpu", &(lk_device_opts){.threads = 1}, &cpu) == LK_OK)
        return 0;
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

#endif
