/* test_conv2d.c - convolutions and their gradients, on the CPU and on GPUs. */
#include "tensor/layer.h"

/* {n, c, h, w}, out, CONV(kernel, stride, pad, groups); other fields by name. */
static const layer layers[] = {
    {{1, 1, 1, 1}, 1, CONV(1, 1, 0, 1), .shards = 1},
    {{2, 1, 28, 28}, 32, CONV(3, 1, 0, 1), .shards = 2},
    {{3, 32, 12, 11}, 64, CONV(3, 1, 0, 1), .shards = 2},
    {{4, 3, 9, 8}, 16, CONV(3, 1, 1, 1), .shards = 16, .no_bias = true},
    {{7, 16, 8, 8}, 16, CONV(3, 1, 1, 1), .shards = 3, .no_bias = true},
    {{5, 16, 9, 7}, 32, CONV(3, 2, 1, 1), .shards = 5, .no_bias = true},
    {{5, 16, 8, 8}, 32, CONV(1, 2, 0, 1), .shards = 4, .no_bias = true},
    {{6, 21, 7, 5}, 10, CONV(5, 1, 2, 1), .shards = 4},
    {{3, 10, 11, 13}, 26, CONV(5, 3, 2, 1), .shards = 2},
    {{2, 26, 6, 6}, 21, CONV(2, 2, 0, 1), .shards = 2},
    {{2, 3, 6, 9}, 5, CONV(2, 1, 2, 1), .shards = 3},
    {{3, 5, 10, 10}, 7, CONV(2, 3, 1, 1), .shards = 2, .no_bias = true},
    {{2, 4, 4, 4}, 3, CONV(1, 1, 1, 1), .shards = 2},
    {{1, 2, 3, 3}, 50, CONV(3, 3, 2, 1), .shards = 1},
    {{1, 17, 40, 40}, 33, CONV(3, 1, 1, 1), .shards = 1},
    {{2, 6, 5, 5}, 4, CONV(5, 1, 0, 1), .shards = 7},
    {{2, 40, 3, 60}, 40, CONV(3, 2, 2, 1), .shards = 2},
    {{3, 21, 8, 8}, 10, CONV(3, 1, 1, 1), .shards = 1},
    {{3, 21, 8, 8}, 10, CONV(3, 2, 1, 1), .shards = 1},
    /* Few channels: lanes are pixels, and windows are runs of strips. */
    {{5, 1, 28, 28}, 6, CONV(5, 1, 2, 1), .shards = 4},
    {{3, 6, 14, 14}, 16, CONV(5, 1, 0, 1), .shards = 7},
    {{2, 3, 7, 31}, 5, CONV(3, 1, 1, 1), .shards = 2, .no_bias = true},
    {{2, 5, 9, 35}, 1, CONV(4, 1, 3, 1), .shards = 1},
    {{2, 4, 11, 29}, 7, CONV(3, 2, 1, 1), .shards = 2},
    {{3, 1, 13, 30}, 6, CONV(5, 2, 2, 1), .shards = 2},
    {{2, 2, 17, 50}, 8, CONV(5, 3, 2, 1), .shards = 2},
    {{2, 2, 9, 40}, 8, CONV(2, 3, 0, 1), .shards = 2},
    {{2, 4, 4, 17}, 40, CONV(3, 1, 1, 1), .shards = 2},                    /* two runs a block */
    {{1, 2, 4, 16}, 100, CONV(3, 1, 1, 1), .shards = 1},                   /* several blocks a run */
    {{1, 2, 2, 300}, 3, CONV(3, 1, 1, 1), .shards = 1},                    /* several blocks a row */
    {{1, 1, 200, 150}, 6, CONV(7, 1, 3, 1), .shards = 1, .effort = BRIEF}, /* several bands */
    /* first layers: one or three channels, not padded */
    {{5, 1, 28, 28}, 32, CONV(3, 1, 0, 1), .shards = 4, .effort = BRIEF},
    {{1, 1, 9, 9}, 10, CONV(5, 1, 0, 1), .shards = 1},
    {{3, 3, 16, 16}, 16, CONV(3, 1, 1, 1), .shards = 2, .no_bias = true, .effort = BRIEF},
    {{2, 3, 20, 20}, 64, CONV(7, 2, 3, 1), .shards = 2, .no_bias = true, .effort = BRIEF},
    {{3, 2, 8, 8}, 21, CONV(3, 1, 1, 1), .shards = 3},
    /* many shards: subtrees of several of them, subtrees that waves cut, more leaves than are folded at once */
    {{26, 5, 5, 5}, 10, CONV(3, 2, 1, 1), .shards = 23},
    {{23, 16, 6, 6}, 16, CONV(3, 1, 1, 1), .shards = 21},
    {{19, 33, 4, 4}, 20, CONV(1, 1, 0, 1), .shards = 32, .no_bias = true},
    {{9, 5, 4, 4}, 5, CONV(3, 1, 1, 5), .shards = 150},
    /* no samples */
    {{0, 1, 8, 8}, 32, CONV(3, 1, 0, 1), .shards = 4},
    {{0, 26, 8, 8}, 21, CONV(3, 1, 1, 1), .shards = 2},
    {{0, 26, 8, 8}, 26, CONV(3, 1, 1, 26), .shards = 2},
    /* the shapes of the benchmarks, in small batches */
    {{2, 32, 26, 26}, 64, CONV(3, 1, 0, 1), .shards = 2, .effort = NOT_CPU},
    {{1, 101, 16, 16}, 106, CONV(3, 1, 1, 1), .shards = 1, .no_bias = true, .effort = NOT_CPU},
    {{2, 191, 8, 8}, 196, CONV(3, 2, 1, 1), .shards = 1, .no_bias = true, .effort = NOT_CPU},
    /* all sizes of tiles of a GPU's fp32 kernel, with incomplete ones */
    {{40, 32, 26, 26}, 70, CONV(3, 1, 0, 1), .shards = 1, .effort = NOT_CPU},
    {{60, 24, 25, 27}, 28, CONV(3, 1, 1, 1), .shards = 1, .effort = NOT_CPU},
    {{9, 40, 20, 20}, 130, CONV(3, 2, 1, 1), .shards = 1, .effort = NOT_CPU},
    /* a GPU's pairs of taps for up to 32 channels: windows of odd and even widths, several tiles of an image */
    {{3, 24, 19, 37}, 30, CONV(5, 1, 2, 1), .shards = 2, .effort = NOT_CPU},
    {{3, 32, 26, 26}, 32, {{2, 1, 0, 1}, {4, 1, 1, 1}, 1}, .shards = 2, .effort = NOT_CPU},
    {{2, 16, 45, 60}, 24, CONV(3, 1, 1, 1), .shards = 1, .effort = NOT_CPU},
    {{1, 40, 31, 130}, 16, CONV(7, 1, 3, 1), .shards = 1, .effort = NOT_CPU},
    /* a GPU's strips of eight columns: several images in a tile, incomplete tiles along each axis */
    {{9, 64, 8, 8}, 64, CONV(3, 1, 1, 1), .shards = 2, .effort = NOT_CPU},
    {{5, 40, 7, 7}, 136, CONV(3, 1, 1, 1), .shards = 2, .effort = NOT_CPU},
    {{3, 72, 14, 15}, 130, CONV(3, 1, 1, 1), .shards = 1, .effort = NOT_CPU},
    {{2, 130, 16, 16}, 96, CONV(3, 1, 1, 1), .shards = 1, .effort = NOT_CPU},
    {{1, 64, 57, 40}, 64, CONV(3, 1, 1, 1), .shards = 1, .effort = NOT_CPU},
    {{2, 200, 32, 24}, 72, CONV(3, 1, 0, 1), .shards = 1, .effort = NOT_CPU},
    /* windows of one pixel: weights that stay, weights that do not fit, pixels between strides */
    {{3, 250, 13, 11}, 60, CONV(1, 1, 0, 1), .shards = 1, .effort = NOT_CPU},
    {{2, 830, 15, 17}, 40, CONV(1, 1, 0, 1), .shards = 1, .effort = NOT_CPU},
    {{3, 136, 15, 13}, 200, CONV(1, 2, 0, 1), .shards = 1, .effort = NOT_CPU},
    {{3, 48, 12, 17}, 80, CONV(5, 1, 2, 1), .shards = 1, .effort = NOT_CPU},
    /* few channels of many: weights that do not stay in a GPU's shared memory */
    {{2, 136, 30, 33}, 64, CONV(3, 1, 1, 1), .shards = 1, .effort = NOT_CPU},
    {{5, 260, 8, 8}, 48, CONV(3, 1, 1, 1), .shards = 2, .effort = NOT_CPU},
};

