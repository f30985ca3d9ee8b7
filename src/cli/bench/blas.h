/* blas.h - OpenBLAS as a peer in benchmarks, loaded at run time if it is installed. Nothing else in the program
 * uses it. */
#ifndef LK_CLI_BENCH_BLAS_H
#define LK_CLI_BENCH_BLAS_H

#include <stdbool.h>
#include <stddef.h>

/* Loads OpenBLAS and sets its number of threads; false if that is impossible. */
bool lk__blas_open(int threads);

/* c (m, n) = op(a) (m, k) op(b) (k, n), row-major, without gaps; op transposes a matrix that is stored as (k,
 * m) or (n, k). Only after lk__blas_open returned true. */
typedef struct lk_blas_product {
    size_t m, n, k;
    bool a_transposed, b_transposed;
} lk_blas_product;
void lk__blas_multiply(const lk_blas_product *product, const float *a, const float *b, float *c);

#endif
