/* loader.h - the sources of a loader's samples, also for a cached data set; shard ranges; the order of samples. */
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
    uint32_t epoch;    /* of the last lk_loader_start */
    const void *named; /* the argument of lk__loader_names_only, or NULL */
} lk_loader_source;

static inline size_t lk__loader_sample_floats(const lk_loader_source *source)
{
    return source->shape.channels * source->shape.height * source->shape.width;
}
lk_loader_source lk__loader_source(const lk_loader *loader);

/* From the next lk_loader_start on, batches have only labels, targets, ids and `source`, which has the
 * samples. */
void lk__loader_names_only(lk_loader *loader, const void *source);

/* What the threads that make samples have done since the loader was created; nothing is counted while batches have no
 * samples. */
typedef struct lk_loader_work {
    size_t samples;
    double seconds; /* of all these threads together */
    size_t threads; /* the workers, or 1: the caller of lk_loader_next */
} lk_loader_work;
lk_loader_work lk__loader_work(lk_loader *loader);

/* The workers of a loader whose number is left to the program: 1, and up to 16 for samples that are decoded from files,
 * one for each of the `cores` that nothing else uses. */
int lk__loader_auto_workers(const lk_dataset *data, int cores);

/* The memory of a batch of N samples. */
typedef struct lk_loader_room {
    float *x;          // (N, H, W, C); NULL if only labels and ids are loaded
    int32_t *labels;   // (N)
    float *targets;    // (N, targets of the data set); NULL if targets are labels
    uint32_t *ids;     // (N)
    uint32_t *origins; // (N), or NULL: the data set is no part of another
} lk_loader_room;

/* The memory of a thread that makes samples: the current one, and what its transforms need. */
typedef struct lk_loader_scratch {
    lk_image image, other;
} lk_loader_scratch;

/* Makes sample `id` of the data set sample i of the batch. Several threads may make samples of one batch. */
lk_status lk__loader_make_sample(const lk_loader_source *source, uint32_t id, const lk_loader_room *room, size_t i,
                                 lk_loader_scratch *scratch) LK_CHECKED;
/* The most bytes of an error's detail. */
enum { LK_LOADER_DETAIL = 2048 };

/* The batches that lk_loader_next gives from now on have this share; the batch before becomes invalid. */
lk_status lk__loader_set_share(lk_loader *loader, lk_shard_range share) LK_CHECKED;

/* USAGE if the shard range is impossible. */
lk_status lk__shard_range_check(lk_shard_range share) LK_CHECKED;
/* The most samples of the shard range in batches of up to `batch` samples: a smaller batch may give
 * it one more than a larger batch. */
size_t lk__shard_range_most(lk_shard_range share, size_t batch);

/* The order of samples in an epoch: a permutation of [0,count). */
void lk__sampler_permute(uint64_t seed, uint32_t epoch, uint32_t count, uint32_t *order);

#endif
