/* weights_hopper.cuh - the kernel of weights_hopper.cu. For nvcc only, and for sm_90a only.
 *
 * One block for each multiprocessor takes tiles of M output channels by N columns, one after the other. Columns are
 * boxes of BOX channels of a tap. One warp starts the copies of chunks of K rows, up to SLOTS ahead and across tiles;
 * GROUPS warpgroups multiply by wgmma: bf16 from shared memory, tf32 with x from registers and with dy from shared
 * memory, where three warps transpose it. These warps also sum dy for the gradient of a bias
 * (weights_hopper_helpers.cuh). Rows behind the end of a leaf belong to the next one; their factors become zero. Leaves
 * of a group are folded in registers. */
#ifndef LK_TENSOR_CUDA_KERNELS_WEIGHTS_HOPPER_CUH
#define LK_TENSOR_CUDA_KERNELS_WEIGHTS_HOPPER_CUH

#include "tensor/cuda/kernels/weights_hopper_helpers.cuh"
#include "tensor/cuda/kernels/weights_hopper_slots.cuh"

/* The warp that starts copies. A lane has one box: of dy, or of x. Boxes behind the last channel or tap are not copied:
 * what they have is multiplied with sums that are not written. */
template <class P>
struct box_loader {
    const hopper_shape &s;
    const hopper_maps &maps;
    bool is_y, used;
    int channel, boxes; /* boxes: of all lanes */
    uint16_t right, down;

    __device__ __forceinline__ box_loader(const hopper_shape &s_, const hopper_maps &maps_) : s(s_), maps(maps_)
    {
    }

    __device__ __forceinline__ void aim(const tile_work &work)
    {
        int lane = (int)threadIdx.x % 32, own = lane - P::BOXES_Y;
        int count_y = min((int)P::BOXES_Y, (s.k - work.m0 + P::BOX - 1) / P::BOX);
        int count_x = min((int)P::BOXES_X, s.taps * s.boxes - work.box0);
        int box = work.box0 + max(own, 0), tap = box / s.boxes, row = tap / s.kernel_w;
        is_y = own < 0;
        used = is_y ? lane < count_y : own < count_x;
        channel = is_y ? work.m0 + lane * P::BOX : (box - tap * s.boxes) * P::BOX;
        right = (uint16_t)((tap - row * s.kernel_w) * s.along_w.dilation);
        down = (uint16_t)(row * s.along_h.dilation);
        boxes = count_y + count_x;
    }

    /* One box, from this row of y on. */
    __device__ __forceinline__ void copy(uint32_t to, const CUtensorMap *y, const CUtensorMap *x, uint32_t barrier,
                                         uint32_t pixel) const
    {
        unsigned n = quotient(pixel, s.pixels), rest = pixel - n * s.pixels.by;
        unsigned p = quotient(rest, s.q), q = rest - p * s.q.by;
        if (!used)
            return;
        if (is_y)
            copy_box(to, y, barrier, channel, (int)pixel);
        else
            copy_pixels(to, x, barrier, channel, (int)q * s.along_w.stride - s.along_w.pad,
                        (int)p * s.along_h.stride - s.along_h.pad, (int)n, right, down);
    }

    /* The boxes of a chunk whose first row is `pixel`, with this many valid rows. */
    __device__ __forceinline__ void load(uint32_t slot, uint32_t barrier, uint32_t pixel, int valid) const
    {
        int lane = (int)threadIdx.x % 32, pieces = pieces_of<P>(valid);
        uint32_t to = slot + lane * P::BOX_BYTES;
        if (lane == 0)
            barrier_expect(barrier, (uint32_t)(boxes * (pieces ? pieces * PIECE : P::K) * LINE));
        __syncwarp();
        if (pieces == 0)
            copy(to, &maps.y, &maps.x, barrier, pixel);
        for (int i = 0; i < pieces; i++)
            copy(to + i * PIECE * LINE, &maps.y_piece, &maps.x_piece, barrier, pixel + i * PIECE);
    }
};

