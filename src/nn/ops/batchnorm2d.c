/* batchnorm2d.c - batch normalisation, over the global batch or over each shard.
 *
 * saved: stats (shards, 2, c), sums (shards, 2, c), mean (shards, c), scale (shards, c)
 *
 * Entries of sums have (2, c) floats: forward the mean and M2, backward the sums of dy and of dy * xhat. The
 * backward sums are the gradients of weight and bias; they are complete after the last wave. */
#include "nn/op.h"

static const float epsilon = 1e-5f;
static const float momentum = 0.1f;

static lk_status infer(const lk_graph *graph, lk_layer *layer)
{
    lk_shape x = lk__op_input_shape(graph, layer, 0);
    layer->shape = x;
    layer->params[0] = (lk_op_slot){.suffix = "weight", .ndim = 1, .dims = {x.c}, .fill = LK_OP_FILL_ONE};
    layer->params[1] = (lk_op_slot){.suffix = "bias", .ndim = 1, .dims = {x.c}, .fill = LK_OP_FILL_ZERO};
    layer->param_count = 2;
    layer->buffers[0] = (lk_op_slot){.suffix = "running_mean", .ndim = 1, .dims = {x.c}, .fill = LK_OP_FILL_ZERO};
    layer->buffers[1] = (lk_op_slot){.suffix = "running_var", .ndim = 1, .dims = {x.c}, .fill = LK_OP_FILL_ONE};
    layer->buffer_count = 2;
    layer->counts_batches = true;
    return LK_OK;
}

static size_t saved(lk_device *dev, const lk_layer *layer, size_t n, int shards)
{
    (void)dev;
    (void)n;
    return 6 * layer->shape.c * (size_t)shards;
}

static size_t sum_width(const lk_layer *layer)
{
    return 2 * layer->shape.c;
}

typedef struct view {
    size_t c, pixels;
    float *stats, *sums; /* (shards, 2, c) */
    lk_moments moments;
    size_t rows[LK_MAX_SHARDS]; /* samples of each group */
} view;

static bool per_shard(const lk_op_call *call)
{
    return call->wave->train && call->wave->bn == LK_BN_MODE_SHARD;
}

static void make_view(const lk_op_call *call, view *v)
{
    const lk_shards *shards = &call->wave->shards;
    size_t c = call->layer->shape.c;
    size_t room = c * (size_t)call->shards;
    v->c = c;
    v->pixels = call->layer->shape.h * call->layer->shape.w;
    v->stats = call->saved;
    v->sums = v->stats + 2 * room;
    v->moments.groups = per_shard(call) ? shards->count : 1;
    v->moments.mean = v->sums + 2 * room;
    v->moments.scale = v->moments.mean + room;
    v->rows[0] = call->wave->step_rows;
    for (int i = 0; per_shard(call) && i < shards->count; i++)
        v->rows[i] = shards->begin[i + 1] - shards->begin[i];
}

/* The normalisation of both passes; the backward passes apply the gradient of a ReLU only with call->relu_grad. */
static lk_batchnorm_desc desc_of(const lk_op_call *call, bool relu)
{
    return (lk_batchnorm_desc){.gamma = call->param[0],
                               .beta = call->param[1],
                               .relu = relu,
                               .six = relu && call->six,
                               .pool = call->pool ? &call->pool->attr.pool : NULL,
                               .index = call->pool_index};
}

/* Whether this rank's partial sums are the total. */
static bool is_alone(const lk_op_call *call, lk_op_sum which)
{
    return call->total[which].slot0 == call->partial[which].slot0;
}

/* Moments are computed here unless they need the partial sums of other ranks. */
static void add_stats(const lk_op_call *call, view *v)
{
    bool by_shard = per_shard(call);
    lk_batchnorm_stats out = {.stats = v->stats,
                              .partials = call->partial[LK_OP_SUM_FORWARD],
                              .moments = by_shard || is_alone(call, LK_OP_SUM_FORWARD) ? &v->moments : NULL,
                              .by_shard = by_shard,
                              .rows = v->rows,
                              .eps = epsilon};
    call->k->batchnorm_stats(call->dev, &call->x[0], &call->wave->shards, &out);
}

/* The last wave completes the gradients of weight and bias. A search takes those of one shard. */
static void add_grad_sums(const lk_op_call *call, view *v)
{
    bool complete = call->wave->last && call->wave->search < 0;
    lk_batchnorm_desc desc = desc_of(call, call->relu_grad);
    lk_batchnorm_sums out = {.sums = v->sums,
                             .partials = call->partial[LK_OP_SUM_BACKWARD],
                             .dgamma = complete ? call->grad[0] : (lk_partials){0},
                             .dbeta = complete ? call->grad[1] : (lk_partials){0}};
    lk_tensor dy = call->dy;
    if (call->rest.part.data)
        call->k->batchnorm_add_sums(call->dev, &desc, &call->rest, &call->x[0], &call->wave->shards, &v->moments, &dy,
                                    &out);
    else
        call->k->batchnorm_sums(call->dev, &desc, &call->x[0], &dy, &call->wave->shards, &v->moments, &out);
}

