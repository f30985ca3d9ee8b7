/* scratch.h - a folder in memory for the files of a fuzzer. Each process has one, which is removed at exit. */
#ifndef LK_TESTS_FUZZ_SCRATCH_H
#define LK_TESTS_FUZZ_SCRATCH_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { SCRATCH_PATH = 128, SCRATCH_FILES = 16 };

static char scratch_folder[SCRATCH_PATH];
static char scratch_files[SCRATCH_FILES][SCRATCH_PATH];
static size_t scratch_count;

static inline void require(bool condition)
{
    if (!condition)
        abort();
}

/* Removes the files that were written since the last call. */
static inline void scratch_clear(void)
{
    while (scratch_count > 0)
        unlink(scratch_files[--scratch_count]);
}

static inline void scratch_remove(void)
{
    scratch_clear();
    rmdir(scratch_folder);
}

static inline const char *scratch_open(void)
{
    if (scratch_folder[0])
        return scratch_folder;
    snprintf(scratch_folder, sizeof scratch_folder, "%s/lk-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    require(mkdtemp(scratch_folder) != NULL);
    atexit(scratch_remove);
    return scratch_folder;
}

/* Writes the bytes to a file of the folder and returns its path. */
static inline const char *scratch_put(const char *name, const void *bytes, size_t count)
{
    require(scratch_count < SCRATCH_FILES);
    char *path = scratch_files[scratch_count++];
    require(snprintf(path, SCRATCH_PATH, "%s/%s", scratch_open(), name) < SCRATCH_PATH);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    require(fd >= 0 && write(fd, bytes, count) == (ssize_t)count && close(fd) == 0);
    return path;
}

/* scratch_put of a gzip file without compression: deflate itself is not under test. */
static inline const char *scratch_put_gzip(const char *name, const void *bytes, size_t count)
{
    const char *path = scratch_put(name, "", 0);
    gzFile file = gzopen(path, "wb0");
    require(file != NULL && (count == 0 || gzwrite(file, bytes, (unsigned)count) == (int)count));
    require(gzclose(file) == Z_OK);
    return path;
}

#endif
