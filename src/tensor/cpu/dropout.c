/* dropout.c - dropout by the address of each element (base/rng.h).
 *
 * Random numbers are counted in the order c, h, w; memory is in the order h, w, c. A block of philox gives the
 * words of four consecutive elements. With channels as lanes the four words of V blocks are the same channels
 * at four consecutive pixels, which are vectors of memory, if every channel begins at a whole block. If whole
 * channels are dropped, an element is a channel. */
#include "tensor/cpu/dropout.h"
#include "base/math.h"
#include "base/rng.h"
#include "tensor/cpu/chunks.h"
#include "tensor/cpu/decls.h"

typedef struct work {
    const lk_dropout_desc *dropout;
    size_t samples, channels, pixels;
    size_t units;       /* units of work in a sample: see the *_unit functions */
    uint32_t threshold; /* an element is dropped if its word is below */
    float scale;
    const float *x; // (samples, pixels, channels)
    float *y;       // (samples, pixels, channels)
    uint8_t *index; // (n, h, w, c) or NULL: gets LK_POOL2D_NO_GRADIENT for dropped elements
} work;

typedef struct keys {
    v_u32 k0[LK_PHILOX_ROUNDS], k1[LK_PHILOX_ROUNDS];
    v_u32 c1, c2, c3;
} keys;

static void keys_init(keys *k, const lk_rng *rng)
{
    for (uint32_t round = 0; round < LK_PHILOX_ROUNDS; round++) {
        k->k0[round] = vu_set1(rng->key[0] + round * LK_PHILOX_W0);
        k->k1[round] = vu_set1(rng->key[1] + round * LK_PHILOX_W1);
    }
    k->c1 = vu_set1(rng->counter[1]);
    k->c2 = vu_set1(rng->counter[2]);
    k->c3 = vu_set1(rng->counter[3]);
}

