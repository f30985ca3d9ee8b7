/* gather.c - samples of a data set, selected by id: floats as they are, bytes cropped, flipped and converted to
 * floats. */
#include <string.h>

#include "base/rng.h"
#include "tensor/cpu/chunks.h"
#include "tensor/cpu/decls.h"

typedef struct gathering {
    const lk_gather_desc *from;
    const uint32_t *ids;
    float *x; // (n, h, w, c)
    lk_shape shape;
} gathering;

/* The crop and flip of one sample: pixel (y, x) of the crop is pixel (y + top, x + left) of the image. */
typedef struct view {
    ptrdiff_t top, left;
    bool flip, flip_last;
} view;

static ptrdiff_t draw_offset(const lk_rng *rng, uint64_t element, uint32_t pad)
{
    return (ptrdiff_t)lk__rng_below(lk__rng_u32(rng, element), 2 * pad + 1) - (ptrdiff_t)pad;
}

static view view_of(const lk_gather_desc *g, uint32_t id)
{
    view v = {.flip_last = g->flip_layer > g->crop_layer};
    if (g->crop > 0) {
        lk_rng rng = lk__rng(g->seed, LK_RNG_PURPOSE_AUGMENT, g->crop_layer, *g->epoch, id);
        v.top = draw_offset(&rng, 0, g->crop);
        v.left = draw_offset(&rng, 1, g->crop);
    }
    if (g->flip > 0) {
        lk_rng rng = lk__rng(g->seed, LK_RNG_PURPOSE_AUGMENT, g->flip_layer, *g->epoch, id);
        v.flip = (double)lk__rng_unit(lk__rng_u32(&rng, 0)) >= 1 - g->flip;
    }
    return v;
}

/* The column of the image that column x of the result shows; outside of [0, width) it is padding. Undoes the
 * transforms in reverse order. */
static ptrdiff_t column_of(const view *v, ptrdiff_t x, ptrdiff_t width)
{
    if (v->flip && v->flip_last)
        x = width - 1 - x;
    x += v->left;
    return v->flip && !v->flip_last ? width - 1 - x : x;
}

static void gather_values(const gathering *op, size_t n)
{
    size_t record = op->from->record;
    memcpy(op->x + n * record, op->from->values + op->ids[n] * record, record * sizeof *op->x);
}

/* Padding is byte 0. */
static void gather_pixels(const gathering *op, size_t n)
{
    const lk_gather_desc *g = op->from;
    size_t c = op->shape.c, h = op->shape.h, w = op->shape.w;
    const uint8_t *pixels = g->pixels + op->ids[n] * g->record;
    float *out = op->x + n * h * w * c;
    view v = view_of(g, op->ids[n]);
    for (size_t y = 0; y < h; y++) {
        ptrdiff_t row = (ptrdiff_t)y + v.top;
        for (size_t x = 0; x < w; x++) {
            ptrdiff_t column = column_of(&v, (ptrdiff_t)x, (ptrdiff_t)w);
            bool inside = row >= 0 && row < (ptrdiff_t)h && column >= 0 && column < (ptrdiff_t)w;
            size_t from = inside ? (size_t)row * w + (size_t)column : 0;
            for (size_t i = 0; i < c; i++)
                *out++ = g->table[i * 256 + (inside ? pixels[i * h * w + from] : 0)];
        }
    }
}

static void gather_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const gathering *op = arg;
    lk_chunk_range rows = lk__chunk(op->shape.n, lk__chunk_rows(lk__shape_sample(op->shape)), index);
    for (size_t n = rows.begin; n < rows.end; n++)
        (op->from->values ? gather_values : gather_pixels)(op, n);
}

void LK_KERNEL(gather)(lk_device *dev, const lk_gather_desc *gather, const uint32_t *ids, lk_tensor *x)
{
    gathering op = {.from = gather, .ids = ids, .x = lk__tensor_f32(x), .shape = x->shape};
    lk__chunk_run_rows(dev, x->shape.n, lk__shape_sample(x->shape), gather_task, &op);
}
