/* dropout.cu - dropout by the address of each element (base/rng.h), the CPU's masks.
 *
 * Numbers are counted in c, h, w order, memory is in h, w, c order. A block of philox
 * gives four consecutive elements: the same channel at four consecutive pixels,
 * provided that every channel begins at a whole block. Where whole channels are
 * dropped, elements are channels. Pads draw, too, and stay zero. */
#include "tensor/cuda/random.cuh"
#include "tensor/cuda/vec.cuh"

/* What a thread does: V channels of one pixel with a draw a channel; of four pixels at
 * once, where channels begin at whole blocks; or of one pixel with a block an element. */
enum drawing { CHANNELS, QUADS, SINGLES };

/* Pixels of a thread. */
template <drawing D>
constexpr int quad = D == QUADS ? 4 : 1;

struct work {
    lk_rng rng;         /* of sample 0 at time 0 */
    uint32_t threshold; /* words below it drop their element */
    float scale;
    const uint32_t *ids, *step; /* device memory */
    size_t threads;
    unsigned pixels, pitch;
};

static work work_of(const lk_dropout_desc *d, const lk_tensor *x)
{
    return {.rng = lk__rng(d->seed, LK_RNG_DROPOUT, d->layer, 0, 0),
            .threshold = (uint32_t)((double)d->p * 0x1p32),
            .scale = (float)(1.0 / (1.0 - (double)d->p)),
            .ids = d->ids,
            .step = d->step,
            .threads = 0,
            .pixels = (unsigned)(x->shape.h * x->shape.w),
            .pitch = (unsigned)lk__pitch(x)};
}

static __device__ __forceinline__ uint32_t pick(uint4 words, uint32_t i)
{
    uint32_t low = i & 1 ? words.y : words.x, high = i & 1 ? words.w : words.z;
    return i & 2 ? high : low;
}

/* keep[q][i]: whether channel + i of pixel + q stays. */
template <drawing D, int V>
static __device__ __forceinline__ void draw(const work &w, unsigned sample, uint32_t channel, uint32_t pixel,
                                            bool (&keep)[quad<D>][V])
{
    uint32_t id = w.ids[sample], time = *w.step;
    if constexpr (D == CHANNELS) {
#pragma unroll
        for (int i = 0; i < V; i += 4) {
            uint4 words = lk__philox(w.rng, id, time, (channel + i) / 4);
#pragma unroll
            for (int k = 0; k < (V < 4 ? V : 4); k++)
                keep[0][i + k] = pick(words, (channel + i + k) & 3) >= w.threshold;
        }
    } else {
#pragma unroll
        for (int i = 0; i < V; i++) {
            uint64_t element = (uint64_t)(channel + i) * w.pixels + pixel;
            uint4 words = lk__philox(w.rng, id, time, (uint32_t)(element / 4));
            keep[0][i] = pick(words, D == QUADS ? 0 : (uint32_t)element & 3) >= w.threshold;
            if constexpr (D == QUADS) {
                keep[1][i] = words.y >= w.threshold;
                keep[2][i] = words.z >= w.threshold;
                keep[3][i] = words.w >= w.threshold;
            }
        }
    }
}

/* A thread has V channels of one pixel, or of four that follow each other. */
template <drawing D, int V, class T>
static __global__ void drop(work w, const T *x, T *y)
{
    constexpr int Q = quad<D>;
    if (lk__thread() >= w.threads)
        return;
    unsigned index = (unsigned)lk__thread(), columns = w.pitch / V, group = index / columns;
    unsigned channel = (index - group * columns) * V, groups = w.pixels / Q;
    unsigned sample = group / groups, pixel = (group - sample * groups) * Q;
    bool keep[Q][V];
    draw<D>(w, sample, channel, pixel, keep);
    size_t at = ((size_t)sample * w.pixels + pixel) * w.pitch + channel;
#pragma unroll
    for (int q = 0; q < Q; q++) {
        float v[V];
        lk__load(x + at + (size_t)q * w.pitch, v);
#pragma unroll
        for (int i = 0; i < V; i++)
            v[i] = keep[q][i] ? v[i] * w.scale : 0.0f;
        lk__store(y + at + (size_t)q * w.pitch, v);
    }
}

template <drawing D>
static void run(lk_device *dev, work w, const lk_tensor *x, lk_tensor *y)
{
    cudaStream_t stream = lk__cuda_stream(dev);
    lk__by_kind(x, [&](auto kind) {
        constexpr int V = decltype(kind)::V;
        using T = typename decltype(kind)::T;
        w.threads = lk__elements(x) / V / quad<D>;
        drop<D, V><<<lk__blocks(w.threads), LK_THREADS, 0, stream>>>(w, (const T *)x->data, (T *)y->data);
    });
}

extern "C" void lk__cuda_dropout(lk_device *dev, const lk_dropout_desc *dropout, const lk_tensor *x, lk_tensor *y)
{
    work w = work_of(dropout, x);
    if (lk__elements(x) == 0)
        return;
    if (dropout->channels || w.pixels == 1)
        run<CHANNELS>(dev, w, x, y);
    else if (w.pixels % 4 == 0)
        run<QUADS>(dev, w, x, y);
    else
        run<SINGLES>(dev, w, x, y);
    lk__cuda_launched(dev, "dropout");
}
