/* loss.cu - losses of float targets, one block for each sample.
 *
 * Thread t has elements t, t + LK_THREADS, ...; a sum over the elements is a chain in each thread, a butterfly in each
 * warp, then a chain over the warps, all in double. */
#include <climits>
#include <cmath>

#include "tensor/cuda/kernels/vec.cuh"

enum { WARPS = LK_THREADS / LK_WARP };

struct losses {
    lk_loss_kind kind;
    double parameter, smoothing;
    float scale;
    size_t floats, channels, pitch, stride; /* of a sample: elements, channels, and in memory */
    size_t target_floats;
    const int32_t *labels;
    const float *targets, *weights, *class_weights;
    lk_loss_results out;
};

struct element {
    double value, slope, error;
};

static __device__ double sign(double d)
{
    return d > 0 ? 1 : d < 0 ? -1 : d; /* 0 or NaN */
}

static __device__ element of_difference(const losses &l, double d)
{
    double p = l.parameter, size = fabs(d);
    switch (l.kind) {
    case LK_LOSS_KIND_MSE:
        return {d * d, 2 * d, d};
    case LK_LOSS_KIND_HUBER:
        return size < p ? element{0.5 * d * d, d, d} : element{p * (size - 0.5 * p), p * sign(d), d};
    case LK_LOSS_KIND_SMOOTH_L1:
        return size < p ? element{0.5 * d * d / p, d / p, d} : element{size - 0.5 * p, sign(d), d};
    default:
        return {size, sign(d), d};
    }
}

/* With s = logistic(x): log(1 - s) is log(s) - x, and the slope is (1 - t) s - w t (1 - s). */
static __device__ element of_logit(double x, double t, double weight)
{
    double e = exp(x > 0 ? -x : x), rest = log1p(e);
    double yes = (x > 0 ? 1 : e) / (1 + e), no = (x > 0 ? e : 1) / (1 + e);
    double value = weight * t * (rest + (x > 0 ? 0 : -x)) + (1 - t) * (rest + (x > 0 ? x : 0));
    return {value, (1 - t) * yes - weight * t * no, yes - t};
}

/* The sum over the threads of a block, which all get. */
template <class N>
static __device__ N block_sum(N v)
{
    __shared__ N parts[WARPS];
    v = lk__cuda_warp_sum(v);
    __syncthreads(); /* an earlier sum has been read */
    if (lk__cuda_lane() == 0)
        parts[threadIdx.x / LK_WARP] = v;
    __syncthreads();
    N sum = 0;
    for (int i = 0; i < WARPS; i++)
        sum += parts[i];
    return sum;
}

/* Where element i of a sample is in memory. */
static __device__ size_t place(const losses &l, size_t i)
{
    return i / l.channels * l.pitch + i % l.channels;
}

static __device__ float scale_of(const losses &l, size_t n)
{
    return l.weights ? l.scale * l.weights[n] : l.scale;
}

static __device__ void put_loss(const losses &l, size_t n, double loss, int label_rank)
{
    if (threadIdx.x > 0)
        return;
    l.out.loss[n] = l.weights ? l.weights[n] * (float)loss : (float)loss;
    l.out.label_rank[n] = label_rank;
}

static __device__ void put_error(const losses &l, size_t n, double absolute, double squared)
{
    if (threadIdx.x > 0 || !l.out.error)
        return;
    l.out.error[2 * n] = (float)(absolute / (double)l.floats);
    l.out.error[2 * n + 1] = (float)(squared / (double)l.floats);
}

template <class T>
static __device__ void clear_pads(const losses &l, T *dx)
{
    size_t width = l.pitch - l.channels, pads = l.floats / l.channels * width;
    for (size_t i = threadIdx.x; i < pads; i += LK_THREADS)
        dx[i / width * l.pitch + l.channels + i % width] = (T)0.0f;
}