static const layer groups[] = {
    {{2, 4, 6, 5}, 6, CONV(3, 1, 1, 2), .shards = 2},
    {{3, 9, 7, 8}, 15, CONV(3, 2, 1, 3), .shards = 2},
    {{2, 34, 5, 5}, 38, CONV(3, 1, 0, 2), .shards = 3, .no_bias = true},
    {{4, 6, 8, 8}, 6, CONV(1, 1, 0, 3), .shards = 16},
    {{2, 64, 9, 9}, 32, CONV(1, 2, 0, 2), .shards = 2, .no_bias = true},
    {{2, 5, 6, 7}, 10, CONV(3, 1, 1, 5), .shards = 3},
    {{1, 4, 30, 90}, 8, CONV(3, 1, 1, 2), .shards = 1},
    {{2, 8, 6, 6}, 4, CONV(5, 3, 2, 4), .shards = 2},
    {{3, 6, 9, 10}, 4, CONV(3, 1, 1, 2), .shards = 2},
    {{3, 8, 6, 29}, 12, CONV(3, 1, 1, 2), .shards = 5},
    {{2, 4, 7, 16}, 8, CONV(3, 1, 0, 2), .shards = 2, .no_bias = true},
    {{2, 12, 9, 31}, 12, CONV(3, 2, 1, 3), .shards = 2},
    {{3, 9, 9, 10}, 12, CONV(3, 2, 1, 3), .shards = 2},
    {{3, 40, 9, 10}, 70, CONV(3, 1, 1, 2), .shards = 2},
    {{3, 5, 9, 10}, 15, CONV(3, 1, 0, 5), .shards = 2},
    {{3, 4, 9, 10}, 8, CONV(5, 2, 2, 4), .shards = 2},
    {{3, 12, 9, 10}, 4, CONV(1, 1, 0, 4), .shards = 2},
    {{2, 3, 8, 8}, 12, CONV(3, 1, 1, 3), .shards = 2},
    {{2, 12, 8, 8}, 20, CONV(3, 2, 0, 4), .shards = 2},
    {{2, 32, 8, 8}, 64, CONV(3, 1, 1, 4), .shards = 1},
    {{2, 10, 6, 6}, 6, CONV(1, 1, 0, 2), .shards = 1},
    /* one channel in each group */
    {{3, 32, 9, 10}, 32, CONV(3, 1, 1, 32), .shards = 2},
    {{5, 21, 8, 11}, 21, CONV(3, 2, 1, 21), .shards = 16},
    {{2, 7, 4, 4}, 7, CONV(5, 1, 2, 7), .shards = 2, .no_bias = true},
    {{2, 50, 7, 7}, 50, CONV(3, 1, 0, 50), .shards = 3},
    {{3, 17, 9, 9}, 17, CONV(2, 3, 1, 17), .shards = 2},
    {{2, 3, 5, 6}, 3, CONV(1, 1, 0, 3), .shards = 2},
    {{2, 2, 3, 3}, 2, CONV(3, 3, 2, 2), .shards = 2},
    {{2, 6, 6, 9}, 6, CONV(2, 1, 2, 6), .shards = 3, .no_bias = true},
    {{1, 40, 40, 60}, 40, CONV(3, 1, 1, 40), .shards = 1},
    {{2, 9, 13, 12}, 9, CONV(7, 2, 3, 9), .shards = 70},
    {{3, 8, 9, 10}, 8, CONV(3, 1, 1, 8), .shards = 2},
    {{3, 37, 9, 10}, 37, CONV(3, 2, 1, 37), .shards = 2},
    {{3, 3, 9, 10}, 3, CONV(5, 1, 2, 3), .shards = 2},
    {{3, 18, 9, 10}, 18, CONV(2, 2, 0, 18), .shards = 2},
    {{3, 16, 9, 10}, 16, CONV(1, 2, 0, 16), .shards = 2},
    {{3, 2, 9, 10}, 2, CONV(7, 3, 3, 2), .shards = 2},
    {{3, 33, 9, 10}, 33, CONV(4, 1, 2, 33), .shards = 2},
    {{3, 32, 8, 8}, 32, CONV(3, 1, 1, 32), .shards = 2},
    {{3, 26, 9, 9}, 26, CONV(3, 2, 1, 26), .shards = 3, .no_bias = true},
    {{2, 21, 7, 7}, 21, CONV(5, 1, 2, 21), .shards = 1},
};

