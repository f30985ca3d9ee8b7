/* process.c - reads /proc/PID/stat. */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

bool lk__process_read(pid_t pid, lk_process *out)
{
    char text[1024] = "/proc/self/stat";
    if (pid != 0)
        snprintf(text, sizeof text, "/proc/%d/stat", (int)pid);
    int fd = open(text, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0)
        return false;
    text[length] = '\0';
    /* The process name before it may contain anything, even a parenthesis. */
    const char *rest = strrchr(text, ')');
    int parent = 0, group = 0;
    char state = '?';
    unsigned long long user = 0, kernel = 0, birth = 0;
    if (rest == NULL || sscanf(rest + 1,
                               " %c %d %d %*s %*s %*s %*s %*s %*s %*s %*s %llu %llu"
                               " %*s %*s %*s %*s %*s %*s %llu",
                               &state, &parent, &group, &user, &kernel, &birth) != 6)
        return false;
    *out = (lk_process){.pid = pid,
                        .parent = (pid_t)parent,
                        .group = (pid_t)group,
                        .state = state,
                        .ticks = user + kernel,
                        .birth = birth};
    return true;
}

int lk__process_await(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

bool lk__process_stopped(const lk_process *process)
{
    return process->state == 'T' || process->state == 't';
}
