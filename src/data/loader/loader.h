/* loader.h - what a loader makes its samples of, for whoever makes them in its
 * stead. */
#ifndef LK_DATA_LOADER_LOADER_H
#define LK_DATA_LOADER_LOADER_H

#include "data/sets/dataset.h"
#include "data/transform/transforms.h"

/* Borrowed from the loader. */
typedef struct lk_loader_source {
    const lk_dataset *data;
    const lk_transforms *transforms;
    lk_sample_shape shape; /* of each sample, after them */
    const lk_normalise *normalise;
    uint64_t seed;
    const void *named; /* what lk__loader_names_only was given, or NULL */
} lk_loader_source;
lk_loader_source lk__loader_source(const lk_loader *loader);

/* From the next lk_loader_start on batches have labels and ids alone, and source
 * for what has the samples. */
void lk__loader_names_only(lk_loader *loader, const void *source);

/* USAGE where there is no such share. */
lk_status lk__shard_range_check(lk_shard_range share) LK_CHECKED;
/* The most samples that it holds of a batch of up to `batch`: a smaller batch may
 * give a share one more than a larger one. */
size_t lk__shard_range_most(lk_shard_range share, size_t batch);

/* The epoch's order of samples: a permutation of [0,count). */
void lk__sampler_permute(uint64_t seed, uint32_t epoch, uint32_t count, uint32_t *order);

#endif
