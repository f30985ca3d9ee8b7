/* bf16.h - the product of two matrices of bf16 numbers, in the order of sums of AMX's TDPBF16PS.
 *
 * A factor is rounded to bf16, to nearest and ties to even; a factor that is then below 2^-56 counts as 0. A sum has
 * blocks of LK_BF16_BLOCK consecutive terms; the last block is filled up with terms 0 * 0. A block is two chains of
 * fused multiply-adds from 0 in fp32, one of the terms with even numbers and one of the others: e and o. The sum is c =
 * 0, then c = c + (e + o) for one block after the other. All roundings are to nearest, ties to even.
 *
 * Products of such factors are multiples of 2^-126, and so are all sums: no result is a denormal number. So it does not
 * matter that AMX replaces denormal numbers by 0 and other instruction sets do not. A sum is never -0, so terms that
 * are 0 change no bit.
 *
 * Each output is one such sum of all its terms, in the order in which the fp32 kernels have them: (ky, kx, channel) in
 * a convolution's forward pass, dy's rows, columns and channels in its input gradient, (sample, y, x) of a shard in a
 * leaf of a weight gradient. A bias is added to the finished sum. Shapes alone decide on blocks. */
#ifndef LK_TENSOR_CPU_BF16_H
#define LK_TENSOR_CPU_BF16_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LK_BF16_BLOCK = 32, /* terms of a block */
    LK_BF16_PAIRS = 16, /* pairs of terms of a block */
    LK_BF16_SIDE = 16   /* rows and columns of a tile */
};

/* lk_bf16_product.last of a sum of so many terms, which are filled up to whole blocks; terms is at least 1. */
static inline size_t lk__bf16_last(size_t terms)
{
    return ((terms - 1) % LK_BF16_BLOCK) / 2 + 1;
}

/* The largest bf16 number that counts as 0. */
#define LK_BF16_GONE 0x1.fep-57f

/* C = A B, or C = C + A B. B is divided into panels of LK_BF16_SIDE columns. An element of a panel is two factors of a
 * column, which belong to terms 2k (its lower 16 bits) and 2k + 1. */
typedef struct lk_bf16_product {
    size_t rows, cols; /* of C; multiples of LK_BF16_SIDE */
    size_t blocks;     /* of each sum; with 0 C becomes 0, or stays as it is */
    size_t last;       /* the last block's factors of pairs from this number on are 0 and may be left out; at least 1 */
    const uint16_t *a; // (rows, blocks * LK_BF16_BLOCK)
    size_t a_row;      /* elements from row to row, at least those of a row; an even number */
    const uint32_t *b; // (cols / LK_BF16_SIDE, blocks * LK_BF16_PAIRS, LK_BF16_SIDE)
    size_t b_panel;    /* elements from panel to panel */
    float *c;          // (rows, cols)
    size_t c_row;
    bool add; /* the sums continue from C */
} lk_bf16_product;

typedef void lk_bf16_multiply(const lk_bf16_product *product);

/* With AMX; only for a thread of a process to which lk__bf16_amx_allowed returned true. */
lk_bf16_multiply lk__bf16_multiply_amx;
/* Whether the processor has AMX with bf16, and the system lets this process use it. */
bool lk__bf16_amx_allowed(void);

#endif
