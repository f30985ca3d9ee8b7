/* temp_folder.h - a folder of a test's own, below $TMPDIR or /tmp. */
#ifndef LK_TESTS_TEMP_FOLDER_H
#define LK_TESTS_TEMP_FOLDER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEMP_FOLDER_BYTES = 256 };

static inline void temp_folder_create(char path[TEMP_FOLDER_BYTES])
{
    const char *base = getenv("TMPDIR");
    int length = snprintf(path, TEMP_FOLDER_BYTES, "%s/lockstep-test-XXXXXX", base && *base ? base : "/tmp");
    assert_true(length < TEMP_FOLDER_BYTES);
    assert_non_null(mkdtemp(path));
}

/* Removes path, a file or a folder with all that is in it. */
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

#endif
