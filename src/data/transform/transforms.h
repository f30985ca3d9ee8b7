/* transforms.h - lists of transforms: parsed, chosen for a data set, applied to images. */
#ifndef LK_DATA_TRANSFORM_TRANSFORMS_H
#define LK_DATA_TRANSFORM_TRANSFORMS_H

#include "base/rng.h"
#include "data/sets/dataset.h"

/* A list of transforms, applied in order. */
enum { LK_MAX_TRANSFORMS = 16, LK_TRANSFORM_VALUES = 8, LK_AUGMENT_TEXT = 256 };
typedef struct lk_transform_step {
    size_t row; /* index in the table of transforms */
    double values[LK_TRANSFORM_VALUES];
} lk_transform_step;
typedef struct lk_transforms {
    size_t count;
    lk_transform_step steps[LK_MAX_TRANSFORMS];
} lk_transforms;

/* Parses "none" or a list like "crop=4,flip" or "jitter=.4/.4/.4/.1"; '/' separates the values of
 * one transform. */
lk_status lk__transforms_parse(const char *text, lk_transforms *out) LK_CHECKED;
/* The list for a loader of this data set: augment, or the meaning of "auto" for its split. In the
 * test split nothing random is allowed. Messages name the option of the split, --augment or
 * --test-augment. */
lk_status lk__transforms_choose(const lk_dataset *data, const char *augment, lk_transforms *out) LK_CHECKED;
/* The shape that an image of this shape becomes; height and width 0 mean any. */
lk_sample_shape lk__transforms_shape(const lk_transforms *list, lk_sample_shape shape);
/* Whether the results have one size for images of any size. */
bool lk__transforms_fix_size(const lk_transforms *list);
/* The common shape of all transformed images of a data set; USAGE if they have several. Reads the
 * images' sizes only if nothing else decides. */
lk_status lk__transforms_one_shape(const lk_transforms *list, const lk_dataset *data, lk_sample_shape *out) LK_CHECKED;
/* The address of the random numbers; step i of the list is layer i. */
typedef struct lk_transforms_address {
    uint64_t seed;
    uint32_t epoch, sample;
} lk_transforms_address;
/* The part of an image of this size that lk__transforms_apply reads: what the first transform of the list needs. */
lk_image_region lk__transforms_part(const lk_transforms *list, lk_transforms_address address, size_t height,
                                    size_t width);
/* Changes image. scratch is another image's memory; the two may be swapped. Fails for a lack of
 * memory, or if an image is too small for a step. */
lk_status lk__transforms_apply(const lk_transforms *list, lk_transforms_address address, lk_image *image,
                               lk_image *scratch) LK_CHECKED;
/* Writes the transforms for a test split with --test-augment "auto": they give the training split's
 * shape. fixed: the training transforms fix this shape; otherwise test images of this size are not
 * changed. */
lk_status lk__transforms_for_test(const lk_dataset *test, lk_sample_shape shape, bool fixed,
                                  char text[LK_AUGMENT_TEXT]) LK_CHECKED;

#endif
