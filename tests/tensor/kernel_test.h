/* kernel_test.h - what the tests of the matrix kernels share: buffers, a
 * tolerance that follows from float64 references, and waves of shards. */
#ifndef LK_TESTS_KERNEL_TEST_H
#define LK_TESTS_KERNEL_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "tensor/cpu/cpu.h"

/* How one run of a kernel is done: none of this may change a bit. */
typedef struct setting {
    const char *isa;
    int threads;
    int wave; /* shards a wave */
} setting;

typedef bool (*setting_fn)(const setting *how, void *arg);

static inline float *buffer(size_t count)
{
    float *block;
    assert_int_equal(LK_ALLOC(count, "test buffer", &block), LK_OK);
    return block;
}

static inline double *buffer64(size_t count)
{
    double *block;
    assert_int_equal(LK_ALLOC(count, "test buffer", &block), LK_OK);
    return block;
}

/* NaN everywhere, so that what a kernel fails to write shows. */
static inline float *unwritten(size_t count)
{
    float *block = buffer(count);
    for (size_t i = 0; i < count; i++)
        block[i] = NAN;
    return block;
}

static inline float *random_buffer(size_t count, uint32_t stream)
{
    float *block = buffer(count);
    lk_rng rng = lk__rng(7, LK_RNG_INIT, stream, 0, 0);
    for (size_t i = 0; i < count; i++)
        block[i] = lk__rng_unit(lk__rng_u32(&rng, i)) - 0.5f;
    return block;
}

/* Each value within 1e-5 of the largest. */
static inline void assert_near(const char *what, const float *got, const double *want, size_t count)
{
    double largest = 0, error = 0;
    for (size_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs(want[i]));
        double off = fabs((double)got[i] - want[i]);
        if (!(off <= error))
            error = off;
    }
    if (!(error <= 1e-5 * largest))
        fail_msg("%s: off by %g where the largest value is %g", what, error, largest);
}

static inline lk_device *open_device(const setting *how)
{
    lk_device *dev;
    lk_device_opts opts = {.threads = how->threads, .isa = how->isa};
    assert_int_equal(lk__device_cpu.open(&opts, &dev), LK_OK);
    return dev;
}

/* Scratch of exactly the size asked for, followed by bytes that must survive. */
static inline void *scratch_open(size_t bytes)
{
    uint8_t *block;
    assert_int_equal(LK_ALLOC(bytes + LK_ALIGN, "scratch", &block), LK_OK);
    memset(block, 0xff, bytes + LK_ALIGN);
    return block;
}

static inline void scratch_close(void *scratch, size_t bytes)
{
    for (size_t i = 0; i < LK_ALIGN; i++)
        assert_int_equal(((uint8_t *)scratch)[bytes + i], 0xff);
    lk__mem_free(scratch);
}

/* Shards [first, first + count) of `shards` over a batch, as one wave. */
typedef struct shard_wave {
    size_t begin[LK_MAX_SHARDS + 1];
    int merges[LK_MAX_SHARDS];
    lk_shards shards;
    size_t sample, n; /* first sample of the wave, and how many */
} shard_wave;

static inline void wave_init(shard_wave *wave, size_t batch, int shards, int first, int count)
{
    wave->sample = lk__shard_begin(batch, shards, first);
    wave->n = lk__shard_begin(batch, shards, first + count) - wave->sample;
    for (int i = 0; i <= count; i++)
        wave->begin[i] = lk__shard_begin(batch, shards, first + i) - wave->sample;
    for (int i = 0; i < count; i++)
        wave->merges[i] = lk__tree_merges(shards, first + i);
    wave->shards = (lk_shards){.count = count, .begin = wave->begin, .merges = wave->merges};
    wave->shards.depth = first ? lk__tree_depth(shards, first - 1) : 0;
}

/* Calls run for every build of the kernels, 1, 2, 3 and 5 threads, and waves of
 * all, one, two and three shards; true from run ends it. */
static inline void each_setting(int shards, setting_fn run, void *arg)
{
    static const int threads[] = {1, 2, 3, 5};
    int waves[] = {shards, 1, 2, 3};
    const lk_cpu_build *build;
    for (size_t b = 0; (build = lk__cpu_build_list(b)); b++) {
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
            setting how = {build->name, threads[t], waves[(t + b) % 4]};
            if (run(&how, arg))
                return;
        }
    }
}

#endif
