/* image.h - an image of any size in memory, and its conversion to floats. */
#ifndef LK_DATA_CODEC_IMAGE_H
#define LK_DATA_CODEC_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { LK_DATASET_MAX_CHANNELS = 3 };

/* The largest number of pixels of an image. A larger image is refused, because it may be made to exhaust memory. */
#define LK_IMAGE_MAX_PIXELS ((size_t)1 << 27)

/* An image of any size, in memory that grows with it. */
typedef struct lk_image {
    size_t channels, height, width;
    uint8_t *pixels; // (C, H, W)
    size_t room;     /* bytes of pixels */
} lk_image;
/* Makes room for an image of this shape; the old pixels are lost. MEMORY, with the image unchanged,
 * if there is none. */
lk_status lk__image_resize(lk_image *image, size_t channels, size_t height, size_t width) LK_CHECKED;
void lk__image_fini(lk_image *image);

/* A part of an image. */
typedef struct lk_image_region {
    size_t top, left, height, width;
} lk_image_region;

/* The part of an image of this size that its user reads: not empty and inside of the image. A decoder may leave all
 * other pixels undefined. A NULL pointer to an lk_image_want stands for the whole image. */
typedef struct lk_image_want {
    lk_image_region (*part)(const void *arg, size_t height, size_t width);
    const void *arg;
} lk_image_want;

/* The float for each byte of each channel. */
typedef struct lk_normalise {
    float table[LK_DATASET_MAX_CHANNELS][256];
} lk_normalise;
void lk__normalise_init(lk_normalise *normalise, const float *mean, const float *std, size_t channels);
/* Converts an image to x (H, W, C). */
void lk__normalise_apply(const lk_normalise *normalise, const lk_image *image, float *x);

#endif
