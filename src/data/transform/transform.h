/* transform.h - a row of the table of transforms, and what the files of transforms share.
 *
 * A random transform has two functions: one draws parameters from the sample's random stream, the other
 * changes the image by given parameters. The comment of the first lists the elements of the stream that it
 * draws. */
#ifndef LK_DATA_TRANSFORM_TRANSFORM_H
#define LK_DATA_TRANSFORM_TRANSFORM_H

#include "base/math.h"
#include "base/math64.h"
#include "base/rng.h"
#include "base/spec.h"
#include "data/transform/transforms.h"

typedef struct lk_transform_row {
    lk_transform_info info;
    lk_spec_param values[LK_TRANSFORM_VALUES]; /* the values after '='; the name is NULL after the last */
    size_t needed;                             /* the first values, which must be given */
    /* Whether two samples or epochs may get different changes. NULL: never. */
    bool (*random)(const double *values);
    /* Checks what ranges cannot check: NULL, or what is wrong with the values. Optional. */
    const char *(*check)(const double *values);
    /* The shape of the result; height and width 0 mean any. NULL: unchanged. */
    lk_sample_shape (*shape)(const double *values, lk_sample_shape shape);
    /* Changes image; may swap it with scratch, whose pixels are undefined. */
    lk_status (*apply)(const double *values, const lk_rng *rng, lk_image *image, lk_image *scratch);
    /* The part of an image of this size that apply reads with the same rng. NULL: all of it. */
    lk_image_region (*part)(const double *values, const lk_rng *rng, size_t height, size_t width);
} lk_transform_row;

extern const lk_transform_row lk__transform_crop, lk__transform_flip, lk__transform_vflip, lk__transform_resize,
    lk__transform_center_crop, lk__transform_resized_crop, lk__transform_jitter, lk__transform_affine,
    lk__transform_grayscale;

/* The largest side that an image can be resized to. */
enum { LK_MAX_SIDE = 8192 };

/* Resizes the box, which is inside the image and not empty, to the given size, and makes it the
 * whole image. */
lk_status lk__image_resample(lk_image *image, const lk_image_region *box, size_t height, size_t width,
                             lk_image *scratch) LK_CHECKED;
lk_image_region lk__draw_resized_crop(const double *values, const lk_rng *rng, const lk_image *image);

/* Factor 0 gives black, one grey, or greys; factor 1 changes nothing. Saturation, hue and grayscale
 * do not change images of one channel. */
void lk__image_brightness(lk_image *image, double factor);
void lk__image_contrast(lk_image *image, double factor);
void lk__image_saturation(lk_image *image, double factor);
/* turn is a fraction of the circle of hues, from -.5 to .5. */
void lk__image_hue(lk_image *image, double turn);
void lk__image_grayscale(lk_image *image);

/* Brightness, contrast, saturation and hue. */
enum { LK_JITTER_PARTS = 4 };
typedef struct lk_image_jitter {
    bool on[LK_JITTER_PARTS];
    double factor[LK_JITTER_PARTS];
    size_t order[LK_JITTER_PARTS];
} lk_image_jitter;
void lk__image_jitter(lk_image *image, const lk_image_jitter *jitter);
lk_image_jitter lk__draw_jitter(const double *values, const lk_rng *rng);

/* About the centre of the image; positive angles turn clockwise. */
typedef struct lk_image_affine {
    double angle, shear; /* degrees */
    double scale;
    long shift[2]; /* pixels to the right and down */
} lk_image_affine;
lk_status lk__image_affine(lk_image *image, const lk_image_affine *affine, lk_image *scratch) LK_CHECKED;
lk_image_affine lk__draw_affine(const double *values, const lk_rng *rng, const lk_image *image);

static inline void lk__image_swap(lk_image *a, lk_image *b)
{
    lk_image old = *a;
    *a = *b;
    *b = old;
}

/* Element `element` of the stream, uniform in [0,1). */
static inline double lk__draw_unit(const lk_rng *rng, uint64_t element)
{
    return (double)lk__rng_unit(lk__rng_u32(rng, element));
}

static inline double lk__draw_between(const lk_rng *rng, uint64_t element, double low, double high)
{
    return low + lk__draw_unit(rng, element) * (high - low);
}

/* A number whose logarithm is uniform. */
static inline double lk__draw_ratio(const lk_rng *rng, uint64_t element, double low, double high)
{
    double span = (double)lk__math_logf((float)(high / low));
    return low * lk__math_exp64(lk__draw_unit(rng, element) * span);
}

/* Draws an event of this probability with the given element. */
static inline bool lk__draw_chance(const lk_rng *rng, uint64_t element, double probability)
{
    return lk__draw_unit(rng, element) >= 1 - probability;
}

/* For transforms whose first value is their probability. */
bool lk__transform_uncertain(const double *values);
/* For transforms that are random for all values. */
bool lk__transform_always_random(const double *values);

#endif
