/* cell.c - trains a cell in a child process. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/sweep/sweep.h"

static const char output_name[] = "output.txt";
static volatile sig_atomic_t caught_signal;

static void on_signal(int number)
{
    caught_signal = number;
}

static const int watched[] = {SIGINT, SIGTERM, SIGHUP};
enum { WATCHED = sizeof watched / sizeof *watched };

/* Signals that were ignored at the start (nohup) stay ignored. */
static void watch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal}, before;
    for (int i = 0; i < WATCHED; i++)
        if (sigaction(watched[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(watched[i], &action, NULL);
}

/* Becomes the program. If the sweep is killed, so that it cannot pass anything on, the kernel ends the training. */
static void become(char *const *argv, int output, pid_t parent)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent || null < 0 || dup2(null, 0) < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0)
        _exit(127);
    execv("/proc/self/exe", argv);
    dprintf(2, "lockstep: cannot run this program again: %s\n", strerror(errno));
    _exit(127);
}

static lk_status start(char *const *line, int output, pid_t *out)
{
    static char name[] = "lockstep";
    size_t count = 0;
    char **all;
    while (line[count])
        count++;
    LK_TRY(LK_ALLOC(count + 2, "words of a cell", &all));
    all[0] = name;
    memcpy(all + 1, line, count * sizeof *line);
    fflush(NULL);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        become(all, output, parent);
    lk__mem_free(all);
    if (pid < 0)
        return lk__fail(LK_STATUS_IO, "sweep: cannot start a process: %s", strerror(errno));
    *out = pid;
    return LK_OK;
}

/* Waits by polling: a signal between a check and a blocking wait would be missed. */
static int await(pid_t pid, int *caught)
{
    int raw = 0;
    pid_t got;
    while ((got = waitpid(pid, &raw, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
        if (caught_signal) {
            *caught = caught_signal;
            caught_signal = 0;
            kill(pid, *caught);
        }
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    *caught = caught_signal ? caught_signal : *caught;
    if (got < 0)
        return 127;
    return WIFSIGNALED(raw) ? 128 + WTERMSIG(raw) : WEXITSTATUS(raw);
}

lk_status lk__sweep_run(const lk_sweep *sweep, size_t cell, int *code, int *caught)
{
    char folder[LK_PATH_BYTES], path[LK_PATH_BYTES], **line;
    pid_t pid = 0;
    LK_TRY(lk__sweep_path(sweep, cell, NULL, folder, sizeof folder));
    LK_TRY(lk__sweep_path(sweep, cell, output_name, path, sizeof path));
    LK_TRY(lk__folder_make(folder));
    LK_TRY(lk__sweep_clear(sweep, cell));
    int output = lk__fd_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666);
    if (output < 0)
        return lk__fail(LK_STATUS_IO, "sweep: cannot write %s: %s", path, strerror(errno));
    *caught = 0;
    watch_signals();
    lk_status status = lk__sweep_line(sweep, cell, &line);
    if (status == LK_OK) {
        status = start(line, output, &pid);
        lk__sweep_line_free(line);
    }
    if (status == LK_OK)
        *code = await(pid, caught);
    close(output);
    return status;
}

/* The last error message in a text, otherwise the last line that this program says about itself, such as a launcher's
 * about a rank; NULL if there is none: results and progress are no reasons. A launcher's own line about a failed rank
 * comes after the message of that rank. */
static const char *find_message(char *text)
{
    static const char mark[] = "lockstep: ", own[] = "lockstep ";
    char *found = NULL, *rest = NULL, *said = NULL;
    for (char *next = strstr(text, mark); next; next = strstr(next + 1, mark))
        found = next + sizeof mark - 1;
    if (found) {
        found[strcspn(found, "\n")] = 0;
        return found;
    }
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (strncmp(line, own, sizeof own - 1) == 0)
            said = line;
    return said;
}

void lk__sweep_message(const lk_sweep *sweep, size_t cell, char *out, size_t bytes)
{
    enum { TAIL = 4096 };
    char path[LK_PATH_BYTES], tail[TAIL + 1];
    *out = 0;
    int fd = lk__sweep_path(sweep, cell, output_name, path, sizeof path) == LK_OK ? lk__fd_open(path, O_RDONLY, 0) : -1;
    if (fd < 0)
        return;
    off_t end = lseek(fd, 0, SEEK_END);
    ssize_t got = lk__fd_read_at(fd, tail, TAIL, end > TAIL ? end - TAIL : 0);
    close(fd);
    while (got > 0 && strchr("\r\n ", tail[got - 1]))
        got--;
    tail[got > 0 ? got : 0] = 0;
    const char *found = find_message(tail);
    snprintf(out, bytes, "%s", found ? found : "");
    lk__text_clean(out, LK_TEXT_KIND_LINE);
}
