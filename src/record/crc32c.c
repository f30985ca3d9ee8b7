/* crc32c.c - CRC-32C, eight bytes at a time by tables that are filled at the first call. */
#include "record/crc32c.h"

#include <pthread.h>

enum { SLICES = 8 };

static uint32_t table[SLICES][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* table[s][b] is the checksum of byte b followed by s zero bytes. */
static void fill(void)
{
    const uint32_t polynomial = 0x82f63b78; /* reflected */
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
        table[0][b] = crc;
    }
    for (int s = 1; s < SLICES; s++) {
        for (int b = 0; b < 256; b++)
            table[s][b] = table[s - 1][b] >> 8 ^ table[0][table[s - 1][b] & 0xff];
    }
}

static uint32_t eight_bytes(uint32_t crc, const uint8_t *p)
{
    uint32_t next = 0;
    for (int i = 0; i < SLICES; i++)
        next ^= table[SLICES - 1 - i][p[i] ^ (i < 4 ? crc >> 8 * i & 0xff : 0)];
    return next;
}

uint32_t lk__record_crc32c(const void *data, size_t bytes)
{
    const uint8_t *p = data;
    uint32_t crc = UINT32_MAX;
    pthread_once(&once, fill);
    for (; bytes >= SLICES; bytes -= SLICES, p += SLICES)
        crc = eight_bytes(crc, p);
    for (; bytes > 0; bytes--, p++)
        crc = crc >> 8 ^ table[0][(crc ^ *p) & 0xff];
    return ~crc;
}

uint32_t lk__record_crc32c_masked(const void *data, size_t bytes)
{
    uint32_t crc = lk__record_crc32c(data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}
