/* own_rig.c - runs one layer of an own op outside of a plan. */
#include "nn/ops/own_rig.h"

#include <string.h>

#include "base/mem.h"

static const char what[] = "the check of an op";

static size_t x_floats(const lk_layer *layer, int i)
{
    return lk__shape_sample(layer->own.x[i]);
}

static size_t y_floats(const lk_layer *layer)
{
    return lk__shape_sample(layer->shape);
}

static size_t param_floats(const lk_layer *layer, int i)
{
    return lk__op_slot_count(&layer->params[i]);
}

lk_status lk__op_arrays_init(const lk_layer *layer, size_t n, lk_op_arrays *a)
{
    *a = (lk_op_arrays){0};
    for (int i = 0; i < layer->input_count; i++) {
        LK_TRY(LK_ALLOC(n * x_floats(layer, i), what, &a->x[i]));
        LK_TRY(LK_ALLOC(n * x_floats(layer, i), what, &a->dx[i]));
    }
    LK_TRY(LK_ALLOC(n * y_floats(layer), what, &a->dy));
    LK_TRY(LK_ALLOC(n * y_floats(layer), what, &a->y));
    for (int i = 0; i < layer->param_count; i++) {
        LK_TRY(LK_ALLOC(param_floats(layer, i), what, &a->param[i]));
        LK_TRY(LK_ALLOC(param_floats(layer, i), what, &a->grad[i]));
    }
    return LK_OK;
}

void lk__op_arrays_fini(lk_op_arrays *a)
{
    for (int i = 0; i < LK_OP_MAX_INPUTS; i++) {
        lk__mem_free(a->x[i]);
        lk__mem_free(a->dx[i]);
    }
    lk__mem_free(a->dy);
    lk__mem_free(a->y);
    for (int i = 0; i < LK_OP_MAX_PARAMS; i++) {
        lk__mem_free(a->param[i]);
        lk__mem_free(a->grad[i]);
    }
}

static lk_status alloc_tensor(lk_op_rig *r, lk_shape shape, size_t n, lk_tensor *out)
{
    *out = (lk_tensor){.dtype = r->dev->values, .shape = shape, .pitch = lk__device_pitch(r->dev, shape.c)};
    out->shape.n = n;
    return r->dev->type->alloc(r->dev, n * lk__tensor_stride(out), what, &out->data);
}

static lk_status alloc_floats(lk_op_rig *r, size_t floats, float **out)
{
    return r->dev->type->alloc(r->dev, floats * sizeof **out, what, (void **)out);
}

static lk_status alloc_tensors(lk_op_rig *r)
{
    size_t largest = y_floats(r->layer);
    LK_TRY(alloc_tensor(r, r->layer->shape, r->n, &r->y));
    LK_TRY(alloc_tensor(r, r->layer->shape, r->n, &r->dy));
    for (int i = 0; i < r->layer->input_count; i++) {
        largest = lk__size_max(largest, x_floats(r->layer, i));
        LK_TRY(alloc_tensor(r, r->layer->own.x[i], r->n, &r->x[i]));
        LK_TRY(alloc_tensor(r, r->layer->own.x[i], r->n, &r->dx[i]));
    }
    for (int i = 0; i < r->layer->param_count; i++) {
        LK_TRY(alloc_floats(r, param_floats(r->layer, i), &r->param[i]));
        r->grad[i].stride = param_floats(r->layer, i);
        LK_TRY(alloc_floats(r, LK_TREE_MAX_DEPTH * param_floats(r->layer, i), &r->grad[i].slot0));
    }
    return alloc_floats(r, r->n * largest, &r->staging);
}

lk_status lk__op_rig_init(const lk_layer *layer, size_t n, const char *device, int threads, lk_op_rig *r)
{
    const lk_op *op = layer->op;
    *r = (lk_op_rig){.layer = layer, .n = n};
    lk_shape x = r->layer->own.x[0], y = r->layer->shape;
    x.n = y.n = r->n;
    LK_TRY(lk__device_open(device, &(lk_device_opts){.threads = threads}, &r->dev));
    LK_TRY(op->supports(r->dev, r->layer));
    LK_TRY(alloc_tensors(r));
    r->saved_bytes = lk__size_round_up(op->saved(r->dev, r->layer, r->n, (int)r->n) * sizeof(float), LK_ALIGN);
    LK_TRY(r->dev->type->alloc(r->dev, r->n * r->saved_bytes, what, (void **)&r->saved));
    return r->dev->type->alloc(r->dev, op->scratch(r->dev, r->layer, x, y), what, &r->scratch);
}

void lk__op_rig_fini(lk_op_rig *r)
{
    if (!r->dev)
        return;
    void (*release)(lk_device *, void *) = r->dev->type->free;
    release(r->dev, r->y.data);
    release(r->dev, r->dy.data);
    for (int i = 0; i < LK_OP_MAX_INPUTS; i++) {
        release(r->dev, r->x[i].data);
        release(r->dev, r->dx[i].data);
    }
    for (int i = 0; i < LK_OP_MAX_PARAMS; i++) {
        release(r->dev, r->param[i]);
        release(r->dev, r->grad[i].slot0);
    }
    release(r->dev, r->staging);
    release(r->dev, r->saved);
    release(r->dev, r->scratch);
    lk__device_close(r->dev);
}

static lk_tensor staging_of(const lk_op_rig *r, const lk_tensor *tensor)
{
    return (lk_tensor){.data = r->staging, .dtype = LK_DTYPE_F32, .shape = tensor->shape};
}

