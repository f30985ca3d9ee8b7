/* softmax.cu - softmax, one warp for each pixel; log-softmax and the losses, one warp for each sample.
 *
 * Lane l has classes l, l + 32, ...; a sum over the classes is a chain in each lane, then a butterfly. N is
 * float for up to FEW classes, otherwise double, as in the CPU's kernels. Labels are in [0, classes): the
 * loader checks them. */
#include "tensor/cuda/kernels/vec.cuh"

enum { ROWS = LK_THREADS / LK_WARP, FEW = 16 };

/* clang-format off */
static __device__ float exp_of(float x) { return expf(x); }
static __device__ double exp_of(double x) { return exp(x); }
static __device__ float log_of(float x) { return logf(x); }
static __device__ double log_of(double x) { return log(x); }
static __device__ float fma_of(float a, float b, float c) { return __fmaf_rn(a, b, c); }
static __device__ double fma_of(double a, double b, double c) { return __fma_rn(a, b, c); }
/* clang-format on */

/* Arguments of all kernels below: n rows of `classes` values. */
struct rows {
    int n, classes, pitch;
    const int32_t *labels;
    float smoothing, scale;
    const float *weights; /* of samples, or nullptr */
    float *losses;
    int32_t *label_ranks;
};

static rows rows_of(const lk_loss_desc *desc, const lk_tensor *x)
{
    return {.n = (int)x->shape.n,
            .classes = (int)lk__shape_sample(x->shape),
            .pitch = (int)(x->shape.h * x->shape.w * lk__tensor_pitch(x)),
            .labels = desc ? desc->labels : nullptr,
            .smoothing = desc ? desc->smoothing : 0.0f,
            .scale = desc ? desc->scale : 0.0f,
            .weights = desc ? desc->weights : nullptr,
            .losses = nullptr,
            .label_ranks = nullptr};
}

static __device__ int row_of_warp()
{
    return (int)(blockIdx.x * ROWS + threadIdx.x / LK_WARP);
}

template <class T>
static __device__ float row_max(const rows &r, const T *x)
{
    float max = (float)x[0];
    for (int k = lk__cuda_lane(); k < r.classes; k += LK_WARP)
        max = (float)x[k] > max ? (float)x[k] : max;
    for (int half = LK_WARP / 2; half > 0; half /= 2) {
        float other = __shfl_xor_sync(~0u, max, half);
        max = other > max ? other : max;
    }
    return max;
}

template <class N, class T>
static __device__ N row_sum_exp(const rows &r, const T *x, N max)
{
    N sum = 0;
    for (int k = lk__cuda_lane(); k < r.classes; k += LK_WARP)
        sum += exp_of((N)(float)x[k] - max);
    return lk__cuda_warp_sum(sum);
}

template <class T>
static __device__ void clear_pads(const rows &r, T *y)
{
    for (int k = r.classes + lk__cuda_lane(); k < r.pitch; k += LK_WARP)
        y[k] = (T)0.0f;
}

template <class N, class T>
static __global__ void log_softmax(rows r, const T *x, T *y)
{
    int row = row_of_warp();
    if (row >= r.n)
        return;
    x += (size_t)row * r.pitch;
    y += (size_t)row * r.pitch;
    N max = row_max(r, x), log_sum = log_of(row_sum_exp(r, x, max));
    for (int k = lk__cuda_lane(); k < r.classes; k += LK_WARP)
        y[k] = (T)(float)(((N)(float)x[k] - max) - log_sum);
    clear_pads(r, y);
}

template <class N, class T>
static __global__ void log_softmax_grad(rows r, const T *y, const T *dy, T *dx)
{
    int row = row_of_warp();
    size_t at = (size_t)row * r.pitch;
    if (row >= r.n)
        return;
    N sum = 0;
    for (int k = lk__cuda_lane(); k < r.classes; k += LK_WARP)
        sum += (N)(float)dy[at + k];
    sum = lk__cuda_warp_sum(sum);
    for (int k = lk__cuda_lane(); k < r.classes; k += LK_WARP)
        dx[at + k] = (T)(float)fma_of(-exp_of((N)(float)y[at + k]), sum, (N)(float)dy[at + k]);
    clear_pads(r, dx + at);
}

