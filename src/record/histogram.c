/* histogram.c - buckets by the leading bits of a float: sign, exponent and two bits of the mantissa. */
#include "record/histogram.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { SHIFT = 21 }; /* bits of a float that its bucket does not depend on */

/* Maps the bits of floats to integers in the same order: negative floats count backwards. */
static uint32_t ordered(uint32_t bits)
{
    return bits ^ (bits >> 31 ? UINT32_MAX : UINT32_C(1) << 31);
}

/* The lower end of a bucket. */
static double lower_end(size_t index)
{
    uint32_t key = (uint32_t)index << SHIFT;
    uint32_t bits = key ^ (key >> 31 ? UINT32_C(1) << 31 : UINT32_MAX);
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static void count_values(const float *x, size_t count, uint32_t counts[LK_RECORD_BUCKETS], lk_record_histogram *out)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        double value = (double)x[i];
        if (!isfinite(x[i]))
            continue;
        memcpy(&bits, &x[i], sizeof bits);
        counts[ordered(bits) >> SHIFT]++;
        out->sum += value;
        out->sum_squares += value * value;
        out->min = value < out->min ? value : out->min;
        out->max = value > out->max ? value : out->max;
    }
}

static void add_bucket(lk_record_histogram *out, double limit, double count)
{
    out->limit[out->count] = limit;
    out->bucket[out->count++] = count;
    out->num += count;
}

void lk__record_histogram(const float *x, size_t count, lk_record_histogram *out)
{
    uint32_t counts[LK_RECORD_BUCKETS] = {0};
    out->num = out->sum = out->sum_squares = 0;
    out->count = 0;
    out->min = INFINITY;
    out->max = -INFINITY;
    count_values(x, count, counts, out);
    for (size_t i = 0; i < LK_RECORD_BUCKETS; i++) {
        if (counts[i] == 0)
            continue;
        if (i == 0 || counts[i - 1] == 0)
            add_bucket(out, lower_end(i), 0);
        add_bucket(out, i + 1 < LK_RECORD_BUCKETS ? lower_end(i + 1) : out->max, counts[i]);
    }
}
