/* fuzz_png.c - libFuzzer target: arbitrary bytes as a PNG; see decode.h. Each input is decoded as it is, and once
 * more with the first bytes of a PNG and right checksums of all chunks, so that damage reaches the decoder. */
#include <stdint.h>
#include <zlib.h>

#include "decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAGIC = 8, CHUNK = 12 }; /* CHUNK: bytes of a chunk without its content */

static uint32_t get_word(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void put_word(uint8_t *at, uint32_t word)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(word >> (24 - 8 * i));
}

static void mend(uint8_t *bytes, size_t count)
{
    static const uint8_t magic[MAGIC] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    memcpy(bytes, magic, MAGIC);
    for (size_t at = MAGIC; count - at >= CHUNK;) {
        size_t length = get_word(bytes + at);
        if (length > count - at - CHUNK)
            return;
        put_word(bytes + at + 8 + length, (uint32_t)crc32(0, bytes + at + 4, (uInt)length + 4));
        at += CHUNK + length;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    decode_twice(data, size);
    if (size < MAGIC + CHUNK)
        return 0;
    uint8_t *mended = malloc(size);
    if (!mended)
        abort();
    memcpy(mended, data, size);
    mend(mended, size);
    if (memcmp(mended, data, size) != 0)
        decode_twice(mended, size);
    free(mended);
    return 0;
}
