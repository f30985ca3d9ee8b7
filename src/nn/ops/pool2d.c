/* pool2d.c - max pooling and global average pooling. */
#include "nn/op.h"

static lk_status infer_maxpool(const lk_graph *graph, lk_layer *layer)
{
    lk_shape x = lk__input_shape(graph, layer, 0);
    const lk_pool2d_desc *pool = &layer->attr.pool;
    if (!pool->kernel || pool->kernel > 15)
        return lk__fail(LK_STATUS_USAGE, "layer %d: a pooling window has 1 to 15 pixels a side, not %zu", layer->index,
                        pool->kernel);
    if (2 * pool->pad > pool->kernel)
        return lk__fail(LK_STATUS_USAGE, "layer %d: pooling with padding %zu needs a window of at least %zu",
                        layer->index, pool->pad, 2 * pool->pad);
    if (x.h + 2 * pool->pad < pool->kernel || x.w + 2 * pool->pad < pool->kernel)
        return lk__fail(LK_STATUS_USAGE, "layer %d: pooling window %zu is larger than its input %zux%zu", layer->index,
                        pool->kernel, x.h, x.w);
    layer->shape = (lk_shape){.n = 1,
                              .c = x.c,
                              .h = (x.h + 2 * pool->pad - pool->kernel) / pool->stride + 1,
                              .w = (x.w + 2 * pool->pad - pool->kernel) / pool->stride + 1};
    return LK_OK;
}

/* One byte of index an output element. */
static size_t saved_maxpool(const lk_layer *layer, size_t n, int shards)
{
    (void)shards;
    return (n * lk__shape_sample(layer->shape) + sizeof(float) - 1) / sizeof(float);
}

static void forward_maxpool(const lk_call *call)
{
    lk_tensor y = call->y;
    call->k->maxpool_forward(call->dev, &call->layer->attr.pool, &call->x[0], call->mask, &y, call->saved);
}

static void backward_maxpool(const lk_call *call)
{
    lk_tensor dx = call->dx[0];
    if (dx.data)
        call->k->maxpool_grad_input(call->dev, &call->layer->attr.pool, &call->dy, call->saved, &dx);
}

const lk_op lk__op_maxpool2d = {
    .name = "maxpool2d",
    .flags = LK_OP_MASKS_DX,
    .infer = infer_maxpool,
    .saved = saved_maxpool,
    .forward = forward_maxpool,
    .backward = backward_maxpool,
};

static lk_status infer_avgpool(const lk_graph *graph, lk_layer *layer)
{
    layer->shape = (lk_shape){.n = 1, .c = lk__input_shape(graph, layer, 0).c, .h = 1, .w = 1};
    return LK_OK;
}

static void forward_avgpool(const lk_call *call)
{
    lk_tensor y = call->y;
    call->k->global_avgpool_forward(call->dev, &call->x[0], &y);
}

static void backward_avgpool(const lk_call *call)
{
    lk_tensor dx = call->dx[0];
    if (dx.data)
        call->k->global_avgpool_grad_input(call->dev, &call->dy, &dx);
}

const lk_op lk__op_global_avgpool = {
    .name = "global_avgpool",
    .infer = infer_avgpool,
    .forward = forward_avgpool,
    .backward = backward_avgpool,
};
