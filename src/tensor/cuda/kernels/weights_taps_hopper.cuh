/* weights_taps_hopper.cuh - the kernel of weights_taps_hopper.cu. For nvcc only, and for sm_90a only.
 *
 * A tile is 64 output channels by all nine taps of CHANNELS channels of x. One block for each multiprocessor takes
 * tiles, one after the other. It walks down strips: a strip is a part of an image, at most 32 pixels wide and as high
 * as the image, and a band is one, two or four of its rows. Three warpgroups have a row of the window each. Their
 * products take dy from registers and x from shared memory, in lines of eight pixels of a channel, as wgmma reads tf32
 * only in lines of k. One warp starts copies: bands of x, with the pixels around them, and bands of dy. Three warps
 * write the lines. A band of x is copied and written once for a strip, and all rows of dy that need it are multiplied
 * with it. Pixels outside of x or dy are zero.
 *
 * A line is two units of four pixels, those with even and those with odd numbers in the eight. Moved by one pixel, to
 * the next tap, the odd ones become the even ones: there are four units for three taps, and unit i is the even half of
 * tap i and the odd half of tap i - 1.
 *
 * A pixel outside of dy is a factor of 0, so a value of x that is not finite may also reach other taps of its channel
 * in the same leaf. */
#ifndef LK_TENSOR_CUDA_KERNELS_WEIGHTS_TAPS_HOPPER_CUH
#define LK_TENSOR_CUDA_KERNELS_WEIGHTS_TAPS_HOPPER_CUH

#include "tensor/cuda/kernels/weights_strips.cuh"

/* UNITS: units of an eight in lines. UNIT: bytes of four pixels of a channel. Y_ROW: bytes of a row of a box of dy,
 * which has 32 channels. */
enum { UNITS = WINDOW + 1, UNIT = 16, Y_ROW = 128, X_ALIGN = 128 };

/* Warps that write lines. */
enum { WRITERS = 3 };

/* A band has BAND rows of EIGHTS * 8 pixels. BIASED: dy is summed for the gradient of a bias, and rounded afterwards;
 * otherwise its copies round it, so that the bits of a layer differ with and without a bias. */
template <int EIGHTS_, int BAND_, int CHANNELS_, bool BIASED_>
struct strips_tile {
    enum {
        BIASED = BIASED_,
        EIGHTS = EIGHTS_,
        BAND = BAND_, /* rows */
        CHANNELS = CHANNELS_,
        ALL_EIGHTS = EIGHTS * BAND,
        AHEAD = (WINDOW - 1 + BAND - 1) / BAND, /* a band of dy needs that band of x and AHEAD further ones */
        PIXELS = EIGHTS * EIGHT,                /* of a row */
        N = WINDOW * CHANNELS,                  /* columns of a product */
        UNIT_BYTES = CHANNELS * UNIT,           /* a unit of all channels */
        EIGHT_BYTES = UNITS * UNIT_BYTES,       /* of lines */
        LINES_BYTES = ALL_EIGHTS * EIGHT_BYTES, /* a slot: the lines of a band of x */
        BOX_BYTES = BAND * PIXELS * Y_ROW,
        Y_BYTES = ROWS / 32 * BOX_BYTES, /* a slot: a band of dy */
        X_ROW = (PIXELS + WINDOW - 1) * CHANNELS * 4,
        X_COPY = BAND * X_ROW,
        X_BYTES = (X_COPY + X_ALIGN - 1) / X_ALIGN * X_ALIGN, /* a slot: a band of x */
        X_SLOTS = 6,
        Y_SLOTS = 4,
        LINE_SLOTS = 6,
        BARRIER_BYTES = 256,
        BYTES = ALIGN + Y_SLOTS * Y_BYTES + LINE_SLOTS * LINES_BYTES + X_SLOTS * X_BYTES + BARRIER_BYTES,
        THREADS = (1 + WINDOW) * GROUP,
        FIRST_EIGHTS = (ALL_EIGHTS + 1) / 2 /* whose factors are read together */
    };
};

/* Shared memory: slots of dy, of lines, of x; then barriers, full and empty, of each slot. */
template <class P>
struct strips_memory {
    uint32_t base;

    __device__ __forceinline__ explicit strips_memory(const char *raw)
    {
        base = (shared_at(raw) + ALIGN - 1) & ~(uint32_t)(ALIGN - 1);
    }

