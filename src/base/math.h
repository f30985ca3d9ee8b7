/* math.h - own elementary functions in float, with the same bits on every machine.
 *
 * libm's results differ between machines and versions, so whatever can reach a weight uses these
 * functions. They use only +, *, fma and integer operations, which are correctly rounded on every
 * machine; fma is an instruction or an exact call. exp and log are inline, so that kernels get code
 * for their own instruction set. The error of exp and log is at most 2 units in the last place; the other
 * functions say theirs. */
#ifndef LK_BASE_MATH_H
#define LK_BASE_MATH_H

#include <stdint.h>
#include <string.h>

static inline float lk__math_bits_to_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t lk__math_float_to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* IEEE half precision, of which x has the bits; exact. */
static inline float lk__math_half_to_float(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000u) << 16, rest = x & 0x7fffu;
    float small = (float)rest * 0x1p-24f; /* a subnormal half */
    uint32_t bits = rest < 0x0400u   ? lk__math_float_to_bits(small)
                    : rest < 0x7c00u ? (rest << 13) + 0x38000000u
                                     : (rest << 13) | 0x7f800000u;
    return lk__math_bits_to_float(bits | sign);
}

/* The nearest half, ties to even. All NaNs become the same NaN. */
static inline uint16_t lk__math_float_to_half(float x)
{
    uint32_t bits = lk__math_float_to_bits(x), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
    /* The unit in the last place of 0.5 + |x| is that of subnormal halves. */
    uint32_t small = lk__math_float_to_bits(lk__math_bits_to_float(rest) + 0.5f) - 0x3f000000u;
    uint32_t normal = (rest - 0x38000000u + 0x0fffu + (rest >> 13 & 1)) >> 13;
    uint32_t half = rest < 0x38800000u ? small : rest < 0x477ff000u ? normal : 0x7c00u;
    return (uint16_t)(rest > 0x7f800000u ? 0x7e00u : half | sign);
}

/* exp(x): 0 below -104, infinity above 88.73, NaN for NaN.
 * x = n ln 2 + r with |r| <= ln 2 / 2; the polynomial gives (e^r - 1 - r) / r^2. */
static inline float lk__math_expf(float x)
{
    if (!(x > -104.0f))
        return x != x ? x : 0.0f;
    if (x > 88.73f)
        return lk__math_bits_to_float(0x7f800000u);
    /* Adding 1.5 * 2^23 rounds to a whole number, which is then in the low bits. */
    float shifted = __builtin_fmaf(x, 0x1.715476p+0f, 0x1.8p+23f);
    int32_t n = (int32_t)(lk__math_float_to_bits(shifted) - 0x4b400000u);
    float whole = shifted - 0x1.8p+23f;
    float r = __builtin_fmaf(whole, -0x1.62e4p-1f, x);
    r = __builtin_fmaf(whole, -0x1.7f7d1cp-20f, r);
    float p = 0x1.a12652p-13f;
    p = __builtin_fmaf(p, r, 0x1.6d44b2p-10f);
    p = __builtin_fmaf(p, r, 0x1.1110ep-7f);
    p = __builtin_fmaf(p, r, 0x1.5554e8p-5f);
    p = __builtin_fmaf(p, r, 0x1.555556p-3f);
    p = __builtin_fmaf(p, r, 0x1p-1f);
    float value = __builtin_fmaf(r * r, p, r) + 1.0f;
    /* 2^n in two factors, because 2^n itself may not be a normal number. Only the second product
     * can round. */
    int32_t half = n / 2;
    float first = lk__math_bits_to_float((uint32_t)(half + 127) << 23);
    float second = lk__math_bits_to_float((uint32_t)(n - half + 127) << 23);
    return value * first * second;
}

/* Natural logarithm of a positive x, subnormals included; -infinity for 0, NaN for less, infinity
 * for infinity, NaN for NaN.
 * x = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); the polynomial gives (log(1 + f) - f + f^2 /
 * 2) / f^3. */
