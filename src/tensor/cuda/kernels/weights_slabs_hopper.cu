/* weights_slabs_hopper.cu - weight gradients of 3x3 convolutions with stride 1 in bf16, on GPUs of compute capability
 * 9.0: products whose pixels of x come to shared memory once for all taps, where weights_hopper.cu copies them for each
 * tap. */
#include "tensor/cuda/kernels/weights_hopper.h"
#include "tensor/cuda/kernels/weights_slabs_hopper.cuh"

static const char what[] = "gradient of weights";

/* A size of bands, and the channels of x of a tile. */
typedef struct slabs_size {
    int eights, band, channels; /* eights of a row, rows */
    int levels;                 /* 1 << levels leaves are folded in registers */
    int cycles;                 /* of a band */
    void (*launch)(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves,
                   const lk_cuda_rows *out);
} slabs_size;

template <class P>
static cudaError_t make_maps(const lk_cuda_problem *problem, const lk_cuda_io *io, strips_maps *out)
{
    const CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    const CUtensorMapSwizzle narrow = CU_TENSOR_MAP_SWIZZLE_64B, wide = CU_TENSOR_MAP_SWIZZLE_128B;
    image_axes x = strips_axes_x(problem, P::CHANNELS, P::PIXELS + WINDOW - 1, P::BAND + WINDOW - 1);
    image_axes y = strips_axes_y(problem, ROWS, P::PIXELS, P::BAND);
    void *encode;
    cudaError_t error = driver_function("cuTensorMapEncodeTiled", &encode);
    if (error != cudaSuccess)
        return error;
    bool made = map_images((encode_tiled)encode, type, sizeof(lk_bf16), io->x, x, P::CHANNELS == 64 ? wide : narrow,
                           &out->x) == CUDA_SUCCESS &&
                map_images((encode_tiled)encode, type, sizeof(lk_bf16), io->dy, y, wide, &out->y) == CUDA_SUCCESS;
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
        error = cudaFuncSetAttribute(slabs_products<P>, cudaFuncAttributeMaxDynamicSharedMemorySize, P::BYTES);
    if (error == cudaSuccess)
        error = make_maps<P>(problem, io, &maps);
    if (!lk__cuda_keep(io->dev, error, what))
        return;
    int blocks = s.jobs < processors ? s.jobs : processors;
    lk__cuda_follow({(unsigned)blocks, P::THREADS, P::BYTES, io->stream}, slabs_products<P>, s, *leaves, maps, *out);
    lk__cuda_launched(io->dev, what);
}

/* Tensor cores take half a cycle for a column of a product, of which there is one for each row of the window. Products
 * of narrow tiles take a ninth longer, because shared memory is as busy as tensor cores. START: cycles for which a band
 * keeps tensor cores waiting. Narrow tiles leave registers for the sums of leaves. */
template <int EIGHTS, int BAND, int CHANNELS>
static constexpr slabs_size size_of()
{
    enum { START = 50, NARROW = CHANNELS == 32, LEVELS = NARROW ? 2 : 0 };
    typedef slabs_tile<EIGHTS, BAND, CHANNELS, LEVELS> P;
    int product = WINDOW * P::N / 2, cycles = START + P::PRODUCTS * (NARROW ? product * 10 / 9 : product);
    return {EIGHTS, BAND, CHANNELS, LEVELS, cycles, launch<P>};
}

/* Tiles of 32 channels of x are for layers with few channels, and for leaves so small that folding them in registers
 * saves more than the larger tiles do. */
static const slabs_size sizes[] = {
    size_of<7, 4, 64>(),  size_of<5, 4, 64>(),  size_of<4, 8, 64>(), size_of<4, 7, 64>(),  size_of<3, 8, 64>(),
    size_of<2, 16, 64>(), size_of<2, 14, 64>(), size_of<1, 8, 64>(), size_of<7, 4, 32>(),  size_of<5, 4, 32>(),
    size_of<4, 8, 32>(),  size_of<4, 7, 32>(),  size_of<3, 8, 32>(), size_of<2, 16, 32>(), size_of<2, 14, 32>(),
    size_of<2, 8, 32>(),  size_of<1, 8, 32>(),
};

/* Bands that have so many pixels of dy, at least one; `sample`: bands of a sample. */
static size_t bands_of(const lk_cuda_problem *problem, size_t sample, size_t pixels)
{
    size_t bands = pixels * sample / ((size_t)problem->p * (size_t)problem->q);
    return bands > 0 ? bands : 1;
}

