/* outer_tile.h - tiles of weight gradients: sums of outer products over runs of pixels.
 *
 * Row i of a tile and a panel of columns get the sum over pixels of a[i] * b[column]. A block of the sum (sums.h) is
 * one run or several; at the end of a block the tile is added to the leaf's sum so far, and at the end of a leaf it is
 * folded as shards.h says, all while it is in registers.
 *
 * The first tile that reads a panel of x can read it in place and copy it to B for the others, so that memory is read
 * while the tile multiplies. */
#ifndef LK_TENSOR_CPU_OUTER_TILE_H
#define LK_TENSOR_CPU_OUTER_TILE_H

#include <stdbool.h>
#include <stddef.h>

#include "tensor/cpu/tile.h"

/* Floats of a whole tile. */
enum { LK_OUTER_UNIT = LK_MR * LK_NR };

typedef enum lk_outer_end {
    LK_OUTER_END_NONE, /* the block continues with the next run */
    LK_OUTER_END_BLOCK,
    LK_OUTER_END_LEAF
} lk_outer_end;

/* Outputs [begin, end) of a row or column of dy. */
typedef struct lk_outer_span {
    size_t begin, end;
} lk_outer_span;

/* `rows` rows of `count` neighbouring pixels. */
typedef struct lk_outer_run {
    size_t rows, count;
    size_t at_y, at_x; /* row and column of the first pixel in dy */
    size_t a;          /* the first pixel's number in A, whose pixels are one after the other */
    const float *x;    /* the first pixel in the image, if tiles copy it */
    const float *b;    /* the first pixel's place in B */
    size_t row;        /* floats from a row of B's image to the next */
    lk_outer_end end;
    bool fresh; /* at an end: the block is its leaf's first */
    bool zero;  /* at the end of a leaf: the sum of an empty shard, 0.0, is added before the merges */
    int merges; /* at the end of a leaf */
} lk_outer_run;

typedef struct lk_outer_tile {
    const lk_outer_run *runs;
    size_t run_count;
    const float *a; // (pixels, LK_MR) of which the first `rows` are the tile's
    size_t rows;
    float *copy;         /* not NULL: B, to which the tile copies x, pixel by pixel; only with LK_MR rows */
    size_t channel;      /* to be copied: the first channel, */
    size_t x_x, x_y;     /* and floats of the image from one pixel, and row of pixels, to the next */
    size_t b_x, b_y;     /* floats and rows of B's image from one pixel, and row of pixels, to the next */
    size_t tap_x, tap_y; /* floats and rows that a tap is after a pixel's place */
    lk_outer_span y, x;  /* rows and columns of dy that the tile adds; it leaves out the others */
    size_t width;        /* V or LK_NR */
    float *top;          /* (rows, LK_NR) where the first leaf is summed; has its sum so far unless fresh */
    size_t entry;        /* floats from one partial sum to the next above it */
    float *stack;        // (LK_TREE_MAX_DEPTH + 1, LK_OUTER_UNIT) scratch
} lk_outer_tile;

#define lk__outer_tile_sum LK_KERNEL(outer_tile_sum)
void lk__outer_tile_sum(const lk_outer_tile *tile);

#endif
