/* budget.c - limits the cost of an input: bytes allocated by any library, and CPU seconds, both in
 * proportion to the input's size. An input beyond its budget is a finding, like a crash. CMakeLists.txt
 * renames the entry point of each target to fuzz_one, and sets FUZZ_TIMES: FUZZ_BASE bytes and FUZZ_TIMES
 * bytes for each byte of the input may be allocated in all. */
#include <sanitizer/allocator_interface.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int fuzz_one(const uint8_t *data, size_t size);

#define FUZZ_BASE ((size_t)4 << 20)

/* Thread-local: allocations of libFuzzer's threads do not count. */
static _Thread_local size_t allocated;

static void on_malloc(const volatile void *block, size_t bytes)
{
    allocated += bytes;
}

static void on_free(const volatile void *block)
{
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    if (!__sanitizer_install_malloc_and_free_hooks(on_malloc, on_free))
        abort();
    return 0;
}

static double now(void)
{
    struct timespec at;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at) != 0)
        abort();
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const size_t most = FUZZ_BASE + (size_t)FUZZ_TIMES * size;
    const double seconds = 2 + (double)size / (16 << 10), start = now();
    allocated = 0;
    int result = fuzz_one(data, size);
    size_t used = allocated;
    double spent = now() - start;
    if (used > most || spent > seconds) {
        fprintf(stderr, "an input of %zu bytes took %zu bytes (%zu allowed) and %.1f s (%.1f allowed)\n", size, used,
                most, spent, seconds);
        abort();
    }
    return result;
}
