/* weights_taps_hopper.cu - weight gradients of 3x3 convolutions with stride 1 in tf32, on GPUs of compute capability
 * 9.0: products whose pixels of x come to shared memory once for all taps, where weights_hopper.cu copies them for each
 * tap. */
#include "tensor/cuda/kernels/weights_hopper.h"
#include "tensor/cuda/kernels/weights_taps_hopper.cuh"

static const char what[] = "gradient of weights";

/* A size of bands, and the channels of x of a tile. */
typedef struct strips_size {
    int eights, band, channels; /* eights of a row, rows */
    void (*launch[2])(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves,
                      const lk_cuda_rows *out); /* without a bias, with one */
} strips_size;

/* The copy unit rounds x, and dy where it is not summed. */
template <class P>
static cudaError_t make_maps(const lk_cuda_problem *problem, const lk_cuda_io *io, strips_maps *out)
{
    const CUtensorMapDataType rounded = CU_TENSOR_MAP_DATA_TYPE_TFLOAT32, whole = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    image_axes x = strips_axes_x(problem, P::CHANNELS, P::PIXELS + WINDOW - 1, P::BAND);
    image_axes y = strips_axes_y(problem, 32, P::PIXELS, P::BAND);
    void *encode;
    cudaError_t error = driver_function("cuTensorMapEncodeTiled", &encode);
    if (error != cudaSuccess)
        return error;
    bool made = map_images((encode_tiled)encode, rounded, sizeof(float), io->x, x, CU_TENSOR_MAP_SWIZZLE_NONE,
                           &out->x) == CUDA_SUCCESS &&
                map_images((encode_tiled)encode, P::BIASED ? whole : rounded, sizeof(float), io->dy, y,
                           CU_TENSOR_MAP_SWIZZLE_128B, &out->y) == CUDA_SUCCESS;
    return made ? cudaSuccess : cudaErrorInvalidValue;
}

template <class P>
static void launch(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves,
                   const lk_cuda_rows *out)
{
    strips_shape s = strips_shape_of(problem, P::EIGHTS, P::BAND, P::CHANNELS);
    strips_maps maps;
    int processors = 0;
    s.jobs = s.tiles * leaves->groups * leaves->parts;
    cudaError_t error = count_processors(&processors);
    if (error == cudaSuccess)
        error = cudaFuncSetAttribute(strips_products<P>, cudaFuncAttributeMaxDynamicSharedMemorySize, P::BYTES);
    if (error == cudaSuccess)
        error = make_maps<P>(problem, io, &maps);
    if (!lk__cuda_keep(io->dev, error, what))
        return;
    int blocks = s.jobs < processors ? s.jobs : processors;
    lk__cuda_follow({(unsigned)blocks, P::THREADS, P::BYTES, io->stream}, strips_products<P>, s, *leaves, maps, *out);
    lk__cuda_launched(io->dev, what);
}

#define SIZE(eights, band, channels)                                                                              \
    {                                                                                                             \
        eights, band, channels,                                                                                   \
        {                                                                                                         \
            launch<strips_tile<eights, band, channels, false>>, launch<strips_tile<eights, band, channels, true>> \
        }                                                                                                         \
    }
static const strips_size sizes[] = {
    SIZE(4, 1, 32), SIZE(3, 1, 32), SIZE(2, 2, 32), SIZE(1, 4, 32),
    SIZE(4, 1, 64), SIZE(3, 1, 64), SIZE(2, 2, 64), SIZE(1, 4, 64),
};
#undef SIZE

/* Cycles of a multiprocessor for a band: START for the band, START for each of its rows, and half a cycle for each
 * column of the product of an eight. */
static size_t band_cycles(const strips_size *size)
{
    enum { START = 50 };
    int columns = WINDOW * WINDOW * size->channels;
    return START + (size_t)(size->band * (START + columns * size->eights / 2));
}

static lk_cuda_cut cut_by(const lk_cuda_problem *problem, const strips_size *size)
{
    enum { FULL = 264, LEAST_PIXELS = 512, EXTRA_PIXELS = 384 };
    strips_shape s = strips_shape_of(problem, size->eights, size->band, size->channels);
    size_t pixels = (size_t)(size->eights * size->band * EIGHT);
    lk_cuda_cut cut = {};
    cut.rows = s.sample.by;
    cut.chunk = 1;
    cut.tiles = (size_t)s.tiles;
    cut.least = LEAST_PIXELS / pixels;
    cut.extra = EXTRA_PIXELS / pixels;
    cut.full = FULL;
    cut.weights = (size_t)s.k * WINDOW * WINDOW * (size_t)s.c;
    cut.bias = problem->bias ? (size_t)s.k : 0;
    return cut;
}

/* The fastest size with the default number of shards, and its time as of lk__cuda_weights_hopper_time. */
static const strips_size *fastest(const lk_cuda_problem *problem, size_t most, size_t *time)
{
    const strips_size *found = NULL;
    *time = SIZE_MAX;
    for (const strips_size *size = sizes; size < sizes + sizeof sizes / sizeof *sizes; size++) {
        if ((size->channels == 64) != (problem->x_pitch > 32))
            continue; /* narrow tiles read dy from shared memory twice as often for each product */
        lk_cuda_cut cut = cut_by(problem, size);
        size_t t = lk__cuda_leaves_time(&cut, most, LK_CUDA_USUAL_SHARDS) * band_cycles(size);
        if (t < *time) {
            *time = t;
            found = size;
        }
    }
    return found;
}

static const strips_size *tile_of(const lk_cuda_problem *problem, size_t most)
{
    size_t time;
    return fastest(problem, most, &time);
}

/* Layers for which the other kernel is slower. */
static bool suits(const lk_cuda_problem *problem, size_t most)
{
    size_t time;
    if (problem->precision != LK_PRECISION_TF32 || problem->values != LK_DTYPE_F32 || !strips_suit(problem))
        return false;
    (void)fastest(problem, most, &time);
    return time < lk__cuda_weights_hopper_time(problem, most);
}

static lk_cuda_cut cut_of(const lk_cuda_problem *problem, size_t most)
{
    return cut_by(problem, tile_of(problem, most));
}

static void launch_leaves(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves,
                          size_t most, float *out)
{
    const strips_size *size = tile_of(problem, most);
    lk_cuda_cut cut = cut_by(problem, size);
    lk_cuda_rows to = {out, cut.bias ? out + cut.weights : NULL, cut.weights + cut.bias};
    size->launch[cut.bias > 0](problem, io, leaves, &to);
}

static void launch_sum(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves, size_t most,
                       float *dw, float *db)
{
    const strips_size *size = tile_of(problem, most);
    lk_cuda_cut cut = cut_by(problem, size);
    lk_cuda_rows to = {dw, cut.bias ? db : NULL, cut.weights};
    size->launch[cut.bias > 0](problem, io, leaves, &to);
}

const lk_cuda_leaf_kernel lk__cuda_weights_taps = {"3x3 windows with bulk copies", suits, cut_of, launch_leaves,
                                                   launch_sum};
