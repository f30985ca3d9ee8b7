/* conv2d_hopper.cuh - the kernels of conv2d_hopper.cu. For nvcc only, and for sm_90a only.
 *
 * A job is a tile of the result: pixels of one or several samples, and up to ROWS of its channels. The source of the
 * tile, with the pixels around it that its windows read, comes to shared memory in chunks of 128 bytes of channels:
 * slabs of lines, one line for each pixel, row after row, and in a row image after image. A warpgroup multiplies the
 * weights of a tap (channels of the result by channels of the source) with N lines, the places of the result moved by
 * the tap. Eight places of a product are neighbouring lines; a step leads from eight places to the next. Places are
 * - strips: eight columns of all rows and images of the tile; a group for each strip. The step is a row of the slab, so
 *   that no product is lost on lines around the tile;
 * - or rows: all lines of the slab from the first pixel on. The step is eight lines, and the last kernel_w - 1 lines of
 *   a row have no pixel of the result. This is better for widths far from a multiple of eight, and paired taps need it.
 * A product has 64 rows. Up to 32 channels fill half of them, so the other half has the next tap of the row (paired
 * taps): the sum of place i in that half belongs to place i - 1 of the result.
 *
 * Where windows are single pixels, the pixels of all samples are one row. A tile is a run of neighbouring pixels, one
 * for each of its places.
 *
 * Each sum is one chain over chunks, taps and channels, or two chains if taps are paired. Their order depends on the
 * layer only.
 *
 * Narrow layers (up to 64 channels): the weights stay in shared memory, and the block has three warpgroups (two, if
 * their sums need more registers) that are teams and take turns with its jobs: one multiplies while the others read
 * masks and write. Slabs come in one ring in the order of jobs; a team begins when the one before has got the last slab
 * of its job. Wide layers: two warpgroups are one team and have 64 channels each of the same places; weights come in a
 * ring of slots, too. Tall tiles, for narrow layers whose weights are too large: the two warpgroups of the team have
 * the same channels of different groups. One warp starts the copies of slabs and one those of weights. */
#ifndef LK_TENSOR_CUDA_KERNELS_CONV2D_HOPPER_CUH
#define LK_TENSOR_CUDA_KERNELS_CONV2D_HOPPER_CUH

#include "tensor/cuda/kernels/conv2d_hopper_result.cuh"

/* Brings the mask of a job to the cache: its pixels with all channels, by the first job that has them. */
template <class P>
static __device__ __forceinline__ void fetch_mask(const taps_shape &s, int i, const void *mask)
{
    if (!mask || i >= s.jobs)
        return;
    taps_job job(s, i);
    if (job.tile > 0)
        return;
    int rows = min(s.tile_rows, s.height - job.row), width = min(s.tile_width, s.width - job.column);
    int at_once = width == s.width ? rows : 1; /* rows that are neighbours in memory */
    uint32_t bytes = (uint32_t)(at_once * width * s.columns) * (uint32_t)sizeof(typename P::T);
    const typename P::T *first = (const typename P::T *)mask + job.first_pixel(s) * (size_t)s.columns;
    for (int n = 0; n < min(s.tile_images, s.images - job.n); n++)
        for (int row = 0; row < rows; row += at_once)
            prefetch_bytes(first + (size_t)n * s.image_step + (size_t)row * s.row_step, bytes);
}

/* Starts the copies of slabs; by one thread. */
template <class P>
static __device__ __forceinline__ void load_slabs(const taps_shape &s, const taps_memory<P> &memory,
                                                  const CUtensorMap *map, const void *mask)
{
    enum { AHEAD = P::TEAMS }; /* teams read the masks of their next jobs before their turns */
    ring_position at = {0, 1};
    for (int i = 0; i < AHEAD; i++)
        fetch_mask<P>(s, (int)blockIdx.x + i * (int)gridDim.x, mask);
    for (int i = (int)blockIdx.x; i < s.jobs; i += (int)gridDim.x) {
        taps_job job(s, i);
        fetch_mask<P>(s, i + AHEAD * (int)gridDim.x, mask);
        for (int chunk = 0; chunk < s.chunks; chunk++) {
            uint32_t full = memory.slab_full(at.slot);
            barrier_wait(memory.slab_empty(at.slot), at.phase);
            barrier_expect(full, s.copy_bytes);
            copy_image(memory.slab(at.slot), map, full, chunk * P::CHUNK, job.column - s.pad_w, job.n,
                       job.row - s.pad_h);
            at.advance(s.slabs);
        }
    }
}

