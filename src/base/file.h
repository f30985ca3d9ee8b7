/* file.h - whole files: read at once, written so that they cannot tear; and what
 * other readers of files share. */
#ifndef LK_BASE_FILE_H
#define LK_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Whether text, the name of a file say, ends in `end`. */
bool lk__ends_with(const char *text, const char *end);

/* True for anything but a folder that can be seen at path. */
bool lk__file_exists(const char *path);

/* Opens a regular file for reading, and tells its size. Never waits, as opening a
 * pipe does; NOT_FOUND where there is none, FORMAT for what is no regular file. */
lk_status lk__file_open(const char *path, int *fd, size_t *bytes) LK_CHECKED;

/* Reads up to room bytes through zlib's gzFile, 0 at the end; path is for messages.
 * Damaged data are FORMAT. */
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
 * block that is freed with lk__free. max_bytes bounds the content (after
 * gunzip), 0 means no bound; more is FORMAT, and so is damaged gzip. A size that
 * the file merely claims costs address space at most, no memory. */
lk_status lk__file_read(const char *path, size_t max_bytes, uint8_t **out, size_t *bytes) LK_CHECKED;

/* A file under construction beside its final path. */
typedef struct lk_writer lk_writer;
/* A link is followed: what it points at is written. */
lk_status lk__writer_open(const char *path, lk_writer **out) LK_CHECKED;
lk_status lk__writer_write(lk_writer *writer, const void *data, size_t bytes) LK_CHECKED;
/* Syncs, renames over path, syncs the folder; frees the writer either way. */
lk_status lk__writer_commit(lk_writer *writer) LK_CHECKED;
/* Removes what was written; safe with NULL. */
void lk__writer_abort(lk_writer *writer);

#endif