/* FULL: about twice the multiprocessors of a large GPU; a power of two, as numbers of tiles and leaves mostly are. */
static lk_cuda_cut cut_by(const lk_cuda_problem *problem, const slabs_size *size)
{
    enum { FULL = 256, SMALL_PIXELS = 128, LEAST_PIXELS = 512, EXTRA_PIXELS = 840 };
    strips_shape s = strips_shape_of(problem, size->eights, size->band, size->channels);
    size_t pixels = (size_t)(size->eights * size->band * EIGHT);
    lk_cuda_cut cut = {};
    cut.rows = s.sample.by;
    cut.chunk = 1;
    cut.tiles = (size_t)s.tiles;
    cut.least = bands_of(problem, cut.rows, LEAST_PIXELS);
    cut.extra = (EXTRA_PIXELS + pixels / 2) / pixels;
    cut.full = FULL;
    cut.small = bands_of(problem, cut.rows, SMALL_PIXELS);
    cut.levels = size->levels;
    cut.weights = (size_t)s.k * WINDOW * WINDOW * (size_t)s.c;
    cut.bias = problem->bias ? (size_t)s.k : 0;
    return cut;
}

/* The time of so many blocks of so many bands. */
static size_t blocks_time(const lk_cuda_cut *cut, size_t blocks, size_t bands)
{
    size_t at_once = cut->full / 2;
    return (blocks + at_once - 1) / at_once * (bands + cut->extra);
}

/* lk__cuda_leaves_time, for blocks that may fold leaves, too. */
static size_t time_of(const lk_cuda_cut *cut, size_t most)
{
    enum { ALL = LK_CUDA_USUAL_SHARDS, FEW = ALL / 8 };
    size_t time = lk__cuda_leaves_time(cut, most, ALL), bands = most * cut->rows;
    for (int level = 1; level <= cut->levels; level++) {
        size_t leaves = (size_t)1 << level, few = leaves < FEW ? leaves : (size_t)FEW;
        size_t t = 2 * blocks_time(cut, cut->tiles * ALL / leaves, leaves * bands) +
                   blocks_time(cut, cut->tiles * FEW / few, few * bands);
        time = t < time ? t : time;
    }
    return time;
}

/* The fastest size with the default number of shards, and its time as of lk__cuda_weights_hopper_time. */
static const slabs_size *fastest(const lk_cuda_problem *problem, size_t most, size_t *time)
{
    const slabs_size *found = NULL;
    *time = SIZE_MAX;
    for (const slabs_size *size = sizes; size < sizes + sizeof sizes / sizeof *sizes; size++) {
        if (size->channels > 32 && problem->x_pitch <= 32)
            continue;
        lk_cuda_cut cut = cut_by(problem, size);
        size_t t = time_of(&cut, most) * (size_t)size->cycles;
        if (t < *time) {
            *time = t;
            found = size;
        }
    }
    return found;
}

static const slabs_size *size_for(const lk_cuda_problem *problem, size_t most)
{
    size_t time;
    return fastest(problem, most, &time);
}

/* Layers for which the other kernel is slower. */
static bool suits(const lk_cuda_problem *problem, size_t most)
{
    size_t time;
    if (problem->values != LK_DTYPE_BF16 || !strips_suit(problem))
        return false;
    (void)fastest(problem, most, &time);
    return time < lk__cuda_weights_hopper_time(problem, most);
}

static lk_cuda_cut cut_of(const lk_cuda_problem *problem, size_t most)
{
    return cut_by(problem, size_for(problem, most));
}

static void launch_leaves(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves,
                          size_t most, float *out)
{
    const slabs_size *size = size_for(problem, most);
    lk_cuda_cut cut = cut_by(problem, size);
    lk_cuda_rows to = {out, cut.bias ? out + cut.weights : NULL, cut.weights + cut.bias};
    size->launch(problem, io, leaves, &to);
}

static void launch_sum(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves, size_t most,
                       float *dw, float *db)
{
    const slabs_size *size = size_for(problem, most);
    lk_cuda_rows to = {dw, problem->bias ? db : NULL, cut_by(problem, size).weights};
    size->launch(problem, io, leaves, &to);
}

const lk_cuda_leaf_kernel lk__cuda_weights_slabs = {"3x3 windows with bulk copies", suits, cut_of, launch_leaves,
                                                    launch_sum};
