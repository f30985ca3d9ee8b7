/* digits.c - the built-in data set: digits drawn by code.
 *
 * A sample is a pure function of (split, index): strokes through jittered control points, warped by
 * a random affine map, drawn with a random pen, with stray strokes and noise. Only +, -, *, / and
 * sqrt on floats and integer operations are used, which round equally on every machine, so the
 * bytes are the same everywhere. Any change here changes the data set. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/rng.h"
#include "data/sets/dataset.h"

enum {
    SIDE = 28,
    CLASSES = 10,
    MAX_POINTS = 16,  /* control points of a stroke */
    MAX_STROKES = 3,  /* of a glyph */
    MAX_VARIANTS = 3, /* ways to write a digit */
    PIECES = 4,       /* straight pieces between two points of a curve */
    LANES = 4         /* pixels drawn together, a divisor of SIDE */
};

/* "lockstep" in ASCII: the data set's own seed, independent of any run's. */
static const uint64_t digits_seed = 0x6c6f636b73746570;

typedef enum stroke_kind { STROKE_END, STROKE_LINE, STROKE_CURVE, STROKE_LOOP } stroke_kind;

/* Points in a box of 60 by 100, y downwards. A line has corners at its points, a curve is smooth, a
 * loop is a closed curve. */
typedef struct stroke {
    stroke_kind kind;
    int count;
    int8_t points[MAX_POINTS][2];
} stroke;

typedef struct glyph {
    int variants;
    stroke strokes[MAX_VARIANTS][MAX_STROKES];
} glyph;

/* clang-format off */
#define LINE(n, ...) {.kind = STROKE_LINE, .count = n, .points = {__VA_ARGS__}}
#define CURVE(n, ...) {.kind = STROKE_CURVE, .count = n, .points = {__VA_ARGS__}}
#define LOOP(n, ...) {.kind = STROKE_LOOP, .count = n, .points = {__VA_ARGS__}}

static const glyph glyphs[CLASSES] = {
    {2, {{LOOP(8, {30, 0}, {9, 14}, {0, 50}, {9, 86}, {30, 100}, {51, 86}, {60, 50}, {51, 14})},
         {CURVE(9, {40, 2}, {16, 6}, {4, 30}, {4, 70}, {24, 100}, {50, 84}, {58, 44}, {44, 8}, {24, 8})}}},
    {3, {{LINE(2, {30, 0}, {30, 100})},
         {LINE(3, {18, 26}, {34, 0}, {34, 100})},
         {LINE(3, {16, 22}, {32, 0}, {32, 100}), LINE(2, {10, 100}, {54, 100})}}},
    {2, {{CURVE(7, {4, 24}, {14, 5}, {34, 0}, {54, 12}, {52, 36}, {32, 64}, {2, 98}), LINE(2, {2, 98}, {60, 98})},
         {CURVE(10, {4, 20}, {26, 0}, {50, 10}, {50, 38}, {28, 76}, {8, 98}, {0, 88}, {12, 80}, {32, 94}, {60, 96})}}},
    {2, {{CURVE(5, {4, 14}, {24, 0}, {50, 8}, {50, 34}, {22, 46}),
          CURVE(5, {22, 46}, {54, 56}, {58, 80}, {34, 100}, {2, 88})},
         {LINE(3, {4, 2}, {56, 2}, {26, 40}), CURVE(5, {26, 40}, {54, 52}, {56, 82}, {30, 100}, {2, 88})}}},
    {3, {{LINE(3, {42, 0}, {2, 66}, {60, 66}), LINE(2, {42, 0}, {42, 100})},
         {LINE(3, {8, 2}, {4, 54}, {58, 52}), LINE(2, {48, 4}, {44, 100})},
         {LINE(3, {22, 0}, {2, 60}, {60, 58}), LINE(2, {42, 32}, {38, 100})}}},
    {2, {{LINE(3, {54, 0}, {12, 0}, {8, 44}), CURVE(6, {8, 44}, {30, 36}, {54, 50}, {56, 78}, {32, 100}, {2, 90})},
         {LINE(2, {10, 4}, {6, 46}), CURVE(6, {6, 46}, {36, 38}, {56, 62}, {48, 90}, {24, 100}, {2, 92}),
          LINE(2, {10, 4}, {58, 0})}}},
    {2, {{CURVE(9, {50, 2}, {24, 16}, {5, 52}, {6, 84}, {30, 100}, {54, 86}, {52, 60}, {30, 50}, {8, 66})},
         {CURVE(9, {24, 0}, {8, 34}, {2, 72}, {20, 100}, {48, 94}, {56, 70}, {38, 54}, {16, 64}, {10, 86})}}},
    {3, {{LINE(3, {2, 2}, {58, 2}, {22, 100})},
         {LINE(3, {2, 4}, {58, 2}, {24, 100}), LINE(2, {16, 50}, {54, 48})},
         {LINE(2, {4, 18}, {4, 2}), CURVE(5, {4, 2}, {30, 6}, {58, 0}, {40, 44}, {30, 100})}}},
    {2, {{LOOP(12, {30, 47}, {52, 30}, {50, 8}, {30, 0}, {10, 8}, {8, 30},
               {30, 47}, {56, 68}, {52, 92}, {30, 100}, {8, 92}, {4, 68})},
         {LOOP(6, {30, 0}, {10, 10}, {10, 34}, {30, 46}, {50, 34}, {50, 10}),
          LOOP(6, {30, 46}, {4, 60}, {6, 90}, {30, 100}, {54, 90}, {56, 60})}}},
    {3, {{CURVE(7, {54, 30}, {32, 50}, {8, 40}, {6, 14}, {30, 0}, {52, 10}, {54, 30}), LINE(2, {54, 20}, {46, 100})},
         {CURVE(10, {54, 26}, {34, 50}, {8, 42}, {6, 14}, {30, 0}, {52, 12}, {56, 46}, {50, 84}, {30, 100}, {8, 94})},
         {LOOP(6, {28, 0}, {6, 12}, {8, 38}, {30, 48}, {50, 36}, {50, 12}), CURVE(3, {52, 12}, {52, 60}, {36, 100})}}},
};
/* clang-format on */

