/* tar.h - builds tar archives in memory, correct and malformed ones. */
#ifndef LK_TESTS_DATA_TAR_H
#define LK_TESTS_DATA_TAR_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { TAR_BLOCK = 512, TAR_ROOM = 1 << 18 };

typedef struct tar {
    uint8_t bytes[TAR_ROOM];
    size_t used;
} tar;

/* Updates the checksum of a header. */
static inline void tar_seal(uint8_t *header)
{
    unsigned sum = 0;
    memset(header + 148, ' ', 8);
    for (size_t i = 0; i < TAR_BLOCK; i++)
        sum += header[i];
    snprintf((char *)header + 148, 8, "%06o", sum);
}

/* Adds a header without data and returns it. */
static inline uint8_t *tar_header(tar *t, const char *name, char type, size_t bytes)
{
    uint8_t *header = t->bytes + t->used;
    memset(header, 0, TAR_BLOCK);
    snprintf((char *)header, 100, "%s", name);
    snprintf((char *)header + 100, 8, "%07o", 0644u);
    snprintf((char *)header + 124, 12, "%011zo", bytes);
    header[156] = (uint8_t)type;
    memcpy(header + 257,
           "ustar\0"
           "00",
           8);
    tar_seal(header);
    t->used += TAR_BLOCK;
    return header;
}

static inline uint8_t *tar_add(tar *t, const char *name, const void *data, size_t bytes)
{
    uint8_t *header = tar_header(t, name, '0', bytes);
    size_t padded = (bytes + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
    memset(t->bytes + t->used, 0, padded);
    memcpy(t->bytes + t->used, data, bytes);
    t->used += padded;
    return header;
}

static inline void tar_end(tar *t)
{
    memset(t->bytes + t->used, 0, 2 * TAR_BLOCK);
    t->used += 2 * TAR_BLOCK;
}

#endif
