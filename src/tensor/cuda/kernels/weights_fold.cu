/* weights_fold.cu - adds the parts of leaves, and folds leaves over the sum tree. Where leaves have few parts and many
 * columns, a thread takes V columns of all leaves. Otherwise a block has few columns, its threads take a run of parts
 * each, and one warp folds. Both add in the same order. */
#include "tensor/cuda/kernels/mma.cuh"
#include "tensor/cuda/kernels/vec4.cuh"
#include "tensor/cuda/kernels/weights.h"

/* With fewer than FEW_COLUMNS columns, a thread has only one, so that there are enough blocks. */
enum { FEW_COLUMNS = 8192 };

/* A thread that takes all leaves issues LOADS loads at once, if there are more than FEW_LEAVES leaves. It takes up to
 * FEW_PARTS parts of each if there are PART_COLUMNS columns for each part: with fewer, too few loads would be under
 * way. */
enum {
    WHOLE_THREADS = 64,
    WHOLE_BLOCKS = 10, /* on a multiprocessor */
    LOADS = 16,
    FEW_LEAVES = 4,
    FEW_PARTS = 4,
    PART_COLUMNS = 32768
};

/* A block of parts has COLUMNS threads of V columns side by side, and ROUND runs between barriers. It is small, so that
 * some blocks of a multiprocessor load while others fold. */
enum { COLUMNS = 8, ROUND = LK_CUDA_PARTS / LK_CUDA_RUN };

template <int V>
struct part_block {
    enum {
        WIDTH = COLUMNS * V,
        LANES = 64 / V, /* runs at once, at most */
        THREADS = COLUMNS * LANES,
        RESIDENT = V == 1 ? 2 : 10 /* such blocks on a multiprocessor */
    };
};

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

/* Copies V floats to shared memory, asynchronously. */
template <int V>
static __device__ __forceinline__ void copy_value(uint32_t to, const float *from)
{
    if constexpr (V == 4)
        copy_unit(to, from, true);
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from));
}

template <int V>
static __device__ __forceinline__ fold_value<V> shared_value(uint32_t at)
{
    fold_value<V> v;
    if constexpr (V == 4)
        load_shared(v.at, at);
    else
        v.at[0] = load_shared(at);
    return v;
}

/* The sum of one run of the parts of a group, in order. The parts come to shared memory, from `own` on in steps of one
 * value for each thread: there they take no registers, so all of them can be under way. */
template <int V>
static __device__ __forceinline__ fold_value<V> sum_run(const lk_cuda_leaves &leaves, const lk_cuda_fold &f, int group,
                                                        int run, size_t column, uint32_t own)
{
    int first = run * LK_CUDA_RUN, count = min((int)LK_CUDA_RUN, (int)leaves.parts_of[group] - first);
    const float *p = f.in + ((size_t)group * (size_t)leaves.parts + (size_t)first) * f.row + column;
    uint32_t step = blockDim.x * (uint32_t)sizeof(fold_value<V>);
    for (int i = 0; i < count; i++)
        copy_value<V>(own + (uint32_t)i * step, p + (size_t)i * f.row);
    copies_commit();
    copies_wait<0>();
    fold_value<V> sum = shared_value<V>(own);
    for (int i = 1; i < count; i++)
        sum = add_values(sum, shared_value<V>(own + (uint32_t)i * step));
    return sum;
}

static __device__ __forceinline__ int runs_of(const lk_cuda_leaves &leaves, int group)
{
    return (leaves.parts_of[group] + LK_CUDA_RUN - 1) / LK_CUDA_RUN;
}

/* Whether COUNT leaves or roots with these merges after each are a subtree of their own. */
template <int COUNT>
static __device__ __forceinline__ bool is_subtree(const uint8_t *merges)
{
    bool is = true;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        int own = __ffs(i + 1) - 1;
        is = is && (i + 1 < COUNT ? merges[i] == own : merges[i] >= own);
    }
    return is;
}