static void add_sums(const lk_op_call *call, lk_op_sum which)
{
    view v;
    make_view(call, &v);
    if (which == LK_OP_SUM_FORWARD)
        add_stats(call, &v);
    else
        add_grad_sums(call, &v);
}

static void fold_sums(const lk_op_call *call, lk_op_sum which, const float *entries)
{
    size_t c = call->layer->shape.c, pixels = call->layer->shape.h * call->layer->shape.w;
    const lk_shards *roots = &call->wave->roots;
    if (which == LK_OP_SUM_FORWARD)
        call->k->batchnorm_fold(call->dev, c, pixels, roots, entries, call->total[which]);
    else
        call->k->rows_fold(call->dev, 2 * c, entries, 2 * c, roots, call->total[which]);
}

static void forward(const lk_op_call *call)
{
    view v;
    make_view(call, &v);
    if (!call->wave->train)
        call->k->batchnorm_running_moments(call->dev, v.c, call->buffer[0], call->buffer[1], epsilon, &v.moments);
    else if (!per_shard(call) && !is_alone(call, LK_OP_SUM_FORWARD))
        call->k->batchnorm_moments(call->dev, v.c, v.pixels, call->total[LK_OP_SUM_FORWARD].slot0, v.rows, epsilon,
                                   &v.moments);
    lk_tensor y = call->y;
    lk_batchnorm_desc desc = desc_of(call, call->relu);
    desc.other = call->other.data ? &call->other : NULL;
    desc.signs = call->wave->train ? call->signs : NULL;
    call->k->batchnorm_forward(call->dev, &desc, &call->x[0], &call->wave->shards, &v.moments, &y);
}

/* The gradients of weight and bias for a search: the sums of one shard. */
static void copy_leaf(const lk_op_call *call, const view *v)
{
    size_t bytes = v->c * sizeof *v->sums;
    const float *leaf = v->sums + 2 * v->c * (size_t)call->wave->search;
    if (call->grad[0].slot0)
        call->k->copy_bytes(call->dev, bytes, leaf + v->c, call->grad[0].slot0);
    if (call->grad[1].slot0)
        call->k->copy_bytes(call->dev, bytes, leaf, call->grad[1].slot0);
}

static void backward(const lk_op_call *call)
{
    view v;
    make_view(call, &v);
    if (call->wave->search >= 0)
        copy_leaf(call, &v);
    if (!call->dx[0].data)
        return;
    lk_tensor dx = call->dx[0];
    lk_batchnorm_desc desc = desc_of(call, call->relu_grad);
    lk_batchnorm_grad grad = {
        .sums = per_shard(call) ? v.sums : call->total[LK_OP_SUM_BACKWARD].slot0, .rows = v.rows, .add = call->add};
    call->k->batchnorm_grad_input(call->dev, &desc, &grad, &call->x[0], &call->dy, &call->wave->shards, &v.moments,
                                  &dx);
}

static void running(const lk_op_call *call, lk_batchnorm_update *out)
{
    lk_shape shape = call->layer->shape;
    *out = (lk_batchnorm_update){.c = shape.c,
                                 .entry = call->total[LK_OP_SUM_FORWARD].slot0,
                                 .elements = call->wave->step_rows * shape.h * shape.w,
                                 .momentum = momentum,
                                 .mean = call->buffer[0],
                                 .variance = call->buffer[1]};
}

const lk_op lk__op_batchnorm2d = {
    .name = "batchnorm2d",
    .flags = LK_OP_READS_X | LK_OP_FUSES_RELU | LK_OP_FUSES_RELU6 | LK_OP_FUSES_RELU_GRAD | LK_OP_FUSES_ADD |
             LK_OP_ADDS_DX | LK_OP_ADDS_DY | LK_OP_SKIPS_GRADS | LK_OP_FUSES_POOL,
    .infer = infer,
    .saved = saved,
    .sum_width = sum_width,
    .add_sums = add_sums,
    .fold_sums = fold_sums,
    .forward = forward,
    .backward = backward,
    .running = running,
};

lk_node lk_batchnorm2d(lk_graph *graph, lk_node x, const char *name)
{
    return lk__graph_add_layer(graph, (lk_layer){.op = &lk__op_batchnorm2d}, name, &x, 1);
}