static lk_status put(const lk_op_rig *r, const float *values, lk_tensor tensor)
{
    lk_tensor from = staging_of(r, &tensor);
    LK_TRY(r->dev->type->upload(r->dev, values, lk__shape_count(tensor.shape) * sizeof *values, r->staging));
    r->dev->kernels->copy(r->dev, &from, &tensor);
    return LK_OK;
}

static lk_status take(const lk_op_rig *r, const lk_tensor *tensor, float *values)
{
    lk_tensor to = staging_of(r, tensor);
    r->dev->kernels->copy(r->dev, tensor, &to);
    return r->dev->type->download(r->dev, r->staging, lk__shape_count(tensor->shape) * sizeof *values, values);
}

/* Fills the results and the workspace with NaN: an element that is not written, or is read too early, is found. */
static lk_status spoil(const lk_op_rig *r)
{
    size_t bytes = lk__size_max(r->n * r->saved_bytes, lk__shape_count(r->y.shape) * sizeof(float));
    char *bad;
    for (int i = 0; i < r->layer->input_count; i++)
        bytes = lk__size_max(bytes, lk__shape_count(r->dx[i].shape) * sizeof(float));
    LK_TRY(LK_ALLOC(bytes, what, &bad));
    memset(bad, 0xff, bytes);
    lk_status status = r->dev->type->upload(r->dev, bad, r->n * r->saved_bytes, r->saved);
    if (status == LK_OK)
        status = put(r, (float *)bad, r->y);
    for (int i = 0; i < r->layer->input_count && status == LK_OK; i++)
        status = put(r, (float *)bad, r->dx[i]);
    lk__mem_free(bad);
    return status;
}

static lk_status put_all(const lk_op_rig *r, const lk_op_arrays *a)
{
    LK_TRY(spoil(r));
    for (int i = 0; i < r->layer->input_count; i++)
        LK_TRY(put(r, a->x[i], r->x[i]));
    LK_TRY(put(r, a->dy, r->dy));
    for (int i = 0; i < r->layer->param_count; i++)
        LK_TRY(r->dev->type->upload(r->dev, a->param[i], param_floats(r->layer, i) * sizeof(float), r->param[i]));
    return LK_OK;
}

/* The call of the wave with the samples [first, first + n). */
static lk_op_call call_of(const lk_op_rig *r, const lk_op_wave *wave, size_t first, unsigned no_dx)
{
    lk_op_call call = {.dev = r->dev, .k = r->dev->kernels, .layer = r->layer, .wave = wave, .shards = (int)r->n};
    call.saved = r->saved + (size_t)wave->lane * r->saved_bytes;
    call.scratch = r->scratch;
    call.y = lk__tensor_rows(&r->y, first, wave->n);
    call.dy = lk__tensor_rows(&r->dy, first, wave->n);
    for (int i = 0; i < r->layer->input_count; i++) {
        call.x[i] = lk__tensor_rows(&r->x[i], first, wave->n);
        if (!(no_dx >> i & 1))
            call.dx[i] = lk__tensor_rows(&r->dx[i], first, wave->n);
    }
    for (int i = 0; i < r->layer->param_count; i++) {
        call.param[i] = r->param[i];
        call.value[i] = r->param[i];
        call.grad[i] = r->grad[i];
    }
    return call;
}

/* One pass over one wave, number `index`, of the shards [a,b). */
static void run_wave(const lk_op_rig *r, lk_op_way w, int index, bool back)
{
    size_t begin[LK_OP_TRIAL_SAMPLES + 1];
    int merges[LK_OP_TRIAL_SAMPLES], size = w.wave ? w.wave : w.shards, a = index * size;
    int b = a + size < w.shards ? a + size : w.shards;
    size_t first = lk__shard_begin(r->n, w.shards, a);
    for (int s = a; s < b; s++) {
        begin[s - a] = lk__shard_begin(r->n, w.shards, s) - first;
        merges[s - a] = lk__tree_merges(w.shards, s);
    }
    begin[b - a] = lk__shard_begin(r->n, w.shards, b) - first;
    lk_shards shards = {.count = b - a,
                        .begin = begin,
                        .most = lk__shard_largest(r->n, w.shards),
                        .all = w.shards,
                        .merges = merges,
                        .depth = lk__tree_depth(w.shards, a - 1)};
    lk_op_wave wave = {
        .shards = shards, .leaves = shards, .search = -1, .lane = index, .n = begin[b - a], .train = true};
    lk_op_call call = call_of(r, &wave, first, w.no_dx);
    (back ? r->layer->op->backward : r->layer->op->forward)(&call);
}

lk_status lk__op_rig_run(const lk_op_rig *r, lk_op_way w, const lk_op_arrays *in, lk_op_arrays *out)
{
    int waves = w.wave ? (w.shards + w.wave - 1) / w.wave : 1;
    LK_TRY(put_all(r, in));
    for (int i = 0; i < waves; i++)
        run_wave(r, w, i, false);
    for (int i = 0; i < waves; i++)
        run_wave(r, w, i, true);
    LK_TRY(take(r, &r->y, out->y));
    for (int i = 0; i < r->layer->input_count; i++)
        if (!(w.no_dx >> i & 1))
            LK_TRY(take(r, &r->dx[i], out->dx[i]));
    for (int i = 0; i < r->layer->param_count; i++)
        LK_TRY(
            r->dev->type->download(r->dev, r->grad[i].slot0, param_floats(r->layer, i) * sizeof(float), out->grad[i]));
    return r->dev->type->sync(r->dev);
}

lk_status lk__op_rig_forward(const lk_op_rig *r, const lk_op_arrays *in, float *y)
{
    LK_TRY(put_all(r, in));
    run_wave(r, (lk_op_way){.shards = 1}, 0, false);
    return take(r, &r->y, y);
}
