/* rows.cu - adds short rows, one for each shard, over the sum tree. */
#include "tensor/cuda/kernels/vec.cuh"

enum { LEAVES = 1024 }; /* of a launch */

struct leaf_merges {
    int depth, count;
    uint8_t after[LEAVES]; /* leaf i */
};

/* A thread processes one column; the slots are its stack. */
static __global__ void fold(leaf_merges m, size_t width, const float *leaves, size_t row, lk_partials sums)
{
    lk__cuda_await();
    size_t i = lk__cuda_thread();
    if (i >= width)
        return;
    int depth = m.depth;
    for (int leaf = 0; leaf < m.count; leaf++, depth++) {
        float *slot = sums.slot0 + sums.stride * (size_t)depth + i;
        float sum = leaves[(size_t)leaf * row + i];
        for (int k = 0; k < m.after[leaf]; k++, depth--) {
            slot -= sums.stride;
            sum = *slot + sum;
        }
        *slot = sum;
    }
}

/* The merges of leaves [first, first + LEAVES); `depth` entries are on the stack before them. */
static leaf_merges merges_of(const lk_shards *shards, int first, int depth)
{
    leaf_merges m = {};
    m.depth = depth;
    m.count = shards->count - first < LEAVES ? shards->count - first : (int)LEAVES;
    for (int i = 0; i < m.count; i++)
        m.after[i] = (uint8_t)shards->merges[first + i];
    return m;
}

void lk__cuda_rows_fold(lk_device *dev, size_t width, const float *leaves, size_t row, const lk_shards *shards,
                        lk_partials sums)
{
    cudaStream_t stream = lk__cuda_stream(dev);
    int depth = shards->depth;
    for (int first = 0; first < shards->count && width > 0; first += LEAVES) {
        leaf_merges m = merges_of(shards, first, depth);
        lk__cuda_follow({lk__cuda_blocks(width), LK_THREADS, 0, stream}, fold, m, width, leaves + (size_t)first * row,
                        row, sums);
        for (int i = 0; i < m.count; i++)
            depth += 1 - m.after[i];
    }
    lk__cuda_launched(dev, "rows_fold");
}