/* {n, c, h, w}, out, {{kernel, stride, pad, dilation} of the height, of the width, groups}. */
static const layer windows[] = {
    /* rectangular */
    {{2, 5, 9, 11}, 7, {{1, 1, 0, 1}, {7, 1, 3, 1}, 1}, .shards = 2},
    {{2, 5, 9, 11}, 7, {{7, 1, 3, 1}, {1, 1, 0, 1}, 1}, .shards = 2, .no_bias = true},
    {{3, 16, 10, 9}, 21, {{3, 2, 1, 1}, {5, 1, 2, 1}, 1}, .shards = 3},
    {{2, 3, 8, 21}, 10, {{2, 1, 0, 1}, {3, 4, 1, 1}, 1}, .shards = 2},
    {{2, 1, 12, 9}, 32, {{3, 1, 1, 1}, {3, 1, 0, 1}, 1}, .shards = 2}, /* unequal padding only */
    {{2, 3, 12, 9}, 16, {{3, 1, 0, 1}, {3, 1, 1, 1}, 1}, .shards = 2},
    {{2, 3, 12, 9}, 16, {{3, 1, 1, 1}, {3, 2, 1, 1}, 1}, .shards = 2}, /* unequal strides only */
    /* dilated */
    {{2, 5, 9, 11}, 7, {{3, 1, 2, 2}, {3, 1, 2, 2}, 1}, .shards = 2},
    {{2, 5, 9, 11}, 7, {{3, 1, 1, 1}, {3, 1, 3, 3}, 1}, .shards = 2},
    {{2, 4, 9, 33}, 6, {{3, 1, 2, 2}, {3, 1, 3, 3}, 1}, .shards = 2},
    {{2, 3, 9, 17}, 4, {{1, 2, 0, 1}, {3, 1, 1, 1}, 1}, .shards = 2},
    {{2, 4, 9, 33}, 6, {{3, 2, 3, 3}, {2, 3, 2, 2}, 1}, .shards = 2},
    {{2, 3, 6, 34}, 4, {{1, 1, 0, 1}, {7, 1, 3, 1}, 1}, .shards = 2},
    {{2, 3, 16, 33}, 4, {{7, 2, 8, 1}, {1, 1, 0, 1}, 1}, .shards = 2}, /* rows of padding only */
    {{2, 21, 11, 8}, 16, {{3, 1, 0, 3}, {2, 1, 1, 1}, 1}, .shards = 3},
    {{2, 1, 28, 28}, 32, {{3, 1, 2, 2}, {3, 1, 2, 2}, 1}, .shards = 2, .effort = BRIEF},
    {{2, 4, 5, 6}, 6, {{3, 1, 6, 6}, {3, 1, 7, 7}, 1}, .shards = 2}, /* only the middle tap is in the image */
    /* strides and dilations with and without a common divisor */
    {{2, 6, 13, 14}, 9, {{3, 2, 2, 2}, {3, 2, 3, 3}, 1}, .shards = 2},
    {{2, 6, 17, 19}, 9, {{4, 4, 3, 6}, {5, 6, 2, 4}, 1}, .shards = 2},
    {{2, 6, 17, 19}, 9, {{2, 3, 1, 3}, {3, 4, 4, 2}, 1}, .shards = 3, .no_bias = true},
    {{1, 2, 15, 40}, 3, {{4, 3, 0, 2}, {7, 2, 5, 5}, 1}, .shards = 1},
    {{2, 3, 10, 12}, 5, {{2, 2, 4, 3}, {2, 2, 6, 4}, 1}, .shards = 2},
    /* in groups */
    {{2, 6, 9, 11}, 10, {{1, 1, 0, 1}, {7, 1, 3, 1}, 2}, .shards = 2},
    {{2, 9, 10, 9}, 12, {{3, 2, 1, 1}, {5, 1, 2, 1}, 3}, .shards = 3},
    {{2, 6, 9, 11}, 10, {{3, 1, 2, 2}, {3, 2, 3, 3}, 2}, .shards = 2},
    {{2, 32, 9, 9}, 64, {{3, 1, 2, 2}, {3, 1, 2, 2}, 4}, .shards = 1},
    /* one channel in each group */
    {{2, 21, 9, 11}, 21, {{1, 1, 0, 1}, {7, 1, 3, 1}, 21}, .shards = 2},
    {{2, 21, 9, 11}, 21, {{7, 1, 3, 1}, {1, 1, 0, 1}, 21}, .shards = 2},
    {{3, 10, 10, 9}, 10, {{3, 2, 1, 1}, {5, 1, 2, 1}, 10}, .shards = 3},
    {{3, 16, 10, 9}, 16, {{3, 1, 1, 1}, {3, 1, 0, 1}, 16}, .shards = 2, .no_bias = true},
    {{3, 16, 10, 9}, 16, {{3, 1, 1, 1}, {3, 2, 1, 1}, 16}, .shards = 2},
    {{2, 21, 9, 11}, 21, {{3, 1, 2, 2}, {3, 1, 2, 2}, 21}, .shards = 2},
    {{2, 9, 9, 26}, 9, {{3, 1, 1, 1}, {3, 1, 3, 3}, 9}, .shards = 16},
    {{2, 17, 13, 27}, 17, {{3, 2, 2, 2}, {3, 2, 2, 2}, 17}, .shards = 2}, /* neighbours share columns of taps */
    {{2, 33, 13, 24}, 33, {{3, 2, 3, 3}, {2, 3, 1, 2}, 33}, .shards = 2},
    {{2, 5, 17, 19}, 5, {{4, 4, 3, 6}, {5, 6, 2, 4}, 5}, .shards = 2, .no_bias = true},
    {{2, 8, 5, 6}, 8, {{3, 1, 6, 6}, {3, 1, 7, 7}, 8}, .shards = 2},
    /* large, for GPUs */
    {{8, 64, 32, 33}, 64, {{3, 1, 2, 2}, {3, 1, 2, 2}, 1}, .shards = 2, .effort = NOT_CPU},
    {{8, 64, 32, 33}, 64, {{1, 1, 0, 1}, {7, 1, 3, 1}, 1}, .shards = 2, .effort = NOT_CPU},
    {{8, 64, 32, 33}, 64, {{3, 2, 1, 1}, {5, 1, 2, 1}, 64}, .shards = 2, .effort = NOT_CPU},
};

