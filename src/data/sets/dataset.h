/* dataset.h - the inside of a data set, and the table of formats. */
#ifndef LK_DATA_SETS_DATASET_H
#define LK_DATA_SETS_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/data.h>

#include "base/status.h"
#include "data/codec/image.h"
#include "data/sets/store.h"

enum { LK_DATASET_MAX_FILES = 5 };

typedef struct lk_fetch lk_fetch;

/* Whether all images of a data set have the same size. */
typedef struct lk_transforms_common_size {
    size_t height, width; /* of the first image */
    size_t other;         /* index of the first image with another size; 0: none */
    size_t other_height, other_width;
} lk_transforms_common_size;

/* The functions of a data set. The split is fixed when the data set is opened. */
typedef struct lk_dataset_ops {
    /* A data set has one of the next three; the others are NULL. Each reads one sample, index < count, and its
     * target: an int32_t label, or info.targets floats. Called by many threads at once; may block until the data are
     * loaded. */
    lk_status (*get)(const lk_dataset *data, size_t index, void *pixels, void *target); /* bytes (C, H, W) */
    /* Images of different sizes; want may be NULL (lk_image_want). */
    lk_status (*load)(const lk_dataset *data, size_t index, const lk_image_want *want, lk_image *image, int32_t *label);
    lk_status (*values)(const lk_dataset *data, size_t index, float *x, void *target); /* (H, W, C), normalised */
    /* Reads the images' headers until one differs, once for a data set. Called by many threads.
     * Optional: without it sizes count as different. */
    lk_status (*common_size)(const lk_dataset *data, lk_transforms_common_size *out);
    /* Returns the label at once. Called by many threads. Optional: without it get is called and the
     * pixels are dropped. */
    int32_t (*label)(const lk_dataset *data, size_t index);
    /* Returns the target's floats at once, as label does; borrowed from the data set. Optional. */
    const float *(*targets)(const lk_dataset *data, size_t index);
    /* Writes the path of a sample's file. Optional. */
    void (*path)(const lk_dataset *data, size_t index, char *text, size_t bytes);
    /* The name of a class, index < classes; NULL: it has none. Optional. */
    const char *(*class_name)(const lk_dataset *data, size_t index);
    /* Hashes the samples' names relative to the data set's folder. Optional. */
    uint64_t (*hash_names)(const lk_dataset *data, uint64_t seed);
    /* Adds the contents of all files, which are in memory, to *hash; blocks until they are loaded. Optional. */
    lk_status (*hash_files)(const lk_dataset *data, uint64_t *hash);
    /* All fetches have begun: blocks until label and get may be called. Optional: they may be called at once. */
    lk_status (*ready)(lk_dataset *data);
    /* Frees data->own if it was allocated. Optional. */
    void (*close)(lk_dataset *data);
} lk_dataset_ops;

struct lk_dataset {
    const lk_dataset_ops *ops;
    lk_dataset_info info; /* name and path are borrowed from the fields below */
    char *name, *path;
    lk_split split;
    const char *augment, *test_augment;      /* the meaning of "auto" for each split */
    char *own_augment;                       /* memory of augment, or NULL */
    bool drawn;                              /* the program draws the samples: they need not be compared */
    const char *const *class_names;          /* (classes), or NULL */
    bool known;                              /* in the table: labels must be below info.classes */
    lk_fetch *fetches[LK_DATASET_MAX_FILES]; /* read by threads. IDX: header and pixels in [0]; CIFAR: plain files */
    uint8_t *files[LK_DATASET_MAX_FILES];    /* read at once. IDX: labels in [0]; CIFAR: gzipped files */
    const uint8_t *contents[LK_DATASET_MAX_FILES]; /* CIFAR: of all files, when they are loaded */
    size_t first[LK_DATASET_MAX_FILES + 1];        /* CIFAR: first sample of each file, then count */
    const uint32_t *origins; /* (count) index of each sample in the base of a part; NULL: no part */
    const void *own;         /* the format's own; ops->close frees it if needed */
};

