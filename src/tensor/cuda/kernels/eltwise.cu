/* eltwise.cu - kernels that process each element alone: ReLU, ReLU6, leaky ReLU, addition, multiplication, copies (also
 * to another type, with more or fewer channels, or of two tensors side by side), and flatten's change of order. */
#include "tensor/cuda/kernels/map.cuh"

struct relu_op {
    __device__ float operator()(float x) const
    {
        return lk__cuda_relu1(x);
    }
};

struct relu6_op {
    __device__ float operator()(float x) const
    {
        return x >= 6 ? 6.0f : lk__cuda_relu1(x);
    }
};

struct relu_grad_op {
    __device__ float operator()(float y, float dy) const
    {
        return lk__cuda_relu_grad1(y, dy);
    }
};

struct relu6_grad_op {
    __device__ float operator()(float y, float dy) const
    {
        return y >= 6 ? 0.0f : lk__cuda_relu_grad1(y, dy);
    }
};

struct leaky_relu_op {
    float slope;
    __device__ float operator()(float x) const
    {
        return x <= 0 ? slope * x : x;
    }
    __device__ float operator()(float y, float dy) const
    {
        return y <= 0 ? slope * dy : dy;
    }
};

struct add_op {
    __device__ float operator()(float a, float b) const
    {
        return a + b;
    }
};

struct add_relu_op {
    __device__ float operator()(float a, float b) const
    {
        return lk__cuda_relu1(a + b);
    }
};

struct add_masked_op {
    __device__ float operator()(float mask, float a, float b) const
    {
        return lk__cuda_relu_grad1(mask, a + b);
    }
};

struct mul_op {
    __device__ float operator()(float a, float b) const
    {
        return a * b;
    }
};

struct same_op {
    __device__ float operator()(float x) const
    {
        return x;
    }
};

extern "C" void lk__cuda_relu_forward(lk_device *dev, const lk_tensor *x, lk_tensor *y)
{
    run_map(dev, "relu_forward", x, y, relu_op());
}

extern "C" void lk__cuda_relu_grad_input(lk_device *dev, const lk_tensor *y, const lk_tensor *dy, lk_tensor *dx)
{
    run_map2(dev, "relu_grad_input", y, dy, dx, relu_grad_op());
}

extern "C" void lk__cuda_relu6_forward(lk_device *dev, const lk_tensor *x, lk_tensor *y)
{
    run_map(dev, "relu6_forward", x, y, relu6_op());
}

extern "C" void lk__cuda_relu6_grad_input(lk_device *dev, const lk_tensor *y, const lk_tensor *dy, lk_tensor *dx)
{
    run_map2(dev, "relu6_grad_input", y, dy, dx, relu6_grad_op());
}

extern "C" void lk__cuda_leaky_relu_forward(lk_device *dev, const lk_tensor *x, float slope, lk_tensor *y)
{
    run_map(dev, "leaky_relu_forward", x, y, leaky_relu_op{slope});
}

extern "C" void lk__cuda_leaky_relu_grad_input(lk_device *dev, const lk_tensor *y, const lk_tensor *dy, float slope,
                                               lk_tensor *dx)
{
    run_map2(dev, "leaky_relu_grad_input", y, dy, dx, leaky_relu_op{slope});
}

extern "C" void lk__cuda_add(lk_device *dev, const lk_tensor *a, const lk_tensor *b, bool relu, lk_tensor *y)
{
    if (relu)
        run_map2(dev, "add", a, b, y, add_relu_op());
    else
        run_map2(dev, "add", a, b, y, add_op());
}

extern "C" void lk__cuda_add_masked(lk_device *dev, const lk_tensor *a, const lk_tensor *b, const lk_tensor *mask,
                                    lk_tensor *y)
{
    run_map3(dev, "add_masked", mask, a, b, y, add_masked_op());
}

extern "C" void lk__cuda_mul(lk_device *dev, const lk_tensor *a, const lk_tensor *b, lk_tensor *y)
{
    run_map2(dev, "mul", a, b, y, mul_op());
}

struct fitting {
    size_t count;          /* elements of y */
    size_t channels;       /* channels that both x and y have */
    size_t xpitch, ypitch; /* multiples of V */
};