/* Starts the copies of weights; by one thread. packed: (column tiles, chunks, slots of a window, WEIGHT_BYTES). */
template <class P>
static __device__ __forceinline__ void load_weights(const taps_shape &s, const taps_memory<P> &memory,
                                                    const char *packed)
{
    int slots = s.chunks * s.slots;
    ring_position at = {0, 1};
    for (int i = (int)blockIdx.x; i < s.jobs; i += (int)gridDim.x) {
        const char *from = packed + (size_t)taps_job(s, i).tile * (size_t)slots * P::WEIGHT_BYTES;
        for (int slot = 0; slot < slots; slot++, from += P::WEIGHT_BYTES) {
            uint32_t full = memory.weight_full(at.slot);
            barrier_wait(memory.weight_empty(at.slot), at.phase);
            barrier_expect(full, P::WEIGHT_BYTES);
            copy_bytes(memory.weight(at.slot), from, P::WEIGHT_BYTES, full);
            at.advance(s.weights);
        }
        if (!P::RING)
            break; /* they stay */
    }
}

/* The sums of a warpgroup. */
template <class P>
struct taps_product {
    const taps_shape &s;
    const taps_memory<P> &memory;
    int group, turn_phase;
    uint32_t first_group, next_group; /* bytes */
    uint64_t step;                    /* of a matrix of places */
    ring_position slab, weight;
    float acc[P::GROUPS][P::N / 2];

    __device__ __forceinline__ taps_product(const taps_shape &s_, const taps_memory<P> &memory_, int group_)
        : s(s_), memory(memory_), group(group_), turn_phase(group_ == 0),
          first_group(P::TALL ? (uint32_t)(group_ * P::GROUPS * s_.group_lines) * LINE : 0),
          next_group((uint32_t)s_.group_lines * LINE),
          step(rows_step((uint32_t)s_.eight_lines * LINE)), slab{0, 0}, weight{0, 0}
    {
    }

    /* Starts the products of 32 bytes of channels. */
    __device__ __forceinline__ void add_step(uint64_t a, uint64_t b)
    {
#pragma unroll
        for (int g = 0; g < P::GROUPS; g++)
            wgmma_rows<P::BF16, P::N>(acc[g], a, rows_moved(b, (uint32_t)g * next_group), true);
    }

    /* Starts the products of a slot of weights, whose places begin at `places`. Each branch commits its own products:
     * after a commit behind the branch, wgmma_wait<1> would wait for all of them. */
    __device__ __forceinline__ void add_slot(uint32_t places, int steps)
    {
        uint64_t a =
            rows_at(memory.weight(weight.slot) + (P::WIDE ? group * PRODUCT_ROWS * LINE : 0)) | rows_step(EIGHT * LINE);
        uint64_t b = rows_at(places) | step;
        if (steps == STEPS) {
            wgmma_begin();
#pragma unroll
            for (int k = 0; k < STEPS; k++)
                add_step(rows_moved(a, k * STEP), rows_moved(b, k * STEP));
            wgmma_commit();
        } else {
#pragma unroll 1
            for (int k = 0; k < steps; k++) {
                wgmma_begin();
                add_step(rows_moved(a, k * STEP), rows_moved(b, k * STEP));
                wgmma_commit();
            }
        }
    }

    /* Waits for a slab; with the last one of a job, the next team has its turn. A team that waited out of turn could
     * take the slab before the slab that it waits for: a barrier shows only the parity of its phase. */
    __device__ __forceinline__ void wait_slab(bool last)
    {
        barrier_wait(memory.slab_full(slab.slot), slab.phase);
        if constexpr (!P::RING) {
            if (last)
                release(memory.turn((group + 1) % P::TEAMS));
        }
    }

