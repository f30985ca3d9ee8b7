/* mem.c - aligned host memory.
 *
 * Small blocks come from malloc. Large blocks come from mmap: they are zero already, and huge pages
 * save thousands of page faults. A header before each block says which kind it is. */
#define _GNU_SOURCE
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fault.h"

/* With AddressSanitizer all blocks come from malloc, so that it checks their ends. */
#if defined(__SANITIZE_ADDRESS__)
enum { LARGE_IS_MAPPED = 0 };
#else
enum { LARGE_IS_MAPPED = 1 };
#endif

enum { LARGE = 1 << 20 };

/* LK_ALIGN bytes long, so that the block after it is aligned. */
typedef struct header {
    _Alignas(LK_ALIGN) size_t mapped; /* bytes from mmap, 0 for malloc */
} header;

static header *map_large(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    /* Only advice: a kernel without huge pages may refuse it. */
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    header *head = memory;
    head->mapped = bytes;
    return head;
}

static header *alloc_small(size_t bytes)
{
    header *head = aligned_alloc(LK_ALIGN, bytes);
    if (head)
        memset(head, 0, bytes);
    return head;
}

lk_status lk__mem_alloc(size_t count, size_t size, const char *what, void **out)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 2)
        return lk__fail(LK_STATUS_MEMORY, "%s would need %zu times %zu bytes, more than can be addressed", what, count,
                        size);
    bytes = sizeof(header) + lk__size_round_up(bytes ? bytes : 1, LK_ALIGN);
    header *head = NULL;
    if (!lk__fault_alloc())
        head = LARGE_IS_MAPPED && bytes >= LARGE ? map_large(bytes) : alloc_small(bytes);
    if (!head)
        return lk__fail_memory(bytes, what);
    *out = head + 1;
    return LK_OK;
}

void lk__mem_free(void *block)
{
    if (!block)
        return;
    header *head = (header *)block - 1;
    if (head->mapped)
        munmap(head, head->mapped);
    else
        free(head);
}

lk_status lk__mem_grow(size_t used, size_t size, const char *what, size_t *room, void **block)
{
    enum { FIRST = 64 };
    size_t more = *room ? 2 * *room : FIRST;
    void *larger = NULL;
    LK_TRY(lk__mem_alloc(more, size, what, &larger));
    if (used)
        memcpy(larger, *block, used * size);
    lk__mem_free(*block);
    *block = larger;
    *room = more;
    return LK_OK;
}

lk_status lk__mem_copy_text(const char *text, const char *what, char **out)
{
    size_t bytes = strlen(text) + 1;
    LK_TRY(LK_ALLOC(bytes, what, out));
    memcpy(*out, text, bytes);
    return LK_OK;
}

size_t lk__mem_whole_pages(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (bytes > SIZE_MAX / 2)
        return SIZE_MAX / 2 / page * page;
    return lk__size_round_up(lk__size_max(bytes, 1), page);
}

double lk__mem_peak_mb(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0)
        return 0;
    return (double)usage.ru_maxrss * 1024 / 1e6; /* ru_maxrss: units of 1024 bytes */
}

double lk__mem_now_mb(void)
{
    unsigned long pages, resident;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file)
        return 0;
    bool read = fscanf(file, "%lu %lu", &pages, &resident) == 2;
    fclose(file);
    return read ? (double)resident * (double)sysconf(_SC_PAGESIZE) / 1e6 : 0;
}