static inline float lk__math_logf(float x)
{
    if (!(x > 0.0f))
        return lk__math_bits_to_float(x == 0.0f ? 0xff800000u : 0x7fc00000u);
    if (x > 0x1.fffffep+127f)
        return x;
    int32_t k = 0;
    if (x < 0x1p-126f) {
        x *= 0x1p+23f;
        k = -23;
    }
    uint32_t above = lk__math_float_to_bits(x) - 0x3f3504f3u; /* sqrt(1/2) */
    /* Below 1 the subtraction wrapped; adding 128 octaves makes the shift right for all x. */
    k += (int32_t)((above + 0x40000000u) >> 23) - 128;
    float f = lk__math_bits_to_float((above & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
    float p = -0x1.fc06e2p-5f;
    p = __builtin_fmaf(p, f, 0x1.af581ep-4f);
    p = __builtin_fmaf(p, f, -0x1.b4116ap-4f);
    p = __builtin_fmaf(p, f, 0x1.c41b8cp-4f);
    p = __builtin_fmaf(p, f, -0x1.fdfb82p-4f);
    p = __builtin_fmaf(p, f, 0x1.249688p-3f);
    p = __builtin_fmaf(p, f, -0x1.555c54p-3f);
    p = __builtin_fmaf(p, f, 0x1.9999a8p-3f);
    p = __builtin_fmaf(p, f, -0x1.fffff2p-3f);
    p = __builtin_fmaf(p, f, 0x1.555556p-2f);
    float square = f * f;
    float y = __builtin_fmaf(square, -0.5f, p * f * square);
    y = __builtin_fmaf((float)k, 0x1.7f7d1cp-20f, y);
    return __builtin_fmaf((float)k, 0x1.62e4p-1f, f + y);
}

/* The logistic function 1 / (1 + exp(-x)); NaN for NaN. The error is at most 3 units in the last place. */
static inline float lk__math_sigmoidf(float x)
{
    float e = lk__math_expf(x > 0.0f ? -x : x);
    return (x > 0.0f ? 1.0f : e) / (1.0f + e);
}

/* tanh(x), NaN for NaN; the error is at most 3 units in the last place.
 * For |x| below 0.645 a polynomial gives (tanh(x) - x) / x^3. */
static inline float lk__math_tanhf(float x)
{
    float z = x * x, size = x < 0.0f ? -x : x;
    float p = 0x1.2318a2p-9f;
    p = __builtin_fmaf(p, z, -0x1.0f4232p-7f);
    p = __builtin_fmaf(p, z, 0x1.6451fep-6f);
    p = __builtin_fmaf(p, z, -0x1.ba033p-5f);
    p = __builtin_fmaf(p, z, 0x1.1110dap-3f);
    p = __builtin_fmaf(p, z, -0x1.555556p-2f);
    float near = __builtin_fmaf(size * z, p, size);
    float far = 1.0f - 2.0f / (lk__math_expf(size + size) + 1.0f);
    float value = size < 0.645f ? near : far;
    return x < 0.0f ? -value : value;
}

/* The distribution function of the normal distribution, (1 + erf(x / sqrt(2))) / 2; NaN for NaN. The error is at
 * most 5 units in the last place, also where the result is small.
 * For t = |x| a polynomial in s = t / (t + 3) gives (1 + 2t) exp(t^2 / 2) Phi(-t). t^2 is used in two parts, because
 * exp enlarges its rounding error. */
static inline float lk__math_phif(float x)
{
    float t = x < 0.0f ? -x : x;
    t = t > 15.0f ? 15.0f : t; /* exp is 0 there */
    float s = t / (t + 3.0f);
    float p = 0x1.a3d30cp-4f;
    p = __builtin_fmaf(p, s, -0x1.817796p-2f);
    p = __builtin_fmaf(p, s, 0x1.ca336p-2f);
    p = __builtin_fmaf(p, s, -0x1.81f8ccp-3f);
    p = __builtin_fmaf(p, s, 0x1.b5d8f8p-3f);
    p = __builtin_fmaf(p, s, -0x1.bea6d8p-3f);
    p = __builtin_fmaf(p, s, -0x1.de1c42p-2f);
    p = __builtin_fmaf(p, s, 0x1.080aeep-2f);
    p = __builtin_fmaf(p, s, 0x1.d9ce3p+0f);
    p = __builtin_fmaf(p, s, -0x1.905b6p+1f);
    p = __builtin_fmaf(p, s, 0x1.cd9cc2p+0f);
    p = __builtin_fmaf(p, s, 0.5f);
    float square = t * t, rest = __builtin_fmaf(t, t, -square);
    float e = lk__math_expf(-0.5f * square);
    float tail = __builtin_fmaf(-0.5f * e, rest, e) * (p / __builtin_fmaf(2.0f, t, 1.0f));
    return x > 0.0f ? 1.0f - tail : tail;
}

/* Makes two independent standard normal numbers from two random words (Box and Muller), exact to
 * 1e-6; none is beyond 5.8. */
void lk__math_normal_pair(uint32_t word0, uint32_t word1, float out[2]);

#endif
