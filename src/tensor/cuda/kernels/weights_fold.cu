/* weights_fold.cu - adds the parts of leaves, and folds leaves over the sum tree. Where leaves have parts, a block has
 * few columns, and its threads take a run of parts each; otherwise a thread takes V columns of all leaves. Both add in
 * the same order. */
#include "tensor/cuda/kernels/vec4.cuh"
#include "tensor/cuda/kernels/weights.h"

/* A block of parts has COLUMNS by at most LANES threads and ROUND runs at once. With fewer than FEW_COLUMNS columns, a
 * thread has only one, so that there are enough blocks. */
enum { COLUMNS = 16, LANES = 64, ROUND = LK_CUDA_PARTS / LK_CUDA_RUN, FEW_COLUMNS = 8192, WHOLE_THREADS = 64 };

template <int V>
struct fold_value {
    float at[V];
};

template <int V>
static __device__ __forceinline__ fold_value<V> zero_value()
{
    fold_value<V> v;
#pragma unroll
    for (int i = 0; i < V; i++)
        v.at[i] = 0.0f;
    return v;
}

template <int V>
static __device__ __forceinline__ fold_value<V> load_value(const float *p)
{
    fold_value<V> v;
    lk__cuda_load(p, v.at);
    return v;
}

template <int V>
static __device__ __forceinline__ fold_value<V> add_values(fold_value<V> a, fold_value<V> b)
{
#pragma unroll
    for (int i = 0; i < V; i++)
        a.at[i] += b.at[i];
    return a;
}

/* Column c of an entry of the stack. */
static __device__ __forceinline__ float *entry_at(const lk_cuda_fold &f, int entry, size_t c)
{
    if (entry >= f.limit)
        return f.carry + (size_t)(entry - f.limit) * (f.weights + f.bias) + c;
    return c < f.weights ? f.dw.slot0 + f.dw.stride * (size_t)entry + c
                         : f.db.slot0 + f.db.stride * (size_t)entry + (c - f.weights);
}

/* Whether parts have column c of the slots, and where. */
static __device__ __forceinline__ bool has_column(const lk_cuda_fold &f, size_t c)
{
    return c < f.given || (c >= f.weights && c < f.weights + f.bias);
}

static __device__ __forceinline__ size_t given_column(const lk_cuda_fold &f, size_t c)
{
    return c < f.given ? c : c - f.weights + f.given;
}

/* The sum of one run of the parts of a group, in order. LOADS are issued together: all of a run but its first one, or
 * a third of them. */
template <int V>
static __device__ __forceinline__ fold_value<V> sum_run(const lk_cuda_leaves &leaves, const lk_cuda_fold &f, int group,
                                                        int run, size_t column)
{
    constexpr int LOADS = (LK_CUDA_RUN - 1) / (V == 1 ? 1 : 3);
    int first = run * LK_CUDA_RUN, last = min(first + LK_CUDA_RUN, (int)leaves.parts_of[group]);
    const float *p = f.in + ((size_t)group * (size_t)leaves.parts + (size_t)first) * f.row + column;
    fold_value<V> sum = load_value<V>(p), parts[LOADS];
    for (int part = first + 1; part < last; part += LOADS) {
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            if (part + i < last)
                parts[i] = load_value<V>(p += f.row);
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            if (part + i < last)
                sum = add_values(sum, parts[i]);
    }
    return sum;
}

static __device__ __forceinline__ int runs_of(const lk_cuda_leaves &leaves, int group)
{
    return (leaves.parts_of[group] + LK_CUDA_RUN - 1) / LK_CUDA_RUN;
}

/* The stack of partial sums of a thread's columns. Entries of this launch are in local memory, those before it in
 * slots. */
template <int V>
struct fold_stack {
    fold_value<V> own[LK_TREE_MAX_DEPTH];
    int below, count; /* entries in slots, and in `own` */

    __device__ __forceinline__ void push(const lk_cuda_fold &f, size_t c, fold_value<V> sum, int merges)
    {
        for (int i = 0; i < merges; i++)
            sum = add_values(count > 0 ? own[--count] : load_value<V>(entry_at(f, --below, c)), sum);
        own[count++] = sum;
    }

