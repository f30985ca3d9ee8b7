/* guard.c - waits for the keeper, and ends its descendants if the keeper was killed. Runs in a fork of a
 * process that may have had threads. */
#include "launch/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/descendants.h"

/* Seconds for processes to end after SIGKILL. */
static const double KILL_TIMEOUT = 10;

static const char NAME[] = "lk-guard";

/* Finds the memory of this process's command line: fields 48 and 49 of /proc/self/stat, see proc(5). */
static bool find_arguments(uintptr_t *begin, uintptr_t *end)
{
    char text[1024];
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[length > 0 ? length : 0] = '\0';
    const char *at = strrchr(text, ')'); /* the end of field 2 */
    for (int field = 2; at != NULL && field < 48; field++)
        at = strchr(at + 1, ' ');
    unsigned long long first = 0, last = 0;
    if (at == NULL || sscanf(at, " %llu %llu", &first, &last) != 2 || first >= last)
        return false;
    *begin = (uintptr_t)first;
    *end = (uintptr_t)last;
    return true;
}

/* Changes the process name and the command line that ps, top and pkill show. */
static void rename_self(void)
{
    uintptr_t begin, end;
    prctl(PR_SET_NAME, NAME);
    if (!find_arguments(&begin, &end))
        return;
    char *text = (char *)begin;
    size_t room = end - begin;
    memset(text, 0, room);
    memcpy(text, NAME, sizeof NAME < room ? sizeof NAME : room - 1);
}

/* Closes all descriptors, because other processes may wait until they are closed. */
static void close_inherited(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; null >= 0 && fd <= STDERR_FILENO; fd++)
        dup2(null, fd);
    lk__keeper_close_above(STDERR_FILENO + 1, 0);
}

void lk__guard_run(const lk_keeper_plan *plan)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    signal(SIGCHLD, SIG_DFL);
    setpgid(0, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t keeper = fork();
    if (keeper == 0)
        lk__keeper_run(plan);
    if (keeper < 0) {
        lk__keeper_report_failure(plan, -1, errno);
        _exit(1);
    }
    rename_self();
    close_inherited();
    int status = lk__process_await(keeper);
    if (WIFEXITED(status))
        _exit(WEXITSTATUS(status));
    lk__descendants_end(NULL, KILL_TIMEOUT);
    kill(getpid(), SIGKILL);
    _exit(1);
}
