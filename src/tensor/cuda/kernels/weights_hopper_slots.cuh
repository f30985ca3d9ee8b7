/* weights_hopper_slots.cuh - tiles, jobs and shared memory of weights_hopper.cuh. For nvcc only. */
#ifndef LK_TENSOR_CUDA_KERNELS_WEIGHTS_HOPPER_SLOTS_CUH
#define LK_TENSOR_CUDA_KERNELS_WEIGHTS_HOPPER_SLOTS_CUH

#include "tensor/cuda/kernels/hopper.cuh"
#include "tensor/cuda/kernels/mma.cuh"
#include "tensor/cuda/kernels/weights.h"

/* LINE: bytes of a row of a box. PIECE: rows of a copy at the end of a leaf. */
enum { LINE = 128, PIECE = 16, GROUP = 128, ALIGN = 1024 };

/* Warps that neither copy nor multiply, and their threads. */
enum { HELPERS = 3, HELPING = HELPERS * 32 };

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

template <class T_, int M_, int N_, int SLOTS_, int LEVELS_>
struct hopper_tile {
    typedef T_ T;
    enum {
        BF16 = sizeof(T) == 2,
        M = M_,
        N = N_,
        K = BF16 ? 64 : 32,
        SLOTS = SLOTS_,
        LEVELS = LEVELS_,
        BOX = LINE / sizeof(T),
        BOX_BYTES = K * LINE,
        BOXES_Y = M / BOX,
        BOXES_X = N / BOX,
        Y_BYTES = BOXES_Y * BOX_BYTES,
        SLOT_BYTES = (BOXES_Y + BOXES_X) * BOX_BYTES,
        BYTES = SLOTS * SLOT_BYTES + ALIGN + 3 * SLOTS * 8 + (HELPERS + LEVELS + 1) * M * 4,
        GROUPS = N % 192 == 0 ? 3 : 2, /* warpgroups that multiply */
        MULTIPLIERS = GROUPS * GROUP,
        GROUP_N = M == 128 ? N : N / 2, /* bf16: columns of a warpgroup; with 64 channels both have the same rows */
        TILES = N / (GROUPS * 64),      /* tf32: tiles of wgmma of a warpgroup, each of 64 columns by M channels */
        SUMS = BF16 ? GROUP_N / 2 : TILES * M / 2,
        ALL_REGISTERS = GROUPS == 2 ? 504 : 512, /* of one thread of each warpgroup */
        OTHER_REGISTERS = BF16 ? 56 : 72,        /* of a thread that does not multiply */
        REGISTERS = (ALL_REGISTERS - OTHER_REGISTERS) / GROUPS / 8 * 8
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

/* Shared memory: slots, then for each slot a barrier that is complete when it is full, one when it is empty, and one
 * when its boxes of dy are transposed, then the sums of a bias. */
template <class P>
struct slot_memory {
    uint32_t base;

    __device__ __forceinline__ slot_memory(const char *memory)
    {
        base = (shared_at(memory) + ALIGN - 1) & ~(uint32_t)(ALIGN - 1);
    }

    __device__ __forceinline__ uint32_t slot(int i) const
    {
        return base + i * P::SLOT_BYTES;
    }

    __device__ __forceinline__ uint32_t full(int i) const
    {
        return base + P::SLOTS * P::SLOT_BYTES + i * 8;
    }

    __device__ __forceinline__ uint32_t empty(int i) const
    {
        return full(P::SLOTS) + i * 8;
    }

    __device__ __forceinline__ uint32_t transposed(int i) const
    {
        return empty(P::SLOTS) + i * 8;
    }

    __device__ __forceinline__ uint32_t sums() const
    {
        return transposed(P::SLOTS);
    }
};

#endif
