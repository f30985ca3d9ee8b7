/* weights_hopper_helpers.cuh - the warps of weights_hopper.cuh that neither copy nor multiply: they transpose dy, and
 * sum its columns for the gradient of a bias. For nvcc only, and for sm_90a only.
 *
 * A lane sums one or two channels of the rows of a box. A leaf has HELPERS sums for each channel; chunk i is added to
 * sum i % HELPERS. Boxes are dealt to warps in turn over all chunks, so that one warp always adds to the same sum. At
 * the end of a leaf its sums are added, and leaves are folded like those of the weights. */
#ifndef LK_TENSOR_CUDA_KERNELS_WEIGHTS_HOPPER_HELPERS_CUH
#define LK_TENSOR_CUDA_KERNELS_WEIGHTS_HOPPER_HELPERS_CUH

#include "tensor/cuda/kernels/weights_hopper_slots.cuh"

/* Where a lane finds its word of a row of a box, one channel of tf32 or two of bf16; see copy_box. */
static __device__ __forceinline__ uint32_t word_at(uint32_t box, int row)
{
    enum { UNIT = 16 };
    int lane = (int)threadIdx.x % 32;
    return ((box + lane * 4) ^ row % 8 * UNIT) + row * LINE;
}

/* The gradient of a bias. */
template <class P>
struct bias_sums {
    enum { EACH = 4 / sizeof(typename P::T), ROW = P::M * 4 }; /* channels of a lane, bytes of a row */
    uint32_t memory; // (HELPERS + levels + 1, M): sums of a leaf, then leaves that are not merged yet
    int depth;       // of the latter

    __device__ __forceinline__ explicit bias_sums(uint32_t memory_) : memory(memory_), depth(0)
    {
    }

    static __device__ __forceinline__ void wait_for_helpers()
    {
        asm volatile("bar.sync 2, %0;" ::"n"((int)HELPING) : "memory");
    }

    /* Adds a lane's sums of a box; `chunk` counts from the first one of the leaf or part. */
    __device__ __forceinline__ void add(int chunk, int box, const float (&sum)[EACH]) const
    {
        uint32_t to = memory + chunk % HELPERS * ROW + (box * P::BOX + (int)threadIdx.x % 32 * EACH) * 4;
#pragma unroll
        for (int e = 0; e < EACH; e++)
            store_shared(to + e * 4, chunk < HELPERS ? sum[e] : load_shared(to + e * 4) + sum[e]);
    }

    /* Ends a leaf of so many chunks. */
    __device__ __forceinline__ void end_leaf(int chunks, int merges)
    {
        wait_for_helpers();
        depth -= merges;
        for (int channel = (int)threadIdx.x - 32; channel < P::M; channel += HELPING) {
            uint32_t from = memory + channel * 4, to = from + (HELPERS + depth) * ROW;
            float sum = load_shared(from);
            for (int turn = 1; turn < min(chunks, (int)HELPERS); turn++)
                sum += load_shared(from + turn * ROW);
            for (int m = merges - 1; m >= 0; m--)
                sum = load_shared(to + m * ROW) + sum;
            store_shared(to, sum);
        }
        depth++;
        wait_for_helpers();
    }

    /* Writes the only sum that is left, of the first `channels` channels. */
    __device__ __forceinline__ void write(float *out, int channels)
    {
        for (int channel = (int)threadIdx.x - 32; channel < min(channels, (int)P::M); channel += HELPING)
            out[channel] = load_shared(memory + HELPERS * ROW + channel * 4);
        depth = 0;
    }
};

/* wgmma takes tf32 from shared memory only if a line is k. A warp transposes a box of dy, 32 rows by 32 channels, in
 * its place: a lane has a channel, and sums it if that is wanted. The rows of an eight are in the order 0, 2, 4, 6, 1,
 * 3, 5, 7, which keeps the reads of x in tf32_product free of bank conflicts. */
static __device__ __forceinline__ void transpose_box(uint32_t box, bool wanted, float (&sum)[1])
{
    enum { ROWS = 32 };
    int lane = (int)threadIdx.x % 32;
    uint32_t to = box + lane * LINE + lane % 8 * 16;
    float v[ROWS];
#pragma unroll
    for (int row = 0; row < ROWS; row++)
        v[row] = load_shared(word_at(box, row));
    __syncwarp();
    if (wanted) {
        float chains[4] = {v[0], v[1], v[2], v[3]};
#pragma unroll
        for (int row = 4; row < ROWS; row++)
            chains[row % 4] += v[row];
        sum[0] = (chains[0] + chains[1]) + (chains[2] + chains[3]);
    }
#pragma unroll
    for (int unit = 0; unit < ROWS / 4; unit++) {
        const float *first = v + unit / 2 * 8 + unit % 2;
        store_unit(to ^ unit * 16, make_uint4(nudge_finite(first[0]), nudge_finite(first[2]), nudge_finite(first[4]),
                                              nudge_finite(first[6])));
    }
}