    __device__ __forceinline__ uint32_t y(int i) const
    {
        return base + (uint32_t)i * P::Y_BYTES;
    }

    __device__ __forceinline__ uint32_t lines(int i) const
    {
        return y(P::Y_SLOTS) + (uint32_t)i * P::LINES_BYTES;
    }

    __device__ __forceinline__ uint32_t x(int i) const
    {
        return lines(P::LINE_SLOTS) + (uint32_t)i * P::X_BYTES;
    }

    __device__ __forceinline__ uint32_t y_full(int i) const
    {
        return x(P::X_SLOTS) + (uint32_t)i * 16;
    }

    __device__ __forceinline__ uint32_t y_empty(int i) const
    {
        return y_full(i) + 8;
    }

    __device__ __forceinline__ uint32_t lines_full(int i) const
    {
        return y_full(P::Y_SLOTS + i);
    }

    __device__ __forceinline__ uint32_t lines_empty(int i) const
    {
        return lines_full(i) + 8;
    }

    __device__ __forceinline__ uint32_t x_full(int i) const
    {
        return y_full(P::Y_SLOTS + P::LINE_SLOTS + i);
    }

    __device__ __forceinline__ uint32_t x_empty(int i) const
    {
        return x_full(i) + 8;
    }

    /* By one thread. */
    __device__ __forceinline__ void init_barriers() const
    {
        enum { MULTIPLIERS = WINDOW * GROUP / 32 };
        for (int i = 0; i < P::Y_SLOTS; i++) {
            barrier_init(y_full(i), ROWS / 32);
            barrier_init(y_empty(i), MULTIPLIERS);
        }
        for (int i = 0; i < P::LINE_SLOTS; i++) {
            barrier_init(lines_full(i), 1);
            barrier_init(lines_empty(i), MULTIPLIERS);
        }
        for (int i = 0; i < P::X_SLOTS; i++) {
            barrier_init(x_full(i), 1);
            barrier_init(x_empty(i), 1);
        }
        barriers_publish();
    }
};

/* The first band of x, counted from the one with this band's number, that was not copied for the band above. */
template <class P>
static __device__ __forceinline__ int first_new(const strips_band &at, bool first)
{
    return first || at.band == 0 ? 0 : P::AHEAD;
}

/* Starts copies; by a warp, whose lanes wait together. */
template <class P>
static __device__ __forceinline__ void copy_all(const strips_shape &s, const lk_cuda_leaves &leaves,
                                                const strips_maps &maps, const strips_memory<P> &memory)
{
    int lane = lk__cuda_lane();
    ring_position x = {0, 1}, y = {0, 1};
    strips_work work;
    for (int job = (int)blockIdx.x; job < s.jobs; job += (int)gridDim.x) {
        if (!work.take(s, leaves, P::CHANNELS, job))
            continue;
        strips_band at(s, work.begin);
        for (uint32_t i = work.begin; i < work.end; i++, at.advance(s)) {
            int left = at.strip * P::PIXELS;
            for (int j = first_new<P>(at, i == work.begin); j <= P::AHEAD; j++) {
                barrier_wait(memory.x_empty(x.slot), x.phase);
                if (lane == 0) {
                    barrier_expect(memory.x_full(x.slot), P::X_COPY);
                    copy_image(memory.x(x.slot), &maps.x, memory.x_full(x.slot), work.c0, left - s.pad_w,
                               (at.band + j) * P::BAND - s.pad_h, at.n);
                }
                __syncwarp();
                x.template advance<P::X_SLOTS>();
            }
            barrier_wait(memory.y_empty(y.slot), y.phase);
            if (lane < ROWS / 32) {
                barrier_expect(memory.y_full(y.slot), P::BOX_BYTES);
                copy_image(memory.y(y.slot) + lane * P::BOX_BYTES, &maps.y, memory.y_full(y.slot), work.m0 + lane * 32,
                           left, at.band * P::BAND, at.n);
            }
            __syncwarp();
            y.template advance<P::Y_SLOTS>();
        }
    }
}

/* The channel of a column of lines, in its 16: a thread's sums of two neighbouring eights of columns, see wgmma_add,
 * are four neighbouring channels. */
static __device__ __forceinline__ int channel_of_column(int column)
{
    return column / 16 * 16 + column % 8 / 2 * 4 + column / 8 % 2 * 2 + column % 2;
}

