/* conv2d_fp32.cuh - the kernel of conv2d_fp32.cu, for one class of pixels. For nvcc only.
 *
 * A block copies chunks of steps of its sums to shared memory, asynchronously. A step is a line of rows and a line of
 * columns there, as fma_order.cuh wants them: copies of the source, and of the weights in a forward pass, transpose, so
 * they are of single floats. Lines have four floats more than rows or columns, so that a warp's copies of eight steps
 * go to different banks.
 *
 * Input gradients of few columns have too few products to hide so many copies. Tiles BY_ROW copy 16 bytes of the source
 * at once: a row of a chunk is a line of four units of 16 bytes, which are exchanged by bits 3 and 4 of the row, so
 * that the lanes of a warp read different banks. */
#ifndef LK_TENSOR_CUDA_KERNELS_CONV2D_FP32_CUH
#define LK_TENSOR_CUDA_KERNELS_CONV2D_FP32_CUH

#include "tensor/cuda/kernels/fma_order.cuh"
#include "tensor/cuda/kernels/mma.cuh"
#include "tensor/cuda/kernels/vec4.cuh"

enum { GROUP = 8, QUADS = GROUP / QUAD }; /* steps that are added without a branch, and fours of them */
enum { MOST_TAPS = 15 };                  /* along an axis, of an EVEN tile */
enum : unsigned { NO_TAP = 1u << 31 };
enum { MOST_SIDE = 1 << 14 };      /* of an image, and of what a window covers */
enum { OUTSIDE = -2 * MOST_SIDE }; /* a coordinate from which no tap reaches the image */
enum : unsigned { NO_PIXEL = ~0u };

/* One axis of a class of pixels of the result. Pixel i of the class is pixel first + i * step of the result. Its tap j
 * is tap tap + j * tap_step of the window, and reads pixel i * in_stride + in_first + j * in_step of the source. */
typedef struct conv_axis {
    int first, step, outs;
    int taps, tap, tap_step;
    int in_first, in_stride, in_step, ins;
} conv_axis;

/* A class of pixels. Channels include pads. */
typedef struct conv_class {
    conv_axis h, w;
    unsigned rows;      /* pixels of all samples */
    int height, width;  /* of the result */
    int columns;        /* channels of the result */
    int depth;          /* steps of a sum */
    int kernel_w, taps; /* of the weights */
    divisor channels;   /* of the source */
    divisor row_taps;   /* taps of a row of the class's window */
    divisor row, image; /* pixels of the class in a row and in a sample */
    unsigned zero;      /* 0 */
} conv_class;

/* Where a row of the product begins: `at` is the number, in all samples, of the pixel of the source that its first tap
 * reads, inside of the image or not. In EVEN tiles bit j of `place` is set if tap j along h reads a pixel outside of
 * the image, bit MOST_TAPS + j if tap j along w does, and NO_TAP always. In others `place` has the pixel's coordinates,
 * 16 bits each. */
struct __align__(8) source_row
{
    int at;
    unsigned place;
};

/* A block of THREADS computes M rows by N columns. A warp has LANES lanes along columns; a thread computes TM rows by
 * TN columns, in fours of rows, which are APART rows from each other, and of columns. EVEN: the source's channels are a
 * multiple of CHUNK, all pitches of four, and windows have at most MOST_TAPS taps along an axis. */
template <int M_, int N_, int TM_, int TN_, int LANES_, int WARPS_, int CHUNK_, int SLOTS_, bool FORWARD_, bool EVEN_>
struct conv_tile {
    enum {
        M = M_,
        N = N_,
        TM = TM_,
        TN = TN_,
        LANES = LANES_,
        FORWARD = FORWARD_,
        EVEN = EVEN_,
        CHUNK = EVEN ? CHUNK_ : GROUP, /* steps that are copied between two barriers */
        SLOTS = EVEN ? SLOTS_ : 4,     /* chunks in shared memory */
        PIECES = CHUNK / GROUP,
        BY_ROW = EVEN && !FORWARD && LANES == 4,
        DOWN = LK_WARP / LANES, /* lanes along rows */
        WM = TM * DOWN,         /* rows and columns of a warp */
        WN = TN * LANES,
        THREADS = M / WM * (N / WN) * LK_WARP,
        MOST_WARPS = EVEN        ? 64
                     : M > 2 * N ? 8
                                 : 12, /* others need more registers */
        WARPS = WARPS_ < MOST_WARPS ? WARPS_ : MOST_WARPS,
        BLOCKS = WARPS * LK_WARP / THREADS, /* of a multiprocessor */
        APART = BY_ROW ? 2 : 1,
        IN_LINE = BY_ROW ? M : M + 4, /* floats of a step */
        WEIGHT_LINE = N + 4,
        SLOT = CHUNK * (IN_LINE + WEIGHT_LINE), /* floats */
        BYTES = SLOTS * SLOT * 4 + M * (int)(sizeof(source_row) + sizeof(unsigned))
    };
    static_assert(THREADS % LK_WARP == 0 && CHUNK % GROUP == 0, "whole warps and groups");
    static_assert(!BY_ROW || CHUNK == 4 * QUAD, "lines of four units");

