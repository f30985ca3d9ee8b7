/* data.h - data sets and the loader that turns them into batches.
 *
 * The content of a batch is a pure function of (data, seed, epoch, batch index). It does not
 * depend on the number of workers or on their timing.
 *
 * Threads: any number of threads may read an open data set at the same time. Any thread may
 * use a loader, but only one thread at a time: lk_loader_start and lk_loader_next return USAGE
 * while another thread is in one of these two functions. A loader works only in the process
 * that created it: in a process that was forked later (lk_spawn), both functions return USAGE
 * and lk_loader_destroy does nothing.
 *
 * Errors of reading samples, from lk_dataset_get, lk_augmented_shape and lk_loader_next: IO: a file cannot be read.
 * FORMAT: a file is damaged, or a label is outside of [0, classes); the detail names the file or the sample.
 * UNSUPPORTED: the build cannot decode this kind of image. Any status of the program's own lk_dataset_read_fn. */
#ifndef LOCKSTEP_DATA_H
#define LOCKSTEP_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/state.h>
#include <lockstep/status.h>

LK_API_BEGIN

typedef struct lk_dataset lk_dataset;

typedef enum lk_split { LK_SPLIT_TRAIN, LK_SPLIT_TEST } lk_split;

/* The order of a sample's elements in memory. Batches (lk_batch) always have LK_SAMPLE_ORDER_HWC. */
typedef enum lk_sample_order {
    LK_SAMPLE_ORDER_CHW, /* all pixels of the first channel, then those of the second: PyTorch's order */
    LK_SAMPLE_ORDER_HWC  /* all channels of the first pixel, then those of the second */
} lk_sample_order;

typedef struct lk_dataset_info {
    const char *name;                        /* "mnist", "digits", ... */
    const char *path;                        /* the folder in which it was found; "" for other data */
    size_t count;                            /* samples */
    size_t channels, height, width, classes; /* height and width are 0 where images differ in size */
    size_t targets;                          /* floats of a sample's target; 0: the target is a label */
    lk_dtype dtype;                          /* of the elements that lk_dataset_get writes: U8 or F32 */
    lk_sample_order order;                   /* of these elements */
    /* (channels) What the loader does with the values of each channel: (value - mean) / std. The value of a byte is
     * byte / 255. For F32 this has been done already: lk_dataset_get writes the result. */
    const float *mean, *std;
} lk_dataset_info;

/* Opens a split of a data set. `name` is a name of lk_dataset_list or a folder. A name is
 * searched in `dir` only. If dir is NULL or "", it is searched in $LOCKSTEP_DATA, ./data, the
 * user's cache folder and the system's dataset folder, in this order. NOT_FOUND: the detail
 * lists the folders that were searched. FORMAT: a file is damaged. MISMATCH: files do not fit together, as images and
 * labels of different numbers. IO: a file or folder cannot be read. USAGE: the name is empty, a path is too long or
 * split is no lk_split. The caller owns *out. */
lk_status lk_dataset_open(const char *name, const char *dir, lk_split split, lk_dataset **out) LK_CHECKED;
void lk_dataset_destroy(lk_dataset *data);
/* The result is borrowed from the data set. */
const lk_dataset_info *lk_dataset_get_info(const lk_dataset *data);
/* Copies sample `index`, counted from 0: channels * height * width elements of info.dtype in the
 * order info.order; and its target: an int32_t label, or info.targets floats. May block until the
 * data are read. USAGE if there is no such sample, or if the images differ in size; a loader with
 * transforms can read such data sets. */
lk_status lk_dataset_get(const lk_dataset *data, size_t index, void *sample, void *target) LK_CHECKED;

enum { LK_SAMPLE_DIMS = 3 };

/* A data set of the program's own. Zero means the default. Nothing of this struct is used after the
 * data set was created. */
typedef struct lk_dataset_opts {
    const char *name; /* for messages; default "own" */
    size_t count;     /* samples, required */
    /* The elements of a sample: F32 (default), U8 or I32. Batches have floats: I32 must be in -2^24 to 2^24, and U8
     * becomes byte / 255. */
    lk_dtype dtype;
    /* The shape of a sample, required: {F} for F features; {T, F} for a sequence of T vectors; {C, H, W} for an image,
     * or {H, W, C} with LK_SAMPLE_ORDER_HWC. For {F} the input of a graph is lk_input(graph, F, 1, 1), for {T, F}
     * lk_input(graph, F, 1, T). */
    size_t dims[LK_SAMPLE_DIMS];
    lk_sample_order order; /* of three dims */
    /* One of these two, or both: `classes` alone: a target is an int32_t label in [0, classes). `targets` alone: a
     * target is this many floats. Both, and equal: a target is a probability for each class, and the label is the
     * first class with the largest one. */
    size_t classes, targets;
    const float *mean, *std; /* (C), as in lk_dataset_info; NULL: 0 and 1 */
    /* The transforms that a loader's `augment` "auto" stands for; default "none". Transforms need images: U8 samples of
     * three dims with 1 or 3 channels. */
    const char *augment;
    lk_split split;       /* a loader refuses random transforms for LK_SPLIT_TEST */
    uint64_t reserved[8]; /* zero */
} lk_dataset_opts;

