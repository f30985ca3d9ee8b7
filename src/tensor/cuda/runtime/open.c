/* open.c - finds CUDA's libraries, and describes a GPU for messages. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "tensor/cuda/runtime/query.h"

enum { LIBRARY_BYTES = 4096 };

/* Library folders of a toolkit, which the dynamic linker may not search. */
static void *open_below(const char *root, const char *file)
{
    static const char *const folders[] = {"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"};
    void *handle = NULL;
    for (size_t i = 0; root && *root && !handle && i < sizeof folders / sizeof *folders; i++) {
        char path[LIBRARY_BYTES];
        if (snprintf(path, sizeof path, "%s/%s/%s", root, folders[i], file) < (int)sizeof path)
            handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return handle;
}

void *lk__cuda_open_library(const char *file, char *why, size_t bytes)
{
    const char *const roots[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda", "/opt/cuda"};
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    const char *reason = handle ? NULL : dlerror();
    snprintf(why, bytes, "%s", reason ? reason : "no reason given");
    for (size_t i = 0; !handle && i < sizeof roots / sizeof *roots; i++)
        handle = open_below(roots[i], file);
    return handle;
}

const char *lk__cuda_title(int index, char text[LK_CUDA_TITLE])
{
    struct cudaDeviceProp gpu;
    bool known = cudaGetDeviceProperties(&gpu, index) == cudaSuccess;
    (void)cudaGetLastError();
    if (known)
        snprintf(text, LK_CUDA_TITLE, "cuda:%d (%.255s)", index, gpu.name);
    else
        snprintf(text, LK_CUDA_TITLE, "cuda:%d", index);
    return text;
}

const char *lk__cuda_free_text(char text[LK_CUDA_FREE])
{
    char rest[LK_TEXT_AMOUNT], whole[LK_TEXT_AMOUNT];
    size_t available = 0, total = 0;
    cudaError_t error = cudaMemGetInfo(&available, &total);
    (void)cudaGetLastError();
    if (error == cudaSuccess)
        snprintf(text, LK_CUDA_FREE, "%s of %s are free", lk__text_amount(available, rest),
                 lk__text_amount(total, whole));
    else
        snprintf(text, LK_CUDA_FREE, "how much of it is free is not known");
    return text;
}
