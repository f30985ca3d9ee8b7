/* bias.cu - bias, ReLU, and the gradient of a bias: sums of the columns of dy. */
#include "tensor/cuda/kernels/bias.h"
#include "tensor/cuda/kernels/leaf_part.cuh"
#include "tensor/cuda/kernels/vec4.cuh"
#include "tensor/cuda/kernels/weights.h"

enum { ROWS_A_LANE = 8, AT_ONCE = 8, FULL = 1056 }; /* FULL: eight blocks for each multiprocessor of a large GPU */
/* For leaves of at most FEW_ROWS rows. */
enum { FEW_ROWS = 64, FEW_COLUMNS = 32, FEW_LANES = 16, FEW_LEVELS = 7, FEW_AT_ONCE = 16 };

template <class T, int V>
static __global__ void bias_relu(size_t count, int pitch, const T *b, bool relu, T *y)
{
    lk__cuda_await();
    size_t i = lk__cuda_thread() * V;
    if (i >= count)
        return;
    float v[V], add[V];
    lk__cuda_load(y + i, v);
    if (b)
        lk__cuda_load(b + i % (size_t)pitch, add);
#pragma unroll
    for (int j = 0; j < V; j++) {
        v[j] = b ? v[j] + add[j] : v[j];
        v[j] = relu ? lk__cuda_relu1(v[j]) : v[j];
    }
    lk__cuda_store(y + i, v);
}

template <class T, int V>
static __global__ void relu_mask(size_t count, float scale, const T *mask, T *dx)
{
    lk__cuda_await();
    size_t i = lk__cuda_thread() * V;
    if (i >= count)
        return;
    float m[V], d[V];
    lk__cuda_load(mask + i, m);
    lk__cuda_load(dx + i, d);
#pragma unroll
    for (int j = 0; j < V; j++)
        d[j] = lk__cuda_relu_grad1(m[j], d[j] * scale);
    lk__cuda_store(dx + i, d);
}

/* A block sums a part of a leaf (leaves.h). It has `wide` threads across channels, with V channels each, and as many
 * lanes of rows as fit. */
template <class T, int V>
static __global__ void column_sums(const __grid_constant__ lk_cuda_leaves leaves, int pitch, int wide, const T *dy,
                                   float *out)
{
    lk__cuda_await();
    __shared__ __align__(16) float sums[LK_THREADS][V];
    int t = (int)threadIdx.x % wide, lane = (int)threadIdx.x / wide, lanes = LK_THREADS / wide;
    int channel = V * ((int)blockIdx.y * wide + t);
    leaf_part part = part_of(leaves, blockIdx.x, (uint32_t)lanes);
    float sum[V] = {0};
    if (lane < lanes && channel < pitch)
        for (uint32_t row = part.begin + (uint32_t)lane; row < part.end; row += (uint32_t)(AT_ONCE * lanes)) {
            float v[AT_ONCE][V]; // all loads before the first addition
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                uint32_t at = row + (uint32_t)(i * lanes);
                lk__cuda_load(dy + (size_t)(at < part.end ? at : row) * (size_t)pitch + channel, v[i]);
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
                for (int j = 0; j < V; j++)
                    sum[j] += row + (uint32_t)(i * lanes) < part.end ? v[i][j] : 0.0f;
        }
    lk__cuda_store(sums[threadIdx.x], sum);
    __syncthreads();
    if (lane > 0 || channel >= pitch)
        return;
    for (int i = 1; i < lanes; i++) {
        float v[V];
        lk__cuda_load(sums[i * wide + t], v);
#pragma unroll
        for (int j = 0; j < V; j++)
            sum[j] += v[j];
    }
    lk__cuda_store(out + (size_t)blockIdx.x * (size_t)pitch + channel, sum);
}

/* The sum of a column in order. Loads of FEW_AT_ONCE rows are under way at once. */
template <class T>
static __device__ __forceinline__ float sum_rows(const T *column, int pitch, uint32_t row, uint32_t end)
{
    float sum = 0.0f;
    for (; row < end; row += FEW_AT_ONCE) {
        float v[FEW_AT_ONCE];
#pragma unroll
        for (uint32_t i = 0; i < FEW_AT_ONCE; i++)
            v[i] = row + i < end ? lk__cuda_get1(column + (size_t)(row + i) * (size_t)pitch) : 0.0f;
#pragma unroll
        for (int i = 0; i < FEW_AT_ONCE; i++)
            sum += v[i];
    }
    return sum;
}

/* Computes a group of leaves. A lane sums every FEW_LANES-th leaf; the threads of lane 0 fold. */
template <class T>
static __global__ void __launch_bounds__(FEW_COLUMNS *FEW_LANES)
    few_column_sums(const __grid_constant__ lk_cuda_leaves leaves, int pitch, const T *dy, float *out)
{
    lk__cuda_await();
    __shared__ float sums[FEW_LANES][FEW_COLUMNS];
    int at = (int)threadIdx.x % FEW_COLUMNS, lane = (int)threadIdx.x / FEW_COLUMNS;
    int column = (int)blockIdx.y * FEW_COLUMNS + at, last = leaves.group[blockIdx.x + 1], count = 0;
    float stack[FEW_LEVELS + 1];
    for (int first = leaves.group[blockIdx.x]; first < last; first += FEW_LANES) {
        int leaf = first + lane;
        bool used = leaf < last && column < pitch;
        float sum = used ? sum_rows(dy + column, pitch, leaves.begin[leaf], leaves.begin[leaf + 1]) : 0.0f;
        sums[lane][at] = sum;
        __syncthreads();
        for (int i = 0; lane == 0 && i < FEW_LANES && first + i < last; i++) {
            sum = sums[i][at];
            for (int m = leaves.inner[first + i]; m > 0; m--)
                sum = stack[--count] + sum;
            stack[count++] = sum;
        }
        __syncthreads();
    }
    if (lane == 0 && column < pitch)
        out[(size_t)blockIdx.x * (size_t)pitch + column] = stack[0];
}

