/* decode.h - decodes a fuzzer's input and checks what must hold for every image file. */
#ifndef LK_TESTS_FUZZ_DECODE_H
#define LK_TESTS_FUZZ_DECODE_H

#include <stdlib.h>
#include <string.h>

#include "data/codec/codec.h"

/* The middle ninth. */
static inline lk_image_region middle_part(const void *arg, size_t height, size_t width)
{
    (void)arg;
    return (lk_image_region){height / 3, width / 3, (height + 2) / 3, (width + 2) / 3};
}

/* A part has the status and the pixels of the whole image. */
static inline void decode_part(const lk_image_file *file, const lk_image *whole, lk_status status)
{
    lk_image image = {0};
    if (lk__image_decode(file, &(lk_image_want){middle_part, NULL}, &image) != status)
        abort();
    if (status == LK_OK) {
        lk_image_region part = middle_part(NULL, whole->height, whole->width);
        for (size_t i = 0; i < 3 * part.height; i++) {
            size_t row = i / part.height * whole->height + part.top + i % part.height;
            size_t at = row * whole->width + part.left;
            if (memcmp(image.pixels + at, whole->pixels + at, part.width) != 0)
                abort();
        }
    }
    lk__image_fini(&image);
}

/* Decoding the same bytes into fresh memory and into the memory of another image gives the same pixels: the
 * file sets all of them. */
static inline void decode_twice(const uint8_t *bytes, size_t count)
{
    static lk_image used;
    const lk_image_file file = {"image", bytes, count};
    lk_image fresh = {0};
    lk_status status = lk__image_decode(&file, NULL, &fresh);
    if (status != LK_OK && (status != LK_STATUS_FORMAT || !strstr(lk_error_detail(), "image:")))
        abort();
    if (used.pixels)
        memset(used.pixels, 0xa5, used.room);
    if (lk__image_decode(&file, NULL, &used) != status)
        abort();
    if (status == LK_OK) {
        if (fresh.channels != 3 || fresh.height == 0 || fresh.width == 0 || used.height != fresh.height ||
            used.width != fresh.width)
            abort();
        if (memcmp(fresh.pixels, used.pixels, 3 * fresh.height * fresh.width) != 0)
            abort();
    }
    decode_part(&file, &fresh, status);
    if (used.room > (1u << 22))
        lk__image_fini(&used);
    lk__image_fini(&fresh);
}

#endif
