/* leaves.h - how the weight gradients of a wave's shards are divided among launches and blocks: pure arithmetic.
 *
 * A leaf is the gradient of one shard (shards.h), a sum over the shard's rows: pixels of y, strips of them, or bands of
 * strips. A kernel adds rows in chunks. The chunks of a leaf are divided into parts of a fixed number of chunks; each
 * part is computed by its own blocks. Where a leaf is one part, a block computes a group of neighbouring leaves that
 * form a complete subtree and folds them in registers or shared memory. One kernel, the fold (weights.h), then adds the
 * parts of each leaf and folds leaves or groups over the tree.
 *
 * The bits of a leaf depend on its samples, the layer, lk_shards.most and lk_shards.all: these choose kernel and parts.
 * Groups and launches depend on the wave as well, but they only decide which block makes an addition of the tree. */
#ifndef LK_TENSOR_CUDA_KERNELS_LEAVES_H
#define LK_TENSOR_CUDA_KERNELS_LEAVES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/shards.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Leaves of a launch, at most: their description is an argument of the kernel. Parts of a leaf, at most. */
enum { LK_CUDA_LEAVES = 128, LK_CUDA_PARTS = 2048 };

/* The shards for which kernels and tiles are chosen: the default number. */
enum { LK_CUDA_USUAL_SHARDS = 16 };

/* How a kernel computes a layer. */
typedef struct lk_cuda_cut {
    size_t rows;    /* of a sample */
    size_t chunk;   /* rows that a block adds at once */
    size_t least;   /* chunks of a part, at least */
    size_t extra;   /* chunks that take as long as writing a part and folding it. If it is 0, parts are as many as fill
                     * the GPU, without regard to what is left of the last round of blocks */
    size_t tiles;   /* blocks that compute one part */
    size_t full;    /* blocks that fill a large GPU twice: half of them run at once. A constant of the kernel, because
                     * parts depend on it */
    int levels;     /* a block can fold 1 << levels leaves; 0: one leaf */
    size_t small;   /* rows of a group that a block computes so fast that dividing the group saves nothing */
    size_t weights; /* floats of a part: gradients of weights, */
    size_t bias;    /* then of the bias; 0 if the kernel does not compute it */
} lk_cuda_cut;

/* The leaves of one launch. An argument of kernels. Block row j (a coordinate of the grid) computes part j % parts of
 * group j / parts. If parts is above 1, each group is one leaf. */
typedef struct lk_cuda_leaves {
    int first, count; /* leaves [first, first + count) of the wave */
    int groups;
    int parts;                          /* of a leaf, at most */
    int chunks;                         /* of a part; INT_MAX: a leaf is one part */
    uint32_t begin[LK_CUDA_LEAVES + 1]; /* first row of each leaf in the wave, and the end */
    uint8_t group[LK_CUDA_LEAVES + 1];  /* first leaf of each group, and the end */
    uint8_t inner[LK_CUDA_LEAVES];      /* merges after leaf i inside of its group */
    uint8_t outer[LK_CUDA_LEAVES];      /* (groups) merges after the group's root */
    uint16_t parts_of[LK_CUDA_LEAVES];  /* (groups) parts of the group, at least 1 */
} lk_cuda_leaves;

/* A measure of the time of a step with `all` shards of `most` samples, for a cut with `extra`: comparable if it is
 * multiplied by the time of a chunk. */
size_t lk__cuda_leaves_time(const lk_cuda_cut *cut, size_t most, size_t all);

/* Describes the launch that starts with leaf `first`. Fails if the wave's rows cannot be counted in 32 bits. */
lk_status lk__cuda_leaves_take(const lk_cuda_cut *cut, const lk_shards *shards, int first,
                               lk_cuda_leaves *out) LK_CHECKED;

/* Whether the launch's only root is the sum of the whole wave, with nothing to add: the kernel writes it to a slot. */
bool lk__cuda_leaves_is_sum(const lk_cuda_leaves *leaves, const lk_shards *shards);

/* Entries on the stack of partial sums after the launch, if there were `depth` before it. */
int lk__cuda_leaves_depth(const lk_cuda_leaves *leaves, int depth);

#ifdef __cplusplus
}
#endif
#endif
