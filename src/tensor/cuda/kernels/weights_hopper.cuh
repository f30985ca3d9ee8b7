/* weights_hopper.cuh - the kernel of weights_hopper.cu. For nvcc only, and for sm_90a only.
 *
 * One block for each multiprocessor takes tiles of M output channels by N columns, one after the other. Columns are
 * boxes of BOX channels of a tap. One warp starts the copies of chunks of K rows, up to STAGES ahead and across tiles;
 * GROUPS warpgroups multiply by wgmma: bf16 from shared memory, tf32 with x from registers and with dy from shared
 * memory, where three warps transpose it. Rows behind the end of a leaf belong to the next one; their factors become
 * zero. Leaves of a group are folded in registers. */
#ifndef LK_TENSOR_CUDA_KERNELS_WEIGHTS_HOPPER_CUH
#define LK_TENSOR_CUDA_KERNELS_WEIGHTS_HOPPER_CUH

#include "tensor/cuda/kernels/hopper.cuh"
#include "tensor/cuda/kernels/leaves.h"
#include "tensor/cuda/kernels/mma.cuh"
#include "tensor/cuda/kernels/plans.h"

/* LINE: bytes of a row of a box. PIECE: rows of a copy at the end of a leaf. */
enum { LINE = 128, PIECE = 16, GROUP = 128, TRANSPOSERS = GROUP / 32 - 1, ALIGN = 1024 };

typedef struct hopper_shape {
    int c, k;            /* pitches */
    int taps, width;     /* width: taps * c */
    int kernel_w, boxes; /* of a tap */
    lk_cuda_window along_h, along_w;
    int tiles_n, tiles, jobs; /* jobs: tiles of all block rows */
    divisor q, pixels;        /* width of y, pixels of a sample of y */
} hopper_shape;

/* Boxes of a whole chunk, and of PIECE rows. */
typedef struct hopper_maps {
    CUtensorMap y, x, y_piece, x_piece;
} hopper_maps;

template <class T_, int M_, int N_, int STAGES_, int LEVELS_>
struct hopper_tile {
    typedef T_ T;
    enum {
        BF16 = sizeof(T) == 2,
        M = M_,
        N = N_,
        K = BF16 ? 64 : 32,
        STAGES = STAGES_,
        LEVELS = LEVELS_,
        BOX = LINE / sizeof(T),
        BOX_BYTES = K * LINE,
        BOXES_Y = M / BOX,
        BOXES_X = N / BOX,
        Y_BYTES = BOXES_Y * BOX_BYTES,
        STAGE_BYTES = (BOXES_Y + BOXES_X) * BOX_BYTES,
        BYTES = STAGES * STAGE_BYTES + ALIGN + 3 * STAGES * 8,
        GROUPS = N % 128 == 0 ? 2 : 3, /* warpgroups that multiply */
        MULTIPLIERS = GROUPS * GROUP,
        GROUP_N = M == 128 ? N : N / 2, /* bf16: columns of a warpgroup; with 64 channels both have the same rows */
        TILES = N / (GROUPS * 64),      /* tf32: tiles of wgmma of a warpgroup, each of 64 columns by M channels */
        SUMS = BF16 ? GROUP_N / 2 : TILES * M / 2,
        ALL_REGISTERS = GROUPS == 2 ? 504 : 512, /* of one thread of each warpgroup */
        OTHER_REGISTERS = BF16 ? 40 : 56,        /* of a thread that does not multiply */
        REGISTERS = (ALL_REGISTERS - OTHER_REGISTERS) / GROUPS
    };
};

/* A tile of a block row: leaves [leaf, last), chunks [from, to) of each. */
struct tile_work {
    int row, m0, box0, leaf, last, from, to;

    /* False if the leaf has no such part. */
    template <class P>
    __device__ __forceinline__ bool take(const hopper_shape &s, const lk_cuda_leaves &leaves, int job)
    {
        row = job / s.tiles;
        int tile = job - row * s.tiles, tile_m = tile / s.tiles_n, group = row / leaves.parts;
        m0 = tile_m * P::M;
        box0 = (tile - tile_m * s.tiles_n) * P::BOXES_X;
        leaf = leaves.group[group];
        last = leaves.group[group + 1];
        from = leaves.parts > 1 ? (row - group * leaves.parts) * leaves.chunks : 0;
        to = leaves.parts > 1 ? from + leaves.chunks : INT_MAX;
        return from == 0 || from * P::K < rows(leaves, leaf);
    }

