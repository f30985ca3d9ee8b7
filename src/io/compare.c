/* compare.c - compares two state dicts bit by bit and describes each difference in one sentence.
 * There is no tolerance. */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <lockstep/state.h>

#include "base/text.h"

enum { SHAPE_BYTES = LK_TEXT_DIMS_BYTES(LK_MAX_DIMS), VALUE_BYTES = 64, SENTENCE_BYTES = 1024 };

static double f64_value(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double f32_value(uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float value;
    memcpy(&value, &low, sizeof value);
    return (double)value;
}

static double bf16_value(uint64_t bits)
{
    return f32_value(bits << 16);
}

static double f16_value(uint64_t bits)
{
    int exponent = (int)(bits >> 10 & 31);
    double fraction = (double)(bits & 1023);
    double size = exponent == 31  ? (fraction != 0 ? (double)NAN : (double)INFINITY)
                  : exponent == 0 ? ldexp(fraction, -24)
                                  : ldexp(fraction + 1024, exponent - 25);
    return bits >> 15 ? -size : size;
}

/* value is NULL for integers; so many digits distinguish any two floats. */
static const struct {
    double (*value)(uint64_t bits);
    int digits;
} kinds[LK_DTYPE_COUNT] = {
    [LK_DTYPE_F32] = {f32_value, 9}, [LK_DTYPE_F64] = {f64_value, 17}, [LK_DTYPE_BF16] = {bf16_value, 4},
    [LK_DTYPE_F16] = {f16_value, 5}, [LK_DTYPE_I64] = {NULL, 0},       [LK_DTYPE_I32] = {NULL, 0},
    [LK_DTYPE_U8] = {NULL, 0},
};

static uint64_t load_bits(const lk_state_entry *entry, size_t index)
{
    size_t size = lk_dtype_size(entry->dtype);
    uint64_t bits = 0;
    memcpy(&bits, (const char *)entry->data + index * size, size);
    return bits;
}

static int64_t integer_value(lk_dtype dtype, uint64_t bits)
{
    return dtype == LK_DTYPE_I32 ? (int64_t)(int32_t)(uint32_t)bits : (int64_t)bits;
}

/* Index of a float among all floats of its type in ascending order, 0 for both zeros: the
 * difference of two indices is their distance in units in the last place. */
static int64_t float_index(lk_dtype dtype, uint64_t bits)
{
    uint64_t sign = (uint64_t)1 << (8 * lk_dtype_size(dtype) - 1);
    int64_t size = (int64_t)(bits & (sign - 1));
    return bits & sign ? -size : size;
}

static uint64_t distance(int64_t x, int64_t y)
{
    return x > y ? (uint64_t)x - (uint64_t)y : (uint64_t)y - (uint64_t)x;
}

/* The differing elements of two tensors with the same layout. */
typedef struct summary {
    size_t elements, differing, nans;
    size_t first;       /* index of the first differing element */
    double largest;     /* largest absolute difference of floats without NaNs; below 0: none yet */
    size_t largest_at;  /* index of the first element with the largest difference */
    uint64_t steps;     /* largest difference of integers, or in units in the last place */
    uint64_t first_ulp; /* the same for the first differing element */
} summary;

static void count_difference(summary *sum, const lk_state_entry *a, const lk_state_entry *b, size_t index)
{
    lk_dtype dtype = a->dtype;
    uint64_t x = load_bits(a, index), y = load_bits(b, index), steps;
    bool nan = false;
    if (kinds[dtype].value) {
        double u = kinds[dtype].value(x), v = kinds[dtype].value(y);
        nan = isnan(u) || isnan(v);
        if (!nan && fabs(u - v) > sum->largest) {
            sum->largest = fabs(u - v);
            sum->largest_at = index;
        }
        steps = nan ? 0 : distance(float_index(dtype, x), float_index(dtype, y));
    } else {
        steps = distance(integer_value(dtype, x), integer_value(dtype, y));
        sum->largest_at = steps > sum->steps ? index : sum->largest_at;
    }
    if (sum->differing++ == 0) {
        sum->first = index;
        sum->first_ulp = steps;
    }
    sum->nans += nan;
    if (steps > sum->steps)
        sum->steps = steps;
}

static summary compare_data(const lk_state_entry *a, const lk_state_entry *b)
{
    size_t size = lk_dtype_size(a->dtype);
    summary sum = {.elements = a->bytes / size, .largest = -1};
    if (memcmp(a->data, b->data, a->bytes) == 0)
        return sum;
    for (size_t i = 0; i < sum.elements; i++)
        if (memcmp((const char *)a->data + i * size, (const char *)b->data + i * size, size) != 0)
            count_difference(&sum, a, b, i);
    return sum;
}

static void format_index(const lk_state_entry *entry, size_t index, char out[SHAPE_BYTES])
{
    size_t indices[LK_MAX_DIMS];
    for (int i = entry->ndim - 1; i >= 0; i--) {
        indices[i] = index % entry->dims[i];
        index /= entry->dims[i];
    }
    lk__text_dims(indices, entry->ndim, out, SHAPE_BYTES);
}

/* A NaN is printed with its bits, because NaNs can differ. */
static void format_value(lk_dtype dtype, uint64_t bits, char out[VALUE_BYTES])
{
    if (!kinds[dtype].value) {
        snprintf(out, VALUE_BYTES, "%" PRId64, integer_value(dtype, bits));
        return;
    }
    double value = kinds[dtype].value(bits);
    if (isnan(value))
        snprintf(out, VALUE_BYTES, "nan (0x%0*" PRIx64 ")", (int)(2 * lk_dtype_size(dtype)), bits);
    else
        snprintf(out, VALUE_BYTES, "%.*g", kinds[dtype].digits, value);
}

enum { LARGEST_BYTES = SHAPE_BYTES + VALUE_BYTES + 40 };

static void format_largest(const summary *sum, const lk_state_entry *entry, char out[LARGEST_BYTES])
{
    char index[SHAPE_BYTES];
    format_index(entry, sum->largest_at, index);
    out[0] = 0;
    if (!kinds[entry->dtype].value)
        snprintf(out, LARGEST_BYTES, ", largest absolute difference %" PRIu64 " at %s", sum->steps, index);
    else if (sum->nans < sum->differing)
        snprintf(out, LARGEST_BYTES, ", largest absolute difference %.6g at %s", sum->largest, index);
}

static void format_ulps(const summary *sum, lk_dtype dtype, bool first_nan, char out[2 * VALUE_BYTES])
{
    out[0] = 0;
    if (!kinds[dtype].value || sum->nans == sum->differing)
        return;
    if (first_nan)
        snprintf(out, 2 * VALUE_BYTES, "; at most %" PRIu64 " units in the last place elsewhere", sum->steps);
    else
        snprintf(out, 2 * VALUE_BYTES, ", %" PRIu64 " %s in the last place apart (at most %" PRIu64 ")", sum->first_ulp,
                 sum->first_ulp == 1 ? "unit" : "units", sum->steps);
}

static void describe_data(const summary *sum, const lk_state_entry *a, const lk_state_entry *b,
                          char out[SENTENCE_BYTES])
{
    char index[SHAPE_BYTES], x[VALUE_BYTES], y[VALUE_BYTES];
    char nans[VALUE_BYTES] = "", largest[LARGEST_BYTES], ulps[2 * VALUE_BYTES];
    uint64_t bits[2] = {load_bits(a, sum->first), load_bits(b, sum->first)};
    format_index(a, sum->first, index);
    format_value(a->dtype, bits[0], x);
    format_value(b->dtype, bits[1], y);
    if (sum->nans)
        snprintf(nans, sizeof nans, " (%zu with a NaN)", sum->nans);
    format_largest(sum, a, largest);
    double (*value)(uint64_t) = kinds[a->dtype].value;
    format_ulps(sum, a->dtype, value && (isnan(value(bits[0])) || isnan(value(bits[1]))), ulps);
    snprintf(out, SENTENCE_BYTES, "%zu of %zu elements differ%s%s; first at %s: %s against %s%s", sum->differing,
             sum->elements, nans, largest, index, x, y, ulps);
}

static bool same_layout(const lk_state_entry *a, const lk_state_entry *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->dims, b->dims, (size_t)a->ndim * sizeof *a->dims) == 0;
}

