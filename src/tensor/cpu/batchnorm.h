/* batchnorm.h - how the loops of batch normalisation run through memory, and what they know of each channel.
 *
 * Most of their time goes into reading and writing memory. So all loops process whole rows in the order of memory, and
 * prefetch what they read and write next. */
#ifndef LK_TENSOR_CPU_BATCHNORM_H
#define LK_TENSOR_CPU_BATCHNORM_H

#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "tensor/kernels.h"

enum {
    LK_SLAB_ROW = 512, /* elements of a row at most: the values of its channels stay in the L1 cache */
    LK_SLAB_FOLD = 8,  /* pixels of a row at most */
    LK_SLAB_LINE = 16  /* elements of a cache line, a multiple of every V */
};

/* Some channels of consecutive pixels, divided into rows. A row is one pixel; if the slab has all channels, and these
 * are few, it is several pixels. */
typedef struct lk_slab {
    size_t at; /* the first element */
    size_t pixels;
    size_t channels; /* LK_SLAB_ROW at most */
    size_t fold;     /* pixels of a row, a divisor of LK_SLAB_FOLD; the last row may have fewer */
    size_t stride;   /* elements from one row to the next */
} lk_slab;

/* Channels of pixels [p, p + pixels), which have c channels each. folds: a row may have several pixels. */
static inline lk_slab lk__slab_make(size_t c, size_t p, size_t pixels, size_t channel, size_t channels, bool folds)
{
    size_t fold = 1;
    while (folds && channels == c && fold < LK_SLAB_FOLD && 2 * fold * c <= LK_SLAB_ROW)
        fold *= 2;
    return (lk_slab){.at = p * c + channel, .pixels = pixels, .channels = channels, .fold = fold, .stride = fold * c};
}

/* Channels of a slab, if c channels are divided into `least` slabs or more. The last slab may have fewer. */
static inline size_t lk__slab_width(size_t c, size_t least)
{
    size_t slabs = lk__size_max(least, lk__size_divide_up(c, LK_SLAB_ROW));
    return slabs == 1 ? c : lk__size_round_up(lk__size_divide_up(c, slabs), LK_SLAB_LINE);
}

/* The values of the channels of a row's elements. */
typedef struct lk_slab_rows {
    const float *mean, *scale, *gamma, *beta; /* from outside, or copies */
    float copies[4][LK_SLAB_ROW];
} lk_slab_rows;

/* Returns the values of the slab's channels as a row: `values` itself, or copies of it for several pixels. */
static inline const float *lk__slab_repeat(const lk_slab *s, const float *values, float *copies)
{
    if (s->fold == 1)
        return values;
    size_t width = s->channels;
    memcpy(copies, values, width * sizeof *values);
    for (; width < s->fold * s->channels; width *= 2)
        memcpy(copies + width, copies, width * sizeof *values);
    return copies;
}

/* moment, channel: the slab's first channel in the moments, which may be of several groups, and in the layer. */
static inline void lk__slab_rows(const lk_slab *s, const lk_batchnorm_desc *desc, const lk_moments *moments,
                                 size_t moment, size_t channel, lk_slab_rows *out)
{
    out->mean = lk__slab_repeat(s, moments->mean + moment, out->copies[0]);
    out->scale = lk__slab_repeat(s, moments->scale + moment, out->copies[1]);
    out->gamma = lk__slab_repeat(s, desc->gamma + channel, out->copies[2]);
    out->beta = lk__slab_repeat(s, desc->beta + channel, out->copies[3]);
}

#endif
