/* math.c - own normal numbers; only initialisation draws them.
 *
 * Computed in double with separate multiplications and additions: results are rounded to float at
 * the end, and machines without an fma instruction need no slow calls. The polynomials are those of
 * math.h, exact enough for a float. */
#include "base/math.h"

#include <math.h>

/* Natural logarithm of a normal x above 0; see lk__math_logf. */
static double log_of(float x)
{
    uint32_t above = lk__math_float_to_bits(x) - 0x3f3504f3u;
    double k = (double)((int32_t)((above + 0x40000000u) >> 23) - 128);
    double f = (double)lk__math_bits_to_float((above & 0x7fffffu) + 0x3f3504f3u) - 1.0;
    double p = -0x1.fc06e2p-5;
    p = p * f + 0x1.af581ep-4;
    p = p * f - 0x1.b4116ap-4;
    p = p * f + 0x1.c41b8cp-4;
    p = p * f - 0x1.fdfb82p-4;
    p = p * f + 0x1.249688p-3;
    p = p * f - 0x1.555c54p-3;
    p = p * f + 0x1.9999a8p-3;
    p = p * f - 0x1.fffff2p-3;
    p = p * f + 0x1.555556p-2;
    return k * 0x1.62e42fefa39efp-1 + (f - f * f * 0.5 + f * f * f * p);
}

/* sin(2 pi r) and cos(2 pi r) for |r| <= 1/8: polynomials in r^2. */
static double sin_eighth(double r)
{
    double z = r * r;
    double p = 0x1.4bc85ep+5;
    p = p * z - 0x1.32ca9ep+6;
    p = p * z + 0x1.466bbap+6;
    p = p * z - 0x1.4abbcep+5;
    p = p * z + 0x1.921fb6p+2;
    return p * r;
}

static double cos_eighth(double r)
{
    double z = r * r;
    double p = 0x1.d9c2e8p+5;
    p = p * z - 0x1.55c57ap+6;
    p = p * z + 0x1.03c1dcp+6;
    p = p * z - 0x1.3bd3ccp+4;
    return p * z + 1.0;
}

void lk__math_normal_pair(uint32_t word0, uint32_t word1, float out[2])
{
    /* In (0,1]: the logarithm is finite. */
    float unit = (float)((word0 >> 8) + 1) * 0x1p-24f;
    double radius = sqrt(-2.0 * log_of(unit));
    /* The angle is quarter / 4 + r of a full turn. */
    uint32_t turn = word1 >> 8, quarter = (turn + (1u << 21)) >> 22;
    double r = (double)((int32_t)turn - (int32_t)(quarter << 22)) * 0x1p-24;
    double s = radius * sin_eighth(r), c = radius * cos_eighth(r);
    double x = quarter & 1 ? s : c, y = quarter & 1 ? c : s;
    out[0] = (float)((quarter + 1) & 2 ? -x : x);
    out[1] = (float)(quarter & 2 ? -y : y);
}
