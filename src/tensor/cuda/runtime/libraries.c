/* libraries.c - opens cuDNN and cuBLASLt by name. libcudnn itself opens its parts (libcudnn_cnn, _ops,
 * _engines_...) in the same folder at its first use. */
#include "tensor/cuda/runtime/libraries.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/libraries.h"
#include "tensor/cuda/runtime/query.h"

enum { PATH_BYTES = 4096 };

#define TEXT(x) #x
#define MAJOR(x) TEXT(x)

static const lk_cuda_library cudnn = {.what = "cuDNN",
                                      .need = "convolutions on a GPU",
                                      .install = "NVIDIA's cudnn9-cuda or pip's nvidia-cudnn",
                                      .file = "libcudnn.so." MAJOR(CUDNN_MAJOR)};
static const lk_cuda_library lt = {.what = "cuBLASLt",
                                   .need = "linear layers on a GPU",
                                   .install = "the CUDA toolkit or pip's nvidia-cublas",
                                   .file = "libcublasLt.so." MAJOR(CUBLAS_VER_MAJOR)};

lk_status lk__cuda_library_open(const lk_cuda_library *lib, void **out)
{
    char why[PATH_BYTES];
    void *handle = lk__cuda_open_library(lib->file, why, sizeof why);
    if (!handle) {
        const char *path = getenv("LD_LIBRARY_PATH");
        return lk__fail(LK_STATUS_UNSUPPORTED,
                        "%s need %s, but %s cannot be loaded: %s. It was looked for in LD_LIBRARY_PATH (%s), where the "
                        "dynamic linker looks, in CUDA_HOME, CUDA_PATH, /usr/local/cuda and /opt/cuda. Install it (%s) "
                        "or put its folder into LD_LIBRARY_PATH",
                        lib->need, lib->what, lib->file, why, path && path[0] ? path : "not set", lib->install);
    }
    *out = handle;
    return LK_OK;
}

lk_status lk__cuda_library_find(void *handle, const lk_cuda_library *lib, const lk_cuda_symbol *symbols, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!lk__library_symbol(handle, symbols[i].name, symbols[i].at))
            return lk__fail(LK_STATUS_UNSUPPORTED, "%s has no function %s: another version of %s is needed", lib->file,
                            symbols[i].name, lib->what);
    return LK_OK;
}

lk_status lk__cuda_libraries_cudnn(lk_cuda_libraries *libs)
{
#define ROW(name) {#name, &libs->name},
    const lk_cuda_symbol symbols[] = {LK_CUDNN_LIST(ROW)};
#undef ROW
    char memory[LK_CUDA_FREE];
    if (libs->cudnn)
        return LK_OK;
    if (!libs->cudnn_file)
        LK_TRY(lk__cuda_library_open(&cudnn, &libs->cudnn_file));
    LK_TRY(lk__cuda_library_find(libs->cudnn_file, &cudnn, symbols, sizeof symbols / sizeof *symbols));
    cudnnStatus_t failed = libs->cudnnCreate(&libs->cudnn);
    if (failed != CUDNN_STATUS_SUCCESS) {
        libs->cudnn = NULL;
        return lk__fail(LK_STATUS_UNSUPPORTED,
                        "cuDNN %zu does not start: %s (it needs memory of the GPU, of which %s, and its parts "
                        "libcudnn_ops, _cnn, _graph and _engines_... beside %s)",
                        libs->cudnnGetVersion(), libs->cudnnGetErrorString(failed), lk__cuda_free_text(memory),
                        cudnn.file);
    }
    return LK_OK;
}

lk_status lk__cuda_libraries_lt(lk_cuda_libraries *libs)
{
#define ROW(name) {#name, &libs->name},
    const lk_cuda_symbol symbols[] = {LK_CUBLASLT_LIST(ROW)};
#undef ROW
    char memory[LK_CUDA_FREE];
    if (libs->lt)
        return LK_OK;
    if (!libs->lt_file)
        LK_TRY(lk__cuda_library_open(&lt, &libs->lt_file));
    LK_TRY(lk__cuda_library_find(libs->lt_file, &lt, symbols, sizeof symbols / sizeof *symbols));
    cublasStatus_t failed = libs->cublasLtCreate(&libs->lt);
    if (failed != CUBLAS_STATUS_SUCCESS) {
        libs->lt = NULL;
        return lk__fail(LK_STATUS_UNSUPPORTED,
                        "cuBLASLt %zu does not start: status %d (it needs memory of the GPU, of which %s)",
                        libs->cublasLtGetVersion(), (int)failed, lk__cuda_free_text(memory));
    }
    return LK_OK;
}

lk_status lk__cuda_libraries_find(void)
{
    void *file;
    LK_TRY(lk__cuda_library_open(&lt, &file));
    return lk__cuda_library_open(&cudnn, &file);
}

void lk__cuda_libraries_fini(lk_cuda_libraries *libs)
{
    if (libs->cudnn)
        (void)libs->cudnnDestroy(libs->cudnn);
    if (libs->lt)
        (void)libs->cublasLtDestroy(libs->lt);
    libs->cudnn = NULL;
    libs->lt = NULL;
}
