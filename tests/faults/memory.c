/* memory.c - a library that torture.sh preloads: the malloc call with the number $FAULTS_MALLOC fails,
 * counted in each thread after it has begun to save a checkpoint. $LOCKSTEP_FAULT fails allocations
 * of Lockstep only; this also fails those of other libraries. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static _Thread_local int saves;
static _Thread_local long seen;

/* A save begins with making a folder of such a name. */
int mkdir(const char *path, mode_t mode)
{
    int (*next)(const char *, mode_t) = (int (*)(const char *, mode_t))dlsym(RTLD_NEXT, "mkdir");
    if (strstr(path, "/.lk-"))
        saves = 1;
    return next(path, mode);
}

void *malloc(size_t bytes)
{
    static void *(*next)(size_t);
    const char *number = saves ? getenv("FAULTS_MALLOC") : NULL;
    if (!next)
        next = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    if (number && ++seen == strtol(number, NULL, 10)) {
        errno = ENOMEM;
        return NULL;
    }
    return next(bytes);
}