/* Own kernels of GPUs: few channels of x, one channel in each group, and stride 1. Odd sizes, several tiles or marches
 * in a row and in a column, channels that are not whole vectors. */
static const layer own_kernels[] = {
    {{1, 3, 29, 71}, 64, CONV(3, 1, 1, 1), .shards = 1},
    {{3, 3, 31, 33}, 72, CONV(3, 2, 1, 1), .shards = 2},
    {{2, 3, 75, 130}, 40, CONV(3, 2, 0, 1), .shards = 2, .no_bias = true},
    {{2, 3, 41, 140}, 64, CONV(7, 2, 3, 1), .shards = 2, .no_bias = true},
    {{3, 1, 40, 27}, 130, CONV(3, 1, 0, 1), .shards = 3},
    {{2, 4, 17, 70}, 32, CONV(3, 1, 1, 1), .shards = 1},
    {{2, 2, 23, 9}, 21, CONV(5, 1, 2, 1), .shards = 2},
    {{2, 1, 19, 18}, 8, CONV(4, 3, 1, 1), .shards = 2},
    {{3, 3, 15, 66}, 16, {{2, 1, 0, 1}, {5, 2, 3, 1}, 1}, .shards = 2},
    {{1, 40, 33, 31}, 40, CONV(3, 1, 1, 40), .shards = 1},
    {{3, 21, 34, 29}, 21, CONV(3, 2, 1, 21), .shards = 2},
    {{2, 144, 17, 15}, 144, CONV(3, 1, 0, 144), .shards = 2, .no_bias = true},
    {{2, 132, 18, 16}, 132, CONV(3, 2, 0, 132), .shards = 2},
    {{5, 8, 3, 3}, 8, CONV(3, 2, 1, 8), .shards = 5},
    {{2, 16, 62, 5}, 16, {{3, 2, 0, 1}, {3, 2, 1, 1}, 16}, .shards = 1},
    {{2, 64, 32, 32}, 64, CONV(3, 1, 1, 1), .shards = 1},
    {{3, 32, 26, 26}, 64, CONV(3, 1, 0, 1), .shards = 2},
    {{1, 101, 20, 32}, 106, CONV(3, 1, 1, 1), .shards = 1, .no_bias = true},
    {{2, 72, 15, 16}, 136, CONV(3, 1, 2, 1), .shards = 2},
    {{2, 24, 14, 20}, 40, CONV(5, 1, 2, 1), .shards = 2},
    {{2, 24, 14, 20}, 72, CONV(5, 1, 2, 1), .shards = 1},
    {{3, 21, 13, 17}, 26, {{3, 1, 1, 1}, {2, 1, 0, 1}, 1}, .shards = 2},
    {{2, 40, 14, 13}, 16, {{1, 1, 0, 1}, {4, 1, 3, 1}, 1}, .shards = 1},
};

