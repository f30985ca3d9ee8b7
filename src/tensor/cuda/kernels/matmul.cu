/* matmul.cu - products of matrices, one for each sample and height; exchange of axes, and reshaping.
 *
 * A block computes TILE x TILE elements of a product, in f32 in every precision; each element is one chain. */
#include "tensor/cuda/kernels/vec.cuh"

enum { TILE = 32, TILE_ROWS = 8, MATRICES = 65535 };

struct product {
    unsigned rows, cols, len, pitch; /* of y; terms of a sum; pitch of y */
    size_t count;                    /* matrices */
    /* Elements between neighbours: along rows of y, along the sum; along the sum, along columns of y; matrices. */
    size_t a_row, a_k, b_k, b_col, a_size, b_size, y_size;
};

/* Loads TILE x TILE elements at (row, column) of a matrix with these steps; those beyond the limits are 0. */
template <class T>
static __device__ void load_tile(const T *from, size_t row_step, size_t column_step, unsigned row, unsigned column,
                                 unsigned rows, unsigned columns, float (*tile)[TILE + 1])
{
    /* Neighbouring threads read neighbouring elements. */
    bool along_rows = row_step == 1 && column_step != 1;
    for (unsigned i = threadIdx.y; i < TILE; i += TILE_ROWS) {
        unsigned r = along_rows ? threadIdx.x : i, c = along_rows ? i : threadIdx.x;
        bool inside = row + r < rows && column + c < columns;
        tile[r][c] = inside ? (float)from[(size_t)(row + r) * row_step + (size_t)(column + c) * column_step] : 0.0f;
    }
}

template <class T>
static __device__ void multiply(const product &p, const T *a, const T *b, T *y)
{
    __shared__ float left[TILE][TILE + 1], right[TILE][TILE + 1];
    unsigned row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    float sum[TILE / TILE_ROWS] = {};
    for (unsigned k = 0; k < p.len; k += TILE) {
        load_tile(a, p.a_row, p.a_k, row, k, p.rows, p.len, left);
        load_tile(b, p.b_k, p.b_col, k, column, p.len, p.cols, right);
        __syncthreads();
        unsigned terms = p.len - k < TILE ? p.len - k : (unsigned)TILE;
        for (unsigned t = 0; t < terms; t++)
#pragma unroll
            for (int i = 0; i < TILE / TILE_ROWS; i++)
                sum[i] = __fmaf_rn(left[threadIdx.y + i * TILE_ROWS][t], right[t][threadIdx.x], sum[i]);
        __syncthreads();
    }
    unsigned c = column + threadIdx.x;
#pragma unroll
    for (int i = 0; i < TILE / TILE_ROWS; i++) {
        unsigned r = row + threadIdx.y + i * TILE_ROWS;
        if (r < p.rows && c < p.pitch)
            y[(size_t)r * p.pitch + c] = c < p.cols ? (T)sum[i] : (T)0.0f;
    }
}

template <class T>
static __global__ void multiply_all(product p, const T *a, const T *b, T *y)
{
    for (size_t m = blockIdx.z; m < p.count; m += gridDim.z)
        multiply(p, a + m * p.a_size, b + m * p.b_size, y + m * p.y_size);
}

