/* pool2d.c - max pooling, average pooling, and global pooling by both. */
#include "nn/op.h"

/* `largest` is the largest allowed side of a window. */
static lk_status check_window(const lk_layer *layer, size_t largest)
{
    const lk_pool2d_desc *pool = &layer->attr.pool;
    if (!pool->kernel || pool->kernel > largest)
        return lk__fail(LK_STATUS_USAGE, "layer %d: a pooling window has 1 to %zu pixels a side, not %zu", layer->index,
                        largest, pool->kernel);
    if (pool->pad > pool->kernel / 2)
        return lk__fail(LK_STATUS_USAGE, "layer %d: padding %zu is more than half of pooling window %zu", layer->index,
                        pool->pad, pool->kernel);
    return LK_OK;
}

/* Number of windows along x pixels; 0 if not even one fits. In ceil mode the last window may extend beyond the
 * padding, but must begin in the input or its left padding: PyTorch's rule. */
static size_t count_windows(const lk_layer *layer, size_t x)
{
    const lk_pool2d_desc *pool = &layer->attr.pool;
    size_t padded = x + 2 * pool->pad;
    if (padded < pool->kernel)
        return layer->attr.ceil && pool->kernel - padded < pool->stride ? 1 : 0;
    size_t reach = padded - pool->kernel, count = reach / pool->stride + 1;
    bool more = layer->attr.ceil && reach % pool->stride > 0 && count * pool->stride < x + pool->pad;
    return more ? count + 1 : count;
}

static lk_status infer_windows(const lk_graph *graph, lk_layer *layer)
{
    lk_shape x = lk__op_input_shape(graph, layer, 0);
    layer->shape = x;
    layer->shape.h = count_windows(layer, x.h);
    layer->shape.w = count_windows(layer, x.w);
    if (!layer->shape.h || !layer->shape.w)
        return lk__fail(LK_STATUS_USAGE, "layer %d: pooling window %zu is larger than its input %zux%zu", layer->index,
                        layer->attr.pool.kernel, x.h, x.w);
    return LK_OK;
}

static lk_status infer_maxpool(const lk_graph *graph, lk_layer *layer)
{
    LK_TRY(check_window(layer, 15)); /* a tap's index fits into a byte */
    return infer_windows(graph, layer);
}

/* One byte of index for each output element, pads included. */
static size_t saved_maxpool(lk_device *dev, const lk_layer *layer, size_t n, int shards)
{
    (void)shards;
    size_t sample = layer->shape.h * layer->shape.w * lk__device_pitch(dev, layer->shape.c);
    return (n * sample + sizeof(float) - 1) / sizeof(float);
}

static void forward_maxpool(const lk_op_call *call)
{
    lk_tensor y = call->y;
    lk_dropout_desc desc;
    call->k->maxpool_forward(call->dev, &call->layer->attr.pool, lk__op_dropout_draws(call, call->dropout, &desc),
                             &call->x[0], call->mask, &y, call->saved);
}

static void backward_maxpool(const lk_op_call *call)
{
    lk_tensor dx = call->dx[0];
    lk_dropout_desc desc;
    if (dx.data)
        call->k->maxpool_grad_input(call->dev, &call->layer->attr.pool,
                                    lk__op_dropout_draws(call, call->dropout, &desc), &call->dy, call->saved, &dx);
}

static const lk_op maxpool2d_op = {
    .name = "maxpool2d",
    .flags = LK_OP_MASKS_DX | LK_OP_FUSES_DROPOUT,
    .infer = infer_maxpool,
    .saved = saved_maxpool,
    .forward = forward_maxpool,
    .backward = backward_maxpool,
};

static lk_status infer_avgpool(const lk_graph *graph, lk_layer *layer)
{
    LK_TRY(check_window(layer, 4096)); /* the window's size is exact as a float */
    return infer_windows(graph, layer);
}

static void forward_avgpool(const lk_op_call *call)
{
    lk_tensor y = call->y;
    call->k->avgpool_forward(call->dev, &call->layer->attr.pool, &call->x[0], &y);
}