/* Random numbers, drawn in sequence from a sample's stream. */
typedef struct draws {
    lk_rng rng;
    uint32_t words[4];
    uint32_t drawn;
} draws;

static uint32_t draw(draws *d)
{
    if (d->drawn % 4 == 0)
        lk__rng_block(&d->rng, d->drawn / 4, d->words);
    return d->words[d->drawn++ % 4];
}

/* Uniform between lo and hi. */
static float between(draws *d, float lo, float hi)
{
    return lo + (hi - lo) * lk__rng_unit(draw(d));
}

typedef struct point {
    float x, y;
} point;

typedef struct pen {
    float radius, ink;
    float xx, xy, yx, yy; /* maps the glyph's box, from its centre, to pixels */
    point centre;
} pen;

static pen random_pen(draws *d)
{
    /* Rotation by 2 atan(t), up to 21 degrees: needs no sine. */
    float t = between(d, -.18f, .18f), norm = 1 + t * t;
    float c = (1 - t * t) / norm, s = 2 * t / norm;
    float height = between(d, .135f, .215f), width = height * between(d, .7f, 1.25f);
    float shear = between(d, -.3f, .3f);
    pen p = {.radius = between(d, .55f, 1.6f), .ink = between(d, .6f, 1)};
    p.xx = c * width;
    p.yx = s * width;
    p.xy = c * shear * height - s * height;
    p.yy = s * shear * height + c * height;
    p.centre = (point){14 + between(d, -3, 3), 14 + between(d, -3, 3)};
    return p;
}

typedef struct canvas {
    float ink[SIDE * SIDE]; /* (H, W), 0 to 1 */
} canvas;

static int clamp_pixel(float at)
{
    return at < 0 ? 0 : at > SIDE - 1 ? SIDE - 1 : (int)at;
}

/* One row of draw_piece: count pixels. `from` is the offset of the first pixel from the start of
 * the piece, `way` the vector from the start to the end. Pixels out of reach are unchanged. */
static void draw_row(float *restrict ink, int count, pen p, point from, point way)
{
    float length2 = way.x * way.x + way.y * way.y;
    float scale = length2 > 0 ? 1 / length2 : 0;
    float reach = p.radius + .5f;
    for (int k = 0; k < count; k++) {
        float px = from.x + (float)k;
        float along = (px * way.x + from.y * way.y) * scale;
        along = along < 0 ? 0 : along;
        along = along > 1 ? 1 : along;
        float ex = px - along * way.x, ey = from.y - along * way.y;
        float cover = reach - sqrtf(ex * ex + ey * ey);
        cover = (cover > 1 ? 1 : cover) * p.ink;
        ink[k] = cover > ink[k] ? cover : ink[k];
    }
}

/* Darkens every pixel by its distance inside the pen's reach around the piece from a to b. */
static void draw_piece(canvas *image, const pen *p, point a, point b)
{
    float reach = p->radius + .5f;
    int x0 = clamp_pixel((a.x < b.x ? a.x : b.x) - reach), x1 = clamp_pixel((a.x > b.x ? a.x : b.x) + reach + 1);
    int y0 = clamp_pixel((a.y < b.y ? a.y : b.y) - reach), y1 = clamp_pixel((a.y > b.y ? a.y : b.y) + reach + 1);
    x0 -= x0 % LANES;
    int count = (x1 - x0) / LANES * LANES + LANES;
    for (int y = y0; y <= y1; y++)
        draw_row(image->ink + y * SIDE + x0, count, *p, (point){(float)x0 - a.x, (float)y - a.y},
                 (point){b.x - a.x, b.y - a.y});
}