    /* Adds a chunk. All of its products are complete afterwards. */
    __device__ __forceinline__ void add_chunk(int steps, bool last)
    {
        uint32_t places = memory.slab(slab.slot) + first_group;
        int before = -1;
        wait_slab(last);
#pragma unroll 1
        for (int i = 0; i < s.slots; i++) {
            barrier_wait(memory.weight_full(weight.slot), weight.phase);
            add_slot(places + (uint32_t)s.lines[i] * LINE, steps);
            wgmma_wait<1>();
            if constexpr (P::RING) {
                if (before >= 0)
                    release(memory.weight_empty(before));
                before = weight.slot;
            }
            weight.advance(s.weights);
        }
        wgmma_wait<0>();
        if constexpr (P::RING)
            release(memory.weight_empty(before));
        release(memory.slab_empty(slab.slot));
        slab.advance(s.slabs);
    }

    /* Gives the slots of an earlier chunk back. */
    __device__ __forceinline__ void release_pixels(int slab_before, int weight_before)
    {
        if constexpr (P::RING)
            release(memory.weight_empty(weight_before));
        release(memory.slab_empty(slab_before));
    }

    /* Adds all chunks; a chunk has one slot of weights. The products of a chunk start before those of the previous
     * chunk are complete, so a job holds two slabs at a time, and there are at least two. */
    __device__ __forceinline__ void add_pixels()
    {
        int slab_before = -1, weight_before = -1;
#pragma unroll 1
        for (int chunk = 0; chunk < s.chunks; chunk++) {
            bool last = chunk + 1 == s.chunks;
            wait_slab(last);
            barrier_wait(memory.weight_full(weight.slot), weight.phase);
            add_slot(memory.slab(slab.slot) + first_group, last ? s.last_steps : (int)STEPS);
            wgmma_wait<1>();
            if (slab_before >= 0)
                release_pixels(slab_before, weight_before);
            slab_before = slab.slot;
            weight_before = weight.slot;
            slab.advance(s.slabs);
            weight.advance(s.weights);
        }
        wgmma_wait<0>();
        release_pixels(slab_before, weight_before);
    }

    __device__ __forceinline__ void add_windows()
    {
        for (int chunk = 0; chunk < s.chunks; chunk++) {
            bool last = chunk + 1 == s.chunks;
            add_chunk(last ? s.last_steps : (int)STEPS, last);
        }
    }

    /* Leaves a job to another team. */
    __device__ __forceinline__ void skip_job()
    {
        for (int chunk = 0; chunk < s.chunks; chunk++)
            slab.advance(s.slabs);
    }

    __device__ __forceinline__ void add_all()
    {
        /* Zeros, not a first product without addends: registers of sums are free between jobs. */
#pragma unroll
        for (int g = 0; g < P::GROUPS; g++)
#pragma unroll
            for (int i = 0; i < P::N / 2; i++)
                acc[g][i] = 0.0f;
        if constexpr (!P::RING) {
            barrier_wait(memory.turn(group), turn_phase);
            turn_phase ^= 1;
        }
        if constexpr (P::PIXELS)
            add_pixels();
        else
            add_windows();
        if constexpr (!P::RING)
            weight.phase = 0; /* narrow weights are loaded once: their barriers complete phase 0 alone */
#pragma unroll
        for (int g = 0; g < P::GROUPS; g++)
#pragma unroll
            for (int i = 0; i < P::N / 2; i++)
                asm volatile("" : "+f"(acc[g][i])::"memory");
    }
};

