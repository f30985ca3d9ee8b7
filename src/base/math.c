/* math.c - own elementary functions that only initialisation and tests call. */
#include "base/math.h"

#include <math.h>

#include "base/rng.h"

/* sin(2 pi r) and cos(2 pi r) for |r| <= 1/8: polynomials in r^2. */
static float sin_eighth(float r)
{
    float z = r * r;
    float p = 0x1.4bc85ep+5f;
    p = __builtin_fmaf(p, z, -0x1.32ca9ep+6f);
    p = __builtin_fmaf(p, z, 0x1.466bbap+6f);
    p = __builtin_fmaf(p, z, -0x1.4abbcep+5f);
    p = __builtin_fmaf(p, z, 0x1.921fb6p+2f);
    return p * r;
}

static float cos_eighth(float r)
{
    float z = r * r;
    float p = 0x1.d9c2e8p+5f;
    p = __builtin_fmaf(p, z, -0x1.55c57ap+6f);
    p = __builtin_fmaf(p, z, 0x1.03c1dcp+6f);
    p = __builtin_fmaf(p, z, -0x1.3bd3ccp+4f);
    return __builtin_fmaf(p, z, 1.0f);
}

float lk__cos2pif(float t)
{
    /* t = quarter / 4 + r; both the quarter and the subtraction are exact. */
    int quarter = (int)(t * 4.0f + 0.5f);
    float r = t - (float)quarter * 0.25f;
    float value = quarter % 2 ? sin_eighth(r) : cos_eighth(r);
    return quarter % 4 == 1 || quarter % 4 == 2 ? -value : value;
}

float lk__normal(uint32_t word0, uint32_t word1)
{
    /* In (0,1], so that the logarithm is finite. */
    float radius = (float)((word0 >> 8) + 1) * 0x1p-24f;
    return sqrtf(-2.0f * lk__logf(radius)) * lk__cos2pif(lk__rng_unit(word1));
}
