/* own_op_guards.c - calls the functions of an own op with guards around every array.
 *
 * Here each call has arrays of its own. In a plan the results of other samples, shards and parameters are neighbours,
 * which a later call may overwrite. */
#include <math.h>
#include <stdio.h>

#include "nn/ops/own_rig.h"

/* The arrays of a call. */
enum {
    X,
    DY = X + LK_OP_MAX_INPUTS,
    PARAM,
    Y = PARAM + LK_OP_MAX_PARAMS,
    WORKSPACE,
    DX,
    GRAD = DX + LK_OP_MAX_INPUTS,
    ARRAYS = GRAD + LK_OP_MAX_PARAMS
};

typedef struct watch {
    const lk_op_rig *rig;
    const char *op;
    const lk_op_def *def;
    lk_op_guarded arrays[ARRAYS]; /* room 0: the layer has no such array */
    lk_op_args args;
    void (*run)(const lk_op_args *args);
} watch;

static lk_status add(watch *w, int index, const char *name, int number, size_t floats)
{
    char text[32];
    snprintf(text, sizeof text, number < 0 ? "%.24s" : "%.24s[%d]", name, number);
    return lk__op_guarded_init(w->rig->dev, text, floats, &w->arrays[index]);
}

static lk_status add_all(watch *w)
{
    const lk_layer *layer = w->rig->layer;
    size_t n = w->rig->n, y = lk__shape_sample(layer->shape);
    LK_TRY(add(w, Y, "y", -1, n * y));
    LK_TRY(add(w, DY, "dy", -1, n * y));
    for (int i = 0; i < layer->input_count; i++) {
        LK_TRY(add(w, X + i, "x", i, n * lk__shape_sample(layer->own.x[i])));
        LK_TRY(add(w, DX + i, "dx", i, n * lk__shape_sample(layer->own.x[i])));
    }
    for (int i = 0; i < layer->param_count; i++) {
        LK_TRY(add(w, PARAM + i, "param", i, lk__op_slot_count(&layer->params[i])));
        LK_TRY(add(w, GRAD + i, "grad", i, lk__op_slot_count(&layer->params[i])));
    }
    return layer->own.workspace ? add(w, WORKSPACE, "workspace", -1, n * layer->own.workspace) : LK_OK;
}

/* The floats of an array that n of all samples have; a parameter has no samples. */
static size_t part_of(const watch *w, int index, size_t n)
{
    bool is_param = (index >= PARAM && index < PARAM + LK_OP_MAX_PARAMS) || index >= GRAD;
    size_t room = w->arrays[index].room;
    return is_param ? room : room / w->rig->n * n;
}

static lk_status put(watch *w, int index, const float *values, size_t n)
{
    lk_op_guarded *g = &w->arrays[index];
    return g->room ? lk__op_guarded_put(w->rig->dev, g, values, part_of(w, index, n), 0) : LK_OK;
}

static lk_status fill(watch *w, int index, float value, size_t n)
{
    lk_op_guarded *g = &w->arrays[index];
    return g->room ? lk__op_guarded_fill(w->rig->dev, g, value, part_of(w, index, n)) : LK_OK;
}

static float *at(const watch *w, int index)
{
    return w->arrays[index].room ? lk__op_guarded_at(&w->arrays[index]) : NULL;
}

static lk_op_args args_of(const watch *w, size_t n)
{
    const lk_layer *layer = w->rig->layer;
    lk_op_args args = {.n = n,
                       .y_size = lk__op_size(layer->shape),
                       .y = at(w, Y),
                       .workspace = at(w, WORKSPACE),
                       .attr = layer->own.attr_bytes ? layer->own.attr : NULL,
                       .attr_bytes = layer->own.attr_bytes,
                       .arg = w->def->arg,
                       .train = true};
    for (int i = 0; i < layer->input_count; i++) {
        args.x_size[i] = lk__op_size(layer->own.x[i]);
        args.x[i] = at(w, X + i);
    }
    for (int i = 0; i < layer->param_count; i++)
        args.param[i] = at(w, PARAM + i);
    return args;
}

