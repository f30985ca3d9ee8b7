/* conv2d_stem.cu - forward passes of convolutions of few input channels, by tensor cores in bf16 and tf32: the first
 * convolution of a model. It is bound by memory (y).
 *
 * A block computes a tile of y: some rows and columns of a sample, and up to 64 channels. Shared memory holds the
 * weights and the values of x that the tile reads. The tile is a product: pixels by channels, summed over words of 4
 * bytes, which are one tf32 or two neighbouring bf16. The values that a pixel reads by one row of taps are neighbours
 * in x; a last half word is masked. Pixels whose values begin at an odd bf16 read a copy of x that is shifted by one
 * value. The order of a sum depends on the layer only, not on the tile. */
#include "tensor/cuda/kernels/conv2d.h"
#include "tensor/cuda/kernels/mma.cuh"
#include "tensor/cuda/kernels/vec4.cuh"

enum {
    THREADS = 256,
    BLOCKS_AT_ONCE = 2, /* on a multiprocessor */
    WARP_PIXELS = 32,   /* of a warp's product */
    STEP = 8,           /* words that one instruction adds */
    TILE_COLUMNS = 64,
    TILE_PIXELS = 1024,
    LEAST_PIXELS = 256,   /* of a tile, if larger ones do not fill the GPU */
    FILL = 512,           /* blocks that fill a large GPU */
    MOST_BYTES = 48 << 10 /* of shared memory, which every launch may have */
};

/* x is (n, h, row / x_pitch, x_pitch), y (n, p, q, y_pitch). Values of x include the pads of channels. */
typedef struct stem_shape {
    int h, row, x_pitch, p, q, y_pitch;
    lk_cuda_window along_h, along_w;
    int tile_p, tile_q, tiles_p, tiles_q;
    int x_rows, x_values, x_words; /* of a tile: rows, values of a row, words of a row in shared memory */
    int copies;                    /* of x in shared memory */
    int tap_words, words, steps;   /* of a row of taps, of all rows, and the same in whole steps */
    int columns;                   /* channels of a tile: 32 or 64 */
    divisor by_tile_q, by_tap_words;
} stem_shape;

/* Pixels of a tile, rounded up to those of a warp's product. */
static __host__ __device__ __forceinline__ int pixels_of(const stem_shape &s)
{
    return (s.tile_p * s.tile_q + WARP_PIXELS - 1) / WARP_PIXELS * WARP_PIXELS;
}

/* Of stem_memory. */
static size_t bytes_of(const stem_shape &s)
{
    size_t weights = (size_t)s.steps * STEP * (size_t)s.columns, table = (size_t)s.steps * STEP * 2;
    size_t pixels = (size_t)pixels_of(s) * 2, x = (size_t)s.copies * (size_t)s.x_rows * (size_t)s.x_words;
    return sizeof(uint32_t) * (weights + table + pixels + (size_t)s.columns + x);
}

/* Sets the rows of a tile. */
static void set_rows(stem_shape *s, int rows)
{
    s->tile_p = rows;
    s->tiles_p = divide_up(s->p, rows);
    s->x_rows = (rows - 1) * s->along_h.stride + s->along_h.kernel;
}

/* With tiles of one row. */
static stem_shape shape_of(const lk_cuda_problem *problem)
{
    stem_shape s = {};
    int each = problem->values == LK_DTYPE_F32 ? 1 : 2; /* values of a word */
    s.h = problem->h;
    s.x_pitch = problem->x_pitch;
    s.row = problem->w * s.x_pitch;
    s.p = problem->p;
    s.q = problem->q;
    s.y_pitch = problem->y_pitch;
    s.along_h = problem->along_h;
    s.along_w = problem->along_w;
    s.tiles_q = divide_up(s.q, TILE_COLUMNS);
    s.tile_q = divide_up(s.q, s.tiles_q);
    s.x_values = ((s.tile_q - 1) * s.along_w.stride + s.along_w.kernel) * s.x_pitch;
    s.x_words = each == 1 ? s.x_values : s.x_values / 2 + 1;
    s.copies = each == 2 && s.along_w.stride * s.x_pitch % 2 ? 2 : 1;
    s.tap_words = divide_up(s.along_w.kernel * s.x_pitch, each);
    s.words = s.along_h.kernel * s.tap_words;
    s.steps = divide_up(s.words, STEP);
    s.columns = s.y_pitch <= 32 ? 32 : 64;
    s.by_tile_q = divisor_of((unsigned)s.tile_q);
    s.by_tap_words = divisor_of((unsigned)s.tap_words);
    set_rows(&s, 1);
    return s;
}

