/* heap.h - the heap of a test's process: counts what is allocated, by the library
 * and by the libraries under it, and makes one allocation fail. The functions here
 * replace those of glibc, so one file of a program includes this header.
 *
 * Sanitizers have a heap of their own: there nothing is counted and nothing fails,
 * and HEAP_REPLACED is 0. */
#ifndef LK_TESTS_HEAP_H
#define LK_TESTS_HEAP_H

#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define HEAP_REPLACED 0
#else
#define HEAP_REPLACED 1
#endif

/* Of the thread that has called heap_watch. */
static _Thread_local struct heap {
    bool watched;
    size_t count, bytes; /* allocations, and all that they asked for */
    size_t fails;        /* the number of the one that fails, from 1; 0: none */
    bool failed;
} heap;

/* Counts from zero; the allocation of that number fails, 0: none. */
static inline void heap_watch(size_t fails)
{
    heap = (struct heap){.watched = true, .fails = fails};
}

static inline void heap_leave(void)
{
    heap.watched = false;
}

#if HEAP_REPLACED
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

/* Whether the allocation at hand is the one that fails. */
static bool heap_take(size_t bytes)
{
    if (!heap.watched)
        return false;
    heap.bytes += bytes;
    if (++heap.count != heap.fails)
        return false;
    heap.failed = true;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes)
{
    return heap_take(bytes) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return heap_take(count * bytes) ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *block, size_t bytes)
{
    return heap_take(bytes) ? NULL : __libc_realloc(block, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return heap_take(bytes) ? NULL : __libc_memalign(alignment, bytes);
}

/* The large blocks of base/mem.c. */
void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (flags & MAP_ANONYMOUS && heap_take(bytes))
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}
#endif

#endif