/* Cases with NaNs: each implementation of a GPU, several algorithms of cuDNN, and every lane and tail of the
 * CPU's vectors. */
static const layer with_relus[] = {
    {{2, 5, 5, 4}, 37, CONV(3, 1, 1, 1), .shards = 1},
    {{2, 21, 6, 6}, 3, CONV(3, 2, 1, 1), .shards = 1},
    {{2, 10, 4, 4}, 6, CONV(3, 1, 1, 2), .shards = 1},
    {{2, 37, 5, 4}, 37, CONV(3, 1, 1, 37), .shards = 1},
    {{2, 19, 6, 6}, 19, CONV(3, 2, 1, 19), .shards = 1},
    {{2, 5, 6, 7}, 19, {{3, 1, 2, 2}, {2, 2, 1, 3}, 1}, .shards = 1},
    {{2, 19, 6, 7}, 19, {{3, 1, 2, 2}, {2, 2, 1, 3}, 19}, .shards = 1},
    {{5, 1, 28, 28}, 32, CONV(3, 1, 0, 1), .effort = NOT_CPU},
    {{2, 3, 9, 70}, 64, CONV(3, 2, 1, 1), .effort = NOT_CPU},
    {{3, 32, 8, 8}, 32, CONV(3, 1, 1, 32), .effort = NOT_CPU},
    {{2, 21, 7, 7}, 21, CONV(5, 1, 2, 21), .effort = NOT_CPU},
    {{2, 10, 6, 6}, 6, CONV(1, 1, 0, 2), .effort = NOT_CPU},
    {{4, 21, 8, 8}, 26, CONV(3, 1, 1, 1), .effort = NOT_CPU},
    {{2, 32, 26, 26}, 64, CONV(3, 1, 0, 1), .effort = NOT_CPU},
    {{64, 64, 16, 16}, 64, CONV(3, 1, 1, 1), .effort = NOT_CPU},
    {{2, 26, 12, 12}, 16, CONV(1, 1, 0, 1), .effort = NOT_CPU},
    {{2, 26, 12, 12}, 16, CONV(5, 2, 2, 1), .effort = NOT_CPU},
};

