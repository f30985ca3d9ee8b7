/* everywhere.h - runs a kernel on every build and several thread counts, which
 * must agree to the bit, and compares results with references in double. */
#ifndef LK_TESTS_TENSOR_EVERYWHERE_H
#define LK_TESTS_TENSOR_EVERYWHERE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tensor/cpu/cpu.h"

/* Fills out, all of it, with the results of a case on dev. */
typedef void (*case_fn)(lk_device *dev, const void *arg, float *out);

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

/* Uniform in [-1,1), a function of the stream alone. */
static inline float *random_floats(size_t count, uint32_t stream)
{
    float *p = new_floats(count);
    lk_rng rng = lk__rng(123, LK_RNG_DIGITS, 0, 0, stream);
    for (size_t i = 0; i < count; i++)
        p[i] = 2.0f * lk__rng_unit(lk__rng_u32(&rng, i)) - 1.0f;
    return p;
}

static inline lk_tensor tensor_of(float *data, lk_shape shape)
{
    return (lk_tensor){.data = data, .dtype = LK_DTYPE_F32, .shape = shape};
}

static inline lk_device *open_device(const char *isa, int threads)
{
    lk_device_opts opts = {.threads = threads, .isa = isa};
    lk_device *dev = NULL;
    assert_int_equal(lk__device_cpu.open(&opts, &dev), LK_OK);
    return dev;
}

/* The results, to be freed. out is filled with another pattern before each run,
 * so that an element left unwritten shows. */
static inline float *run_everywhere(case_fn run, const void *arg, size_t count)
{
    static const int threads[] = {1, 2, 3, 5};
    float *want = new_floats(count), *got = new_floats(count);
    const lk_cpu_build *build;
    unsigned char pattern = 1;
    for (size_t i = 0; (build = lk__cpu_build_list(i)); i++) {
        for (size_t k = 0; k < sizeof threads / sizeof *threads; k++) {
            lk_device *dev = open_device(build->name, threads[k]);
            float *out = pattern == 1 ? want : got;
            memset(out, pattern++, count * sizeof *out);
            run(dev, arg, out);
            if (memcmp(out, want, count * sizeof *out) != 0)
                fail_msg("%s with %d threads gives other bits than the first build", build->name, threads[k]);
            lk__device_close(dev);
        }
    }
    free(got);
    return want;
}

/* Within tolerance times the largest reference value. */
static inline void assert_close(const float *got, const double *want, size_t count, double tolerance)
{
    double largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(want[i]));
    for (size_t i = 0; i < count; i++) {
        if (!(fabs((double)got[i] - want[i]) <= tolerance * largest))
            fail_msg("element %zu is %.9g, not %.9g (largest %g)", i, (double)got[i], want[i], largest);
    }
}

static inline void assert_same(const float *got, const float *want, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (memcmp(got + i, want + i, sizeof *got) != 0)
            fail_msg("element %zu is %.9g, not %.9g", i, (double)got[i], (double)want[i]);
    }
}

#endif
