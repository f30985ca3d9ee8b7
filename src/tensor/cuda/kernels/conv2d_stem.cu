/* conv2d_stem.cu - forward passes of convolutions of few input channels, by tensor cores in bf16 and tf32: the first
 * convolution of a model. It is bound by memory (y).
 *
 * A tile of y is some rows and columns of a sample, and up to 64 channels. Shared memory holds the weights and the
 * values of x that the tile reads. The tile is a product: pixels by channels, summed over words of 4 bytes, which are
 * one tf32 or two neighbouring bf16. The values that a pixel reads by one row of taps are neighbours in x; a half word
 * that is not of the window is masked. If some pixels begin at an odd bf16 and others at an even one, the odd ones read
 * a copy of x that is shifted by one value. A block stays for many tiles: the weights are read once, and x of the next
 * tile is copied while a tile is computed. The order of a sum depends on the layer only, not on the tile. */
#include "tensor/cuda/kernels/conv2d.h"
#include "tensor/cuda/kernels/mma.cuh"
#include "tensor/cuda/kernels/vec4.cuh"

enum {
    THREADS = 256,
    BLOCKS_AT_ONCE = 2, /* on a multiprocessor */
    RESIDENT = 264,     /* blocks that run at once on a large GPU */
    WARP_PIXELS = 32,   /* of a warp's product */
    STEP = 8,           /* words that one instruction adds */
    UNIT = 16,          /* bytes that one instruction copies */
    SLOTS = 2,          /* tiles of x in shared memory */
    TILE_COLUMNS = 64,
    TILE_PIXELS = 1024,
    MOST_BYTES = 96 << 10 /* of shared memory, which every GPU from 8.0 on has for a block */
};

/* x is (n, h, row / x_pitch, x_pitch), y (n, p, q, y_pitch). Values of x include the pads of channels. */
typedef struct stem_shape {
    int h, row, x_pitch, p, q, y_pitch;
    lk_cuda_window along_h, along_w;
    int tile_p, tile_q, tiles;   /* tiles: of all samples */
    divisor tiles_p, tiles_q;    /* tiles of a sample along p and q */
    int shift;                   /* values from the beginning of a row in shared memory to those of its first pixel */
    int lead;                    /* masked values before a row of taps */
    int x_rows, x_words;         /* of a tile: rows, words of a row in shared memory; whole units */
    int copies;                  /* of x in shared memory */
    int whole;                   /* units of x are inside or outside of the image as a whole, and aligned */
    int tap_words, words, steps; /* of a row of taps, of all rows, and the same in whole steps */
    int columns;                 /* channels of a tile: 32 or 64 */
    divisor by_tile_q, by_tap_words, by_units;
} stem_shape;

/* Pixels of a tile, rounded up to those of a warp's product. */
static __host__ __device__ __forceinline__ int pixels_of(const stem_shape &s)
{
    return (s.tile_p * s.tile_q + WARP_PIXELS - 1) / WARP_PIXELS * WARP_PIXELS;
}

/* Words of one slot. */
static __host__ __device__ __forceinline__ int slot_of(const stem_shape &s)
{
    return s.copies * s.x_rows * s.x_words;
}

/* Of stem_memory. */
static size_t bytes_of(const stem_shape &s)
{
    size_t weights = (size_t)s.steps * STEP * (size_t)s.columns, table = (size_t)s.steps * STEP * 2;
    size_t pixels = (size_t)pixels_of(s) * 2, x = (size_t)SLOTS * (size_t)slot_of(s);
    return sizeof(uint32_t) * (weights + table + pixels + (size_t)s.columns + x);
}

/* Values of a word. */
static int each_of(const lk_cuda_problem *problem)
{
    return problem->values == LK_DTYPE_F32 ? 1 : 2;
}

/* Sets the rows and columns of a tile. Columns are a multiple of 8 or all of them, so that the first values of all
 * tiles have the same place in a unit. */