/* Tiles as large as shared memory allows; smaller ones if they would not fill the GPU. */
static void choose_rows(stem_shape *s, int n)
{
    int rows = TILE_PIXELS / s->tile_q < s->p ? TILE_PIXELS / s->tile_q : s->p;
    size_t columns = (size_t)n * (size_t)s->tiles_q * (size_t)divide_up(s->y_pitch, s->columns);
    set_rows(s, rows);
    while (rows > 1 &&
           (bytes_of(*s) > MOST_BYTES || (columns * (size_t)s->tiles_p < FILL && rows * s->tile_q > LEAST_PIXELS)))
        set_rows(s, rows = (rows + 1) / 2);
    set_rows(s, divide_up(s->p, s->tiles_p));
}

/* The shared memory of a block. */
struct stem_memory {
    uint4 *weights; // (steps, columns / 16, lanes): the words of two matrices of 8 columns
    uint2 *table;   // (steps, STEP): the bytes from a pixel's first word to a word, and its mask
    int2 *pixels;   // (pixels_of): the byte of x where a pixel begins, and its distance from the tile's first in y
    float *bias;    // (columns)
    uint32_t *x;    // (copies, x_rows, x_words)
};

static __device__ __forceinline__ stem_memory memory_of(const stem_shape &s, uint4 *shared)
{
    stem_memory memory;
    memory.weights = shared;
    memory.table = (uint2 *)(shared + s.steps * STEP * s.columns / 4);
    memory.pixels = (int2 *)(memory.table + s.steps * STEP);
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
    int r = (int)quotient((unsigned)word, s.by_tap_words), first = (word - r * s.tap_words) * each;
    int values = s.along_w.kernel * s.x_pitch;
    const T *from = w + ((size_t)channel * s.along_h.kernel + r) * (size_t)values + first;
    float v[each];
#pragma unroll
    for (int i = 0; i < each; i++)
        v[i] = channel < s.y_pitch && word < s.words && first + i < values ? lk__cuda_get1(from + i) : 0.0f;
    return word_of(v);
}

/* Writes weights, table and bias. `first` is the tile's first channel. */
template <class T, int COLUMNS>
static __device__ __forceinline__ void share_weights(const stem_shape &s, const stem_memory &memory, const T *w,
                                                     const T *b, int first)
{
    uint32_t *to = (uint32_t *)memory.weights;
    for (int i = (int)threadIdx.x; i < s.steps * STEP * COLUMNS; i += THREADS) {
        int word = i / COLUMNS, column = i % COLUMNS, lane = column % 8 * 4 + word % 4;
        int pair = word / STEP * (COLUMNS / 16) + column / 16;
        to[(pair * LK_WARP + lane) * 4 + column / 8 % 2 * 2 + word / 4 % 2] =
            weight_word(s, w, first + channel_of<T>(column), word);
    }
    for (int word = (int)threadIdx.x; word < s.steps * STEP; word += THREADS) {
        int r = (int)quotient((unsigned)word, s.by_tap_words), at = word - r * s.tap_words;
        bool half = sizeof(T) == 2 && at == s.tap_words - 1 && s.along_w.kernel * s.x_pitch % 2;
        memory.table[word] =
            word < s.words ? make_uint2(4u * (unsigned)(r * s.x_words + at), half ? 0xffffu : ~0u) : make_uint2(0, 0);
    }
    for (int column = (int)threadIdx.x; column < COLUMNS; column += THREADS) {
        int channel = first + channel_of<T>(column);
        memory.bias[column] = b && channel < s.y_pitch ? lk__cuda_get1(b + channel) : 0.0f;
    }
}

