/* weights_few.cu - weight gradients of linear layers with few samples a shard. Leaves do not go to memory: a block
 * computes a tile of the weights for all leaves of a group and folds them.
 *
 * This file chooses the kernel and has that for small layers, which are bound by latency: each leaf has a warp, which
 * reads BATCH samples in one trip to memory and multiplies by fused multiply-adds, under tf32 with rounded factors;
 * then each thread folds one weight over the leaves. Large layers are in weights_few_large.cu. */
#include "tensor/cuda/kernels/mma.cuh"
#include "tensor/cuda/kernels/weights_few.cuh"

/* A thread has SIDE x SIDE weights of its leaf's M x N. Layers of at most SMALL_TILES tiles, one for
 * each multiprocessor of a large GPU, are small. */
enum { M = 16, N = 32, SIDE = 4, ACROSS = N / SIDE, THREADS = GROUP_LEAVES * LK_WARP, SMALL_TILES = 132 };
static_assert(M * N == THREADS, "a thread folds one weight");

/* SIDE neighbouring features of all samples. */
template <class T>
struct few_features {
    const T *from;
    int pitch;
    bool inside;

    __device__ __forceinline__ few_features(const T *tensor, int width, int column)
        : from(tensor + column), pitch(width), inside(column < width)
    {
    }

    /* 0 for rows from `end` on and outside of the tensor. */
    __device__ __forceinline__ void load(uint32_t row, uint32_t end, float (&v)[SIDE]) const
    {
#pragma unroll
        for (int i = 0; i < SIDE; i++)
            v[i] = 0.0f;
        if (inside && row < end)
            lk__cuda_load(from + (size_t)row * pitch, v);
    }
};

template <bool TF32>
static __device__ __forceinline__ float factor(float v)
{
    return TF32 ? __uint_as_float(round_tf32(v)) : v;
}

/* acc += the products of rows [row, end). */
template <bool TF32, class T>
static __device__ __forceinline__ void add_rows(const few_features<T> &dy, const few_features<T> &x, uint32_t row,
                                                uint32_t end, float (&acc)[SIDE][SIDE])
{
    for (; row < end; row += BATCH) {
        float a[BATCH][SIDE], b[BATCH][SIDE];
#pragma unroll
        for (int r = 0; r < BATCH; r++) {
            dy.load(row + r, end, a[r]);
            x.load(row + r, end, b[r]);
        }
#pragma unroll
        for (int r = 0; r < BATCH; r++)
#pragma unroll
            for (int i = 0; i < SIDE; i++)
#pragma unroll
                for (int j = 0; j < SIDE; j++)
                    acc[i][j] = __fmaf_rn(factor<TF32>(a[r][i]), factor<TF32>(b[r][j]), acc[i][j]);
    }
}

/* The root over `count` leaves of this thread's weight. */
static __device__ __forceinline__ float fold_weight(const float (*sums)[THREADS], int count)
{
    float v[GROUP_LEAVES];
#pragma unroll
    for (int i = 0; i < GROUP_LEAVES; i++)
        v[i] = i < count ? sums[i][threadIdx.x] : 0.0f;
#pragma unroll
    for (int d = 1; d < GROUP_LEAVES; d *= 2)
#pragma unroll
        for (int i = 0; i < GROUP_LEAVES; i += 2 * d)
            v[i] = i + d < count ? v[i] + v[i + d] : v[i];
    return v[0];
}

