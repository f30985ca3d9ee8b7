/* fuzz_jpeg.c - libFuzzer target: arbitrary bytes as a JPEG; see decode.h. Inputs without the first bytes of a
 * JPEG get them. */
#include <stdint.h>

#include "decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t start[] = {0xff, 0xd8, 0xff};
    decode_twice(data, size);
    if (size <= sizeof start || memcmp(data, start, sizeof start) == 0)
        return 0;
    uint8_t *mended = malloc(size);
    if (!mended)
        abort();
    memcpy(mended, data, size);
    memcpy(mended, start, sizeof start);
    decode_twice(mended, size);
    free(mended);
    return 0;
}
