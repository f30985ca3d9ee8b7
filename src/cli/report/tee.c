/* tee.c - streams of stdio that write to a descriptor and to a function. */
#define _GNU_SOURCE /* fopencookie */
#include "cli/report/tee.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fd.h"

static int descriptors[] = {STDOUT_FILENO, STDERR_FILENO};

/* Where the copies go, for the whole process, as its streams are. */
static struct {
    pthread_mutex_t lock;
    lk_tee_fn copy; /* NULL: nowhere */
    void *arg;
} target = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Returns 0 after an error, as fopencookie asks for. */
static ssize_t write_both(void *cookie, const char *text, size_t bytes)
{
    bool written = lk__fd_write(*(const int *)cookie, text, bytes);
    pthread_mutex_lock(&target.lock);
    if (target.copy)
        target.copy(target.arg, text, bytes);
    pthread_mutex_unlock(&target.lock);
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

void lk__tee_begin(lk_tee_fn copy, void *arg)
{
    static bool replaced;
    pthread_mutex_lock(&target.lock);
    target.copy = copy;
    target.arg = arg;
    pthread_mutex_unlock(&target.lock);
    if (replaced)
        return;
    replaced = true;
    replace(&stdout, &descriptors[0], _IOLBF);
    replace(&stderr, &descriptors[1], _IONBF);
}

void lk__tee_end(void)
{
    fflush(stdout);
    pthread_mutex_lock(&target.lock);
    target.copy = NULL;
    pthread_mutex_unlock(&target.lock);
}