/* Vectors of a row of dy, and threads of a block across them. */
static int vectors_of(const lk_cuda_problem *problem)
{
    return problem->y_pitch % 8 == 0 ? problem->y_pitch / 4 : problem->y_pitch;
}

static int wide_of(const lk_cuda_problem *problem)
{
    return vectors_of(problem) < 64 ? vectors_of(problem) : 64;
}

static bool has_few_rows(const lk_cuda_problem *problem, size_t most)
{
    return most * (size_t)problem->p * (size_t)problem->q <= FEW_ROWS;
}

static lk_cuda_cut cut_of(const lk_cuda_problem *problem, size_t most)
{
    lk_cuda_cut cut = {};
    cut.rows = (size_t)problem->p * (size_t)problem->q;
    cut.full = FULL;
    cut.weights = (size_t)problem->y_pitch;
    if (has_few_rows(problem, most)) {
        cut.chunk = FEW_ROWS;
        cut.least = 1;
        cut.tiles = lk__cuda_parts(cut.weights, FEW_COLUMNS);
        cut.levels = FEW_LEVELS;
        cut.small = FEW_ROWS * FEW_LANES;
        return cut;
    }
    cut.chunk = (size_t)(LK_THREADS / wide_of(problem));
    cut.least = ROWS_A_LANE;
    cut.tiles = lk__cuda_parts((size_t)vectors_of(problem), (size_t)wide_of(problem));
    return cut;
}

template <class T, int V>
static void sum_columns(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves, float *out)
{
    int wide = wide_of(problem);
    dim3 blocks((unsigned)(leaves->groups * leaves->parts), lk__cuda_parts((size_t)vectors_of(problem), (size_t)wide));
    lk__cuda_follow({blocks, LK_THREADS, 0, io->stream}, column_sums<T, V>, *leaves, problem->y_pitch, wide,
                    (const T *)io->dy, out);
    lk__cuda_launched(io->dev, "gradient of a bias");
}

template <class T>
static void sum_few_rows(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves, float *out)
{
    dim3 blocks((unsigned)leaves->groups, lk__cuda_parts((size_t)problem->y_pitch, FEW_COLUMNS));
    lk__cuda_follow({blocks, FEW_COLUMNS * FEW_LANES, 0, io->stream}, few_column_sums<T>, *leaves, problem->y_pitch,
                    (const T *)io->dy, out);
    lk__cuda_launched(io->dev, "gradient of a bias");
}

static void launch_leaves(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves,
                          size_t most, float *out)
{
    bool whole = problem->y_pitch % 8 == 0, few = has_few_rows(problem, most);
    if (problem->values == LK_DTYPE_F32)
        (few ? sum_few_rows<float> : whole ? sum_columns<float, 4> : sum_columns<float, 1>)(problem, io, leaves, out);
    else
        (few     ? sum_few_rows<lk_bf16>
         : whole ? sum_columns<lk_bf16, 4>
                 : sum_columns<lk_bf16, 1>)(problem, io, leaves, out);
}

const lk_cuda_leaf_kernel lk__cuda_weights_columns = {"bias", NULL, cut_of, launch_leaves, NULL};

template <class T, int V>
static void add_bias(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    size_t count = lk__cuda_rows(problem) * (size_t)problem->y_pitch;
    lk__cuda_follow({lk__cuda_blocks(count / V), LK_THREADS, 0, io->stream}, bias_relu<T, V>, count, problem->y_pitch,
                    (const T *)io->b, problem->relu, (T *)io->y);
    lk__cuda_launched(io->dev, "bias");
}

void lk__cuda_bias_relu(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    bool whole = problem->y_pitch % 8 == 0;
    if (problem->values == LK_DTYPE_F32)
        whole ? add_bias<float, 4>(problem, io) : add_bias<float, 1>(problem, io);
    else
        whole ? add_bias<lk_bf16, 4>(problem, io) : add_bias<lk_bf16, 1>(problem, io);
}

template <class T, int V>
static void mask_dx(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    size_t count = (size_t)problem->n * (size_t)problem->h * (size_t)problem->w * (size_t)problem->x_pitch;
    float scale = io->dropout ? lk__dropout_desc_scale(io->dropout) : 1.0f;
    lk__cuda_follow({lk__cuda_blocks(count / V), LK_THREADS, 0, io->stream}, relu_mask<T, V>, count, scale,
                    (const T *)io->mask, (T *)io->dx);
    lk__cuda_launched(io->dev, "gradient of a ReLU");
}

void lk__cuda_relu_mask(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    bool whole = problem->x_pitch % 8 == 0;
    if (problem->values == LK_DTYPE_F32)
        whole ? mask_dx<float, 4>(problem, io) : mask_dx<float, 1>(problem, io);
    else
        whole ? mask_dx<lk_bf16, 4>(problem, io) : mask_dx<lk_bf16, 1>(problem, io);
}