    static __device__ __forceinline__ int rows(const lk_cuda_leaves &leaves, int leaf)
    {
        return (int)(leaves.begin[leaf + 1] - leaves.begin[leaf]);
    }

    /* The end of the chunks of a leaf. There is at least one, without valid rows if the leaf is empty. */
    template <class P>
    __device__ __forceinline__ int end(const lk_cuda_leaves &leaves, int of) const
    {
        int chunks = (rows(leaves, of) + P::K - 1) / P::K;
        return max(min(chunks, to), from + 1);
    }
};

/* Copies of PIECE rows for a chunk with so many valid rows; 0: the whole chunk in one copy. */
template <class P>
static __device__ __forceinline__ int pieces_of(int valid)
{
    return P::BF16 && valid <= P::K - PIECE ? (max(valid, 1) + PIECE - 1) / PIECE : 0;
}

/* Shared memory: stages, then for each stage a barrier that is complete when it is full, one when it is empty, and one
 * when its boxes of dy are transposed. */
template <class P>
struct stage_memory {
    uint32_t base;

    __device__ __forceinline__ stage_memory(const char *memory)
    {
        base = (shared_at(memory) + ALIGN - 1) & ~(uint32_t)(ALIGN - 1);
    }

    __device__ __forceinline__ uint32_t stage(int i) const
    {
        return base + i * P::STAGE_BYTES;
    }

    __device__ __forceinline__ uint32_t full(int i) const
    {
        return base + P::STAGES * P::STAGE_BYTES + i * 8;
    }

    __device__ __forceinline__ uint32_t empty(int i) const
    {
        return full(P::STAGES) + i * 8;
    }

    __device__ __forceinline__ uint32_t transposed(int i) const
    {
        return empty(P::STAGES) + i * 8;
    }
};

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
    __device__ __forceinline__ void load(uint32_t stage, uint32_t barrier, uint32_t pixel, int valid) const
    {
        int lane = (int)threadIdx.x % 32, pieces = pieces_of<P>(valid);
        uint32_t to = stage + lane * P::BOX_BYTES;
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
                                                const hopper_maps &maps, const stage_memory<P> &memory)
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
                barrier_wait(memory.empty(at.stage), at.phase);
                loader.load(memory.stage(at.stage), memory.full(at.stage),
                            leaves.begin[leaf] + (uint32_t)(chunk * P::K),
                            tile_work::rows(leaves, leaf) - chunk * P::K);
                at.template advance<P::STAGES>();
            }
    }
}

/* wgmma takes tf32 from shared memory only if a line is k. A warp transposes a box of dy, 32 rows by 32 channels, in
 * its place: a lane has a channel. The rows of an eight are in the order 0, 2, 4, 6, 1, 3, 5, 7, which keeps the reads
 * of x in tf32_product free of bank conflicts. */
static __device__ __forceinline__ void transpose_box(uint32_t box)
{
    enum { ROWS = 32 };
    int lane = (int)threadIdx.x % 32;
    uint32_t from = box + lane * 4, to = box + lane * LINE + lane % 8 * 16, v[ROWS];
#pragma unroll
    for (int row = 0; row < ROWS; row++)
        v[row] = nudge_finite(load_shared((from ^ row % 8 * 16) + row * LINE));
    __syncwarp();
#pragma unroll
    for (int unit = 0; unit < ROWS / 4; unit++) {
        const uint32_t *first = v + unit / 2 * 8 + unit % 2;
        store_unit(to ^ unit * 16, make_uint4(first[0], first[2], first[4], first[6]));
    }
}

/* The warps that transpose. They take the boxes of dy in turns. All of them wait for each chunk and arrive after it,
 * also without a box, so that none is a phase of a stage behind the others. */
template <class P>
struct box_transposer {
    enum { TURNS = TRANSPOSERS };
    int first; /* the warp's first box in the next chunk */

    __device__ __forceinline__ box_transposer() : first((int)threadIdx.x / 32 - 1)
    {
    }

    /* Zeros in the rows from `row` on of a box of dy, and of some boxes of x: each belongs to one box of dy. */
    static __device__ __forceinline__ void clear(uint32_t stage, int box, int row)
    {
        int lane = (int)threadIdx.x % 32;
#pragma unroll 1
        for (int i = box; i < P::BOXES_Y + P::BOXES_X; i += P::BOXES_Y)
#pragma unroll 1
            for (int j = row; j < P::K; j++)
                store_shared(stage + i * P::BOX_BYTES + j * LINE + lane * 4, 0.0f);
        __syncwarp();
    }