/* The tile of a block: its sample and its first pixel. */
struct stem_tile {
    int n, p, q;
};

static __device__ __forceinline__ stem_tile tile_of(const stem_shape &s)
{
    stem_tile tile;
    unsigned row = blockIdx.x / (unsigned)s.tiles_q, n = row / (unsigned)s.tiles_p;
    tile.n = (int)n;
    tile.p = (int)(row - n * (unsigned)s.tiles_p) * s.tile_p;
    tile.q = (int)(blockIdx.x - row * (unsigned)s.tiles_q) * s.tile_q;
    return tile;
}

/* Writes value i of a row of the tile. */
static __device__ __forceinline__ void put_value(const stem_shape &, const float *from, bool inside, int i,
                                                 uint32_t *row)
{
    row[i] = inside ? round_tf32(__ldg(from)) : 0u;
}

static __device__ __forceinline__ void put_value(const stem_shape &s, const lk_bf16 *from, bool inside, int i,
                                                 uint32_t *row)
{
    uint16_t v = inside ? __ldg((const uint16_t *)from) : (uint16_t)0, *to = (uint16_t *)row;
    to[i] = v;
    if (s.copies == 2 && i > 0)
        to[2 * s.x_rows * s.x_words + i - 1] = v;
}

/* Copies the values that the tile reads; they are 0 outside of the image. A warp copies a row. */
template <class T>
static __device__ __forceinline__ void share_values(const stem_shape &s, const stem_tile &tile, const T *x,
                                                    uint32_t *to)
{
    int h0 = tile.p * s.along_h.stride - s.along_h.pad;
    int first = (tile.q * s.along_w.stride - s.along_w.pad) * s.x_pitch;
    for (int row = (int)threadIdx.x / LK_WARP; row < s.x_rows; row += THREADS / LK_WARP) {
        int h = h0 + row;
        unsigned end = h >= 0 && h < s.h ? (unsigned)s.row : 0;
        const T *from = x + (((ptrdiff_t)tile.n * s.h + h) * s.row + first);
#pragma unroll 4
        for (int i = lk__cuda_lane(); i < s.x_values; i += LK_WARP)
            put_value(s, from + i, (unsigned)(first + i) < end, i, to + row * s.x_words);
    }
}

/* Fills the list of pixels. Those outside of the tile or of y have distance -1. */
template <class T>
static __device__ __forceinline__ void share_pixels(const stem_shape &s, const stem_tile &tile, int2 *pixels)
{
    const int each = 4 / (int)sizeof(T);
    for (int i = (int)threadIdx.x; i < pixels_of(s); i += THREADS) {
        int row = (int)quotient((unsigned)i, s.by_tile_q), column = i - row * s.tile_q;
        int value = column * s.along_w.stride * s.x_pitch, word = row * s.along_h.stride * s.x_words + value / each;
        bool inside = row < s.tile_p && tile.p + row < s.p && tile.q + column < s.q;
        word += value % each ? s.x_rows * s.x_words : 0;
        pixels[i] = inside ? make_int2(4 * word, row * s.q + column) : make_int2(0, -1);
    }
}

/* A warp's product of 32 pixels, in two matrices of 16 rows: begin[m][i] is the byte of x where row i * 8 + lane / 4 of
 * matrix m begins. */
template <class T, int COLUMNS>
static __device__ __forceinline__ void multiply(const stem_shape &s, const stem_memory &memory,
                                                const int (&begin)[2][2], float (&acc)[2][COLUMNS / 8][4])
{
    int lane = lk__cuda_lane();
    const char *x = (const char *)memory.x;
#pragma unroll 1
    for (int step = 0; step < s.steps; step++) {
        const uint2 low = memory.table[step * STEP + lane % 4], high = memory.table[step * STEP + 4 + lane % 4];
        uint32_t a[2][4];
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                a[m][i] = *(const uint32_t *)(x + begin[m][i] + low.x) & low.y;
                a[m][2 + i] = *(const uint32_t *)(x + begin[m][i] + high.x) & high.y;
            }
#pragma unroll
        for (int pair = 0; pair < COLUMNS / 16; pair++) {
            uint4 v = memory.weights[(step * (COLUMNS / 16) + pair) * LK_WARP + lane];
            const uint32_t b[2][2] = {{v.x, v.y}, {v.z, v.w}};
#pragma unroll
            for (int m = 0; m < 2; m++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    mma_add<T>(acc[m][2 * pair + i], a[m], b[i]);
        }
    }
}

