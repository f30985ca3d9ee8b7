/* weights_strips.cuh - leaves as bands of strips, for the kernels of weight gradients of 3x3 windows with stride 1. For
 * nvcc only, and for sm_90a only.
 *
 * A strip is a part of an image of dy, a few eights of pixels wide and as high as the image. A band is a few rows of
 * it, and the chunk of leaves.h. A tile is 64 output channels by all taps of some channels of x. */
#ifndef LK_TENSOR_CUDA_KERNELS_WEIGHTS_STRIPS_CUH
#define LK_TENSOR_CUDA_KERNELS_WEIGHTS_STRIPS_CUH

#include "tensor/cuda/kernels/hopper.cuh"
#include "tensor/cuda/kernels/mma.cuh"
#include "tensor/cuda/kernels/weights.h"

/* WINDOW: taps along each axis. EIGHT: pixels. ROWS: output channels of a tile. GROUP: threads of a warpgroup. */
enum { WINDOW = 3, EIGHT = 8, ROWS = 64, GROUP = 128, ALIGN = 1024 };

typedef struct strips_shape {
    int c, k;          /* pitches */
    int strips, bands; /* of an image, of a strip */
    int pad_h, pad_w;  /* of x */
    int tiles_n, tiles, jobs;
    divisor sample, strip; /* bands of a sample, and of a strip */
} strips_shape;

/* Bands of x with the pixels around them, bands of dy. */
typedef struct strips_maps {
    CUtensorMap x, y;
} strips_maps;

/* The layers whose windows these kernels know. Fewer than 16 channels of x would leave most of a tile empty. */
static inline bool strips_suit(const lk_cuda_problem *problem)
{
    enum { LEAST_CHANNELS = 16 };
    const lk_cuda_window *windows[] = {&problem->along_h, &problem->along_w};
    for (const lk_cuda_window *w : windows)
        if (w->kernel != WINDOW || w->stride != 1 || w->dilation != 1 || w->pad > WINDOW)
            return false;
    return problem->groups == 1 && problem->x_pitch % 8 == 0 && problem->y_pitch % 8 == 0 &&
           problem->x_pitch >= LEAST_CHANNELS && problem->n > 0 && is_hopper();
}

/* For bands of `band` rows of so many eights, and tiles of `channels` channels of x; without jobs. */
static inline strips_shape strips_shape_of(const lk_cuda_problem *problem, int eights, int band, int channels)
{
    strips_shape s = {};
    s.c = problem->x_pitch;
    s.k = problem->y_pitch;
    s.strips = divide_up(problem->q, eights * EIGHT);
    s.bands = divide_up(problem->p, band);
    s.pad_h = problem->along_h.pad;
    s.pad_w = problem->along_w.pad;
    s.tiles_n = divide_up(s.c, channels);
    s.tiles = divide_up(s.k, ROWS) * s.tiles_n;
    s.sample = divisor_of((unsigned)s.strips * (unsigned)s.bands);
    s.strip = divisor_of((unsigned)s.bands);
    return s;
}

/* x as images, in boxes of one image. */
static inline image_axes strips_axes_x(const lk_cuda_problem *problem, int channels, int columns, int rows)
{
    size_t pixel = (size_t)problem->x_pitch, row = (size_t)problem->w * pixel;
    return {{problem->x_pitch, problem->w, problem->h, problem->n},
            {pixel, row, row * (size_t)problem->h},
            {(cuuint32_t)channels, (cuuint32_t)columns, (cuuint32_t)rows, 1}};
}

/* dy as images, in boxes of one image. */
static inline image_axes strips_axes_y(const lk_cuda_problem *problem, int channels, int columns, int rows)
{
    size_t pixel = (size_t)problem->y_pitch, row = (size_t)problem->q * pixel;
    return {{problem->y_pitch, problem->q, problem->p, problem->n},
            {pixel, row, row * (size_t)problem->p},
            {(cuuint32_t)channels, (cuuint32_t)columns, (cuuint32_t)rows, 1}};
}

/* A tile of a block row: leaves [leaf, last), or a part of one; bands [begin, end) of the wave. */
struct strips_work {
    int row, m0, c0, leaf, last;
    uint32_t begin, end;

    /* For tiles of `channels` channels of x. False if the leaf has no such part. An empty leaf has one part, without
     * bands. */
    __device__ __forceinline__ bool take(const strips_shape &s, const lk_cuda_leaves &leaves, int channels, int job)
    {
        row = job / s.tiles;
        int tile = job - row * s.tiles, tile_m = tile / s.tiles_n, group = row / leaves.parts;
        uint32_t part = (uint32_t)(row - group * leaves.parts);
        m0 = tile_m * ROWS;
        c0 = (tile - tile_m * s.tiles_n) * channels;
        leaf = leaves.group[group];
        last = leaves.group[group + 1];
        begin = leaves.begin[leaf];
        end = leaves.begin[last];
        if (leaves.parts > 1) {
            begin = min(begin + part * (uint32_t)leaves.chunks, end);
            end = min(begin + (uint32_t)leaves.chunks, end);
        }
        return begin < end || part == 0;
    }

    /* The end of the bands of one of the leaves. */
    __device__ __forceinline__ uint32_t end_of(const lk_cuda_leaves &leaves, int of) const
    {
        return min(leaves.begin[of + 1], end);
    }
};

/* A band of a strip of an image; the band below follows, then the bands of the next strip. */
struct strips_band {
    int n, strip, band;

    __device__ __forceinline__ strips_band(const strips_shape &s, uint32_t number)
    {
        n = (int)quotient(number, s.sample);
        uint32_t rest = number - (uint32_t)n * s.sample.by;
        strip = (int)quotient(rest, s.strip);
        band = (int)(rest - (uint32_t)strip * s.strip.by);
    }

    __device__ __forceinline__ void advance(const strips_shape &s)
    {
        if (++band < s.bands)
            return;
        band = 0;
        if (++strip < s.strips)
            return;
        strip = 0;
        n++;
    }
};

#endif
