/* data.h - data sets and the loader that turns them into batches.
 *
 * What a batch holds is a pure function of (data, seed, epoch, batch index):
 * the number of workers and their timing leave no trace.
 *
 * Threads: an open data set may be read by any number of threads at the same time. A
 * loader may be used by any thread, but by one at a time: lk_loader_start and
 * lk_loader_next are USAGE while another of the two has not returned. A loader works in
 * the process that made it: in one that was forked later (lk_spawn) both are USAGE, and
 * lk_loader_destroy does nothing. */
#ifndef LOCKSTEP_DATA_H
#define LOCKSTEP_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_dataset lk_dataset;

typedef enum lk_split { LK_SPLIT_TRAIN, LK_SPLIT_TEST } lk_split;

typedef struct lk_dataset_info {
    const char *name; /* "mnist", "digits", ... */
    const char *path; /* where it was found; "" for built-in data */
    size_t count;
    size_t channels, height, width, classes; /* height and width 0: each image has its own */
} lk_dataset_info;

/* Opens a split of a data set by name (a row of the data table) or by folder. A name
 * is looked for in dir alone; where dir is NULL or "", in $LOCKSTEP_DATA, ./data, the
 * user's cache and the system's dataset folder, in this order. NOT_FOUND lists where
 * it looked. */
lk_status lk_dataset_open(const char *name, const char *dir, lk_split split, lk_dataset **out) LK_CHECKED;
void lk_dataset_destroy(lk_dataset *data);
/* Borrowed from the data set. */
const lk_dataset_info *lk_dataset_get_info(const lk_dataset *data);
/* One sample's bytes in C,H,W order, and its label. USAGE where images have sizes
 * of their own: those are for loaders. */
lk_status lk_dataset_get(const lk_dataset *data, size_t index, uint8_t *pixels, int32_t *label) LK_CHECKED;

/* Rows of the data table, NULL after the last. */
typedef struct lk_dataset_row {
    const char *name;
    const char *summary;
} lk_dataset_row;
const lk_dataset_row *lk_dataset_list(size_t index);

/* Rows of the table of transforms, which --augment names, NULL after the last. */
typedef struct lk_transform_info {
    const char *name;
    const char *summary; /* its values and their defaults */
} lk_transform_info;
const lk_transform_info *lk_transform_list(size_t index);

/* What each sample of a loader looks like when it was opened with this `augment`
 * (see lk_loader_opts). USAGE where the list leaves images of several sizes. Where
 * images are files and the list fixes no size, reads the headers of all of them, once
 * a data set. */
typedef struct lk_sample_shape {
    size_t channels, height, width;
} lk_sample_shape;
lk_status lk_augmented_shape(const lk_dataset *data, const char *augment, lk_sample_shape *out) LK_CHECKED;

/* One global batch, or a rank's share of it. ids give random numbers their
 * address, so equal ids draw alike. Pointers may be NULL in a share without samples
 * (count 0 of a total above 0). */
typedef struct lk_batch {
    size_t count;
    size_t sample_floats;  /* floats of a sample, H * W * C */
    const float *x;        /* (N, H, W, C); NULL in a share that is labels_only, or with source */
    const int32_t *labels; /* (N) */
    const uint32_t *ids;   /* (N), index of each sample in the data set */
    size_t total;          /* samples of the batch that this is a share of; 0, or count: this is the whole */
    size_t epoch;          /* with source: its transforms are drawn by it, below 2^32. Nothing else looks at it */
    const void *source;    /* names the samples that an engine has placed (lk_engine_cache_dataset), or NULL */
} lk_batch;

/* The part of each batch that a rank works on: of the `shards` shards that a
 * batch is cut into, those in [first,last). All zero: the whole batch. */
typedef struct lk_shard_range {
    int shards, first, last;
    bool labels_only; /* labels and ids, no samples: stages of a pipeline but the first */
} lk_shard_range;
/* Samples of a share when a batch has `total`, and the place of the first. */
size_t lk_shard_range_count(lk_shard_range share, size_t total);
size_t lk_shard_range_begin(lk_shard_range share, size_t total);

typedef struct lk_loader_opts {
    size_t batch; /* samples a batch, required; the last may be smaller */
    bool shuffle; /* anew every epoch */
    uint64_t seed;
    int workers;          /* threads that prepare batches ahead; 0: in the caller */
    const char *augment;  /* "auto" (the data set's own for this split), "none", "crop=4,flip" */
    lk_shard_range share; /* what of each batch to load; default all. A batch's share may be empty */
} lk_loader_opts;

typedef struct lk_loader lk_loader;

/* data is borrowed and must outlive the loader. */
lk_status lk_loader_create(const lk_dataset *data, const lk_loader_opts *opts, lk_loader **out) LK_CHECKED;
void lk_loader_destroy(lk_loader *loader);
/* Starts an epoch at a batch (0 for its beginning); abandons one under way. */
lk_status lk_loader_start(lk_loader *loader, size_t epoch, size_t first_batch) LK_CHECKED;
/* The next batch, borrowed until the next call; *out is NULL after the last. */
lk_status lk_loader_next(lk_loader *loader, const lk_batch **out) LK_CHECKED;
size_t lk_loader_batches(const lk_loader *loader);

#ifdef __cplusplus
}
#endif
#endif
