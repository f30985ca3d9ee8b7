/* batchnorm2d.c - batch normalisation, over the global batch or per shard.
 *
 * saved:   stats (shards, 2, c), sums (shards, 2, c), mean (shards, c),
 *          scale (shards, c)
 * carried: moments (slots, 2, c), sums (slots, 2, c): partial sums over shards
 *
 * Gradients of weight and bias are the folded sums; they are complete with the
 * last wave. */
#include "nn/op.h"

static const float epsilon = 1e-5f;
static const float momentum = 0.1f;

static lk_status infer(const lk_graph *graph, lk_layer *layer)
{
    lk_shape x = lk__input_shape(graph, layer, 0);
    layer->shape = x;
    layer->params[0] = (lk_slot_def){"weight", 1, {x.c}, LK_FILL_ONE, 0};
    layer->params[1] = (lk_slot_def){"bias", 1, {x.c}, LK_FILL_ZERO, 0};
    layer->param_count = 2;
    layer->buffers[0] = (lk_slot_def){"running_mean", 1, {x.c}, LK_FILL_ZERO, 0};
    layer->buffers[1] = (lk_slot_def){"running_var", 1, {x.c}, LK_FILL_ONE, 0};
    layer->buffer_count = 2;
    layer->counts_batches = true;
    return LK_OK;
}

static size_t saved(const lk_layer *layer, size_t n, int shards)
{
    (void)n;
    return 6 * layer->shape.c * (size_t)shards;
}

static size_t carried(const lk_layer *layer, int slots)
{
    return 4 * layer->shape.c * (size_t)slots;
}

typedef struct view {
    size_t c, pixels;
    float *stats, *sums; /* (shards, 2, c) */
    lk_moments moments;
    lk_partials moments_partial; /* entries of (2, c) */
    lk_partials sums_partial;
    size_t rows[LK_MAX_SHARDS]; /* samples of each group */
} view;

static void make_view(const lk_call *call, view *v)
{
    const lk_shards *shards = &call->wave->shards;
    size_t c = call->layer->shape.c;
    size_t room = c * (size_t)call->shards;
    bool per_shard = call->wave->train && call->wave->bn == LK_BN_SHARD;
    v->c = c;
    v->pixels = call->layer->shape.h * call->layer->shape.w;
    v->stats = call->saved;
    v->sums = v->stats + 2 * room;
    v->moments.groups = per_shard ? shards->count : 1;
    v->moments.mean = v->sums + 2 * room;
    v->moments.scale = v->moments.mean + room;
    v->moments_partial = (lk_partials){call->carried, 4 * c};
    v->sums_partial = (lk_partials){call->carried + 2 * c, 4 * c};
    v->rows[0] = call->wave->step_rows;
    for (int i = 0; per_shard && i < shards->count; i++)
        v->rows[i] = shards->begin[i + 1] - shards->begin[i];
}

static void forward_sums(const lk_call *call)
{
    view v;
    make_view(call, &v);
    const lk_shards *shards = &call->wave->shards;
    call->k->batchnorm_stats(call->dev, &call->x[0], shards, v.stats);
    call->k->batchnorm_fold(call->dev, v.c, v.pixels, shards, v.stats, v.moments_partial);
}

static void forward(const lk_call *call)
{
    view v;
    make_view(call, &v);
    if (!call->wave->train)
        call->k->batchnorm_running_moments(call->dev, v.c, call->buffer[0], call->buffer[1], epsilon, &v.moments);
    else
        call->k->batchnorm_moments(call->dev, v.c, v.pixels,
                                   call->wave->bn == LK_BN_SHARD ? v.stats : v.moments_partial.slot0, v.rows, epsilon,
                                   &v.moments);
    lk_tensor y = call->y;
    call->k->batchnorm_forward(call->dev, &call->x[0], &call->wave->shards, &v.moments, call->param[0], call->param[1],
                               call->relu, &y);
}

static void backward_sums(const lk_call *call)
{
    view v;
    make_view(call, &v);
    const lk_shards *shards = &call->wave->shards;
    call->k->batchnorm_sums(call->dev, &call->x[0], &call->dy, shards, &v.moments, v.sums);
    call->k->rows_fold(call->dev, 2 * v.c, v.sums, 2 * v.c, shards, v.sums_partial);
}

/* From a (2, c) row of sums: of dy, and of dy * xhat. */
static void write_grads(const lk_call *call, float *sums, size_t c)
{
    lk_shape row = {.n = 1, .c = c, .h = 1, .w = 1};
    lk_tensor sum_dy = {sums, LK_DTYPE_F32, row}, sum_dy_xhat = {sums + c, LK_DTYPE_F32, row};
    lk_tensor dgamma = {call->grad[0].slot0, LK_DTYPE_F32, row}, dbeta = {call->grad[1].slot0, LK_DTYPE_F32, row};
    call->k->copy(call->dev, &sum_dy_xhat, &dgamma);
    call->k->copy(call->dev, &sum_dy, &dbeta);
}

static void backward(const lk_call *call)
{
    view v;
    make_view(call, &v);
    const lk_wave *wave = call->wave;
    if (wave->search >= 0)
        write_grads(call, v.sums + 2 * v.c * (size_t)wave->search, v.c);
    else if (wave->last)
        write_grads(call, v.sums_partial.slot0, v.c);
    if (!call->dx[0].data)
        return;
    lk_tensor dx = call->dx[0];
    call->k->batchnorm_grad_input(call->dev, &call->x[0], &call->dy, &call->wave->shards, &v.moments, call->param[0],
                                  call->wave->bn == LK_BN_SHARD ? v.sums : v.sums_partial.slot0, v.rows, &dx);
}

static void finish(const lk_call *call)
{
    view v;
    make_view(call, &v);
    call->k->batchnorm_running_update(call->dev, v.c, v.moments_partial.slot0, call->wave->step_rows * v.pixels,
                                      momentum, call->buffer[0], call->buffer[1]);
}

const lk_op lk__op_batchnorm2d = {
    .name = "batchnorm2d",
    .flags = LK_OP_READS_X | LK_OP_FUSES_RELU,
    .infer = infer,
    .saved = saved,
    .carried = carried,
    .forward_sums = forward_sums,
    .forward = forward,
    .backward_sums = backward_sums,
    .backward = backward,
    .finish = finish,
};
