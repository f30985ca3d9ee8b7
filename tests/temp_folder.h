/* temp_folder.h - a temporary folder of one test, in $TMPDIR or /tmp. */
#ifndef LK_TESTS_TEMP_FOLDER_H
#define LK_TESTS_TEMP_FOLDER_H

#include <dirent.h>

#include "check.h"

enum { TEMP_FOLDER_BYTES = 256 };

static inline void temp_folder_create(char path[TEMP_FOLDER_BYTES])
{
    const char *base = getenv("TMPDIR");
    int length = snprintf(path, TEMP_FOLDER_BYTES, "%s/lockstep-test-XXXXXX", base && *base ? base : "/tmp");
    assert_true(length < TEMP_FOLDER_BYTES);
    assert_non_null(mkdtemp(path));
}

/* Removes a file, or a folder with everything in it. */
static inline void temp_folder_remove(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        char below[1024];
        int length = snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
        assert_true(length < (int)sizeof below);
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            temp_folder_remove(below);
    }
    if (dir != NULL)
        closedir(dir);
    assert_int_equal(remove(path), 0);
}

/* The folder of this program, made and removed by the two fixtures below. */
static char temp_folder[TEMP_FOLDER_BYTES];

static inline int temp_folder_set_up(void **state)
{
    temp_folder_create(temp_folder);
    return 0;
}

static inline int temp_folder_tear_down(void **state)
{
    temp_folder_remove(temp_folder);
    return 0;
}

/* Returns the path of a file in temp_folder; valid until the fourth call after this one. */
static inline const char *temp_path(const char *name)
{
    static char paths[4][1024];
    static int next;
    char *path = paths[next++ % 4];
    assert_true(snprintf(path, sizeof paths[0], "%s/%s", temp_folder, name) < (int)sizeof paths[0]);
    return path;
}

/* Writes a new file: some file systems sync a file that is truncated and rewritten. */
static inline void temp_write(const char *path, const void *bytes, size_t count)
{
    remove(path);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

#endif
