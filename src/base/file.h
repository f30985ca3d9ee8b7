/* file.h - whole files: read at once, written so that they cannot tear; and what
 * other readers of files share. */
#ifndef LK_BASE_FILE_H
#define LK_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Whether text, the name of a file say, ends in `end`. */
bool lk__path_ends_with(const char *text, const char *end);

/* folder/name, with one slash between; false where it does not fit. */
bool lk__path_join(const char *folder, const char *name, char *out, size_t room);

/* True for anything but a folder that can be seen at path. */
bool lk__file_exists(const char *path);

/* Opens a regular file for reading, and tells its size. Never waits, as opening a
 * pipe does; NOT_FOUND where there is none, FORMAT for what is no regular file. */
lk_status lk__file_open(const char *path, int *fd, size_t *bytes) LK_CHECKED;

/* Reads up to room bytes through zlib's gzFile, 0 at the end; path is for messages.
 * Damaged data are FORMAT, what cannot be read is IO. */
struct gzFile_s;
lk_status lk__gzip_read(struct gzFile_s *gzip, const char *path, void *into, size_t room, size_t *got) LK_CHECKED;

/* What can be told about a file without reading it. */
typedef struct lk_file_outline {
    size_t bytes;
    size_t most; /* that its content can have */
    bool gzip;
    uint32_t tail; /* gzip: the length of its last member's content, modulo 2^32 */
} lk_file_outline;
lk_status lk__file_outline(const char *path, lk_file_outline *out) LK_CHECKED;

/* Reads all of path, through gunzip when it starts with the gzip magic, into a
 * block that is freed with lk__mem_free. max_bytes bounds the content (after
 * gunzip), 0 means no bound; more is FORMAT, and so is damaged gzip. A size that
 * the file merely claims costs address space at most, no memory. */
lk_status lk__file_read(const char *path, size_t max_bytes, uint8_t **out, size_t *bytes) LK_CHECKED;

/* A name that starts with ".lk-" beside path, another one at each call: short, as
 * path's own name may be as long as names can be. Something may have that name
 * already: then ask again. */
void lk__file_aside(const char *path, char *out, size_t room);
/* Whether a name, without its folder, is of those. */
bool lk__file_is_aside(const char *name);

/* Makes names in a folder durable. A file system that cannot do that, or a folder
 * that may not be read, is fine. */
lk_status lk__folder_sync(const char *folder) LK_CHECKED;
/* The same for the folder that path is in. */
lk_status lk__folder_sync_around(const char *path) LK_CHECKED;

/* A file under construction beside its final path. */
typedef struct lk_writer lk_writer;
/* A link is followed: what it points at is written. */
lk_status lk__writer_open(const char *path, lk_writer **out) LK_CHECKED;
/* A new file that has its final name at once, for a folder that is made aside
 * itself: nothing may be there, and committing syncs the file alone. */
lk_status lk__writer_create(const char *path, lk_writer **out) LK_CHECKED;
lk_status lk__writer_write(lk_writer *writer, const void *data, size_t bytes) LK_CHECKED;
/* How much was written so far, and its hash, taken from the caller's memory. */
uint64_t lk__writer_bytes(const lk_writer *writer);
uint64_t lk__writer_hash(const lk_writer *writer);
/* Syncs, renames over path, syncs the folder; frees the writer either way. */
lk_status lk__writer_commit(lk_writer *writer) LK_CHECKED;
/* Removes what was written; safe with NULL. */
void lk__writer_abort(lk_writer *writer);

#endif