/* Whether a and b differ; out then says how. */
static bool describe(const lk_state_entry *a, const lk_state_entry *b, char out[SENTENCE_BYTES])
{
    if (!same_layout(a, b)) {
        char x[SHAPE_BYTES], y[SHAPE_BYTES];
        lk__text_dims(a->dims, a->ndim, x, sizeof x);
        lk__text_dims(b->dims, b->ndim, y, sizeof y);
        snprintf(out, SENTENCE_BYTES, "%s: %s %s against %s %s",
                 a->dtype == b->dtype ? "shape differs"
                 : strcmp(x, y) == 0  ? "type differs"
                                      : "type and shape differ",
                 lk_dtype_name(a->dtype), x, lk_dtype_name(b->dtype), y);
        return true;
    }
    summary sum = compare_data(a, b);
    if (!sum.differing)
        return false;
    describe_data(&sum, a, b, out);
    return true;
}

static void describe_alone(const lk_state_entry *entry, const char *side, char out[SENTENCE_BYTES])
{
    char shape[SHAPE_BYTES];
    lk__text_dims(entry->dims, entry->ndim, shape, sizeof shape);
    snprintf(out, SENTENCE_BYTES, "only in the %s: %s %s", side, lk_dtype_name(entry->dtype), shape);
}

size_t lk_state_compare(const lk_state *a, const lk_state *b, lk_difference_fn report, void *arg)
{
    char what[SENTENCE_BYTES];
    size_t differing = 0;
    for (size_t i = 0; i < lk_state_count(a); i++) {
        const lk_state_entry *x = lk_state_at(a, i), *y = lk_state_find(b, x->name);
        if (y && !describe(x, y, what))
            continue;
        if (!y)
            describe_alone(x, "first", what);
        if (report)
            report(arg, x->name, what);
        differing++;
    }
    for (size_t i = 0; i < lk_state_count(b); i++) {
        const lk_state_entry *y = lk_state_at(b, i);
        if (lk_state_find(a, y->name))
            continue;
        describe_alone(y, "second", what);
        if (report)
            report(arg, y->name, what);
        differing++;
    }
    return differing;
}
