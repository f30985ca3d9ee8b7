/* scores.h - the order of the classes by their scores. */
#ifndef LK_TENSOR_SCORES_H
#define LK_TENSOR_SCORES_H

#include <stddef.h>
#include <stdint.h>

/* The first index of the largest value. */
static inline size_t lk__scores_largest(const float *x, size_t classes)
{
    size_t best = 0;
    for (size_t k = 1; k < classes; k++)
        best = x[k] > x[best] ? k : best;
    return best;
}

/* Counts the classes that rank before the label. NaN, as the label's score or another one, ranks before the
 * label, so rank 0 is impossible then. */
static inline int32_t lk__scores_label_rank(const float *x, size_t classes, size_t label)
{
    int32_t before = 0;
    for (size_t k = 0; k < classes; k++)
        before += !(x[k] <= x[label]) || (k < label && x[k] == x[label]);
    return before;
}

#endif
