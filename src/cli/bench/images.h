/* images.h - random images for `bench train --input`, so that models for large images need no files. */
#ifndef LK_CLI_BENCH_IMAGES_H
#define LK_CLI_BENCH_IMAGES_H

#include <lockstep/data.h>
#include <lockstep/graph.h>

typedef struct lk_bench_images {
    lk_model_shape shape; /* 1 or 3 channels */
    uint64_t seed;
    size_t count;
} lk_bench_images;

/* A data set of `count` images. Bytes follow from seed and index alone; labels are the indexes modulo the classes.
 * images is borrowed and must outlive the data set. The caller owns *out. */
lk_status lk__bench_images_open(const lk_bench_images *images, lk_dataset **out) LK_CHECKED;

#endif
