/* executable.c - searches PATH; messages for programs that cannot be run. */
#include "launch/executable.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_python(const char *name)
{
    size_t length = strlen(name);
    return length > 3 && strcmp(name + length - 3, ".py") == 0;
}

lk_status lk__executable_refused(const char *path, int error)
{
    if (error == EACCES && is_python(path))
        return lk__fail(LK_STATUS_NOT_FOUND, "cannot run %s: it is not executable; give: python3 %s", path, path);
    if (error == EACCES)
        return lk__fail(LK_STATUS_NOT_FOUND, "cannot run %s: it is not executable; chmod +x makes it so", path);
    if (error == ENOEXEC)
        return lk__fail(LK_STATUS_NOT_FOUND,
                        "cannot run %s: neither a program for this kind of machine nor a script that begins with #!",
                        path);
    if (error == ENOENT)
        return lk__fail(LK_STATUS_NOT_FOUND, "cannot run %s: the interpreter that it names is not on this machine",
                        path);
    return lk__fail(LK_STATUS_NOT_FOUND, "cannot run %s: %s", path, strerror(error));
}

/* Returns 0 if path can be run, otherwise an errno value. */
static int examine(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return errno;
    if (S_ISDIR(info.st_mode))
        return EISDIR;
    return access(path, X_OK) == 0 ? 0 : EACCES;
}

static lk_status find_in_path(const char *name, char path[LK_EXECUTABLE_BYTES])
{
    const char *folders = getenv("PATH");
    if (folders == NULL)
        folders = "/usr/local/bin:/usr/bin:/bin";
    for (const char *end; folders != NULL; folders = end != NULL ? end + 1 : NULL) {
        end = strchr(folders, ':');
        int length = end != NULL ? (int)(end - folders) : (int)strlen(folders);
        /* An empty entry means the current folder. */
        int size = length == 0 ? snprintf(path, LK_EXECUTABLE_BYTES, "./%s", name)
                               : snprintf(path, LK_EXECUTABLE_BYTES, "%.*s/%s", length, folders, name);
        if (size < LK_EXECUTABLE_BYTES && examine(path) == 0)
            return LK_OK;
    }
    const char *here = is_python(name) ? "; give: python3 " : "; it is in this folder: give ./";
    struct stat info;
    bool there = stat(name, &info) == 0 && S_ISREG(info.st_mode);
    return lk__fail(LK_STATUS_NOT_FOUND, "there is no program %s in PATH%s%s", name, there ? here : "",
                    there ? name : "");
}

lk_status lk__executable_find(const char *name, char path[LK_EXECUTABLE_BYTES])
{
    if (name[0] == '\0')
        return lk__fail(LK_STATUS_NOT_FOUND, "the program's name is empty");
    if (strchr(name, '/') == NULL)
        return find_in_path(name, path);
    if (snprintf(path, LK_EXECUTABLE_BYTES, "%s", name) >= LK_EXECUTABLE_BYTES)
        return lk__fail(LK_STATUS_NOT_FOUND, "the program's path has more than %d bytes", LK_EXECUTABLE_BYTES - 1);
    int error = examine(path);
    if (error == ENOENT)
        return lk__fail(LK_STATUS_NOT_FOUND, "there is no program %s", path);
    return error == 0 ? LK_OK : lk__executable_refused(path, error);
}