    /* The lane's place along columns, and along rows. Lanes i and i ^ 1 have the same row, and i and i ^ 2 the same
     * column: shared memory then serves 16 lanes that read 16 bytes each at once. */
    static __device__ __forceinline__ int across()
    {
        int lane = lk__cuda_lane();
        return lane % 2 + lane / 4 % (LANES / 2) * 2;
    }

    static __device__ __forceinline__ int down()
    {
        int lane = lk__cuda_lane();
        return lane / 2 % 2 + lane / (2 * LANES) * 2;
    }

    static __device__ __forceinline__ int first_row()
    {
        int warp = (int)threadIdx.x / LK_WARP;
        return warp / (N / WN) * WM + (BY_ROW ? down() % 2 + down() / 2 * 2 * QUAD : down() * QUAD);
    }

    /* The thread's row i, from its first one on. */
    static __device__ __forceinline__ int row(int i)
    {
        return i / QUAD * QUAD * DOWN + i % QUAD * APART;
    }

    static __device__ __forceinline__ int first_column()
    {
        int warp = (int)threadIdx.x / LK_WARP;
        return warp % (N / WN) * WN + across() * QUAD;
    }
};

/* A pixel of a class: its sample and its place in the class. */
struct class_pixel {
    unsigned n;
    int i, j;

    __device__ __forceinline__ class_pixel(const conv_class &s, unsigned row)
    {
        n = quotient(row, s.image);
        unsigned rest = row - n * s.image.by, line = quotient(rest, s.row);
        i = (int)line;
        j = (int)(rest - line * s.row.by);
    }
};

/* The taps of an axis that read a pixel outside of the image, if the first one reads pixel `first`. */
static __device__ __forceinline__ unsigned outside_taps(const conv_axis &axis, int first)
{
    unsigned bits = 0;
    for (int j = 0; j < axis.taps; j++)
        bits |= (unsigned)((unsigned)(first + j * axis.in_step) >= (unsigned)axis.ins) << j;
    return bits;
}

/* What a block knows about its rows: where they come from and the pixel of the result that they become. */
template <class P>
static __device__ __forceinline__ void share_rows(const conv_class &s, unsigned m0, source_row *rows, unsigned *pixels)
{
    for (int i = (int)threadIdx.x; i < P::M; i += P::THREADS) {
        source_row row = {0, P::EVEN ? ~0u : (unsigned)OUTSIDE << 16};
        unsigned to = NO_PIXEL;
        if (m0 + i < s.rows) {
            class_pixel pixel(s, m0 + i);
            int h = pixel.i * s.h.in_stride + s.h.in_first, w = pixel.j * s.w.in_stride + s.w.in_first;
            row.at = ((int)pixel.n * s.h.ins + h) * s.w.ins + w;
            row.place = P::EVEN ? outside_taps(s.h, h) | outside_taps(s.w, w) << MOST_TAPS | NO_TAP
                                : (unsigned)h << 16 | ((unsigned)w & 0xffffu);
            unsigned line = pixel.n * (unsigned)s.height + (unsigned)(s.h.first + pixel.i * s.h.step);
            to = line * (unsigned)s.width + (unsigned)(s.w.first + pixel.j * s.w.step);
        }
        rows[i] = row;
        pixels[i] = to;
    }
}

/* Copies VEC floats to shared memory, or writes zeros there; then `from` is not read. */
template <int VEC>
static __device__ __forceinline__ void copy_floats(uint32_t to, const float *from, bool outside)
{
    if constexpr (VEC == QUAD)
        copy_quad(to, from, outside);
    else
        asm volatile(
            "{.reg .pred none; setp.ne.b32 none, %2, 0; cp.async.ca.shared.global [%0], [%1], 4, none;}" ::"r"(to),
            "l"(from), "r"((int)outside));
}

