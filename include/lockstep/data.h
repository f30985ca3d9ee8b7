/* data.h - data sets and the loader that turns them into batches.
 *
 * The content of a batch is a pure function of (data, seed, epoch, batch index). It does not
 * depend on the number of workers or on their timing.
 *
 * Threads: any number of threads may read an open data set at the same time. Any thread may
 * use a loader, but only one thread at a time: lk_loader_start and lk_loader_next return USAGE
 * while another thread is in one of these two functions. A loader works only in the process
 * that created it: in a process that was forked later (lk_spawn), both functions return USAGE
 * and lk_loader_destroy does nothing. */
#ifndef LOCKSTEP_DATA_H
#define LOCKSTEP_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

LK_API_BEGIN

typedef struct lk_dataset lk_dataset;

typedef enum lk_split { LK_SPLIT_TRAIN, LK_SPLIT_TEST } lk_split;

typedef struct lk_dataset_info {
    const char *name;                        /* "mnist", "digits", ... */
    const char *path;                        /* the folder in which it was found; "" for built-in data */
    size_t count;                            /* samples */
    size_t channels, height, width, classes; /* height and width are 0 where images differ in size */
} lk_dataset_info;

/* Opens a split of a data set. `name` is a name of lk_dataset_list or a folder. A name is
 * searched in `dir` only. If dir is NULL or "", it is searched in $LOCKSTEP_DATA, ./data, the
 * user's cache folder and the system's dataset folder, in this order. NOT_FOUND: the detail
 * lists the folders that were searched. The caller owns *out. */
lk_status lk_dataset_open(const char *name, const char *dir, lk_split split, lk_dataset **out) LK_CHECKED;
void lk_dataset_destroy(lk_dataset *data);
/* The result is borrowed from the data set. */
const lk_dataset_info *lk_dataset_get_info(const lk_dataset *data);
/* Copies sample `index`, counted from 0: channels * height * width bytes in C,H,W order, and the
 * label. May block until the data are read. USAGE if there is no such sample, or if the images
 * differ in size; a loader with transforms can read such data sets. */
lk_status lk_dataset_get(const lk_dataset *data, size_t index, uint8_t *pixels, int32_t *label) LK_CHECKED;

/* The known data sets: row `index`, counted from 0; NULL after the last. */
typedef struct lk_dataset_row {
    const char *name;
    const char *summary;
} lk_dataset_row;
const lk_dataset_row *lk_dataset_list(size_t index);

/* The transforms that `augment` can name: row `index`, counted from 0; NULL after the last. */
typedef struct lk_transform_info {
    const char *name;
    const char *summary; /* parameters and their defaults */
} lk_transform_info;
const lk_transform_info *lk_transform_list(size_t index);

/* The shape of every sample of a loader that is created with this `augment` (see
 * lk_loader_opts). USAGE if the samples would differ in size. If the images are files and no
 * transform fixes the size, the first call for a data set reads the headers of all files. */
typedef struct lk_sample_shape {
    size_t channels, height, width;
} lk_sample_shape;
lk_status lk_augmented_shape(const lk_dataset *data, const char *augment, lk_sample_shape *out) LK_CHECKED;

/* A batch, or one rank's share of a batch. Random numbers (dropout, transforms) are a function
 * of a sample's id, so samples with equal ids get equal random numbers. The pointers may be NULL
 * in an empty share: count is 0 and total is above 0. */
typedef struct lk_batch {
    size_t count;          /* N: the samples in this struct */
    size_t sample_floats;  /* floats of a sample, H * W * C */
    const float *x;        /* (N, H, W, C); NULL if the share is labels_only or source is set */
    const int32_t *labels; /* (N) */
    const uint32_t *ids;   /* (N), index of each sample in the data set */
    size_t total;          /* samples of the whole batch; 0 or count: this struct is the whole batch */
    size_t epoch;          /* below 2^32; used only with source, to draw the random transforms */
    const void *source;    /* identifies a cached data set (lk_engine_cache_dataset), or NULL */
    uint64_t reserved[8];  /* zero */
} lk_batch;

/* The share of each batch that a rank loads: a batch is cut into `shards` shards, and the rank
 * has shards [first,last). All fields zero: the whole batch. */
typedef struct lk_shard_range {
    int shards, first, last;
    bool labels_only; /* load labels and ids but no samples: for all pipeline stages except the first */
} lk_shard_range;
/* For a batch of `total` samples: the number of samples in the share, and the index in the batch
 * of the share's first sample. */
size_t lk_shard_range_count(lk_shard_range share, size_t total);
size_t lk_shard_range_begin(lk_shard_range share, size_t total);

/* `batch` is required. Every other field may be left zero: then a loader gives whole batches of
 * all samples in the order of the data set, with the data set's transforms, without workers. */
typedef struct lk_loader_opts {
    size_t batch;   /* samples of a whole batch, at least 1; the last batch of an epoch may be smaller */
    bool drop_last; /* leave a smaller last batch out; USAGE if an epoch then has no batch */
    bool shuffle;   /* draw a new order for each epoch; false: the order of the data set */
    uint64_t seed;  /* of the order and of random transforms; 0 is a seed like any other */
    int workers;    /* threads that prepare batches in advance, 0 to 256; 0: lk_loader_next prepares them itself */
    /* NULL or "auto": the data set's transforms for this split; "none": no transforms; or a list, as
     * "crop=4,flip" (lk_transform_list). The text is not used after lk_loader_create. */
    const char *augment;
    lk_shard_range share; /* the share of each batch to load, which may be empty; all fields zero: whole batches */
    uint64_t reserved[8]; /* zero */
} lk_loader_opts;

typedef struct lk_loader lk_loader;

/* Creates a loader and its worker threads. `data` is borrowed and must outlive the loader. */
lk_status lk_loader_create(const lk_dataset *data, const lk_loader_opts *opts, lk_loader **out) LK_CHECKED;
void lk_loader_destroy(lk_loader *loader);
/* Starts an epoch at batch `first_batch` (0: the first). Ends an epoch that is under way: blocks
 * until the workers have finished the batches that they prepare. */
lk_status lk_loader_start(lk_loader *loader, size_t epoch, size_t first_batch) LK_CHECKED;
/* Blocks until the next batch is ready. *out is NULL after the last batch of the epoch, and is
 * borrowed until the next call for this loader. */
lk_status lk_loader_next(lk_loader *loader, const lk_batch **out) LK_CHECKED;
/* The number of batches of an epoch. */
size_t lk_loader_batches(const lk_loader *loader);

LK_API_END
#endif
