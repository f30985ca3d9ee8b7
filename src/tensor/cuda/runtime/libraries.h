/* libraries.h - cuDNN and cuBLASLt, found at run time.
 *
 * Nothing is linked: a build runs on machines without a GPU, and a run without convolutions does not pay for
 * cuDNN (80 ms for linking both libraries, 62 ms for a handle). The first plan that needs a library opens it.
 * An lk_cuda_libraries belongs to one device. One thread at a time may call these functions, with that device
 * current. */
#ifndef LK_TENSOR_CUDA_RUNTIME_LIBRARIES_H
#define LK_TENSOR_CUDA_RUNTIME_LIBRARIES_H

#include <cublasLt.h>
#include <cudnn.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LK_CUDNN_LIST(X)             \
    X(cudnnGetVersion)               \
    X(cudnnGetErrorString)           \
    X(cudnnCreate)                   \
    X(cudnnDestroy)                  \
    X(cudnnSetStream)                \
    X(cudnnBackendCreateDescriptor)  \
    X(cudnnBackendDestroyDescriptor) \
    X(cudnnBackendSetAttribute)      \
    X(cudnnBackendGetAttribute)      \
    X(cudnnBackendFinalize)          \
    X(cudnnBackendExecute)

#define LK_CUBLASLT_LIST(X)                 \
    X(cublasLtGetVersion)                   \
    X(cublasLtCreate)                       \
    X(cublasLtDestroy)                      \
    X(cublasLtMatmulDescCreate)             \
    X(cublasLtMatmulDescDestroy)            \
    X(cublasLtMatmulDescSetAttribute)       \
    X(cublasLtMatrixLayoutCreate)           \
    X(cublasLtMatrixLayoutDestroy)          \
    X(cublasLtMatmulPreferenceCreate)       \
    X(cublasLtMatmulPreferenceDestroy)      \
    X(cublasLtMatmulPreferenceSetAttribute) \
    X(cublasLtMatmulAlgoGetHeuristic)       \
    X(cublasLtMatmulAlgoCheck)              \
    X(cublasLtMatmulAlgoConfigGetAttribute) \
    X(cublasLtMatmul)

/* A library, described for messages. */
typedef struct lk_cuda_library {
    const char *what;    /* name and version */
    const char *need;    /* who needs it */
    const char *install; /* the package that has it */
    char file[64];
} lk_cuda_library;

typedef struct lk_cuda_symbol {
    const char *name;
    void *at; /* address of the field that it fills */
} lk_cuda_symbol;

typedef struct lk_cuda_libraries {
    void *cudnn_file, *lt_file; /* handles of dlopen; NULL until needed */
    cudnnHandle_t cudnn;        /* NULL until lk__cuda_libraries_cudnn */
    cublasLtHandle_t lt;        /* NULL until lk__cuda_libraries_lt */
#define LK_LIBRARY_FIELD(name) __typeof__(name) *name;
    LK_CUDNN_LIST(LK_LIBRARY_FIELD)
    LK_CUBLASLT_LIST(LK_LIBRARY_FIELD)
#undef LK_LIBRARY_FIELD
} lk_cuda_libraries;

/* A zeroed lk_cuda_libraries is ready for these; a second call does nothing. A missing library or function is
 * UNSUPPORTED: the detail says which, where it was searched and what to do. */
lk_status lk__cuda_libraries_cudnn(lk_cuda_libraries *libs) LK_CHECKED;
lk_status lk__cuda_libraries_lt(lk_cuda_libraries *libs) LK_CHECKED;
/* Loads both files, to check that they can be loaded; a second call costs nothing. */
lk_status lk__cuda_libraries_find(void) LK_CHECKED;
/* Opens a library and finds its functions; fails as above. */
lk_status lk__cuda_library_open(const lk_cuda_library *lib, void **out) LK_CHECKED;
lk_status lk__cuda_library_find(void *handle, const lk_cuda_library *lib, const lk_cuda_symbol *symbols,
                                size_t count) LK_CHECKED;
/* Destroys the handles; the files stay mapped until the process ends. */
void lk__cuda_libraries_fini(lk_cuda_libraries *libs);

#ifdef __cplusplus
}
#endif
#endif