/* Writes the lines of a band of x; by a warp. */
template <class P>
struct lines_writer {
    enum { PIXEL = P::CHANNELS * 4, HALVES = P::CHANNELS / 32 }; /* HALVES: 32 channels each, one for each lane */
    uint32_t from, to;                                           /* of the lane in the first half */

    __device__ __forceinline__ lines_writer(uint32_t x, uint32_t lines)
        : from(x + channel_of_column(lk__cuda_lane()) * 4), to(lines + lk__cuda_lane() * UNIT)
    {
    }

    /* Eight pixels, and their neighbours on the right. */
    __device__ __forceinline__ void read(int eight, int half, float (&v)[EIGHT + WINDOW - 1]) const
    {
        uint32_t at = from + (uint32_t)(eight / P::EIGHTS * P::X_ROW + eight % P::EIGHTS * EIGHT * PIXEL + half * 128);
#pragma unroll
        for (int i = 0; i < EIGHT + WINDOW - 1; i++)
            v[i] = load_shared(at + (uint32_t)(i * PIXEL));
    }

    __device__ __forceinline__ void write(int eight, int half, const float (&v)[EIGHT + WINDOW - 1]) const
    {
        uint32_t at = to + (uint32_t)(eight * P::EIGHT_BYTES + half * 32 * UNIT);
#pragma unroll
        for (int unit = 0; unit < UNITS; unit++)
            store_unit(at + unit * P::UNIT_BYTES,
                       make_uint4(__float_as_uint(v[unit]), __float_as_uint(v[unit + 2]), __float_as_uint(v[unit + 4]),
                                  __float_as_uint(v[unit + 6])));
    }

    __device__ __forceinline__ void run() const
    {
        float v[HALVES][EIGHT + WINDOW - 1];
#pragma unroll
        for (int eight = 0; eight < P::ALL_EIGHTS; eight++) {
#pragma unroll
            for (int half = 0; half < HALVES; half++)
                read(eight, half, v[half]);
#pragma unroll
            for (int half = 0; half < HALVES; half++)
                write(eight, half, v[half]);
        }
    }
};

/* The warps that write lines take bands of x in turns. A barrier shows only the parity of its phase, so a warp must not
 * fall two phases behind it. A slot of x always has the same warp. Before a warp takes band b, it has taken band
 * b - WRITERS, whose slot of lines was free: all bands that had that slot before have been multiplied. */
template <class P>
static __device__ __forceinline__ void write_all(const strips_shape &s, const lk_cuda_leaves &leaves,
                                                 const strips_memory<P> &memory, int writer)
{
    ring_position x = {0, 0}, lines = {0, 1};
    int turn = 0;
    strips_work work;
    for (int job = (int)blockIdx.x; job < s.jobs; job += (int)gridDim.x) {
        if (!work.take(s, leaves, P::CHANNELS, job))
            continue;
        strips_band at(s, work.begin);
        for (uint32_t i = work.begin; i < work.end; i++, at.advance(s))
            for (int j = first_new<P>(at, i == work.begin); j <= P::AHEAD; j++) {
                if (turn == writer) {
                    barrier_wait(memory.x_full(x.slot), x.phase);
                    barrier_wait(memory.lines_empty(lines.slot), lines.phase);
                    lines_writer<P>(memory.x(x.slot), memory.lines(lines.slot)).run();
                    shared_publish();
                    release(memory.lines_full(lines.slot));
                    release(memory.x_empty(x.slot));
                }
                turn = turn + 1 < WRITERS ? turn + 1 : 0;
                x.template advance<P::X_SLOTS>();
                lines.template advance<P::LINE_SLOTS>();
            }
    }
}

/* The lines of an eight as an operand of all taps of a row: units of eight columns are contiguous, taps follow each
 * other by a unit of all channels, and so do the halves of k. */
template <class P>
static __device__ __forceinline__ uint64_t units_at(uint32_t at)
{
    uint64_t next_half = (uint64_t)(P::UNIT_BYTES >> 4) << 16, next_columns = (uint64_t)(8 * UNIT >> 4) << 32;
    return (uint64_t)((at & 0x3ffff) >> 4) | next_half | next_columns;
}

/* The sums of a warpgroup: 64 output channels by the taps of a row of the window. Rows i and i + 8 of each 16 are
 * neighbouring channels. */
