/* rng.h - random numbers that have an address.
 *
 * Every number is philox4x32-10 of (seed; purpose, layer, time, sample, element). It does not
 * depend on who draws it or when. The key is the seed. The words of the counter:
 *
 *   word 0  element / 4; element % 4 selects one of the four outputs
 *   word 1  sample id, or the parameter's slot in its layer
 *   word 2  epoch or step; 0 if time does not matter
 *   word 3  purpose in the top 8 bits, the layer's index in the graph in the others
 *
 * The creators of plans and runs check the limits: LK_RNG_MAX_LAYER, and 2^32 for samples, steps
 * and elements / 4. */
#ifndef LK_BASE_RNG_H
#define LK_BASE_RNG_H

#include <stdint.h>

#define LK_RNG_MAX_LAYER 0xffffffu
#define LK_RNG_MAX_ELEMENT ((uint64_t)1 << 34)

/*                      word 1        word 2 */
typedef enum lk_rng_purpose {
    LK_RNG_PURPOSE_INIT = 1, /* slot          0     */
    LK_RNG_PURPOSE_SHUFFLE,  /* 0             epoch */
    LK_RNG_PURPOSE_DROPOUT,  /* sample        step  */
    LK_RNG_PURPOSE_AUGMENT,  /* sample        epoch */
    LK_RNG_PURPOSE_DIGITS    /* sample        split */
} lk_rng_purpose;

typedef struct lk_rng {
    uint32_t key[2];
    uint32_t counter[4]; /* word 0 is set for each draw */
} lk_rng;

static inline lk_rng lk__rng(uint64_t seed, lk_rng_purpose purpose, uint32_t layer, uint32_t time, uint32_t sample)
{
    return (lk_rng){.key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
                    .counter = {0, sample, time, (uint32_t)purpose << 24 | layer}};
}

#define LK_PHILOX_M0 0xD2511F53u
#define LK_PHILOX_M1 0xCD9E8D57u
#define LK_PHILOX_W0 0x9E3779B9u
#define LK_PHILOX_W1 0xBB67AE85u
#define LK_PHILOX_ROUNDS 10

/* Elements 4*block .. 4*block+3 of the stream. */
static inline void lk__rng_block(const lk_rng *rng, uint32_t block, uint32_t out[4])
{
    uint32_t c0 = block, c1 = rng->counter[1], c2 = rng->counter[2], c3 = rng->counter[3];
    uint32_t k0 = rng->key[0], k1 = rng->key[1];
    for (int round = 0; round < LK_PHILOX_ROUNDS; round++) {
        uint64_t p0 = (uint64_t)LK_PHILOX_M0 * c0;
        uint64_t p1 = (uint64_t)LK_PHILOX_M1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += LK_PHILOX_W0;
        k1 += LK_PHILOX_W1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* The elements of LK_RNG_BLOCKS blocks from `first` on. Loops over blocks, which compilers vectorise. */
enum { LK_RNG_BLOCKS = 64 };
static inline void lk__rng_blocks(const lk_rng *rng, uint32_t first, uint32_t out[4 * LK_RNG_BLOCKS])
{
    uint32_t c0[LK_RNG_BLOCKS], c1[LK_RNG_BLOCKS], c2[LK_RNG_BLOCKS], c3[LK_RNG_BLOCKS];
    uint32_t k0 = rng->key[0], k1 = rng->key[1];
    for (uint32_t b = 0; b < LK_RNG_BLOCKS; b++) {
        c0[b] = first + b;
        c1[b] = rng->counter[1];
        c2[b] = rng->counter[2];
        c3[b] = rng->counter[3];
    }
    for (int round = 0; round < LK_PHILOX_ROUNDS; round++) {
        for (uint32_t b = 0; b < LK_RNG_BLOCKS; b++) {
            uint64_t p0 = (uint64_t)LK_PHILOX_M0 * c0[b];
            uint64_t p1 = (uint64_t)LK_PHILOX_M1 * c2[b];
            c0[b] = (uint32_t)(p1 >> 32) ^ c1[b] ^ k0;
            c1[b] = (uint32_t)p1;
            c2[b] = (uint32_t)(p0 >> 32) ^ c3[b] ^ k1;
            c3[b] = (uint32_t)p0;
        }
        k0 += LK_PHILOX_W0;
        k1 += LK_PHILOX_W1;
    }
    for (uint32_t b = 0; b < LK_RNG_BLOCKS; b++) {
        out[4 * b] = c0[b];
        out[4 * b + 1] = c1[b];
        out[4 * b + 2] = c2[b];
        out[4 * b + 3] = c3[b];
    }
}

static inline uint32_t lk__rng_u32(const lk_rng *rng, uint64_t element)
{
    uint32_t out[4];
    lk__rng_block(rng, (uint32_t)(element / 4), out);
    return out[element % 4];
}

/* Uniform in [0,1), a multiple of 2^-24. */
static inline float lk__rng_unit(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

/* Uniform integer in [0,bound), bound > 0. The bias is below bound / 2^32. */
static inline uint32_t lk__rng_below(uint32_t word, uint32_t bound)
{
    return (uint32_t)(((uint64_t)word * bound) >> 32);
}

#endif