static void set_tile(stem_shape *s, const lk_cuda_problem *problem, int rows, int columns)
{
    int each = each_of(problem), unit = UNIT / 4 * each;
    int values = s->shift - s->lead + (columns - 1) * s->along_w.stride * s->x_pitch + s->tap_words * each;
    s->tile_p = rows;
    s->tile_q = columns;
    s->tiles_p = divisor_of((unsigned)divide_up(s->p, rows));
    s->tiles_q = divisor_of((unsigned)divide_up(s->q, columns));
    s->tiles = problem->n * (int)(s->tiles_p.by * s->tiles_q.by);
    s->x_rows = (rows - 1) * s->along_h.stride + s->along_h.kernel;
    s->x_words = divide_up(values, unit) * (UNIT / 4);
    s->by_tile_q = divisor_of((unsigned)columns);
    s->by_units = divisor_of((unsigned)s->x_words / (UNIT / 4));
}

/* With the smallest tile. */
static stem_shape shape_of(const lk_cuda_problem *problem)
{
    stem_shape s = {};
    int each = each_of(problem), unit = UNIT / 4 * each, before = problem->along_w.pad * problem->x_pitch;
    s.h = problem->h;
    s.x_pitch = problem->x_pitch;
    s.row = problem->w * s.x_pitch;
    s.p = problem->p;
    s.q = problem->q;
    s.y_pitch = problem->y_pitch;
    s.along_h = problem->along_h;
    s.along_w = problem->along_w;
    s.copies = each == 2 && s.along_w.stride * s.x_pitch % 2 ? 2 : 1;
    s.shift = (unit - before % unit) % unit;
    s.lead = each == 2 && s.copies == 1 ? before % 2 : 0;
    s.tap_words = divide_up(s.lead + s.along_w.kernel * s.x_pitch, each);
    s.words = s.along_h.kernel * s.tap_words;
    s.steps = divide_up(s.words, STEP);
    s.columns = s.y_pitch <= 32 ? 32 : 64;
    s.by_tap_words = divisor_of((unsigned)s.tap_words);
    set_tile(&s, problem, 1, s.q < 8 ? s.q : 8);
    return s;
}

/* An estimate of the time of all tiles, for comparisons. */
static size_t time_of(const stem_shape &s)
{
    size_t blocks = (size_t)s.tiles * (size_t)divide_up(s.y_pitch, s.columns);
    size_t product = (size_t)divide_up(pixels_of(s), THREADS) * (size_t)(s.steps * 16 + 40);
    size_t copy = (size_t)divide_up(slot_of(s), THREADS * (UNIT / 4)) * 8;
    return (blocks + RESIDENT - 1) / RESIDENT * (product + copy + 30);
}

/* Chooses the tile that takes the least time. */
static void choose_tile(stem_shape *s, const lk_cuda_problem *problem)
{
    stem_shape best = *s, next = *s;
    int end = s->q < TILE_COLUMNS ? s->q : TILE_COLUMNS;
    for (int columns = 8; columns < end + 8; columns += 8)
        for (int rows = 1; rows <= s->p && rows * columns <= TILE_PIXELS; rows++) {
            set_tile(&next, problem, rows, columns < s->q ? columns : s->q);
            if (bytes_of(next) <= MOST_BYTES && time_of(next) < time_of(best))
                best = next;
        }
    *s = best;
}

/* The shared memory of a block. */
struct stem_memory {
    uint4 *weights; // (steps, columns / 16, lanes): the words of two matrices of 8 columns
    uint2 *table;   // (steps, STEP): the bytes from a pixel's first word to a word, and its mask
    uint2 *pixels;  // (pixels_of): the byte of x where a pixel begins; its row << 16 | column, or ~0 if it is a pad
    float *bias;    // (columns), in the order of channels
    uint32_t *x;    // (SLOTS, copies, x_rows, x_words)
};

