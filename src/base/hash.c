/* hash.c - the only file that uses xxHash. */
#include "base/hash.h"

#include <xxhash.h>

#include "base/fault.h"

/* xxHash allocates the state itself: its size belongs to the library. */
static XXH3_state_t *state_of(lk_hasher *hasher)
{
    return (XXH3_state_t *)(void *)hasher;
}

uint64_t lk__hash(const void *data, size_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, bytes, seed);
}

lk_status lk__hasher_create(lk_hasher **out)
{
    XXH3_state_t *state = lk__fault_alloc() ? NULL : XXH3_createState();
    if (!state)
        return lk__fail(LK_STATUS_MEMORY, "no memory for the state of a hash");
    *out = (lk_hasher *)(void *)state;
    lk__hasher_reset(*out, 0);
    return LK_OK;
}

void lk__hasher_destroy(lk_hasher *hasher)
{
    (void)XXH3_freeState(state_of(hasher));
}

void lk__hasher_reset(lk_hasher *hasher, uint64_t seed)
{
    (void)XXH3_64bits_reset_withSeed(state_of(hasher), seed);
}

void lk__hasher_add(lk_hasher *hasher, const void *data, size_t bytes)
{
    if (bytes > 0)
        (void)XXH3_64bits_update(state_of(hasher), data, bytes);
}

uint64_t lk__hasher_value(const lk_hasher *hasher)
{
    return XXH3_64bits_digest((const XXH3_state_t *)(const void *)hasher);
}
