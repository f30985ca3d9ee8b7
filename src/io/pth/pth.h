/* pth.h - files of torch.save: a pickle describes the tensors, and storages hold their elements.
 * There are two containers: a zip archive (pth_zip.c) and, up to PyTorch 1.5, a stream
 * (pth_legacy.c). pth_state.c interprets the pickle, pth_load.c loads the tensors' data. */
#ifndef LK_IO_PTH_PTH_H
#define LK_IO_PTH_PTH_H

#include "io/json.h"
#include "io/pth/pickle.h"
#include "io/state_format.h"

/* An element type of PyTorch. */
typedef struct lk_pth_type {
    const char *storage; /* "FloatStorage" */
    const char *name;    /* "float32" */
    int dtype;           /* an lk_dtype; LK_DTYPE_COUNT: not supported */
    size_t size;
} lk_pth_type;

/* The first LK_DTYPE_COUNT rows are the lk_dtypes, in their order. */
extern const lk_pth_type lk__pth_types[];

/* Bytes of the longest key of a storage; PyTorch's keys are numbers. */
enum { LK_PTH_MAX_KEY = 64 };

/* The size of the file bounds the memory for tensors, because a small file could ask for any
 * amount: members of an archive inflate up to 1032-fold, tensors may share a storage, and a stride
 * of 0 repeats elements. All members together, and all tensors together, may have this many times
 * the bytes of the file, plus this many. */
enum { LK_PTH_MOST_TIMES = 16, LK_PTH_MOST_MORE = 1 << 20 };

/* A storage, as the pickle describes it. */
typedef struct lk_pth_storage {
    const char *key; /* text in the pickle, of at most LK_PTH_MAX_KEY bytes */
    size_t key_bytes;
    const lk_pth_type *type;
    uint64_t bytes;
    uint64_t first, count; /* the elements that tensors may use */
    uint64_t position;     /* set by the container: an offset or a member's index */
} lk_pth_storage;

/* A tensor, as the pickle describes it. Its elements are known to be inside its storage, as the
 * pickle describes that. */
typedef struct lk_pth_tensor {
    const char *name; /* text in the pickle, UTF-8 without a zero, at most LK_MAX_TENSOR_NAME bytes */
    size_t name_bytes;
    uint32_t at; /* byte of the pickle, for messages */
    lk_pth_storage storage;
    lk_dtype dtype;
    int ndim;
    size_t dims[LK_MAX_DIMS], strides[LK_MAX_DIMS];
    uint64_t offset; /* in elements */
    size_t bytes;    /* as a contiguous tensor */
    size_t order;    /* index in the state */
} lk_pth_tensor;

/* An open container. */
typedef struct lk_pth_reader {
    const lk_pickle *pickle;
    uint64_t file_bytes;
    void *self;
    /* Finds the storage and sets its position; FORMAT unless the container has all its bytes. */
    lk_status (*locate)(void *self, lk_pth_storage *storage);
    /* Reads all bytes of the storage. */
    lk_status (*read)(void *self, const lk_pth_storage *storage, void *out);
} lk_pth_reader;

/* The globals that a pickle of torch.save may use. */
extern const lk_pickle_global lk__pth_globals[];

/* Reads the storage that a LK_PICKLE_KIND_PERSISTENT stands for. */
lk_status lk__pth_storage(const lk_pickle *pickle, const lk_pickle_value *value, lk_pth_storage *out) LK_CHECKED;
/* Orders storages by their keys; 0: the same storage. */
int lk__pth_storage_compare(const lk_pth_storage *a, const lk_pth_storage *b);

/* The tensors of the state dict in the pickle, in its order, with distinct names; free with
 * lk__mem_free. */
lk_status lk__pth_tensors(const lk_pth_reader *reader, lk_pth_tensor **out, size_t *count) LK_CHECKED;

/* The most bytes that all members or all tensors of a file of this size may have together. */
static inline uint64_t lk__pth_most(uint64_t file_bytes)
{
    return (file_bytes < UINT64_MAX >> 5 ? file_bytes * LK_PTH_MOST_TIMES : file_bytes) + LK_PTH_MOST_MORE;
}

/* Loads the pickle's state with its data. */
lk_status lk__pth_load(const lk_pth_reader *reader, lk_state **out) LK_CHECKED;

/* The member of the archive that has the state's notes, as a JSON object of texts. PyTorch passes it over. */
#define LK_PTH_NOTES "lockstep.json"

/* Writes a zip archive. */
lk_status lk__pth_save(const lk_state *state, const char *path) LK_CHECKED;

#endif