template <class P>
static __device__ __forceinline__ void load_all(const hopper_shape &s, const lk_cuda_leaves &leaves,
                                                const hopper_maps &maps, const slot_memory<P> &memory)
{
    box_loader<P> loader(s, maps);
    ring_position at = {0, 1};
    tile_work work;
    for (int job = (int)blockIdx.x; job < s.jobs; job += (int)gridDim.x) {
        if (!work.template take<P>(s, leaves, job))
            continue;
        loader.aim(work);
        for (int leaf = work.leaf; leaf < work.last; leaf++)
            for (int chunk = work.from, end = work.template end<P>(leaves, leaf); chunk < end; chunk++) {
                barrier_wait(memory.empty(at.slot), at.phase);
                loader.load(memory.slot(at.slot), memory.full(at.slot), leaves.begin[leaf] + (uint32_t)(chunk * P::K),
                            tile_work::rows(leaves, leaf) - chunk * P::K);
                at.template advance<P::SLOTS>();
            }
    }
}

/* Multiplying. The thread's number among those that multiply: */
static __device__ __forceinline__ int multiplier()
{
    return (int)threadIdx.x - GROUP;
}

/* Zeros in rows [from, to) of a slot, for all that multiply. */
template <class P>
static __device__ __forceinline__ void clear_rows(uint32_t slot, int from, int to)
{
    enum { UNITS = (P::M + P::N) / 8 };
    for (int i = multiplier(); i < (to - from) * UNITS; i += P::MULTIPLIERS) {
        int unit = i % UNITS, row = from + i / UNITS;
        store_unit(slot + unit_at<P::K>(row, unit), make_uint4(0, 0, 0, 0));
    }
    shared_publish();
    asm volatile("bar.sync 1, %0;" ::"n"((int)P::MULTIPLIERS) : "memory");
}

/* Waits for the products of this thread's warpgroup. */
template <class P>
static __device__ __forceinline__ void await_sums(float (&acc)[P::SUMS])
{
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < P::SUMS; i++)
        asm volatile("" : "+f"(acc[i])::"memory");
}

/* bf16: starts the products of a slot; those of the slot before it are complete afterwards. */
template <class P>
struct bf16_product {
    uint32_t y_offset, x_offset;
    int before; /* the slot whose products may be incomplete, or -1 */

    __device__ __forceinline__ bf16_product()
    {
        int group = multiplier() / GROUP;
        y_offset = P::M == 128 ? group * P::BOX_BYTES : 0;
        x_offset = P::Y_BYTES + (P::M == 128 ? 0 : group * (P::GROUP_N / P::BOX) * P::BOX_BYTES);
        before = -1;
    }

    __device__ __forceinline__ void add(float (&acc)[P::SUMS], uint32_t slot, int step, bool first)
    {
        uint32_t offset = step * PIECE * LINE;
        wgmma_add<P::GROUP_N>(acc, operand_at<P::K>(slot + y_offset + offset),
                              operand_at<P::K>(slot + x_offset + offset), !first);
    }

    __device__ __forceinline__ void release_before(const slot_memory<P> &memory) const
    {
        if (before >= 0)
            release(memory.empty(before));
    }

    __device__ __forceinline__ void chunk(float (&acc)[P::SUMS], const slot_memory<P> &memory, ring_position ring,
                                          int valid, bool first)
    {
        uint32_t at = memory.slot(ring.slot);
        int pieces = pieces_of<P>(valid);
        barrier_wait(memory.full(ring.slot), ring.phase);
        if (valid < P::K)
            clear_rows<P>(at, max(valid, 0), pieces ? pieces * PIECE : P::K);
        if (pieces) {
#pragma unroll 1
            for (int i = 0; i < pieces; i++) {
                wgmma_begin();
                add(acc, at, i, first && i == 0);
                wgmma_commit();
                wgmma_wait<0>();
            }
            release_before(memory);
        } else {
            wgmma_begin();
            add(acc, at, 0, first);
            wgmma_commit();
            wgmma_wait<1>();
            release_before(memory); /* now, not after the other products: starting them takes as long as they do */
            wgmma_begin();
#pragma unroll
            for (int i = 1; i < P::K / PIECE; i++)
                add(acc, at, i, false);
            wgmma_commit();
        }
        before = ring.slot;
    }

    __device__ __forceinline__ void finish(float (&acc)[P::SUMS], const slot_memory<P> &memory)
    {
        await_sums<P>(acc);
        release(memory.empty(before));
        before = -1;
    }
};

/* tf32: the columns of x are the rows of wgmma and come from registers, the channels of dy are its columns. The first
 * of the 2 * TILES neighbouring columns of a thread, in the tile: */
template <class P>
static __device__ __forceinline__ int thread_column()
{
    return multiplier() / 4 * 2 * P::TILES;
}