template <class P>
struct strips_product {
    const strips_memory<P> &memory;
    int tap_row;
    ring_position y, lines; /* lines: of the last band of x that has arrived, and the next one */
    int oldest;             /* slot of the first band of x of this band of dy */
    int y_before;           /* slot of the band of dy before, whose products may be incomplete */
    int kept, done;         /* the oldest slot of lines that is not released; slots to release after the products */
    uint32_t y_offset;      /* of the first pixel of the thread, in a slot */
    bool sums;              /* whether dy is summed; only if BIASED */
    float acc[P::N / 2], bias[2];

    __device__ __forceinline__ strips_product(const strips_memory<P> &memory_, int tap_row_)
        : memory(memory_), tap_row(tap_row_), y{0, 0}, lines{0, 0}, oldest(0), kept(0)
    {
        int warp = (int)threadIdx.x % GROUP / 32, lane = lk__cuda_lane();
        int unit = warp % 2 * 4 + lane / 8, pixel = lane % 4 * 2;
        y_offset = warp / 2 * P::BOX_BYTES + pixel * Y_ROW + (unit ^ pixel) * UNIT + lane / 4 % 2 * 8;
    }

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < P::N / 2; i++)
            acc[i] = 0.0f;
        bias[0] = bias[1] = 0.0f;
    }

    /* `count` slots behind `slot`. */
    static __device__ __forceinline__ int behind(int slot, int count)
    {
        return slot + count < P::LINE_SLOTS ? slot + count : slot + count - P::LINE_SLOTS;
    }

    /* The factors of pixels 2 * (lane % 4) and the next one of an eight, of two channels each. */
    __device__ __forceinline__ void read(uint32_t slot, int eight, uint32_t (&a)[4])
    {
        uint32_t at = slot + y_offset + eight * EIGHT * Y_ROW;
        float even[2], odd[2];
        load_shared(even, at);
        load_shared(odd, (at ^ UNIT) + Y_ROW);
#pragma unroll
        for (int e = 0; e < 2; e++) {
            if (P::BIASED && sums)
                bias[e] += even[e] + odd[e];
            a[e] = P::BIASED ? nudge_finite(even[e]) : __float_as_uint(even[e]);
            a[2 + e] = P::BIASED ? nudge_finite(odd[e]) : __float_as_uint(odd[e]);
        }
    }

    /* The lines that an eight is multiplied with: those of the row of x that is tap_row below. */
    __device__ __forceinline__ uint64_t lines_of(int eight) const
    {
        int row = eight / P::EIGHTS + tap_row, slot = behind(oldest, row / P::BAND);
        return units_at<P>(memory.lines(slot) +
                           (uint32_t)((row % P::BAND * P::EIGHTS + eight % P::EIGHTS) * P::EIGHT_BYTES));
    }

    /* Starts the products of eights [FROM, TO) of a band. Those started before are complete afterwards. */
    template <int FROM, int TO>
    __device__ __forceinline__ void add()
    {
        uint32_t a[TO - FROM][4];
#pragma unroll
        for (int i = FROM; i < TO; i++)
            read(memory.y(y.slot), i, a[i - FROM]);
        wgmma_begin();
#pragma unroll
        for (int i = FROM; i < TO; i++)
            wgmma_add_tf32<P::N>(acc, a[i - FROM], lines_of(i), true);
        wgmma_commit();
        wgmma_wait<1>();
    }

    /* After the products of the band of dy before. */
    __device__ __forceinline__ void release_before()
    {
        release(memory.y_empty(y_before));
        for (; done > 0; done--) {
            release(memory.lines_empty(kept));
            kept = behind(kept, 1);
        }
    }

    /* A band of dy, with as many new bands of x. */
    __device__ __forceinline__ void add_band(int fresh, bool first)
    {
        for (; fresh > 0; fresh--) {
            barrier_wait(memory.lines_full(lines.slot), lines.phase);
            lines.template advance<P::LINE_SLOTS>();
        }
        barrier_wait(memory.y_full(y.slot), y.phase);
        add<0, P::FIRST_EIGHTS>();
        if (!first)
            release_before();
        add<P::FIRST_EIGHTS, P::ALL_EIGHTS>();
        y_before = y.slot;
        y.template advance<P::Y_SLOTS>();
    }

    /* Bands of a part. */
    __device__ __forceinline__ void add_all(const strips_shape &s, const strips_work &work)
    {
        strips_band at(s, work.begin);
        clear();
#pragma unroll 1
        for (uint32_t i = work.begin; i < work.end; i++, at.advance(s)) {
            bool last = i + 1 == work.end || at.band + 1 == s.bands;
            add_band(P::AHEAD + 1 - first_new<P>(at, i == work.begin), i == work.begin);
            done = last ? P::AHEAD + 1 : 1;
            oldest = behind(oldest, done);
        }
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < P::N / 2; i++)
            asm volatile("" : "+f"(acc[i])::"memory");
        if (work.begin < work.end)
            release_before();
    }

    __device__ __forceinline__ void write(const strips_shape &s, const strips_work &work, const lk_cuda_rows &out) const
    {
        int warp = (int)threadIdx.x % GROUP / 32, lane = lk__cuda_lane();
        int m = work.m0 + warp * 16 + lane / 4 * 2, c = work.c0 + lane % 4 * 4;
        size_t width = (size_t)WINDOW * WINDOW * (size_t)s.c;
        float *to = out.weights + (size_t)work.row * out.row + (size_t)m * width + tap_row * WINDOW * s.c + c;
#pragma unroll
        for (int tap = 0; tap < WINDOW; tap++)
#pragma unroll
            for (int i = 0; i < P::CHANNELS; i += 16) {
                const float *sum = acc + (tap * P::CHANNELS + i) / 2; /* of eight columns, then of the next eight */
                float *at = to + tap * s.c + i;
                if (c + i >= s.c || m >= s.k)
                    continue;
                *(float4 *)at = make_float4(sum[0], sum[1], sum[4], sum[5]);
                *(float4 *)(at + width) = make_float4(sum[2], sum[3], sum[6], sum[7]);
            }
    }

    /* Adds the pixels of four lanes. */
    __device__ __forceinline__ void write_bias(const strips_shape &s, const strips_work &work, const lk_cuda_rows &out)
    {
        int m = work.m0 + (int)threadIdx.x % GROUP / 32 * 16 + lk__cuda_lane() / 4 * 2;
#pragma unroll
        for (int e = 0; e < 2; e++)
#pragma unroll
            for (int step = 1; step < 4; step *= 2)
                bias[e] += __shfl_xor_sync(~0u, bias[e], step);
        if (lk__cuda_lane() % 4 == 0 && m < s.k)
            *(float2 *)(out.bias + (size_t)work.row * out.row + m) = make_float2(bias[0], bias[1]);
    }
};

