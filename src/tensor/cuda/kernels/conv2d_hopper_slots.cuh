/* conv2d_hopper_slots.cuh - tiles, jobs and shared memory of conv2d_hopper.cuh. For nvcc only. */
#ifndef LK_TENSOR_CUDA_KERNELS_CONV2D_HOPPER_SLOTS_CUH
#define LK_TENSOR_CUDA_KERNELS_CONV2D_HOPPER_SLOTS_CUH

#include "tensor/cuda/kernels/hopper.cuh"
#include "tensor/cuda/kernels/mma.cuh"
#include "tensor/cuda/kernels/vec4.cuh"

enum { LINE = 128, UNIT = 16, STEP = 32, STEPS = LINE / STEP }; /* bytes: of a place, a unit, and k of a product */
enum { GROUP = 128, PRODUCT_ROWS = 64, ALIGN = 1024, SLAB_WARP = 0, WEIGHT_WARP = 1, TAPS_TURNS = 4 };

/* The source is x or, for an input gradient, dy; the result is y or dx. Channels include pads. */
typedef struct taps_shape {
    int depth, columns; /* channels of the source and of the result */
    int height, width;  /* of the result */
    int kernel_h, kernel_w;
    int row_slots;       /* slots of weights for a row of the window: one for each tap, or for each pair of taps */
    int pad_h, pad_w;    /* of the source; may be negative */
    int pitch;           /* places of a row */
    int rows, row_tiles; /* of the result: of a job, of an image */
    int column_tiles;    /* jobs of the same rows */
    int jobs;
    int chunks, last_steps; /* last_steps: products of the last chunk for each tap */
    int slabs;              /* slots */
    int weights;            /* slots; of a narrow layer all: chunks * kernel_h * row_slots */
    uint32_t slab_bytes;    /* of a slot */
    uint32_t copy_bytes;    /* of a slab's copy */
} taps_shape;

/* What happens to a sum before it is written; pointers may be NULL. */
typedef struct taps_end {
    const void *b;    // (columns)
    const void *mask; // as the result, which becomes 0 where the mask is not above 0
    bool relu;
} taps_end;

/* Teams of a narrow layer whose tiles have n places. */
static constexpr int taps_teams(int n)
{
    return n <= 192 ? 3 : 2;
}

/* A warpgroup computes GROUPS * N places by 64 rows, which are channels or, if PAIRED, halves of 32 channels. */
template <class T_, bool WIDE_, int GROUPS_, int N_, bool PAIRED_ = false>
struct taps_tile {
    typedef T_ T;
    enum {
        BF16 = sizeof(T) == 2,
        WIDE = WIDE_,
        GROUPS = GROUPS_,
        N = N_,
        PAIRED = PAIRED_,
        SLOT_TAPS = PAIRED ? 2 : 1, /* neighbouring taps of a slot of weights */
        TEAMS = WIDE ? 1 : taps_teams(N),
        MULTIPLIERS = WIDE ? 2 : TEAMS,           /* warpgroups */
        REGISTERS = MULTIPLIERS == 2 ? 232 : 152, /* of their threads */
        THREADS = (1 + MULTIPLIERS) * GROUP,
        TEAM_WARPS = (WIDE ? 2 : 1) * GROUP / 32,
        ROWS = WIDE ? 2 * PRODUCT_ROWS : PRODUCT_ROWS,
        WEIGHT_BYTES = ROWS * LINE, /* of a slot: a tap, or a pair of taps, of a chunk */
        CHUNK = LINE / sizeof(T)    /* channels */
    };
};

/* The channel of a row of the weights in shared memory, in its 64: rows i and i + 8 of each 16, which are sums of one
 * thread, are neighbours. */
static __host__ __device__ __forceinline__ int channel_of(int row)
{
    return row / 16 * 16 + row % 8 * 2 + row / 8 % 2;
}

/* The channel of a row of paired taps: row i of each 16 has the first tap of a pair, row i + 8 the second one. */
static __host__ __device__ __forceinline__ int paired_channel_of(int row)
{
    return row / 16 * 8 + row % 8;
}

static __host__ __device__ __forceinline__ int paired_tap_of(int row)
{
    return row / 8 % 2;
}