template <class T>
static __global__ void elements(losses l, const T *x, T *dx)
{
    lk__cuda_await();
    size_t n = blockIdx.x;
    const float *target = l.targets + n * l.floats;
    float scale = scale_of(l, n);
    double sum = 0, absolute = 0, squared = 0;
    int wrong = 0;
    bool logits = l.kind == LK_LOSS_KIND_BCE;
    x += n * l.stride;
    for (size_t i = threadIdx.x; i < l.floats; i += LK_THREADS) {
        float v = (float)x[place(l, i)], t = target[i];
        double weight = l.class_weights ? (double)l.class_weights[i % l.channels] : 1;
        element e = logits ? of_logit((double)v, (double)t, weight) : of_difference(l, (double)v - (double)t);
        sum += e.value;
        absolute += fabs(e.error);
        squared += e.error * e.error;
        wrong += v != v || (v > 0) != (t > 0.5f);
        if (dx)
            dx[n * l.stride + place(l, i)] = (T)(scale * (float)(e.slope / (double)l.floats));
    }
    if (dx)
        clear_pads(l, dx + n * l.stride);
    sum = block_sum(sum);
    absolute = block_sum(absolute);
    squared = block_sum(squared);
    wrong = block_sum(wrong);
    put_loss(l, n, sum / (double)l.floats, logits && !wrong ? 0 : INT_MAX);
    put_error(l, n, absolute, squared);
}

/* The first index of the largest value. */
template <class T>
static __device__ int largest(const T *x, int count)
{
    __shared__ int best_of[LK_THREADS];
    int best = 0;
    for (int k = (int)threadIdx.x; k < count; k += LK_THREADS)
        best = (float)x[k] > (float)x[best] ? k : best;
    __syncthreads();
    best_of[threadIdx.x] = best;
    __syncthreads();
    for (int i = 0; i < LK_THREADS; i++) {
        int other = best_of[i];
        if ((float)x[other] > (float)x[best] || ((float)x[other] == (float)x[best] && other < best))
            best = other;
    }
    return best;
}

/* The weighted target of class k. */
static __device__ double wanted(const losses &l, size_t n, int label, int k)
{
    double own = l.class_weights ? (double)l.class_weights[k] : 1;
    double target = l.labels ? (double)(k == label) : (double)l.targets[n * l.floats + k];
    return own * ((1 - l.smoothing) * target + l.smoothing / (double)l.floats);
}

template <class T>
static __global__ void soft(losses l, const T *x, T *dx)
{
    lk__cuda_await();
    size_t n = blockIdx.x;
    bool logs = l.kind == LK_LOSS_KIND_SOFT_LOGS;
    int classes = (int)l.floats, before = 0;
    double sum = 0, loss = 0, all = 0, absolute = 0, squared = 0;
    float scale = scale_of(l, n);
    x += n * l.stride;
    int label = l.labels ? l.labels[n] : largest(l.targets + n * l.floats, classes);
    double max = logs ? 0 : (double)(float)x[largest(x, classes)];
    for (int k = (int)threadIdx.x; k < classes; k += LK_THREADS)
        sum += exp((double)(float)x[k] - max);
    sum = logs ? 1 : block_sum(sum);
    double log_sum = logs ? 0 : log(sum);
    float score = (float)x[label];
    for (int k = (int)threadIdx.x; k < classes; k += LK_THREADS) {
        float v = (float)x[k];
        double target = wanted(l, n, label, k), part = exp((double)v - max) / sum;
        double error = l.targets ? part - (double)l.targets[n * l.floats + k] : 0;
        loss += target * (log_sum - ((double)v - max));
        all += target;
        absolute += fabs(error);
        squared += error * error;
        before += !(v <= score) || (k < label && v == score);
    }
    loss = block_sum(loss);
    all = block_sum(all);
    absolute = block_sum(absolute);
    squared = block_sum(squared);
    before = block_sum(before);
    for (int k = (int)threadIdx.x; dx && k < classes; k += LK_THREADS) {
        double part = logs ? 0 : exp((double)(float)x[k] - max) / sum;
        dx[n * l.stride + k] = (T)(scale * (float)(part * all - wanted(l, n, label, k)));
    }
    if (dx)
        clear_pads(l, dx + n * l.stride);
    put_loss(l, n, loss, before);
    put_error(l, n, absolute, squared);
}

/* The label ranks before an own loss writes its own, if it has any. */
static __global__ void no_ranks(size_t count, int32_t *label_rank)
{
    lk__cuda_await();
    size_t n = blockIdx.x * (size_t)LK_THREADS + threadIdx.x;
    if (n < count)
        label_rank[n] = INT_MAX;
}