/* A step of the sums: its channel of the source, and the row and column of its tap in the class. */
struct sum_step {
    int r, t, channel;

    __device__ __forceinline__ sum_step(const conv_class &s, int step)
    {
        unsigned tap = quotient((unsigned)step, s.channels), row = quotient(tap, s.row_taps);
        channel = step - (int)(tap * s.channels.by);
        r = (int)row;
        t = (int)(tap - row * s.row_taps.by);
    }

    /* The line of the weights of an input gradient. */
    __device__ __forceinline__ int line(const conv_class &s) const
    {
        return channel * s.taps + (s.h.tap + r * s.h.tap_step) * s.kernel_w + s.w.tap + t * s.w.tap_step;
    }
};

/* Copies a chunk in PIECES pieces. A thread copies step threadIdx.x % GROUP of every group, or BY_ROW, unit
 * threadIdx.x % QUAD of a row; all steps of a chunk of an EVEN tile have the same tap. */
template <class P>
struct chunk_loader {
    enum {
        EACH = P::BY_ROW ? (int)QUAD : (int)GROUP, /* threads that copy a row */
        STEP = P::THREADS / EACH,                  /* rows from one copy of a thread to its next */
        ROWS = P::M / STEP,
        COLUMNS = P::N / STEP,
        ROWS_AT_ONCE = ROWS / P::PIECES,
        VEC = P::EVEN ? QUAD : 1,   /* floats of a copy of the weights of an input gradient */
        UNITS = P::N / VEC,         /* of a step */
        LINES = P::THREADS / UNITS, /* steps from one such copy to the next */
        COPIES = P::CHUNK / LINES < 1 ? 1 : P::CHUNK / LINES,
        WEIGHTS_AT_ONCE = ((P::FORWARD ? COLUMNS : COPIES) + P::PIECES - 1) / P::PIECES
    };
    static_assert(ROWS % P::PIECES == 0 && P::THREADS % UNITS == 0, "all pieces are alike");
    static_assert(!P::BY_ROW || (STEP == 16 && ROWS_AT_ONCE % 2 == 0), "bit 4 of row i of a piece is i % 2");

    const source_row *rows; /* the thread's first one */
    const float *in, *from; /* the source, and its row 0 for the thread's steps of the chunk */
    const float *weights;   /* the thread's first copy of the chunk */
    uint32_t to, to_weights, slot;
    int first, line; /* step of the chunk, and for input gradients, the line of the lane's step */
    unsigned taps;   /* NO_TAP behind the end of the sums; else, if EVEN, the bits of the tap in a source_row */
    int h, w;        /* otherwise: the tap's place */
    int left;        /* channels of the tap, from the chunk's first one on; only used BY_ROW */
    int columns;     /* from the thread's first one on */

    static __device__ __forceinline__ int step()
    {
        return (int)threadIdx.x % GROUP;
    }

    __device__ __forceinline__ void start(const conv_class &s, const float *in_, const float *weights_,
                                          const source_row *rows_, int n0, uint32_t memory)
    {
        int mine = (int)threadIdx.x / EACH, unit = (int)threadIdx.x % UNITS * VEC, own = (int)threadIdx.x / UNITS;
        int part = (int)threadIdx.x % EACH;
        rows = rows_ + mine;
        in = in_ + (P::BY_ROW ? part * QUAD : P::EVEN ? part : 0);
        to = memory + (uint32_t)(P::BY_ROW ? mine * P::CHUNK + (part ^ mine / 8) * QUAD : part * P::IN_LINE + mine) * 4;
        to_weights = memory + (uint32_t)P::CHUNK * P::IN_LINE * 4;
        if constexpr (P::FORWARD) {
            columns = s.columns - n0 - mine;
            weights = moved_by(weights_ + step(), n0 + mine, s.depth * 4);
            to_weights += (uint32_t)(step() * P::WEIGHT_LINE + mine) * 4;
        } else {
            columns = s.columns - n0 - unit;
            weights = weights_ + n0 + unit;
            to_weights += (uint32_t)(own * P::WEIGHT_LINE + unit) * 4;
        }
        slot = 0;
        enter(s, 0);
    }

