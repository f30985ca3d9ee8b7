/* norm.c - sums of squares by blocks, their sum, and scaling, for clipping gradients by their norm.
 *
 * The sum of a block runs in LANES chains of doubles: element i of the block belongs to chain i % LANES. The
 * chains are added as a balanced tree. The result depends on block size and LANES. The square of a float is
 * exact in double, so fusing multiply and add changes nothing, and no finite gradient overflows a chain. The
 * compiler vectorises these loops. */
#include <math.h>

#include "tensor/cpu/chunks.h"
#include "tensor/cpu/decls.h"

enum { LANES = 32, BLOCKS = LK_CHUNK / LK_NORM_BLOCK };
_Static_assert(LK_CHUNK % LK_NORM_BLOCK == 0 && LK_NORM_BLOCK % LANES == 0, "chunks are whole blocks of whole rows");

typedef struct squares {
    size_t count;
    const float *x; // (count)
    double *sums;   // (blocks)
} squares;

static double block_sum(const float *x, size_t count)
{
    double lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        for (size_t l = 0; l < LANES; l++)
            lane[l] += (double)x[i + l] * (double)x[i + l];
    }
    for (size_t l = 0; i + l < count; l++)
        lane[l] += (double)x[i + l] * (double)x[i + l];
    for (size_t half = LANES / 2; half > 0; half /= 2) {
        for (size_t l = 0; l < half; l++)
            lane[l] += lane[l + half];
    }
    return lane[0];
}

static void squares_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const squares *s = arg;
    lk_chunk_range range = lk__chunk(s->count, LK_CHUNK, index);
    double *sum = s->sums + index * BLOCKS;
    for (size_t i = range.begin; i < range.end; i += LK_NORM_BLOCK)
        *sum++ = block_sum(s->x + i, lk__size_min(LK_NORM_BLOCK, range.end - i));
}

void LK_KERNEL(sum_squares)(lk_device *dev, size_t count, const float *x, double *sums)
{
    squares s = {.count = count, .x = x, .sums = sums};
    lk__chunk_run(dev, count, squares_task, &s);
}

/* The sum over the tree on the indices: pairs of neighbours, then pairs of these sums, and so on. */
static double tree_sum(double *values, size_t count)
{
    for (size_t apart = 1; apart < count; apart *= 2) {
        for (size_t i = 0; i + apart < count; i += 2 * apart)
            values[i] += values[i + apart];
    }
    return count ? values[0] : 0;
}

void LK_KERNEL(fold_squares)(lk_device *dev, size_t count, double *sums, double limit, lk_norm *norm)
{
    (void)dev;
    double square = tree_sum(sums, count), quotient = limit / (sqrt(square) + 1e-6);
    *norm = (lk_norm){.square = square, .factor = limit == 0 || quotient >= 1 ? 1 : (float)quotient};
}

typedef struct scaling {
    size_t count;
    float factor;
    float *x; // (count)
} scaling;

static void scale_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const scaling *s = arg;
    lk_chunk_range range = lk__chunk(s->count, LK_CHUNK, index);
    for (size_t i = range.begin; i < range.end; i++)
        s->x[i] *= s->factor;
}

void LK_KERNEL(scale)(lk_device *dev, const lk_flag *flag, size_t count, const float *factor, float *x)
{
    scaling s = {.count = count, .factor = *factor, .x = x};
    if (*factor != 1 && !(flag && flag->bad))
        lk__chunk_run(dev, count, scale_task, &s);
}
