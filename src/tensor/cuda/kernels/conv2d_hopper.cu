/* conv2d_hopper.cu - forward passes and input gradients of convolutions with stride 1 in tf32 and bf16, on GPUs of
 * compute capability 9.0.
 *
 * cuDNN's products fetch a pixel once for each tap that reads it, so that layers of few channels wait for the cache.
 * Here a pixel comes to shared memory once for a tile, with all of its channels, and all taps read it there
 * (conv2d_hopper.cuh). An input gradient is a forward pass over dy with its taps in reverse order, and with channels of
 * x and y exchanged in the weights. A small kernel packs the weights for both before each pass. In tf32, it rounds the
 * weights, and the copy unit rounds the source. */
#include <assert.h>

#include "tensor/cuda/kernels/conv2d.h"
#include "tensor/cuda/kernels/conv2d_hopper.cuh"

static const char what[] = "convolution with bulk copies";

/* Layers that these kernels compute. */
enum {
    LEAST_SIDE = 7,   /* of the result: smaller images fill their tiles badly */
    LEAST_DEPTH = 16, /* channels of the source */
    MOST_BOX = 256    /* pixels of a copy, along each axis */
};

/* offset_bytes: of a place, in both tables of taps_memory. */
static const size_t most_bytes = 227 << 10, most_slabs = 4, wide_slabs = 2, most_weights = 8, least_weights = 3,
                    barrier_bytes = 16, turn_bytes = 8 * TAPS_TURNS, offset_bytes = 8;

/* The arguments of a launch. */
typedef struct taps_call {
    lk_device *dev;
    cudaStream_t stream;
    int processors;
    size_t bytes; /* of shared memory */
    CUtensorMap map;
    const char *packed;
    taps_end end;
    void *out;
} taps_call;

template <class P>
static void launch(const taps_shape *s, const taps_call *call)
{
    int blocks = s->jobs < call->processors ? s->jobs : call->processors;
    cudaError_t error =
        cudaFuncSetAttribute(convolve_taps<P>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)call->bytes);
    if (!lk__cuda_keep(call->dev, error, what))
        return;
    lk__cuda_follow({(unsigned)blocks, P::THREADS, call->bytes, call->stream}, convolve_taps<P>, *s, call->map,
                    call->packed, call->end, call->out);
    lk__cuda_launched(call->dev, what);
}

/* A size of tiles: groups of n places. */
typedef struct taps_size {
    taps_kind kind;
    bool strips, pixels;
    int groups, n;                                                 /* groups: of a warpgroup */
    void (*launch[2])(const taps_shape *s, const taps_call *call); /* tf32, bf16 */
} taps_size;

#define SIZE(kind, strips, groups, n)                                                              \
    {                                                                                              \
        kind, strips, false, groups, n,                                                            \
        {                                                                                          \
            launch<taps_tile<float, kind, groups, n>>, launch<taps_tile<lk_bf16, kind, groups, n>> \
        }                                                                                          \
    }
#define PAIRED(n)                                                  \
    {                                                              \
        TAPS_KIND_PAIRED, false, false, 1, n,                      \
        {                                                          \
            launch<taps_tile<float, TAPS_KIND_PAIRED, 1, n>>, NULL \
        }                                                          \
    }
#define PIXELS(kind, n)                                      \
    {                                                        \
        kind, false, true, 1, n,                             \
        {                                                    \
            launch<taps_tile<float, kind, 1, n, true>>, NULL \
        }                                                    \
    }
