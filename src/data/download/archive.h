/* archive.h - known members out of a .tar.gz.
 *
 * Names in an archive are compared with those that are wanted and used for
 * nothing else: no path from a file is ever written to. */
#ifndef LK_DATA_DOWNLOAD_ARCHIVE_H
#define LK_DATA_DOWNLOAD_ARCHIVE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct lk_archive_member {
    const char *name; /* as it is in the archive: "cifar-100-binary/test.bin" */
    size_t bytes;     /* what it must have */
} lk_archive_member;

enum { LK_ARCHIVE_MAX_MEMBERS = 16 };

/* Takes the members in the order in which they come; any failure ends the
 * reading and is passed on. For each member begin, then write for its bytes in
 * pieces, then end, which is called for whole members only. */
typedef struct lk_archive_sink {
    void *arg;
    lk_status (*begin)(void *arg, size_t member);
    lk_status (*write)(void *arg, const uint8_t *data, size_t bytes);
    lk_status (*end)(void *arg, size_t member);
} lk_archive_sink;

/* Reads the archive to its end. FORMAT, with file and byte, where gzip or tar is
 * damaged, where a wanted member is missing, is there twice, has another size or
 * is no regular file, and where far more is in it than is wanted. */
lk_status lk__archive_read(const char *path, const lk_archive_member *members, size_t count,
                           const lk_archive_sink *sink) LK_CHECKED;

#endif
