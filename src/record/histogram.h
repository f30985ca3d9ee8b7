/* histogram.h - the histogram of a tensor, in buckets that are equal on a logarithmic scale. */
#ifndef LK_RECORD_HISTOGRAM_H
#define LK_RECORD_HISTOGRAM_H

#include <stddef.h>

/* Four buckets for each power of two and sign. */
enum { LK_RECORD_BUCKETS = 2048 };

/* Bucket i has the values from limit[i - 1] to below limit[i]. A bucket without values is there only where values
 * begin again after a gap. */
typedef struct lk_record_histogram {
    double min, max, num, sum, sum_squares;                             /* of the finite values */
    size_t count;                                                       /* buckets */
    double limit[2 * LK_RECORD_BUCKETS], bucket[2 * LK_RECORD_BUCKETS]; /* (count) */
} lk_record_histogram;

/* Values that are not finite are left out; num is 0 if there are no others. */
void lk__record_histogram(const float *x, size_t count, lk_record_histogram *out);

#endif