static const taps_size sizes[] = {
    SIZE(TAPS_KIND_NARROW, true, 1, 112),
    SIZE(TAPS_KIND_NARROW, true, 1, 128),
    SIZE(TAPS_KIND_NARROW, true, 1, 192),
    SIZE(TAPS_KIND_NARROW, true, 1, 224),
    SIZE(TAPS_KIND_NARROW, true, 1, 256),
    SIZE(TAPS_KIND_NARROW, false, 1, 144),
    SIZE(TAPS_KIND_NARROW, false, 1, 160),
    SIZE(TAPS_KIND_NARROW, false, 1, 192),
    SIZE(TAPS_KIND_NARROW, false, 1, 240),
    SIZE(TAPS_KIND_NARROW, false, 1, 256),
    PAIRED(144),
    PAIRED(160),
    PAIRED(192),
    PAIRED(240),
    PAIRED(256),
    SIZE(TAPS_KIND_WIDE, true, 1, 112),
    SIZE(TAPS_KIND_WIDE, true, 1, 128),
    SIZE(TAPS_KIND_WIDE, true, 1, 192),
    SIZE(TAPS_KIND_WIDE, true, 1, 224),
    SIZE(TAPS_KIND_WIDE, true, 1, 256),
    SIZE(TAPS_KIND_WIDE, true, 2, 112),
    SIZE(TAPS_KIND_WIDE, true, 2, 128),
    SIZE(TAPS_KIND_WIDE, false, 1, 192),
    SIZE(TAPS_KIND_WIDE, false, 1, 256),
    SIZE(TAPS_KIND_WIDE, false, 2, 144),
    SIZE(TAPS_KIND_WIDE, false, 2, 160),
    SIZE(TAPS_KIND_TALL, true, 1, 112),
    SIZE(TAPS_KIND_TALL, true, 1, 128),
    SIZE(TAPS_KIND_TALL, true, 1, 192),
    SIZE(TAPS_KIND_TALL, true, 1, 224),
    SIZE(TAPS_KIND_TALL, true, 1, 256),
    PIXELS(TAPS_KIND_NARROW, 128),
    PIXELS(TAPS_KIND_NARROW, 192),
    PIXELS(TAPS_KIND_NARROW, 256),
    PIXELS(TAPS_KIND_WIDE, 112),
    PIXELS(TAPS_KIND_WIDE, 128),
    PIXELS(TAPS_KIND_WIDE, 192),
    PIXELS(TAPS_KIND_WIDE, 224),
    PIXELS(TAPS_KIND_WIDE, 256),
    PIXELS(TAPS_KIND_TALL, 112),
    PIXELS(TAPS_KIND_TALL, 128),
};
#undef PIXELS
#undef PAIRED
#undef SIZE

static int size_of(const lk_cuda_problem *problem)
{
    return problem->values == LK_DTYPE_BF16 ? 2 : 4;
}

static bool is_forward(const lk_cuda_problem *problem)
{
    return problem->pass == LK_CUDA_PASS_FORWARD;
}

/* Whether every window is one pixel without padding: the pixels of all samples are then treated as one row. */
static bool is_flat(const lk_cuda_problem *problem)
{
    return problem->along_h.kernel == 1 && problem->along_w.kernel == 1 && problem->along_h.pad == 0 &&
           problem->along_w.pad == 0;
}

static bool is_wide(const taps_shape *s)
{
    return s->columns > PRODUCT_ROWS;
}

/* Whether weights come in a ring, for two warpgroups. */
static bool has_ring(const taps_size *size)
{
    return size->kind == TAPS_KIND_WIDE || size->kind == TAPS_KIND_TALL;
}

/* Groups of places of a tile. */
static int groups_of(const taps_size *size)
{
    return (size->kind == TAPS_KIND_TALL ? 2 : 1) * size->groups;
}

/* Channels of a job, and bytes of the weights of a tap and a chunk. */
static int job_columns(const taps_shape *s)
{
    return is_wide(s) ? 2 * PRODUCT_ROWS : PRODUCT_ROWS;
}

static size_t weight_bytes(const taps_shape *s)
{
    return (size_t)job_columns(s) * LINE;
}

/* Whether two taps of tf32 fill the rows of a product. */
static bool is_paired(const lk_cuda_problem *problem, const taps_shape *s)
{
    return problem->values == LK_DTYPE_F32 && 2 * s->columns <= PRODUCT_ROWS && problem->along_w.kernel > 1;
}

/* Slots of weights for a row of the window. */
static int row_slots(const lk_cuda_problem *problem, const taps_shape *s)
{
    return is_paired(problem, s) ? divide_up(problem->along_w.kernel, 2) : problem->along_w.kernel;
}

/* Fills the fields that do not depend on the size of tiles. */
static taps_shape shape_of(const lk_cuda_problem *problem)
{
    bool forward = is_forward(problem);
    int chunk = LINE / size_of(problem), step = STEP / size_of(problem);
    int kernel_h = problem->along_h.kernel, kernel_w = problem->along_w.kernel;
    taps_shape s = {};
    s.depth = forward ? problem->x_pitch : problem->y_pitch;
    s.columns = forward ? problem->y_pitch : problem->x_pitch;
    s.images = problem->n > 0 ? problem->n : 1;
    s.height = forward ? problem->p : problem->h;
    s.width = forward ? problem->q : problem->w;
    if (is_flat(problem)) {
        s.width *= s.images * s.height;
        s.images = s.height = 1;
    }
    s.row_step = (uint32_t)s.width * (uint32_t)s.columns;
    s.image_step = (uint32_t)s.height * s.row_step;
    s.slots = kernel_h * row_slots(problem, &s);
    s.pad_h = forward ? problem->along_h.pad : kernel_h - 1 - problem->along_h.pad;
    s.pad_w = forward ? problem->along_w.pad : kernel_w - 1 - problem->along_w.pad;
    s.column_tiles = divide_up(s.columns, job_columns(&s));
    s.chunks = divide_up(s.depth, chunk);
    s.last_steps = divide_up(s.depth - (s.chunks - 1) * chunk, step);
    return s;
}

