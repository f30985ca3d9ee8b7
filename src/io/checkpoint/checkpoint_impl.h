/* checkpoint_impl.h - what the files of checkpoints share: the object, and what
 * checkpoint.json says about the two files beside it. */
#ifndef LK_IO_CHECKPOINT_CHECKPOINT_IMPL_H
#define LK_IO_CHECKPOINT_CHECKPOINT_IMPL_H

#include "io/checkpoint/checkpoint.h"
#include "io/io.h"

enum { LK_MAX_NOTES = 4096 };

/* The two files with tensors, in this order everywhere. */
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

/* A tensor of a part; entry has no data, and its name is borrowed. */
typedef struct lk_manifest_tensor {
    lk_state_entry entry;
    uint64_t hash; /* lk__manifest_tensor_hash */
} lk_manifest_tensor;

typedef struct lk_manifest_part {
    uint64_t bytes, hash;        /* of the file */
    lk_manifest_tensor *tensors; /* (count) in the order of the file */
    size_t count;
    uint64_t data; /* bytes of the tensors, which end the file */
} lk_manifest_part;

/* What checkpoint.json says. */
typedef struct lk_manifest {
    struct cJSON *root; /* has the names of the tensors; NULL where these are a state's */
    lk_manifest_part parts[LK_PARTS];
    uint64_t bytes; /* of the file itself */
} lk_manifest;
void lk__manifest_fini(lk_manifest *manifest);

/* Hash of a tensor's name, type, shape and bytes: this is the seed for the bytes. */
uint64_t lk__manifest_tensor_seed(const lk_state_entry *entry);
uint64_t lk__manifest_tensor_hash(const lk_state_entry *entry);

/* folder/name; USAGE where it does not fit. */
lk_status lk__checkpoint_join(const char *folder, const char *name, char out[LK_CHECKPOINT_PATH]) LK_CHECKED;

/* The text of checkpoint.json, for lk__mem_free. */
lk_status lk__manifest_make(const lk_checkpoint *checkpoint, const lk_manifest_part parts[LK_PARTS], char **text,
                            size_t *bytes) LK_CHECKED;
/* Reads folder's. Its notes go into `notes`, which may be NULL. */
lk_status lk__manifest_read(const char *folder, lk_manifest *out, lk_checkpoint *notes) LK_CHECKED;

/* FORMAT unless the file is what sum says; reads all of it. */
lk_status lk__manifest_part_check(const lk_state_source *in, const lk_manifest_part *sum) LK_CHECKED;

/* Verifies a part; out gets its state unless it is NULL. */
lk_status lk__checkpoint_read_part(const char *folder, int part, const lk_manifest_part *sum,
                                   lk_state **out) LK_CHECKED;

/* Calls each with every name in dir but "." and "..", and dir's descriptor. */
typedef lk_status (*lk_checkpoint_folder_fn)(void *arg, int folder, const char *name);
lk_status lk__checkpoint_folder_each(const char *dir, lk_checkpoint_folder_fn each, void *arg) LK_CHECKED;

/* Where the checkpoint at path goes while another one takes its place in two moves;
 * false where its name is too long for that. */
bool lk__checkpoint_was(const char *path, char out[LK_CHECKPOINT_PATH]);
/* Undoes the first of the two where the second did not come: as lk__checkpoint_mend,
 * for one checkpoint. */
lk_status lk__checkpoint_put_back(const char *path) LK_CHECKED;

/* USAGE if a folder has anything that a checkpoint does not have. */
lk_status lk__checkpoint_check_remains(const char *folder) LK_CHECKED;

/* Removes a file; arg is the path of its folder, for messages. */
lk_status lk__checkpoint_folder_remove_file(void *arg, int folder, const char *name) LK_CHECKED;
/* Removes a folder and the files in it; folders in it are not touched, and then it
 * stays. One that is not there is fine. */
lk_status lk__checkpoint_folder_remove(const char *folder) LK_CHECKED;

#endif
