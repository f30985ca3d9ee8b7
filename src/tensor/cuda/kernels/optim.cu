/* optim.cu - one optimiser step over flat arrays, by PyTorch's rules, and the search for non-finite gradients.
 *
 * The arithmetic is that of the CPU's kernels, fused in the same operations. Scalars and flag are read from
 * device memory. A range may begin at any element; ranges aligned to a vector are faster. */
#include <assert.h>

#include "tensor/cuda/kernels/vec.cuh"

struct arrays {
    size_t count;
    const lk_flag *flag;
    const float *grad;
    float *param;
    lk_bf16 *values; /* or NULL */
    float *state[3];
};

/* Updates one element; returns the parameter. Bit i of `kept`: there is state array i. */
static __device__ float update(const lk_sgd &sgd, float g, float p, float &buffer, float &, float &, unsigned kept)
{
    float d = fmaf(sgd.weight_decay, p, g);
    if (kept) {
        buffer = sgd.first ? d : fmaf(1.0f - sgd.dampening, d, sgd.momentum * buffer);
        d = sgd.nesterov ? fmaf(sgd.momentum, buffer, d) : buffer;
    }
    return fmaf(-sgd.lr, d, p);
}

static __device__ float update(const lk_adam &adam, float g, float p, float &m, float &v, float &, unsigned)
{
    p = adam.shrink * p; /* exact if shrink is 1 */
    g = fmaf(adam.weight_decay, p, g);
    m = fmaf(adam.one_minus_beta1, g - m, m);
    v = fmaf(adam.one_minus_beta2 * g, g, adam.beta2 * v);
    return fmaf(-adam.step_size, m / (sqrtf(v) / adam.root_correction + adam.eps), p);
}

static __device__ float update(const lk_adadelta &rule, float g, float p, float &square, float &delta, float &,
                               unsigned)
{
    g = fmaf(rule.weight_decay, p, g);
    square = fmaf(rule.one_minus_rho * g, g, rule.rho * square);
    float change = sqrtf(delta + rule.eps) / sqrtf(square + rule.eps) * g;
    delta = fmaf(rule.one_minus_rho * change, change, rule.rho * delta);
    return fmaf(-rule.lr, change, p);
}

static __device__ float update(const lk_rmsprop &rule, float g, float p, float &square, float &buffer, float &mean,
                               unsigned kept)
{
    g = fmaf(rule.weight_decay, p, g);
    square = fmaf(rule.one_minus_alpha * g, g, rule.alpha * square);
    float variance = square;
    if (kept & 4) {
        mean = fmaf(rule.one_minus_alpha, g - mean, mean);
        variance = square - mean * mean;
        variance = variance < 0 ? 0 : variance; /* rounding may make it negative */
    }
    float d = g / (sqrtf(variance) + rule.eps);
    if (kept & 2) {
        d = fmaf(rule.momentum, buffer, d);
        buffer = d;
    }
    return fmaf(-rule.lr, d, p);
}

/* Elements [i, i + V). Reads and writes the arrays of state that have a bit in KEPT; writes values if ROUNDED. */
template <int V, unsigned KEPT, bool ROUNDED, class R>
static __device__ void step_at(const arrays &a, const R &rule, size_t i)
{
    float g[V], p[V], first[V] = {}, second[V] = {}, third[V] = {};
    lk__cuda_load(a.grad + i, g);
    lk__cuda_load(a.param + i, p);
    if (KEPT & 1)
        lk__cuda_load(a.state[0] + i, first);
    if (KEPT & 2)
        lk__cuda_load(a.state[1] + i, second);
    if (KEPT & 4)
        lk__cuda_load(a.state[2] + i, third);
#pragma unroll
    for (int k = 0; k < V; k++)
        p[k] = update(rule, g[k], p[k], first[k], second[k], third[k], KEPT);
    lk__cuda_store(a.param + i, p);
    if (ROUNDED)
        lk__cuda_store(a.values + i, p);
    if (KEPT & 1)
        lk__cuda_store(a.state[0] + i, first);
    if (KEPT & 2)
        lk__cuda_store(a.state[1] + i, second);
    if (KEPT & 4)
        lk__cuda_store(a.state[2] + i, third);
}

template <int V, unsigned KEPT, bool ROUNDED, class R>
static __global__ void step(arrays a, const R *in_memory)
{
    lk__cuda_await();
    if (a.flag && a.flag->bad)
        return;
    R rule = *in_memory;
    size_t i = lk__cuda_thread() * V;
    if (i + V <= a.count)
        step_at<V, KEPT, ROUNDED>(a, rule, i);
    else
        for (; i < a.count; i++)
            step_at<1, KEPT, ROUNDED>(a, rule, i);
}

template <unsigned KEPT, bool ROUNDED, class R>
static void launch_step(cudaStream_t stream, const arrays &a, const R *rule)
{
    bool aligned = lk__cuda_aligned(a.grad) && lk__cuda_aligned(a.param) && lk__cuda_aligned(a.values);
    for (float *state : a.state)
        aligned = aligned && lk__cuda_aligned(state);
    if (aligned)
        lk__cuda_follow({lk__cuda_blocks((a.count + 3) / 4), LK_THREADS, 0, stream}, step<4, KEPT, ROUNDED, R>, a,
                        rule);
    else
        lk__cuda_follow({lk__cuda_blocks(a.count), LK_THREADS, 0, stream}, step<1, KEPT, ROUNDED, R>, a, rule);
}