/* Sets rows and images of a tile of strips; they fill its eights. */
static void set_strips(taps_shape *s, const taps_size *size, int images)
{
    int eights = size->n / EIGHT;
    s->strips = true;
    s->tile_width = groups_of(size) * EIGHT;
    s->width_tiles = divide_up(s->width, s->tile_width);
    s->row_tiles = divide_up(s->height, eights / images);
    s->tile_rows = divide_up(s->height, s->row_tiles);
    s->tile_images = images;
}

/* Sets a tile of pixels of one row. */
static void set_pixels(taps_shape *s, const taps_size *size)
{
    s->strips = false;
    s->tile_width = groups_of(size) * size->n;
    s->width_tiles = divide_up(s->width, s->tile_width);
    s->row_tiles = s->tile_rows = s->tile_images = 1;
}

/* Sets the rows of a tile of whole rows; 0 if none fits. The second place of a pair is in the tile, too. */
static void set_rows(taps_shape *s, const taps_size *size, int kernel_w)
{
    int places = size->groups * size->n, paired = size->kind == TAPS_KIND_PAIRED;
    int rows = (places + kernel_w - 1 - paired) / (s->width + kernel_w - 1);
    s->strips = false;
    s->tile_width = s->width;
    s->width_tiles = 1;
    s->row_tiles = rows > 0 ? divide_up(s->height, rows) : 1;
    s->tile_rows = rows > 0 ? divide_up(s->height, s->row_tiles) : 0;
    s->tile_images = 1;
}

/* Sets the lines of slabs. The products of a slab read all lines of the tile's places, moved by up to the last tap,
 * whether they have been copied or not. */
static void set_lines(const lk_cuda_problem *problem, taps_shape *s, const taps_size *size)
{
    int kernel_h = problem->along_h.kernel, kernel_w = problem->along_w.kernel, across = row_slots(problem, s);
    s->pitch = s->tile_width + kernel_w - 1;
    s->eight_lines = s->strips ? s->pitch : EIGHT;
    s->group_lines = s->strips ? EIGHT : size->n;
    for (int i = 0; i < s->slots; i++)
        s->lines[i] =
            (uint16_t)(i / across * s->tile_images * s->pitch + i % across * (size->kind == TAPS_KIND_PAIRED ? 2 : 1));
    int last = ((kernel_h - 1) * s->tile_images * s->pitch) + kernel_w - 1;
    int places = (size->n / EIGHT - 1) * s->eight_lines + (groups_of(size) - 1) * s->group_lines + EIGHT;
    int copied = (s->tile_rows + kernel_h - 1) * s->tile_images * s->pitch;
    int lines = places + last > copied ? places + last : copied;
    s->slab_bytes = (uint32_t)(divide_up(lines * LINE, ALIGN) * ALIGN);
    s->copy_bytes = (uint32_t)(copied * LINE);
}

/* Whether a copy can have the size of a slab. */
static bool is_box(const lk_cuda_problem *problem, const taps_shape *s)
{
    return s->tile_rows > 0 && s->tile_rows + problem->along_h.kernel - 1 <= MOST_BOX && s->pitch <= MOST_BOX;
}

static size_t offsets_bytes(const taps_size *size)
{
    return (size_t)(groups_of(size) * size->n) * offset_bytes;
}

/* Sets the slots; false if shared memory is too small. */
static bool set_slots(taps_shape *s, const taps_size *size)
{
    size_t left = most_bytes - ALIGN - turn_bytes - offsets_bytes(size), weight = weight_bytes(s) + barrier_bytes,
           slab = s->slab_bytes + barrier_bytes;
    size_t slabs = wide_slabs, weights = (size_t)(s->chunks * s->slots);
    if (has_ring(size) && size->pixels) {
        slabs = weights = left / (slab + weight) < most_weights ? left / (slab + weight) : most_weights;
    } else if (has_ring(size)) {
        weights = left > slabs * slab ? (left - slabs * slab) / weight : 0;
        weights = weights < most_weights ? weights : most_weights;
    } else {
        slabs = left > weights * weight ? (left - weights * weight) / slab : 0;
        slabs = slabs < most_slabs ? slabs : most_slabs;
    }
    s->slabs = (int)slabs;
    s->weights = (int)weights;
    return size->pixels ? slabs > 1 : slabs > 0 && (!has_ring(size) || weights >= least_weights);
}