/* lk__rng_block for V blocks at once. */
static inline void philox(const keys *k, v_u32 blocks, v_u32 out[4])
{
    v_u32 m0 = vu_set1(LK_PHILOX_M0), m1 = vu_set1(LK_PHILOX_M1);
    v_u32 c0 = blocks, c1 = k->c1, c2 = k->c2, c3 = k->c3;
#pragma GCC unroll 10
    for (int round = 0; round < LK_PHILOX_ROUNDS; round++) {
        v_u32 hi0 = vu_mulhi(c0, m0), lo0 = vu_mullo(c0, m0);
        v_u32 hi1 = vu_mulhi(c2, m1), lo1 = vu_mullo(c2, m1);
        c0 = vu_xor(vu_xor(hi1, c1), k->k0[round]);
        c1 = lo1;
        c2 = vu_xor(vu_xor(hi0, c3), k->k1[round]);
        c3 = lo0;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Has no branch, since a branch could not be predicted. A dropped element becomes x - x: 0, or NaN if x is
 * non-finite, as x * 0 would be. */
static inline float keep(const work *job, uint32_t word, float x)
{
    uint32_t mask = 0u - (uint32_t)(word >= job->threshold);
    return lk__math_bits_to_float((lk__math_float_to_bits(x * job->scale) & mask) |
                                  (lk__math_float_to_bits(x - x) & ~mask));
}

static inline v_f32 dropped(v_mask drop, v_f32 scale, v_f32 x)
{
    return v_select(drop, v_sub(x, x), v_mul(x, scale));
}

/* Marks dropped elements among n elements of y. */
static inline void mark(const work *job, const uint32_t *words, size_t n, const float *y)
{
    uint8_t *index = job->index + (y - job->y);
    for (size_t i = 0; i < n; i++)
        index[i] = words[i] < job->threshold ? LK_POOL2D_NO_GRADIENT : index[i];
}

static inline void keep_vector(const work *job, v_u32 words, size_t n, const float *x, float *y)
{
    v_mask drop = vu_lt(words, vu_set1(job->threshold));
    v_f32 scale = v_set1(job->scale);
    if (n == V)
        v_store(y, dropped(drop, scale, v_load(x)));
    else
        v_store_n(y, dropped(drop, scale, v_load_n(x, n)), n);
    if (job->index) {
        uint32_t lanes[V];
        vu_store(lanes, words);
        mark(job, lanes, n, y);
    }
}

/* The words of elements [begin, begin + 4 * V). */
static void draw(const keys *k, size_t begin, uint32_t ordered[4 * V])
{
    uint32_t blocks[V], words[4][V];
    for (uint32_t lane = 0; lane < V; lane++)
        blocks[lane] = (uint32_t)(begin / 4) + lane;
    v_u32 out[4];
    philox(k, vu_load(blocks), out);
    for (int j = 0; j < 4; j++)
        vu_store(words[j], out[j]);
    for (size_t lane = 0; lane < V; lane++)
        for (size_t j = 0; j < 4; j++)
            ordered[4 * lane + j] = words[j][lane];
}

/* Elements [begin, begin + 4 * V) of a sample whose two orders agree. */
static void flat_unit(const work *job, const keys *k, size_t begin, const float *x, float *y)
{
    uint32_t ordered[4 * V];
    draw(k, begin, ordered);
    size_t end = lk__size_min(begin + 4 * V, job->channels * job->pixels);
    for (size_t i = begin; i < end; i += V)
        keep_vector(job, vu_load(ordered + (i - begin)), lk__size_min(V, end - i), x + i, y + i);
}

/* Pixels 4 * unit .. 4 * unit + 3 of all channels, if every channel begins at a whole block. */
static void aligned_unit(const work *job, const keys *k, size_t unit, const float *x, float *y)
{
    size_t c = job->channels, blocks = job->pixels / 4;
    uint32_t first[V];
    for (size_t lane = 0; lane < V; lane++)
        first[lane] = (uint32_t)(lane * blocks);
    v_u32 lanes = vu_load(first);
    for (size_t i = 0; i < c; i += V) {
        v_u32 words[4];
        philox(k, vu_add(lanes, vu_set1((uint32_t)(i * blocks + unit))), words);
        size_t n = lk__size_min(V, c - i);
        for (size_t j = 0; j < 4; j++) {
            size_t at = (4 * unit + j) * c + i;
            keep_vector(job, words[j], n, x + at, y + at);
        }
    }
}

/* Block `unit` of each channel, counted from the block of the channel's first pixel, if channels begin inside a
 * block. */
static void ragged_unit(const work *job, const keys *k, size_t unit, const float *x, float *y)
{
    size_t c = job->channels, pixels = job->pixels;
    for (size_t i = 0; i < c; i += V) {
        uint32_t blocks[V], words[4][V];
        for (size_t lane = 0; lane < V; lane++)
            blocks[lane] = (uint32_t)((i + lane) * pixels / 4 + unit);
        v_u32 out[4];
        philox(k, vu_load(blocks), out);
        for (int j = 0; j < 4; j++)
            vu_store(words[j], out[j]);
        for (size_t lane = 0; lane < lk__size_min(V, c - i); lane++) {
            size_t skip = (i + lane) * pixels % 4;
            for (size_t j = 0; j < 4; j++) {
                size_t pixel = 4 * unit + j - skip; /* wraps before the first pixel: skipped below */
                size_t at = pixel * c + i + lane;
                if (pixel >= pixels)
                    continue;
                y[at] = keep(job, words[j][lane], x[at]);
                if (job->index)
                    mark(job, &words[j][lane], 1, y + at);
            }
        }
    }
}

/* Whole channels, at pixels [first, last): words are drawn once for all of them. */
static void channel_units(const work *job, const keys *k, size_t first, size_t last, const float *x, float *y)
{
    size_t c = job->channels;
    for (size_t begin = 0; begin < c; begin += 4 * V) {
        uint32_t ordered[4 * V];
        draw(k, begin, ordered);
        size_t end = lk__size_min(begin + 4 * V, c);
        for (size_t pixel = first; pixel < last; pixel++)
            for (size_t i = begin; i < end; i += V)
                keep_vector(job, vu_load(ordered + (i - begin)), lk__size_min(V, end - i), x + pixel * c + i,
                            y + pixel * c + i);
    }
}

static bool is_flat(const work *job)
{
    return job->channels == 1 || job->pixels == 1;
}

static size_t count_units(const work *job)
{
    if (job->dropout->channels)
        return job->pixels;
    if (is_flat(job))
        return (job->channels * job->pixels + 4 * V - 1) / (4 * V);
    return job->pixels % 4 == 0 ? job->pixels / 4 : (job->pixels + 2) / 4 + 1;
}

/* Units [first, last) of sample n. */
static void do_sample(const work *job, size_t n, size_t first, size_t last)
{
    const lk_dropout_desc *d = job->dropout;
    lk_rng rng = lk__rng(d->seed, LK_RNG_PURPOSE_DROPOUT, d->layer, *d->step, d->ids[n]);
    keys k;
    keys_init(&k, &rng);
    const float *x = job->x + n * job->channels * job->pixels;
    float *y = job->y + n * job->channels * job->pixels;
    if (d->channels) {
        channel_units(job, &k, first, last, x, y);
        return;
    }
    for (size_t unit = first; unit < last; unit++) {
        if (is_flat(job))
            flat_unit(job, &k, unit * 4 * V, x, y);
        else if (job->pixels % 4 == 0)
            aligned_unit(job, &k, unit, x, y);
        else
            ragged_unit(job, &k, unit, x, y);
    }
}

static size_t unit_size(const work *job)
{
    if (job->dropout->channels)
        return job->channels;
    return is_flat(job) ? 4 * V : 4 * job->channels;
}

static void dropout_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const work *job = arg;
    lk_chunk_range range = lk__chunk(job->samples * job->units, lk__chunk_rows(unit_size(job)), index);
    for (size_t i = range.begin; i < range.end;) {
        size_t first = i % job->units, last = lk__size_min(job->units, first + range.end - i);
        do_sample(job, i / job->units, first, last);
        i += last - first;
    }
}

static void run(lk_device *dev, const lk_dropout_desc *dropout, const lk_tensor *x, lk_tensor *y, uint8_t *index)
{
    lk_shape s = x->shape;
    work job = {.dropout = dropout,
                .samples = s.n,
                .channels = s.c,
                .pixels = s.h * s.w,
                .threshold = lk__dropout_desc_threshold(dropout),
                .scale = lk__dropout_desc_scale(dropout),
                .x = lk__tensor_f32(x),
                .y = lk__tensor_f32(y),
                .index = index};
    job.units = count_units(&job);
    lk__chunk_run_rows(dev, job.samples * job.units, unit_size(&job), dropout_task, &job);
}

void LK_KERNEL(dropout)(lk_device *dev, const lk_dropout_desc *dropout, const lk_tensor *x, lk_tensor *y)
{
    run(dev, dropout, x, y, NULL);
}

void LK_KERNEL(dropout_indexed)(lk_device *dev, const lk_dropout_desc *dropout, lk_tensor *y, uint8_t *index)
{
    run(dev, dropout, y, y, index);
}
