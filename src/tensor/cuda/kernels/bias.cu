/* bias.cu - bias, ReLU, widening, sums of columns and merges of partial sums.
 *
 * Sums of columns have two levels: each block sums its rows into one row of parts, and fold adds the parts.
 * Their number depends on the shape only. */
#include "tensor/cuda/kernels/bias.h"
#include "tensor/cuda/kernels/vec4.cuh"

enum { FOLD_COLUMNS = 32, FOLD_LANES = 16, MOST_BLOCKS = 264, ROWS_A_LANE = 8 };

template <class T, int V>
static __global__ void bias_relu(size_t count, int pitch, const T *b, bool relu, T *y)
{
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
static __global__ void relu_mask(size_t count, const T *mask, T *dx)
{
    size_t i = lk__cuda_thread() * V;
    if (i >= count)
        return;
    float m[V], d[V];
    lk__cuda_load(mask + i, m);
    lk__cuda_load(dx + i, d);
#pragma unroll
    for (int j = 0; j < V; j++)
        d[j] = lk__cuda_relu_grad1(m[j], d[j]);
    lk__cuda_store(dx + i, d);
}

static __global__ void widen(size_t count, const lk_bf16 *in, float *out)
{
    size_t i = 4 * lk__cuda_thread();
    if (i + 4 <= count)
        lk__cuda_put4(out + i, lk__cuda_get4(in + i));
    else
        for (; i < count; i++)
            out[i] = lk__cuda_get1(in + i);
}

/* A block has `wide` threads across channels, with V channels each, and as many lanes of rows as fit. */
template <class T, int V>
static __global__ void column_sums(size_t rows, size_t rows_a_block, int pitch, int wide, const T *dy, float *out)
{
    __shared__ __align__(16) float sums[LK_THREADS][V];
    int t = (int)threadIdx.x % wide, lane = (int)threadIdx.x / wide, lanes = LK_THREADS / wide;
    int channel = V * ((int)blockIdx.y * wide + t);
    size_t begin = blockIdx.x * rows_a_block, end = min(begin + rows_a_block, rows);
    float sum[V] = {0};
    if (lane < lanes && channel < pitch) {
#pragma unroll 8
        for (size_t row = begin + (size_t)lane; row < end; row += (size_t)lanes) {
            float v[V];
            lk__cuda_load(dy + row * (size_t)pitch + channel, v);
#pragma unroll
            for (int j = 0; j < V; j++)
                sum[j] += v[j];
        }
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

static __global__ void fold(const float *parts, int rows, int width, float *out, int split, float *rest)
{
    __shared__ float sums[FOLD_LANES][FOLD_COLUMNS + 1];
    int column = (int)blockIdx.x * FOLD_COLUMNS + (int)threadIdx.x;
    float sum = 0.0f;
    if (column < width) {
#pragma unroll 8
        for (int row = (int)threadIdx.y; row < rows; row += FOLD_LANES)
            sum += parts[(size_t)row * (size_t)width + column];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || column >= width)
        return;
    for (int i = 1; i < FOLD_LANES; i++)
        sum += sums[i][threadIdx.x];
    if (column < split)
        out[column] = sum;
    else if (rest)
        rest[column - split] = sum;
}

/* The sum stays in a register from slot to slot: the slots in between are not used afterwards. */
static __global__ void merge_slots(size_t weights, size_t count, lk_partials dw, lk_partials db, int merges)
{
    size_t i = lk__cuda_thread();
    if (i >= count)
        return;
    size_t stride = i < weights ? dw.stride : db.stride;
    float *slot = i < weights ? dw.slot0 + i : db.slot0 + (i - weights);
    float sum = *slot;
    for (int m = 0; m < merges; m++) {
        slot -= stride;
        sum = *slot + sum;
    }
    *slot = sum;
}

typedef struct column_split {
    int wide;
    size_t rows_a_block;
    unsigned blocks, parts; /* blocks of rows; parts of the channels */
} column_split;

static column_split split_columns(size_t rows, int vectors)
{
    column_split s;
    s.wide = vectors < 64 ? vectors : 64;
    s.parts = lk__cuda_parts((size_t)vectors, (size_t)s.wide);
    size_t lanes = (size_t)(LK_THREADS / s.wide);
    size_t most = MOST_BLOCKS / s.parts > 0 ? MOST_BLOCKS / s.parts : 1;
    size_t blocks = lk__cuda_parts(rows, lanes * ROWS_A_LANE);
    /* More rows in one block cost less than a second kernel that folds. */
    if (blocks <= 4)
        blocks = 1;
    if (blocks > most)
        blocks = most;
    s.rows_a_block = (rows + blocks - 1) / blocks;
    s.blocks = lk__cuda_parts(rows, s.rows_a_block);
    return s;
}

template <class T, int V>
static lk_status sum_columns(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    size_t rows = lk__cuda_rows(problem), pitch = (size_t)problem->y_pitch;
    column_split s = split_columns(rows, problem->y_pitch / V);
    void *parts = io->db;
    if (s.blocks > 1)
        LK_TRY(lk__cuda_workspace(io, s.blocks * pitch * sizeof(float), &parts));
    column_sums<T, V><<<dim3(s.blocks, s.parts), LK_THREADS, 0, io->stream>>>(
        rows, s.rows_a_block, problem->y_pitch, s.wide, (const T *)io->dy, (float *)parts);
    lk__cuda_launched(io->dev, "gradient of a bias");
    if (s.blocks > 1)
        lk__cuda_fold_parts(io, (const float *)parts, (int)s.blocks, problem->y_pitch, io->db, problem->y_pitch, NULL);
    return LK_OK;
}

lk_status lk__cuda_bias_grad(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    bool whole = problem->y_pitch % 8 == 0;
    if (problem->values == LK_DTYPE_F32)
        return whole ? sum_columns<float, 4>(problem, io) : sum_columns<float, 1>(problem, io);
    return whole ? sum_columns<lk_bf16, 4>(problem, io) : sum_columns<lk_bf16, 1>(problem, io);
}

template <class T, int V>
static void add_bias(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    size_t count = lk__cuda_rows(problem) * (size_t)problem->y_pitch;
    bias_relu<T, V><<<lk__cuda_blocks(count / V), LK_THREADS, 0, io->stream>>>(
        count, problem->y_pitch, (const T *)io->b, problem->relu, (T *)io->y);
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
    relu_mask<T, V><<<lk__cuda_blocks(count / V), LK_THREADS, 0, io->stream>>>(count, (const T *)io->mask, (T *)io->dx);
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

void lk__cuda_widen(const lk_cuda_problem *problem, const lk_cuda_io *io, const void *narrow)
{
    size_t count = lk__cuda_weights(problem);
    widen<<<lk__cuda_parts(count, 4 * LK_THREADS), LK_THREADS, 0, io->stream>>>(count, (const lk_bf16 *)narrow, io->dw);
    lk__cuda_launched(io->dev, "widening");
}

void lk__cuda_fold_parts(const lk_cuda_io *io, const float *parts, int rows, int width, float *out, int split,
                         float *rest)
{
    fold<<<lk__cuda_parts((size_t)width, FOLD_COLUMNS), dim3(FOLD_COLUMNS, FOLD_LANES), 0, io->stream>>>(
        parts, rows, width, out, split, rest);
    lk__cuda_launched(io->dev, "fold");
}

void lk__cuda_merge_slots(const lk_cuda_problem *problem, const lk_cuda_io *io, lk_partials dw, lk_partials db, int top,
                          int merges)
{
    size_t weights = lk__cuda_weights(problem), count = weights + (db.slot0 ? (size_t)problem->y_pitch : 0);
    dw.slot0 = lk__partials_slot(dw, top);
    db.slot0 = db.slot0 ? lk__partials_slot(db, top) : NULL;
    merge_slots<<<lk__cuda_blocks(count), LK_THREADS, 0, io->stream>>>(weights, count, dw, db, merges);
    lk__cuda_launched(io->dev, "merge of partial sums");
}
