/* transforms.h - lists of transforms: read, chosen for a data set, applied to images. */
#ifndef LK_DATA_TRANSFORM_TRANSFORMS_H
#define LK_DATA_TRANSFORM_TRANSFORMS_H

#include "base/rng.h"
#include "data/sets/dataset.h"

/* A list of changes to a sample, applied one after the other. */
enum { LK_MAX_TRANSFORMS = 16, LK_TRANSFORM_VALUES = 8, LK_AUGMENT_TEXT = 256 };
typedef struct lk_transform_step {
    size_t row; /* of the table of transforms */
    double values[LK_TRANSFORM_VALUES];
} lk_transform_step;
typedef struct lk_transforms {
    size_t count;
    lk_transform_step steps[LK_MAX_TRANSFORMS];
} lk_transforms;

/* Reads "none" or a list like "crop=4,flip" or "jitter=.4/.4/.4/.1"; values of
 * one transform have '/' between them. */
lk_status lk__transforms_parse(const char *text, lk_transforms *out) LK_CHECKED;
/* The list that a loader of this data set uses: augment, or what "auto" means for
 * its split. In the test split nothing random is allowed. Messages name the option
 * of the split, --augment or --test-augment. */
lk_status lk__transforms_choose(const lk_dataset *data, const char *augment, lk_transforms *out) LK_CHECKED;
/* What an image of this shape becomes; height and width 0 stand for any. */
lk_sample_shape lk__transforms_shape(const lk_transforms *list, lk_sample_shape shape);
/* Whether images of any size come out with one. */
bool lk__transforms_fix_size(const lk_transforms *list);
/* What all images of a data set become; USAGE where they end up with several sizes.
 * Where nothing but the images themselves can tell, it asks for their common size. */
lk_status lk__transforms_one_shape(const lk_transforms *list, const lk_dataset *data, lk_sample_shape *out) LK_CHECKED;
/* Whose stream the random numbers are of: step i draws from its layer i. */
typedef struct lk_transforms_address {
    uint64_t seed;
    uint32_t epoch, sample;
} lk_transforms_address;
/* Changes image; scratch is another image's memory, and the two may end up
 * swapped. Fails for want of memory, or where an image is too small for a step. */
lk_status lk__transforms_apply(const lk_transforms *list, lk_transforms_address address, lk_image *image,
                               lk_image *scratch) LK_CHECKED;
/* What brings the images of a test split to a shape that the training split's
 * were brought to, when --test-augment is "auto". fixed: by its transforms; else
 * test images that have this size too are taken as they are. */
lk_status lk__transforms_for_test(const lk_dataset *test, lk_sample_shape shape, bool fixed,
                                  char text[LK_AUGMENT_TEXT]) LK_CHECKED;

#endif