static __device__ __forceinline__ stem_memory memory_of(const stem_shape &s, uint4 *shared)
{
    stem_memory memory;
    memory.weights = shared;
    memory.table = (uint2 *)(shared + s.steps * STEP * s.columns / 4);
    memory.pixels = (uint2 *)(memory.table + s.steps * STEP);
    memory.bias = (float *)(memory.pixels + pixels_of(s));
    memory.x = (uint32_t *)(memory.bias + s.columns);
    return memory;
}

static __device__ __forceinline__ uint32_t word_of(const float (&v)[1])
{
    return round_tf32(v[0]);
}

static __device__ __forceinline__ uint32_t word_of(const float (&v)[2])
{
    return lk__cuda_pack_pair(v);
}

/* The channel of column `column` of the product. A thread has two columns of each matrix of 8; those of neighbouring
 * matrices are neighbours in y, so that it writes 16 bytes. */
template <class T>
static __device__ __forceinline__ int channel_of(int column)
{
    const int wide = lk__width<T>, matrix = column / 8, of_group = matrix % (wide / 2);
    return matrix / (wide / 2) * 4 * wide + column % 8 / 2 * wide + of_group * 2 + column % 2;
}

/* A word of the weights of an output channel. */
template <class T>
static __device__ __forceinline__ uint32_t weight_word(const stem_shape &s, const T *w, int channel, int word)
{
    const int each = 4 / (int)sizeof(T);
    int r = (int)quotient((unsigned)word, s.by_tap_words), first = (word - r * s.tap_words) * each - s.lead;
    int values = s.along_w.kernel * s.x_pitch;
    bool inside = channel < s.y_pitch && word < s.words;
    const T *from = w + ((ptrdiff_t)channel * s.along_h.kernel + r) * values + first;
    float v[each];
#pragma unroll
    for (int i = 0; i < each; i++)
        v[i] = inside && (unsigned)(first + i) < (unsigned)values ? lk__cuda_get1(from + i) : 0.0f;
    return word_of(v);
}

/* The mask of word `at` of a row of taps. */
template <class T>
static __device__ __forceinline__ uint32_t mask_of(const stem_shape &s, int at)
{
    uint32_t mask = ~0u;
    if (sizeof(T) == 2 && at == 0 && s.lead)
        mask &= 0xffff0000u;
    if (sizeof(T) == 2 && at == s.tap_words - 1 && (s.lead + s.along_w.kernel * s.x_pitch) % 2)
        mask &= 0xffffu;
    return mask;
}

/* Writes weights, table and bias. `first` is the tile's first channel. */
template <class T, int COLUMNS>
static __device__ __forceinline__ void share_weights(const stem_shape &s, const stem_memory &memory, const T *w,
                                                     const T *b, int first)
{
    uint32_t *to = (uint32_t *)memory.weights;
#pragma unroll 8
    for (int i = (int)threadIdx.x; i < s.steps * STEP * COLUMNS; i += THREADS) {
        int lane = i % LK_WARP, half = i / LK_WARP % 2, matrix = i / (2 * LK_WARP) % (COLUMNS / 8);
        int step = i / (STEP * COLUMNS), pair = step * (COLUMNS / 16) + matrix / 2;
        to[(pair * LK_WARP + lane) * 4 + matrix % 2 * 2 + half] =
            weight_word(s, w, first + channel_of<T>(matrix * 8 + lane / 4), step * STEP + half * 4 + lane % 4);
    }
    for (int word = (int)threadIdx.x; word < s.steps * STEP; word += THREADS) {
        int r = (int)quotient((unsigned)word, s.by_tap_words), at = word - r * s.tap_words;
        memory.table[word] =
            word < s.words ? make_uint2(4u * (unsigned)(r * s.x_words + at), mask_of<T>(s, at)) : make_uint2(0, 0);
    }
    for (int i = (int)threadIdx.x; i < COLUMNS; i += THREADS)
        memory.bias[i] = b && first + i < s.y_pitch ? lk__cuda_get1(b + first + i) : 0.0f;
}

