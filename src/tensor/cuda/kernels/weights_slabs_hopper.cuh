/* weights_slabs_hopper.cuh - the kernel of weights_slabs_hopper.cu. For nvcc only, and for sm_90a only.
 *
 * A tile is 64 output channels by all nine taps of CHANNELS channels of x. One block for each multiprocessor takes
 * tiles, one after the other. One warp copies bands of strips, up to SLOTS ahead and across tiles: a slab of dy, and a
 * slab of x with the pixels around the band that its windows read. A slab has a line for each pixel, with the channels
 * of the tile. Three warpgroups have a row of the window each, and multiply slabs as they are: in bf16, wgmma reads
 * factors whose rows in shared memory are k. The 16 rows of k of a product are two eights of neighbouring lines, at any
 * distance. Its columns are the channels of x for each tap of the row: those for the next tap are the channels of the
 * next line. So a pixel of x is copied once for all taps, or more than once where bands or strips adjoin.
 *
 * If a bias is wanted, three other warps sum dy: they take the bands of a leaf in turn, and their sums are added at its
 * end. Leaves of a group are folded in registers.
 *
 * A pixel outside of dy is a factor of 0, so a value of x that is not finite may also reach other taps of its channel
 * in the same leaf. */
#ifndef LK_TENSOR_CUDA_KERNELS_WEIGHTS_SLABS_HOPPER_CUH
#define LK_TENSOR_CUDA_KERNELS_WEIGHTS_SLABS_HOPPER_CUH

#include "tensor/cuda/kernels/weights_strips.cuh"

/* LINE: bytes of a line of dy. SUMMERS: warps that sum dy. SHARED: bytes of shared memory that a block can have. */
enum { LINE = 128, SUMMERS = 3, SUMMING = SUMMERS * 32, SHARED = 227 * 1024 };

/* A band has BAND rows of EIGHTS * 8 pixels. The eights of a product are neighbours in a row or, if rows have an odd
 * number of them, in a column. */
template <int EIGHTS_, int BAND_, int CHANNELS_, int LEVELS_>
struct slabs_tile {
    enum {
        EIGHTS = EIGHTS_,
        BAND = BAND_, /* rows */
        CHANNELS = CHANNELS_,
        LEVELS = LEVELS_,             /* 1 << LEVELS leaves are folded in registers */
        ACROSS = EIGHTS % 2 == 0,     /* the eights of a product are neighbours in a row */
        PRODUCTS = EIGHTS * BAND / 2, /* of a band */
        FIRST = 2,                    /* products that are started before the slot of the band before is released */
        PIXELS = EIGHTS * EIGHT,      /* of a row */
        N = WINDOW * CHANNELS,        /* columns of a product */
        X_LINE = CHANNELS * 2,        /* bytes */
        X_ROW = (PIXELS + WINDOW - 1) * X_LINE,
        Y_ROW = PIXELS * LINE,
        X_BYTES = (BAND + WINDOW - 1) * X_ROW,
        Y_BYTES = BAND * Y_ROW,
        X_PAIR = ACROSS ? EIGHT * X_LINE : X_ROW, /* from an eight of a product to the other */
        Y_PAIR = ACROSS ? EIGHT * LINE : Y_ROW,
        SLOT_BYTES = Y_BYTES + (X_BYTES + ALIGN - 1) / ALIGN * ALIGN,
        BARRIER_BYTES = 256,
        SUM_BYTES = SUMMERS * ROWS * 4,
        ROOM = (SHARED - ALIGN - BARRIER_BYTES - SUM_BYTES) / SLOT_BYTES, /* slots that fit */
        SLOTS = ROOM < 8 ? ROOM : 8,
        BYTES = ALIGN + SLOTS * SLOT_BYTES + BARRIER_BYTES + SUM_BYTES,
        THREADS = (1 + WINDOW) * GROUP
    };

    /* The offset of a product in a slab with this many bytes in a line and in a row. */
    static __device__ __forceinline__ constexpr uint32_t offset(int product, int line, int row)
    {
        return ACROSS ? (uint32_t)(product / (EIGHTS / 2) * row + product % (EIGHTS / 2) * 2 * EIGHT * line)
                      : (uint32_t)(product / EIGHTS * 2 * row + product % EIGHTS * EIGHT * line);
    }
};

/* Shared memory: slots, of dy and then of x; then barriers, full and empty, of each slot; then the sums of a bias. */
template <class P>
struct slabs_memory {
    uint32_t base;

    __device__ __forceinline__ explicit slabs_memory(const char *raw)
    {
        base = (shared_at(raw) + ALIGN - 1) & ~(uint32_t)(ALIGN - 1);
    }

