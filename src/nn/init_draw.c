/* init_draw.c - draws the initial values of a parameter. A number depends only on its address, so threads may draw any
 * part of a parameter. */
#include "nn/init.h"

#include <math.h>

#include "base/math.h"
#include "base/mem.h"

/* Elements that a thread draws at a time; whole groups of blocks. */
enum { GROUP = 4 * LK_RNG_BLOCKS, PIECE = 64 * GROUP };

typedef struct drawing {
    const lk_op_slot *def;
    const lk_rng *rng;
    size_t count;
    float *values; /* (count) */
} drawing;

/* One group of elements; those after `count` are dropped. */
typedef void (*draw_fn)(const uint32_t *words, float scale, size_t count, float *values);

static void draw_uniform(const uint32_t *words, float bound, size_t count, float *values)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (2.0f * lk__rng_unit(words[i]) - 1.0f) * bound;
}

static void draw_normal(const uint32_t *words, float deviation, size_t count, float *values)
{
    for (size_t i = 0; i < count; i += 2) {
        float normal[2];
        lk__math_normal_pair(words[i], words[i + 1], normal);
        values[i] = normal[0] * deviation;
        if (i + 1 < count)
            values[i + 1] = normal[1] * deviation;
    }
}

static void draw_groups(const drawing *d, size_t begin, size_t end, draw_fn draw, float scale)
{
    uint32_t words[GROUP];
    for (size_t i = begin; i < end; i += GROUP) {
        lk__rng_blocks(d->rng, (uint32_t)(i / 4), words);
        draw(words, scale, lk__size_min(end - i, GROUP), d->values + i);
    }
}

static void fill(const drawing *d, size_t begin, size_t end, float value)
{
    for (size_t i = begin; i < end; i++)
        d->values[i] = value;
}

/* An lk_pool_fn. */
static void draw_piece(void *arg, size_t index, int thread)
{
    (void)thread;
    const drawing *d = arg;
    const lk_op_slot *def = d->def;
    size_t begin = index * PIECE, end = lk__size_min(begin + PIECE, d->count);
    switch (def->fill) {
    case LK_OP_FILL_FAN:
        draw_groups(d, begin, end, draw_uniform, 1.0f / sqrtf((float)def->fan_in));
        break;
    case LK_OP_FILL_UNIFORM:
        draw_groups(d, begin, end, draw_uniform, (float)def->spread);
        break;
    case LK_OP_FILL_NORMAL:
        draw_groups(d, begin, end, draw_normal, (float)def->spread);
        break;
    case LK_OP_FILL_ZERO:
        fill(d, begin, end, 0.0f);
        break;
    case LK_OP_FILL_ONE:
        fill(d, begin, end, 1.0f);
        break;
    case LK_OP_FILL_CONSTANT:
        fill(d, begin, end, (float)def->spread);
        break;
    }
}

void lk__init_draw(const lk_op_slot *def, const lk_rng *rng, lk_pool *pool, float *values)
{
    drawing d = {.def = def, .rng = rng, .count = lk__op_slot_count(def), .values = values};
    lk__pool_run(pool, (d.count + PIECE - 1) / PIECE, draw_piece, &d);
}