template <class T, bool TF32>
static __global__ void __launch_bounds__(THREADS, 1)
    few_small(const __grid_constant__ few_work work, const __grid_constant__ lk_cuda_leaves leaves, const T *dy,
              const T *x)
{
    lk__cuda_await();
    __shared__ __align__(16) float sums[GROUP_LEAVES][THREADS]; // (leaves, M, N)
    if ((int)blockIdx.x >= work.tiles) {
        sum_columns(work, leaves, dy);
        return;
    }
    int k0 = (int)blockIdx.x / work.tiles_n * M, c0 = (int)blockIdx.x % work.tiles_n * N;
    int first = leaves.group[blockIdx.y], count = leaves.group[blockIdx.y + 1] - first;
    int mine = (int)threadIdx.x / LK_WARP, m = lk__cuda_lane() / ACROSS * SIDE, n = lk__cuda_lane() % ACROSS * SIDE;
    if (mine < count) {
        float acc[SIDE][SIDE] = {};
        few_features<T> y_part(dy, work.k, k0 + m), x_part(x, work.c, c0 + n);
        add_rows<TF32>(y_part, x_part, leaves.begin[first + mine], leaves.begin[first + mine + 1], acc);
#pragma unroll
        for (int i = 0; i < SIDE; i++)
            lk__cuda_store(&sums[mine][(m + i) * N + n], acc[i]);
    }
    __syncthreads();
    int k = k0 + (int)threadIdx.x / N, c = c0 + (int)threadIdx.x % N;
    float sum = fold_weight(sums, count);
    if (k < work.k && c < work.c)
        work.weights[blockIdx.y * work.row + (size_t)k * work.c + c] = sum;
}

template <class T, bool TF32>
static void launch_small(const lk_cuda_io *io, const lk_cuda_leaves *leaves, few_work work)
{
    dim3 blocks(few_blocks(&work, M, N, THREADS), (unsigned)leaves->groups);
    lk__cuda_follow({blocks, THREADS, 0, io->stream}, few_small<T, TF32>, work, *leaves, (const T *)io->dy,
                    (const T *)io->x);
    lk__cuda_launched(io->dev, "gradient of the weights of a linear layer");
}

static size_t tiles_of(const lk_cuda_problem *problem)
{
    return (size_t)lk__cuda_parts((size_t)problem->y_pitch, M) * lk__cuda_parts((size_t)problem->x_pitch, N);
}

static void launch(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves, few_work work)
{
    work.c = problem->x_pitch;
    work.k = problem->y_pitch;
    if (tiles_of(problem) > SMALL_TILES)
        lk__cuda_few_large(problem, io, leaves, work);
    else if (problem->values == LK_DTYPE_BF16)
        launch_small<lk_bf16, false>(io, leaves, work);
    else if (problem->precision == LK_PRECISION_TF32)
        launch_small<float, true>(io, leaves, work);
    else
        launch_small<float, false>(io, leaves, work);
}

static bool suits(const lk_cuda_problem *problem, size_t most)
{
    return problem->linear && problem->x_pitch % 8 == 0 && problem->y_pitch % 8 == 0 && most <= MOST_SAMPLES;
}

/* A leaf is one part. Groups are as large as possible: smaller ones would take as long. */
static lk_cuda_cut cut_of(const lk_cuda_problem *problem, size_t most)
{
    lk_cuda_cut cut = {};
    (void)most;
    cut.rows = 1;
    cut.chunk = MOST_SAMPLES;
    cut.least = 1;
    cut.tiles = tiles_of(problem);
    cut.full = 1;
    cut.levels = GROUP_LEVELS;
    cut.small = MOST_SAMPLES * GROUP_LEAVES;
    cut.weights = lk__cuda_weights(problem);
    cut.bias = (size_t)problem->y_pitch;
    return cut;
}

static void launch_leaves(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves,
                          size_t most, float *out)
{
    size_t weights = lk__cuda_weights(problem);
    few_work work = {};
    (void)most;
    work.weights = out;
    work.bias = io->db.slot0 ? out + weights : NULL;
    work.row = weights + (size_t)problem->y_pitch;
    launch(problem, io, leaves, work);
}

static void launch_sum(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves, size_t most,
                       float *dw, float *db)
{
    (void)most;
    few_work work = {};
    work.weights = dw;
    work.bias = db;
    launch(problem, io, leaves, work);
}

const lk_cuda_leaf_kernel lk__cuda_weights_few = {"few samples a shard", suits, cut_of, launch_leaves, launch_sum};