    __device__ __forceinline__ void chunk(const stage_memory<P> &memory, ring_position at, int valid)
    {
        uint32_t stage = memory.stage(at.stage);
        int box = first;
        barrier_wait(memory.full(at.stage), at.phase);
#pragma unroll 1
        for (; box < P::BOXES_Y; box += TURNS) {
            if (valid < P::K)
                clear(stage, box, max(valid, 0));
            transpose_box(stage + box * P::BOX_BYTES);
        }
        shared_publish();
        release(memory.transposed(at.stage));
        first = box - P::BOXES_Y;
    }
};

template <class P>
static __device__ __forceinline__ void transpose_all(const hopper_shape &s, const lk_cuda_leaves &leaves,
                                                     const stage_memory<P> &memory)
{
    box_transposer<P> transposer;
    ring_position at = {0, 0};
    tile_work work;
    for (int job = (int)blockIdx.x; job < s.jobs; job += (int)gridDim.x) {
        if (!work.template take<P>(s, leaves, job))
            continue;
        for (int leaf = work.leaf; leaf < work.last; leaf++)
            for (int chunk = work.from, end = work.template end<P>(leaves, leaf); chunk < end; chunk++) {
                transposer.chunk(memory, at, tile_work::rows(leaves, leaf) - chunk * P::K);
                at.template advance<P::STAGES>();
            }
    }
}

/* Multiplying. The thread's number among those that multiply: */
static __device__ __forceinline__ int multiplier()
{
    return (int)threadIdx.x - GROUP;
}

/* Zeros in rows [from, to) of a stage, for all that multiply. */
template <class P>
static __device__ __forceinline__ void clear_rows(uint32_t stage, int from, int to)
{
    enum { UNITS = (P::M + P::N) / 8 };
    for (int i = multiplier(); i < (to - from) * UNITS; i += P::MULTIPLIERS) {
        int unit = i % UNITS, row = from + i / UNITS;
        store_unit(stage + unit_at<P::K>(row, unit), make_uint4(0, 0, 0, 0));
    }
    shared_publish();
    asm volatile("bar.sync 1, %0;" ::"n"((int)P::MULTIPLIERS) : "memory");
}

/* bf16: starts the products of a stage; those of the stage before it are complete afterwards. */
template <class P>
struct bf16_product {
    uint32_t y_offset, x_offset;
    int before; /* the stage whose products may be incomplete, or -1 */

    __device__ __forceinline__ bf16_product()
    {
        int group = multiplier() / GROUP;
        y_offset = P::M == 128 ? group * P::BOX_BYTES : 0;
        x_offset = P::Y_BYTES + (P::M == 128 ? 0 : group * (P::GROUP_N / P::BOX) * P::BOX_BYTES);
        before = -1;
    }

    __device__ __forceinline__ void add(float (&acc)[P::SUMS], uint32_t stage, int step, bool first)
    {
        uint32_t offset = step * PIECE * LINE;
        wgmma_add<P::GROUP_N>(acc, operand_at<P::K>(stage + y_offset + offset),
                              operand_at<P::K>(stage + x_offset + offset), !first);
    }

    __device__ __forceinline__ void chunk(float (&acc)[P::SUMS], const stage_memory<P> &memory, int stage, int valid,
                                          bool first)
    {
        uint32_t at = memory.stage(stage);
        int pieces = pieces_of<P>(valid);
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
        } else {
            wgmma_begin();
#pragma unroll
            for (int i = 0; i < P::K / PIECE; i++)
                add(acc, at, i, first && i == 0);
            wgmma_commit();
            wgmma_wait<1>();
        }
        if (before >= 0)
            release(memory.empty(before));
        before = stage;
    }

    /* Waits for the sums. */
    __device__ __forceinline__ void finish(float (&acc)[P::SUMS], const stage_memory<P> &memory)
    {
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < P::SUMS; i++)
            asm volatile("" : "+f"(acc[i])::"memory");
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

/* Starts the products of a stage, in halves: the factors of one half are read while the other one is multiplied. Those
 * of the stage before it are complete afterwards. */
