/* reduce.c - combines two vectors of any type, element by element, for sums between ranks.
 *
 * It runs on the calling thread only: vectors come in small blocks, while the rank's pool may be busy. The
 * compiler vectorises these loops. The element functions are exact or correctly rounded, so all builds agree. */
#include <assert.h>
#include <string.h>

#include "base/math.h"
#include "tensor/cpu/decls.h"

/* out may be an input, but only at the same index: no iteration reads what another one wrote. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

static inline float bf16_to_float(uint16_t x)
{
    return lk__math_bits_to_float((uint32_t)x << 16);
}

/* Rounds to nearest, ties to even. All NaNs become the same NaN: cutting off the low half could turn a NaN into
 * infinity. */
static inline uint16_t float_to_bf16(float x)
{
    uint32_t bits = lk__math_float_to_bits(x);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

static inline float f16_to_float(uint16_t x)
{
    return lk__math_half_to_float(x);
}

/* clang-format off */
/* Minimum and maximum: a if both are equal, and NaN rather than a number. */
static inline bool f32_keeps_min(float a, float b) { return a <= b || a != a; }
static inline bool f32_keeps_max(float a, float b) { return a >= b || a != a; }
static inline float f32_sum(float a, float b) { return a + b; }
static inline float f32_min(float a, float b) { return f32_keeps_min(a, b) ? a : b; }
static inline float f32_max(float a, float b) { return f32_keeps_max(a, b) ? a : b; }
static inline float f32_product(float a, float b) { return a * b; }
static inline float f32_quotient(float x, int divisor) { return x / (float)divisor; }

static inline double f64_sum(double a, double b) { return a + b; }
static inline double f64_min(double a, double b) { return a <= b || a != a ? a : b; }
static inline double f64_max(double a, double b) { return a >= b || a != a ? a : b; }
static inline double f64_product(double a, double b) { return a * b; }
static inline double f64_quotient(double x, int divisor) { return x / (double)divisor; }

static inline uint16_t bf16_sum(uint16_t a, uint16_t b) { return float_to_bf16(bf16_to_float(a) + bf16_to_float(b)); }
static inline uint16_t bf16_min(uint16_t a, uint16_t b) { return f32_keeps_min(bf16_to_float(a), bf16_to_float(b)) ? a : b; }
static inline uint16_t bf16_max(uint16_t a, uint16_t b) { return f32_keeps_max(bf16_to_float(a), bf16_to_float(b)) ? a : b; }
static inline uint16_t bf16_product(uint16_t a, uint16_t b) { return float_to_bf16(bf16_to_float(a) * bf16_to_float(b)); }
static inline uint16_t bf16_quotient(uint16_t x, int divisor) { return float_to_bf16(bf16_to_float(x) / (float)divisor); }

static inline uint16_t f16_sum(uint16_t a, uint16_t b) { return lk__math_float_to_half(f16_to_float(a) + f16_to_float(b)); }
static inline uint16_t f16_min(uint16_t a, uint16_t b) { return f32_keeps_min(f16_to_float(a), f16_to_float(b)) ? a : b; }
static inline uint16_t f16_max(uint16_t a, uint16_t b) { return f32_keeps_max(f16_to_float(a), f16_to_float(b)) ? a : b; }
static inline uint16_t f16_product(uint16_t a, uint16_t b) { return lk__math_float_to_half(f16_to_float(a) * f16_to_float(b)); }
static inline uint16_t f16_quotient(uint16_t x, int divisor) { return lk__math_float_to_half(f16_to_float(x) / (float)divisor); }

static inline int64_t i64_sum(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline int64_t i64_min(int64_t a, int64_t b) { return b < a ? b : a; }
static inline int64_t i64_max(int64_t a, int64_t b) { return b > a ? b : a; }
static inline int64_t i64_product(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
static inline int64_t i64_quotient(int64_t x, int divisor) { return x / divisor; }

static inline int32_t i32_sum(int32_t a, int32_t b) { return (int32_t)((uint32_t)a + (uint32_t)b); }
static inline int32_t i32_min(int32_t a, int32_t b) { return b < a ? b : a; }
static inline int32_t i32_max(int32_t a, int32_t b) { return b > a ? b : a; }
static inline int32_t i32_product(int32_t a, int32_t b) { return (int32_t)((uint32_t)a * (uint32_t)b); }
static inline int32_t i32_quotient(int32_t x, int divisor) { return x / divisor; }

static inline uint8_t u8_sum(uint8_t a, uint8_t b) { return (uint8_t)(a + b); }
static inline uint8_t u8_min(uint8_t a, uint8_t b) { return b < a ? b : a; }
static inline uint8_t u8_max(uint8_t a, uint8_t b) { return b > a ? b : a; }
static inline uint8_t u8_product(uint8_t a, uint8_t b) { return (uint8_t)(a * b); }
static inline uint8_t u8_quotient(uint8_t x, int divisor) { return (uint8_t)(x / divisor); }
/* clang-format on */

#define DEFINE_REDUCE(name, type, op)                                                          \
    static void name##_##op##_all(size_t count, const void *left, const void *right, void *to) \
    {                                                                                          \
        const type *a = left, *b = right;                                                      \
        type *out = to;                                                                        \
        INDEPENDENT                                                                            \
        for (size_t i = 0; i < count; i++)                                                     \
            out[i] = name##_##op(a[i], b[i]);                                                  \
    }

#define DEFINE_TYPE(name, type)                                              \
    DEFINE_REDUCE(name, type, sum)                                           \
    DEFINE_REDUCE(name, type, min)                                           \
    DEFINE_REDUCE(name, type, max)                                           \
    DEFINE_REDUCE(name, type, product)                                       \
    static void name##_quotient_all(size_t count, int divisor, void *values) \
    {                                                                        \
        type *x = values;                                                    \
        INDEPENDENT                                                          \
        for (size_t i = 0; i < count; i++)                                   \
            x[i] = name##_quotient(x[i], divisor);                           \
    }

DEFINE_TYPE(f32, float)
DEFINE_TYPE(f64, double)
DEFINE_TYPE(bf16, uint16_t)
DEFINE_TYPE(f16, uint16_t)
DEFINE_TYPE(i64, int64_t)
DEFINE_TYPE(i32, int32_t)
DEFINE_TYPE(u8, uint8_t)

typedef struct element_type {
    void (*reduce[LK_REDUCTION_COUNT])(size_t count, const void *a, const void *b, void *out);
    void (*divide)(size_t count, int divisor, void *x);
} element_type;

#define ROW(name)                                                \
    {                                                            \
        .reduce = {[LK_REDUCTION_SUM] = name##_sum_all,          \
                   [LK_REDUCTION_MEAN] = name##_sum_all,         \
                   [LK_REDUCTION_MIN] = name##_min_all,          \
                   [LK_REDUCTION_MAX] = name##_max_all,          \
                   [LK_REDUCTION_PRODUCT] = name##_product_all}, \
        .divide = name##_quotient_all,                           \
    }

static const element_type types[LK_DTYPE_COUNT] = {
    [LK_DTYPE_F32] = ROW(f32), [LK_DTYPE_F64] = ROW(f64), [LK_DTYPE_BF16] = ROW(bf16), [LK_DTYPE_F16] = ROW(f16),
    [LK_DTYPE_I64] = ROW(i64), [LK_DTYPE_I32] = ROW(i32), [LK_DTYPE_U8] = ROW(u8),
};

void LK_KERNEL(reduce)(lk_device *dev, lk_dtype dtype, lk_reduction op, size_t count, const void *a, const void *b,
                       void *out)
{
    (void)dev;
    assert(types[dtype].divide);
    types[dtype].reduce[op](count, a, b, out);
}

void LK_KERNEL(divide)(lk_device *dev, lk_dtype dtype, size_t count, int divisor, void *x)
{
    (void)dev;
    assert(types[dtype].divide);
    types[dtype].divide(count, divisor, x);
}

void LK_KERNEL(copy_bytes)(lk_device *dev, size_t bytes, const void *src, void *dst)
{
    (void)dev;
    if (bytes)
        memcpy(dst, src, bytes);
}

void LK_KERNEL(zero_bytes)(lk_device *dev, size_t bytes, void *dst)
{
    (void)dev;
    if (bytes)
        memset(dst, 0, bytes);
}
