/* child.c - a program whose input and output are files in memory, so that neither side ever waits for the other, and no
 * folder must have room. */
#define _GNU_SOURCE /* memfd_create */
#include "base/child.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/text.h"

extern char **environ;

/* The program's stdin, stdout and stderr. */
typedef struct streams {
    FILE *file[3];
} streams;

static lk_status open_streams(const void *input, size_t bytes, streams *s)
{
    for (int i = 0; i < 3; i++) {
        int fd = memfd_create("lockstep-child", MFD_CLOEXEC);
        if (fd >= 0 && !(s->file[i] = fdopen(fd, "w+")))
            close(fd);
        if (!s->file[i])
            return lk__fail(LK_STATUS_IO, "cannot make a file in memory: %s", strerror(errno));
    }
    if (fwrite(input, 1, bytes, s->file[0]) != bytes || fflush(s->file[0]) != 0)
        return lk__fail(LK_STATUS_IO, "cannot write a file in memory: %s", strerror(errno));
    rewind(s->file[0]);
    return LK_OK;
}

static void close_streams(streams *s)
{
    for (int i = 0; i < 3; i++)
        if (s->file[i])
            fclose(s->file[i]);
}

static lk_status fail_missing(const char *name)
{
    return lk__fail(LK_STATUS_NOT_FOUND, "there is no program '%s' in $PATH", name);
}

static lk_status start(char *const *argv, const streams *s, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error)
        return lk__fail_memory(sizeof actions, argv[0]);
    for (int i = 0; i < 3 && !error; i++)
        error = posix_spawn_file_actions_adddup2(&actions, fileno(s->file[i]), i);
    if (!error)
        error = posix_spawnp(pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error == ENOENT)
        return fail_missing(argv[0]);
    return error ? lk__fail(LK_STATUS_IO, "cannot run %s: %s", argv[0], strerror(error)) : LK_OK;
}

static lk_status await(const char *name, pid_t pid, double timeout, int *status)
{
    double end = lk__clock() + timeout;
    int raw = 0;
    pid_t got;
    while ((got = waitpid(pid, &raw, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
        if (lk__clock() > end) {
            kill(pid, SIGKILL);
            (void)waitpid(pid, &raw, 0);
            return lk__fail(LK_STATUS_IO, "%s had not ended after %g seconds and was killed", name, timeout);
        }
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    if (got < 0)
        return lk__fail(LK_STATUS_IO, "cannot wait for %s: %s", name, strerror(errno));
    *status = WIFSIGNALED(raw) ? 128 + WTERMSIG(raw) : WEXITSTATUS(raw);
    return LK_OK;
}

static lk_status read_all(FILE *file, uint8_t **out, size_t *bytes)
{
    long end = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (end < 0)
        return lk__fail(LK_STATUS_IO, "cannot read a file in memory: %s", strerror(errno));
    rewind(file);
    LK_TRY(LK_ALLOC((size_t)end + 1, "output of a program", out));
    *bytes = fread(*out, 1, (size_t)end, file);
    return LK_OK;
}

lk_status lk__child_run(char *const *argv, const void *input, size_t bytes, double timeout, lk_child_output *out)
{
    streams s = {0};
    lk_child_output got = {0};
    pid_t pid = 0;
    lk_status status = open_streams(input, bytes, &s);
    if (status == LK_OK)
        status = start(argv, &s, &pid);
    if (status == LK_OK)
        status = await(argv[0], pid, timeout, &got.status);
    if (status == LK_OK)
        status = read_all(s.file[1], &got.out, &got.out_bytes);
    if (status == LK_OK)
        status = read_all(s.file[2], &got.err, &got.err_bytes);
    close_streams(&s);
    /* Emulators of other processors report a missing program by this exit status only. */
    if (status == LK_OK && got.status == 127 && got.out_bytes + got.err_bytes == 0)
        status = fail_missing(argv[0]);
    if (status == LK_OK)
        *out = got;
    else
        lk__child_output_free(&got);
    return status;
}

void lk__child_output_free(lk_child_output *output)
{
    lk__mem_free(output->out);
    lk__mem_free(output->err);
    *output = (lk_child_output){0};
}

const char *lk__child_last_words(lk_child_output *output)
{
    char *text = (char *)output->err, *last;
    if (!text)
        return "";
    for (size_t length = strlen(text); length && strchr(" \n\t\r", text[length - 1]); length--)
        text[length - 1] = 0;
    last = strrchr(text, '\n');
    last = last ? last + 1 : text;
    last += strspn(last, " \t");
    lk__text_clean(last, LK_TEXT_KIND_LINE);
    return last;
}
