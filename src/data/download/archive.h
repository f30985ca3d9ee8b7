/* archive.h - extracts known members from a .tar.gz.
 *
 * Names in the archive are only compared with the wanted names: no path from a file is ever written
 * to. */
#ifndef LK_DATA_DOWNLOAD_ARCHIVE_H
#define LK_DATA_DOWNLOAD_ARCHIVE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct lk_archive_member {
    const char *name; /* its name in the archive: "cifar-100-binary/test.bin" */
    size_t bytes;     /* its expected size */
} lk_archive_member;

enum { LK_ARCHIVE_MAX_MEMBERS = 16 };

/* Receives the members in the order of the archive. A failure ends the reading and is returned.
 * begin is called for each member, then write for its bytes in pieces, then end, but only for
 * complete members. */
typedef struct lk_archive_sink {
    void *arg;
    lk_status (*begin)(void *arg, size_t member);
    lk_status (*write)(void *arg, const uint8_t *data, size_t bytes);
    lk_status (*end)(void *arg, size_t member);
} lk_archive_sink;

/* Reads the archive to its end. FORMAT, with file and byte, if gzip or tar is damaged, if a wanted
 * member is missing, repeated, of another size or no regular file, or if the archive has far more
 * than the wanted members. */
lk_status lk__archive_read(const char *path, const lk_archive_member *members, size_t count,
                           const lk_archive_sink *sink) LK_CHECKED;

#endif