/* Weight gradients of many channels: incomplete units of rows and blocks of channels, blocks of the sum that are rows
 * of a sample, parts of a row, or several samples. */
static const layer wide[] = {
    {{3, 37, 9, 8}, 19, CONV(1, 1, 0, 1), .shards = 2},
    {{5, 90, 7, 7}, 29, CONV(1, 1, 0, 1), .shards = 4, .no_bias = true},
    {{2, 580, 7, 7}, 1400, CONV(1, 1, 0, 1), .shards = 4, .no_bias = true, .effort = BRIEF},
    {{2, 700, 5, 7}, 300, CONV(3, 2, 1, 1), .shards = 4, .no_bias = true, .effort = BRIEF},
    {{2, 34, 3, 300}, 14, CONV(1, 1, 0, 1), .shards = 3},
    {{2, 34, 3, 600}, 14, CONV(3, 2, 1, 1), .shards = 3},
    {{300, 33, 1, 1}, 13, CONV(3, 1, 1, 1), .shards = 2},
    {{70, 40, 2, 3}, 25, {{2, 1, 0, 1}, {3, 2, 2, 1}, 1}, .shards = 3},
    {{3, 65, 9, 10}, 70, {{3, 1, 2, 2}, {2, 3, 1, 2}, 1}, .shards = 2},
    {{3, 120, 9, 10}, 75, {{3, 2, 1, 1}, {1, 1, 0, 1}, 3}, .shards = 16},
    {{4, 32, 12, 12}, 40, CONV(5, 1, 0, 1), .shards = 4},
};

