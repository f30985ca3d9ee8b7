/* embedding.c - a table of vectors, one for each id. */
#include <math.h>

#include "nn/op.h"

enum { MOST_ROWS = 1 << 24 };

static lk_status infer(const lk_graph *graph, lk_layer *layer)
{
    lk_shape x = lk__op_input_shape(graph, layer, 0);
    size_t rows = layer->attr.out, width = layer->shape.c;
    if (!rows || !width)
        return lk__fail(LK_STATUS_USAGE, "embedding '%s' needs at least one row and one element in a row", layer->name);
    if (rows > MOST_ROWS)
        return lk__fail(LK_STATUS_USAGE, "embedding '%s' has %zu rows; a float holds ids below %d", layer->name, rows,
                        MOST_ROWS);
    if (x.h != 1 || (x.w != 1 && x.c != 1))
        return lk__fail(LK_STATUS_USAGE,
                        "embedding '%s' got %zux%zux%zu; ids are a vector, or a sequence with one channel", layer->name,
                        x.c, x.h, x.w);
    layer->shape = (lk_shape){.n = 1, .c = width, .h = 1, .w = x.w * x.c};
    layer->params[0] =
        (lk_op_slot){.suffix = "weight", .ndim = 2, .dims = {rows, width}, .fill = LK_OP_FILL_NORMAL, .spread = 1};
    layer->param_count = 1;
    return LK_OK;
}

static lk_status supports(const lk_device *dev, const lk_layer *layer)
{
    if (dev->values != LK_DTYPE_BF16)
        return LK_OK;
    return lk__fail(LK_STATUS_UNSUPPORTED,
                    "embedding '%s': bf16 holds whole numbers up to 256 only, so it cannot hold ids; choose "
                    "`precision` fp32, tf32 or tf32conv",
                    layer->name);
}

static lk_status check_sample(const lk_layer *layer, const float *x, uint32_t id)
{
    size_t rows = layer->attr.out;
    for (size_t i = 0; i < layer->shape.w; i++) {
        if (!(x[i] >= 0 && x[i] < (float)rows) || floorf(x[i]) != x[i])
            return lk__fail(LK_STATUS_MISMATCH,
                            "sample %u: its value %zu is %.9g; embedding '%s' takes ids: whole numbers from 0 to %zu",
                            id, i, (double)x[i], layer->name, rows - 1);
    }
    return LK_OK;
}

static lk_embedding_desc desc_of(const lk_layer *layer)
{
    return (lk_embedding_desc){.rows = layer->attr.out};
}

static size_t scratch(lk_device *dev, const lk_layer *layer, lk_shape x, lk_shape y)
{
    lk_embedding_desc desc = desc_of(layer);
    return dev->kernels->embedding_scratch(dev, &desc, x, y);
}

static void forward(const lk_op_call *call)
{
    lk_embedding_desc desc = desc_of(call->layer);
    lk_tensor y = call->y;
    call->k->embedding_forward(call->dev, &desc, &call->x[0], call->param[0], &y);
}

/* Ids have no gradient. */
static void backward(const lk_op_call *call)
{
    lk_embedding_desc desc = desc_of(call->layer);
    const lk_tensor *dx = &call->dx[0];
    call->k->embedding_grad_weight(call->dev, &desc, &call->x[0], &call->dy, &call->wave->leaves, call->grad[0],
                                   call->scratch);
    if (dx->data)
        call->k->zero_bytes(call->dev, dx->shape.n * lk__tensor_stride(dx), dx->data);
}

static const lk_op embedding_op = {
    .name = "embedding",
    .flags = LK_OP_READS_X,
    .infer = infer,
    .check_sample = check_sample,
    .supports = supports,
    .scratch = scratch,
    .forward = forward,
    .backward = backward,
};

lk_node lk_embedding(lk_graph *graph, lk_node x, const char *name, size_t rows, size_t width)
{
    lk_layer layer = {.op = &embedding_op, .shape = {.n = 1, .c = width, .h = 1, .w = 1}};
    layer.attr.out = rows;
    return lk__graph_add_layer(graph, layer, name, &x, 1);
}