/* Calls f(stream, blocks, kind) for `rows` rows of the tensor, if there are any. */
template <class F>
static void run_rows(lk_device *dev, const char *what, const lk_tensor *x, size_t rows, F f)
{
    if (rows == 0)
        return;
    unsigned blocks = (unsigned)((rows + ROWS - 1) / ROWS);
    lk__cuda_by_dtype(x->dtype, [&](auto kind) { f(lk__cuda_stream(dev), blocks, kind); });
    lk__cuda_launched(dev, what);
}

template <class F>
static void run(lk_device *dev, const char *what, const lk_tensor *x, F f)
{
    run_rows(dev, what, x, x->shape.n, f);
}

/* A row for each pixel. */
static rows pixel_rows(const lk_tensor *x)
{
    rows r = {};
    r.n = (int)lk__cuda_pixels(x);
    r.classes = (int)x->shape.c;
    r.pitch = (int)lk__tensor_pitch(x);
    return r;
}

template <class N, class T>
static __global__ void softmax(rows r, const T *x, T *y)
{
    int row = row_of_warp();
    if (row >= r.n)
        return;
    x += (size_t)row * r.pitch;
    y += (size_t)row * r.pitch;
    N max = row_max(r, x), sum = row_sum_exp(r, x, max);
    for (int k = lk__cuda_lane(); k < r.classes; k += LK_WARP)
        y[k] = (T)(float)(exp_of((N)(float)x[k] - max) / sum);
    clear_pads(r, y);
}

/* dx = y (dy - sum of y dy). */
template <class T>
static __global__ void softmax_grad(rows r, const T *y, const T *dy, T *dx)
{
    int row = row_of_warp();
    size_t at = (size_t)row * r.pitch;
    if (row >= r.n)
        return;
    double sum = 0;
    for (int k = lk__cuda_lane(); k < r.classes; k += LK_WARP)
        sum += (double)(float)y[at + k] * (double)(float)dy[at + k];
    sum = lk__cuda_warp_sum(sum);
    for (int k = lk__cuda_lane(); k < r.classes; k += LK_WARP)
        dx[at + k] = (T)(float)((double)(float)y[at + k] * ((double)(float)dy[at + k] - sum));
    clear_pads(r, dx + at);
}

extern "C" void lk__cuda_softmax_forward(lk_device *dev, const lk_tensor *x, lk_tensor *y)
{
    rows r = pixel_rows(x);
    run_rows(dev, "softmax_forward", x, (size_t)r.n, [&](cudaStream_t stream, unsigned blocks, auto kind) {
        using T = typename decltype(kind)::T;
        auto kernel = r.classes <= FEW ? softmax<float, T> : softmax<double, T>;
        kernel<<<blocks, LK_THREADS, 0, stream>>>(r, (const T *)x->data, (T *)y->data);
    });
}

extern "C" void lk__cuda_softmax_grad_input(lk_device *dev, const lk_tensor *y, const lk_tensor *dy, lk_tensor *dx)
{
    rows r = pixel_rows(y);
    run_rows(dev, "softmax_grad_input", y, (size_t)r.n, [&](cudaStream_t stream, unsigned blocks, auto kind) {
        using T = typename decltype(kind)::T;
        softmax_grad<<<blocks, LK_THREADS, 0, stream>>>(r, (const T *)y->data, (const T *)dy->data, (T *)dx->data);
    });
}

extern "C" void lk__cuda_log_softmax_forward(lk_device *dev, const lk_tensor *x, lk_tensor *y)
{
    rows r = rows_of(nullptr, x);
    run(dev, "log_softmax_forward", x, [&](cudaStream_t stream, unsigned blocks, auto kind) {
        using T = typename decltype(kind)::T;
        auto kernel = r.classes <= FEW ? log_softmax<float, T> : log_softmax<double, T>;
        kernel<<<blocks, LK_THREADS, 0, stream>>>(r, (const T *)x->data, (T *)y->data);
    });
}

extern "C" void lk__cuda_log_softmax_grad_input(lk_device *dev, const lk_tensor *y, const lk_tensor *dy, lk_tensor *dx)
{
    rows r = rows_of(nullptr, y);
    run(dev, "log_softmax_grad_input", y, [&](cudaStream_t stream, unsigned blocks, auto kind) {
        using T = typename decltype(kind)::T;
        auto kernel = r.classes <= FEW ? log_softmax_grad<float, T> : log_softmax_grad<double, T>;
        kernel<<<blocks, LK_THREADS, 0, stream>>>(r, (const T *)y->data, (const T *)dy->data, (T *)dx->data);
    });
}

