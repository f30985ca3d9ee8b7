/* transform_crop.c - transforms that move pixels without changing them: crops and flips. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "data/transform/transform.h"

/* The part that a crop keeps. It may be partly or wholly outside of the image; pixels there are 0. */
typedef struct window {
    long top, left;
    size_t height, width;
} window;

static lk_status cut(const window *w, lk_image *image, lk_image *scratch)
{
    size_t h = image->height, wide = image->width;
    LK_TRY(lk__image_resize(scratch, image->channels, w->height, w->width));
    /* Output column x is input column x + left. */
    size_t begin = w->left < 0 ? (size_t)-w->left : 0, skip = w->left > 0 ? (size_t)w->left : 0;
    size_t end = skip < wide ? begin + wide - skip : 0;
    end = end < w->width ? end : w->width;
    memset(scratch->pixels, 0, image->channels * w->height * w->width);
    for (size_t c = 0; c < image->channels; c++)
        for (size_t y = 0; y < w->height; y++) {
            long from = (long)y + w->top;
            if (from < 0 || (size_t)from >= h || begin >= end)
                continue;
            memcpy(scratch->pixels + (c * w->height + y) * w->width + begin,
                   image->pixels + (c * h + (size_t)from) * wide + skip, end - begin);
        }
    lk__image_swap(image, scratch);
    return LK_OK;
}

/* Elements: 0 the row, 1 the column. */
static lk_status crop(const double *values, const lk_rng *rng, lk_image *image, lk_image *scratch)
{
    long pad = (long)values[0];
    uint32_t choices = 2 * (uint32_t)pad + 1;
    window w = {.top = (long)lk__rng_below(lk__rng_u32(rng, 0), choices) - pad,
                .left = (long)lk__rng_below(lk__rng_u32(rng, 1), choices) - pad,
                .height = image->height,
                .width = image->width};
    return cut(&w, image, scratch);
}

const lk_transform_row lk__transform_crop = {
    .info = {"crop", "=N: N zeros on each side, then a random window of the old size"},
    .values = {{.name = "N", .min = 1, .max = 1024, .whole = true}},
    .needed = 1,
    .random = lk__transform_always_random,
    .apply = crop,
};

static lk_sample_shape cropped(const double *values, lk_sample_shape shape)
{
    double width = values[1] > 0 ? values[1] : values[0];
    return (lk_sample_shape){shape.channels, (size_t)values[0], (size_t)width};
}

/* The start of a window of `out` pixels in the middle of `in`. Rounds like torchvision: halves to
 * even inside of the image, down outside. */
static long middle(size_t in, size_t out)
{
    return in >= out ? (long)rint((double)(in - out) / 2) : -(long)((out - in) / 2);
}

static lk_status center_crop(const double *values, const lk_rng *rng, lk_image *image, lk_image *scratch)
{
    (void)rng;
    lk_sample_shape to = cropped(values, (lk_sample_shape){.channels = image->channels});
    window w = {.top = middle(image->height, to.height),
                .left = middle(image->width, to.width),
                .height = to.height,
                .width = to.width};
    return cut(&w, image, scratch);
}

static lk_image_region center_part(const double *values, const lk_rng *rng, size_t height, size_t width)
{
    (void)rng;
    lk_sample_shape to = cropped(values, (lk_sample_shape){0});
    return (lk_image_region){.top = height > to.height ? (size_t)middle(height, to.height) : 0,
                             .left = width > to.width ? (size_t)middle(width, to.width) : 0,
                             .height = lk__size_min(height, to.height),
                             .width = lk__size_min(width, to.width)};
}

const lk_transform_row lk__transform_center_crop = {
    .info = {"center_crop", "=N or =H/W: the middle, with zeros around what is smaller"},
    .values = {{.name = "N", .min = 1, .max = LK_MAX_SIDE, .whole = true},
               {.name = "W", .min = 1, .max = LK_MAX_SIDE, .whole = true}},
    .needed = 1,
    .shape = cropped,
    .apply = center_crop,
    .part = center_part,
};

/* Element: 0 decides whether. */
static lk_status flip(const double *values, const lk_rng *rng, lk_image *image, lk_image *scratch)
{
    size_t w = image->width, rows = image->channels * image->height;
    if (!lk__draw_chance(rng, 0, values[0]))
        return LK_OK;
    LK_TRY(lk__image_resize(scratch, image->channels, image->height, w));
    for (size_t r = 0; r < rows; r++) {
        const uint8_t *restrict from = image->pixels + r * w;
        uint8_t *restrict to = scratch->pixels + r * w;
        for (size_t x = 0; x < w; x++)
            to[x] = from[w - 1 - x];
    }
    lk__image_swap(image, scratch);
    return LK_OK;
}

const lk_transform_row lk__transform_flip = {
    .info = {"flip", "=0.5: left and right exchanged, with this probability"},
    .values = {{.name = "P", .value = .5, .min = 0, .max = 1}},
    .random = lk__transform_uncertain,
    .apply = flip,
};

/* Element: 0 decides whether. */
static lk_status vflip(const double *values, const lk_rng *rng, lk_image *image, lk_image *scratch)
{
    size_t h = image->height, w = image->width;
    if (!lk__draw_chance(rng, 0, values[0]))
        return LK_OK;
    LK_TRY(lk__image_resize(scratch, image->channels, h, w));
    for (size_t c = 0; c < image->channels; c++)
        for (size_t y = 0; y < h; y++)
            memcpy(scratch->pixels + (c * h + y) * w, image->pixels + (c * h + h - 1 - y) * w, w);
    lk__image_swap(image, scratch);
    return LK_OK;
}

const lk_transform_row lk__transform_vflip = {
    .info = {"vflip", "=0.5: top and bottom exchanged, with this probability"},
    .values = {{.name = "P", .value = .5, .min = 0, .max = 1}},
    .random = lk__transform_uncertain,
    .apply = vflip,
};
