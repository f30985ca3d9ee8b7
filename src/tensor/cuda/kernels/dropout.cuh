/* dropout.cuh - which elements are kept, for dropout and for pooling with a dropout after it. For nvcc only.
 *
 * Random numbers are counted in the order c, h, w; memory is in the order h, w, c. A block of philox gives four
 * consecutive elements, which are the same channel at four consecutive pixels if every channel begins at a
 * whole block. If whole channels are dropped, an element is a channel. Pads are drawn for too, and stay zero. */
#ifndef LK_TENSOR_CUDA_KERNELS_DROPOUT_CUH
#define LK_TENSOR_CUDA_KERNELS_DROPOUT_CUH

#include "tensor/cuda/kernels/random.cuh"
#include "tensor/cuda/kernels/vec.cuh"

/* The work of a thread. CHANNELS: V channels of one pixel, one draw for each channel. QUADS: V channels of four
 * pixels, if channels begin at whole blocks. SINGLES: V channels of one pixel, one philox block for each
 * element. */
enum lk_drawing { LK_DRAWING_CHANNELS, LK_DRAWING_QUADS, LK_DRAWING_SINGLES };

/* Pixels of a thread. */
template <lk_drawing D>
constexpr int lk__quad = D == LK_DRAWING_QUADS ? 4 : 1;

struct lk_drop {
    lk_rng rng;         /* of sample 0 at time 0 */
    uint32_t threshold; /* an element is dropped if its word is below */
    float scale;
    const uint32_t *ids, *step; /* device memory */
    unsigned pixels, pitch;
};

static inline lk_drop lk__cuda_drop(const lk_dropout_desc *d, size_t pixels, size_t pitch)
{
    return {.rng = lk__rng(d->seed, LK_RNG_PURPOSE_DROPOUT, d->layer, 0, 0),
            .threshold = lk__dropout_desc_threshold(d),
            .scale = lk__dropout_desc_scale(d),
            .ids = d->ids,
            .step = d->step,
            .pixels = (unsigned)pixels,
            .pitch = (unsigned)pitch};
}

template <lk_drawing D_>
struct lk_drawing_kind {
    static constexpr lk_drawing D = D_;
};

/* Calls f with the matching lk_drawing_kind. */
template <class F>
static void lk__cuda_by_drawing(const lk_dropout_desc *dropout, unsigned pixels, F f)
{
    if (dropout->channels || pixels == 1)
        f(lk_drawing_kind<LK_DRAWING_CHANNELS>());
    else if (pixels % 4 == 0)
        f(lk_drawing_kind<LK_DRAWING_QUADS>());
    else
        f(lk_drawing_kind<LK_DRAWING_SINGLES>());
}

/* A thread's part: V channels of one pixel, or of four consecutive pixels. */
struct lk_drop_spot {
    unsigned sample, channel, pixel;
};

template <lk_drawing D, int V>
static __device__ __forceinline__ lk_drop_spot lk__cuda_drop_spot(const lk_drop &d)
{
    unsigned index = (unsigned)lk__cuda_thread(), columns = d.pitch / V, group = index / columns;
    unsigned groups = d.pixels / lk__quad<D>, sample = group / groups;
    return {sample, (index - group * columns) * V, (group - sample * groups) * lk__quad<D>};
}

static __device__ __forceinline__ uint32_t lk__cuda_pick(uint4 words, uint32_t i)
{
    uint32_t low = i & 1 ? words.y : words.x, high = i & 1 ? words.w : words.z;
    return i & 2 ? high : low;
}

/* The result for v: a dropped element is 0, or NaN if v is non-finite. */
static __device__ __forceinline__ float lk__cuda_dropped(const lk_drop &d, bool keep, float v)
{
    return keep ? v * d.scale : v - v;
}

/* keep[q][i]: channel + i of pixel + q is kept. */
template <lk_drawing D, int V>
static __device__ __forceinline__ void lk__cuda_draw(const lk_drop &d, const lk_drop_spot &at,
                                                     bool (&keep)[lk__quad<D>][V])
{
    uint32_t id = d.ids[at.sample], time = *d.step;
    if constexpr (D == LK_DRAWING_CHANNELS) {
#pragma unroll
        for (int i = 0; i < V; i += 4) {
            uint4 words = lk__cuda_philox(d.rng, id, time, (at.channel + i) / 4);
#pragma unroll
            for (int k = 0; k < (V < 4 ? V : 4); k++)
                keep[0][i + k] = lk__cuda_pick(words, (at.channel + i + k) & 3) >= d.threshold;
        }
    } else {
#pragma unroll
        for (int i = 0; i < V; i++) {
            uint64_t element = (uint64_t)(at.channel + i) * d.pixels + at.pixel;
            uint4 words = lk__cuda_philox(d.rng, id, time, (uint32_t)(element / 4));
            keep[0][i] = lk__cuda_pick(words, D == LK_DRAWING_QUADS ? 0 : (uint32_t)element & 3) >= d.threshold;
            if constexpr (D == LK_DRAWING_QUADS) {
                keep[1][i] = words.y >= d.threshold;
                keep[2][i] = words.z >= d.threshold;
                keep[3][i] = words.w >= d.threshold;
            }
        }
    }
}

/* The result for v, one channel of a sample that has one pixel. */
static __device__ __forceinline__ float lk__cuda_drop_one(const lk_drop &d, int sample, int channel, float v)
{
    uint4 words = lk__cuda_philox(d.rng, d.ids[sample], *d.step, (uint32_t)channel / 4);
    return lk__cuda_dropped(d, lk__cuda_pick(words, channel & 3) >= d.threshold, v);
}

#endif
