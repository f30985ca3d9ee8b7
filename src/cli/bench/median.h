/* median.h - the median of repeated timings. */
#ifndef LK_CLI_BENCH_MEDIAN_H
#define LK_CLI_BENCH_MEDIAN_H

#include <stddef.h>

/* The median of count values, at least one (the upper of two in the middle); sorts them. */
double lk__bench_median(double *values, size_t count);

#endif