/* Writes sample `index` as opts.dtype, opts.dims and opts.order say, and its target. Loaders call it
 * in several threads at once, for any index and as often as they like; the same index must give the
 * same sample. It may block, and it may call lk_dataset_get of another data set. A failure is a status other than
 * LK_OK. The function may set the detail (lk_fail); the library puts the sample and the name of the data set before it.
 */
typedef lk_status (*lk_dataset_read_fn)(void *arg, size_t index, void *sample, void *target);

/* Creates a data set whose samples `read` gives; arg must outlive it. The caller owns *out. USAGE for impossible
 * options. */
lk_status lk_dataset_create(const lk_dataset_opts *opts, lk_dataset_read_fn read, void *arg,
                            lk_dataset **out) LK_CHECKED;
/* Creates a data set of samples in memory, one after the other, and their targets. The memory is borrowed and must
 * outlive the data set. USAGE for impossible options and for labels outside of [0, classes). */
lk_status lk_dataset_from_memory(const lk_dataset_opts *opts, const void *samples, const void *targets,
                                 lk_dataset **out) LK_CHECKED;
/* Creates a data set of the samples indices (count) of base, in this order; an index may occur several times. base is
 * borrowed and must outlive it; indices is not used afterwards. split: as in lk_dataset_opts; it also says which of
 * base's transforms "auto" stands for. USAGE if an index is not below base's count, or if count is 0. */
lk_status lk_dataset_subset(const lk_dataset *base, const size_t *indices, size_t count, lk_split split,
                            lk_dataset **out) LK_CHECKED;

/* A known data set. Rows of lists are valid until the process ends. */
typedef struct lk_dataset_row {
    const char *name;
    const char *summary;
} lk_dataset_row;
/* Row `index` of the known data sets, counted from 0; NULL after the last. */
const lk_dataset_row *lk_dataset_list(size_t index);

/* A transform that `augment` can name. */
typedef struct lk_transform_info {
    const char *name;
    const char *summary; /* parameters and their defaults */
} lk_transform_info;
/* Row `index` of the transforms, counted from 0; NULL after the last. */
const lk_transform_info *lk_transform_list(size_t index);

/* The shape of every sample of a loader that is created with this `augment` (see
 * lk_loader_opts). USAGE if the samples would differ in size, or `augment` is no list of transforms. If the images are
 * files and no transform fixes the size, the first call for a data set reads the headers of all files. */
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
    const int32_t *labels; /* (N); may be NULL if the loss learns float targets */
    size_t target_floats;  /* floats of a sample's target; 0: targets are labels */
    const float *targets;  /* (N, target_floats); NULL if targets are labels */
    const uint32_t *ids;   /* (N), index of each sample in the data set */
    size_t total;          /* samples of the whole batch; 0 or count: this struct is the whole batch */
    size_t epoch;          /* below 2^32; used only with source, to draw the random transforms */
    const void *source;    /* identifies a cached data set (lk_engine_cache_dataset), or NULL */
    const float *weights;  /* (N) weight of each sample in the loss, not below 0; NULL: 1. Loaders give NULL */
    /* (N), index of each sample in the data set of which the loader's is a part (lk_dataset_subset): messages name
     * it. NULL: ids */
    const uint32_t *origins;
    uint64_t reserved[6]; /* zero */
} lk_batch;

/* The share of each batch that a rank loads: a batch is cut into `shards` shards, and the rank
 * has shards [first,last). All fields zero: the whole batch. */
typedef struct lk_shard_range {
    int shards, first, last;
    bool labels_only; /* load labels, targets and ids but no samples: for all pipeline stages except the first */
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

/* Creates a loader and its worker threads. `data` is borrowed and must outlive the loader. USAGE for impossible
 * options. UNSUPPORTED if the data set has 2^32 samples or more. Fails as lk_augmented_shape. */
lk_status lk_loader_create(const lk_dataset *data, const lk_loader_opts *opts, lk_loader **out) LK_CHECKED;
void lk_loader_destroy(lk_loader *loader);
/* Starts an epoch at batch `first_batch` (0: the first). Ends an epoch that is under way: blocks
 * until the workers have finished the samples that they prepare. USAGE if epoch is not below 2^32, or first_batch is
 * above the number of batches. */
lk_status lk_loader_start(lk_loader *loader, size_t epoch, size_t first_batch) LK_CHECKED;
/* Blocks until the next batch is ready. *out is NULL after the last batch of the epoch, and is
 * borrowed until the next call for this loader. USAGE before lk_loader_start. If a sample cannot be read, this call
 * fails, and later ones may fail until lk_loader_start is called. */
lk_status lk_loader_next(lk_loader *loader, const lk_batch **out) LK_CHECKED;
/* The number of batches of an epoch. */
size_t lk_loader_batches(const lk_loader *loader);

LK_API_END
#endif
