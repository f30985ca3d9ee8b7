/* sums.h - the order of long sums, the same in all kernels that sum products.
 *
 * A sum is divided into blocks of LK_SUM_BLOCK consecutive terms; the last block may be shorter. If the terms come in
 * runs (the taps of a row of a window), a long run is divided in this way, and of short runs a block has as many as fit
 * into LK_SUM_BLOCK terms. A block is one chain of fused multiply-adds, and the blocks are added one after the other. A
 * bias, or whatever the sum begins with, is the first addend of the first block; the other blocks begin at 0. So a sum
 * of few terms is one chain, and the rounding errors of a long sum grow with the square root of the block and of the
 * number of blocks, not of the number of terms.
 *
 * The limits of blocks depend on the shape of a layer alone. Work that is interrupted (a band of rows, packed terms)
 * ends at the end of a block, keeps the sum so far in memory, and continues with the next block. */
#ifndef LK_TENSOR_CPU_SUMS_H
#define LK_TENSOR_CPU_SUMS_H

#include "base/mem.h"

enum { LK_SUM_BLOCK = 256 };

/* A sum over the pixels of several samples has blocks of whole rows: `rows` rows of a sample, or if these are all of
 * its rows, `samples` samples. The last block of a sample (of the sum) may be smaller. A row of more than LK_SUM_BLOCK
 * pixels is divided like any other sum. */
typedef struct lk_sum_rows {
    size_t samples, rows;
} lk_sum_rows;

/* The blocks for images of h rows of w pixels, of which a block has `most` rows at most; both results are at least 1.
 * Blocks of a sample are about equally large. */
static inline lk_sum_rows lk__sum_rows(size_t h, size_t w, size_t most)
{
    size_t fit = lk__size_max(lk__size_min(LK_SUM_BLOCK / w, most), 1);
    if (fit >= h)
        return (lk_sum_rows){.samples = fit / h, .rows = h};
    size_t blocks = (h + fit - 1) / fit;
    return (lk_sum_rows){.samples = 1, .rows = (h + blocks - 1) / blocks};
}

#endif