    /* Begins the chunk whose first step is `first_`; behind the end of the sums its steps are zero. */
    __device__ __forceinline__ void enter(const conv_class &s, int first_)
    {
        first = first_;
        int own = P::EVEN ? first : first + step();
        sum_step at(s, own);
        h = at.r * s.h.in_step;
        w = at.t * s.w.in_step;
        from = moved_by(in + at.channel, h * s.w.ins + w, (int)s.channels.by * 4);
        taps = own >= s.depth ? NO_TAP : P::EVEN ? 1u << at.r | 1u << (MOST_TAPS + at.t) : 0;
        line = at.line(s);
        left = (int)s.channels.by - at.channel;
    }

    __device__ __forceinline__ bool is_outside(const conv_class &s, unsigned place) const
    {
        if constexpr (P::EVEN)
            return (place & taps) != 0;
        unsigned height = taps == NO_TAP ? 0 : (unsigned)s.h.ins;
        return ((unsigned)(((int)place >> 16) + h) >= height) | ((unsigned)((short)place + w) >= (unsigned)s.w.ins);
    }

    /* What it needs of the rows of a piece. */
    __device__ __forceinline__ void read_rows(int piece, int2 (&row)[ROWS_AT_ONCE]) const
    {
#pragma unroll
        for (int i = 0; i < ROWS_AT_ONCE; i++)
            row[i] = *(const int2 *)(rows + (piece * ROWS_AT_ONCE + i) * STEP);
    }

    __device__ __forceinline__ void copy_row(const conv_class &s, int piece, int i, int2 row) const
    {
        const float *pixel = moved_by(from, row.x, (int)s.channels.by * 4);
        bool outside = is_outside(s, (unsigned)row.y);
        int before = (piece * ROWS_AT_ONCE + i) * STEP;
        if constexpr (P::BY_ROW) {
            copy_floats<QUAD>((to ^ i % 2 * 2 * QUAD * 4) + slot + (uint32_t)(before * P::CHUNK) * 4, pixel, outside);
            return;
        }
        uint32_t at = to + slot + (uint32_t)before * 4;
#pragma unroll
        for (int group = 0; group < P::PIECES; group++)
            copy_floats<1>(at + group * GROUP * P::IN_LINE * 4, pixel + group * GROUP, outside);
    }

    /* Columns of a forward pass: steps are contiguous in the weights. */
    __device__ __forceinline__ void copy_columns(const conv_class &s, int piece, int i) const
    {
        int column = (piece * WEIGHTS_AT_ONCE + i) * STEP;
        if (COLUMNS % P::PIECES != 0 && column >= P::N)
            return;
        const float *begin = moved_by(weights + first, column, s.depth * 4);
        bool outside = (first + (P::EVEN ? 0 : step()) >= s.depth) | (column >= columns);
#pragma unroll
        for (int group = 0; group < P::PIECES; group++)
            copy_floats<1>(to_weights + slot + (uint32_t)(column + group * GROUP * P::WEIGHT_LINE) * 4,
                           begin + group * GROUP, outside);
    }

    /* Steps of an input gradient: columns are channels of x, which are contiguous in the weights. */
    __device__ __forceinline__ void copy_steps(const conv_class &s, int piece, int i) const
    {
        int own = (int)threadIdx.x / UNITS, step = (piece * WEIGHTS_AT_ONCE + i) * LINES;
        if ((COPIES % P::PIECES != 0 && step >= P::CHUNK) || (P::CHUNK % LINES != 0 && own >= P::CHUNK))
            return;
        int at = P::EVEN ? line + (own + step) * s.taps : __shfl_sync(~0u, line, own + step);
        copy_floats<VEC>(to_weights + slot + (uint32_t)(step * P::WEIGHT_LINE) * 4,
                         moved_by(weights, at, s.columns * 4), (first + own + step >= s.depth) | (columns <= 0));
    }

    __device__ __forceinline__ void copy_weights(const conv_class &s, int piece, int i) const
    {
        if constexpr (P::FORWARD)
            copy_columns(s, piece, i);
        else
            copy_steps(s, piece, i);
    }

    /* A part of a piece's copies: one for each step of a group but the last one. An instruction that copies behind one
     * that reads shared memory costs some empty ones, so there are two batches only. */
    __device__ __forceinline__ void copy(const conv_class &s, int piece, int part, int2 (&row)[ROWS_AT_ONCE]) const
    {
        if (part == 1)
            read_rows(piece, row);
#pragma unroll
        for (int i = 0; i < ROWS_AT_ONCE && part == 2; i++)
            copy_row(s, piece, i, row[i]);
#pragma unroll
        for (int i = 0; i < WEIGHTS_AT_ONCE && part == 4; i++)
            copy_weights(s, piece, i);
    }

