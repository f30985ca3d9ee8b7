/* requeue.c - runs scontrol, without a shell and with a deadline, and reads what it prints. */
#define _GNU_SOURCE /* pipe2 */
#include "cli/job/requeue.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/spec.h"
#include "launch/executable.h"

extern char **environ;

/* Seconds that scontrol may take: it repeats a request while the controller of the cluster is busy. */
static const double DEADLINE = 20;
/* Nanoseconds between two looks whether scontrol has ended. */
static const long TICK_NS = 5 * 1000 * 1000;

enum { OUTPUT_BYTES = 8192 };

#define SCRIPT_LINE "sbatch --requeue --signal=USR1@120 SCRIPT"

const char *lk__requeue_job(void)
{
    const char *job = getenv("SLURM_JOB_ID");
    long long number;
    return job && lk__number_parse_int(job, 1, 1LL << 40, &number) ? job : NULL;
}

lk_status lk__requeue_check(void)
{
    char path[LK_EXECUTABLE_BYTES];
    if (!lk__requeue_job())
        return lk__fail(LK_STATUS_USAGE, "train: `requeue` puts a job of Slurm back into its queue, and this process "
                                         "belongs to none (SLURM_JOB_ID is not set): leave it out, or submit the line "
                                         "in a script: " SCRIPT_LINE);
    if (lk__executable_find("scontrol", path) != LK_OK)
        return lk__fail(LK_STATUS_USAGE,
                        "train: `requeue` asks Slurm by its program scontrol, which is in no folder of $PATH on this "
                        "node: add its folder to $PATH, or leave `requeue` out");
    return LK_OK;
}

/* Reads all that comes from fd, up to the end or the deadline; keeps the beginning as text. */
static void read_output(int fd, double deadline, char out[OUTPUT_BYTES])
{
    char rest[512];
    size_t used = 0;
    for (;;) {
        double left = deadline - lk__clock();
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        int ready = left > 0 ? poll(&wait, 1, (int)(1000 * left) + 1) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        bool full = used == OUTPUT_BYTES - 1;
        ssize_t got = ready > 0 ? read(fd, full ? rest : out + used, full ? sizeof rest : OUTPUT_BYTES - 1 - used) : 0;
        if (got <= 0)
            break;
        used += full ? 0 : (size_t)got;
    }
    out[used] = '\0';
    out[strcspn(out, "\r\n")] = '\0';
}

/* Waits for the process, which is killed at the deadline. Returns its exit status, or -1. */
static int reap(pid_t pid, double deadline)
{
    int status;
    pid_t ended;
    while ((ended = waitpid(pid, &status, WNOHANG)) == 0 && lk__clock() < deadline)
        nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
    if (ended == 0) {
        kill(pid, SIGKILL);
        ended = waitpid(pid, &status, 0);
    }
    return ended == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int spawn(const char *const *argv, int output, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error != 0)
        return error;
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
    error = posix_spawnp(pid, argv[0], &actions, NULL, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* Runs scontrol with the words; out gets the first line that it printed. */
static lk_status run_scontrol(const char *const *argv, char out[OUTPUT_BYTES])
{
    int ends[2];
    pid_t pid;
    double deadline = lk__clock() + DEADLINE;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return lk__fail(LK_STATUS_IO, "cannot run scontrol: %s", strerror(errno));
    int error = spawn(argv, ends[1], &pid);
    close(ends[1]);
    if (error == 0)
        read_output(ends[0], deadline, out);
    close(ends[0]);
    if (error != 0)
        return lk__fail(LK_STATUS_IO, "cannot run scontrol: %s", strerror(error));
    int status = reap(pid, deadline);
    if (status == 0)
        return LK_OK;
    return lk__fail(LK_STATUS_IO, "scontrol %s %s: %s", argv[1], lk__requeue_job(),
                    *out         ? out
                    : status < 0 ? "no answer in time"
                                 : "failed without a word");
}

/* The value of NAME=VALUE in the line that `scontrol show` printed; "" if there is none. */
static const char *find_value(const char *line, const char *name, char value[64])
{
    size_t length = strlen(name);
    const char *at = line;
    while ((at = strstr(at, name)) != NULL && !((at == line || at[-1] == ' ') && at[length] == '='))
        at += length;
    at = at ? at + length + 1 : "";
    snprintf(value, 64, "%.*s", (int)strcspn(at, " "), at);
    return value;
}

/* The line of Slurm about this job. */
static lk_status show_job(char line[OUTPUT_BYTES])
{
    return run_scontrol((const char *const[]){"scontrol", "show", "-o", "job", lk__requeue_job(), NULL}, line);
}

lk_status lk__requeue_expect(void)
{
    char line[OUTPUT_BYTES], value[64];
    LK_TRY(show_job(line));
    if (strcmp(find_value(line, "BatchFlag", value), "0") == 0)
        return lk__fail(LK_STATUS_IO, "Slurm requeues batch jobs only, and job %s is none: submit it with " SCRIPT_LINE,
                        lk__requeue_job());
    if (strcmp(find_value(line, "Requeue", value), "0") == 0)
        return lk__fail(LK_STATUS_IO,
                        "job %s was submitted so that Slurm does not requeue it (Requeue=0): submit it "
                        "with " SCRIPT_LINE,
                        lk__requeue_job());
    return LK_OK;
}

/* scancel sends SIGTERM too, and scontrol would bring the cancelled job back. */
lk_status lk__requeue_ask(void)
{
    char line[OUTPUT_BYTES], state[64];
    LK_TRY(show_job(line));
    if (strcmp(find_value(line, "JobState", state), "RUNNING") != 0)
        return lk__fail(LK_STATUS_IO,
                        "Slurm is ending job %s already (JobState=%s), so it is not requeued; if it came to its time "
                        "limit, let Slurm send a signal earlier: " SCRIPT_LINE,
                        lk__requeue_job(), state);
    return run_scontrol((const char *const[]){"scontrol", "requeue", lk__requeue_job(), NULL}, line);
}
