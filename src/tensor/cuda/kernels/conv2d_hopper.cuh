/* conv2d_hopper.cuh - the kernels of conv2d_hopper.cu. For nvcc only, and for sm_90a only.
 *
 * A job is a tile of rows of the result of one sample, and up to ROWS of its channels. The source of the tile, with the
 * pixels around it that its windows read, comes to shared memory in chunks of 128 bytes of channels: slabs of places,
 * one place for each pixel, `pitch` places for each row, of which the last kernel_w - 1 have no pixel of the result.
 * Place i of the result reads place i + r * pitch + c of the slab by tap (r, c). So each tap is a product of its
 * weights (channels of the result by channels of the source) with places that begin at another row of the same slab.
 *
 * Each sum is one chain over chunks, taps and channels, whose order depends on the layer only.
 *
 * Narrow layers (up to 64 channels): the weights stay in shared memory, and the block has three warpgroups (two, if
 * their sums need more registers) that are teams and take turns with its jobs: one multiplies while the others read
 * masks and write. Slabs come in one ring in the order of jobs; a team begins when the one before has got the last slab
 * of its job. Wide layers: two warpgroups are one team and have 64 channels each of the same places; weights come in a
 * ring of slots, too. One warp starts the copies of slabs and one those of weights. */
#ifndef LK_TENSOR_CUDA_KERNELS_CONV2D_HOPPER_CUH
#define LK_TENSOR_CUDA_KERNELS_CONV2D_HOPPER_CUH

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
    int pad_h, pad_w;    /* of the source; may be negative */
    int pitch;           /* places of a row */
    int rows, row_tiles; /* of the result: of a job, of an image */
    int column_tiles;    /* jobs of the same rows */
    int jobs;
    int chunks, last_steps; /* last_steps: products of the last chunk for each tap */
    int slabs;              /* slots */
    int weights;            /* slots; of a narrow layer all: chunks * taps */
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

/* A warpgroup computes GROUPS * N places by 64 channels. */
template <class T_, bool WIDE_, int GROUPS_, int N_>
struct taps_tile {
    typedef T_ T;
    enum {
        BF16 = sizeof(T) == 2,
        WIDE = WIDE_,
        GROUPS = GROUPS_,
        N = N_,
        TEAMS = WIDE ? 1 : taps_teams(N),
        MULTIPLIERS = WIDE ? 2 : TEAMS,           /* warpgroups */
        REGISTERS = MULTIPLIERS == 2 ? 232 : 152, /* of their threads */
        THREADS = (1 + MULTIPLIERS) * GROUP,
        TEAM_WARPS = (WIDE ? 2 : 1) * GROUP / 32,
        ROWS = WIDE ? 2 * PRODUCT_ROWS : PRODUCT_ROWS,
        WEIGHT_BYTES = ROWS * LINE, /* of a slot: a tap of a chunk */
        CHUNK = LINE / sizeof(T)    /* channels */
    };
};

/* The channel of a row of the weights in shared memory, in its 64: rows i and i + 8 of each 16, which are sums of one
 * thread, are neighbours. */
static __host__ __device__ __forceinline__ int channel_of(int row)
{
    return row / 16 * 16 + row % 8 * 2 + row / 8 % 2;
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

/* Starts the copies of slabs; by one thread. */
template <class P>
static __device__ __forceinline__ void load_slabs(const taps_shape &s, const taps_memory<P> &memory,
                                                  const CUtensorMap *map)
{
    ring_position at = {0, 1};
    for (int i = (int)blockIdx.x; i < s.jobs; i += (int)gridDim.x) {
        taps_job job(s, i);
        for (int chunk = 0; chunk < s.chunks; chunk++) {
            uint32_t full = memory.slab_full(at.slot);
            barrier_wait(memory.slab_empty(at.slot), at.phase);
            barrier_expect(full, s.copy_bytes);
            copy_image(memory.slab(at.slot), map, full, chunk * P::CHUNK, -s.pad_w, job.row - s.pad_h, job.n);
            at.advance(s.slabs);
        }
    }
}

/* Starts the copies of weights; by one thread. packed: (column tiles, chunks, taps, WEIGHT_BYTES). */
template <class P>
static __device__ __forceinline__ void load_weights(const taps_shape &s, const taps_memory<P> &memory,
                                                    const char *packed)
{
    int slots = s.chunks * s.kernel_h * s.kernel_w;
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
        if (!P::WIDE)
            break; /* they stay */
    }
}

/* The sums of a warpgroup. */
template <class P>
struct taps_product {
    const taps_shape &s;
    const taps_memory<P> &memory;
    int group, turn_phase;
    ring_position slab, weight;
    float acc[P::GROUPS][P::N / 2];