/* What an own loss does not write: errors, and the label ranks of samples that count as wrong. */
template <class T>
static __global__ void own_errors(losses l, const T *x)
{
    lk__cuda_await();
    size_t n = blockIdx.x;
    double absolute = 0, squared = 0;
    bool compares = l.target_floats == l.floats;
    for (size_t i = threadIdx.x; compares && i < l.floats; i += LK_THREADS) {
        double d = (double)(float)x[n * l.stride + place(l, i)] - (double)l.targets[n * l.floats + i];
        absolute += fabs(d);
        squared += d * d;
    }
    absolute = block_sum(absolute);
    squared = block_sum(squared);
    if (threadIdx.x == 0 && l.out.label_rank[n] < 0)
        l.out.label_rank[n] = INT_MAX;
    put_error(l, n, absolute, squared);
}

static losses losses_of(const lk_loss_desc *desc, const lk_tensor *x, const lk_loss_results *results)
{
    losses l = {};
    l.kind = desc->kind;
    l.parameter = (double)desc->parameter;
    l.smoothing = (double)desc->smoothing;
    l.scale = desc->scale;
    l.floats = lk__shape_sample(x->shape);
    l.channels = x->shape.c;
    l.pitch = lk__tensor_pitch(x);
    l.stride = x->shape.h * x->shape.w * l.pitch;
    l.target_floats = desc->target_floats;
    l.labels = desc->labels;
    l.targets = desc->targets;
    l.weights = desc->weights;
    l.class_weights = desc->class_weights;
    l.out = *results;
    return l;
}

/* x and dx as f32 without pads, in scratch. */
static void run_own(lk_device *dev, const lk_loss_desc *desc, const lk_tensor *x, const lk_loss_results *results,
                    lk_tensor *dx, void *scratch)
{
    lk_tensor plain = {scratch, LK_DTYPE_F32, x->shape, x->shape.c}, grad = plain;
    size_t floats = lk__shape_sample(x->shape);
    grad.data = (float *)scratch + lk__shape_count(x->shape);
    lk__cuda_copy(dev, x, &plain);
    lk_loss_cuda_call call = {};
    call.stream = lk__cuda_stream(dev);
    call.count = x->shape.n;
    call.floats = floats;
    call.x = (const float *)plain.data;
    call.labels = desc->labels;
    call.target_floats = desc->target_floats;
    call.targets = desc->targets;
    call.weights = desc->weights;
    call.scale = desc->scale;
    call.loss = results->loss;
    call.dx = dx ? (float *)grad.data : nullptr;
    call.label_rank = results->label_rank;
    lk__cuda_follow({(unsigned)((call.count + LK_THREADS - 1) / LK_THREADS), LK_THREADS, 0, lk__cuda_stream(dev)},
                    no_ranks, call.count, call.label_rank);
    desc->own->cuda(desc->own->arg, &call);
    lk__cuda_launched(dev, "an own loss");
    if (dx)
        lk__cuda_copy(dev, &grad, dx);
}

extern "C" size_t lk__cuda_target_loss_scratch(lk_device *dev, lk_loss_kind kind, lk_shape x)
{
    (void)dev;
    return kind == LK_LOSS_KIND_OWN ? 2 * lk__shape_count(x) * sizeof(float) : 0;
}

extern "C" void lk__cuda_target_loss(lk_device *dev, const lk_loss_desc *desc, const lk_tensor *x,
                                     const lk_loss_results *results, lk_tensor *dx, void *scratch)
{
    losses l = losses_of(desc, x, results);
    bool own = desc->kind == LK_LOSS_KIND_OWN;
    bool classes = desc->kind == LK_LOSS_KIND_SOFT || desc->kind == LK_LOSS_KIND_SOFT_LOGS;
    unsigned blocks = (unsigned)x->shape.n;
    if (blocks == 0)
        return;
    if (own)
        run_own(dev, desc, x, results, dx, scratch);
    lk__cuda_by_dtype(x->dtype, [&](auto kind) {
        using T = typename decltype(kind)::T;
        cudaStream_t stream = lk__cuda_stream(dev);
        T *to = dx ? (T *)dx->data : nullptr;
        if (own)
            lk__cuda_follow({blocks, LK_THREADS, 0, stream}, own_errors<T>, l, (const T *)x->data);
        else if (classes)
            lk__cuda_follow({blocks, LK_THREADS, 0, stream}, soft<T>, l, (const T *)x->data, to);
        else
            lk__cuda_follow({blocks, LK_THREADS, 0, stream}, elements<T>, l, (const T *)x->data, to);
    });
    lk__cuda_launched(dev, "target_loss");
}