/* Writes the thread's channels of a pixel, which are in half `half` of the sums. first is the tile's first channel. */
template <class T, int COLUMNS>
static __device__ __forceinline__ void write_pixel(const stem_shape &s, const float (&acc)[COLUMNS / 8][4], int half,
                                                   int first, bool relu, T *out)
{
    enum { WIDE = lk__width<T> };
#pragma unroll
    for (int group = 0; group < COLUMNS / (4 * WIDE); group++) {
        int channel = first + (group * 4 + lk__cuda_lane() % 4) * WIDE;
        float v[WIDE];
#pragma unroll
        for (int k = 0; k < WIDE; k++) {
            v[k] = acc[group * (WIDE / 2) + k / 2][2 * half + k % 2];
            v[k] = relu ? lk__cuda_relu1(v[k]) : v[k];
        }
        if (channel < s.y_pitch)
            lk__cuda_store<WIDE>(out + channel, v);
    }
}

template <class T, int COLUMNS>
static __global__ void __launch_bounds__(THREADS, BLOCKS_AT_ONCE)
    stem_forward(const __grid_constant__ stem_shape s, const T *x, const T *w, const T *b, bool relu, T *y)
{
    extern __shared__ uint4 shared[];
    stem_memory memory = memory_of(s, shared);
    stem_tile tile = tile_of(s);
    int first = (int)blockIdx.y * COLUMNS, lane = lk__cuda_lane();
    share_weights<T, COLUMNS>(s, memory, w, b, first);
    share_values(s, tile, x, memory.x);
    share_pixels<T>(s, tile, memory.pixels);
    __syncthreads();
    y += (((size_t)tile.n * s.p + tile.p) * s.q + tile.q) * (size_t)s.y_pitch;
    for (int i = (int)threadIdx.x - lane; i < pixels_of(s); i += THREADS) {
        int begin[2][2], place[2][2];
        float acc[2][COLUMNS / 8][4];
#pragma unroll
        for (int m = 0; m < 4; m++) {
            int2 pixel = memory.pixels[i + m * 8 + lane / 4];
            begin[m / 2][m % 2] = pixel.x;
            place[m / 2][m % 2] = pixel.y;
        }
#pragma unroll
        for (int j = 0; j < COLUMNS / 8; j++) {
            float2 bias = *(const float2 *)(memory.bias + j * 8 + lane % 4 * 2);
#pragma unroll
            for (int k = 0; k < 8; k++)
                acc[k / 4][j][k % 4] = k % 2 ? bias.y : bias.x;
        }
        multiply<T, COLUMNS>(s, memory, begin, acc);
#pragma unroll
        for (int m = 0; m < 4; m++)
            if (place[m / 2][m % 2] >= 0)
                write_pixel<T, COLUMNS>(s, acc[m / 2], m % 2, first, relu,
                                        y + (size_t)place[m / 2][m % 2] * (size_t)s.y_pitch);
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
    dim3 blocks((unsigned)problem->n * (unsigned)(s.tiles_p * s.tiles_q), (unsigned)divide_up(s.y_pitch, COLUMNS));
    stem_forward<T, COLUMNS><<<blocks, THREADS, bytes_of(s), io->stream>>>(s, (const T *)io->x, (const T *)io->w,
                                                                           (const T *)io->b, problem->relu, (T *)io->y);
}

void lk__cuda_stem(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    stem_shape s = shape_of(problem);
    choose_rows(&s, problem->n);
    if (problem->values == LK_DTYPE_F32)
        (s.columns == 32 ? forward<float, 32> : forward<float, 64>)(s, problem, io);
    else
        (s.columns == 32 ? forward<lk_bf16, 32> : forward<lk_bf16, 64>)(s, problem, io);
    lk__cuda_launched(io->dev, "convolution of few channels by tensor cores");
}
