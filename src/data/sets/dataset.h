/* dataset.h - the inside of a data set and the table of its formats. */
#ifndef LK_DATA_SETS_DATASET_H
#define LK_DATA_SETS_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/data.h>

#include "base/status.h"
#include "data/codec/image.h"

enum { LK_DATASET_MAX_FILES = 5 };

typedef struct lk_fetch lk_fetch;

/* Whether all images of a data set have one size. */
typedef struct lk_transforms_common_size {
    size_t height, width; /* the first image's */
    size_t other;         /* the first image with another size; 0: none */
    size_t other_height, other_width;
} lk_transforms_common_size;

/* Which split a sample's bytes come from is fixed when a data set is opened. */
typedef struct lk_dataset_ops {
    /* One sample, index < count. Called by many threads at once; may block until
     * the bytes are there. */
    lk_status (*get)(const lk_dataset *data, size_t index, uint8_t *pixels, int32_t *label);
    /* The same where images have sizes of their own; get is NULL then. */
    lk_status (*load)(const lk_dataset *data, size_t index, lk_image *image, int32_t *label);
    /* Reads the images' headers until one differs, once a data set. By many threads
     * too. Optional: else sizes are taken to differ. */
    lk_status (*common_size)(const lk_dataset *data, lk_transforms_common_size *out);
    /* Its label alone, at once; by many threads too. Optional: else get is called and the pixels are dropped. */
    int32_t (*label)(const lk_dataset *data, size_t index);
    /* What to call a sample in a message: its file. Optional. */
    void (*place)(const lk_dataset *data, size_t index, char *text, size_t bytes);
    /* Hash of the samples' names below the folder, wherever that lies. Optional. */
    uint64_t (*hash_names)(const lk_dataset *data, uint64_t seed);
    /* Frees data->own, where that was allocated. Optional. */
    void (*close)(lk_dataset *data);
} lk_dataset_ops;

struct lk_dataset {
    const lk_dataset_ops *ops;
    lk_dataset_info info; /* name and path are borrowed from the two below */
    char *name, *path;
    lk_split split;
    const float *mean, *std;                /* (C), of bytes / 255 */
    const char *augment, *test_augment;     /* what "auto" means for each split */
    bool known;                             /* a row of the table: labels must be below info.classes */
    lk_fetch *images;                       /* IDX: header and pixels, read on a thread */
    uint8_t *files[LK_DATASET_MAX_FILES];   /* IDX: labels in [0]; CIFAR: whole files */
    size_t first[LK_DATASET_MAX_FILES + 1]; /* CIFAR: first sample of each file, then count */
    const void *own;                        /* the format's own; ops->close frees what is to be freed */
};

/* One sample as it is in the data set, index < count, whichever of get and load
 * there is. */
lk_status lk__dataset_load(const lk_dataset *data, size_t index, lk_image *image, int32_t *label) LK_CHECKED;

/* What tells two data sets apart, wherever their files lie: some labels, evenly
 * spread, and what pixels become; where images are files of their own, their names
 * too. Waits for no images that are still unpacking. */
uint64_t lk__dataset_fingerprint(const lk_dataset *data);

enum { LK_MAX_PATH = 4096, LK_MAX_FILE_NAME = 64 };

/* Which of a split's files a folder holds. */
typedef struct lk_inventory {
    size_t present;
    char missing[LK_MAX_FILE_NAME]; /* the first that is not there, or "" */
    bool denied;                    /* the folder may not be looked into */
} lk_inventory;

/* The same over all labels and, where images are in memory, all pixels; waits until
 * they are. Where images are files, the first one's pixels; one that cannot be decoded
 * is passed over, for the loader to complain of. */
lk_status lk__dataset_content(const lk_dataset *data, uint64_t *out) LK_CHECKED;

/* What the files of images hold, where each image is a file; files is 0 elsewhere. All
 * are read where they have up to lk__dataset_contents_limit bytes together (1 GiB; a variable,
 * so that tests can do with less); else 1,024 of them, evenly spread, and the times of
 * all are hashed too. Sizes and contents that differ give another hash. */
