/* hash.h - a 64-bit hash (XXH3), equal on every machine. */
#ifndef LK_BASE_HASH_H
#define LK_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Hashes one piece. Several pieces are chained: the last result is the next seed, the first is 0. */
uint64_t lk__hash(const void *data, size_t bytes, uint64_t seed);

/* The hash of data that comes in pieces. */
typedef struct lk_hasher lk_hasher;
lk_status lk__hasher_create(lk_hasher **out) LK_CHECKED;
void lk__hasher_destroy(lk_hasher *hasher);
/* Starts again with this seed; a new hasher has started with seed 0. */
void lk__hasher_reset(lk_hasher *hasher, uint64_t seed);
void lk__hasher_add(lk_hasher *hasher, const void *data, size_t bytes);
/* lk__hash of all added data as one piece. More may be added afterwards. */
uint64_t lk__hasher_value(const lk_hasher *hasher);

#endif
