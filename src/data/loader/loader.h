/* loader.h - the sources of a loader's samples, for a cached data set; shard ranges; the order of
 * samples. */
#ifndef LK_DATA_LOADER_LOADER_H
#define LK_DATA_LOADER_LOADER_H

#include "data/sets/dataset.h"
#include "data/transform/transforms.h"

/* Everything from which samples are made; borrowed from the loader. */
typedef struct lk_loader_source {
    const lk_dataset *data;
    const lk_transforms *transforms;
    lk_sample_shape shape;         /* of each sample after the transforms */
    const lk_normalise *normalise; /* of bytes; not set for data sets of floats */
    uint64_t seed;
    const void *named; /* the argument of lk__loader_names_only, or NULL */
} lk_loader_source;
lk_loader_source lk__loader_source(const lk_loader *loader);

/* From the next lk_loader_start on, batches have only labels, targets, ids and `source`, which has the
 * samples. */
void lk__loader_names_only(lk_loader *loader, const void *source);

/* USAGE if the shard range is impossible. */
lk_status lk__shard_range_check(lk_shard_range share) LK_CHECKED;
/* The most samples of the shard range in batches of up to `batch` samples: a smaller batch may give
 * it one more than a larger batch. */
size_t lk__shard_range_most(lk_shard_range share, size_t batch);

/* The order of samples in an epoch: a permutation of [0,count). */
void lk__sampler_permute(uint64_t seed, uint32_t epoch, uint32_t count, uint32_t *order);

#endif
