/* path.c - paths as texts, and whether a path is a folder. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"

bool lk__path_ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

size_t lk__path_length(const char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    return length;
}

const char *lk__path_last(const char *path, size_t *length)
{
    size_t end = lk__path_length(path), begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    *length = end - begin;
    return path + begin;
}

bool lk__path_join(const char *folder, const char *name, char *out, size_t room)
{
    const char *slash = *folder && folder[strlen(folder) - 1] != '/' ? "/" : "";
    return (size_t)snprintf(out, room, "%s%s%s", folder, slash, name) < room;
}

bool lk__path_is_folder(const char *path)
{
    struct stat info;
    errno = 0;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}