    __device__ __forceinline__ void copy_all(const conv_class &s) const
    {
        int2 row[ROWS_AT_ONCE];
#pragma unroll 1
        for (int piece = 0; piece < P::PIECES; piece++)
#pragma unroll
            for (int part = 0; part < GROUP - 1; part++)
                copy(s, piece, part, row);
    }

    /* Ends the chunk, all pieces of which are copied, and begins the next one. */
    __device__ __forceinline__ void next(const conv_class &s)
    {
        copies_commit();
        slot = slot == (P::SLOTS - 1) * P::SLOT * 4 ? 0 : slot + P::SLOT * 4;
        left -= P::CHUNK;
        if (!P::BY_ROW || left == 0) {
            enter(s, first + P::CHUNK);
            return;
        }
        first += P::CHUNK;
        from += P::CHUNK;
        line += P::CHUNK * s.taps;
    }
};

/* A thread's factors of two steps: one is multiplied while the other one is loaded. BY_ROW, those of four steps of its
 * rows, each of which is loaded again when it has been multiplied by the last one. */
template <class P>
struct fragments {
    enum { STEPS = P::BY_ROW ? 4 : 2 }; /* of rows */

    float a[STEPS][P::TM], b[2][P::TN];

    /* Loads a step of a group, rows only if not BY_ROW; `at` is the thread's place in the line of rows of the group. */
    __device__ __forceinline__ void load(const float *at, const float *weights, int step)
    {
        if constexpr (!P::BY_ROW)
            load_quads<P::TM>(at + step * P::IN_LINE, P::DOWN * QUAD, a[step % STEPS]);
        load_quads<P::TN>(weights + step * P::WEIGHT_LINE, P::LANES * QUAD, b[step % 2]);
    }

    /* BY_ROW: loads unit `unit` of a chunk's rows; `at` is the line of the thread's first row. */
    __device__ __forceinline__ void load_rows(const float *at, int unit)
    {
        const float *from = at + (unit ^ P::down() / 2) * QUAD;
#pragma unroll
        for (int i = 0; i < P::TM; i++) {
            float4 f = *(const float4 *)(from + P::row(i) * P::CHUNK);
            a[0][i] = f.x, a[1][i] = f.y, a[2 % STEPS][i] = f.z, a[3 % STEPS][i] = f.w;
        }
    }

    /* Adds a step of a group. BY_ROW, loads the next rows after the last step of a unit; `unit` is the group's first
     * one, and of the next group after the last step. */
    __device__ __forceinline__ void add(float (&acc)[P::TM][P::TN], int step, const float *at, int unit)
    {
        add_products(acc, a[step % STEPS], b[step % 2]);
        if (P::BY_ROW && step % QUAD == QUAD - 1)
            load_rows(at, step == GROUP - 1 ? unit : unit + 1);
    }
};

/* Computes the sums of a block. The chunk that is SLOTS - 1 chunks ahead is copied in pieces, one with each group. The
 * barrier comes before the last step of a chunk: its factors are in registers already, and the first ones of the next
 * chunk are loaded behind the barrier. */
template <class P>
static __device__ __forceinline__ void add_steps(float (&acc)[P::TM][P::TN], const conv_class &s,
                                                 chunk_loader<P> &loader, const float *memory)
{
    int mine = P::BY_ROW ? P::first_row() * P::CHUNK : P::first_row(), piece = 0;
    int apart = P::CHUNK * P::IN_LINE + P::first_column() - mine;
    const float *begin = memory + mine, *end = begin + P::SLOTS * P::SLOT, *at = begin;
    fragments<P> f;
    for (int i = 0; i < P::SLOTS - 1; i++) {
        loader.copy_all(s);
        loader.next(s);
    }
    copies_wait<P::SLOTS - 2>();
    __syncthreads();
    const float *weights = at + apart;
    f.load(at, weights, 0);
    if constexpr (P::BY_ROW)
        f.load_rows(at, 0);
#pragma unroll 1
    for (int step = 0; step < s.depth; step += GROUP) {
        int2 row[chunk_loader<P>::ROWS_AT_ONCE];
#pragma unroll
        for (int i = 0; i < GROUP - 1; i++) {
            f.load(at, weights, i + 1);
            loader.copy(s, piece, i, row);
            f.add(acc, i, at, piece * QUADS);
        }
        at += P::BY_ROW ? 0 : GROUP * P::IN_LINE;
        weights += GROUP * P::WEIGHT_LINE;
        if (++piece == P::PIECES) {
            piece = 0;
            loader.next(s);
            at += P::BY_ROW ? P::SLOT : P::SLOT - P::CHUNK * P::IN_LINE;
            at = at == end ? begin : at;
            weights = at + apart;
            copies_wait<P::SLOTS - 2>();
            __syncthreads();
        }
        f.load(at, weights, 0);
        f.add(acc, GROUP - 1, at, piece * QUADS);
    }
}

