/* median.h - the median of timings. */
#ifndef LK_BASE_MEDIAN_H
#define LK_BASE_MEDIAN_H

#include <stddef.h>

/* The median of count values, of which there must be at least one and no NaN: the mean of the two in the middle where
 * count is even. Sorts the values. */
double lk__median(double *values, size_t count);

#endif
