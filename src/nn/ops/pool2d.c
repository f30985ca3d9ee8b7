/* pool2d.c - max pooling, average pooling, and global pooling by both. */
#include "nn/op.h"
#include "nn/windows.h"

static lk_status check_windows(const lk_layer *layer)
{
    const lk_window *h = &layer->attr.pool.h, *w = &layer->attr.pool.w;
    if (!h->kernel)
        return lk__fail(LK_STATUS_USAGE, "layer %d: a pooling window needs a kernel size", layer->index);
    if (!lk__op_window_fits(h) || !lk__op_window_fits(w))
        return lk__fail(LK_STATUS_USAGE,
                        "layer %d: pooling window %zux%zu (height x width), stride %zux%zu, dilation %zux%zu: stride, "
                        "dilation and the pixels that a dilated window spans can be at most 65536 along each axis",
                        layer->index, h->kernel, w->kernel, h->stride, w->stride, h->dilation, w->dilation);
    if (h->pad > h->kernel / 2 || w->pad > w->kernel / 2)
        return lk__fail(LK_STATUS_USAGE,
                        "layer %d: padding %zux%zu (height x width) is more than half of pooling window %zux%zu",
                        layer->index, h->pad, w->pad, h->kernel, w->kernel);
    return LK_OK;
}

/* Number of windows along x pixels; 0 if not even one fits. In ceil mode the last window may extend beyond the
 * padding, but must begin in the input or its left padding: PyTorch's rule. */
static size_t count_windows(const lk_window *window, bool ceil, size_t x)
{
    size_t padded = x + 2 * window->pad, extent = lk__window_extent(window);
    if (padded < extent)
        return ceil && extent - padded < window->stride ? 1 : 0;
    size_t count = lk__op_count_windows(window, x);
    bool more = ceil && (padded - extent) % window->stride > 0 && count * window->stride < x + window->pad;
    return more ? count + 1 : count;
}

static lk_status infer_windows(const lk_graph *graph, lk_layer *layer)
{
    lk_shape x = lk__op_input_shape(graph, layer, 0);
    const lk_window *h = &layer->attr.pool.h, *w = &layer->attr.pool.w;
    layer->shape = x;
    layer->shape.h = count_windows(h, layer->attr.ceil, x.h);
    layer->shape.w = count_windows(w, layer->attr.ceil, x.w);
    if (!layer->shape.h || !layer->shape.w)
        return lk__fail(LK_STATUS_USAGE,
                        "layer %d: pooling window %zux%zu (height x width), which spans %zux%zu pixels, is larger than "
                        "its input %zux%zu",
                        layer->index, h->kernel, w->kernel, lk__window_extent(h), lk__window_extent(w), x.h, x.w);
    return LK_OK;
}

/* Where the dilation is at most the input's side, every window has a pixel of the input. */
static lk_status infer_maxpool(const lk_graph *graph, lk_layer *layer)
{
    lk_shape x = lk__op_input_shape(graph, layer, 0);
    const lk_window *h = &layer->attr.pool.h, *w = &layer->attr.pool.w;
    LK_TRY(check_windows(layer));
    if (h->kernel * w->kernel > LK_POOL2D_NO_GRADIENT)
        return lk__fail(LK_STATUS_USAGE, "layer %d: a max pooling window has at most %d pixels, not %zux%zu",
                        layer->index, LK_POOL2D_NO_GRADIENT, h->kernel, w->kernel);
    if (h->dilation > x.h || w->dilation > x.w)
        return lk__fail(LK_STATUS_USAGE,
                        "layer %d: dilation %zux%zu (height x width) of max pooling is larger than its input %zux%zu",
                        layer->index, h->dilation, w->dilation, x.h, x.w);
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

const lk_op lk__op_maxpool2d = {
    .name = "maxpool2d",
    .flags = LK_OP_MASKS_DX | LK_OP_FUSES_DROPOUT | LK_OP_FUSES_DROPOUT_GRAD,
    .infer = infer_maxpool,
    .saved = saved_maxpool,
    .forward = forward_maxpool,
    .backward = backward_maxpool,
};

/* The window's size is exact as a float. */
enum { MOST_AVERAGED = 1 << 24 };

static lk_status infer_avgpool(const lk_graph *graph, lk_layer *layer)
{
    const lk_window *h = &layer->attr.pool.h, *w = &layer->attr.pool.w;
    LK_TRY(check_windows(layer));
    if (h->kernel * w->kernel > MOST_AVERAGED)
        return lk__fail(LK_STATUS_USAGE, "layer %d: an average pooling window has at most 2^24 pixels, not %zux%zu",
                        layer->index, h->kernel, w->kernel);
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
    lk_layer layer = {.op = &lk__op_maxpool2d};
    lk_op_windows windows = LK_OP_WINDOWS(opts, 0);
    lk__op_set_windows(&windows, &layer.attr.pool.h, &layer.attr.pool.w);
    layer.attr.ceil = opts.ceil;
    lk__graph_check_clear(graph, LK_CLEAR(&opts, "lk_maxpool2d_opts"));
    return lk__graph_add_layer(graph, layer, NULL, &x, 1);
}

lk_node lk_avgpool2d(lk_graph *graph, lk_node x, lk_avgpool2d_opts opts)
{
    lk_layer layer = {.op = &avgpool2d_op};
    lk_op_windows windows = {.kernel = opts.kernel,
                             .stride = opts.stride,
                             .pad = opts.pad,
                             .kernel_w = opts.kernel_w,
                             .stride_w = opts.stride_w,
                             .pad_w = opts.pad_w};
    lk__op_set_windows(&windows, &layer.attr.pool.h, &layer.attr.pool.w);
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
