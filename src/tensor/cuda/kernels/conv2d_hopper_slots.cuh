/* conv2d_hopper_slots.cuh - tiles, jobs and shared memory of conv2d_hopper.cuh. For nvcc only. */
#ifndef LK_TENSOR_CUDA_KERNELS_CONV2D_HOPPER_SLOTS_CUH
#define LK_TENSOR_CUDA_KERNELS_CONV2D_HOPPER_SLOTS_CUH

#include "tensor/cuda/kernels/hopper.cuh"
#include "tensor/cuda/kernels/mma.cuh"
#include "tensor/cuda/kernels/vec4.cuh"

enum { LINE = 128, UNIT = 16, STEP = 32, STEPS = LINE / STEP }; /* bytes: of a place, a unit, and k of a product */
enum { GROUP = 128, PRODUCT_ROWS = 64, EIGHT = 8, ALIGN = 1024, SLAB_WARP = 0, WEIGHT_WARP = 1, TAPS_TURNS = 4 };

/* Slots of weights of a window, at most. */
enum { TAPS_SIDE = 7, TAPS_SLOTS = TAPS_SIDE * TAPS_SIDE };

/* The source is x or, for an input gradient, dy; the result is y or dx. Channels include pads; tiles are in pixels of
 * the result. */
typedef struct taps_shape {
    int depth, columns;        /* channels of the source and of the result */
    int images, height, width; /* of the result */
    int tile_images, tile_rows, tile_width;
    int row_tiles, width_tiles, column_tiles;
    int jobs;
    int pad_h, pad_w;              /* of the source; may be negative */
    bool strips;                   /* places of a tile, see conv2d_hopper.cuh */
    int pitch;                     /* lines of a row of a slab */
    int eight_lines;               /* from eight places to the next eight of a group */
    int group_lines;               /* from the first place of a group to that of the next */
    int slots;                     /* slots of weights of a chunk: one for each tap, or for each pair of taps */
    uint16_t lines[TAPS_SLOTS];    /* the line of the first place for each slot */
    int chunks, last_steps;        /* last_steps: products of the last chunk for each tap */
    int slabs;                     /* slots */
    int weights;                   /* slots; if they stay, all: chunks * slots */
    uint32_t slab_bytes;           /* of a slot */
    uint32_t copy_bytes;           /* of a slab's copy */
    uint32_t image_step, row_step; /* elements of the result */
} taps_shape;

/* What happens to a sum before it is written; pointers may be NULL. */
typedef struct taps_end {
    const void *b;    // (columns)
    const void *mask; // as the result, which becomes 0 where the mask is not above 0
    bool relu;
} taps_end;

/* Teams of one warpgroup whose tiles have n places. */
static constexpr int taps_teams(int n)
{
    return n <= 192 ? 3 : 2;
}

/* How blocks compute layers, see conv2d_hopper.cuh. */
enum taps_kind { TAPS_KIND_NARROW, TAPS_KIND_PAIRED, TAPS_KIND_WIDE, TAPS_KIND_TALL };

/* A warpgroup computes GROUPS * N places by 64 rows, which are channels or, if PAIRED, halves of 32 channels. */
template <class T_, taps_kind KIND, int GROUPS_, int N_, bool PIXELS_ = false>
struct taps_tile {
    typedef T_ T;
    enum {
        BF16 = sizeof(T) == 2,
        PAIRED = KIND == TAPS_KIND_PAIRED,
        PIXELS = PIXELS_, /* for windows of one pixel, with two slabs or more */
        WIDE = KIND == TAPS_KIND_WIDE,
        TALL = KIND == TAPS_KIND_TALL,
        RING = WIDE || TALL, /* of weights, for a team of two warpgroups */
        GROUPS = GROUPS_,
        N = N_,
        PLACES = (TALL ? 2 : 1) * GROUPS * N, /* of a tile */
        SLOT_TAPS = PAIRED ? 2 : 1,           /* neighbouring taps of a slot of weights */
        TEAMS = RING ? 1 : taps_teams(N),
        MULTIPLIERS = RING ? 2 : TEAMS,           /* warpgroups */
        REGISTERS = MULTIPLIERS == 2 ? 232 : 152, /* of their threads */
        THREADS = (1 + MULTIPLIERS) * GROUP,
        TEAM_WARPS = (RING ? 2 : 1) * GROUP / 32,
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

/* A job: the first pixel of its tile, and the tile of its channels. */
struct taps_job {
    int n, row, column, tile;
    bool last; /* of its rows */

    __device__ __forceinline__ taps_job(const taps_shape &s, int job)
    {
        int all = job / s.column_tiles, across = all / s.width_tiles, at = all - across * s.width_tiles;
        tile = job - all * s.column_tiles;
        last = at + 1 == s.width_tiles;
        column = at * s.tile_width;
        n = across / s.row_tiles;
        row = (across - n * s.row_tiles) * s.tile_rows;
        n *= s.tile_images;
    }

    /* In the result. */
    __device__ __forceinline__ size_t first_pixel(const taps_shape &s) const
    {
        return ((size_t)n * s.height + row) * (size_t)s.width + column;
    }

    /* Places from this offset on are behind the last image or row. Tiles of several images have all rows. */
    __device__ __forceinline__ uint32_t end(const taps_shape &s) const
    {
        return s.images - n < s.tile_images   ? (uint32_t)(s.images - n) * s.image_step
               : s.height - row < s.tile_rows ? (uint32_t)(s.height - row) * s.row_step
                                              : UINT_MAX;
    }
};

/* A place of a tile, as a pixel of it. */
struct taps_place {
    int image, row, column;

    __device__ __forceinline__ taps_place(const taps_shape &s, int group, int i, int places)
    {
        if (s.strips) {
            int eight = i / EIGHT;
            row = eight / s.tile_images;
            image = eight - row * s.tile_images;
            column = group * EIGHT + i % EIGHT;
        } else {
            int all = group * places + i;
            row = all / s.pitch;
            image = 0;
            column = all - row * s.pitch;
        }
    }
};

/* Shared memory: slots of weights, slabs, barriers: full and empty of each slot, of the weights first, then turns of
 * teams, then the offset of each place: for tiles of full width, and for the last one of a row. */
template <class P>
struct taps_memory {
    enum { PLACES = P::PLACES };
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
    __device__ __forceinline__ uint32_t offset(bool last, int place) const
    {
        return turn(TAPS_TURNS) + (uint32_t)(last * PLACES + place) * 4;
    }

    /* By all threads. */
    __device__ __forceinline__ void init_offsets() const
    {
        for (int i = (int)threadIdx.x; i < PLACES; i += P::THREADS) {
            taps_place place(s, i / P::N, i % P::N, P::N);
            bool inside = place.image < s.tile_images && place.row < s.tile_rows;
            uint32_t at = (uint32_t)place.image * s.image_step + (uint32_t)place.row * s.row_step +
                          (uint32_t)(place.column * s.columns);
            int left = s.width - (s.width_tiles - 1) * s.tile_width;
            store_shared(offset(false, i), __uint_as_float(inside && place.column < s.tile_width ? at : UINT_MAX));
            store_shared(offset(true, i), __uint_as_float(inside && place.column < left ? at : UINT_MAX));
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