template <class P>
static __device__ __forceinline__ void multiply_all(const strips_shape &s, const lk_cuda_leaves &leaves,
                                                    const strips_memory<P> &memory, const lk_cuda_rows &out,
                                                    int tap_row)
{
    strips_product<P> product(memory, tap_row);
    strips_work work;
    for (int job = (int)blockIdx.x; job < s.jobs; job += (int)gridDim.x) {
        if (!work.take(s, leaves, P::CHANNELS, job))
            continue;
        product.sums = tap_row == 0 && work.c0 == 0;
        product.add_all(s, work);
        product.write(s, work, out);
        if (P::BIASED && product.sums)
            product.write_bias(s, work, out);
    }
}

template <class P>
static __global__ void __launch_bounds__(P::THREADS, 1)
    strips_products(const __grid_constant__ strips_shape s, const __grid_constant__ lk_cuda_leaves leaves,
                    const __grid_constant__ strips_maps maps, const __grid_constant__ lk_cuda_rows out)
{
    static_assert(P::BYTES <= 227 * 1024, "slots fit into shared memory");
    static_assert(16 * (P::Y_SLOTS + P::LINE_SLOTS + P::X_SLOTS) <= P::BARRIER_BYTES, "barriers fit behind the slots");
    static_assert(P::X_SLOTS % WRITERS == 0 && P::LINE_SLOTS >= WRITERS, "see write_all");
    static_assert(P::LINE_SLOTS >= 2 * (P::AHEAD + 1), "the first band of a strip waits before the last one's release");
    extern __shared__ char raw[];
    strips_memory<P> memory(raw);
    if (threadIdx.x == 0)
        memory.init_barriers();
    lk__cuda_await_alone();
    __syncthreads();
    int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0), group = warp / (GROUP / 32); /* uniform for the compiler */
    if (group == 0) {
        registers_shrink<56>();
        if (warp > 0)
            write_all<P>(s, leaves, memory, warp - 1);
        else
            copy_all<P>(s, leaves, maps, memory);
    } else {
        registers_grow<152>();
        multiply_all<P>(s, leaves, memory, out, group - 1);
    }
}

#endif