    __device__ __forceinline__ uint32_t slot(int i) const
    {
        return base + (uint32_t)i * P::SLOT_BYTES;
    }

    __device__ __forceinline__ uint32_t full(int i) const
    {
        return slot(P::SLOTS) + (uint32_t)i * 16;
    }

    __device__ __forceinline__ uint32_t empty(int i) const
    {
        return full(i) + 8;
    }

    /* The sum of a channel of dy by one of the warps. */
    __device__ __forceinline__ uint32_t sum(int summer, int channel) const
    {
        return slot(P::SLOTS) + P::BARRIER_BYTES + (uint32_t)(summer * ROWS + channel) * 4;
    }

    /* By one thread. */
    __device__ __forceinline__ void init_barriers(bool sums) const
    {
        for (int i = 0; i < P::SLOTS; i++) {
            barrier_init(full(i), 1);
            barrier_init(empty(i), WINDOW * GROUP / 32 + (sums ? SUMMERS : 0));
        }
        barriers_publish();
    }
};

/* Starts copies; by a warp, whose lanes wait together. */
template <class P>
static __device__ __forceinline__ void copy_all(const strips_shape &s, const lk_cuda_leaves &leaves,
                                                const strips_maps &maps, const slabs_memory<P> &memory)
{
    ring_position ring = {0, 1};
    strips_work work;
    for (int job = (int)blockIdx.x; job < s.jobs; job += (int)gridDim.x) {
        if (!work.take(s, leaves, P::CHANNELS, job))
            continue;
        strips_band at(s, work.begin);
        for (uint32_t i = work.begin; i < work.end; i++, at.advance(s)) {
            int left = at.strip * P::PIXELS, top = at.band * P::BAND;
            uint32_t to = memory.slot(ring.slot), full = memory.full(ring.slot);
            barrier_wait(memory.empty(ring.slot), ring.phase);
            if (lk__cuda_lane() == 0) {
                barrier_expect(full, P::Y_BYTES + P::X_BYTES);
                copy_image(to, &maps.y, full, work.m0, left, top, at.n);
                copy_image(to + P::Y_BYTES, &maps.x, full, work.c0, left - s.pad_w, top - s.pad_h, at.n);
            }
            __syncwarp();
            ring.template advance<P::SLOTS>();
        }
    }
}

/* The warps that sum dy. Each waits for all bands, since a barrier shows only the parity of its phase. */
template <class P>
struct slabs_summer {
    const slabs_memory<P> &memory;
    int summer;
    float sum[2]; /* of channels 2 * lane and the next one */
    float leaf[1];
    sum_levels<1, P::LEVELS> levels; /* of the thread's channel */

    __device__ __forceinline__ slabs_summer(const slabs_memory<P> &memory_, int summer_)
        : memory(memory_), summer(summer_)
    {
    }

    static __device__ __forceinline__ void wait_for_summers()
    {
        asm volatile("bar.sync 1, %0;" ::"n"((int)SUMMING) : "memory");
    }

    /* Units of a line are exchanged by its last three bits. */
    __device__ __forceinline__ void add_band(uint32_t slab)
    {
        enum { UNIT = 16 };
        uint32_t at = slab + (uint32_t)lk__cuda_lane() * 4;
#pragma unroll 1
        for (int eight = 0; eight < P::EIGHTS * P::BAND; eight++, at += EIGHT * LINE)
#pragma unroll
            for (int i = 0; i < EIGHT; i++) {
                uint32_t pair = __float_as_uint(load_shared((at ^ i * UNIT) + i * LINE));
                sum[0] += __uint_as_float(pair << 16);
                sum[1] += __uint_as_float(pair & 0xffff0000u);
            }
    }

    static __device__ __forceinline__ int channel()
    {
        return (int)threadIdx.x - 32;
    }

    /* Adds the sums of the warps, and folds the leaf. */
    __device__ __forceinline__ void end_leaf(int merges, bool last)
    {
        for (int e = 0; e < 2; e++)
            store_shared(memory.sum(summer, lk__cuda_lane() * 2 + e), sum[e]);
        wait_for_summers();
        if (channel() < ROWS) {
            leaf[0] = load_shared(memory.sum(0, channel()));
            for (int i = 1; i < SUMMERS; i++)
                leaf[0] += load_shared(memory.sum(i, channel()));
            levels.fold(leaf, merges, last);
        }
        wait_for_summers();
    }

