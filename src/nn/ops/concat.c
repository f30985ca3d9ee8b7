/* concat.c - the channels of one tensor, then those of another. */
#include "nn/op.h"

static lk_status infer(const lk_graph *graph, lk_layer *layer)
{
    lk_shape a = lk__op_input_shape(graph, layer, 0);
    lk_shape b = lk__op_input_shape(graph, layer, 1);
    if (a.h != b.h || a.w != b.w)
        return lk__fail(LK_STATUS_USAGE,
                        "layer %d concatenates %zux%zux%zu and %zux%zux%zu; heights and widths must be equal",
                        layer->index, a.c, a.h, a.w, b.c, b.h, b.w);
    layer->shape = a;
    layer->shape.c = a.c + b.c;
    return LK_OK;
}

static void forward(const lk_op_call *call)
{
    lk_tensor y = call->y;
    call->k->concat_forward(call->dev, &call->x[0], &call->x[1], &y);
}

static void backward(const lk_op_call *call)
{
    for (int i = 0; i < 2; i++) {
        lk_tensor dx = call->dx[i];
        if (dx.data)
            call->k->concat_grad_input(call->dev, &call->dy, i ? call->x[0].shape.c : 0, &dx);
    }
}

static const lk_op concat_op = {
    .name = "concat",
    .infer = infer,
    .forward = forward,
    .backward = backward,
};

lk_node lk_concat(lk_graph *graph, lk_node a, lk_node b)
{
    return lk__graph_add_layer(graph, (lk_layer){.op = &concat_op}, NULL, (lk_node[]){a, b}, 2);
}