/* Counts the classes that rank before the label. NaN, as the label's score or another one, ranks before the
 * label, so rank 0 is impossible then. */
template <class T>
static __device__ int label_rank_of(const rows &r, const T *x, int label)
{
    int before = 0;
    float own = (float)x[label];
    for (int k = lk__cuda_lane(); k < r.classes; k += LK_WARP)
        before += !((float)x[k] <= own) || (k < label && (float)x[k] == own);
    return lk__cuda_warp_sum(before);
}

/* The target probability of class k. */
template <class N>
static __device__ N target(const rows &r, int label, int k)
{
    N smoothing = r.smoothing, even = smoothing / (N)r.classes;
    return k == label ? ((N)1 - smoothing) + even : even;
}

/* The loss of class k is log_sum - (x[k] - max); for nll log_sum and max are 0. */
template <class N, class T>
static __device__ void row_loss(const rows &r, const T *x, int row, N max, N log_sum)
{
    int label = r.labels[row];
    N loss = log_sum - ((N)(float)x[label] - max), smoothing = r.smoothing;
    double all = 0;
    for (int k = lk__cuda_lane(); r.smoothing > 0 && k < r.classes; k += LK_WARP)
        all += (double)(log_sum - ((N)(float)x[k] - max));
    if (r.smoothing > 0)
        loss = ((N)1 - smoothing) * loss + smoothing * (N)(lk__cuda_warp_sum(all) / (double)r.classes);
    int label_rank = label_rank_of(r, x, label);
    if (lk__cuda_lane() == 0) {
        r.losses[row] = r.weights ? r.weights[row] * (float)loss : (float)loss;
        r.label_ranks[row] = label_rank;
    }
}

/* The factor of the gradient of a row. */
static __device__ float scale_of(const rows &r, int row)
{
    return r.weights ? r.scale * r.weights[row] : r.scale;
}

template <class T>
static __global__ void nll(rows r, const T *x, T *dx)
{
    int row = row_of_warp();
    size_t at = (size_t)row * r.pitch;
    if (row >= r.n)
        return;
    row_loss(r, x + at, row, 0.0f, 0.0f);
    if (!dx)
        return;
    for (int k = lk__cuda_lane(); k < r.classes; k += LK_WARP)
        dx[at + k] = (T)(0.0f - scale_of(r, row) * target<float>(r, r.labels[row], k));
    clear_pads(r, dx + at);
}

template <class N, class T>
static __global__ void cross_entropy(rows r, const T *x, T *dx)
{
    int row = row_of_warp();
    size_t at = (size_t)row * r.pitch;
    if (row >= r.n)
        return;
    x += at;
    N max = row_max(r, x), sum = row_sum_exp(r, x, max);
    row_loss(r, x, row, max, log_of(sum));
    if (!dx)
        return;
    for (int k = lk__cuda_lane(); k < r.classes; k += LK_WARP)
        dx[at + k] =
            (T)(float)((N)scale_of(r, row) * (exp_of((N)(float)x[k] - max) / sum - target<N>(r, r.labels[row], k)));
    clear_pads(r, dx + at);
}

extern "C" void lk__cuda_nll(lk_device *dev, const lk_loss_desc *desc, const lk_tensor *x, float *loss,
                             int32_t *label_rank, lk_tensor *dx)
{
    rows r = rows_of(desc, x);
    r.losses = loss, r.label_ranks = label_rank;
    run(dev, "nll", x, [&](cudaStream_t stream, unsigned blocks, auto kind) {
        using T = typename decltype(kind)::T;
        nll<<<blocks, LK_THREADS, 0, stream>>>(r, (const T *)x->data, dx ? (T *)dx->data : nullptr);
    });
}

extern "C" void lk__cuda_cross_entropy(lk_device *dev, const lk_loss_desc *desc, const lk_tensor *x, float *loss,
                                       int32_t *label_rank, lk_tensor *dx)
{
    rows r = rows_of(desc, x);
    r.losses = loss, r.label_ranks = label_rank;
    run(dev, "cross_entropy", x, [&](cudaStream_t stream, unsigned blocks, auto kind) {
        using T = typename decltype(kind)::T;
        auto kernel = r.classes <= FEW ? cross_entropy<float, T> : cross_entropy<double, T>;
        kernel<<<blocks, LK_THREADS, 0, stream>>>(r, (const T *)x->data, dx ? (T *)dx->data : nullptr);
    });
}