/* A job: sample, first row of the result, tile of its channels. */
struct taps_job {
    int n, row, tile;

    __device__ __forceinline__ taps_job(const taps_shape &s, int job)
    {
        int all = job / s.column_tiles;
        tile = job - all * s.column_tiles;
        n = all / s.row_tiles;
        row = (all - n * s.row_tiles) * s.rows;
    }

    /* In the result. */
    __device__ __forceinline__ size_t first_pixel(const taps_shape &s) const
    {
        return ((size_t)n * s.height + row) * (size_t)s.width;
    }

    /* Of the result's rows, with all channels. */
    __device__ __forceinline__ uint32_t elements(const taps_shape &s) const
    {
        return (uint32_t)(min(s.rows, s.height - row) * s.width * s.columns);
    }
};

/* Shared memory: slots of weights, slabs, barriers: full and empty of each slot, of the weights first, then turns of
 * teams, then the offset of each place. */
template <class P>
struct taps_memory {
    enum { PLACES = P::GROUPS * P::N };
    const taps_shape &s;
    uint32_t weights, slabs, barriers;

    __device__ __forceinline__ taps_memory(const taps_shape &s_, const char *raw) : s(s_)
    {
        weights = (shared_at(raw) + ALIGN - 1) & ~(uint32_t)(ALIGN - 1);
        slabs = weights + (uint32_t)s.weights * P::WEIGHT_BYTES;
        barriers = slabs + (uint32_t)s.slabs * s.slab_bytes;
    }

    __device__ __forceinline__ uint32_t weight(int i) const
    {
        return weights + (uint32_t)i * P::WEIGHT_BYTES;
    }

    __device__ __forceinline__ uint32_t slab(int i) const
    {
        return slabs + (uint32_t)i * s.slab_bytes;
    }

    __device__ __forceinline__ uint32_t weight_full(int i) const
    {
        return barriers + (uint32_t)i * 16;
    }

    __device__ __forceinline__ uint32_t weight_empty(int i) const
    {
        return weight_full(i) + 8;
    }

    __device__ __forceinline__ uint32_t slab_full(int i) const
    {
        return weight_full(s.weights + i);
    }

    __device__ __forceinline__ uint32_t slab_empty(int i) const
    {
        return slab_full(i) + 8;
    }

    __device__ __forceinline__ uint32_t turn(int team) const
    {
        return weight_full(s.weights + s.slabs) + (uint32_t)team * 8;
    }

    /* The memory of the offset of a place's pixel in the result of a job, in elements; UINT_MAX if it has none. */
    __device__ __forceinline__ uint32_t offset(int place) const
    {
        return turn(TAPS_TURNS) + (uint32_t)place * 4;
    }

    /* By all threads. */
    __device__ __forceinline__ void init_offsets() const
    {
        for (int place = (int)threadIdx.x; place < PLACES; place += P::THREADS) {
            int row = place / s.pitch, column = place - row * s.pitch;
            uint32_t at = column < s.width ? (uint32_t)((row * s.width + column) * s.columns) : UINT_MAX;
            store_shared(offset(place), __uint_as_float(at));
        }
    }

    /* Zeros behind the copies, by all threads. The last tap of an odd row has no pair: weights of 0 multiply the place
     * on its right, which may be the one behind the slab. (A value there that is not finite may also reach the result
     * on the left of its windows.) */
    __device__ __forceinline__ void init_slabs() const
    {
        uint32_t bytes = s.slab_bytes - s.copy_bytes;
        for (uint32_t at = threadIdx.x * UNIT; at < bytes; at += P::THREADS * UNIT)
            for (int i = 0; i < s.slabs; i++)
                store_unit(slab(i) + s.copy_bytes + at, make_uint4(0, 0, 0, 0));
        shared_publish();
    }

    /* By one thread. */
    __device__ __forceinline__ void init_barriers() const
    {
        for (int team = 0; team < P::TEAMS; team++)
            barrier_init(turn(team), P::TEAM_WARPS);
        for (int i = 0; i < s.weights + s.slabs; i++) {
            barrier_init(weight_full(i), 1);
            barrier_init(weight_empty(i), P::TEAM_WARPS);
        }
        barriers_publish();
    }
};

#endif