template <int V, int COUNT>
static __device__ __forceinline__ fold_value<V> subtree_sum(const fold_value<V> *sums)
{
    if constexpr (COUNT == 1)
        return sums[0];
    else
        return add_values(subtree_sum<V, COUNT / 2>(sums), subtree_sum<V, COUNT / 2>(sums + COUNT / 2));
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

    /* The first `given` of COUNT leaves or roots; merges is what follows after each. Mostly they are subtrees of their
     * own, whose sums need no stack. */
    template <int COUNT>
    __device__ __forceinline__ void push_leaves(const lk_cuda_fold &f, size_t c, const fold_value<V> *sums,
                                                const uint8_t *merges, int given)
    {
        if (given >= COUNT && is_subtree<COUNT>(merges)) {
            push(f, c, subtree_sum<V, COUNT>(sums), merges[COUNT - 1] - (__ffs(COUNT) - 1));
        } else if constexpr (COUNT > 4) {
            push_leaves<COUNT / 2>(f, c, sums, merges, given);
            push_leaves<COUNT / 2>(f, c, sums + COUNT / 2, merges + COUNT / 2, given - COUNT / 2);
        } else {
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                if (i < given)
                    push(f, c, sums[i], merges[i]);
        }
    }

    __device__ __forceinline__ void store(const lk_cuda_fold &f, size_t c)
    {
        for (int i = 0; i < count; i++)
            lk__cuda_store(entry_at(f, below + i, c), own[i].at);
    }
};

/* The sums of `count` leaves from `first` on, whose parts begin at p; PARTS of each at most. All loads are issued
 * before the first addition, which waits for them. */
template <int V, int LEAVES, int PARTS>
static __device__ __forceinline__ void sum_leaves(const lk_cuda_leaves &leaves, const lk_cuda_fold &f, const float *p,
                                                  int first, int count, fold_value<V> (&sums)[LEAVES])
{
    fold_value<V> parts[LEAVES][PARTS];
#pragma unroll
    for (int i = 0; i < LEAVES; i++, p += (size_t)leaves.parts * f.row)
#pragma unroll
        for (int part = 0; part < PARTS; part++)
            if (i < count && (part == 0 || part < leaves.parts_of[first + i]))
                parts[i][part] = load_value<V>(p + (size_t)part * f.row);
#pragma unroll
    for (int i = 0; i < LEAVES; i++) {
        sums[i] = parts[i][0];
#pragma unroll
        for (int part = 1; part < PARTS; part++)
            if (i < count && part < leaves.parts_of[first + i])
                sums[i] = add_values(sums[i], parts[i][part]);
    }
}

/* For leaves of PARTS parts at most; LEAVES of them at once. */
template <int V, int LEAVES, int PARTS>
static __global__ void __launch_bounds__(WHOLE_THREADS, WHOLE_BLOCKS)
    fold_whole(const __grid_constant__ lk_cuda_leaves leaves, const __grid_constant__ lk_cuda_fold f)
{
    lk__cuda_await();
    size_t c = lk__cuda_thread() * V;
    if (c >= f.weights + f.bias)
        return;
    bool given = has_column(f, c);
    fold_stack<V> stack;
    stack.below = f.depth;
    stack.count = 0;
    for (int first = 0; first < leaves.groups; first += LEAVES) {
        const float *p = f.in + (size_t)first * (size_t)leaves.parts * f.row + given_column(f, c);
        fold_value<V> sums[LEAVES] = {};
        int count = min(LEAVES, leaves.groups - first);
        if (given)
            sum_leaves<V, LEAVES, PARTS>(leaves, f, p, first, count, sums);
        stack.template push_leaves<LEAVES>(f, c, sums, leaves.outer + first, count);
    }
    stack.store(f, c);
}

/* Runs of a group's parts, at most. */
static __host__ __device__ __forceinline__ int most_runs(const lk_cuda_leaves &leaves)
{
    return (leaves.parts + LK_CUDA_RUN - 1) / LK_CUDA_RUN;
}

/* Groups of a round; a row of sums for each of their runs. */
static __host__ __device__ __forceinline__ int round_groups(const lk_cuda_leaves &leaves)
{
    return min(ROUND / most_runs(leaves), leaves.groups);
}

/* Pushes one column of the sums of groups [first, first + count), which are `stride` floats apart. */
static __device__ __forceinline__ void push_column(const lk_cuda_leaves &leaves, const lk_cuda_fold &f, size_t c,
                                                   const float *sums, int stride, int first, int count,
                                                   fold_stack<1> &stack)
{
#pragma unroll 1
    for (int i = 0; i < count; i += LOADS) {
        fold_value<1> leaf[LOADS];
#pragma unroll
        for (int k = 0; k < LOADS; k++)
            if (i + k < count)
                leaf[k].at[0] = sums[(i + k) * stride];
        stack.push_leaves<LOADS>(f, c, leaf, leaves.outer + first + i, count - i);
    }
}

/* Adds the runs of `groups` groups from `first` on; a thread has one column. The sum of a group replaces its first
 * run. */
