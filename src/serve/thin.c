/* thin.c - the lowest and the highest point of every bucket. */
#include "serve/thin.h"

#include <math.h>
#include <stdbool.h>

/* Points begin to end - 1 of a curve. */
typedef struct stretch {
    size_t begin, end;
} stretch;

static stretch find_stretch(const double *x, size_t count, lk_thin_range range)
{
    stretch s = {0, count};
    for (size_t i = 0; i < count && (isnan(x[i]) || x[i] < range.from); i++)
        s.begin = i;
    while (s.end > s.begin && (isnan(x[s.end - 1]) || x[s.end - 1] > range.to))
        s.end--;
    while (s.end < count && isnan(x[s.end]))
        s.end++;
    s.end += s.end < count; /* the first point behind the range */
    return s;
}

static bool is_point(const double *x, const double *y, size_t i)
{
    return !isnan(x[i]) && !isnan(y[i]);
}

/* Adds an index that is larger than those before it. */
static size_t add(size_t *out, size_t chosen, size_t index)
{
    if (chosen == 0 || out[chosen - 1] < index)
        out[chosen++] = index;
    return chosen;
}

static size_t add_extremes(const double *x, const double *y, stretch s, size_t *out, size_t chosen)
{
    size_t low = s.end, high = s.end;
    for (size_t i = s.begin; i < s.end; i++) {
        if (!is_point(x, y, i))
            continue;
        low = low == s.end || y[i] < y[low] ? i : low;
        high = high == s.end || y[i] > y[high] ? i : high;
    }
    if (low == s.end)
        return chosen;
    chosen = add(out, chosen, low < high ? low : high);
    return add(out, chosen, low < high ? high : low);
}

size_t lk__thin(const double *x, const double *y, size_t count, lk_thin_range range, size_t buckets, size_t *out)
{
    stretch all = find_stretch(x, count, range);
    size_t points = 0, chosen = 0, first = all.end, last = all.end;
    for (size_t i = all.begin; i < all.end; i++) {
        if (!is_point(x, y, i))
            continue;
        first = points++ ? first : i;
        last = i;
    }
    if (points <= 2 * buckets) {
        for (size_t i = all.begin; i < all.end; i++)
            chosen = is_point(x, y, i) ? add(out, chosen, i) : chosen;
        return chosen;
    }
    size_t length = last + 1 - first;
    chosen = add(out, chosen, first);
    for (size_t b = 0; b < buckets; b++) {
        const stretch bucket = {first + b * length / buckets, first + (b + 1) * length / buckets};
        chosen = add_extremes(x, y, bucket, out, chosen);
    }
    return add(out, chosen, last);
}
