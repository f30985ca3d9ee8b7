/* conv2d_hopper_result.cuh - what conv2d_hopper.cuh does with its sums: bias, ReLU, mask, writing. For nvcc only. */
#ifndef LK_TENSOR_CUDA_KERNELS_CONV2D_HOPPER_RESULT_CUH
#define LK_TENSOR_CUDA_KERNELS_CONV2D_HOPPER_RESULT_CUH

#include "tensor/cuda/kernels/conv2d_hopper_slots.cuh"

/* Writes one channel or two neighbouring ones, without a branch. */
static __device__ __forceinline__ void put_if(bool used, float *p, const float (&v)[1])
{
    asm volatile("{.reg .pred used; setp.ne.b32 used, %0, 0; @used st.global.f32 [%1], %2;}" ::"r"((int)used), "l"(p),
                 "f"(v[0])
                 : "memory");
}

static __device__ __forceinline__ void put_if(bool used, float *p, const float (&v)[2])
{
    asm volatile("{.reg .pred used; setp.ne.b32 used, %0, 0; @used st.global.v2.f32 [%1], {%2, %3};}" ::"r"((int)used),
                 "l"(p), "f"(v[0]), "f"(v[1])
                 : "memory");
}

static __device__ __forceinline__ void put_if(bool used, lk_bf16 *p, const float (&v)[2])
{
    asm volatile("{.reg .pred used; setp.ne.b32 used, %0, 0; @used st.global.b32 [%1], %2;}" ::"r"((int)used), "l"(p),
                 "r"(lk__cuda_pack_pair(v))
                 : "memory");
}

template <class T>
static __device__ __forceinline__ void get_if(bool used, const T *p, float (&v)[1])
{
    v[0] = used ? lk__cuda_get1(p) : 0.0f;
}

template <class T>
static __device__ __forceinline__ void get_if(bool used, const T *p, float (&v)[2])
{
    float2 pair = used ? lk__cuda_get2(p) : make_float2(0.0f, 0.0f);
    v[0] = pair.x;
    v[1] = pair.y;
}

/* The results of a thread: CHANNELS neighbouring channels of every eighth pair of places of a job. */
template <class P>
struct taps_result {
    typedef typename P::T T;
    enum {
        CHANNELS = P::PAIRED ? 1 : 2,
        PAIRS = P::GROUPS * P::N / 8,
        BITS = 2 * CHANNELS, /* of a pair of places in `pass` */
        WORD_PAIRS = 32 / BITS,
        WORDS = (PAIRS + WORD_PAIRS - 1) / WORD_PAIRS,
        AT_ONCE = P::PAIRED        ? 10
                  : P::GROUPS == 1 ? 4
                                   : 1
    };
    uint32_t offsets; /* the memory of those of the thread's first pair of places */
    uint32_t end;     /* of the job's offsets; 0 if the thread's channels do not exist */
    float relu_below; /* 0; NaN without a ReLU, as no number is below that */
    float bias[CHANNELS];
    T *out;
    uint32_t
        pass[WORDS]; /* whether the values of a place pass the mask: BITS for each pair, channels of a place first */

    __device__ __forceinline__ taps_result(const taps_shape &s, const taps_memory<P> &memory, const taps_end &end_,
                                           const taps_job &job, int group, void *to)
        : offsets(memory.offset(job.last, (P::TALL ? group * P::GROUPS * P::N : 0) + lk__cuda_lane() % 4 * 2))
    {
        int warp = (int)threadIdx.x % GROUP / 32, row = warp * 16 + lk__cuda_lane() / 4;
        int channel = P::PAIRED ? paired_channel_of(row)
                                : job.tile * P::ROWS + (P::WIDE ? group * PRODUCT_ROWS : 0) + channel_of(row);
        size_t at = job.first_pixel(s) * (size_t)s.columns + (size_t)channel;
        bool used = channel < s.columns;
        end = used ? job.end(s) : 0;
        relu_below = end_.relu ? 0.0f : __uint_as_float(0x7fffffffu);
        get_if(end_.b && used, (const T *)end_.b + channel, bias);
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

    static __device__ __forceinline__ uint32_t passing(const float (&of)[CHANNELS])
    {
        uint32_t bits = 0;
#pragma unroll
        for (int e = 0; e < CHANNELS; e++)
            bits |= of[e] <= 0.0f ? 0u : 1u << e;
        return bits;
    }

    /* Before the products, when registers are free for many reads at once. */
    __device__ __forceinline__ void read_mask(const T *mask)
    {
#pragma unroll
        for (int from = 0; from < PAIRS; from += AT_ONCE) {
            uint2 at[AT_ONCE];
            float of[AT_ONCE][2][CHANNELS];
            find(from, at);
#pragma unroll
            for (int j = 0; j < AT_ONCE && from + j < PAIRS; j++) {
                get_if(at[j].x < end, mask + at[j].x, of[j][0]);
                get_if(at[j].y < end, mask + at[j].y, of[j][1]);
            }
#pragma unroll
            for (int j = 0; j < AT_ONCE && from + j < PAIRS; j++)
                pass[(from + j) / WORD_PAIRS] |= (passing(of[j][0]) | passing(of[j][1]) << CHANNELS)
                                                 << (from + j) % WORD_PAIRS * BITS;
        }
    }

    /* `bit` of pair i says whether v passes the mask. */
    __device__ __forceinline__ float finish(float v, int i, int bit) const
    {
        return (pass[i / WORD_PAIRS] & 1u << (i % WORD_PAIRS * BITS + bit)) && !(v <= relu_below) ? v : 0.0f;
    }

    /* The four sums of pair i of a thread's places, see wgmma_add. */
    static __device__ __forceinline__ const float *sums_of(const float (&acc)[P::GROUPS][P::N / 2], int i)
    {
        return acc[i * 8 / P::N] + i % (P::N / 8) * 4;
    }

    /* The second taps of pairs belong to the place before theirs, whose sum another lane may have. */
    static __device__ __forceinline__ void add_taps(const float (&acc)[P::GROUPS][P::N / 2], int i, float (&v)[2][1])
    {
        int lane = lk__cuda_lane();
        const float *sums = sums_of(acc, i);
        float next = i + 1 < PAIRS ? sums_of(acc, i + 1)[2] : 0.0f, given = lane % 4 == 0 ? next : sums[2];
        v[0][0] = sums[0] + sums[3];
        v[1][0] = sums[1] + __shfl_sync(~0u, given, lane / 4 * 4 + (lane + 1) % 4);
    }

    static __device__ __forceinline__ void add_taps(const float (&acc)[P::GROUPS][P::N / 2], int i, float (&v)[2][2])
    {
        const float *sums = sums_of(acc, i);
#pragma unroll
        for (int place = 0; place < 2; place++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                v[place][e] = sums[place + 2 * e];
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
            float v[2][CHANNELS];
            add_taps(acc, i, v);
#pragma unroll
            for (int j = 0; j < 2 * CHANNELS; j++)
                v[j / CHANNELS][j % CHANNELS] = finish(v[j / CHANNELS][j % CHANNELS] + bias[j % CHANNELS], i, j);
            if (i % AT_ONCE == 0)
                find(i, at);
            uint2 pair = at[i % AT_ONCE];
            put_if(pair.x < end, to + pair.x, v[0]);
            put_if(pair.y < end, to + pair.y, v[1]);
        }
    }
};

#endif
