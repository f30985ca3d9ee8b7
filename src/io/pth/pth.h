/* pth.h - files of torch.save: a pickle that describes tensors, and storages,
 * which hold their elements. Two containers exist: a zip archive (pth_zip.c) and,
 * up to PyTorch 1.5, a stream (pth_legacy.c). What the pickle means is
 * pth_state.c's business, the tensors' data are pth_load.c's. */
#ifndef LK_IO_PTH_PTH_H
#define LK_IO_PTH_PTH_H

#include "io/io.h"
#include "io/pth/pickle.h"

/* An element type of PyTorch. */
typedef struct lk_pth_type {
    const char *storage; /* "FloatStorage" */
    const char *name;    /* "float32" */
    int dtype;           /* an lk_dtype, or LK_DTYPE_COUNT where there is none */
    size_t size;
} lk_pth_type;

/* The first LK_DTYPE_COUNT rows are the lk_dtypes in their order. */
extern const lk_pth_type lk__pth_types[];

/* Bytes of the longest key of a storage: keys are numbers in PyTorch's files. */
enum { LK_PTH_MAX_KEY = 64 };

/* Memory for tensors is bounded by the size of the file, for a small file could ask
 * for any amount: members of an archive inflate up to 1032-fold, tensors may share a
 * storage, and a stride of 0 repeats it. All members together, and all tensors
 * together, may have so many times the bytes of the file, and so many more. */
enum { LK_PTH_MOST_TIMES = 16, LK_PTH_MOST_MORE = 1 << 20 };

/* What the pickle says of a storage. */
typedef struct lk_pth_storage {
    const char *key; /* text in the pickle, of at most LK_PTH_MAX_KEY bytes */
    size_t key_bytes;
    const lk_pth_type *type;
    uint64_t bytes;
    uint64_t first, count; /* the elements that tensors may use */
    uint64_t place;        /* the container's */
} lk_pth_storage;

/* What the pickle says of a tensor. Its elements were found to lie within what
 * the pickle says of its storage. */
typedef struct lk_pth_tensor {
    const char *name; /* text in the pickle, UTF-8 without a zero, at most LK_MAX_TENSOR_NAME bytes */
    size_t name_bytes;
    uint32_t at; /* byte of the pickle */
    lk_pth_storage storage;
    lk_dtype dtype;
    int ndim;
    size_t dims[LK_MAX_DIMS], strides[LK_MAX_DIMS];
    uint64_t offset; /* elements */
    size_t bytes;    /* once contiguous */
    size_t order;    /* in the state */
} lk_pth_tensor;

/* A container that was opened. */
typedef struct lk_pth_reader {
    const lk_pickle *pickle;
    uint64_t file_bytes;
    void *self;
    /* Finds the storage and sets its place; FORMAT unless it has its bytes. */
    lk_status (*locate)(void *self, lk_pth_storage *storage);
    /* All of its bytes. */
    lk_status (*read)(void *self, const lk_pth_storage *storage, void *out);
} lk_pth_reader;

/* What a pickle of torch.save may refer to. */
extern const lk_pickle_global lk__pth_globals[];

/* The storage that a LK_PICKLE_PERSISTENT stands for. */
lk_status lk__pth_storage(const lk_pickle *pickle, const lk_pickle_value *value, lk_pth_storage *out) LK_CHECKED;

/* The tensors of the state dict in the pickle, in its order; free with lk__mem_free.
 * Their names differ. */
lk_status lk__pth_tensors(const lk_pth_reader *reader, lk_pth_tensor **out, size_t *count) LK_CHECKED;

/* The most bytes that members or tensors of a file of that size may have in all. */
static inline uint64_t lk__pth_most(uint64_t file_bytes)
{
    return (file_bytes < UINT64_MAX >> 5 ? file_bytes * LK_PTH_MOST_TIMES : file_bytes) + LK_PTH_MOST_MORE;
}

/* The pickle's state with its data. */
lk_status lk__pth_load(const lk_pth_reader *reader, lk_state **out) LK_CHECKED;

/* Writes the zip archive. */
lk_status lk__pth_save(const lk_state *state, const char *path) LK_CHECKED;

#endif
