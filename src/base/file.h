/* file.h - whole files: read at once, written atomically; paths, gzip and temporary names. */
#ifndef LK_BASE_FILE_H
#define LK_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Whether text, such as a file's name, ends in `end`. */
bool lk__path_ends_with(const char *text, const char *end);

/* Length of path without trailing slashes; at least 1 unless path is empty. */
size_t lk__path_length(const char *path);

/* The last part of path, without trailing slashes; *length is its length. Points into path. */
const char *lk__path_last(const char *path, size_t *length);

/* Writes folder/name with one slash between; false if it does not fit. */
bool lk__path_join(const char *folder, const char *name, char *out, size_t room);

/* Whether a folder, or a link to one, exists at path. If not, errno is the reason, or 0 if something else exists there.
 */
bool lk__path_is_folder(const char *path);

/* Whether something other than a folder exists at path. */
bool lk__file_exists(const char *path);

/* Opens a regular file for reading and returns its size. Never blocks on a pipe. NOT_FOUND if
 * nothing is there, FORMAT if it is no regular file. */
lk_status lk__file_open(const char *path, int *fd, size_t *bytes) LK_CHECKED;

/* Reads up to room bytes through zlib's gzFile; *got is 0 at the end. path is for messages. FORMAT
 * for damaged data, IO for a failed read. */
struct gzFile_s;
lk_status lk__gzip_read(struct gzFile_s *gzip, const char *path, void *into, size_t room, size_t *got) LK_CHECKED;

/* What is known about a file without reading its content. */
typedef struct lk_file_outline {
    size_t bytes;
    size_t most; /* upper bound of the content's bytes */
    bool gzip;
    uint32_t tail; /* gzip: bytes of the last member's content, modulo 2^32 */
} lk_file_outline;
lk_status lk__file_outline(const char *path, lk_file_outline *out) LK_CHECKED;

/* Reads all of path into a block that the caller frees with lk__mem_free; gunzips a file that
 * starts with the gzip magic. max_bytes bounds the content after gunzip; 0: no bound. FORMAT for
 * longer content and for damaged gzip. A wrong size in the file costs address space, no memory. */
lk_status lk__file_read(const char *path, size_t max_bytes, uint8_t **out, size_t *bytes) LK_CHECKED;
/* As lk__file_read, but into the caller's block, which has room for max_bytes + 1 bytes. The block's content is
 * undefined after a failure. */
lk_status lk__file_read_into(const char *path, size_t max_bytes, uint8_t *block, size_t *bytes) LK_CHECKED;

/* Writes a temporary name beside path: it starts with ".lk-", differs at each call, and is short
 * because path's own name may have the maximal length. If the name is taken, call again. */
void lk__file_aside(const char *path, char *out, size_t room);
/* Whether a name without its folder is such a temporary name. */
bool lk__file_is_aside(const char *name);

/* Creates a folder and its parents, where they do not exist. IO if path is a file. */
lk_status lk__folder_make(const char *path) LK_CHECKED;
/* Makes the names in a folder durable. OK also if the file system cannot do this or the folder
 * cannot be read. */
lk_status lk__folder_sync(const char *folder) LK_CHECKED;
/* lk__folder_sync for the folder that contains path. */
lk_status lk__folder_sync_around(const char *path) LK_CHECKED;

/* A file that is being written beside its final path. */
typedef struct lk_writer lk_writer;
/* Begins to write path, in a temporary file beside it. A link is followed: its target is written. The caller owns *out
 * until it commits or aborts it. */
lk_status lk__writer_open(const char *path, lk_writer **out) LK_CHECKED;
/* Creates a new file under its final name, inside a folder that is itself temporary. Nothing may
 * exist there; commit syncs only the file. */
lk_status lk__writer_create(const char *path, lk_writer **out) LK_CHECKED;
lk_status lk__writer_write(lk_writer *writer, const void *data, size_t bytes) LK_CHECKED;
/* Bytes written so far, and their hash, computed from the caller's memory. */
uint64_t lk__writer_bytes(const lk_writer *writer);
uint64_t lk__writer_hash(const lk_writer *writer);
/* Syncs, renames to path, syncs the folder. Frees the writer, also on failure. */
lk_status lk__writer_commit(lk_writer *writer) LK_CHECKED;
/* Removes what was written and frees the writer; NULL is allowed. */
void lk__writer_abort(lk_writer *writer);

/* Writes a whole file with an lk_writer: path has the old content or the new one, never a part. */
lk_status lk__file_replace(const char *path, const void *data, size_t bytes) LK_CHECKED;

#endif
