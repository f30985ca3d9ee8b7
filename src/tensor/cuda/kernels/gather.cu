/* gather.cu - samples of a data set on the GPU, selected by id: floats rounded to the type of values, bytes cropped,
 * flipped and converted (lk_gather_desc). */
#include <cmath>

#include "tensor/cuda/kernels/random.cuh"
#include "tensor/cuda/kernels/vec.cuh"

struct gathering {
    const uint8_t *pixels;
    size_t record;
    const float *table;
    const uint32_t *epoch, *ids;
    lk_rng crop_rng, flip_rng; /* of sample 0 in epoch 0 */
    int crop;
    bool flips, flip_last;
    uint32_t flip_from; /* 24-bit draws from this one on flip */
    int h, w, c, pitch;
};

/* The crop and flip of one sample: pixel (y, x) of the crop is pixel (y + top, x + left) of the image. */
struct view {
    int top, left;
    bool flip;
};

/* lk__rng_below */
static __device__ int below(uint32_t word, uint32_t bound)
{
    return (int)__umulhi(word, bound);
}

static __device__ view view_of(const gathering &g, uint32_t id)
{
    view v = {0, 0, false};
    uint32_t epoch = *g.epoch, choices = 2 * (uint32_t)g.crop + 1;
    if (g.crop > 0) {
        uint4 words = lk__cuda_philox(g.crop_rng, id, epoch, 0);
        v.top = below(words.x, choices) - g.crop;
        v.left = below(words.y, choices) - g.crop;
    }
    if (g.flips)
        v.flip = lk__cuda_philox(g.flip_rng, id, epoch, 0).x >> 8 >= g.flip_from;
    return v;
}

/* Offset of the byte that output pixel (y, x) shows, from the first byte of the channel; -1 for padding. Undoes
 * the transforms in reverse order. */
static __device__ int source_of(const gathering &g, const view &v, int y, int x)
{
    if (v.flip && g.flip_last)
        x = g.w - 1 - x;
    y += v.top;
    x += v.left;
    if (y < 0 || y >= g.h || x < 0 || x >= g.w)
        return -1;
    if (v.flip && !g.flip_last)
        x = g.w - 1 - x;
    return y * g.w + x;
}

/* A thread computes one pixel, a row of blocks one sample. */
template <class T>
static __global__ void gather(gathering g, T *out)
{
    lk__cuda_await();
    int pixel = (int)lk__cuda_thread(), pixels = g.h * g.w;
    unsigned sample = blockIdx.y;
    if (pixel >= pixels)
        return;
    uint32_t id = g.ids[sample];
    int from = source_of(g, view_of(g, id), pixel / g.w, pixel % g.w);
    const uint8_t *bytes = g.pixels + id * g.record;
    T *to = out + ((size_t)sample * pixels + pixel) * g.pitch;
    for (int c = 0; c < g.c; c++)
        to[c] = (T)g.table[c * 256 + (from < 0 ? 0 : bytes[c * pixels + from])];
    for (int c = g.c; c < g.pitch; c++)
        to[c] = (T)0.0f;
}

static gathering gathering_of(const lk_gather_desc *desc, const uint32_t *ids, const lk_tensor *x)
{
    return {.pixels = desc->pixels,
            .record = desc->record,
            .table = desc->table,
            .epoch = desc->epoch,
            .ids = ids,
            .crop_rng = lk__rng(desc->seed, LK_RNG_PURPOSE_AUGMENT, desc->crop_layer, 0, 0),
            .flip_rng = lk__rng(desc->seed, LK_RNG_PURPOSE_AUGMENT, desc->flip_layer, 0, 0),
            .crop = (int)desc->crop,
            .flips = desc->flip > 0,
            .flip_last = desc->flip_layer > desc->crop_layer,
            .flip_from = (uint32_t)ceil((1 - desc->flip) * 0x1p24),
            .h = (int)x->shape.h,
            .w = (int)x->shape.w,
            .c = (int)x->shape.c,
            .pitch = (int)lk__tensor_pitch(x)};
}

template <class T>
static void launch_pixels(cudaStream_t stream, const lk_gather_desc *desc, const uint32_t *ids, lk_tensor *x)
{
    dim3 grid(lk__cuda_blocks(x->shape.h * x->shape.w), (unsigned)x->shape.n);
    lk__cuda_follow({grid, LK_THREADS, 0, stream}, gather<T>, gathering_of(desc, ids, x), (T *)x->data);
}

/* Samples of floats. */
struct picking {
    const float *values;
    const uint32_t *ids;
    size_t count;            /* elements of the result, pads included */
    size_t sample, c, pitch; /* elements of a sample in the result, pads included; channels; elements of a pixel */
    size_t record;
};

/* A thread writes one element. */
template <class T>
static __global__ void pick(picking p, T *out)
{
    lk__cuda_await();
    size_t at = lk__cuda_thread();
    if (at >= p.count)
        return;
    size_t row = lk__cuda_quotient(at, p.sample), rest = at - row * p.sample;
    size_t pixel = lk__cuda_quotient(rest, p.pitch), c = rest - pixel * p.pitch;
    out[at] = c < p.c ? (T)p.values[p.ids[row] * p.record + pixel * p.c + c] : (T)0.0f;
}

template <class T>
static void launch_values(cudaStream_t stream, const lk_gather_desc *desc, const uint32_t *ids, lk_tensor *x)
{
    size_t pitch = lk__tensor_pitch(x), sample = x->shape.h * x->shape.w * pitch;
    picking p = {.values = desc->values,
                 .ids = ids,
                 .count = x->shape.n * sample,
                 .sample = sample,
                 .c = x->shape.c,
                 .pitch = pitch,
                 .record = desc->record};
    lk__cuda_follow({lk__cuda_blocks(p.count), LK_THREADS, 0, stream}, pick<T>, p, (T *)x->data);
}

extern "C" void lk__cuda_gather(lk_device *dev, const lk_gather_desc *desc, const uint32_t *ids, lk_tensor *x)
{
    cudaStream_t stream = lk__cuda_stream(dev);
    if (x->shape.n == 0)
        return;
    lk__cuda_by_dtype(x->dtype, [&](auto kind) {
        using T = typename decltype(kind)::T;
        (desc->values ? launch_values<T> : launch_pixels<T>)(stream, desc, ids, x);
    });
    lk__cuda_launched(dev, "samples of the data set");
}
