/* store.h - memory that the processes of a host share for the contents of data files.
 *
 * Each file has a block of the store. The first process that needs the file reads it into the block; the others wait
 * for it and map the same pages. If the reading process dies or fails, the next one reads the file, so every process
 * gets the content or the file's own error. The memory has no name, and the kernel frees it with its last process. */
#ifndef LK_DATA_SETS_STORE_H
#define LK_DATA_SETS_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct lk_store lk_store;

/* What identifies a file on a host, and the bytes of its content. */
typedef struct lk_store_key {
    uint64_t device, inode, size, seconds, nanoseconds, bytes;
} lk_store_key;
/* Returns the key of a file whose content has `bytes` bytes; all zero if the file is not found, which equals no file of
 * a store. */
lk_store_key lk__store_key(const char *path, size_t bytes);

/* How another process opens the store. All zero: there is none. */
typedef struct lk_store_offer {
    int64_t pid, fd;
    uint64_t device, inode, bytes;
} lk_store_offer;

enum { LK_STORE_MAX_FILES = 16 };

/* Makes a store for the files (count <= LK_STORE_MAX_FILES). */
lk_status lk__store_create(const lk_store_key *keys, size_t count, lk_store **out) LK_CHECKED;
lk_store_offer lk__store_offer(const lk_store *store);
/* Maps the store of another process of this host; IO if that is impossible. */
lk_status lk__store_open(const lk_store_offer *offer, lk_store **out) LK_CHECKED;
/* Contents are valid until then. */
void lk__store_destroy(lk_store *store);

/* Reads a file into `block`, which has room for the content and one byte more. */
typedef lk_status (*lk_store_read_fn)(void *arg, uint8_t *block);
/* *out is the content, read by this process or another one; it is borrowed and read-only. NULL: the store has no block
 * for the file, or the process that reads it was stopped for too long; the caller then needs a block of its own.
 * Blocks. Any thread may call. */
lk_status lk__store_get(lk_store *store, const lk_store_key *key, lk_store_read_fn read, void *arg,
                        const uint8_t **out) LK_CHECKED;
/* The hash of a content that lk__store_get has given; one process computes it for all. Blocks. Any thread may call. */
uint64_t lk__store_hash(lk_store *store, const lk_store_key *key);

#endif