static __device__ __forceinline__ float4 masked(float4 v, float4 mask)
{
    return make_float4(lk__cuda_relu_grad1(mask.x, v.x), lk__cuda_relu_grad1(mask.y, v.y),
                       lk__cuda_relu_grad1(mask.z, v.z), lk__cuda_relu_grad1(mask.w, v.w));
}

/* What happens to a sum before it is written; pointers may be NULL. */
typedef struct conv_end {
    const float *b;    // (columns)
    const float *mask; // as the result, which becomes 0 where the mask is not above 0
    bool relu;
} conv_end;

/* Writes the sums of four columns of a pixel; `pixel` is its first element. */
static __device__ __forceinline__ void write_four(const conv_class &s, float4 v, const conv_end &end, size_t pixel,
                                                  int column, float *out)
{
    if (s.columns % QUAD == 0) {
        if (end.b)
            v = lk__cuda_add4(v, lk__cuda_get4(end.b + column));
        if (end.mask)
            v = masked(v, lk__cuda_get4(end.mask + pixel + column));
        lk__cuda_put4(out + pixel + column, end.relu ? lk__cuda_relu4(v) : v);
    } else {
        const float values[QUAD] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int e = 0; e < QUAD; e++)
            if (column + e < s.columns) {
                float sum = end.b ? values[e] + lk__cuda_get1(end.b + column + e) : values[e];
                if (end.mask)
                    sum = lk__cuda_relu_grad1(lk__cuda_get1(end.mask + pixel + column + e), sum);
                out[pixel + column + e] = end.relu ? lk__cuda_relu1(sum) : sum;
            }
    }
}

template <class P>
static __device__ __forceinline__ void write_tile(const conv_class &s, const float (&acc)[P::TM][P::TN],
                                                  const unsigned *pixels, int n0, const conv_end &end, float *out)
{
#pragma unroll
    for (int i = 0; i < P::TM; i++) {
        unsigned pixel = pixels[P::first_row() + P::row(i)];
        if (pixel == NO_PIXEL)
            break;
        size_t to = (size_t)pixel * (unsigned)s.columns;
#pragma unroll
        for (int j = 0; j < P::TN; j += QUAD) {
            int column = n0 + P::first_column() + j * P::LANES;
            if (column < s.columns)
                write_four(s, loosened(&acc[i][j], s.zero), end, to, column, out);
        }
    }
}

/* in: (n, ins of h, ins of w, channels), weights: (k, taps, c), out: (n, height, width, columns). */
template <class P>
static __global__ void __launch_bounds__(P::THREADS, P::BLOCKS)
    convolve(const __grid_constant__ conv_class s, const __grid_constant__ conv_end end, const float *in,
             const float *weights, float *out)
{
    lk__cuda_await_alone();
    extern __shared__ __align__(1024) float memory[];
    source_row *rows = (source_row *)(memory + P::SLOTS * P::SLOT);
    unsigned *pixels = (unsigned *)(rows + P::M);
    unsigned tiles = (unsigned)(s.columns + P::N - 1) / P::N, m0 = blockIdx.x / tiles * P::M;
    int n0 = (int)(blockIdx.x % tiles) * P::N;
    float acc[P::TM][P::TN];
#pragma unroll
    for (int i = 0; i < P::TM; i++)
#pragma unroll
        for (int j = 0; j < P::TN; j++)
            acc[i][j] = 0.0f;
    share_rows<P>(s, m0, rows, pixels);
    __syncthreads();
    chunk_loader<P> loader;
    loader.start(s, in, weights, rows, n0, shared_at(memory));
    add_steps<P>(acc, s, loader, memory);
    write_tile<P>(s, acc, pixels, n0, end, out);
}

#endif