extern "C" void lk__cuda_matmul(lk_device *dev, const lk_matmul_desc *desc, const lk_tensor *a, const lk_tensor *b,
                                lk_tensor *y)
{
    size_t apitch = lk__tensor_pitch(a), bpitch = lk__tensor_pitch(b), ypitch = lk__tensor_pitch(y);
    product p = {.rows = (unsigned)y->shape.w,
                 .cols = (unsigned)y->shape.c,
                 .len = (unsigned)(desc->transpose_a ? a->shape.w : a->shape.c),
                 .pitch = (unsigned)ypitch,
                 .count = y->shape.n * y->shape.h,
                 .a_row = desc->transpose_a ? 1 : apitch,
                 .a_k = desc->transpose_a ? apitch : 1,
                 .b_k = desc->transpose_b ? 1 : bpitch,
                 .b_col = desc->transpose_b ? bpitch : 1,
                 .a_size = a->shape.w * apitch,
                 .b_size = b->shape.w * bpitch,
                 .y_size = y->shape.w * ypitch};
    if (p.count == 0)
        return;
    dim3 grid((p.pitch + TILE - 1) / TILE, (p.rows + TILE - 1) / TILE,
              (unsigned)(p.count < MATRICES ? p.count : (size_t)MATRICES));
    cudaStream_t stream = lk__cuda_stream(dev);
    lk__cuda_by_dtype(y->dtype, [&](auto kind) {
        using T = typename decltype(kind)::T;
        multiply_all<<<grid, dim3(TILE, TILE_ROWS), 0, stream>>>(p, (const T *)a->data, (const T *)b->data,
                                                                 (T *)y->data);
    });
    lk__cuda_launched(dev, "matmul");
}

struct exchange {
    size_t count; /* elements of y */
    size_t h, w, c, pitch;
    size_t sample, step[3]; /* elements of x: of a sample; between neighbours along the height, width, channels of y */
};

/* A thread writes one element of y. */
template <class T>
static __global__ void swap(exchange e, const T *x, T *y)
{
    size_t at = lk__cuda_thread();
    if (at >= e.count)
        return;
    size_t pixel = at / e.pitch, channel = at - pixel * e.pitch, w = pixel % e.w, row = pixel / e.w;
    size_t from = row / e.h * e.sample + row % e.h * e.step[0] + w * e.step[1] + channel * e.step[2];
    y[at] = channel < e.c ? x[from] : (T)0.0f;
}

extern "C" void lk__cuda_swap_axes(lk_device *dev, int a, int b, const lk_tensor *x, lk_tensor *y)
{
    size_t xpitch = lk__tensor_pitch(x);
    exchange e = {.count = lk__cuda_elements(y),
                  .h = y->shape.h,
                  .w = y->shape.w,
                  .c = y->shape.c,
                  .pitch = lk__tensor_pitch(y),
                  .sample = x->shape.h * x->shape.w * xpitch,
                  .step = {x->shape.w * xpitch, xpitch, 1}};
    size_t step = e.step[a - 1];
    e.step[a - 1] = e.step[b - 1];
    e.step[b - 1] = step;
    if (e.count == 0)
        return;
    cudaStream_t stream = lk__cuda_stream(dev);
    lk__cuda_by_dtype(y->dtype, [&](auto kind) {
        using T = typename decltype(kind)::T;
        swap<<<lk__cuda_blocks(e.count), LK_THREADS, 0, stream>>>(e, (const T *)x->data, (T *)y->data);
    });
    lk__cuda_launched(dev, "swap_axes");
}

/* A thread writes one element of y. */
template <class T>
static __global__ void reshape(size_t count, size_t xc, size_t xpitch, size_t yc, size_t ypitch, const T *x, T *y)
{
    size_t at = lk__cuda_thread();
    if (at >= count)
        return;
    size_t pixel = at / ypitch, channel = at - pixel * ypitch, element = pixel * yc + channel;
    y[at] = channel < yc ? x[element / xc * xpitch + element % xc] : (T)0.0f;
}

extern "C" void lk__cuda_reshape(lk_device *dev, const lk_tensor *x, lk_tensor *y)
{
    size_t count = lk__cuda_elements(y);
    if (count == 0)
        return;
    cudaStream_t stream = lk__cuda_stream(dev);
    lk__cuda_by_dtype(y->dtype, [&](auto kind) {
        using T = typename decltype(kind)::T;
        reshape<<<lk__cuda_blocks(count), LK_THREADS, 0, stream>>>(
            count, x->shape.c, lk__tensor_pitch(x), y->shape.c, lk__tensor_pitch(y), (const T *)x->data, (T *)y->data);
    });
    lk__cuda_launched(dev, "reshape");
}
