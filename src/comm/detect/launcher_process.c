/* launcher_process.c - finds the launcher's process among the ancestors of this one, in /proc. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "comm/detect/launchers.h"

enum { ANCESTORS = 32 };

static long parent_of(long pid)
{
    lk_process process;
    return lk__process_read((pid_t)pid, &process) ? process.parent : 0;
}

static bool was_started_with(long pid, const char *variable)
{
    char path[64], *entry = NULL;
    size_t room = 0, length = strlen(variable);
    bool found = false;
    snprintf(path, sizeof path, "/proc/%ld/environ", pid);
    FILE *file = fopen(path, "re");
    while (file && !found && getdelim(&entry, &room, '\0', file) > 0)
        found = strncmp(entry, variable, length) == 0 && entry[length] == '=';
    free(entry);
    if (file)
        fclose(file);
    return found;
}

long lk__launcher_process(const char *variable)
{
    long pid = getppid();
    for (int i = 0; i < ANCESTORS && pid > 1; i++, pid = parent_of(pid))
        if (!was_started_with(pid, variable))
            return pid;
    return 0;
}
