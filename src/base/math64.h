/* math64.h - own elementary functions in double, the same bits on every machine.
 *
 * For scalars that reach a weight, such as a learning rate: not fast. Built from
 * +, *, fma and integer operations only, like those of math.h; they err by at
 * most 1.25 units in the last place. */
#ifndef LK_BASE_MATH64_H
#define LK_BASE_MATH64_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* c[0] + c[1] x + c[2] x^2 ... */
static inline double lk__poly64(const double *c, size_t count, double x)
{
    double sum = c[count - 1];
    for (size_t i = count - 1; i-- > 0;)
        sum = __builtin_fma(sum, x, c[i]);
    return sum;
}

/* 2^n for n from -1022 to 1023. */
static inline double lk__pow2_64(int n)
{
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* exp(x): 0 below -745.2, infinity above 709.79; a NaN stays one.
 * x = n ln 2 + r with |r| <= ln 2 / 2; Taylor's polynomial gives
 * (e^r - 1 - r) / r^2, what it leaves out is below 2^-57. */
static inline double lk__exp64(double x)
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
    double value = __builtin_fma(r * r, lk__poly64(taylor, sizeof taylor / sizeof *taylor, r), r) + 1.0;
    /* 2^n in two factors: one alone may not be a normal number. Only the second
     * product can round. */
    int n = (int)whole, half = n / 2;
    return value * lk__pow2_64(half) * lk__pow2_64(n - half);
}

/* sin(pi x) for |x| <= 1/4. */
static inline double lk__sinpi_near(double x)
{
    static const double taylor[] = {
        -0x1.4abbce625be53p+2, 0x1.466bc6775aae2p+1,  -0x1.32d2cce62bd86p-1,  0x1.50783487ee782p-4,
        -0x1.e3074fde8871fp-8, 0x1.e8f434d018d63p-12, -0x1.6fadb9f155744p-16, 0x1.aaec32af93359p-21,
    };
    double square = x * x;
    double tail =
        __builtin_fma(square, lk__poly64(taylor, sizeof taylor / sizeof *taylor, square), 0x1.1a62633145c07p-53);
    return __builtin_fma(x, 0x1.921fb54442d18p+1, x * tail);
}

/* cos(pi x) for |x| <= 1/4. */
static inline double lk__cospi_near(double x)
{
    static const double taylor[] = {
        -0x1.3bd3cc9be45dep+2, 0x1.03c1f081b5ac4p+2,  -0x1.55d3c7e3cbffap+0,  0x1.e1f506891babbp-3,
        -0x1.a6d1f2a204a8cp-6, 0x1.f9d38a3763cc3p-10, -0x1.b6e24f44b128fp-14, 0x1.20c62c2f2d7f5p-18,
    };
    double square = x * x;
    return __builtin_fma(square, lk__poly64(taylor, sizeof taylor / sizeof *taylor, square), 1.0);
}

/* cos(pi x) for |x| < 2^50: 0 where it is, since no pi is rounded before. */
static inline double lk__cospi64(double x)
{
    double twice = x + x;
    double whole = twice + 0x1.8p+52 - 0x1.8p+52;
    double rest = x - whole / 2; /* exact; |rest| <= 1/4 */
    switch ((int64_t)whole & 3) {
    case 0:
        return lk__cospi_near(rest);
    case 1:
        return -lk__sinpi_near(rest);
    case 2:
        return -lk__cospi_near(rest);
    default:
        return lk__sinpi_near(rest);
    }
}

#endif
