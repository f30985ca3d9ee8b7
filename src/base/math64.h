/* math64.h - own elementary functions in double, with the same bits on every machine.
 *
 * For values that reach a weight and need more than a float, such as a learning rate or the softmax
 * of many classes. They use only +, *, /, fma and integer operations, like math.h. Their error is
 * at most 1.25 units in the last place. */
#ifndef LK_BASE_MATH64_H
#define LK_BASE_MATH64_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* c[0] + c[1] x + c[2] x^2 ... */
static inline double lk__math_poly64(const double *c, size_t count, double x)
{
    double sum = c[count - 1];
    for (size_t i = count - 1; i-- > 0;)
        sum = __builtin_fma(sum, x, c[i]);
    return sum;
}

/* 2^n for n from -1022 to 1023. */
static inline double lk__math_pow2_64(int n)
{
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* exp(x): 0 below -745.2, infinity above 709.79, NaN for NaN.
 * x = n ln 2 + r with |r| <= ln 2 / 2; Taylor's polynomial gives (e^r - 1 - r) / r^2 with an error
 * below 2^-57. */
static inline double lk__math_exp64(double x)
{
    static const double taylor[] = {
        0x1p-1,
        0x1.5555555555555p-3,
        0x1.5555555555555p-5,
        0x1.1111111111111p-7,
        0x1.6c16c16c16c17p-10,
        0x1.a01a01a01a01ap-13,
        0x1.a01a01a01a01ap-16,
        0x1.71de3a556c734p-19,
        0x1.27e4fb7789f5cp-22,
        0x1.ae64567f544e4p-26,
        0x1.1eed8eff8d898p-29,
        0x1.6124613a86d09p-33,
    };
    if (!(x >= -746.0))
        return x != x ? x : 0.0;
    if (x > 710.0)
        return __builtin_inf();
    /* Adding 1.5 * 2^52 rounds to a whole number. */
    double whole = __builtin_fma(x, 0x1.71547652b82fep+0, 0x1.8p+52) - 0x1.8p+52;
    double r = __builtin_fma(whole, -0x1.62e42fefa39efp-1, x);
    r = __builtin_fma(whole, -0x1.abc9e3b39803fp-56, r);
    double value = __builtin_fma(r * r, lk__math_poly64(taylor, sizeof taylor / sizeof *taylor, r), r) + 1.0;
    /* 2^n in two factors, because 2^n itself may not be a normal number. Only the second product
     * can round. */
    int n = (int)whole, half = n / 2;
    return value * lk__math_pow2_64(half) * lk__math_pow2_64(n - half);
}

/* Natural logarithm of a positive x, subnormals included; -infinity for 0, NaN for less, infinity
 * for infinity, NaN for NaN.
 * x = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), and log(1 + f) = 2 atanh(s) with s = f / (2 +
 * f). 2 s = f - (f^2 / 2 - s f^2 / 2), so the largest term is f, which is exact. Taylor's
 * polynomial gives (2 atanh(s) - 2 s) / s^3 with an error below 2^-62 of the result. */
static inline double lk__math_log64(double x)
{
    static const double taylor[] = {
        0x1.5555555555555p-1, 0x1.999999999999ap-2, 0x1.2492492492492p-2, 0x1.c71c71c71c71cp-3,
        0x1.745d1745d1746p-3, 0x1.3b13b13b13b14p-3, 0x1.1111111111111p-3, 0x1.e1e1e1e1e1e1ep-4,
        0x1.af286bca1af28p-4, 0x1.8618618618618p-4, 0x1.642c8590b2164p-4,
    };
    uint64_t bits;
    if (!(x > 0.0))
        return x == 0.0 ? -__builtin_inf() : __builtin_nan("");
    if (x > 0x1.fffffffffffffp+1023)
        return x;
    double k = 0.0;
    if (x < 0x1p-1022) {
        x *= 0x1p+52;
        k = -52.0;
    }
    memcpy(&bits, &x, sizeof bits);
    uint64_t above = bits - 0x3fe6a09e667f3bcdu; /* sqrt(1/2) */
    /* Below 1 the subtraction wrapped; adding 1024 octaves makes the shift right for all x. */
    k += (double)((int)((above + 0x4000000000000000u) >> 52) - 1024);
    bits = (above & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu;
    double f;
    memcpy(&f, &bits, sizeof f);
    f -= 1.0;
    double s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
    double rest = s * __builtin_fma(z, lk__math_poly64(taylor, sizeof taylor / sizeof *taylor, z), half);
    /* ln 2 in two parts. */
    rest = __builtin_fma(k, 0x1.a39ef35793c76p-33, rest);
    return __builtin_fma(k, 0x1.62e42feep-1, f - (half - rest));
}

/* sin(pi x) for |x| <= 1/4. */
static inline double lk__math_sinpi_near(double x)
{
    static const double taylor[] = {
        -0x1.4abbce625be53p+2, 0x1.466bc6775aae2p+1,  -0x1.32d2cce62bd86p-1,  0x1.50783487ee782p-4,
        -0x1.e3074fde8871fp-8, 0x1.e8f434d018d63p-12, -0x1.6fadb9f155744p-16, 0x1.aaec32af93359p-21,
    };
    double square = x * x;
    double tail =
        __builtin_fma(square, lk__math_poly64(taylor, sizeof taylor / sizeof *taylor, square), 0x1.1a62633145c07p-53);
    return __builtin_fma(x, 0x1.921fb54442d18p+1, x * tail);
}

/* cos(pi x) for |x| <= 1/4. */
static inline double lk__math_cospi_near(double x)
{
    static const double taylor[] = {
        -0x1.3bd3cc9be45dep+2, 0x1.03c1f081b5ac4p+2,  -0x1.55d3c7e3cbffap+0,  0x1.e1f506891babbp-3,
        -0x1.a6d1f2a204a8cp-6, 0x1.f9d38a3763cc3p-10, -0x1.b6e24f44b128fp-14, 0x1.20c62c2f2d7f5p-18,
    };
    double square = x * x;
    return __builtin_fma(square, lk__math_poly64(taylor, sizeof taylor / sizeof *taylor, square), 1.0);
}

/* cos(pi x) for |x| < 2^50. Zeros are exact, because x is reduced before it is multiplied with pi. */
static inline double lk__math_cospi64(double x)
{
    double twice = x + x;
    double whole = twice + 0x1.8p+52 - 0x1.8p+52;
    double rest = x - whole / 2; /* exact; |rest| <= 1/4 */
    switch ((int64_t)whole & 3) {
    case 0:
        return lk__math_cospi_near(rest);
    case 1:
        return -lk__math_sinpi_near(rest);
    case 2:
        return -lk__math_cospi_near(rest);
    default:
        return lk__math_sinpi_near(rest);
    }
}

#endif
