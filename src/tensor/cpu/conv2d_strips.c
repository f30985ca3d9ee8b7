/* conv2d_strips.c - strips of an image; see conv2d_strips.h. */
#include "tensor/cpu/conv2d_strips.h"

/* Copies `count` pixels of c channels. */
static void copy_pixels(const float *src, size_t pixel, size_t c, size_t count, float *dst, size_t column)
{
    if (c == 1) {
        for (size_t x = 0; x < count; x++)
            dst[x * column] = src[x * pixel];
        return;
    }
    for (size_t x = 0; x < count; x++, src += pixel, dst += column) {
        for (size_t i = 0; i < c; i += V) {
            size_t n = lk__size_min(c - i, V);
            v_store_some(dst + i, v_load_some(src + i, n), n);
        }
    }
}

static void zero_pixels(size_t c, size_t count, float *dst, size_t column)
{
    for (size_t x = 0; x < count; x++, dst += column) {
        for (size_t i = 0; i < c; i += V)
            v_store_some(dst + i, v_zero(), lk__size_min(c - i, V));
    }
}

/* Copies row y of the box to one place of each column. */
static void copy_row(const float *image, lk_shape shape, lk_box box, size_t y, float *dst, size_t column)
{
    size_t c = box.channels;
    ptrdiff_t from = box.y + (ptrdiff_t)y, end = box.x + (ptrdiff_t)box.w - (ptrdiff_t)shape.w;
    size_t x0 = lk__size_min((size_t)(box.x < 0 ? -box.x : 0), box.w);
    size_t x1 = box.w - lk__size_min((size_t)(end > 0 ? end : 0), box.w);
    if (from < 0 || from >= (ptrdiff_t)shape.h || x0 >= x1) {
        zero_pixels(c, box.w, dst, column);
        return;
    }
    size_t at = (size_t)from * shape.w + (size_t)(box.x + (ptrdiff_t)x0);
    zero_pixels(c, x0, dst, column);
    copy_pixels(image + at * shape.c + box.first, shape.c, c, x1 - x0, dst + x0 * column, column);
    zero_pixels(c, box.w - x1, dst + x1 * column, column);
}

lk_box_window lk__strip_copy(const float *image, lk_shape shape, const lk_conv2d_desc *conv, lk_box box, size_t slack,
                             float *buffer)
{
    size_t kernel = conv->h.kernel, step = conv->h.stride, c = box.channels, column = lk__strip_column(conv, c);
    size_t row = box.w * column;
    float *dst = buffer;
    for (size_t y = 0; y + kernel <= box.h; y += step, dst += row) {
        size_t kept = y > 0 && step < kernel ? kernel - step : 0;
        /* Pixels that the strip of the row before has move up in their columns. */
        if (kept > 0)
            memcpy(dst, dst - row + step * c, (row - step * c) * sizeof *dst);
        for (size_t k = kept; k < kernel; k++)
            copy_row(image, shape, box, y + k, dst + k * c, column);
        for (size_t x = 0; x < box.w; x++)
            dst[x * column + kernel * c] = 1.0f;
    }
    memset(dst, 0, slack * sizeof *dst);
    return (lk_box_window){buffer, row};
}