    /* Writes the sums of at most `channels` channels. */
    __device__ __forceinline__ void write(float *out, int channels) const
    {
        if (channel() < min(channels, (int)ROWS))
            out[channel()] = leaf[0];
    }
};

/* Which tile of x's channels sums dy rotates from row to row, as a block mostly gets the same tile of every row. */
template <class P>
static __device__ __forceinline__ void sum_all(const strips_shape &s, const lk_cuda_leaves &leaves,
                                               const slabs_memory<P> &memory, const lk_cuda_rows &out, int number)
{
    slabs_summer<P> summer(memory, number);
    ring_position ring = {0, 0};
    strips_work work;
    for (int job = (int)blockIdx.x; job < s.jobs; job += (int)gridDim.x) {
        if (!work.take(s, leaves, P::CHANNELS, job))
            continue;
        bool sums = work.c0 == work.row % s.tiles_n * P::CHANNELS;
        uint32_t i = work.begin;
        for (int leaf = work.leaf; leaf < work.last; leaf++) {
            int turn = 0;
            summer.sum[0] = summer.sum[1] = 0.0f;
            for (uint32_t end = work.end_of(leaves, leaf); i < end; i++) {
                barrier_wait(memory.full(ring.slot), ring.phase);
                if (sums && turn == number)
                    summer.add_band(memory.slot(ring.slot));
                release(memory.empty(ring.slot));
                turn = turn + 1 < SUMMERS ? turn + 1 : 0;
                ring.template advance<P::SLOTS>();
            }
            if (sums)
                summer.end_leaf(leaves.inner[leaf], leaf + 1 == work.last);
        }
        if (sums)
            summer.write(out.bias + (size_t)work.row * out.row + work.m0, s.k - work.m0);
    }
}

/* The sums of a warpgroup: 64 output channels by the taps of a row of the window. */
template <class P>
struct slabs_product {
    const slabs_memory<P> &memory;
    int tap_row, before; /* before: the slot whose products may be incomplete, or -1 */
    ring_position ring;
    float acc[P::N / 2];

    __device__ __forceinline__ slabs_product(const slabs_memory<P> &memory_, int tap_row_)
        : memory(memory_), tap_row(tap_row_), before(-1), ring{0, 0}
    {
    }

    /* Starts products [FROM, TO) of the band in a slot. */
    template <int FROM, int TO>
    __device__ __forceinline__ void add(uint32_t slot)
    {
        uint64_t y = lines_at<LINE, LINE>(slot) | rows_step(P::Y_PAIR);
        uint64_t x =
            lines_at<P::X_LINE, P::X_LINE>(slot + P::Y_BYTES + (uint32_t)(tap_row * P::X_ROW)) | rows_step(P::X_PAIR);
        wgmma_begin();
#pragma unroll
        for (int i = FROM; i < TO; i++)
            wgmma_add<P::N>(acc, rows_moved(y, P::offset(i, LINE, P::Y_ROW)),
                            rows_moved(x, P::offset(i, P::X_LINE, P::X_ROW)), true);
        wgmma_commit();
    }

    /* Starts the products of a band. Starting them all takes nearly as long as they do, so the slot of the band before
     * is released after the first ones, which keep tensor cores busy meanwhile. */
    __device__ __forceinline__ void add_band()
    {
        uint32_t slot = memory.slot(ring.slot);
        barrier_wait(memory.full(ring.slot), ring.phase);
        add<0, P::FIRST>(slot);
        wgmma_wait<1>();
        if (before >= 0)
            release(memory.empty(before));
        add<P::FIRST, P::PRODUCTS>(slot);
        before = ring.slot;
        ring.template advance<P::SLOTS>();
    }

