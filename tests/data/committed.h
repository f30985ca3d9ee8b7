/* committed.h - copies the images of tests/data/images into folders of tests. */
#ifndef LK_TESTS_DATA_COMMITTED_H
#define LK_TESTS_DATA_COMMITTED_H

#include "base/file.h"
#include "base/mem.h"
#include "data/fixture.h"

#define IMAGES LK_TESTS_DIR "/data/images"

/* Copies one of the committed images to folder/to. */
static inline void copy(const folder *f, const char *from, const char *to)
{
    char path[512];
    uint8_t *bytes;
    size_t count;
    snprintf(path, sizeof path, IMAGES "/%s", from);
    assert_ok(lk__file_read(path, 0, &bytes, &count));
    put(f, to, bytes, count);
    lk__mem_free(bytes);
}

#endif
