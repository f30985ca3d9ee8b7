/* fixture.h - a temporary folder of a test, and files in it, plain or gzipped. */
#ifndef LK_TESTS_DATA_FIXTURE_H
#define LK_TESTS_DATA_FIXTURE_H

#include <sys/stat.h>
#include <zlib.h>

#include "check.h"
#include "temp_folder.h"

typedef struct folder {
    char path[TEMP_FOLDER_BYTES];
} folder;

static inline folder folder_create(void)
{
    folder f;
    temp_folder_create(f.path);
    return f;
}

static inline void folder_destroy(const folder *f)
{
    temp_folder_remove(f->path);
}

/* Writes folder/name; a name ending in .gz is gzipped. */
static inline void put(const folder *f, const char *name, const void *data, size_t bytes)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", f->path, name);
    for (char *slash = strchr(path + strlen(f->path) + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    size_t length = strlen(name);
    bool gzip = length > 3 && strcmp(name + length - 3, ".gz") == 0;
    gzFile file = gzopen(path, gzip ? "wb" : "wbT");
    assert_non_null(file);
    if (bytes > 0)
        assert_int_equal(gzwrite(file, data, (unsigned)bytes), (int)bytes);
    assert_int_equal(gzclose(file), Z_OK);
}

/* Truncates folder/name to this many bytes. */
static inline void cut(const folder *f, const char *name, size_t bytes)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", f->path, name);
    assert_int_equal(truncate(path, (off_t)bytes), 0);
}

#endif
