/* transform_color.c - transforms of colours: jitter and grayscale.
 *
 * Each follows Pillow's arithmetic on bytes, in float where Pillow uses float, and gives the same
 * bytes. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "data/transform/transform.h"

static size_t area_of(const lk_image *image)
{
    return image->height * image->width;
}

/* The grey of a colour, with 16 fractional bits; the weights add up to 1. */
static inline uint8_t luma(uint8_t r, uint8_t g, uint8_t b)
{
    return (uint8_t)((r * 19595u + g * 38470u + b * 7471u + 0x8000u) >> 16);
}

/* Interpolates from base to value; a factor above 1 extrapolates. */
static inline uint8_t blend(int base, int value, float factor)
{
    float t = (float)base + factor * (float)(value - base);
    t = t < 0 ? 0 : t > 255 ? 255 : t;
    return (uint8_t)(int)t;
}

/* Blends every byte with the same base. */
static void blend_all(lk_image *image, int base, float factor)
{
    uint8_t table[256];
    size_t bytes = image->channels * area_of(image);
    for (int b = 0; b < 256; b++)
        table[b] = blend(base, b, factor);
    for (size_t i = 0; i < bytes; i++)
        image->pixels[i] = table[image->pixels[i]];
}

void lk__image_brightness(lk_image *image, double factor)
{
    blend_all(image, 0, (float)factor);
}

static int mean_grey(const lk_image *image)
{
    size_t area = area_of(image);
    const uint8_t *p = image->pixels;
    uint64_t sum = 0;
    if (image->channels == 3)
        for (size_t i = 0; i < area; i++)
            sum += luma(p[i], p[area + i], p[2 * area + i]);
    else
        for (size_t i = 0; i < area; i++)
            sum += p[i];
    return area > 0 ? (int)((double)sum / (double)area + .5) : 0;
}

void lk__image_contrast(lk_image *image, double factor)
{
    blend_all(image, mean_grey(image), (float)factor);
}

void lk__image_saturation(lk_image *image, double factor)
{
    size_t area = area_of(image);
    float f = (float)factor;
    if (image->channels != 3)
        return;
    uint8_t *restrict r = image->pixels, *restrict g = r + area, *restrict b = g + area;
    for (size_t i = 0; i < area; i++) {
        uint8_t grey = luma(r[i], g[i], b[i]);
        r[i] = blend(grey, r[i], f);
        g[i] = blend(grey, g[i], f);
        b[i] = blend(grey, b[i], f);
    }
}

void lk__image_grayscale(lk_image *image)
{
    size_t area = area_of(image);
    if (image->channels != 3)
        return;
    uint8_t *restrict r = image->pixels, *restrict g = r + area, *restrict b = g + area;
    for (size_t i = 0; i < area; i++)
        r[i] = g[i] = b[i] = luma(r[i], g[i], b[i]);
}

/* Hue (255 is the whole circle), saturation, and the largest of r, g, b. */
typedef struct hsv {
    uint8_t hue, saturation, value;
} hsv;

/* Without branches, which would be unpredictable. A grey has hue and saturation 0. */
static inline hsv to_hsv(int r, int g, int b)
{
    int most = r > g ? r : g, least = r < g ? r : g;
    most = b > most ? b : most;
    least = b < least ? b : least;
    bool red = r == most, green = g == most;
    int plus = red ? b : green ? r : g, minus = red ? g : green ? b : r;
    double sector = red ? 0.0 : green ? 2.0 : 4.0;
    float range = (float)(most > least ? most - least : 1);
    float hue = (float)(sector + (double)((float)(most - plus) / range) - (double)((float)(most - minus) / range));
    double turns = (double)hue / 6.0 + 1.0;
    hue = (float)(turns - (turns >= 1 ? 1.0 : 0.0));
    float saturation = (float)(most - least) / (float)(most > 0 ? most : 1);
    return (hsv){(uint8_t)(int)((double)hue * 255.0), (uint8_t)(int)((double)saturation * 255.0), (uint8_t)most};
}

static inline uint8_t rounded(double level)
{
    return (uint8_t)(int)(level + .5);
}

/* The properties of a hue: which levels red, green and blue have, and the distance from the last of
 * the six pure hues. */
enum { MOST, LEAST, FALLING, RISING };
typedef struct spoke {
    const uint8_t *levels; // (3)
    float rest;
} spoke;