template <unsigned KEPT, class R>
static void run_step(lk_device *dev, const arrays &a, const R *rule, const char *what)
{
    if (a.count == 0)
        return;
    if (a.values)
        launch_step<KEPT, true>(lk__cuda_stream(dev), a, rule);
    else
        launch_step<KEPT, false>(lk__cuda_stream(dev), a, rule);
    lk__cuda_launched(dev, what);
}

static arrays arrays_of(const lk_device *dev, size_t count, const lk_flag *flag, const lk_update_arrays *in)
{
    assert(!in->values || dev->values == LK_DTYPE_BF16);
    (void)dev;
    return {count, flag, in->grad, in->param, (lk_bf16 *)in->values, {}};
}

void lk__cuda_sgd_step(lk_device *dev, const lk_sgd *sgd, const lk_flag *flag, size_t count, const lk_update_arrays *in,
                       float *buffer)
{
    arrays a = arrays_of(dev, count, flag, in);
    a.state[0] = buffer;
    if (buffer)
        run_step<1>(dev, a, sgd, "sgd_step");
    else
        run_step<0>(dev, a, sgd, "sgd_step");
}

void lk__cuda_adam_step(lk_device *dev, const lk_adam *adam, const lk_flag *flag, size_t count,
                        const lk_update_arrays *in, float *m, float *v)
{
    arrays a = arrays_of(dev, count, flag, in);
    a.state[0] = m;
    a.state[1] = v;
    run_step<3>(dev, a, adam, "adam_step");
}

void lk__cuda_adadelta_step(lk_device *dev, const lk_adadelta *adadelta, const lk_flag *flag, size_t count,
                            const lk_update_arrays *in, float *square, float *delta)
{
    arrays a = arrays_of(dev, count, flag, in);
    a.state[0] = square;
    a.state[1] = delta;
    run_step<3>(dev, a, adadelta, "adadelta_step");
}

void lk__cuda_rmsprop_step(lk_device *dev, const lk_rmsprop *rmsprop, const lk_flag *flag, size_t count,
                           const lk_update_arrays *in, const lk_rmsprop_state *state)
{
    arrays a = arrays_of(dev, count, flag, in);
    a.state[0] = state->square;
    a.state[1] = state->buffer;
    a.state[2] = state->mean;
    if (state->buffer && state->mean)
        run_step<7>(dev, a, rmsprop, "rmsprop_step");
    else if (state->mean)
        run_step<5>(dev, a, rmsprop, "rmsprop_step");
    else if (state->buffer)
        run_step<3>(dev, a, rmsprop, "rmsprop_step");
    else
        run_step<1>(dev, a, rmsprop, "rmsprop_step");
}

/* The lowest position does not depend on the order of the atomics. */
static __device__ void raise(lk_flag *flag, uint64_t position)
{
    static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
    atomicMin((unsigned long long *)&flag->first, (unsigned long long)position);
    flag->bad = 1;
}

template <int V>
static __device__ void check(const float (&v)[V], float limit, uint64_t position, lk_flag *flag)
{
    int found = V;
#pragma unroll
    for (int k = V - 1; k >= 0; k--)
        found = fabsf(v[k]) <= limit ? found : k;
    if (found < V)
        raise(flag, position + (uint64_t)found);
}

struct search {
    lk_flag_part part[LK_FLAG_PARTS];
    unsigned first; /* blocks of the first part */
    float limit;
};

/* Vectors of a thread, which it loads together. */
enum { SEARCHED = 4 };

/* The blocks of the second part follow those of the first. */
template <int V>
static __global__ void find_above(const __grid_constant__ search s, lk_flag *flag)
{
    static_assert(LK_FLAG_PARTS == 2);
    lk__cuda_await();
    bool second = blockIdx.x >= s.first;
    const lk_flag_part &part = s.part[second];
    size_t begin = ((size_t)(blockIdx.x - (second ? s.first : 0)) * SEARCHED * LK_THREADS + threadIdx.x) * V;
    float v[SEARCHED][V] = {};
#pragma unroll
    for (int k = 0; k < SEARCHED; k++) {
        size_t i = begin + (size_t)(k * LK_THREADS * V);
        if (i + V <= part.count)
            lk__cuda_load(part.x + i, v[k]);
        else
            for (int j = 0; j < V && i + (size_t)j < part.count; j++)
                v[k][j] = part.x[i + (size_t)j];
    }
#pragma unroll
    for (int k = 0; k < SEARCHED; k++)
        check(v[k], s.limit, part.base + begin + (size_t)(k * LK_THREADS * V), flag);
}

void lk__cuda_flag_above(lk_device *dev, int parts, const lk_flag_part *part, float limit, lk_flag *flag)
{
    cudaStream_t stream = lk__cuda_stream(dev);
    search s = {};
    bool aligned = true;
    s.limit = limit;
    assert(parts <= LK_FLAG_PARTS);
    for (int i = 0; i < parts; i++) {
        s.part[i] = part[i];
        aligned = aligned && lk__cuda_aligned(part[i].x);
    }
    size_t each = (aligned ? 4 : 1) * SEARCHED; /* elements of a thread */
    s.first = lk__cuda_blocks((s.part[0].count + each - 1) / each);
    unsigned blocks = s.first + lk__cuda_blocks((s.part[1].count + each - 1) / each);
    if (blocks == 0)
        return;
    lk__cuda_follow({blocks, LK_THREADS, 0, stream}, aligned ? find_above<4> : find_above<1>, s, flag);
    lk__cuda_launched(dev, "flag_above");
}
