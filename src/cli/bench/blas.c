/* blas.c - OpenBLAS, loaded at run time: a peer for comparison, not a dependency. */
#include "cli/bench/blas.h"

#include <dlfcn.h>

#include "base/libraries.h"

/* CBLAS's constants. */
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

typedef void (*sgemm_fn)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda,
                         const float *b, int ldb, float beta, float *c, int ldc);
typedef void (*set_threads_fn)(int threads);

static sgemm_fn sgemm;

bool lk__blas_open(int threads)
{
    static const char *const names[] = {"libopenblas.so.0", "libopenblas.so"};
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    set_threads_fn set_threads;
    if (!library || !lk__library_symbol(library, "cblas_sgemm", &sgemm) ||
        !lk__library_symbol(library, "openblas_set_num_threads", &set_threads))
        return false;
    set_threads(threads);
    return true;
}

void lk__blas_multiply(const lk_blas_product *product, const float *a, const float *b, float *c)
{
    int m = (int)product->m, n = (int)product->n, k = (int)product->k;
    sgemm(ROW_MAJOR, product->a_transposed ? TRANS : NO_TRANS, product->b_transposed ? TRANS : NO_TRANS, m, n, k, 1, a,
          product->a_transposed ? m : k, b, product->b_transposed ? k : n, 0, c, n);
}