/* Fills the list of pixels. */
template <class T>
static __device__ __forceinline__ void share_pixels(const stem_shape &s, uint2 *pixels)
{
    const int each = 4 / (int)sizeof(T);
    for (int i = (int)threadIdx.x; i < pixels_of(s); i += THREADS) {
        int row = (int)quotient((unsigned)i, s.by_tile_q), column = i - row * s.tile_q;
        int value = s.shift - s.lead + column * s.along_w.stride * s.x_pitch;
        int word = row * s.along_h.stride * s.x_words + value / each;
        word += value % each ? s.x_rows * s.x_words : 0;
        pixels[i] =
            row < s.tile_p ? make_uint2(4 * (unsigned)word, (unsigned)(row << 16 | column)) : make_uint2(0, ~0u);
    }
}

/* A tile: its sample and its first pixel. */
struct stem_tile {
    int n, p, q;
};

static __device__ __forceinline__ stem_tile tile_of(const stem_shape &s, unsigned index)
{
    unsigned row = quotient(index, s.tiles_q), n = quotient(row, s.tiles_p);
    return {(int)n, (int)(row - n * s.tiles_p.by) * s.tile_p, (int)(index - row * s.tiles_q.by) * s.tile_q};
}

/* The values of a unit that is not copied as a whole: from value `first` of a row on. */
template <class T>
static __device__ __forceinline__ uint4 gather_unit(const T *row, int first, unsigned end)
{
    T v[UNIT / sizeof(T)];
#pragma unroll
    for (int i = 0; i < UNIT / (int)sizeof(T); i++)
        v[i] = (unsigned)(first + i) < end ? row[first + i] : (T)0.0f;
    uint4 unit;
    memcpy(&unit, v, sizeof unit);
    return unit;
}

/* Begins to copy the values that a tile reads; they are 0 outside of the image. */
template <class T>
static __device__ __forceinline__ void copy_values(const stem_shape &s, const stem_tile &tile, const T *x, uint32_t *to)
{
    const int wide = UNIT / (int)sizeof(T);
    int h0 = tile.p * s.along_h.stride - s.along_h.pad;
    int first = (tile.q * s.along_w.stride - s.along_w.pad) * s.x_pitch - s.shift;
    for (int i = (int)threadIdx.x; i < s.x_rows * (int)s.by_units.by; i += THREADS) {
        int row = (int)quotient((unsigned)i, s.by_units), h = h0 + row;
        int value = first + (i - row * (int)s.by_units.by) * wide;
        unsigned end = (unsigned)h < (unsigned)s.h ? (unsigned)s.row : 0;
        const T *from = x + ((ptrdiff_t)tile.n * s.h + h) * s.row;
        uint32_t at = shared_at(to + i * (UNIT / 4));
        if (s.whole)
            copy_unit(at, (unsigned)value < end ? from + value : x, (unsigned)value < end);
        else
            store_unit(at, gather_unit(from, value, end));
    }
}

/* Ends the copy of copy_values: a thread rounds its units to tf32. */
static __device__ __forceinline__ void finish_values(const stem_shape &s, const float *, uint32_t *x)
{
    for (int i = (int)threadIdx.x; i < s.x_rows * (int)s.by_units.by; i += THREADS) {
        float4 v = ((const float4 *)x)[i];
        ((uint4 *)x)[i] = make_uint4(round_tf32(v.x), round_tf32(v.y), round_tf32(v.z), round_tf32(v.w));
    }
}

/* The same for bf16: a thread writes its units to the shifted copy. */
static __device__ __forceinline__ void finish_values(const stem_shape &s, const lk_bf16 *, uint32_t *x)
{
    if (s.copies == 1)
        return;
    uint32_t *copy = x + s.x_rows * s.x_words;
    for (int i = (int)threadIdx.x; i < s.x_rows * (int)s.by_units.by; i += THREADS) {
        uint4 v = ((const uint4 *)x)[i];
        uint32_t *to = copy + i * (UNIT / 4);
        uint16_t *halves = (uint16_t *)to;
        if (i > 0)
            halves[-1] = (uint16_t)v.x;
        to[0] = v.x >> 16 | v.y << 16;
        to[1] = v.y >> 16 | v.z << 16;
        to[2] = v.z >> 16 | v.w << 16;
        halves[6] = (uint16_t)(v.w >> 16);
    }
}

