/* checkpoint_impl.h - shared by the files of checkpoints: the object, and the manifest in
 * checkpoint.json, which describes the two files with tensors. */
#ifndef LK_IO_CHECKPOINT_CHECKPOINT_IMPL_H
#define LK_IO_CHECKPOINT_CHECKPOINT_IMPL_H

#include "io/checkpoint/checkpoint.h"
#include "io/json.h"
#include "io/state_source.h"

enum { LK_MAX_NOTES = 4096 };

/* The two files with tensors, always in this order. */
enum { LK_PART_MODEL, LK_PART_OPTIMIZER, LK_PARTS };
extern const char *const lk__checkpoint_parts[LK_PARTS];

typedef struct lk_checkpoint_note_pair {
    char *name, *text;
} lk_checkpoint_note_pair;

struct lk_checkpoint {
    lk_state *states[LK_PARTS];
    lk_checkpoint_note_pair *notes; /* (capacity) */
    size_t count, capacity;
};

/* A tensor of a part. entry has no data; its name is borrowed. */
typedef struct lk_manifest_tensor {
    lk_state_entry entry;
    uint64_t hash; /* by lk__state_entry_hash */
} lk_manifest_tensor;

typedef struct lk_manifest_part {
    uint64_t bytes, hash;        /* of the file */
    lk_manifest_tensor *tensors; /* (count) in the order of the file */
    size_t count;
    uint64_t data; /* bytes of all tensors, at the end of the file */
} lk_manifest_part;

/* The contents of checkpoint.json. */
typedef struct lk_manifest {
    struct cJSON *root; /* owns the names of the tensors; NULL if a state owns them */
    lk_manifest_part parts[LK_PARTS];
    uint64_t bytes; /* of checkpoint.json */
} lk_manifest;
void lk__manifest_fini(lk_manifest *manifest);

/* Writes folder/name; USAGE if it does not fit. */
lk_status lk__checkpoint_join(const char *folder, const char *name, char out[LK_CHECKPOINT_PATH]) LK_CHECKED;

/* Makes the text of checkpoint.json; free with lk__mem_free. */
lk_status lk__manifest_make(const lk_checkpoint *checkpoint, const lk_manifest_part parts[LK_PARTS], char **text,
                            size_t *bytes) LK_CHECKED;
/* Reads checkpoint.json of folder. Adds its notes to `notes`, which may be NULL. */
lk_status lk__manifest_read(const char *folder, lk_manifest *out, lk_checkpoint *notes) LK_CHECKED;

/* FORMAT unless the file is as sum says. Reads the whole file. */
lk_status lk__manifest_part_check(const lk_state_source *in, const lk_manifest_part *sum) LK_CHECKED;

/* Verifies a part; loads its state unless out is NULL. */
lk_status lk__checkpoint_read_part(const char *folder, int part, const lk_manifest_part *sum,
                                   lk_state **out) LK_CHECKED;

/* Calls each(arg, dir's descriptor, name) for every name in dir except "." and "..". */
typedef lk_status (*lk_checkpoint_folder_fn)(void *arg, int folder, const char *name);
lk_status lk__checkpoint_folder_each(const char *dir, lk_checkpoint_folder_fn each, void *arg) LK_CHECKED;

/* The temporary name of the checkpoint at path while another one replaces it by two renames; false
 * if its name is too long for that. */
bool lk__checkpoint_was(const char *path, char out[LK_CHECKPOINT_PATH]);
/* lk__checkpoint_mend for one checkpoint: undoes the first rename if the second did not happen. */
lk_status lk__checkpoint_put_back(const char *path) LK_CHECKED;

/* USAGE if the folder contains anything that is not part of a checkpoint. */
lk_status lk__checkpoint_check_remains(const char *folder) LK_CHECKED;

/* Removes a file; arg is the path of its folder, for messages. */
lk_status lk__checkpoint_folder_remove_file(void *arg, int folder, const char *name) LK_CHECKED;
/* Removes a folder and its files. A folder inside it is not removed; then both stay. A missing
 * folder is no error. */
lk_status lk__checkpoint_folder_remove(const char *folder) LK_CHECKED;

#endif