/* Starts the products of a slot, in halves: the factors of one half are read while the other one is multiplied. Those
 * of the slot before it are complete afterwards. */
template <class P>
struct tf32_product {
    enum { STEPS = P::K / 16, UNIT = 16 };        /* STEPS: of eight rows, of a half */
    typedef uint32_t factors[STEPS][P::TILES][4]; /* of a half */
    uint32_t x_offset;                            /* of row 2 * (lane % 4) */
    int before;                                   /* the slot whose products may be incomplete, or -1 */

    __device__ __forceinline__ tf32_product()
    {
        int column = thread_column<P>(), unit = column % P::BOX / 4, row = (int)threadIdx.x % 4 * 2;
        x_offset = P::Y_BYTES + column / P::BOX * P::BOX_BYTES + row * LINE + (unit ^ row) * UNIT + column % 4 * 4;
        before = -1;
    }

    __device__ __forceinline__ void read(factors &a, uint32_t slot, int half) const
    {
        uint32_t rows[] = {slot + x_offset, ((slot + x_offset) ^ UNIT) + LINE};
#pragma unroll
        for (int i = 0; i < STEPS; i++)
#pragma unroll
            for (int k = 0; k < 2; k++) {
                float v[2 * P::TILES];
                load_shared(v, rows[k] + (half * STEPS + i) * 8 * LINE);
#pragma unroll
                for (int j = 0; j < 2 * P::TILES; j++)
                    a[i][j / 2][2 * k + j % 2] = nudge_finite(v[j]);
            }
    }

    __device__ __forceinline__ void multiply(float (&acc)[P::SUMS], const factors &a, uint32_t slot, int half,
                                             bool add) const
    {
        wgmma_begin();
#pragma unroll
        for (int i = 0; i < STEPS; i++)
#pragma unroll
            for (int tile = 0; tile < P::TILES; tile++) {
                float(&sums)[P::M / 2] = *(float(*)[P::M / 2])(acc + tile * (P::M / 2));
                wgmma_add_tf32<P::M>(sums, a[i][tile], operand_of_lines(slot + (half * STEPS + i) * 2 * UNIT),
                                     add || i > 0);
            }
        wgmma_commit();
        wgmma_wait<1>();
    }

    __device__ __forceinline__ void chunk(float (&acc)[P::SUMS], const slot_memory<P> &memory, ring_position ring,
                                          int valid, bool first)
    {
        uint32_t at = memory.slot(ring.slot);
        factors even, odd;
        barrier_wait(memory.transposed(ring.slot), ring.phase);
        read(even, at, 0);
        multiply(acc, even, at, 0, !first);
        if (before >= 0)
            release(memory.empty(before));
        before = ring.slot;
        if (valid <= P::K / 2)
            return;
        read(odd, at, 1);
        multiply(acc, odd, at, 1, true);
    }

    __device__ __forceinline__ void finish(float (&acc)[P::SUMS], const slot_memory<P> &memory)
    {
        await_sums<P>(acc);
        release(memory.empty(before));
        before = -1;
    }
};

/* The first column of a box in dw, and how many of `count` columns from `column` of the box exist. */
static __device__ __forceinline__ int box_columns(const hopper_shape &s, int box, int size, int column, int *at)
{
    int tap = box / s.boxes, channel = (box - tap * s.boxes) * size + column;
    *at = tap * s.c + channel;
    return tap < s.taps ? s.c - channel : 0;
}

/* bf16: pairs of columns, see wgmma_add. */
template <class P>
static __device__ __forceinline__ void write_pairs(const hopper_shape &s, const tile_work &work,
                                                   const float (&acc)[P::SUMS], float *out)
{
    int group = multiplier() / GROUP, warp = multiplier() % GROUP / 32, lane = (int)threadIdx.x % 32;
    int m = work.m0 + (P::M == 128 ? group * 64 : 0) + warp * 16 + lane / 4;
    int box = work.box0 + (P::M == 128 ? 0 : group * (P::GROUP_N / P::BOX));
#pragma unroll
    for (int j = 0; j < P::GROUP_N / P::BOX; j++) {
        int at, left = box_columns(s, box + j, P::BOX, lane % 4 * 2, &at);
        float *to = out + (size_t)m * s.width + at;
#pragma unroll
        for (int i = 0; i < P::BOX / 8; i++) {
            const float *sum = acc + (j * (P::BOX / 8) + i) * 4;
            if (8 * i < left && m < s.k)
                *(float2 *)(to + 8 * i) = make_float2(sum[0], sum[1]);
            if (8 * i < left && m + 8 < s.k)
                *(float2 *)(to + 8 * (size_t)s.width + 8 * i) = make_float2(sum[2], sum[3]);
        }
    }
}