static void test_wide(void **state)
{
    check_layers(wide, COUNT_OF(wide));
}

static void test_layers(void **state)
{
    check_layers(layers, COUNT_OF(layers));
}

static void test_groups(void **state)
{
    check_layers(groups, COUNT_OF(groups));
}

static void test_windows(void **state)
{
    check_layers(windows, COUNT_OF(windows));
}

static void test_own_kernels(void **state)
{
    for (size_t i = 0; i < COUNT_OF(own_kernels); i++) {
        layer l = own_kernels[i];
        l.effort = NOT_CPU;
        l.each_sample = true;
        check_layer(l);
    }
}

static void test_odd_channels(void **state)
{
    static const size_t channels[][2] = {{16, 21}, {21, 26}, {26, 31}, {31, 64}, {64, 31}, {32, 64}, {4, 1}, {10, 10}};
    for (size_t i = 0; i < COUNT_OF(channels); i++) {
        layer l = {{4, channels[i][0], 8, 8}, channels[i][1], CONV(3, 1, 1, 1), .shards = 3};
        l.effort = l.x.c * l.out > 1000 ? NOT_CPU : BRIEF;
        for (size_t stride = 1; stride <= 2; stride++) {
            l.conv.h.stride = l.conv.w.stride = stride;
            l.no_bias = stride == 2;
            check_layer(l);
        }
    }
}

static void test_kernels(void **state)
{
    for (size_t kernel = 1; kernel <= 7; kernel += 2) {
        for (size_t stride = 1; stride <= 2; stride++) {
            check_layer((layer){{2, 26, 9, 12}, 16, CONV(kernel, stride, kernel / 2, 1), .effort = BRIEF});
            check_layer((layer){{2, 8, 11, 8}, 21, CONV(kernel, stride, 0, 1), .no_bias = true, .effort = BRIEF});
        }
    }
    check_layer((layer){{2, 12, 6, 6}, 9, CONV(6, 1, 0, 1), .effort = BRIEF}); /* one output pixel */
}

/* Shards of different sizes, empty shards, and waves. */
static void test_shards(void **state)
{
    static const struct {
        size_t batch;
        int shards, wave;
    } cuts[] = {{7, 4, 0}, {7, 4, 1}, {13, 5, 2}, {3, 8, 0}, {3, 8, 1}, {1, 1, 0}, {1, 16, 3}, {16, 16, 5}};
    for (size_t i = 0; i < COUNT_OF(cuts); i++) {
        layer l = {{cuts[i].batch, 1, 10, 10}, 32, CONV(3, 1, 1, 1), cuts[i].shards, cuts[i].wave, .effort = BRIEF};
        check_layer(l);
        l.x = (lk_shape){cuts[i].batch, 26, 5, 5};
        check_layer(l);
        l.out = l.conv.groups = 26;
        check_layer(l);
        check_layer(
            (layer){{cuts[i].batch, 70, 6, 6}, 21, CONV(1, 1, 0, 1), cuts[i].shards, cuts[i].wave, .effort = BRIEF});
        check_layer(
            (layer){{cuts[i].batch, 35, 6, 6}, 21, CONV(3, 2, 1, 1), cuts[i].shards, cuts[i].wave, .effort = BRIEF});
    }
}

