/* matmul.c - the product of two nodes as matrices; exchange of two axes; reshaping. */
#include "nn/op.h"

static lk_status infer_matmul(const lk_graph *graph, lk_layer *layer)
{
    lk_shape a = lk__op_input_shape(graph, layer, 0);
    lk_shape b = lk__op_input_shape(graph, layer, 1);
    if (a.h != b.h || a.c != b.w)
        return lk__fail(
            LK_STATUS_USAGE,
            "layer %d multiplies %zu matrices of %zux%zu and %zu of %zux%zu: their numbers must be equal, and "
            "the first must have as many columns (channels) as the second has rows (width)",
            layer->index, a.h, a.w, a.c, b.h, b.w, b.c);
    layer->shape = (lk_shape){.n = 1, .h = a.h, .w = a.w, .c = b.c};
    return LK_OK;
}

static void forward_matmul(const lk_op_call *call)
{
    lk_tensor y = call->y;
    call->k->matmul(call->dev, &(lk_matmul_desc){0}, &call->x[0], &call->x[1], &y);
}

/* da = dy b^T, db = a^T dy. */
static void backward_matmul(const lk_op_call *call)
{
    lk_tensor da = call->dx[0], db = call->dx[1];
    if (da.data)
        call->k->matmul(call->dev, &(lk_matmul_desc){.transpose_b = true}, &call->dy, &call->x[1], &da);
    if (db.data)
        call->k->matmul(call->dev, &(lk_matmul_desc){.transpose_a = true}, &call->x[0], &call->dy, &db);
}

static double macs_matmul(const lk_layer *layer, lk_shape x)
{
    return (double)lk__shape_sample(layer->shape) * (double)x.c;
}

static const lk_op matmul_op = {
    .name = "matmul",
    .flags = LK_OP_READS_X,
    .infer = infer_matmul,
    .forward = forward_matmul,
    .backward = backward_matmul,
    .macs = macs_matmul,
};

static size_t *axis_of(lk_shape *shape, int axis)
{
    return axis == 1 ? &shape->h : axis == 2 ? &shape->w : &shape->c;
}

static lk_status infer_transpose(const lk_graph *graph, lk_layer *layer)
{
    int a = layer->attr.axes[0], b = layer->attr.axes[1];
    if (a < 1 || a > 3 || b < 1 || b > 3 || a == b)
        return lk__fail(LK_STATUS_USAGE,
                        "layer %d exchanges axes %d and %d; give two of 1 (height), 2 (width) and 3 (channels)",
                        layer->index, a, b);
    lk_shape shape = lk__op_input_shape(graph, layer, 0);
    size_t size = *axis_of(&shape, a);
    *axis_of(&shape, a) = *axis_of(&shape, b);
    *axis_of(&shape, b) = size;
    layer->shape = shape;
    return LK_OK;
}

static void forward_transpose(const lk_op_call *call)
{
    lk_tensor y = call->y;
    call->k->swap_axes(call->dev, call->layer->attr.axes[0], call->layer->attr.axes[1], &call->x[0], &y);
}

static void backward_transpose(const lk_op_call *call)
{
    lk_tensor dx = call->dx[0];
    if (dx.data)
        call->k->swap_axes(call->dev, call->layer->attr.axes[0], call->layer->attr.axes[1], &call->dy, &dx);
}

static const lk_op transpose_op = {
    .name = "transpose",
    .infer = infer_transpose,
    .forward = forward_transpose,
    .backward = backward_transpose,
};

static lk_status infer_reshape(const lk_graph *graph, lk_layer *layer)
{
    lk_shape x = lk__op_input_shape(graph, layer, 0), y = layer->shape;
    size_t product;
    if (__builtin_mul_overflow(y.h, y.w, &product) || __builtin_mul_overflow(product, y.c, &product) ||
        product != lk__shape_sample(x))
        return lk__fail(
            LK_STATUS_USAGE,
            "layer %d: %zu x %zu x %zu elements (height, width, channels) cannot be reshaped to %zu x %zu x "
            "%zu; the products must be equal",
            layer->index, x.h, x.w, x.c, y.h, y.w, y.c);
    return LK_OK;
}

static void forward_reshape(const lk_op_call *call)
{
    lk_tensor y = call->y;
    call->k->reshape(call->dev, &call->x[0], &y);
}

static void backward_reshape(const lk_op_call *call)
{
    lk_tensor dx = call->dx[0];
    if (dx.data)
        call->k->reshape(call->dev, &call->dy, &dx);
}

static const lk_op reshape_op = {
    .name = "reshape",
    .infer = infer_reshape,
    .forward = forward_reshape,
    .backward = backward_reshape,
};

lk_node lk_matmul(lk_graph *graph, lk_node a, lk_node b)
{
    return lk__graph_add_layer(graph, (lk_layer){.op = &matmul_op}, NULL, (lk_node[]){a, b}, 2);
}

lk_node lk_transpose(lk_graph *graph, lk_node x, int a, int b)
{
    lk_layer layer = {.op = &transpose_op};
    layer.attr.axes[0] = a;
    layer.attr.axes[1] = b;
    return lk__graph_add_layer(graph, layer, NULL, &x, 1);
}

lk_node lk_reshape(lk_graph *graph, lk_node x, size_t height, size_t width, size_t channels)
{
    lk_layer layer = {.op = &reshape_op};
    layer.shape = (lk_shape){.n = 1, .h = height, .w = width, .c = channels};
    return lk__graph_add_layer(graph, layer, NULL, &x, 1);
}
