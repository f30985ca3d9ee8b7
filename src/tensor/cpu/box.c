/* box.c - a box of an image with its padding: a view where possible, otherwise a copy. */
#include <string.h>

#include "tensor/cpu/conv2d.h"

/* Pixels that are prefetched: their channels are often pages apart, and hardware does not follow. */
enum { AHEAD = 8 };

static bool is_inside(lk_shape image, lk_box box)
{
    return box.y >= 0 && box.x >= 0 && (size_t)box.y + box.h <= image.h && (size_t)box.x + box.w <= image.w;
}

/* The part [first, last) of `count` positions from `begin` on that lies in [0, size). */
static void clip(ptrdiff_t begin, size_t count, size_t size, size_t *first, size_t *last)
{
    ptrdiff_t end = (ptrdiff_t)count, low = begin < 0 ? -begin : 0, high = (ptrdiff_t)size - begin;
    low = low < end ? low : end;
    high = high < end ? high : end;
    *first = (size_t)low;
    *last = (size_t)(high > low ? high : low);
}

/* Copies the first c channels of pixels that have `pixel` channels; the others of `padded` channels are zero. */
static void copy_pixels(const float *src, size_t pixel, size_t c, size_t count, float *dst, size_t padded)
{
    for (size_t x = 0; x < count; x++, src += pixel, dst += padded) {
        size_t i = 0;
        for (; i + V <= c; i += V) {
            __builtin_prefetch(src + AHEAD * pixel + i);
            v_store(dst + i, v_load(src + i));
        }
        for (; i < padded; i += V)
            v_store_some(dst + i, i < c ? v_load_n(src + i, c - i) : v_zero(), lk__size_min(padded - i, V));
    }
}

lk_box_window lk__box_view(const float *image, lk_shape shape, lk_box box, size_t lanes, float *buffer)
{
    size_t c = box.channels, pixel = shape.c, padded = lk__size_round_up(c, lanes);
    bool whole = c == pixel && padded == c;
    if (whole && is_inside(shape, box))
        return (lk_box_window){image + ((size_t)box.y * shape.w + (size_t)box.x) * pixel, shape.w * pixel};
    size_t row = box.w * padded, y0, y1, x0, x1;
    clip(box.y, box.h, shape.h, &y0, &y1);
    clip(box.x, box.w, shape.w, &x0, &x1);
    memset(buffer, 0, y0 * row * sizeof *buffer);
    for (size_t y = y0; y < y1; y++) {
        size_t at = (size_t)(box.y + (ptrdiff_t)y) * shape.w + (size_t)(box.x + (ptrdiff_t)x0);
        const float *src = image + at * pixel + box.first;
        float *dst = buffer + y * row;
        memset(dst, 0, x0 * padded * sizeof *dst);
        if (whole) {
            memcpy(dst + x0 * c, src, (x1 - x0) * c * sizeof *dst);
        } else {
            copy_pixels(src, pixel, c, x1 - x0, dst + x0 * padded, padded);
        }
        memset(dst + x1 * padded, 0, (box.w - x1) * padded * sizeof *dst);
    }
    memset(buffer + y1 * row, 0, (box.h - y1) * row * sizeof *buffer);
    return (lk_box_window){buffer, row};
}