/* The results of `l` with this many threads; the bits must be those of `want`, if there are any. */
static float *run_with_threads(const layer *l, int threads, const float *want)
{
    lk_device_opts opts = {.threads = threads, .crowded = true, .precision = precision};
    size_t count = layer_layout_of(l).at[PARTS];
    lk_device *d;
    assert_ok(lk__device_open("cpu", &opts, &d));
    float *got = fx_once(d, run_layer, l, count);
    for (size_t i = 0; want && i < count; i++)
        if (!fx_equal(got[i], want[i]))
            fail_msg("%d threads, %d shards: element %zu is %.9g, and %.9g with one thread", threads, l->shards, i,
                     (double)got[i], (double)want[i]);
    lk__device_close(d);
    return got;
}

/* More threads than the other tests have: weight gradients are cut into more subtrees, and into more than one wave. */
static void test_many_threads(void **state)
{
    static const int threads[] = {7, 16, 40, 70};
    layer cases[] = {
        {{40, 16, 6, 6}, 16, CONV(3, 1, 1, 1), .shards = 300},
        {{130, 5, 5, 5}, 10, CONV(3, 2, 1, 1), .shards = 130},
        {{70, 40, 3, 3}, 33, CONV(1, 1, 0, 1), .shards = 70, .wave = 41, .no_bias = true},
        {{3, 70, 6, 6}, 64, CONV(3, 1, 1, 1), .shards = 16},
        {{9, 6, 4, 4}, 6, CONV(3, 1, 1, 6), .shards = 130},
    };
    for (size_t c = 0; fx_builds && c < COUNT_OF(cases); c++) {
        layer *l = &cases[c];
        float *x = random_values(lk__shape_count(l->x), 1), *dy = random_values(lk__shape_count(layer_y(l)), 2);
        float *w = random_values(layer_weights(l), 3), *b = random_values(l->out, 4);
        l->values = x, l->dy = dy, l->w = w, l->b = b;
        float *want = run_with_threads(l, 1, NULL);
        for (size_t i = 0; i < COUNT_OF(threads); i++)
            free(run_with_threads(l, threads[i], want));
        free(want);
        free(x);
        free(dy);
        free(w);
        free(b);
    }
}

static void test_nans(void **state)
{
    for (size_t i = 0; i < COUNT_OF(with_relus); i++)
        check_layer_nans(with_relus[i]);
}

/* Direct sums, and those of GPUs with copies that round: narrow, with paired taps, wide. Channels without pads, which
 * would not be zero. */
static const layer with_nans[] = {
    {{2, 8, 6, 7}, 16, CONV(3, 1, 1, 1)},
    {{2, 32, 26, 26}, 64, CONV(3, 1, 0, 1), .effort = NOT_CPU},
    {{2, 64, 16, 16}, 24, CONV(3, 1, 1, 1), .effort = NOT_CPU},
    {{1, 136, 14, 14}, 104, CONV(3, 1, 1, 1), .effort = NOT_CPU},
    {{2, 64, 8, 8}, 72, CONV(1, 1, 0, 1), .effort = NOT_CPU},
};

static void test_nan_factors(void **state)
{
    for (size_t i = 0; i < COUNT_OF(with_nans); i++)
        check_nan_factors(with_nans[i]);
}

int main(int argc, char **argv)
{
    return fx_kernel_main(argc, argv,
                          TESTS(TEST(test_layers), TEST(test_wide), TEST(test_groups), TEST(test_windows),
                                TEST(test_own_kernels), TEST(test_odd_channels), TEST(test_kernels), TEST(test_shards),
                                TEST(test_many_threads), TEST(test_nans), TEST(test_nan_factors)),
                          FX_FP32 | FX_TF32 | FX_BF16);
}