/* Sums the valid rows of a box of bf16. */
static __device__ __forceinline__ void sum_box(uint32_t box, int rows, float (&sum)[2])
{
    sum[0] = sum[1] = 0.0f;
#pragma unroll 8
    for (int row = 0; row < rows; row++) {
        uint32_t pair = __float_as_uint(load_shared(word_at(box, row)));
        sum[0] += __uint_as_float(pair << 16);
        sum[1] += __uint_as_float(pair & 0xffff0000u);
    }
}

/* The warps that transpose and sum. They take the boxes of dy in turns. All of them wait for each chunk and arrive
 * after it, also without a box, so that no helper is more than one phase behind. */
template <class P>
struct box_helper {
    int first; /* the warp's first box in the next chunk */
    bool sums; /* whether boxes are summed */
    bias_sums<P> bias;

    __device__ __forceinline__ explicit box_helper(const slot_memory<P> &memory)
        : first((int)threadIdx.x / 32 - 1), bias(memory.sums())
    {
    }

    /* Zeros in the rows from `row` on of a box of dy, and of some boxes of x: each belongs to one box of dy. */
    static __device__ __forceinline__ void clear(uint32_t slot, int box, int row)
    {
        int lane = (int)threadIdx.x % 32;
#pragma unroll 1
        for (int i = box; i < P::BOXES_Y + P::BOXES_X; i += P::BOXES_Y)
#pragma unroll 1
            for (int j = row; j < P::K; j++)
                store_shared(slot + i * P::BOX_BYTES + j * LINE + lane * 4, 0.0f);
        __syncwarp();
    }

    /* `chunk` counts from the first one of the leaf or part. */
    __device__ __forceinline__ void add(const slot_memory<P> &memory, ring_position at, int chunk, int valid)
    {
        uint32_t slot = memory.slot(at.slot);
        int box = first;
        barrier_wait(memory.full(at.slot), at.phase);
#pragma unroll 1
        for (; box < P::BOXES_Y; box += HELPERS) {
            float sum[bias_sums<P>::EACH];
            if constexpr (P::BF16) {
                if (sums)
                    sum_box(slot + box * P::BOX_BYTES, min(valid, (int)P::K), sum);
            } else {
                if (valid < P::K)
                    clear(slot, box, max(valid, 0));
                transpose_box(slot + box * P::BOX_BYTES, sums, sum);
            }
            if (sums)
                bias.add(chunk, box, sum);
        }
        if constexpr (!P::BF16)
            shared_publish();
        release(P::BF16 ? memory.empty(at.slot) : memory.transposed(at.slot));
        first = box - P::BOXES_Y;
    }
};

/* For each block row and each M channels, one tile of columns sums the bias. Which one rotates from row to row, because
 * a block mostly gets the same tile of every row. */
template <class P>
static __device__ __forceinline__ void help_all(const hopper_shape &s, const lk_cuda_leaves &leaves,
                                                const slot_memory<P> &memory, const lk_cuda_rows &out)
{
    box_helper<P> helper(memory);
    ring_position at = {0, 0};
    tile_work work;
    for (int job = (int)blockIdx.x; job < s.jobs; job += (int)gridDim.x) {
        if (!work.template take<P>(s, leaves, job))
            continue;
        helper.sums = out.bias && work.box0 == work.row % s.tiles_n * P::BOXES_X;
        for (int leaf = work.leaf; leaf < work.last; leaf++) {
            int rows = tile_work::rows(leaves, leaf), end = work.template end<P>(leaves, leaf);
            for (int chunk = work.from; chunk < end; chunk++) {
                helper.add(memory, at, chunk - work.from, rows - chunk * P::K);
                at.template advance<P::SLOTS>();
            }
            if (helper.sums)
                helper.bias.end_leaf(end - work.from, leaves.inner[leaf]);
        }
        if (helper.sums)
            helper.bias.write(out.bias + (size_t)work.row * out.row + work.m0, s.k - work.m0);
    }
}

#endif