/* tf32: neighbouring columns, see tf32_product. */
template <class P>
static __device__ __forceinline__ void write_columns(const hopper_shape &s, const tile_work &work,
                                                     const float (&acc)[P::SUMS], float *out)
{
    int column = thread_column<P>(), m0 = work.m0 + (int)threadIdx.x % 4 * 2, at;
    int left = box_columns(s, work.box0 + column / P::BOX, P::BOX, column % P::BOX, &at);
    float *to = out + (size_t)m0 * s.width + at;
    if (left <= 0)
        return;
#pragma unroll
    for (int i = 0; i < P::M / 4; i++) {
        int m = i / 2 * 8 + i % 2;
        const float *sum = acc + i / 2 * 4 + i % 2;
        float *row = to + (size_t)m * s.width;
        if (m0 + m >= s.k)
            continue;
        if constexpr (P::TILES == 2)
            *(float4 *)row = make_float4(sum[0], sum[2], sum[P::M / 2], sum[P::M / 2 + 2]);
        else
            *(float2 *)row = make_float2(sum[0], sum[2]);
    }
}

template <class P, class Product>
static __device__ __forceinline__ void multiply_all(const hopper_shape &s, const lk_cuda_leaves &leaves,
                                                    const slot_memory<P> &memory, const lk_cuda_rows &out)
{
    Product product;
    sum_levels<P::SUMS, P::LEVELS> levels;
    float acc[P::SUMS];
    ring_position at = {0, 0};
    tile_work work;
    for (int job = (int)blockIdx.x; job < s.jobs; job += (int)gridDim.x) {
        if (!work.template take<P>(s, leaves, job))
            continue;
        for (int leaf = work.leaf; leaf < work.last; leaf++) {
            int rows = tile_work::rows(leaves, leaf), end = work.template end<P>(leaves, leaf);
            for (int chunk = work.from; chunk < end; chunk++) {
                product.chunk(acc, memory, at, rows - chunk * P::K, chunk == work.from);
                at.template advance<P::SLOTS>();
            }
            product.finish(acc, memory);
            if constexpr (P::LEVELS > 0)
                levels.fold(acc, leaves.inner[leaf], leaf + 1 == work.last);
        }
        float *to = out.weights + (size_t)work.row * out.row;
        if constexpr (P::BF16)
            write_pairs<P>(s, work, acc, to);
        else
            write_columns<P>(s, work, acc, to);
    }
}

/* In bf16 helpers have work only where a bias is wanted. */
template <class P>
static __global__ void __launch_bounds__(GROUP + P::MULTIPLIERS, 1)
    hopper_product(const __grid_constant__ hopper_shape s, const __grid_constant__ lk_cuda_leaves leaves,
                   const __grid_constant__ hopper_maps maps, const __grid_constant__ lk_cuda_rows out)
{
    static_assert(P::BYTES <= 227 * 1024, "a block has at most 227 KiB of shared memory");
    extern __shared__ char raw[];
    slot_memory<P> memory(raw);
    bool helps = !P::BF16 || out.bias;
    if (threadIdx.x == 0) {
        for (int i = 0; i < P::SLOTS; i++) {
            barrier_init(memory.full(i), 1);
            barrier_init(memory.empty(i), P::MULTIPLIERS / 32 + (P::BF16 && helps ? HELPERS : 0));
            barrier_init(memory.transposed(i), HELPERS);
        }
        barriers_publish();
    }
    lk__cuda_await_alone();
    __syncthreads();
    if (threadIdx.x < GROUP) {
        registers_shrink<P::OTHER_REGISTERS>();
        if (threadIdx.x < 32)
            load_all<P>(s, leaves, maps, memory);
        else if (helps)
            help_all<P>(s, leaves, memory, out);
    } else {
        registers_grow<P::REGISTERS>();
        if constexpr (P::BF16)
            multiply_all<P, bf16_product<P>>(s, leaves, memory, out);
        else
            multiply_all<P, tf32_product<P>>(s, leaves, memory, out);
    }
}

#endif
