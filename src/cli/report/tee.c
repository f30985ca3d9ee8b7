/* tee.c - streams of stdio that write to a descriptor and to a function. */
#define _GNU_SOURCE /* fopencookie */
#include "cli/report/tee.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fd.h"

static int descriptors[] = {STDOUT_FILENO, STDERR_FILENO};

/* Where the copies go, for the whole process, as its streams are. */
static struct {
    pthread_mutex_t lock;
    lk_tee_fn copy;            /* NULL: nowhere */
    void (*broken)(void *arg); /* NULL: nobody wants to know */
    void *arg;
    bool ends; /* a closed pipe ends the process, as it does by default */
} target = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* SIGPIPE is ignored, so that this process can note why it ends; then it ends by that signal. */
static void end_by_pipe(void)
{
    pthread_mutex_lock(&target.lock);
    void (*broken)(void *arg) = target.broken;
    target.broken = NULL;
    pthread_mutex_unlock(&target.lock);
    if (broken)
        broken(target.arg);
    signal(SIGPIPE, SIG_DFL);
    raise(SIGPIPE);
}

/* Returns 0 after an error, as fopencookie asks for. */
static ssize_t write_both(void *cookie, const char *text, size_t bytes)
{
    bool written = lk__fd_write(*(const int *)cookie, text, bytes), closed = !written && errno == EPIPE;
    pthread_mutex_lock(&target.lock);
    if (target.copy)
        target.copy(target.arg, text, bytes);
    pthread_mutex_unlock(&target.lock);
    if (closed && target.ends)
        end_by_pipe();
    return written ? (ssize_t)bytes : 0;
}

/* stdout gives each line to its reader at once, stderr everything. */
static void replace(FILE **stream, int *descriptor, int mode)
{
    fflush(*stream);
    FILE *both = fopencookie(descriptor, "w", (cookie_io_functions_t){.write = write_both});
    if (!both)
        return;
    setvbuf(both, NULL, mode, 0);
    *stream = both;
}

void lk__tee_begin(lk_tee_fn copy, void (*broken)(void *arg), void *arg)
{
    static bool replaced;
    pthread_mutex_lock(&target.lock);
    target.copy = copy;
    target.broken = broken;
    target.arg = arg;
    pthread_mutex_unlock(&target.lock);
    if (replaced)
        return;
    replaced = true;
    target.ends = signal(SIGPIPE, SIG_IGN) == SIG_DFL;
    replace(&stdout, &descriptors[0], _IOLBF);
    replace(&stderr, &descriptors[1], _IONBF);
}

void lk__tee_end(void)
{
    fflush(stdout);
    pthread_mutex_lock(&target.lock);
    target.copy = NULL;
    target.broken = NULL;
    pthread_mutex_unlock(&target.lock);
}
