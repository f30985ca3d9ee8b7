/* heap.h - counts the allocations of a test's process and makes one of them fail, also
 * allocations of other libraries. The functions here replace those of glibc, so only one
 * file of a program may include this header.
 *
 * In sanitizer builds nothing is counted, nothing fails, and HEAP_REPLACED is 0. */
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

/* The counters belong to the thread that called heap_watch. */
static _Thread_local struct heap {
    bool watched;
    size_t count, bytes; /* of all allocations together */
    size_t fails;        /* number of the allocation that fails, from 1; 0: none */
    bool failed;
} heap;

/* Sets the counters to 0. The allocation with the number `fails` will fail; 0: none. */
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

/* Counts an allocation; returns whether it must fail. */
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

/* base/mem.c gets large blocks from mmap. */
void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (flags & MAP_ANONYMOUS && heap_take(bytes))
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}
#endif

#endif