template <class P>
struct tf32_product {
    enum { STEPS = P::K / 16, UNIT = 16 };        /* STEPS: of eight rows, of a half */
    typedef uint32_t factors[STEPS][P::TILES][4]; /* of a half */
    uint32_t x_offset;                            /* of row 2 * (lane % 4) */
    int before;                                   /* the stage whose products may be incomplete, or -1 */

    __device__ __forceinline__ tf32_product()
    {
        int column = thread_column<P>(), unit = column % P::BOX / 4, row = (int)threadIdx.x % 4 * 2;
        x_offset = P::Y_BYTES + column / P::BOX * P::BOX_BYTES + row * LINE + (unit ^ row) * UNIT + column % 4 * 4;
        before = -1;
    }

    __device__ __forceinline__ void read(factors &a, uint32_t stage, int half) const
    {
        uint32_t rows[] = {stage + x_offset, ((stage + x_offset) ^ UNIT) + LINE};
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

    __device__ __forceinline__ void multiply(float (&acc)[P::SUMS], const factors &a, uint32_t stage, int half,
                                             bool add) const
    {
        wgmma_begin();
#pragma unroll
        for (int i = 0; i < STEPS; i++)
#pragma unroll
            for (int tile = 0; tile < P::TILES; tile++) {
                float(&sums)[P::M / 2] = *(float(*)[P::M / 2])(acc + tile * (P::M / 2));
                wgmma_add_tf32<P::M>(sums, a[i][tile], operand_of_lines(stage + (half * STEPS + i) * 2 * UNIT),
                                     add || i > 0);
            }
        wgmma_commit();
        wgmma_wait<1>();
    }

    __device__ __forceinline__ void chunk(float (&acc)[P::SUMS], const stage_memory<P> &memory, int stage, int valid,
                                          bool first)
    {
        uint32_t at = memory.stage(stage);
        factors even, odd;
        read(even, at, 0);
        multiply(acc, even, at, 0, !first);
        if (before >= 0)
            release(memory.empty(before));
        before = stage;
        if (valid <= P::K / 2)
            return;
        read(odd, at, 1);
        multiply(acc, odd, at, 1, true);
    }

    /* Waits for the sums. */
    __device__ __forceinline__ void finish(float (&acc)[P::SUMS], const stage_memory<P> &memory)
    {
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < P::SUMS; i++)
            asm volatile("" : "+f"(acc[i])::"memory");
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
                                                    const stage_memory<P> &memory, float *out)
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
                barrier_wait(P::BF16 ? memory.full(at.stage) : memory.transposed(at.stage), at.phase);
                product.chunk(acc, memory, at.stage, rows - chunk * P::K, chunk == work.from);
                at.template advance<P::STAGES>();
            }
            product.finish(acc, memory);
            if constexpr (P::LEVELS > 0)
                levels.fold(acc, leaves.inner[leaf], leaf + 1 == work.last);
        }
        float *to = out + (size_t)work.row * s.k * s.width;
        if constexpr (P::BF16)
            write_pairs<P>(s, work, acc, to);
        else
            write_columns<P>(s, work, acc, to);
    }
}

/* out: (block rows, k, width). */
template <class P>
static __global__ void __launch_bounds__(GROUP + P::MULTIPLIERS, 1)
    hopper_product(const __grid_constant__ hopper_shape s, const __grid_constant__ lk_cuda_leaves leaves,
                   const __grid_constant__ hopper_maps maps, float *out)
{
    static_assert(P::BYTES <= 227 * 1024, "a block has at most 227 KiB of shared memory");
    extern __shared__ char raw[];
    stage_memory<P> memory(raw);
    if (threadIdx.x == 0) {
        for (int i = 0; i < P::STAGES; i++) {
            barrier_init(memory.full(i), 1);
            barrier_init(memory.empty(i), P::MULTIPLIERS / 32);
            barrier_init(memory.transposed(i), TRANSPOSERS);
        }
        barriers_publish();
    }
    lk__cuda_await_alone();
    __syncthreads();
    if (threadIdx.x < GROUP) {
        registers_shrink<P::OTHER_REGISTERS>();
        if (threadIdx.x < 32)
            load_all<P>(s, leaves, maps, memory);
        else if constexpr (!P::BF16)
            transpose_all<P>(s, leaves, memory);
    } else {
        registers_grow<P::REGISTERS>();
        if constexpr (P::BF16)
            multiply_all<P, bf16_product<P>>(s, leaves, memory, out);
        else
            multiply_all<P, tf32_product<P>>(s, leaves, memory, out);
    }
}

#endif
