/* frozen.c - the gradients of frozen parameters. */
#include "nn/frozen.h"

#include <string.h>

#include "base/mem.h"
#include "nn/params.h"

bool lk__frozen_trains(const unsigned *slots, const lk_layer *layer)
{
    unsigned all = (1u << layer->param_count) - 1;
    return slots ? (slots[layer->index] & all) != all : layer->param_count > 0;
}

static bool is_frozen(const lk_frozen *frozen, const lk_layer *layer, int slot)
{
    return frozen->slots && frozen->slots[layer->index] >> slot & 1;
}

/* One kernel computes the gradients of weights and bias: it also computes those of frozen weights if the bias is
 * trained. */
bool lk__frozen_skips(const lk_frozen *frozen, const lk_layer *layer, int slot)
{
    bool weight = slot == 0 && layer->op->flags & LK_OP_HAS_WEIGHTS;
    bool bias_trained = layer->param_count > 1 && !is_frozen(frozen, layer, 1);
    return is_frozen(frozen, layer, slot) && layer->op->flags & LK_OP_SKIPS_GRADS && !(weight && bias_trained);
}

/* The elements of a gradient that is computed and cleared; 0 for another one. */
static size_t cleared(const lk_frozen *frozen, const lk_layer *layer, int slot)
{
    bool clears = is_frozen(frozen, layer, slot) && !lk__frozen_skips(frozen, layer, slot);
    return clears ? lk__params_elements(frozen->graph, frozen->dev, layer, slot) : 0;
}

lk_status lk__frozen_init(lk_frozen *frozen, const lk_graph *graph, lk_device *dev, const unsigned *slots)
{
    size_t layers = (size_t)graph->count;
    *frozen = (lk_frozen){.graph = graph, .dev = dev};
    LK_TRY(LK_ALLOC(layers, "frozen parameters", &frozen->slots));
    memcpy(frozen->slots, slots, layers * sizeof *slots);
    return LK_OK;
}

void lk__frozen_fini(lk_frozen *frozen)
{
    lk__mem_free(frozen->slots);
    *frozen = (lk_frozen){0};
}

void lk__frozen_clear(const lk_frozen *frozen, const lk_op_call *call)
{
    if (!frozen->slots || !call->wave->last)
        return;
    for (int slot = 0; slot < call->layer->param_count; slot++) {
        size_t bytes = cleared(frozen, call->layer, slot) * sizeof(float);
        for (int root = 0; bytes > 0 && root < call->wave->own_roots; root++)
            call->k->zero_bytes(call->dev, bytes, lk__partials_slot(call->grad[slot], root));
    }
}
