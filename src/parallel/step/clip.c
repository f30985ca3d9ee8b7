/* clip.c - the sum of squares of each block of the whole model, whichever stage has it, then one sum over
 * the tree, on the device. */
#include "parallel/step/clip.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

static size_t slot_blocks(const lk_params *params, const lk_layer *layer, int slot)
{
    return (lk__params_elements(params->graph, params->dev, layer, slot) + LK_NORM_BLOCK - 1) / LK_NORM_BLOCK;
}

size_t lk__clip_blocks(const lk_params *params)
{
    size_t count = 0;
    for (int i = 0; i < params->graph->count; i++) {
        const lk_layer *layer = &params->graph->layers[i];
        for (int slot = 0; slot < layer->param_count; slot++)
            count += slot_blocks(params, layer, slot);
    }
    return count;
}

lk_status lk__clip_prepare(lk_params *params)
{
    const lk_device_type *type = params->dev->type;
    size_t bytes = lk__clip_blocks(params) * sizeof *params->squares;
    if (!params->squares)
        LK_TRY(type->alloc(params->dev, bytes, "sums of squares", (void **)&params->squares));
    if (!params->norm)
        LK_TRY(type->alloc(params->dev, sizeof *params->norm, "sums of squares", (void **)&params->norm));
    return LK_OK;
}

/* Enqueues the blocks of a tensor of `count` elements at `offset` whose last element is in [begin,end). */
static void sum_slot(lk_params *params, size_t offset, size_t count, size_t begin, size_t end, double *sums)
{
    size_t from = begin > offset ? (begin - offset) / LK_NORM_BLOCK * LK_NORM_BLOCK : 0;
    size_t to = end >= offset + count ? count : end > offset ? (end - offset) / LK_NORM_BLOCK * LK_NORM_BLOCK : 0;
    if (to > from && begin < offset + count)
        params->dev->kernels->sum_squares(params->dev, to - from, params->grads + offset + from,
                                          sums + from / LK_NORM_BLOCK);
}

static bool has_layer(const lk_params *params, int layer)
{
    return layer >= params->first && layer < params->last;
}

void lk__clip_squares(lk_params *params, size_t begin, size_t end)
{
    double *sums = params->squares;
    for (int i = params->graph->count - 1; i >= 0; i--) {
        const lk_layer *layer = &params->graph->layers[i];
        for (int slot = layer->param_count - 1; slot >= 0; slot--) {
            if (has_layer(params, i))
                sum_slot(params, params->param_offset[i][slot],
                         lk__params_elements(params->graph, params->dev, layer, slot), begin, end, sums);
            sums += slot_blocks(params, layer, slot);
        }
    }
}

/* Sets the blocks of layers of other stages to 0. */
static void clear_others(const lk_params *params, double *sums)
{
    for (int i = params->graph->count - 1; i >= 0; i--) {
        const lk_layer *layer = &params->graph->layers[i];
        for (int slot = layer->param_count - 1; slot >= 0; slot--) {
            size_t count = slot_blocks(params, layer, slot);
            if (!has_layer(params, i))
                memset(sums, 0, count * sizeof *sums);
            sums += count;
        }
    }
}

/* A block is 0 at all stages but one, and x + 0 is x: the sum over the stages gathers without rounding. */
static lk_status gather(lk_params *params, lk_group *pipe, double *sums)
{
    const lk_device_type *type = params->dev->type;
    size_t count = lk__clip_blocks(params), bytes = count * sizeof *sums;
    LK_TRY(type->download(params->dev, params->squares, bytes, sums));
    clear_others(params, sums);
    LK_TRY(lk_allreduce(pipe, (lk_buffer){sums, count, LK_DTYPE_F64}, LK_REDUCTION_SUM, NULL));
    return type->upload(params->dev, sums, bytes, params->squares);
}

static lk_status gather_squares(lk_params *params, lk_group *pipe)
{
    double *sums;
    LK_TRY(LK_ALLOC(lk__clip_blocks(params), "sums of squares", &sums));
    lk_status status = gather(params, pipe, sums);
    lk__mem_free(sums);
    return status;
}

lk_status lk__clip_fold(lk_params *params, lk_group *pipe, double limit)
{
    if (pipe)
        LK_TRY(gather_squares(params, pipe));
    params->dev->kernels->fold_squares(params->dev, lk__clip_blocks(params), params->squares, limit, params->norm);
    return LK_OK;
}

void lk__clip_scale(lk_params *params, const lk_flag *flag)
{
    params->dev->kernels->scale(params->dev, flag, params->count, &params->norm->factor, params->grads);
}

lk_status lk__clip_norm(lk_params *params, double *out)
{
    double square;
    LK_TRY(params->dev->type->download(params->dev, &params->norm->square, sizeof square, &square));
    *out = sqrt(square);
    return LK_OK;
}