static void backward_avgpool(const lk_op_call *call)
{
    lk_tensor dx = call->dx[0];
    if (dx.data)
        call->k->avgpool_grad_input(call->dev, &call->layer->attr.pool, &call->dy, &dx);
}

static const lk_op avgpool2d_op = {
    .name = "avgpool2d",
    .infer = infer_avgpool,
    .forward = forward_avgpool,
    .backward = backward_avgpool,
};

static lk_status infer_global(const lk_graph *graph, lk_layer *layer)
{
    layer->shape = (lk_shape){.n = 1, .c = lk__op_input_shape(graph, layer, 0).c, .h = 1, .w = 1};
    return LK_OK;
}

static void forward_global(const lk_op_call *call)
{
    lk_tensor y = call->y;
    call->k->global_avgpool_forward(call->dev, &call->x[0], &y);
}

static void backward_global(const lk_op_call *call)
{
    lk_tensor dx = call->dx[0];
    if (dx.data)
        call->k->global_avgpool_grad_input(call->dev, &call->dy, &dx);
}

static const lk_op global_avgpool_op = {
    .name = "global_avgpool",
    .infer = infer_global,
    .forward = forward_global,
    .backward = backward_global,
};

/* Kernels count pixels in floats. */
static lk_status infer_global_max(const lk_graph *graph, lk_layer *layer)
{
    lk_shape x = lk__op_input_shape(graph, layer, 0);
    if (x.h * x.w > 1 << 24)
        return lk__fail(LK_STATUS_USAGE, "layer %d: global max pooling over %zux%zu pixels; at most 2^24 are possible",
                        layer->index, x.h, x.w);
    return infer_global(graph, layer);
}

/* The pixel of each maximum. */
static size_t saved_global_max(lk_device *dev, const lk_layer *layer, size_t n, int shards)
{
    (void)shards;
    return n * lk__device_pitch(dev, layer->shape.c);
}

static void forward_global_max(const lk_op_call *call)
{
    lk_tensor y = call->y;
    call->k->global_maxpool_forward(call->dev, &call->x[0], &y, call->saved);
}

static void backward_global_max(const lk_op_call *call)
{
    lk_tensor dx = call->dx[0];
    if (dx.data)
        call->k->global_maxpool_grad_input(call->dev, &call->dy, call->saved, &dx);
}

static const lk_op global_maxpool_op = {
    .name = "global_maxpool",
    .infer = infer_global_max,
    .saved = saved_global_max,
    .forward = forward_global_max,
    .backward = backward_global_max,
};

lk_node lk_maxpool2d(lk_graph *graph, lk_node x, lk_maxpool2d_opts opts)
{
    lk_layer layer = {.op = &maxpool2d_op};
    layer.attr.pool = (lk_pool2d_desc){opts.kernel, opts.stride ? opts.stride : opts.kernel, opts.pad};
    lk__graph_check_clear(graph, LK_CLEAR(&opts, "lk_maxpool2d_opts"));
    return lk__graph_add_layer(graph, layer, NULL, &x, 1);
}

lk_node lk_avgpool2d(lk_graph *graph, lk_node x, lk_avgpool2d_opts opts)
{
    lk_layer layer = {.op = &avgpool2d_op};
    layer.attr.pool = (lk_pool2d_desc){opts.kernel, opts.stride ? opts.stride : opts.kernel, opts.pad};
    layer.attr.ceil = opts.ceil;
    lk__graph_check_clear(graph, LK_CLEAR(&opts, "lk_avgpool2d_opts"));
    return lk__graph_add_layer(graph, layer, NULL, &x, 1);
}

lk_node lk_global_avgpool(lk_graph *graph, lk_node x)
{
    return lk__graph_add_layer(graph, (lk_layer){.op = &global_avgpool_op}, NULL, &x, 1);
}

lk_node lk_global_maxpool(lk_graph *graph, lk_node x)
{
    return lk__graph_add_layer(graph, (lk_layer){.op = &global_maxpool_op}, NULL, &x, 1);
}