    __device__ __forceinline__ taps_product(const taps_shape &s_, const taps_memory<P> &memory_, int group_)
        : s(s_), memory(memory_), group(group_), turn_phase(group_ == 0), slab{0, 0}, weight{0, 0}
    {
    }

    /* Starts the products of 32 bytes of channels. */
    __device__ __forceinline__ void add_step(uint64_t a, uint64_t b)
    {
#pragma unroll
        for (int g = 0; g < P::GROUPS; g++)
            wgmma_rows<P::BF16, P::N>(acc[g], a, rows_moved(b, g * P::N * LINE), true);
    }

    /* Starts the products of a tap, whose places begin at `places`. Each branch commits its own products: after a
     * commit behind the branch, wgmma_wait<1> would wait for all of them. */
    __device__ __forceinline__ void add_tap(uint32_t places, int steps)
    {
        uint64_t a = rows_at(memory.weight(weight.slot) + (P::WIDE ? group * PRODUCT_ROWS * LINE : 0));
        uint64_t b = rows_at(places);
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
        if constexpr (!P::WIDE) {
            if (last)
                release(memory.turn((group + 1) % P::TEAMS));
        }
    }

    /* Adds a chunk. All of its products are complete afterwards. */
    __device__ __forceinline__ void add_chunk(int steps, bool last)
    {
        uint32_t places = memory.slab(slab.slot);
        int before = -1, skip = s.pitch - s.kernel_w;
        wait_slab(last);
#pragma unroll 1
        for (int r = 0; r < s.kernel_h; r++, places += (uint32_t)(skip * LINE))
#pragma unroll 1
            for (int c = 0; c < s.kernel_w; c++, places += LINE) {
                barrier_wait(memory.weight_full(weight.slot), weight.phase);
                add_tap(places, steps);
                wgmma_wait<1>();
                if constexpr (P::WIDE) {
                    if (before >= 0)
                        release(memory.weight_empty(before));
                    before = weight.slot;
                }
                weight.advance(s.weights);
            }
        wgmma_wait<0>();
        if constexpr (P::WIDE)
            release(memory.weight_empty(before));
        release(memory.slab_empty(slab.slot));
        slab.advance(s.slabs);
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
        if constexpr (!P::WIDE) {
            barrier_wait(memory.turn(group), turn_phase);
            turn_phase ^= 1;
        }
        for (int chunk = 0; chunk < s.chunks; chunk++) {
            bool last = chunk + 1 == s.chunks;
            add_chunk(last ? s.last_steps : (int)STEPS, last);
        }
        if constexpr (!P::WIDE)
            weight.phase = 0; /* narrow weights are loaded once: their barriers complete phase 0 alone */
#pragma unroll
        for (int g = 0; g < P::GROUPS; g++)
#pragma unroll
            for (int i = 0; i < P::N / 2; i++)
                asm volatile("" : "+f"(acc[g][i])::"memory");
    }
};

/* Writes two neighbouring channels, without a branch. */
static __device__ __forceinline__ void put_if(bool used, float *p, float x, float y)
{
    asm volatile("{.reg .pred used; setp.ne.b32 used, %0, 0; @used st.global.v2.f32 [%1], {%2, %3};}" ::"r"((int)used),
                 "l"(p), "f"(x), "f"(y)
                 : "memory");
}

static __device__ __forceinline__ void put_if(bool used, lk_bf16 *p, float x, float y)
{
    const float v[2] = {x, y};
    asm volatile("{.reg .pred used; setp.ne.b32 used, %0, 0; @used st.global.b32 [%1], %2;}" ::"r"((int)used), "l"(p),
                 "r"(lk__cuda_pack_pair(v))
                 : "memory");
}

/* The results of a thread: two channels of every eighth pair of places of a job. */
template <class P>
struct taps_result {
    typedef typename P::T T;
    enum { PAIRS = P::GROUPS * P::N / 8, WORDS = (PAIRS + 7) / 8, AT_ONCE = P::GROUPS == 1 ? 4 : 1 };
    uint32_t offsets; /* the memory of those of the thread's first pair of places */
    uint32_t end;     /* elements of the job's result; 0 if the thread's channels do not exist */
    float relu_below; /* 0; NaN without a ReLU, as no number is below that */
    float2 bias;
    T *out;
    uint32_t pass[WORDS]; /* bits of each pair: whether the first channel of its places passes the mask, the second */

