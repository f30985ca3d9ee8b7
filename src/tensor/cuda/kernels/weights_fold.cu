/* weights_fold.cu - adds the parts of leaves, and folds leaves over the sum tree. Few columns are added by blocks whose
 * threads take a run of parts each; with many columns a thread takes V columns and adds all their parts. Both add in
 * the same order. */
#include "tensor/cuda/kernels/vec4.cuh"
#include "tensor/cuda/kernels/weights.h"

enum { COLUMNS = 16, LANES = 16, WIDE_THREADS = 64, WIDE_COLUMNS = 1 << 18, AHEAD = 4 };
enum { LOADS = 5 }; /* of parts that are issued together: a run has three times as many after its first part */

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

/* The sum of one run of the parts of a group, in order. */
template <int V>
static __device__ __forceinline__ fold_value<V> sum_run(const lk_cuda_leaves &leaves, const lk_cuda_fold &f, int group,
                                                        int run, size_t column)
{
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

/* The sum of a group: the leaf or the root. */
template <int V>
static __device__ __forceinline__ fold_value<V> sum_runs(const lk_cuda_leaves &leaves, const lk_cuda_fold &f, int group,
                                                         size_t column)
{
    if (leaves.parts == 1)
        return load_value<V>(f.in + (size_t)group * f.row + column);
    fold_value<V> sum = sum_run<V>(leaves, f, group, 0, column);
    for (int run = 1, runs = runs_of(leaves, group); run < runs; run++)
        sum = add_values(sum, sum_run<V>(leaves, f, group, run, column));
    return sum;
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

    __device__ __forceinline__ void store(const lk_cuda_fold &f, size_t c)
    {
        for (int i = 0; i < count; i++)
            lk__cuda_store(entry_at(f, below + i, c), own[i].at);
    }
};

template <int V>
static __global__ void __launch_bounds__(WIDE_THREADS)
    fold_wide(const __grid_constant__ lk_cuda_leaves leaves, const __grid_constant__ lk_cuda_fold f)
{
    size_t c = lk__cuda_thread() * V, column = given_column(f, c);
    if (c >= f.weights + f.bias)
        return;
    bool given = has_column(f, c);
    fold_stack<V> stack;
    stack.below = f.depth;
    stack.count = 0;
    for (int first = 0; first < leaves.groups; first += AHEAD) {
        fold_value<V> sums[AHEAD]; // all loads before the first addition, which waits for them
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            sums[i] = given && first + i < leaves.groups ? sum_runs<V>(leaves, f, first + i, column) : zero_value<V>();
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (first + i < leaves.groups)
                stack.push(f, c, sums[i], leaves.outer[first + i]);
    }
    stack.store(f, c);
}

/* A run of the parts of a group. */
struct run_place {
    int group, run;

    __device__ __forceinline__ void advance(const lk_cuda_leaves &leaves, int runs)
    {
        for (int i = 0; i < runs && group < leaves.groups; i++)
            if (++run == runs_of(leaves, group))
                group++, run = 0;
    }
};

/* Lane l adds every LANES-th run, beginning with run l; lane 0 then adds the runs of a leaf and folds. */
template <int V>
static __global__ void __launch_bounds__(COLUMNS *LANES)
    fold_narrow(const __grid_constant__ lk_cuda_leaves leaves, const __grid_constant__ lk_cuda_fold f)
{
    __shared__ fold_value<V> sums[LANES][COLUMNS];
    int at = (int)threadIdx.x % COLUMNS, lane = (int)threadIdx.x / COLUMNS;
    size_t c = (blockIdx.x * (size_t)COLUMNS + (size_t)at) * V, column = given_column(f, c);
    bool inside = c < f.weights + f.bias, given = has_column(f, c), folds = inside && lane == 0;
    fold_stack<V> stack;
    stack.below = f.depth;
    stack.count = 0;
    fold_value<V> leaf = zero_value<V>();
    run_place mine = {0, 0}, next = {0, 0};
    mine.advance(leaves, lane);
    while (next.group < leaves.groups) {
        sums[lane][at] =
            given && mine.group < leaves.groups ? sum_run<V>(leaves, f, mine.group, mine.run, column) : zero_value<V>();
        mine.advance(leaves, LANES);
        __syncthreads();
        for (int i = 0; i < LANES && next.group < leaves.groups; i++) {
            int group = next.group;
            leaf = next.run == 0 ? sums[i][at] : add_values(leaf, sums[i][at]);
            next.advance(leaves, 1);
            if (folds && next.group != group)
                stack.push(f, c, leaf, leaves.outer[group]);
        }
        __syncthreads();
    }
    if (folds)
        stack.store(f, c);
}

template <int V>
static void launch(cudaStream_t stream, const lk_cuda_leaves *leaves, const lk_cuda_fold *fold)
{
    size_t columns = fold->weights + fold->bias;
    if (columns >= WIDE_COLUMNS)
        fold_wide<V><<<lk__cuda_parts(columns, WIDE_THREADS * V), WIDE_THREADS, 0, stream>>>(*leaves, *fold);
    else
        fold_narrow<V><<<lk__cuda_parts(columns, COLUMNS * V), COLUMNS * LANES, 0, stream>>>(*leaves, *fold);
}

static bool is_whole(lk_partials sums)
{
    return lk__cuda_aligned(sums.slot0) && sums.stride % 4 == 0;
}

void lk__cuda_weights_fold(lk_device *dev, cudaStream_t stream, const lk_cuda_leaves *leaves, const lk_cuda_fold *fold)
{
    bool whole = fold->given % 4 == 0 && fold->weights % 4 == 0 && fold->bias % 4 == 0 && fold->row % 4 == 0;
    if (whole && is_whole(fold->dw) && (fold->bias == 0 || is_whole(fold->db)))
        launch<4>(stream, leaves, fold);
    else
        launch<1>(stream, leaves, fold);
    lk__cuda_launched(dev, "fold of weight gradients");
}
