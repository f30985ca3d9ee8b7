/* decode.h - decodes a fuzzer's input and checks what must hold for every image file. */
#ifndef LK_TESTS_FUZZ_DECODE_H
#define LK_TESTS_FUZZ_DECODE_H

#include <stdlib.h>
#include <string.h>

#include "data/codec/codec.h"

/* Decoding the same bytes into fresh memory and into the memory of another image gives the same pixels: the
 * file sets all of them. */
static inline void decode_twice(const uint8_t *bytes, size_t count)
{
    static lk_image used;
    const lk_image_file file = {"image", bytes, count};
    lk_image fresh = {0};
    lk_status status = lk__image_decode(&file, &fresh);
    if (status != LK_OK && (status != LK_STATUS_FORMAT || !strstr(lk_error_detail(), "image:")))
        abort();
    if (used.pixels)
        memset(used.pixels, 0xa5, used.room);
    if (lk__image_decode(&file, &used) != status)
        abort();
    if (status == LK_OK) {
        if (fresh.channels != 3 || fresh.height == 0 || fresh.width == 0 || used.height != fresh.height ||
            used.width != fresh.width)
            abort();
        if (memcmp(fresh.pixels, used.pixels, 3 * fresh.height * fresh.width) != 0)
            abort();
    }
    if (used.room > (1u << 22))
        lk__image_fini(&used);
    lk__image_fini(&fresh);
}

#endif