/* The name of a class, index < classes; its number where it has no name that is UTF-8. */
enum { LK_CLASS_NUMBER = 24 };
const char *lk__dataset_class_name(const lk_dataset *data, size_t index, char number[LK_CLASS_NUMBER]);
extern const char *const lk__dataset_fashion_names[10], *const lk__dataset_cifar10_names[10],
                                                            *const lk__dataset_cifar100_names[100];

/* Like lk_dataset_open, but large files are not read before lk__dataset_begin. Until then only the info is valid. */
lk_status lk__dataset_open_idle(const char *name, const char *dir, lk_split split, lk_dataset **out) LK_CHECKED;
/* Adds the keys of the files that are not read yet to keys (LK_STORE_MAX_FILES), of which *count are used. */
void lk__dataset_keys(const lk_dataset *data, lk_store_key *keys, size_t *count);
/* Starts reading, into the store if it is not NULL; it must outlive the data set. Of `readers` processes this one is
 * number `reader`: they begin with different files. */
lk_status lk__dataset_begin(lk_dataset *data, lk_store *store, int reader, int readers) LK_CHECKED;

/* Loads an image with get or load, index < count. target as in lk_dataset_ops, want as in lk__image_decode. */
lk_status lk__dataset_load(const lk_dataset *data, size_t index, const lk_image_want *want, lk_image *image,
                           void *target) LK_CHECKED;
/* Elements of a sample; 0 if images differ in size. */
size_t lk__dataset_elements(const lk_dataset *data);
/* The first class with the largest probability. */
int32_t lk__dataset_likeliest(const float *probabilities, size_t classes);

/* A hash that distinguishes data sets, independent of their folders: some labels, evenly spread,
 * and the normalisation; with one file for each image also their names. Does not wait for images
 * that are still being unpacked. */
uint64_t lk__dataset_fingerprint(const lk_dataset *data);

enum { LK_MAX_PATH = 4096, LK_MAX_FILE_NAME = 64 };

/* Which files of a split a folder has. */
typedef struct lk_inventory {
    size_t present;
    char missing[LK_MAX_FILE_NAME]; /* the first missing file, or "" */
    bool denied;                    /* the folder cannot be read */
} lk_inventory;

/* Like lk__dataset_fingerprint, but of all labels and, if images are in memory, all pixels; blocks until they are
 * loaded. With one file for each image, the pixels of the first one; one that cannot be decoded is skipped: the loader
 * reports it. */
lk_status lk__dataset_content(const lk_dataset *data, uint64_t *out) LK_CHECKED;

/* A hash of all labels and pixels of files that are kept in memory, at the speed of memory; blocks until they are
 * loaded. 0 for other data sets. Processes that share the files' memory compute it once. */
lk_status lk__dataset_hash_files(const lk_dataset *data, uint64_t *out) LK_CHECKED;

/* Adds samples and their targets to a hash: all, or `most` of them, evenly spread. The samples have one size. */
lk_status lk__dataset_hash_samples(const lk_dataset *data, size_t most, uint64_t *hash) LK_CHECKED;

/* Hashes of image files, for data sets with one file for each image; files is 0 for others. All
 * files are read if they have at most lk__dataset_contents_limit bytes together (1 GiB; a variable,
 * so that tests can lower it). Otherwise 1,024 files are read, evenly spread, and the times of all
 * are hashed. Other sizes or contents give another hash. */
typedef struct lk_dataset_contents {
    size_t files, read; /* number of files; how many were read */
    uint64_t hash;      /* of all sizes and of the files that were read */
    uint64_t times;     /* of all files' modification times in seconds; 0 if all were read */
} lk_dataset_contents;
extern uint64_t lk__dataset_contents_limit;
lk_status lk__dataset_contents(const lk_dataset *data, lk_dataset_contents *out) LK_CHECKED;
/* As lk__dataset_contents, but in a few milliseconds, for a comparison of ranks. Hashes sizes and
 * contents of up to 64 evenly spread files, and of files above 1 MiB only the first and last 64 KiB. times is 0.
 * Unreadable files are skipped: the loader reports them. Fails only for a lack of memory. */