    /* So many bands. */
    __device__ __forceinline__ void add_all(uint32_t bands)
    {
#pragma unroll
        for (int i = 0; i < P::N / 2; i++)
            acc[i] = 0.0f;
#pragma unroll 1
        for (uint32_t i = 0; i < bands; i++)
            add_band();
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < P::N / 2; i++)
            asm volatile("" : "+f"(acc[i])::"memory");
        if (before >= 0)
            release(memory.empty(before));
        before = -1;
    }

    /* The sums of 16 columns of the rows m and m + 8, see wgmma_add. Neighbouring lanes exchange pairs, so that each
     * has four columns: of the first eight in lanes with even numbers, of the second in the others. */
    static __device__ __forceinline__ void exchange(const float *sum, float4 &upper, float4 &lower)
    {
        bool odd = lk__cuda_lane() % 2;
        float got[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            got[i] = __shfl_xor_sync(~0u, odd ? sum[i] : sum[4 + i], 1);
        upper = odd ? make_float4(got[0], got[1], sum[4], sum[5]) : make_float4(sum[0], sum[1], got[0], got[1]);
        lower = odd ? make_float4(got[2], got[3], sum[6], sum[7]) : make_float4(sum[2], sum[3], got[2], got[3]);
    }

    /* Of two times 16 columns, lanes of rows with even numbers give the second ones to the row below, for the first
     * ones of that row: `first` becomes a row with 32 columns of eight lanes, a line of memory, and `second` the row
     * below. */
    static __device__ __forceinline__ void trade(float4 &first, float4 &second, bool odd)
    {
        float4 send = odd ? first : second, got;
        got.x = __shfl_xor_sync(~0u, send.x, 4);
        got.y = __shfl_xor_sync(~0u, send.y, 4);
        got.z = __shfl_xor_sync(~0u, send.z, 4);
        got.w = __shfl_xor_sync(~0u, send.w, 4);
        if (odd)
            first = got;
        else
            second = got;
    }

    __device__ __forceinline__ void write(const strips_shape &s, const strips_work &work, const lk_cuda_rows &out) const
    {
        int warp = (int)threadIdx.x % GROUP / 32, lane = lk__cuda_lane();
        bool odd = lane / 4 % 2;
        int m = work.m0 + warp * 16 + lane / 8 * 2, c = work.c0 + odd * 16 + lane % 2 * 8 + lane % 4 / 2 * 4;
        size_t width = (size_t)WINDOW * WINDOW * (size_t)s.c;
        float *to = out.weights + (size_t)work.row * out.row + (size_t)m * width + tap_row * WINDOW * s.c + c;
#pragma unroll
        for (int tap = 0; tap < WINDOW; tap++)
#pragma unroll
            for (int i = 0; i < P::CHANNELS; i += 32) {
                float4 upper[2], lower[2];
                float *at = to + tap * s.c + i;
#pragma unroll
                for (int j = 0; j < 2; j++)
                    exchange(acc + (tap * P::CHANNELS + i + 16 * j) / 2, upper[j], lower[j]);
                trade(upper[0], upper[1], odd);
                trade(lower[0], lower[1], odd);
                if (c + i >= s.c)
                    continue;
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    if (m + j < s.k)
                        *(float4 *)(at + j * width) = upper[j];
                    if (m + 8 + j < s.k)
                        *(float4 *)(at + (8 + j) * width) = lower[j];
                }
            }
    }
};

template <class P>
static __device__ __forceinline__ void multiply_all(const strips_shape &s, const lk_cuda_leaves &leaves,
                                                    const slabs_memory<P> &memory, const lk_cuda_rows &out, int tap_row)
{
    slabs_product<P> product(memory, tap_row);
    strips_work work;
    for (int job = (int)blockIdx.x; job < s.jobs; job += (int)gridDim.x) {
        if (!work.take(s, leaves, P::CHANNELS, job))
            continue;
        sum_levels<P::N / 2, P::LEVELS> levels = {}; /* zeros: no registers for them while sums are written */
        uint32_t begin = work.begin;
        for (int leaf = work.leaf; leaf < work.last; leaf++) {
            uint32_t end = work.end_of(leaves, leaf);
            product.add_all(end - begin);
            begin = end;
            if constexpr (P::LEVELS > 0)
                levels.fold(product.acc, leaves.inner[leaf], leaf + 1 == work.last);
        }
        product.write(s, work, out);
    }
}

template <class P>
static __global__ void __launch_bounds__(P::THREADS, 1)
    slabs_products(const __grid_constant__ strips_shape s, const __grid_constant__ lk_cuda_leaves leaves,
                   const __grid_constant__ strips_maps maps, const __grid_constant__ lk_cuda_rows out)
{
    static_assert(P::SLOTS >= 3 && P::BYTES <= SHARED, "three bands fit into shared memory");
    static_assert(16 * P::SLOTS <= P::BARRIER_BYTES, "barriers fit behind the slots");
    extern __shared__ char raw[];
    slabs_memory<P> memory(raw);
    if (threadIdx.x == 0)
        memory.init_barriers(out.bias != NULL);
    lk__cuda_await_alone();
    __syncthreads();
    int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0), group = warp / (GROUP / 32); /* uniform for the compiler */
    if (group == 0) {
        registers_shrink<56>();
        if (warp == 0)
            copy_all<P>(s, leaves, maps, memory);
        else if (out.bias)
            sum_all<P>(s, leaves, memory, out, warp - 1);
    } else {
        registers_grow<152>();
        multiply_all<P>(s, leaves, memory, out, group - 1);
    }
}

#endif
