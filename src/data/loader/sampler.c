/* sampler.c - the order of an epoch: a Fisher-Yates shuffle. The draw for element i is number i of
 * the epoch's random stream. */
#include "base/rng.h"
#include "data/loader/loader.h"
#include "data/sets/dataset.h"

void lk__sampler_permute(uint64_t seed, uint32_t epoch, uint32_t count, uint32_t *order)
{
    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    lk_rng rng = lk__rng(seed, LK_RNG_PURPOSE_SHUFFLE, 0, epoch, 0);
    uint32_t words[4], block = UINT32_MAX;
    for (uint32_t i = count; i-- > 1;) {
        if (i / 4 != block) {
            block = i / 4;
            lk__rng_block(&rng, block, words);
        }
        uint32_t j = lk__rng_below(words[i % 4], i + 1);
        uint32_t kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}
