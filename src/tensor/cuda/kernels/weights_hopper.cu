/* weights_hopper.cu - weight gradients as products of dense matrices on GPUs of compute capability 9.0: the products of
 * weights_mma.cu with copies by the bulk copy unit, which gathers windows of x itself. */
#include "tensor/cuda/kernels/weights_hopper.h"

#include "tensor/cuda/kernels/weights_hopper.cuh"

static const char what[] = "gradient of weights";

typedef CUresult (*encode_im2col)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                  const cuuint64_t *, const int *, const int *, cuuint32_t, cuuint32_t,
                                  const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                  CUtensorMapFloatOOBfill);

static CUtensorMapDataType type_of(const lk_cuda_problem *problem)
{
    return problem->values == LK_DTYPE_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}

static cuuint64_t size_of(const lk_cuda_problem *problem)
{
    return problem->values == LK_DTYPE_BF16 ? 2 : 4;
}

/* dy as a matrix of pixels by channels. */
static CUresult map_y(encode_tiled encode, const lk_cuda_problem *problem, const void *dy, cuuint32_t rows,
                      CUtensorMap *out)
{
    cuuint64_t size = size_of(problem), sizes[] = {(cuuint64_t)problem->y_pitch, (cuuint64_t)lk__cuda_rows(problem)};
    cuuint64_t strides[] = {sizes[0] * size};
    cuuint32_t box[] = {(cuuint32_t)(LINE / size), rows}, steps[] = {1, 1};
    return encode(out, type_of(problem), 2, (void *)dy, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

/* x as images whose windows are read pixel by pixel: the first pixel of a window goes from the lower corner to the
 * upper one, which is relative to the last pixel of the image. */
static CUresult map_x(encode_im2col encode, const lk_cuda_problem *problem, const void *x, cuuint32_t rows,
                      CUtensorMap *out)
{
    const lk_cuda_window *h = &problem->along_h, *w = &problem->along_w;
    cuuint64_t size = size_of(problem), c = (cuuint64_t)problem->x_pitch;
    cuuint64_t sizes[] = {c, (cuuint64_t)problem->w, (cuuint64_t)problem->h, (cuuint64_t)problem->n};
    cuuint64_t strides[] = {c * size, c * size * sizes[1], c * size * sizes[1] * sizes[2]};
    int lower[] = {-w->pad, -h->pad};
    int upper[] = {w->pad - (w->kernel - 1) * w->dilation, h->pad - (h->kernel - 1) * h->dilation};
    cuuint32_t steps[] = {1, (cuuint32_t)w->stride, (cuuint32_t)h->stride, 1};
    return encode(out, type_of(problem), 4, (void *)x, sizes, strides, lower, upper, (cuuint32_t)(LINE / size), rows,
                  steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static cudaError_t make_maps(const lk_cuda_problem *problem, const lk_cuda_io *io, cuuint32_t chunk, hopper_maps *out)
{
    void *tiled, *im2col;
    cudaError_t error = driver_function("cuTensorMapEncodeTiled", &tiled);
    if (error == cudaSuccess)
        error = driver_function("cuTensorMapEncodeIm2col", &im2col);
    if (error != cudaSuccess)
        return error;
    bool made = map_y((encode_tiled)tiled, problem, io->dy, chunk, &out->y) == CUDA_SUCCESS &&
                map_y((encode_tiled)tiled, problem, io->dy, PIECE, &out->y_piece) == CUDA_SUCCESS &&
                map_x((encode_im2col)im2col, problem, io->x, chunk, &out->x) == CUDA_SUCCESS &&
                map_x((encode_im2col)im2col, problem, io->x, PIECE, &out->x_piece) == CUDA_SUCCESS;
    return made ? cudaSuccess : cudaErrorInvalidValue;
}

static hopper_shape shape_of(const lk_cuda_problem *problem, int m, int n)
{
    int box = LINE / (int)size_of(problem);
    hopper_shape s = {};
    s.c = problem->x_pitch;
    s.k = problem->y_pitch;
    s.kernel_w = problem->along_w.kernel;
    s.taps = problem->along_h.kernel * s.kernel_w;
    s.width = s.taps * s.c;
    s.boxes = (s.c + box - 1) / box;
    s.along_h = problem->along_h;
    s.along_w = problem->along_w;
    s.tiles_n = (s.taps * s.boxes * box + n - 1) / n;
    s.tiles = (s.k + m - 1) / m * s.tiles_n;
    s.q = divisor_of((unsigned)problem->q);
    s.pixels = divisor_of((unsigned)problem->p * (unsigned)problem->q);
    return s;
}

/* Attributes of the device and of the kernel; false if one fails, which is kept. */
template <class P>
static bool prepare(lk_device *dev, int *processors)
{
    cudaError_t error = count_processors(processors);
    if (error == cudaSuccess)
        error = cudaFuncSetAttribute(hopper_product<P>, cudaFuncAttributeMaxDynamicSharedMemorySize, P::BYTES);
    return lk__cuda_keep(dev, error, what);
}

/* Zeros in all block rows. */
static void clear(const lk_cuda_io *io, const hopper_shape *s, size_t rows, const lk_cuda_rows *out)
{
    size_t pitch = out->row * sizeof(float), bias = (size_t)s->k * sizeof(float), weights = bias * (size_t)s->width;
    cudaError_t error = cudaMemset2DAsync(out->weights, pitch, 0, weights, rows, io->stream);
    if (error == cudaSuccess && out->bias)
        error = cudaMemset2DAsync(out->bias, pitch, 0, bias, rows, io->stream);
    (void)lk__cuda_keep(io->dev, error, what);
}

template <class P>
static void launch(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves,
                   const lk_cuda_rows *out)
{
    hopper_shape s = shape_of(problem, P::M, P::N);
    size_t rows = (size_t)leaves->groups * (size_t)leaves->parts;
    hopper_maps maps;
    int processors = 0;
    s.jobs = s.tiles * (int)rows;
    if (problem->n == 0) { /* no images can be mapped; all leaves are empty */
        clear(io, &s, rows, out);
        return;
    }
    if (!prepare<P>(io->dev, &processors) || !lk__cuda_keep(io->dev, make_maps(problem, io, P::K, &maps), what))
        return;
    int blocks = s.jobs < processors ? s.jobs : processors;
    lk__cuda_follow({blocks, GROUP + P::MULTIPLIERS, P::BYTES, io->stream}, hopper_product<P>, s, *leaves, maps, *out);
    lk__cuda_launched(io->dev, what);
}

/* Tiles for at most 64 output channels, for small leaves, and for all others. Large tiles read less from memory for
 * each product, but their leaves cannot be folded in registers: small leaves would take longer to fold than to
 * multiply. */
typedef enum tile_kind { TILE_NARROW, TILE_FOLDED, TILE_LARGE } tile_kind;

typedef struct tile_row {
    tile_kind kind;
    int m, n, chunk, levels;
    int cycles; /* for a chunk, of what limits the kernel: shared memory in tf32, copies in bf16 */
    void (*launch)(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves,
                   const lk_cuda_rows *out);
} tile_row;

/* Without `cycles`, those of tf32: x is copied and read once, dy is copied, read and written once, and read for each 64
 * columns. */
template <class P>
static constexpr tile_row row_of(tile_kind kind, int cycles = 2 * P::N + 3 * P::M + P::N / 64 * P::M)
{
    return {kind, P::M, P::N, P::K, P::LEVELS, cycles, launch<P>};
}

/* Cycles as measured on an H200; fewer for narrow tiles, of which most have boxes behind the last tap. */
static const tile_row bf16_rows[] = {
    row_of<hopper_tile<lk_bf16, 64, 256, 5, 2>>(TILE_NARROW, 820),
    row_of<hopper_tile<lk_bf16, 128, 128, 6, 2>>(TILE_FOLDED, 950),
    row_of<hopper_tile<lk_bf16, 128, 256, 4, 0>>(TILE_LARGE, 1250),
};

static const tile_row tf32_rows[] = {
    row_of<hopper_tile<float, 64, 256, 5, 1>>(TILE_NARROW), row_of<hopper_tile<float, 64, 192, 6, 2>>(TILE_NARROW),
    row_of<hopper_tile<float, 64, 384, 4, 0>>(TILE_NARROW), row_of<hopper_tile<float, 128, 128, 6, 2>>(TILE_FOLDED),
    row_of<hopper_tile<float, 128, 256, 4, 0>>(TILE_LARGE), row_of<hopper_tile<float, 128, 192, 5, 0>>(TILE_LARGE),
    row_of<hopper_tile<float, 96, 256, 5, 0>>(TILE_LARGE),  row_of<hopper_tile<float, 96, 192, 6, 0>>(TILE_LARGE),
};

typedef struct tile_table {
    size_t small_leaf; /* rows */
    size_t extra;      /* see lk_cuda_cut */
    const tile_row *begin, *end;
} tile_table;

static const tile_table bf16_tiles = {1536, 12, bf16_rows, bf16_rows + sizeof bf16_rows / sizeof *bf16_rows};
static const tile_table tf32_tiles = {640, 8, tf32_rows, tf32_rows + sizeof tf32_rows / sizeof *tf32_rows};

static const tile_table *table_of(const lk_cuda_problem *problem)
{
    return problem->values == LK_DTYPE_BF16 ? &bf16_tiles : &tf32_tiles;
}

static lk_cuda_cut cut_by(const lk_cuda_problem *problem, const tile_row *tile)
{
    enum { SMALL_GROUP = 128, FULL = 264, LEAST_ROWS = 512 };
    hopper_shape s = shape_of(problem, tile->m, tile->n);
    lk_cuda_cut cut = {};
    cut.rows = s.pixels.by;
    cut.chunk = (size_t)tile->chunk;
    cut.tiles = (size_t)s.tiles;
    cut.least = LEAST_ROWS / cut.chunk;
    cut.extra = table_of(problem)->extra;
    cut.full = FULL;
    cut.small = SMALL_GROUP;
    cut.levels = tile->levels;
    cut.weights = (size_t)s.k * (size_t)s.width;
    cut.bias = problem->bias ? (size_t)s.k : 0;
    return cut;
}

/* The fastest tile of a kind with the usual number of shards, and the time of it. */
static const tile_row *fastest(const lk_cuda_problem *problem, size_t most, tile_kind kind, size_t *time)
{
    const tile_table *table = table_of(problem);
    const tile_row *found = NULL;
    *time = SIZE_MAX;
    for (const tile_row *tile = table->begin; tile < table->end; tile++) {
        if (tile->kind != kind)
            continue;
        lk_cuda_cut cut = cut_by(problem, tile);
        if (kind == TILE_FOLDED)
            cut.extra >>= tile->levels; /* leaves of a group are written as one */
        size_t t = lk__cuda_leaves_time(&cut, most, LK_CUDA_USUAL_SHARDS) * (size_t)tile->cycles;
        if (t < *time) {
            *time = t;
            found = tile;
        }
    }
    return found;
}

static tile_kind kind_of(const lk_cuda_problem *problem, size_t most)
{
    size_t leaf = most * (size_t)problem->p * (size_t)problem->q;
    if (problem->y_pitch <= 64)
        return TILE_NARROW;
    return leaf <= table_of(problem)->small_leaf ? TILE_FOLDED : TILE_LARGE;
}

static const tile_row *tile_of(const lk_cuda_problem *problem, size_t most)
{
    size_t time;
    return fastest(problem, most, kind_of(problem, most), &time);
}

/* The limits of maps for windows. */
static bool is_mapped(const lk_cuda_window *window)
{
    int reach = (window->kernel - 1) * window->dilation;
    return window->stride <= 8 && window->pad <= 127 && reach - window->pad <= 127 && reach <= 255;
}

/* At most half of the columns may be empty. */
static bool suits(const lk_cuda_problem *problem, size_t most)
{
    int box = LINE / (int)size_of(problem);
    (void)most;
    return problem->groups == 1 && problem->x_pitch % 8 == 0 && problem->y_pitch % 8 == 0 &&
           2 * problem->x_pitch >= box &&
           (problem->values == LK_DTYPE_BF16 || problem->precision == LK_PRECISION_TF32) &&
           is_mapped(&problem->along_h) && is_mapped(&problem->along_w) && is_hopper();
}

size_t lk__cuda_weights_hopper_time(const lk_cuda_problem *problem, size_t most)
{
    size_t time;
    if (!suits(problem, most))
        return SIZE_MAX;
    if (problem->values != LK_DTYPE_BF16 && kind_of(problem, most) == TILE_FOLDED)
        return 0;
    (void)fastest(problem, most, kind_of(problem, most), &time);
    return time;
}

static lk_cuda_cut cut_of(const lk_cuda_problem *problem, size_t most)
{
    return cut_by(problem, tile_of(problem, most));
}

static void launch_leaves(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves,
                          size_t most, float *out)
{
    const tile_row *tile = tile_of(problem, most);
    lk_cuda_cut cut = cut_by(problem, tile);
    lk_cuda_rows to = {out, cut.bias ? out + cut.weights : NULL, cut.weights + cut.bias};
    tile->launch(problem, io, leaves, &to);
}

static void launch_sum(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves, size_t most,
                       float *dw, float *db)
{
    const tile_row *tile = tile_of(problem, most);
    lk_cuda_rows to = {dw, db, cut_by(problem, tile).weights};
    tile->launch(problem, io, leaves, &to);
}

const lk_cuda_leaf_kernel lk__cuda_weights_hopper = {"dense products with bulk copies", suits, cut_of, launch_leaves,
                                                     launch_sum};
