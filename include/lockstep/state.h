/* state.h - a state dict: named host tensors in a fixed order.
 *
 * Names, shapes and element order are those of PyTorch (a convolution weight is O,I,H,W), so
 * files of states can be exchanged with PyTorch.
 *
 * Threads: a state has no lock. Several threads may read, save, hash or compare a state at the
 * same time, as long as no thread changes it (lk_state_add, lk_state_strip, lk_state_set_note, lk_state_destroy, or
 * writing to lk_state_entry.data). Different states are independent.
 *
 * Lifetimes: a state owns its entries and notes. What is borrowed from it ends with lk_state_destroy. */
#ifndef LOCKSTEP_STATE_H
#define LOCKSTEP_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

LK_API_BEGIN

#define LK_MAX_DIMS 8
/* The largest length of a tensor's name, in bytes. */
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

/* The precision of computations. With each value, parameters, their gradients and all sums over
 * samples are f32. */
typedef enum lk_precision {
    LK_PRECISION_FP32,
    LK_PRECISION_TF32,     /* matrix products round their inputs to 11 significant bits; GPUs only */
    LK_PRECISION_BF16,     /* factors of the products of convolutions and linear layers are rounded to bf16; on CPUs not
                            * those of depthwise convolutions. On GPUs activations and their gradients are bf16, too */
    LK_PRECISION_TF32CONV, /* tf32 in convolutions, fp32 in all other products, as in PyTorch by default; GPUs only */
    LK_PRECISION_AUTO      /* the default of `lockstep train`: tf32conv on GPUs, fp32 on the CPU */
} lk_precision;

/* Bytes of one element. */
size_t lk_dtype_size(lk_dtype dtype);
/* The name in lower case: "f32", "i64", ... */
const char *lk_dtype_name(lk_dtype dtype);

/* A tensor of a state. The state owns name and data. */
typedef struct lk_state_entry {
    char *name;
    lk_dtype dtype;
    int ndim;
    size_t dims[LK_MAX_DIMS];
    size_t bytes; /* product of dims times element size */
    void *data;   /* host memory, row-major */
} lk_state_entry;

typedef struct lk_state lk_state;

/* Creates a state without entries; the caller owns *out. */
lk_status lk_state_create(lk_state **out) LK_CHECKED;
void lk_state_destroy(lk_state *state);

/* Appends an entry whose data are zero; the caller fills it. dims may be NULL if ndim is 0. *out is borrowed and valid
 * until the next lk_state_add. MISMATCH: the state has an entry of this name. USAGE: the name is longer than
 * LK_MAX_TENSOR_NAME, the type is unknown, or ndim is not in 0 to LK_MAX_DIMS. MEMORY also if the data would be larger
 * than the address space. */
lk_status lk_state_add(lk_state *state, const char *name, lk_dtype dtype, int ndim, const size_t *dims,
                       lk_state_entry **out) LK_CHECKED;

/* The number of entries. */
size_t lk_state_count(const lk_state *state);
/* Entry `index`, counted from 0, borrowed; NULL after the last. */
const lk_state_entry *lk_state_at(const lk_state *state, size_t index);
/* The entry of this name, borrowed; NULL if there is none. */
const lk_state_entry *lk_state_find(const lk_state *state, const char *name);

/* Notes are texts about a state: name and text, in the order in which they were first set. Files in the
 * format of safetensors keep them in "__metadata__", under "lockstep." and the name, and those of
 * torch.save in a member "lockstep.json" of the archive, which PyTorch passes over. Notes do not
 * belong to the hash or to comparisons.
 *
 * Sets the text of a note; both strings are copied. USAGE if they are not UTF-8, the name is empty, or
 * the state has LK_MAX_STATE_NOTES other notes. */
#define LK_MAX_STATE_NOTES 64
lk_status lk_state_set_note(lk_state *state, const char *name, const char *text) LK_CHECKED;
/* The text of a note, borrowed until the note is set again; NULL if there is no such note. */
const char *lk_state_note(const lk_state *state, const char *name);
/* The name of note `index`, counted from 0; NULL after the last. */
const char *lk_state_note_name(const lk_state *state, size_t index);

/* A hash of names, types, shapes and bytes. It does not depend on the order of the entries or on
 * the machine: a state that was saved and loaded has the same hash. */
uint64_t lk_state_hash(const lk_state *state);

/* Saves a state. The ending of path selects the format: .pth and .pt select the format of torch.save;
 * .safetensors, or no ending, selects safetensors; any other ending is USAGE. Equal states with equal notes give equal
 * files. Writes a temporary file, syncs it and renames it: path has either its old content or the complete new one.
 * Blocks until the file is synced to the disk. USAGE also for names of tensors that the format cannot hold (not UTF-8).
 * NOT_FOUND: the folder does not exist. IO: the file cannot be written. */
lk_status lk_state_save(const lk_state *state, const char *path) LK_CHECKED;

/* Loads a state; the caller owns *out. The format is recognised by the content: safetensors, the
 * zip format and the older format of torch.save, or a checkpoint folder (checkpoint.h), whose model
 * is verified and returned.
 *
 * If a torch.save file holds a dict with several objects, the state is its member "state_dict",
 * "model_state_dict", "model" or "net" (the first of these that exists), else the tensors of the
 * dict itself; the other objects are ignored. Names are those of the file (see lk_state_strip).
 * No code of a file is executed: objects other than tensors and plain data are FORMAT. Time and
 * memory are bounded by the size of the file. A lack of memory is MEMORY, never FORMAT.
 *
 * NOT_FOUND: there is no such file. IO: it cannot be read. FORMAT: it is damaged, or of no known format; the detail
 * names the byte or tensor. USAGE: path is a folder of runs or of checkpoints; the detail names one of them.
 * UNSUPPORTED: a file of torch.save in a build without libzip, or a checkpoint of a later version. */
lk_status lk_state_load(const char *path, lk_state **out) LK_CHECKED;

/* If every name starts with `prefix`, removes the prefix from all names and returns true. Otherwise,
 * and for an empty state, changes nothing and returns false. PyTorch's DataParallel and
 * DistributedDataParallel put "module." before every name: the commands that load or compare models
 * remove that prefix, `convert` and `info` keep it. */
bool lk_state_strip(lk_state *state, const char *prefix);

/* Called once for each key that differs; `what` is a sentence without a newline. */
typedef void (*lk_difference_fn)(void *arg, const char *key, const char *what);

/* Compares two states bit by bit; report may be NULL. Returns the number of keys that differ in
 * data, shape or type, or exist in only one of the states. */
size_t lk_state_compare(const lk_state *a, const lk_state *b, lk_difference_fn report, void *arg);

LK_API_END
#endif