template <class P>
static __device__ __forceinline__ void multiply_all(const taps_shape &s, const taps_memory<P> &memory,
                                                    const taps_end &end, int group, void *out)
{
    taps_product<P> product(s, memory, group);
    int before = P::RING ? 0 : group; /* jobs of other teams */
    for (int i = (int)blockIdx.x; i < s.jobs; i += (int)gridDim.x) {
        if (before == 0) {
            taps_result<P> result(s, memory, end, taps_job(s, i), group, out);
            product.add_all();
            result.write(product.acc);
        } else {
            product.skip_job();
        }
        before = before == 0 ? P::TEAMS - 1 : before - 1;
    }
}

/* map: the source as images, in boxes of a slab. */
template <class P>
static __global__ void __launch_bounds__(P::THREADS, 1)
    convolve_taps(const __grid_constant__ taps_shape s, const __grid_constant__ CUtensorMap map, const char *packed,
                  const __grid_constant__ taps_end end, void *out)
{
    extern __shared__ char raw[];
    taps_memory<P> memory(s, raw);
    if (threadIdx.x == 0)
        memory.init_barriers();
    memory.init_offsets();
    if constexpr (P::PAIRED)
        memory.init_slabs();
    lk__cuda_await_alone();
    __syncthreads();
    int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0), group = warp / (GROUP / 32); /* uniform for the compiler */
    if (group == 0) {
        registers_shrink<40>();
        if (threadIdx.x % 32 == 0 && warp == SLAB_WARP)
            load_slabs<P>(s, memory, &map, end.mask);
        if (threadIdx.x % 32 == 0 && warp == WEIGHT_WARP)
            load_weights<P>(s, memory, packed);
    } else {
        registers_grow<P::REGISTERS>();
        multiply_all<P>(s, memory, end, group - 1, out);
    }
}

/* The layout of packed weights: rows of a slot, slots of a tile of rows and of a window, units of all. */
typedef struct taps_pack {
    int rows, slots, window_slots, row_slots;
    int taps, kernel_w, depth, columns;
    bool paired;
    unsigned units;
} taps_pack;

static __device__ __forceinline__ float packed_value(float v)
{
    return __uint_as_float(round_tf32(v));
}

static __device__ __forceinline__ lk_bf16 packed_value(lk_bf16 v)
{
    return v;
}

/* Weights in the order of shared memory, see rows_at; tf32 is rounded. w: (y's channels, taps, x's channels). FORWARD:
 * rows are channels of y; otherwise rows are channels of x, and taps are in reverse order. A thread has one unit;
 * neighbouring threads read neighbouring channels of x. */
template <class T, bool FORWARD>
static __global__ void __launch_bounds__(LK_THREADS) pack_taps(const taps_pack p, const T *w, T *out)
{
    lk__cuda_await();
    enum { UNITS = LINE / UNIT, EACH = UNIT / sizeof(T) };
    unsigned i = (unsigned)lk__cuda_thread();
    if (i >= p.units)
        return;
    int rest = (int)(i / UNITS), unit = (int)(i % UNITS), row = rest % p.rows, all = rest / p.rows;
    if (!FORWARD) {
        rest = (int)i / p.rows;
        row = (int)i % p.rows;
        unit = rest % UNITS;
    }
    int tile = all / p.slots, slot = all - tile * p.slots, chunk = slot / p.window_slots;
    int place = slot - chunk * p.window_slots, r = place / p.row_slots, c = place - r * p.row_slots;
    int channel = p.paired ? paired_channel_of(row) : tile * p.rows + channel_of(row),
        k = (chunk * UNITS + unit) * EACH;
    if (p.paired)
        c = 2 * c + paired_tap_of(row);
    int tap = r * p.kernel_w + c;
    bool used = c < p.kernel_w && channel < p.columns;
    __align__(16) T v[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        size_t at = FORWARD ? ((size_t)channel * p.taps + tap) * (size_t)p.depth + k + e
                            : ((size_t)(k + e) * p.taps + p.taps - 1 - tap) * (size_t)p.columns + channel;
        v[e] = used && k < p.depth ? packed_value(w[at]) : T(0.0f);
    }
    size_t line = (size_t)all * p.rows + row;
    *(uint4 *)((char *)out + line * LINE + (unit ^ row % UNITS) * UNIT) = *(const uint4 *)v;
}

#endif