typedef struct lk_dataset_contents {
    size_t files, read; /* read of these files */
    uint64_t hash;      /* of all sizes, and of what was read */
    uint64_t times;     /* of all files' changes, in seconds; 0 where all were read */
} lk_dataset_contents;
extern uint64_t lk__dataset_contents_limit;
lk_status lk__dataset_contents(const lk_dataset *data, lk_dataset_contents *out) LK_CHECKED;
/* The same in a few milliseconds, for ranks to compare: of up to 64 files, evenly
 * spread, the sizes and contents; of files above 1 MiB the first and the last 64 KiB
 * alone. times is 0. A file that cannot be read is passed over, for the loader to
 * complain of. Fails for want of memory alone. */
lk_status lk__dataset_sample_contents(const lk_dataset *data, lk_dataset_contents *out) LK_CHECKED;

/* A way to keep a data set in files of one folder. */
typedef struct lk_dataset_format {
    const char *expects; /* names of the files, for messages */
    lk_inventory (*probe)(const char *folder, lk_split split);
    /* Fills info's numbers, ops and what get needs; info.classes holds the least
     * number of classes before. What was set is freed by lk_dataset_destroy,
     * after failures too. */
    lk_status (*open)(lk_dataset *data, const char *folder);
} lk_dataset_format;

extern const lk_dataset_format lk__dataset_format_idx;
extern const lk_dataset_format lk__dataset_format_cifar;
extern const lk_dataset_format lk__dataset_format_cifar100;
extern const lk_dataset_format lk__dataset_format_folder;
extern const lk_dataset_ops lk__digits_ops;
extern const lk_dataset_info lk__digits_info[2]; /* by split */

/* The folder that opening the split would read from, "" for built-in data; it
 * opens no file. NOT_FOUND as lk_dataset_open. */
lk_status lk__dataset_find(const char *name, const char *dir, lk_split split, char folder[LK_MAX_PATH]) LK_CHECKED;

/* The user's cache, where data sets are searched for and downloaded to; false
 * where the environment names none. */
bool lk__dataset_cache_folder(char folder[LK_MAX_PATH]);

/* folder/name in path when that or folder/name.gz exists. */
bool lk__dataset_find_file(const char *folder, const char *name, char path[LK_MAX_PATH]);
/* Enters a file of the folder, and whether it was found, into its inventory. */
void lk__inventory_add(lk_inventory *inventory, const char *folder, const char *name, bool found);

/* Reads a file that had `size` bytes, packed or not, when it was looked at. FORMAT,
 * with both sizes, where it has others now: it is being written, or was replaced.
 * The rest is as with lk__file_read. */
lk_status lk__dataset_read_steady(const char *path, size_t size, size_t max_bytes, uint8_t **out,
                                  size_t *bytes) LK_CHECKED;
/* That failure, in the words that all have for it. */
lk_status lk__dataset_fail_changed(const char *path, size_t before, size_t now);

/* A file that is being read, and inflated, on a thread of its own: start-up is
 * short because everything else goes on meanwhile. It must still be the file that
 * was looked at; anything else is FORMAT. */
enum { LK_FETCH_HEADER = 16 };
typedef struct lk_fetch_opts {
    const char *path;
    size_t size;                     /* bytes of the file */
    size_t bytes;                    /* of its content, at least as many as header has */
    uint8_t header[LK_FETCH_HEADER]; /* which the content begins with */
} lk_fetch_opts;
lk_status lk__fetch_start(const lk_fetch_opts *opts, lk_fetch **out) LK_CHECKED;
/* Waits for the content, which is borrowed. Fails alike on every call. */
lk_status lk__fetch_wait(lk_fetch *fetch, const uint8_t **out) LK_CHECKED;
void lk__fetch_destroy(lk_fetch *fetch);

#endif
