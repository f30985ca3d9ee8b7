/* transform_affine.c - rotation, shift, scale and shear in one step. Each output pixel is a copy of
 * the input pixel at its source position, or 0.
 *
 * Positions are computed like Pillow's, so that the result is equal to the byte: with 16 fractional
 * bits, or, without rotation and shear, by adding steps in double. */
#include <math.h>
#include <string.h>

#include "base/math64.h"
#include "data/transform/transform.h"

enum { X, Y };

/* The source of output pixel (x, y): x * across + y * down + offset. */
typedef struct source_map {
    double across[2], down[2], offset[2];
} source_map;

static double cos_degrees(double degrees)
{
    return lk__math_cospi64(degrees / 180);
}

static double sin_degrees(double degrees)
{
    return lk__math_cospi64(degrees / 180 - .5);
}

/* The inverse of: shear, rotate and scale about the centre, then shift. */
static source_map invert(const lk_image_affine *p, const lk_image *image)
{
    double middle[2] = {(double)image->width * .5, (double)image->height * .5};
    double cosine = cos_degrees(p->angle), sine = sin_degrees(p->angle);
    double slant = sin_degrees(p->shear) / cos_degrees(p->shear);
    source_map m = {.across = {(-sine * slant + cosine) / p->scale, -sine / p->scale},
                    .down = {-(-cosine * slant - sine) / p->scale, cosine / p->scale}};
    for (int i = X; i <= Y; i++) {
        double shifted = m.across[i] * (-middle[X] - (double)p->shift[X]);
        m.offset[i] = shifted + m.down[i] * (-middle[Y] - (double)p->shift[Y]) + middle[i];
    }
    return m;
}

static void copy_pixel(const lk_image *in, size_t from, lk_image *out, size_t to)
{
    size_t area = in->height * in->width;
    for (size_t c = 0; c < in->channels; c++)
        out->pixels[c * area + to] = in->pixels[c * area + from];
}

/* The index of the pixel at a position; -1 before the first. */
static int64_t index_of(double position)
{
    return position < 0 ? -1 : (int64_t)position;
}

static bool inside(int64_t index, size_t count)
{
    return index >= 0 && (uint64_t)index < count;
}

/* For maps that keep rows and columns. */
static void copy_straight(const source_map *m, const lk_image *in, lk_image *out)
{
    double y = m->offset[Y] + m->down[Y] * .5;
    for (size_t r = 0; r < out->height; r++, y += m->down[Y]) {
        int64_t row = index_of(y);
        if (!inside(row, in->height))
            continue;
        double x = m->offset[X] + m->across[X] * .5;
        for (size_t i = 0; i < out->width; i++, x += m->across[X]) {
            int64_t column = index_of(x);
            if (inside(column, in->width))
                copy_pixel(in, (size_t)row * in->width + (size_t)column, out, r * out->width + i);
        }
    }
}

static int64_t fixed(double value)
{
    return (int64_t)floor(value * 65536.0 + .5);
}

static void copy_turned(const source_map *m, const lk_image *in, lk_image *out)
{
    int64_t across[2], down[2], start[2];
    for (int i = X; i <= Y; i++) {
        across[i] = fixed(m->across[i]);
        down[i] = fixed(m->down[i]);
        start[i] = fixed(m->offset[i] + m->across[i] * .5 + m->down[i] * .5);
    }
    for (size_t r = 0; r < out->height; r++, start[X] += down[X], start[Y] += down[Y]) {
        int64_t x = start[X], y = start[Y];
        for (size_t i = 0; i < out->width; i++, x += across[X], y += across[Y])
            if (inside(x >> 16, in->width) && inside(y >> 16, in->height))
                copy_pixel(in, (size_t)(y >> 16) * in->width + (size_t)(x >> 16), out, r * out->width + i);
    }
}

lk_status lk__image_affine(lk_image *image, const lk_image_affine *affine, lk_image *scratch)
{
    source_map m = invert(affine, image);
    LK_TRY(lk__image_resize(scratch, image->channels, image->height, image->width));
    memset(scratch->pixels, 0, image->channels * image->height * image->width);
    if (m.down[X] == 0 && m.across[Y] == 0)
        copy_straight(&m, image, scratch);
    else
        copy_turned(&m, image, scratch);
    lk__image_swap(image, scratch);
    return LK_OK;
}

enum { DEGREES, TRANSLATE, SCALE_MIN, SCALE_MAX, SHEAR };

/* Elements: 0 angle, 1 and 2 shift to the right and down, 3 scale, 4 shear. */
lk_image_affine lk__draw_affine(const double *values, const lk_rng *rng, const lk_image *image)
{
    double right = values[TRANSLATE] * (double)image->width, down = values[TRANSLATE] * (double)image->height;
    return (lk_image_affine){.angle = lk__draw_between(rng, 0, -values[DEGREES], values[DEGREES]),
                             .shift = {(long)rint(lk__draw_between(rng, 1, -right, right)),
                                       (long)rint(lk__draw_between(rng, 2, -down, down))},
                             .scale = lk__draw_between(rng, 3, values[SCALE_MIN], values[SCALE_MAX]),
                             .shear = lk__draw_between(rng, 4, -values[SHEAR], values[SHEAR])};
}

static lk_status affine(const double *values, const lk_rng *rng, lk_image *image, lk_image *scratch)
{
    lk_image_affine drawn = lk__draw_affine(values, rng, image);
    return lk__image_affine(image, &drawn, scratch);
}

static bool any_affine(const double *values)
{
    return values[DEGREES] > 0 || values[TRANSLATE] > 0 || values[SCALE_MIN] < values[SCALE_MAX] || values[SHEAR] > 0;
}

static const char *check_scale(const double *values)
{
    return values[SCALE_MIN] > values[SCALE_MAX] ? "the smallest scale is above the largest" : NULL;
}

const lk_transform_row lk__transform_affine = {
    .info = {"affine",
             "=DEGREES/0/1/1/0: turned, shifted by a part of each side, scaled from and to, slanted by degrees"},
    .values = {{.name = "DEGREES", .min = 0, .max = 180},
               {.name = "TRANSLATE", .min = 0, .max = 1},
               {.name = "SCALE_MIN", .value = 1, .min = .01, .max = 100},
               {.name = "SCALE_MAX", .value = 1, .min = .01, .max = 100},
               {.name = "SHEAR", .min = 0, .max = 89}},
    .needed = 1,
    .random = any_affine,
    .check = check_scale,
    .apply = affine,
};