static __device__ __forceinline__ uint32_t load_word(uint32_t at)
{
    uint32_t v;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
}

/* A warp's product of 32 pixels, in two matrices of 16 rows: begin[m][i] is the address in shared memory where row
 * i * 8 + lane / 4 of matrix m begins. */
template <class T, int COLUMNS>
static __device__ __forceinline__ void multiply(const stem_shape &s, const stem_memory &memory,
                                                const uint32_t (&begin)[2][2], float (&acc)[2][COLUMNS / 8][4])
{
    const uint2 *table = memory.table + lk__cuda_lane() % 4;
    const uint4 *weights = memory.weights + lk__cuda_lane();
#pragma unroll 1
    for (int step = 0; step < s.steps; step++, table += STEP, weights += COLUMNS / 16 * LK_WARP) {
        const uint2 low = table[0], high = table[4];
        uint32_t a[2][4];
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                a[m][i] = load_word(begin[m][i] + low.x) & low.y;
                a[m][2 + i] = load_word(begin[m][i] + high.x) & high.y;
            }
#pragma unroll
        for (int pair = 0; pair < COLUMNS / 16; pair++) {
            uint4 v = weights[pair * LK_WARP];
            const uint32_t b[2][2] = {{v.x, v.y}, {v.z, v.w}};
#pragma unroll
            for (int m = 0; m < 2; m++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    mma_add<T>(acc[m][2 * pair + i], a[m], b[i]);
        }
    }
}

/* Adds the bias and writes the thread's channels of its pixels: pixel m is in half m % 2 of the sums of matrix m / 2,
 * and place[m] is its distance from y, or negative if it is not of the tile. first is the tile's first channel. */
template <class T, int COLUMNS>
static __device__ __forceinline__ void write_pixels(const stem_shape &s, const float *bias,
                                                    const float (&acc)[2][COLUMNS / 8][4], const int (&place)[4],
                                                    int first, bool relu, T *y)
{
    enum { WIDE = lk__width<T> };
#pragma unroll
    for (int group = 0; group < COLUMNS / (4 * WIDE); group++) {
        int channel = (group * 4 + lk__cuda_lane() % 4) * WIDE;
        float added[WIDE];
        lk__cuda_load<WIDE>(bias + channel, added);
        T *to = y + first + channel;
#pragma unroll
        for (int m = 0; m < 4; m++) {
            float v[WIDE];
#pragma unroll
            for (int k = 0; k < WIDE; k++) {
                v[k] = acc[m / 2][group * (WIDE / 2) + k / 2][m % 2 * 2 + k % 2] + added[k];
                v[k] = relu ? lk__cuda_relu1(v[k]) : v[k];
            }
            if (place[m] >= 0 && first + channel < s.y_pitch)
                lk__cuda_store<WIDE>(to + (size_t)place[m] * (size_t)s.y_pitch, v);
        }
    }
}

/* Computes a tile, whose values are at address x of shared memory. `first` is its first channel. */
template <class T, int COLUMNS>
static __device__ __forceinline__ void compute_tile(const stem_shape &s, const stem_memory &memory,
                                                    const stem_tile &tile, uint32_t x, int first, bool relu, T *y)
{
    int lane = lk__cuda_lane();
    y += (((size_t)tile.n * s.p + tile.p) * s.q + tile.q) * (size_t)s.y_pitch;
    for (int i = (int)threadIdx.x - lane; i < pixels_of(s); i += THREADS) {
        const uint2 *pixels = memory.pixels + i + lane / 4;
        const uint32_t begin[2][2] = {{x + pixels[0].x, x + pixels[8].x}, {x + pixels[16].x, x + pixels[24].x}};
        float acc[2][COLUMNS / 8][4] = {};
        multiply<T, COLUMNS>(s, memory, begin, acc);
        int place[4];
#pragma unroll
        for (int m = 0; m < 4; m++) {
            int at = (int)pixels[m * 8].y, row = at >> 16, column = at & 0xffff;
            place[m] = at >= 0 && tile.p + row < s.p && tile.q + column < s.q ? row * s.q + column : -1;
        }
        write_pixels<T, COLUMNS>(s, memory.bias, acc, place, first, relu, y);
    }
}