/* Catmull-Rom curve through b and c, with tangents from their neighbours. */
static point on_curve(point a, point b, point c, point e, float t)
{
    float t2 = t * t, t3 = t2 * t;
    float wa = .5f * (2 * t2 - t3 - t), wb = .5f * (3 * t3 - 5 * t2 + 2);
    float wc = .5f * (4 * t2 - 3 * t3 + t), we = .5f * (t3 - t2);
    return (point){a.x * wa + b.x * wb + c.x * wc + e.x * we, a.y * wa + b.y * wb + c.y * wc + e.y * we};
}

static void draw_stroke(canvas *image, const pen *p, stroke_kind kind, const point *points, int count)
{
    int spans = kind == STROKE_LOOP ? count : count - 1;
    point last = points[0];
    for (int i = 0; i < spans; i++) {
        /* The ends of an open curve count twice. */
        int before = i > 0 ? i - 1 : kind == STROKE_LOOP ? count - 1 : 0;
        int next = (i + 1) % count;
        int after = kind == STROKE_LOOP ? (i + 2) % count : (i + 2 < count ? i + 2 : count - 1);
        int pieces = kind == STROKE_LINE ? 1 : PIECES;
        for (int k = 1; k <= pieces; k++) {
            point to = k == pieces ? points[next]
                                   : on_curve(points[before], points[i], points[next], points[after],
                                              (float)k * (1.0f / PIECES));
            draw_piece(image, p, last, to);
            last = to;
        }
    }
}

static void draw_glyph(canvas *image, draws *d, const glyph *g)
{
    const stroke *strokes = g->strokes[lk__rng_below(draw(d), (uint32_t)g->variants)];
    pen p = random_pen(d);
    float jitter = between(d, 2, 8);
    for (int s = 0; s < MAX_STROKES && strokes[s].kind != STROKE_END; s++) {
        point points[MAX_POINTS];
        for (int i = 0; i < strokes[s].count; i++) {
            float x = (float)strokes[s].points[i][0] - 30 + between(d, -jitter, jitter);
            float y = (float)strokes[s].points[i][1] - 50 + between(d, -jitter, jitter);
            points[i] = (point){p.centre.x + p.xx * x + p.xy * y, p.centre.y + p.yx * x + p.yy * y};
        }
        draw_stroke(image, &p, strokes[s].kind, points, strokes[s].count);
    }
}

/* Draws up to two short stray strokes, fainter than the digit. */
static void draw_clutter(canvas *image, draws *d)
{
    uint32_t count = lk__rng_below(draw(d), 3);
    for (uint32_t i = 0; i < count; i++) {
        pen p = {.radius = between(d, .4f, 1), .ink = between(d, .2f, .6f)};
        point a = {between(d, 0, SIDE - 1), between(d, 0, SIDE - 1)};
        point b = {a.x + between(d, -5, 5), a.y + between(d, -5, 5)};
        draw_piece(image, &p, a, b);
    }
}

/* Converts ink with noise to bytes; each pixel uses a quarter of a random word. Computes in 1/256
 * of a grey level, without branches, which noise would make unpredictable. */
static void develop(const canvas *image, draws *d, uint8_t *pixels)
{
    int noise = (int)lk__rng_below(draw(d), 33);
    uint8_t grain[SIDE * SIDE];
    for (int i = 0; i < SIDE * SIDE; i += 4) {
        uint32_t word = draw(d);
        for (int k = 0; k < 4; k++)
            grain[i + k] = (uint8_t)(word >> (8 * k));
    }
    for (int i = 0; i < SIDE * SIDE; i++) {
        int level = (int)(image->ink[i] * 65280.0f) + (2 * grain[i] - 255) * noise + 128;
        level = level < 0 ? 0 : level;
        level = level > 65535 ? 65535 : level;
        pixels[i] = (uint8_t)(level >> 8);
    }
}

static draws draws_of(const lk_dataset *data, size_t index)
{
    return (draws){.rng = lk__rng(digits_seed, LK_RNG_PURPOSE_DIGITS, 0, (uint32_t)data->split, (uint32_t)index)};
}

/* The first draw of a sample. */
static uint32_t draw_digit(draws *d)
{
    return lk__rng_below(draw(d), CLASSES);
}

static int32_t label_of(const lk_dataset *data, size_t index)
{
    draws d = draws_of(data, index);
    return (int32_t)draw_digit(&d);
}

static lk_status get(const lk_dataset *data, size_t index, void *pixels, void *label)
{
    draws d = draws_of(data, index);
    canvas image;
    memset(&image, 0, sizeof image);
    uint32_t digit = draw_digit(&d);
    draw_clutter(&image, &d);
    draw_glyph(&image, &d, &glyphs[digit]);
    develop(&image, &d, pixels);
    *(int32_t *)label = (int32_t)digit;
    return LK_OK;
}

const lk_dataset_ops lk__digits_ops = {.get = get, .label = label_of};

const lk_dataset_info lk__digits_info[2] = {
    [LK_SPLIT_TRAIN] = {.count = 60000, .channels = 1, .height = SIDE, .width = SIDE, .classes = CLASSES},
    [LK_SPLIT_TEST] = {.count = 10000, .channels = 1, .height = SIDE, .width = SIDE, .classes = CLASSES},
};