lk_status lk__dataset_sample_contents(const lk_dataset *data, lk_dataset_contents *out) LK_CHECKED;

/* A format of a data set's files in one folder. */
typedef struct lk_dataset_format {
    const char *expects; /* names of the files, for messages */
    lk_inventory (*probe)(const char *folder, lk_split split);
    /* Fills info's numbers, ops and what get needs. info.classes is the smallest number of classes
     * before. lk_dataset_destroy frees what was set, also after a failure. */
    lk_status (*open)(lk_dataset *data, const char *folder);
} lk_dataset_format;

extern const lk_dataset_format lk__dataset_format_idx;
extern const lk_dataset_format lk__dataset_format_cifar;
extern const lk_dataset_format lk__dataset_format_cifar100;
extern const lk_dataset_format lk__dataset_format_folder;
extern const lk_dataset_ops lk__digits_ops;
extern const lk_dataset_info lk__digits_info[2]; /* for each split */

/* The folder that opening the split would read from, "" for built-in data; opens no file. NOT_FOUND
 * as lk_dataset_open. */
lk_status lk__dataset_find(const char *name, const char *dir, lk_split split, char folder[LK_MAX_PATH]) LK_CHECKED;
/* USAGE if split is no value of lk_split. */
lk_status lk__dataset_check_split(lk_split split) LK_CHECKED;

/* The user's cache, where data sets are searched for and downloaded to; false if the environment
 * names none. */
bool lk__dataset_cache_folder(char folder[LK_MAX_PATH]);

/* Writes folder/name or folder/name.gz to path if it exists. */
bool lk__dataset_find_file(const char *folder, const char *name, char path[LK_MAX_PATH]);
/* Adds a file of the folder to the inventory, and whether it was found. */
void lk__inventory_add(lk_inventory *inventory, const char *folder, const char *name, bool found);

/* Reads a file that had `size` bytes, compressed or not, when it was examined. FORMAT, with both
 * sizes, if its size is different now: it is being written or was replaced. Otherwise like
 * lk__file_read. */
lk_status lk__dataset_read_steady(const char *path, size_t size, size_t max_bytes, uint8_t **out,
                                  size_t *bytes) LK_CHECKED;
/* Fails with FORMAT for a file whose size has changed. */
lk_status lk__dataset_fail_changed(const char *path, size_t before, size_t now);

/* A file that a thread reads and inflates, while the rest of the start-up continues. FORMAT if it
 * is not the examined file any more. */
enum { LK_FETCH_HEADER = 16 };
typedef struct lk_fetch_opts {
    const char *path;
    size_t size;                     /* bytes of the file */
    size_t bytes;                    /* of its content, at least as many as the header has */
    uint8_t header[LK_FETCH_HEADER]; /* the start of the content */
    size_t header_bytes;             /* of it, how many are known */
    /* Checks the content, (bytes), once it is read. Optional. */
    lk_status (*check)(const struct lk_fetch_opts *opts, const uint8_t *content);
    const void *format; /* for check; borrowed */
    size_t classes;     /* the same */
} lk_fetch_opts;
/* Examines the file; nothing is read before begin or wait. */
lk_status lk__fetch_create(const lk_fetch_opts *opts, lk_fetch **out) LK_CHECKED;
/* Starts reading, into the store if it has a block for the file; NULL: into memory of this process. The store must
 * outlive the fetch. Without effect if the fetch has begun. */
void lk__fetch_begin(lk_fetch *fetch, lk_store *store);
/* Blocks until the content is read; it is borrowed. Every call fails in the same way. Begins a fetch that has not
 * begun. */
lk_status lk__fetch_wait(lk_fetch *fetch, const uint8_t **out) LK_CHECKED;
/* The hash of the content, computed once for all processes that share it. Otherwise as lk__fetch_wait. */
lk_status lk__fetch_hash(lk_fetch *fetch, uint64_t *out) LK_CHECKED;
void lk__fetch_destroy(lk_fetch *fetch);

#endif