template <int V>
static __device__ __forceinline__ void add_runs(const lk_cuda_leaves &leaves, int first, int groups, float *sums)
{
    constexpr int WIDTH = part_block<V>::WIDTH;
    for (int i = (int)threadIdx.x; i < groups * WIDTH; i += (int)blockDim.x) {
        int group = i / WIDTH;
        float *run = sums + group * most_runs(leaves) * WIDTH + i % WIDTH, sum = run[0];
        for (int left = runs_of(leaves, first + group) - 1; left > 0; left--)
            sum += *(run += WIDTH);
        sums[group * most_runs(leaves) * WIDTH + i % WIDTH] = sum;
    }
    __syncthreads();
}

/* All threads add parts, then runs; the first WIDTH threads fold. */
template <int V>
static __global__ void __launch_bounds__(part_block<V>::THREADS, part_block<V>::RESIDENT)
    fold_parts(const __grid_constant__ lk_cuda_leaves leaves, const __grid_constant__ lk_cuda_fold f)
{
    constexpr int WIDTH = part_block<V>::WIDTH;
    lk__cuda_await();
    extern __shared__ __align__(16) float sums[]; // (runs of a round, WIDTH), then (parts of a run, threads, V)
    int at = (int)threadIdx.x % COLUMNS * V, runs = most_runs(leaves), round = round_groups(leaves);
    uint32_t own = shared_at(sums + round * runs * WIDTH + (int)threadIdx.x * V);
    size_t begin = blockIdx.x * (size_t)WIDTH, column = begin + (size_t)at, c = begin + threadIdx.x;
    bool given = has_column(f, column), folds = threadIdx.x < WIDTH && c < f.weights + f.bias;
    fold_stack<1> stack;
    stack.below = f.depth;
    stack.count = 0;
    for (int first = 0; first < leaves.groups; first += round) {
        int groups = min(round, leaves.groups - first);
#pragma unroll 1
        for (int i = (int)threadIdx.x / COLUMNS; i < groups * runs; i += (int)blockDim.x / COLUMNS) {
            int group = first + i / runs, run = i % runs;
            fold_value<V> sum = zero_value<V>();
            if (given && run < runs_of(leaves, group))
                sum = sum_run<V>(leaves, f, group, run, given_column(f, column), own);
            lk__cuda_store(sums + i * WIDTH + at, sum.at);
        }
        __syncthreads();
        if (runs > 1)
            add_runs<V>(leaves, first, groups, sums);
        if (folds)
            push_column(leaves, f, c, sums + threadIdx.x, runs * WIDTH, first, groups, stack);
        __syncthreads();
    }
    if (folds)
        stack.store(f, c);
}

template <int V>
static void launch_parts(cudaStream_t stream, const lk_cuda_leaves *leaves, const lk_cuda_fold *fold)
{
    typedef part_block<V> B;
    int runs = round_groups(*leaves) * most_runs(*leaves), lanes = runs < B::LANES ? runs : B::LANES;
    unsigned threads = lk__cuda_parts((size_t)lanes * COLUMNS, LK_WARP) * LK_WARP;
    size_t parts = (size_t)min(leaves->parts, (int)LK_CUDA_RUN);
    size_t shared = ((size_t)runs * B::WIDTH + parts * threads * V) * sizeof(float);
    lk__cuda_follow({lk__cuda_parts(fold->weights + fold->bias, B::WIDTH), threads, shared, stream}, fold_parts<V>,
                    *leaves, *fold);
}

template <int V, int PARTS>
static void launch_whole(cudaStream_t stream, const lk_cuda_leaves *leaves, const lk_cuda_fold *fold)
{
    unsigned blocks = lk__cuda_parts(fold->weights + fold->bias, WHOLE_THREADS * V);
    auto kernel = leaves->groups > FEW_LEAVES ? fold_whole<V, LOADS / PARTS, PARTS> : fold_whole<V, FEW_LEAVES, PARTS>;
    lk__cuda_follow({blocks, WHOLE_THREADS, 0, stream}, kernel, *leaves, *fold);
}

template <int V>
static void launch(cudaStream_t stream, const lk_cuda_leaves *leaves, const lk_cuda_fold *fold)
{
    bool many = fold->weights + fold->bias >= (size_t)leaves->parts * PART_COLUMNS;
    if (leaves->parts == 1)
        launch_whole<V, 1>(stream, leaves, fold);
    else if (leaves->parts == 2 && many)
        launch_whole<V, 2>(stream, leaves, fold);
    else if (leaves->parts <= FEW_PARTS && many)
        launch_whole<V, FEW_PARTS>(stream, leaves, fold);
    else
        launch_parts<V>(stream, leaves, fold);
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