    __device__ __forceinline__ taps_result(const taps_shape &s, const taps_memory<P> &memory, const taps_end &end_,
                                           const taps_job &job, int group, void *to)
        : offsets(memory.offset(lk__cuda_lane() % 4 * 2))
    {
        int warp = (int)threadIdx.x % GROUP / 32, lane = lk__cuda_lane();
        int channel = job.tile * P::ROWS + (P::WIDE ? group * PRODUCT_ROWS : 0) + warp * 16 + lane / 4 * 2;
        size_t at = ((size_t)job.n * s.height + job.row) * (size_t)s.width * (size_t)s.columns + channel;
        bool used = channel < s.columns;
        end = used ? (uint32_t)(min(s.rows, s.height - job.row) * s.width * s.columns) : 0;
        relu_below = end_.relu ? 0.0f : __uint_as_float(0x7fffffffu);
        bias = end_.b && used ? lk__cuda_get2((const T *)end_.b + channel) : make_float2(0.0f, 0.0f);
        out = (T *)to + at;
#pragma unroll
        for (int i = 0; i < WORDS; i++)
            pass[i] = end_.mask ? 0 : ~0u;
        if (end_.mask && used)
            read_mask((const T *)end_.mask + at);
    }

    /* The offsets of AT_ONCE pairs from pair i on. */
    __device__ __forceinline__ void find(int i, uint2 (&at)[AT_ONCE]) const
    {
#pragma unroll
        for (int j = 0; j < AT_ONCE && i + j < PAIRS; j++)
            at[j] = load_pair(offsets + (i + j) * 8 * 4);
    }

    static __device__ __forceinline__ uint32_t passing(float2 of)
    {
        return (of.x <= 0.0f ? 0u : 1u) | (of.y <= 0.0f ? 0u : 2u);
    }

    /* Before the products, when registers are free for many reads at once. */
    __device__ __forceinline__ void read_mask(const T *mask)
    {
        const float2 none = make_float2(0.0f, 0.0f);
        uint2 at[AT_ONCE];
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            if (i % AT_ONCE == 0)
                find(i, at);
            uint2 pair = at[i % AT_ONCE];
            float2 first = pair.x < end ? lk__cuda_get2(mask + pair.x) : none;
            float2 second = pair.y < end ? lk__cuda_get2(mask + pair.y) : none;
            pass[i / 8] |= (passing(first) | passing(second) << 2) << i % 8 * 4;
        }
    }

    /* `bit` of pair i says whether v passes the mask. */
    __device__ __forceinline__ float finish(float v, int i, int bit) const
    {
        return (pass[i / 8] & 1u << (i % 8 * 4 + bit)) && !(v <= relu_below) ? v : 0.0f;
    }

    /* For sums as in wgmma_add. */
    __device__ __forceinline__ void write(const float (&acc)[P::GROUPS][P::N / 2]) const
    {
        T *to = out;
        uint2 at[AT_ONCE];
        asm volatile(""
                     : "+l"(to)); /* one address, of which the compiler does not recompute the parts for each place */
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            const float *v = acc[i * 8 / P::N] + i % (P::N / 8) * 4;
            if (i % AT_ONCE == 0)
                find(i, at);
            uint2 pair = at[i % AT_ONCE];
            put_if(pair.x < end, to + pair.x, finish(v[0] + bias.x, i, 0), finish(v[2] + bias.y, i, 1));
            put_if(pair.y < end, to + pair.y, finish(v[1] + bias.x, i, 2), finish(v[3] + bias.y, i, 3));
        }
    }
};

template <class P>
static __device__ __forceinline__ void multiply_all(const taps_shape &s, const taps_memory<P> &memory,
                                                    const taps_end &end, int group, void *out)
{
    taps_product<P> product(s, memory, group);
    int before = P::WIDE ? 0 : group; /* jobs of other teams */
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
    lk__cuda_await_alone();
    __syncthreads();
    int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0), group = warp / (GROUP / 32); /* uniform for the compiler */
    if (group == 0) {
        registers_shrink<40>();
        if (threadIdx.x % 32 == 0 && warp == SLAB_WARP)
            load_slabs<P>(s, memory, &map);
        if (threadIdx.x % 32 == 0 && warp == WEIGHT_WARP)
            load_weights<P>(s, memory, packed);
    } else {
        registers_grow<P::REGISTERS>();
        multiply_all<P>(s, memory, end, group - 1, out);
    }
}

/* The layout of packed weights: rows of a slot, slots of a tile of rows, units of all. */
typedef struct taps_pack {
    int rows, slots, taps, depth, columns;
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
    int tile = all / p.slots, slot = all - tile * p.slots, chunk = slot / p.taps, tap = slot - chunk * p.taps;
    int channel = tile * p.rows + channel_of(row), k = (chunk * UNITS + unit) * EACH;
    __align__(16) T v[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        size_t at = FORWARD ? ((size_t)channel * p.taps + tap) * (size_t)p.depth + k + e
                            : ((size_t)(k + e) * p.taps + p.taps - 1 - tap) * (size_t)p.columns + channel;
        v[e] = channel < p.columns && k < p.depth ? packed_value(w[at]) : T(0.0f);
    }
    size_t line = (size_t)all * p.rows + row;
    *(uint4 *)((char *)out + line * LINE + (unit ^ row % UNITS) * UNIT) = *(const uint4 *)v;
}

#endif