static void run_one(void *arg, size_t begin, size_t end, void *stream)
{
    watch *w = arg;
    (void)begin, (void)end;
    w->args.stream = stream;
    w->run(&w->args);
}

/* Runs the function; it may write the arrays [first,last) and no others. */
static lk_status run(watch *w, const char *name, int first, int last)
{
    char who[160];
    lk_device *dev = w->rig->dev;
    dev->kernels->run_parts(dev, 1, run_one, w);
    snprintf(who, sizeof who, "op '%s', check `guards`: %s of %zu sample%s", w->op, name, w->args.n,
             w->args.n == 1 ? "" : "s");
    for (int i = 0; i < ARRAYS; i++)
        if (w->arrays[i].room)
            LK_TRY(lk__op_guarded_check(dev, &w->arrays[i], who, i >= first && i < last));
    return LK_OK;
}

static lk_status put_inputs(watch *w, const lk_op_arrays *in, size_t n)
{
    const lk_layer *layer = w->rig->layer;
    LK_TRY(put(w, DY, in->dy, n));
    LK_TRY(fill(w, Y, NAN, n));
    LK_TRY(fill(w, WORKSPACE, NAN, n));
    for (int i = 0; i < layer->input_count; i++) {
        LK_TRY(put(w, X + i, in->x[i], n));
        LK_TRY(fill(w, DX + i, NAN, n));
    }
    for (int i = 0; i < layer->param_count; i++) {
        LK_TRY(put(w, PARAM + i, in->param[i], n));
        LK_TRY(fill(w, GRAD + i, NAN, n));
    }
    return LK_OK;
}

/* backward sees what forward has written. */
static lk_status keep(watch *w, int index, size_t n)
{
    return put(w, index, lk__op_guarded_seen(&w->arrays[index]), n);
}

static lk_status check(watch *w, const lk_op_arrays *in, size_t n)
{
    const lk_layer *layer = w->rig->layer;
    bool host = w->rig->dev->type->host_memory;
    LK_TRY(put_inputs(w, in, n));
    w->args = args_of(w, n);
    w->run = host ? w->def->forward : w->def->cuda_forward;
    LK_TRY(run(w, "forward", Y, WORKSPACE + 1));
    LK_TRY(keep(w, Y, n));
    LK_TRY(keep(w, WORKSPACE, n));
    w->run = host ? w->def->backward : w->def->cuda_backward;
    w->args.dy = at(w, DY);
    for (int i = 0; i < layer->input_count; i++)
        w->args.dx[i] = at(w, DX + i);
    LK_TRY(run(w, "backward to inputs", DX, DX + LK_OP_MAX_INPUTS));
    if (layer->param_count == 0)
        return LK_OK;
    for (int i = 0; i < layer->input_count; i++) {
        w->args.dx[i] = NULL;
        LK_TRY(fill(w, DX + i, NAN, n));
    }
    for (int i = 0; i < layer->param_count; i++) {
        w->args.grad[i] = at(w, GRAD + i);
        LK_TRY(fill(w, GRAD + i, 0, n));
    }
    return run(w, "backward to parameters", GRAD, GRAD + LK_OP_MAX_PARAMS);
}

lk_status lk__op_rig_check_guards(const lk_op_rig *rig, const char *op, const lk_op_arrays *in)
{
    watch w = {.rig = rig, .op = op};
    LK_TRY(lk__op_own_def(op, &w.def));
    lk_status status = add_all(&w);
    if (status == LK_OK)
        status = check(&w, in, 1);
    if (status == LK_OK)
        status = check(&w, in, rig->n);
    for (int i = 0; i < ARRAYS; i++)
        lk__op_guarded_fini(rig->dev, &w.arrays[i]);
    return status;
}