/* A thread copies V channels of one pixel of y. */
template <int V, class TX, class TY>
static __global__ void fit(fitting f, const TX *x, TY *y)
{
    lk__cuda_await();
    size_t at = lk__cuda_thread() * V;
    if (at >= f.count)
        return;
    size_t pixel = lk__cuda_quotient(at, f.ypitch), channel = at - pixel * f.ypitch;
    const TX *from = x + pixel * f.xpitch + channel;
    float v[V];
    if (channel + V <= f.channels) {
        lk__cuda_load(from, v);
    } else {
#pragma unroll
        for (int i = 0; i < V; i++)
            v[i] = channel + i < f.channels ? (float)from[i] : 0.0f;
    }
    lk__cuda_store(y + at, v);
}

template <class TX, class TY>
static void launch_fit(cudaStream_t stream, const lk_tensor *x, lk_tensor *y)
{
    const TX *from = (const TX *)x->data;
    TY *to = (TY *)y->data;
    fitting f = {.count = lk__cuda_elements(y),
                 .channels = x->shape.c < y->shape.c ? x->shape.c : y->shape.c,
                 .xpitch = lk__tensor_pitch(x),
                 .ypitch = lk__tensor_pitch(y)};
    constexpr int V = sizeof(TX) == 2 && sizeof(TY) == 2 ? 8 : 4;
    if (f.xpitch == f.ypitch && f.channels == x->shape.c)
        launch_map<V>(stream, f.count, from, to, same_op());
    else if (f.xpitch % 4 == 0 && f.ypitch % 4 == 0 && lk__cuda_aligned(from) && lk__cuda_aligned(to))
        lk__cuda_follow({lk__cuda_blocks(f.count / 4), LK_THREADS, 0, stream}, fit<4, TX, TY>, f, from, to);
    else
        lk__cuda_follow({lk__cuda_blocks(f.count), LK_THREADS, 0, stream}, fit<1, TX, TY>, f, from, to);
}

static void run_fit(lk_device *dev, const char *what, const lk_tensor *x, lk_tensor *y)
{
    if (lk__cuda_elements(y) == 0)
        return;
    lk__cuda_by_dtype(x->dtype, [&](auto from) {
        lk__cuda_by_dtype(y->dtype, [&](auto to) {
            launch_fit<typename decltype(from)::T, typename decltype(to)::T>(lk__cuda_stream(dev), x, y);
        });
    });
    lk__cuda_launched(dev, what);
}

extern "C" void lk__cuda_copy(lk_device *dev, const lk_tensor *x, lk_tensor *y)
{
    run_fit(dev, "copy", x, y);
}

extern "C" void lk__cuda_fit_channels(lk_device *dev, const lk_tensor *x, lk_tensor *y)
{
    run_fit(dev, "fit_channels", x, y);
}

/* A thread writes one element of y: channel k of a pixel is channel `first` + k of a if a has it, otherwise one of b,
 * otherwise 0. */
struct joining {
    size_t count; /* elements of y */
    size_t ac, bc, first, apitch, bpitch, ypitch;
};

template <class T>
static __global__ void join(joining j, const T *a, const T *b, T *y)
{
    lk__cuda_await();
    size_t at = lk__cuda_thread();
    if (at >= j.count)
        return;
    size_t pixel = lk__cuda_quotient(at, j.ypitch), channel = at - pixel * j.ypitch + j.first;
    T value = (T)0.0f;
    if (channel < j.ac)
        value = a[pixel * j.apitch + channel];
    else if (channel - j.ac < j.bc)
        value = b[pixel * j.bpitch + channel - j.ac];
    y[at] = value;
}

static void run_join(lk_device *dev, const char *what, joining j, const lk_tensor *a, const lk_tensor *b, lk_tensor *y)
{
    j.count = lk__cuda_elements(y);
    j.ypitch = lk__tensor_pitch(y);
    j.apitch = lk__tensor_pitch(a);
    if (j.count == 0)
        return;
    lk__cuda_by_dtype(y->dtype, [&](auto kind) {
        using T = typename decltype(kind)::T;
        lk__cuda_follow({lk__cuda_blocks(j.count), LK_THREADS, 0, lk__cuda_stream(dev)}, join<T>, j, (const T *)a->data,
                        (const T *)b->data, (T *)y->data);
    });
    lk__cuda_launched(dev, what);
}

extern "C" void lk__cuda_concat_forward(lk_device *dev, const lk_tensor *a, const lk_tensor *b, lk_tensor *y)
{
    joining j = {};
    j.ac = a->shape.c;
    j.bc = b->shape.c;
    j.bpitch = lk__tensor_pitch(b);
    run_join(dev, "concat_forward", j, a, b, y);
}

