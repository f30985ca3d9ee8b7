/* clip.c - the sum of squares of each block of the whole model, whichever rank has it, then one sum over
 * the tree. */
#include "parallel/step/clip.h"

#include <math.h>

#include "base/mem.h"

double lk__clip_tree_sum(const double *values, size_t count)
{
    /* A left subtree has a power of two of leaves, so the stack has one entry for each 1 in the binary number
     * of leaves so far. At the end the remaining entries are added from the right. */
    double stack[8 * sizeof count + 1];
    size_t depth = 0;
    for (size_t i = 0; i < count; i++) {
        stack[depth++] = values[i];
        for (size_t leaves = i + 1; leaves % 2 == 0; leaves /= 2, depth--)
            stack[depth - 2] += stack[depth - 1];
    }
    for (; depth > 1; depth--)
        stack[depth - 2] += stack[depth - 1];
    return count ? stack[0] : 0;
}

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
    size_t bytes = lk__clip_blocks(params) * sizeof *params->squares;
    if (params->squares)
        return LK_OK;
    return params->dev->type->alloc(params->dev, bytes, "sums of squares", (void **)&params->squares);
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

/* The blocks of layers of other stages stay as they are: zeros, since the device's memory begins as zeros. */
void lk__clip_squares(lk_params *params, size_t begin, size_t end)
{
    double *sums = params->squares;
    for (int i = params->graph->count - 1; i >= 0; i--) {
        const lk_layer *layer = &params->graph->layers[i];
        for (int slot = layer->param_count - 1; slot >= 0; slot--) {
            if (i >= params->first && i < params->last)
                sum_slot(params, params->param_offset[i][slot],
                         lk__params_elements(params->graph, params->dev, layer, slot), begin, end, sums);
            sums += slot_blocks(params, layer, slot);
        }
    }
}

lk_status lk__clip_finish(lk_params *params, lk_group *pipe, double *out)
{
    size_t count = lk__clip_blocks(params);
    double *sums;
    LK_TRY(LK_ALLOC(count, "sums of squares", &sums));
    lk_status status;
    LK_TRY_GOTO(params->dev->type->download(params->dev, params->squares, count * sizeof *sums, sums), free_sums);
    /* A block is zero at all ranks but one, and x + 0 is x: this sum gathers without rounding. */
    if (pipe)
        LK_TRY_GOTO(lk_allreduce(pipe, (lk_buffer){sums, count, LK_DTYPE_F64}, LK_REDUCTION_SUM, NULL), free_sums);
    *out = sqrt(lk__clip_tree_sum(sums, count));

free_sums:
    lk__mem_free(sums);
    return status;
}

lk_status lk__clip_norm(lk_params *params, lk_group *pipe, double *out)
{
    LK_TRY(lk__clip_prepare(params));
    lk__clip_squares(params, 0, params->count);
    return lk__clip_finish(params, pipe, out);
}

void lk__clip_gradient(lk_params *params, double norm, double limit)
{
    double factor = limit / (norm + 1e-6);
    /* If the norm is NaN, the gradient becomes NaN, as in PyTorch. */
    if (!(factor >= 1))
        params->dev->kernels->scale(params->dev, params->count, (float)factor, params->grads);
}