static size_t shared_bytes(const taps_shape *s, const taps_size *size)
{
    return ALIGN + (size_t)s->weights * (weight_bytes(s) + barrier_bytes) +
           (size_t)s->slabs * (s->slab_bytes + barrier_bytes) + turn_bytes + offsets_bytes(size);
}

/* Cycles of a multiprocessor for a job, about: tensor cores take N / 2 for a product of 64 rows; shared memory gives
 * and takes 128 bytes; the cache gives 20 bytes. The two warpgroups of a team do not multiply while they write;
 * a team of one writes while others multiply. With one slab nobody multiplies during a copy. */
static double job_cycles(const taps_shape *s, const taps_size *size)
{
    enum { START = 8, CACHE = 20, SHARED = 128, LATENCY = 1000, WRITE = 40, RING_WRITE = 8 }; /* WRITE: for a place */
    double parts =
        (double)((s->chunks - 1) * STEPS + s->last_steps) * s->slots * size->groups * (has_ring(size) ? 2 : 1);
    double bytes = (double)s->copy_bytes * s->chunks;
    if (has_ring(size))
        bytes += (double)weight_bytes(s) * s->chunks * s->slots;
    double products = parts * (size->n / 2 + START), copy = bytes / CACHE;
    double reads = (parts * (PRODUCT_ROWS + size->n) * STEP + bytes) / SHARED;
    double longer = products > copy ? products : copy;
    longer = longer > reads ? longer : reads;
    if (has_ring(size))
        return longer + (double)(groups_of(size) * size->n) * RING_WRITE;
    double alone = s->slabs > 1 ? 0 : copy + s->chunks * LATENCY;
    double turn = (longer + (double)size->n * WRITE) / taps_teams(size->n);
    return (longer > turn ? longer : turn) + alone;
}

/* Cycles of all jobs on a large GPU. */
static double cycles_of(const taps_shape *s, const taps_size *size)
{
    enum { PROCESSORS = 132 };
    return divide_up(s->jobs, PROCESSORS) * job_cycles(s, size);
}

/* Sets the tiles; false if they do not suit. */
static bool set_tiles(const lk_cuda_problem *problem, taps_shape *s, const taps_size *size)
{
    int eights = size->n / EIGHT, images = s->height < eights ? eights / s->height : 1;
    if (size->pixels != is_flat(problem) || (size->kind == TAPS_KIND_WIDE) != is_wide(s) ||
        (size->kind == TAPS_KIND_PAIRED) != is_paired(problem, s))
        return false;
    for (images = images < s->images ? images : s->images; images > 0; images--) {
        if (is_flat(problem))
            set_pixels(s, size);
        else if (size->strips)
            set_strips(s, size, images);
        else
            set_rows(s, size, problem->along_w.kernel);
        set_lines(problem, s, size);
        s->jobs = divide_up(s->images, s->tile_images) * s->row_tiles * s->width_tiles * s->column_tiles;
        if (is_box(problem, s) && set_slots(s, size))
            return true;
    }
    return false;
}

/* The fastest size of tiles, which changes no bit; NULL if there is none. */
static const taps_size *choose(const lk_cuda_problem *problem, taps_shape *out)
{
    const taps_size *best = NULL;
    taps_shape s = shape_of(problem);
    for (const taps_size *size = sizes; size < sizes + sizeof sizes / sizeof *sizes; size++)
        if (set_tiles(problem, &s, size) && (!best || cycles_of(&s, size) < cycles_of(out, best))) {
            best = size;
            *out = s;
        }
    return best;
}

static bool is_plain(const lk_cuda_window *window)
{
    return window->stride == 1 && window->dilation == 1 && window->kernel <= TAPS_SIDE && window->pad <= MOST_BOX;
}

/* Whether cuDNN is faster: many channels fill its tiles, and strips lose places, as 28 columns in four strips of eight.
 */
static bool loses_places(const taps_shape *s)
{
    enum { MANY = 512 };
    return s->depth >= MANY && s->columns >= MANY && s->width > EIGHT && s->width % EIGHT != 0;
}