extern "C" void lk__cuda_concat_grad_input(lk_device *dev, const lk_tensor *dy, size_t first, lk_tensor *dx)
{
    joining j = {};
    j.ac = first + dx->shape.c;
    j.first = first;
    run_join(dev, "concat_grad_input", j, dy, dy, dx);
}

enum { TILE = 32, TILE_ROWS = 8 };

/* For each sample: to (columns, padded) = from (rows, columns), transposed. Columns beyond `columns` are
 * neither read nor written; rows from `rows` to `padded` are zeros. */
struct transposition {
    size_t rows, padded, columns;
    size_t from_pitch, to_pitch, from_sample, to_sample;
};

template <class T>
static __global__ void transpose(transposition t, const T *from, T *to)
{
    lk__cuda_await();
    __shared__ T tile[TILE][TILE + 2];
    from += blockIdx.z * t.from_sample;
    to += blockIdx.z * t.to_sample;
    size_t row0 = blockIdx.y * TILE, column0 = blockIdx.x * TILE;
    unsigned x = threadIdx.x;
    for (unsigned y = threadIdx.y; y < TILE; y += TILE_ROWS)
        if (column0 + x < t.columns)
            tile[y][x] = row0 + y < t.rows ? from[(row0 + y) * t.from_pitch + column0 + x] : (T)0.0f;
    __syncthreads();
    for (unsigned y = threadIdx.y; y < TILE; y += TILE_ROWS)
        if (column0 + y < t.columns && row0 + x < t.padded)
            to[(column0 + y) * t.to_pitch + row0 + x] = tile[x][y];
}

template <class T>
static void launch_transpose(cudaStream_t stream, const transposition &t, const lk_tensor *x, lk_tensor *y)
{
    dim3 grid((unsigned)((t.columns + TILE - 1) / TILE), (unsigned)((t.padded + TILE - 1) / TILE),
              (unsigned)x->shape.n);
    lk__cuda_follow({grid, dim3(TILE, TILE_ROWS), 0, stream}, transpose<T>, t, (const T *)x->data, (T *)y->data);
}

/* Sets elements from c to the pitch of each row to zero. */
template <class T>
static __global__ void clear_pads(size_t c, size_t pitch, T *y)
{
    lk__cuda_await();
    for (size_t i = c + threadIdx.x; i < pitch; i += blockDim.x)
        y[blockIdx.x * pitch + i] = (T)0.0f;
}

/* Rows are pixels, columns are channels. */
extern "C" void lk__cuda_flatten_forward(lk_device *dev, const lk_tensor *x, lk_tensor *y)
{
    size_t pixels = x->shape.h * x->shape.w, pitch = lk__tensor_pitch(y), n = y->shape.n;
    transposition t = {.rows = pixels,
                       .padded = pixels,
                       .columns = x->shape.c,
                       .from_pitch = lk__tensor_pitch(x),
                       .to_pitch = pixels,
                       .from_sample = pixels * lk__tensor_pitch(x),
                       .to_sample = pitch};
    if (pixels == 1) {
        run_fit(dev, "flatten_forward", x, y);
        return;
    }
    if (n == 0)
        return;
    lk__cuda_by_dtype(x->dtype, [&](auto kind) {
        using T = typename decltype(kind)::T;
        cudaStream_t stream = lk__cuda_stream(dev);
        launch_transpose<T>(stream, t, x, y);
        if (pitch > y->shape.c)
            lk__cuda_follow({(unsigned)n, LK_WARP, 0, stream}, clear_pads<T>, y->shape.c, pitch, (T *)y->data);
    });
    lk__cuda_launched(dev, "flatten_forward");
}

/* Rows are channels, those of the pads zeros; columns are pixels. */
extern "C" void lk__cuda_flatten_grad_input(lk_device *dev, const lk_tensor *dy, lk_tensor *dx)
{
    size_t pixels = dx->shape.h * dx->shape.w;
    transposition t = {.rows = dx->shape.c,
                       .padded = lk__tensor_pitch(dx),
                       .columns = pixels,
                       .from_pitch = pixels,
                       .to_pitch = lk__tensor_pitch(dx),
                       .from_sample = lk__tensor_pitch(dy),
                       .to_sample = pixels * lk__tensor_pitch(dx)};
    if (pixels == 1) {
        run_fit(dev, "flatten_grad_input", dy, dx);
        return;
    }
    if (dx->shape.n == 0)
        return;
    lk__cuda_by_dtype(
        dy->dtype, [&](auto kind) { launch_transpose<typename decltype(kind)::T>(lk__cuda_stream(dev), t, dy, dx); });
    lk__cuda_launched(dev, "flatten_grad_input");
}
