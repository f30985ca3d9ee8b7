/* bytes.h - numbers as little-endian bytes, on every machine. */
#ifndef LK_BASE_BYTES_H
#define LK_BASE_BYTES_H

#include <stdint.h>

/* Writes the lowest `bytes` (at most 8) bytes of value. */
static inline void lk__bytes_put_le(uint8_t *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

static inline uint64_t lk__bytes_get_le(const uint8_t *in, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)in[i] << (8 * i);
    return value;
}

#endif