/* One barrier for each tile: after it, the tile's values are complete, and nobody reads those of the tile before. */
template <class T, int COLUMNS>
static __global__ void __launch_bounds__(THREADS, BLOCKS_AT_ONCE)
    stem_forward(const __grid_constant__ stem_shape s, const T *x, const T *w, const T *b, bool relu, T *y)
{
    lk__cuda_await_alone();
    extern __shared__ uint4 shared[];
    stem_memory memory = memory_of(s, shared);
    int first = (int)blockIdx.y * COLUMNS;
    uint32_t *here = memory.x, *there = memory.x + slot_of(s);
    copy_values(s, tile_of(s, blockIdx.x), x, here);
    copies_commit();
    share_weights<T, COLUMNS>(s, memory, w, b, first);
    share_pixels<T>(s, memory.pixels);
    for (unsigned index = blockIdx.x; index < (unsigned)s.tiles; index += gridDim.x) {
        copies_wait<0>();
        finish_values(s, x, here);
        __syncthreads();
        if (index + gridDim.x < (unsigned)s.tiles)
            copy_values(s, tile_of(s, index + gridDim.x), x, there);
        copies_commit();
        compute_tile<T, COLUMNS>(s, memory, tile_of(s, index), shared_at(here), first, relu, y);
        uint32_t *next = there;
        there = here;
        here = next;
    }
}

bool lk__cuda_stem_suits(const lk_cuda_problem *problem)
{
    return problem->pass == LK_CUDA_PASS_FORWARD && problem->precision != LK_PRECISION_FP32 && problem->c <= 4 &&
           problem->groups == 1 && problem->along_h.dilation == 1 && problem->along_w.dilation == 1 &&
           problem->along_h.kernel <= 16 && problem->along_w.kernel <= 16 && problem->along_h.stride <= 16 &&
           problem->along_w.stride <= 16 && problem->y_pitch % 8 == 0 && bytes_of(shape_of(problem)) <= MOST_BYTES;
}

template <class T, int COLUMNS>
static void forward(const stem_shape &s, const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    static const char what[] = "convolution of few channels by tensor cores";
    int groups = divide_up(s.y_pitch, COLUMNS), most = divide_up(RESIDENT, groups);
    dim3 blocks((unsigned)(s.tiles < most ? s.tiles : most), (unsigned)groups);
    (void)lk__cuda_keep(
        io->dev,
        cudaFuncSetAttribute(stem_forward<T, COLUMNS>, cudaFuncAttributeMaxDynamicSharedMemorySize, MOST_BYTES), what);
    lk__cuda_follow({blocks, THREADS, bytes_of(s), io->stream}, stem_forward<T, COLUMNS>, s, (const T *)io->x,
                    (const T *)io->w, (const T *)io->b, problem->relu, (T *)io->y);
    lk__cuda_launched(io->dev, what);
}

void lk__cuda_stem(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    stem_shape s = shape_of(problem);
    choose_tile(&s, problem);
    s.whole = s.row * 4 / each_of(problem) % UNIT == 0 && lk__cuda_aligned(io->x);
    if (problem->values == LK_DTYPE_F32)
        (s.columns == 32 ? forward<float, 32> : forward<float, 64>)(s, problem, io);
    else
        (s.columns == 32 ? forward<lk_bf16, 32> : forward<lk_bf16, 64>)(s, problem, io);
}
