/* state.h - a state dict: named host tensors in a fixed order.
 *
 * Names, shapes and element order are PyTorch's (a convolution weight is
 * O,I,H,W), so a state can be exchanged with it file by file.
 *
 * Threads: a state has no lock. Several threads may read, save, hash or compare one at
 * the same time as long as none changes it (lk_state_add, lk_state_destroy, or what
 * lk_state_entry.data points to). Different states are independent. */
#ifndef LOCKSTEP_STATE_H
#define LOCKSTEP_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LK_MAX_DIMS 8
/* Bytes of the longest name of a tensor. */
#define LK_MAX_TENSOR_NAME 1024

typedef enum lk_dtype {
    LK_DTYPE_F32,
    LK_DTYPE_F64,
    LK_DTYPE_BF16,
    LK_DTYPE_F16,
    LK_DTYPE_I64,
    LK_DTYPE_I32,
    LK_DTYPE_U8,
    LK_DTYPE_COUNT
} lk_dtype;

/* How values are computed. Parameters, their gradients and all sums over samples
 * are f32 in each. */
typedef enum lk_precision {
    LK_PRECISION_FP32,
    LK_PRECISION_TF32, /* products of matrices round their inputs to 11 bits; GPUs only */
    LK_PRECISION_BF16  /* activations and their gradients, and the weights they meet, are bf16; GPUs only */
} lk_precision;

/* Bytes of one element. */
size_t lk_dtype_size(lk_dtype dtype);
/* Short lower-case name: "f32", "i64", ... */
const char *lk_dtype_name(lk_dtype dtype);

typedef struct lk_state_entry {
    char *name;
    lk_dtype dtype;
    int ndim;
    size_t dims[LK_MAX_DIMS];
    size_t bytes; /* product of dims times element size */
    void *data;   /* host memory, row-major */
} lk_state_entry;

typedef struct lk_state lk_state;

lk_status lk_state_create(lk_state **out) LK_CHECKED;
void lk_state_destroy(lk_state *state);

/* Appends an entry with zeroed data and returns it for filling. The pointer is
 * borrowed and valid until the next add. A duplicate name is MISMATCH, one of more
 * than LK_MAX_TENSOR_NAME bytes USAGE. */
lk_status lk_state_add(lk_state *state, const char *name, lk_dtype dtype, int ndim, const size_t *dims,
                       lk_state_entry **out) LK_CHECKED;

size_t lk_state_count(const lk_state *state);
const lk_state_entry *lk_state_at(const lk_state *state, size_t index);
/* NULL when there is no such name. */
const lk_state_entry *lk_state_find(const lk_state *state, const char *name);

/* A hash of names, types, shapes and bytes, whatever the order of the entries:
 * a state and its saved and reloaded copy hash alike, on every machine. */
uint64_t lk_state_hash(const lk_state *state);

/* Writes what torch.save writes of a state dict where path ends in .pth or .pt, and
 * safetensors where it ends in .safetensors or has no ending; USAGE, which lists these,
 * for any other ending. The same state gives the same bytes. Writes aside, syncs and
 * renames, so path holds either its old content or the whole new one. */
lk_status lk_state_save(const lk_state *state, const char *path) LK_CHECKED;

/* Reads .safetensors and files of torch.save, old and new, whichever path's
 * content is. Nothing in a file is executed: objects other than tensors and plain
 * data are FORMAT. Of a checkpoint, the state is the dict that it has under
 * "state_dict", "model_state_dict", "model" or "net", in this order, else its own
 * tensors; what is beside it is left out. Names are those of the file (see
 * lk_state_strip). A folder that is a checkpoint (checkpoint.h) gives its model,
 * verified. What a file costs is bounded by its size; a lack of memory is MEMORY,
 * never FORMAT. */
lk_status lk_state_load(const char *path, lk_state **out) LK_CHECKED;

/* Removes prefix from all names where every name starts with it, and returns
 * whether that is so; else, and in an empty state, nothing is changed. For
 * "module.", which DataParallel and DistributedDataParallel of PyTorch put before
 * every name: the commands that load a model or compare models remove it, `convert`
 * and `info` keep it. */
bool lk_state_strip(lk_state *state, const char *prefix);

/* Called once per difference, with one sentence without a newline. */
typedef void (*lk_difference_fn)(void *arg, const char *key, const char *what);

/* Compares by bits; report may be NULL. Returns the number of keys that differ,
 * are missing on one side or have another shape or type. */
size_t lk_state_compare(const lk_state *a, const lk_state *b, lk_difference_fn report, void *arg);

#ifdef __cplusplus
}
#endif
#endif
