/* blas.h - OpenBLAS as a peer in benchmarks, taken at run time if it is there.
 * Nothing else of the program uses it. */
#ifndef LK_CLI_BENCH_BLAS_H
#define LK_CLI_BENCH_BLAS_H

#include <stdbool.h>
#include <stddef.h>

/* Whether OpenBLAS could be loaded; sets its number of threads. */
bool lk__blas_open(int threads);

/* c (m, n) = op(a) (m, k) op(b) (k, n), row-major, without gaps; op transposes
 * what is stored as (k, m) or (n, k). Only after lk__blas_open said yes. */
typedef struct lk_blas_product {
    size_t m, n, k;
    bool a_transposed, b_transposed;
} lk_blas_product;
void lk__blas_multiply(const lk_blas_product *product, const float *a, const float *b, float *c);

#endif
