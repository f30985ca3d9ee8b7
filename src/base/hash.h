/* hash.h - a 64-bit hash (XXH3), the same on every machine. */
#ifndef LK_BASE_HASH_H
#define LK_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Chain pieces by passing the last result as seed; start with 0. */
uint64_t lk__hash(const void *data, size_t bytes, uint64_t seed);

/* The same hash of pieces that come one after the other. */
typedef struct lk_hasher lk_hasher;
lk_status lk__hasher_create(lk_hasher **out) LK_CHECKED;
void lk__hasher_destroy(lk_hasher *hasher);
/* Begins anew; a new one has begun with seed 0. */
void lk__hasher_reset(lk_hasher *hasher, uint64_t seed);
void lk__hasher_add(lk_hasher *hasher, const void *data, size_t bytes);
/* Of all that was added: lk__hash of the whole. More may be added after it. */
uint64_t lk__hasher_value(const lk_hasher *hasher);

#endif
