/* thin.h - chooses few points of a long curve so that it looks the same: spikes stay. */
#ifndef LK_SERVE_THIN_H
#define LK_SERVE_THIN_H

#include <stddef.h>

/* A part of the x axis; points beside it are left out, except the nearest on each side, so that lines reach the edges.
 * -INFINITY to INFINITY: all. */
typedef struct lk_thin_range {
    double from, to;
} lk_thin_range;

/* Writes the indices of the chosen points into out, rising, and returns their number, at most 2 * buckets + 2. Points
 * whose x or y is NaN are left out. Of at most 2 * buckets points all are chosen. Of more, every bucket of equally many
 * points gives its lowest and its highest, and the first and the last point are chosen, too. x never falls. */
size_t lk__thin(const double *x, const double *y, size_t count, lk_thin_range range, size_t buckets, size_t *out);

#endif
