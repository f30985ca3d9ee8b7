/* weights_few.cuh - the work of the two kernels for linear layers with few samples a shard (weights_few.cu,
 * weights_few_large.cu), and the gradient of the bias, which further blocks of the same launch compute. For nvcc only.
 *
 * A block computes a group of at most GROUP_LEAVES leaves. A group is a whole subtree, whose shape follows from its
 * number of leaves (base/tree.h): sums that are d leaves apart are added for d = 1, 2, 4, ... wherever both exist. */
#ifndef LK_TENSOR_CUDA_KERNELS_WEIGHTS_FEW_CUH
#define LK_TENSOR_CUDA_KERNELS_WEIGHTS_FEW_CUH

#include "tensor/cuda/kernels/vec4.cuh"
#include "tensor/cuda/kernels/weights.h"

enum { GROUP_LEVELS = 4, GROUP_LEAVES = 1 << GROUP_LEVELS };
enum { MOST_SAMPLES = 16, BATCH = 8 }; /* of a shard, and those whose loads are issued at once */

/* An argument of both kernels. Block column i computes tile i; those from `tiles` on sum columns of dy. */
typedef struct few_work {
    int c, k; /* pitches of x and dy */
    int tiles_n, tiles;
    float *weights; // (groups, k, c), rows of groups are `row` floats apart
    float *bias;    // (groups, k), as weights; or NULL
    size_t row;
} few_work;

/* Blocks along x of a launch whose tiles are m x n. */
static inline unsigned few_blocks(few_work *work, int m, int n, int threads)
{
    work->tiles_n = (work->c + n - 1) / n;
    work->tiles = work->tiles_n * ((work->k + m - 1) / m);
    return (unsigned)work->tiles + (work->bias ? lk__cuda_parts((size_t)work->k, (size_t)threads / GROUP_LEAVES) : 0);
}

/* Leaf i of the group is summed by thread i of each GROUP_LEAVES threads, which have a column of dy together. */
template <class T>
static __device__ __forceinline__ void sum_columns(const few_work &work, const lk_cuda_leaves &leaves, const T *dy)
{
    int mine = (int)threadIdx.x % GROUP_LEAVES, columns = (int)blockDim.x / GROUP_LEAVES;
    int column = ((int)blockIdx.x - work.tiles) * columns + (int)threadIdx.x / GROUP_LEAVES;
    int first = leaves.group[blockIdx.y], count = leaves.group[blockIdx.y + 1] - first;
    bool used = mine < count && column < work.k;
    uint32_t row = used ? leaves.begin[first + mine] : 0, end = used ? leaves.begin[first + mine + 1] : 0;
    float sum = 0.0f;
    for (; row < end; row += BATCH) {
        float v[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            v[i] = row + i < end ? lk__cuda_get1(dy + (size_t)(row + i) * work.k + column) : 0.0f;
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            sum += v[i];
    }
#pragma unroll
    for (int d = 1; d < GROUP_LEAVES; d *= 2) {
        float right = __shfl_down_sync(~0u, sum, d, GROUP_LEAVES);
        sum = mine + d < count ? sum + right : sum;
    }
    if (mine == 0 && column < work.k)
        work.bias[blockIdx.y * work.row + column] = sum;
}

/* Enqueues the kernel for large layers (weights_few_large.cu). */
void lk__cuda_few_large(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves,
                        few_work work);

#endif