static void set_spokes(uint8_t shift, spoke spokes[256])
{
    static const uint8_t levels[6][3] = {{MOST, RISING, LEAST},  {FALLING, MOST, LEAST}, {LEAST, MOST, RISING},
                                         {LEAST, FALLING, MOST}, {RISING, LEAST, MOST},  {MOST, LEAST, FALLING}};
    for (unsigned i = 0; i < 256; i++) {
        double sixths = (double)(uint8_t)(i + shift) * 6.0 / 255.0;
        int sector = (int)sixths;
        spokes[i] = (spoke){levels[sector % 6], (float)(sixths - (double)sector)};
    }
}

void lk__image_hue(lk_image *image, double turn)
{
    size_t area = area_of(image);
    spoke spokes[256];
    if (image->channels != 3)
        return;
    set_spokes((uint8_t)(int)(turn * 255), spokes);
    uint8_t *r = image->pixels, *g = r + area, *b = g + area;
    for (size_t i = 0; i < area; i++) {
        hsv c = to_hsv(r[i], g[i], b[i]);
        spoke s = spokes[c.hue];
        float saturation = (float)((double)c.saturation / 255.0), product = saturation * s.rest;
        double v = (double)c.value;
        uint8_t level[4] = {[MOST] = c.value,
                            [LEAST] = rounded(v * (1.0 - (double)saturation)),
                            [FALLING] = rounded(v * (1.0 - (double)product)),
                            [RISING] = rounded(v * (1.0 - (double)saturation * (1.0 - (double)s.rest)))};
        r[i] = level[s.levels[0]];
        g[i] = level[s.levels[1]];
        b[i] = level[s.levels[2]];
    }
}

static void (*const changes[LK_JITTER_PARTS])(lk_image *image, double factor) = {
    lk__image_brightness, lk__image_contrast, lk__image_saturation, lk__image_hue};

void lk__image_jitter(lk_image *image, const lk_image_jitter *jitter)
{
    for (size_t i = 0; i < LK_JITTER_PARTS; i++) {
        size_t part = jitter->order[i];
        if (jitter->on[part])
            changes[part](image, jitter->factor[part]);
    }
}

/* Elements: 0 to 3 the factors, 4 to 6 the order, by a Fisher-Yates shuffle from its end. */
lk_image_jitter lk__draw_jitter(const double *values, const lk_rng *rng)
{
    lk_image_jitter jitter = {.order = {0, 1, 2, 3}};
    for (size_t i = 0; i < LK_JITTER_PARTS; i++) {
        double middle = i < 3 ? 1 : 0, low = middle - values[i];
        jitter.on[i] = values[i] > 0;
        jitter.factor[i] = lk__draw_between(rng, i, i < 3 && low < 0 ? 0 : low, middle + values[i]);
    }
    for (size_t i = LK_JITTER_PARTS - 1; i > 0; i--) {
        size_t j = lk__rng_below(lk__rng_u32(rng, LK_JITTER_PARTS + (LK_JITTER_PARTS - 1 - i)), (uint32_t)i + 1);
        size_t old = jitter.order[i];
        jitter.order[i] = jitter.order[j];
        jitter.order[j] = old;
    }
    return jitter;
}

static lk_status jitter_colours(const double *values, const lk_rng *rng, lk_image *image, lk_image *scratch)
{
    (void)scratch;
    lk_image_jitter jitter = lk__draw_jitter(values, rng);
    lk__image_jitter(image, &jitter);
    return LK_OK;
}

static bool any_jitter(const double *values)
{
    return values[0] > 0 || values[1] > 0 || values[2] > 0 || values[3] > 0;
}

const lk_transform_row lk__transform_jitter = {
    .info = {"jitter",
             "=B/0/0/0: brightness, contrast, saturation times 1-B to 1+B, hue by up to H turns, in random order"},
    .values = {{.name = "B", .min = 0, .max = 100},
               {.name = "C", .min = 0, .max = 100},
               {.name = "S", .min = 0, .max = 100},
               {.name = "H", .min = 0, .max = .5}},
    .needed = 1,
    .random = any_jitter,
    .apply = jitter_colours,
};

/* Element: 0 decides whether. */
static lk_status grayscale(const double *values, const lk_rng *rng, lk_image *image, lk_image *scratch)
{
    (void)scratch;
    if (lk__draw_chance(rng, 0, values[0]))
        lk__image_grayscale(image);
    return LK_OK;
}

const lk_transform_row lk__transform_grayscale = {
    .info = {"grayscale", "=0.1: colours to grey, with this probability"},
    .values = {{.name = "P", .value = .1, .min = 0, .max = 1}},
    .random = lk__transform_uncertain,
    .apply = grayscale,
};