bool lk__cuda_taps_suits(const lk_cuda_problem *problem)
{
    taps_shape s;
    bool typed = problem->values == LK_DTYPE_BF16 || problem->precision == LK_PRECISION_TF32;
    if (problem->pass == LK_CUDA_PASS_GRAD_WEIGHT || !typed || problem->groups != 1 || problem->x_pitch % 8 ||
        problem->y_pitch % 8 || !is_plain(&problem->along_h) || !is_plain(&problem->along_w))
        return false;
    s = shape_of(problem);
    /* In bf16, libraries are faster with windows of one pixel. */
    bool fits = is_flat(problem) ? problem->values == LK_DTYPE_F32
                                 : s.height >= LEAST_SIDE && s.width >= LEAST_SIDE && !loses_places(&s);
    return fits && s.depth >= LEAST_DEPTH && choose(problem, &s) && is_hopper();
}

/* The source in boxes of a slab: channels, columns, images and rows. A copy of tf32 rounds its values. */
static cudaError_t map_source(const lk_cuda_problem *problem, const lk_cuda_io *io, const taps_shape *s,
                              CUtensorMap *out)
{
    bool forward = is_forward(problem), bf16 = problem->values == LK_DTYPE_BF16;
    bool flat = is_flat(problem);
    int width = flat ? s->width : forward ? problem->w : problem->q;
    int height = flat ? 1 : forward ? problem->h : problem->p, images = flat ? 1 : problem->n;
    size_t row = (size_t)width * (size_t)s->depth;
    const image_axes axes = {{s->depth, width, images, height},
                             {(size_t)s->depth, row * (size_t)height, row},
                             {(cuuint32_t)(LINE / size_of(problem)), (cuuint32_t)s->pitch, (cuuint32_t)s->tile_images,
                              (cuuint32_t)(s->tile_rows + problem->along_h.kernel - 1)}};
    void *encode;
    cudaError_t error = driver_function("cuTensorMapEncodeTiled", &encode);
    if (error != cudaSuccess)
        return error;
    CUresult made =
        map_images((encode_tiled)encode, bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
                   size_of(problem), forward ? io->x : io->dy, axes, CU_TENSOR_MAP_SWIZZLE_128B, out);
    return made == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

template <class T>
static void pack(const lk_cuda_problem *problem, const lk_cuda_io *io, const taps_pack *p, void *out)
{
    lk__cuda_follow({lk__cuda_blocks(p->units), LK_THREADS, 0, io->stream, !is_forward(problem)},
                    is_forward(problem) ? pack_taps<T, true> : pack_taps<T, false>, *p, (const T *)io->w, (T *)out);
    lk__cuda_launched(io->dev, "weights of a convolution");
}

/* Writes the packed weights to the workspace. */
static bool pack_weights(const lk_cuda_problem *problem, const lk_cuda_io *io, const taps_shape *s, void **out)
{
    taps_pack p = {};
    p.rows = job_columns(s);
    p.window_slots = s->slots;
    p.slots = s->chunks * p.window_slots;
    p.row_slots = row_slots(problem, s);
    p.taps = problem->along_h.kernel * problem->along_w.kernel;
    p.kernel_w = problem->along_w.kernel;
    p.paired = is_paired(problem, s);
    p.depth = s->depth;
    p.columns = s->columns;
    p.units = (unsigned)(s->column_tiles * p.slots * p.rows * (LINE / UNIT));
    if (!lk__cuda_keep_status(io->dev, lk__cuda_workspace(io, (size_t)p.units * UNIT, out)))
        return false;
    (problem->values == LK_DTYPE_BF16 ? pack<lk_bf16> : pack<float>)(problem, io, &p, *out);
    return true;
}

void lk__cuda_taps(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    taps_shape s;
    taps_call call = {};
    void *packed;
    const taps_size *size = choose(problem, &s);
    assert(size);
    call.dev = io->dev;
    call.stream = io->stream;
    call.bytes = shared_bytes(&s, size);
    call.end.b = io->b;
    call.end.mask = io->mask;
    call.end.relu = problem->relu;
    call.out = is_forward(problem) ? io->y : io->dx;
    if (!lk__cuda_keep(io->dev, count_processors(&call.processors), what) ||
        !lk__cuda_keep(io->dev, map_source(problem, io, &s, &call.map), what) ||
        !pack_weights(problem, io, &s, &packed))
        return;
    call.packed = (const char *)packed;
    size->launch[problem->values == LK_DTYPE_BF16](&s, &call);
}
