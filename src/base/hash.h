/* hash.h - a 64-bit hash (XXH3), the same on every machine. */
#ifndef LK_BASE_HASH_H
#define LK_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Chain pieces by passing the last result as seed; start with 0. */
uint64_t lk__hash(const void *data, size_t bytes, uint64_t seed);

#endif