    /* Four leaves or roots; merges is what follows after each. They are mostly a subtree of their own, whose sums need
     * no stack. */
    __device__ __forceinline__ void push_four(const lk_cuda_fold &f, size_t c, const fold_value<V> (&sums)[4],
                                              const uint8_t *merges)
    {
        if (merges[0] == 0 && merges[1] == 1 && merges[2] == 0 && merges[3] >= 2) {
            fold_value<V> left = add_values(sums[0], sums[1]), right = add_values(sums[2], sums[3]);
            push(f, c, add_values(left, right), merges[3] - 2);
            return;
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            push(f, c, sums[i], merges[i]);
    }

    __device__ __forceinline__ void store(const lk_cuda_fold &f, size_t c)
    {
        for (int i = 0; i < count; i++)
            lk__cuda_store(entry_at(f, below + i, c), own[i].at);
    }
};

/* Leaves without parts, from row `p` on: all loads before the first addition, which waits for them. */
template <int V, int COUNT>
static __device__ __forceinline__ void push_leaves(const lk_cuda_fold &f, size_t c, const float *p, bool given,
                                                   const uint8_t *merges, fold_stack<V> &stack)
{
    fold_value<V> sums[COUNT / 4][4];
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        sums[i / 4][i % 4] = given ? load_value<V>(p + (size_t)i * f.row) : zero_value<V>();
#pragma unroll
    for (int i = 0; i < COUNT / 4; i++)
        stack.push_four(f, c, sums[i], merges + 4 * i);
}

template <int V>
static __global__ void __launch_bounds__(WHOLE_THREADS)
    fold_whole(const __grid_constant__ lk_cuda_leaves leaves, const __grid_constant__ lk_cuda_fold f)
{
    lk__cuda_await();
    size_t c = lk__cuda_thread() * V;
    if (c >= f.weights + f.bias)
        return;
    bool given = has_column(f, c);
    const float *p = f.in + given_column(f, c);
    fold_stack<V> stack;
    stack.below = f.depth;
    stack.count = 0;
    int first = 0;
    for (; first + 8 <= leaves.groups; first += 8)
        push_leaves<V, 8>(f, c, p + (size_t)first * f.row, given, leaves.outer + first, stack);
    for (; first + 4 <= leaves.groups; first += 4)
        push_leaves<V, 4>(f, c, p + (size_t)first * f.row, given, leaves.outer + first, stack);
    for (; first < leaves.groups; first++)
        stack.push(f, c, given ? load_value<V>(p + (size_t)first * f.row) : zero_value<V>(), leaves.outer[first]);
    stack.store(f, c);
}

/* Runs of a group's parts, at most. */
static __host__ __device__ __forceinline__ int most_runs(const lk_cuda_leaves &leaves)
{
    return (leaves.parts + LK_CUDA_RUN - 1) / LK_CUDA_RUN;
}

/* All lanes add runs, then each the runs of a leaf; lane 0 folds. */
template <int V>
static __global__ void __launch_bounds__(COLUMNS *LANES)
    fold_parts(const __grid_constant__ lk_cuda_leaves leaves, const __grid_constant__ lk_cuda_fold f)
{
    lk__cuda_await();
    __shared__ fold_value<V> sums[ROUND][COLUMNS];
    int at = (int)threadIdx.x % COLUMNS, lane = (int)threadIdx.x / COLUMNS, lanes = (int)blockDim.x / COLUMNS;
    int runs = most_runs(leaves), round = ROUND / runs;
    size_t c = (blockIdx.x * (size_t)COLUMNS + (size_t)at) * V, column = given_column(f, c);
    bool inside = c < f.weights + f.bias, given = has_column(f, c);
    fold_stack<V> stack;
    stack.below = f.depth;
    stack.count = 0;
    for (int first = 0; first < leaves.groups; first += round) {
        int groups = min(round, leaves.groups - first);
        for (int i = lane; i < groups * runs; i += lanes) {
            int group = i / runs, run = i - group * runs;
            if (given && run < runs_of(leaves, first + group))
                sums[i][at] = sum_run<V>(leaves, f, first + group, run, column);
        }
        __syncthreads();
        for (int i = lane; i < groups; i += lanes) {
            fold_value<V> sum = given ? sums[i * runs][at] : zero_value<V>();
            for (int run = 1; given && run < runs_of(leaves, first + i); run++)
                sum = add_values(sum, sums[i * runs + run][at]);
            sums[i * runs][at] = sum;
        }
        __syncthreads();
        int i = 0;
        for (; inside && lane == 0 && i + 4 <= groups; i += 4) {
            fold_value<V> four[4];
#pragma unroll
            for (int j = 0; j < 4; j++)
                four[j] = sums[(i + j) * runs][at];
            stack.push_four(f, c, four, leaves.outer + first + i);
        }
        for (; inside && lane == 0 && i < groups; i++)
            stack.push(f, c, sums[i * runs][at], leaves.outer[first + i]);
        __syncthreads();
    }
    if (inside && lane == 0)
        stack.store(f, c);
}

template <int V>
static void launch(cudaStream_t stream, const lk_cuda_leaves *leaves, const lk_cuda_fold *fold)
{
    size_t columns = fold->weights + fold->bias;
    if (leaves->parts == 1) {
        lk__cuda_follow({lk__cuda_parts(columns, WHOLE_THREADS * V), WHOLE_THREADS, 0, stream}, fold_whole<V>, *leaves,
                        *fold);
        return;
    }
    int runs = leaves->groups * most_runs(*leaves), lanes = runs < LANES ? runs : (int)LANES;
    lanes += lanes % 2; /* whole warps */
    lk__cuda_follow({lk__cuda_parts(columns, COLUMNS * V), COLUMNS * lanes, 0, stream}, fold_parts<V>, *leaves, *fold);
}

static bool is_whole(lk_partials sums)
{
    return lk__cuda_aligned(sums.slot0) && sums.stride % 4 == 0;
}

void lk__cuda_weights_fold(lk_device *dev, cudaStream_t stream, const lk_cuda_leaves *leaves, const lk_cuda_fold *fold)
{
    bool whole = fold->given % 4 == 0 && fold->weights % 4 == 0 && fold->bias % 4 == 0 && fold->row % 4 == 0;
    bool many = leaves->parts == 1 || fold->weights + fold->bias >= FEW_COLUMNS;
    if (many && whole && is_whole(fold->dw) && (fold->bias == 0 || is_whole(fold->db)))
        launch<4>(stream, leaves, fold);
    else
        launch<1>(stream, leaves, fold);
    lk__cuda_launched(dev, "fold of weight gradients");
}
