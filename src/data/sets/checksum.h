/* checksum.h - compares MD5 and SHA-256 of files with published sums.
 *
 * libcrypto computes the sums; without it everything here is UNSUPPORTED. */
#ifndef LK_DATA_SETS_CHECKSUM_H
#define LK_DATA_SETS_CHECKSUM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* The published size and sums of a file; NULL: unknown. */
typedef struct lk_checksum_published {
    size_t bytes;
    const char *md5, *sha256; /* lower-case hexadecimal digits */
} lk_checksum_published;

enum { LK_MD5_TEXT = 33, LK_SHA256_TEXT = 65 };
typedef struct lk_checksum_pair {
    size_t bytes;
    char md5[LK_MD5_TEXT], sha256[LK_SHA256_TEXT];
} lk_checksum_pair;

/* UNSUPPORTED, with the package to install, in a build without libcrypto. */
lk_status lk__checksum_available(void) LK_CHECKED;

typedef struct lk_checksum lk_checksum;
lk_status lk__checksum_create(lk_checksum **out) LK_CHECKED;
lk_status lk__checksum_add(lk_checksum *sum, const void *data, size_t bytes) LK_CHECKED;
/* The sums of everything added; nothing can be added afterwards. */
lk_status lk__checksum_finish(lk_checksum *sum, lk_checksum_pair *out) LK_CHECKED;
void lk__checksum_destroy(lk_checksum *sum);

/* The sums of a file's bytes or, with content, of the inflated content of a gzip file; FORMAT for
 * damaged gzip. Reads at most `most` + 1 bytes of content, so that a wrong file costs no more than
 * a correct one. */
lk_status lk__checksum_file(const char *path, bool content, size_t most, lk_checksum_pair *out) LK_CHECKED;

/* MISMATCH, with path, expected and found values, if they differ. */
lk_status lk__checksum_check(const char *path, const lk_checksum_pair *found,
                             const lk_checksum_published *expected) LK_CHECKED;

#endif
