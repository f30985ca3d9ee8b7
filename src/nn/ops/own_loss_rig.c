/* own_loss_rig.c - runs the layer of an own loss outside of a plan. */
#include "nn/ops/own_loss_rig.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static const char what[] = "the check of a loss";

lk_status lk__op_loss_arrays_init(size_t n, size_t floats, size_t target_floats, lk_op_loss_arrays *a)
{
    *a = (lk_op_loss_arrays){.floats = floats, .target_floats = target_floats};
    LK_TRY(LK_ALLOC(n * floats, what, &a->x));
    LK_TRY(LK_ALLOC(n * target_floats, what, &a->targets));
    LK_TRY(LK_ALLOC(n, what, &a->labels));
    LK_TRY(LK_ALLOC(n, what, &a->weights));
    LK_TRY(LK_ALLOC(n, what, &a->loss));
    LK_TRY(LK_ALLOC(n * floats, what, &a->dx));
    return LK_ALLOC(n, what, &a->rank);
}

void lk__op_loss_arrays_fini(lk_op_loss_arrays *a)
{
    lk__mem_free(a->x);
    lk__mem_free(a->targets);
    lk__mem_free(a->labels);
    lk__mem_free(a->weights);
    lk__mem_free(a->loss);
    lk__mem_free(a->dx);
    lk__mem_free(a->rank);
}

static lk_status alloc(lk_op_loss_rig *r, size_t bytes, void *out)
{
    return r->dev->type->alloc(r->dev, bytes, what, out);
}

static lk_status alloc_tensor(lk_op_loss_rig *r, lk_tensor *out)
{
    lk_shape shape = r->layer->shape;
    shape.n = r->n;
    *out = (lk_tensor){.dtype = r->dev->values, .shape = shape, .pitch = lk__device_pitch(r->dev, shape.c)};
    return alloc(r, r->n * lk__tensor_stride(out), &out->data);
}

lk_status lk__op_loss_rig_init(const lk_layer *layer, size_t n, const char *device, int threads, lk_op_loss_rig *r)
{
    const lk_op *op = layer->op;
    *r = (lk_op_loss_rig){.layer = layer, .n = n, .target_floats = op->targets ? op->targets(layer) : 0};
    LK_TRY(lk__device_open(device, &(lk_device_opts){.threads = threads}, &r->dev));
    LK_TRY(op->supports(r->dev, layer));
    LK_TRY(alloc_tensor(r, &r->x));
    LK_TRY(alloc_tensor(r, &r->dx));
    LK_TRY(alloc(r, n * r->target_floats * sizeof(float), &r->targets));
    LK_TRY(alloc(r, n * sizeof(float), &r->weights));
    LK_TRY(alloc(r, n * sizeof(int32_t), &r->labels));
    LK_TRY(alloc(r, n * sizeof(float), &r->loss));
    LK_TRY(alloc(r, n * sizeof(int32_t), &r->rank));
    LK_TRY(alloc(r, n * 2 * sizeof(float), &r->error));
    LK_TRY(alloc(r, lk__shape_count(r->x.shape) * sizeof(float), &r->staging));
    return alloc(r, op->scratch(r->dev, layer, r->x.shape, r->x.shape), &r->scratch);
}

void lk__op_loss_rig_fini(lk_op_loss_rig *r)
{
    if (!r->dev)
        return;
    void *const blocks[] = {r->x.data, r->dx.data, r->targets, r->weights, r->labels,
                            r->loss,   r->rank,    r->error,   r->staging, r->scratch};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        r->dev->type->free(r->dev, blocks[i]);
    lk__device_close(r->dev);
}

static lk_tensor staging_of(const lk_op_loss_rig *r)
{
    return (lk_tensor){.data = r->staging, .dtype = LK_DTYPE_F32, .shape = r->x.shape};
}

static lk_status upload(const lk_op_loss_rig *r, const void *values, size_t bytes, void *to)
{
    return bytes ? r->dev->type->upload(r->dev, values, bytes, to) : LK_OK;
}

static lk_status put(const lk_op_loss_rig *r, const float *values, lk_tensor *to)
{
    lk_tensor from = staging_of(r);
    LK_TRY(upload(r, values, lk__shape_count(r->x.shape) * sizeof *values, r->staging));
    r->dev->kernels->copy(r->dev, &from, to);
    return LK_OK;
}

/* Fills loss and dx with NaN: an element that is not written is found. */
static lk_status spoil(const lk_op_loss_rig *r)
{
    size_t floats = lk__size_max(lk__shape_count(r->x.shape), r->n);
    lk_tensor dx = r->dx;
    float *bad;
    LK_TRY(LK_ALLOC(floats, what, &bad));
    for (size_t i = 0; i < floats; i++)
        bad[i] = NAN;
    lk_status status = put(r, bad, &dx);
    if (status == LK_OK)
        status = upload(r, bad, r->n * sizeof *bad, r->loss);
    lk__mem_free(bad);
    return status;
}

static lk_status put_all(const lk_op_loss_rig *r, const lk_op_loss_arrays *in)
{
    lk_tensor x = r->x;
    LK_TRY(spoil(r));
    LK_TRY(put(r, in->x, &x));
    LK_TRY(upload(r, in->targets, r->n * r->target_floats * sizeof *in->targets, r->targets));
    LK_TRY(upload(r, in->weights, r->n * sizeof *in->weights, r->weights));
    return upload(r, in->labels, r->n * sizeof *in->labels, r->labels);
}

static void run_wave(const lk_op_loss_rig *r, lk_op_loss_way way, size_t first, size_t n)
{
    bool targets = r->target_floats > 0;
    lk_op_wave wave = {.n = n,
                       .train = true,
                       .grad_scale = way.scale,
                       .labels = r->labels + first,
                       .targets = targets ? r->targets + first * r->target_floats : NULL,
                       .weights = way.weighted ? r->weights + first : NULL,
                       .loss = r->loss + first,
                       .label_rank = r->rank + first,
                       .error = targets ? r->error + 2 * first : NULL};
    lk_op_call call = {.dev = r->dev, .k = r->dev->kernels, .layer = r->layer, .wave = &wave, .scratch = r->scratch};
    call.x[0] = lk__tensor_rows(&r->x, first, n);
    call.dx[0] = lk__tensor_rows(&r->dx, first, n);
    r->layer->op->forward(&call);
}

lk_status lk__op_loss_rig_run(const lk_op_loss_rig *r, lk_op_loss_way way, const lk_op_loss_arrays *in,
                              lk_op_loss_arrays *out)
{
    lk_tensor plain = staging_of(r);
    LK_TRY(put_all(r, in));
    for (size_t first = 0; first < r->n; first += way.part)
        run_wave(r, way, first, lk__size_min(way.part, r->n - first));
    r->dev->kernels->copy(r->dev, &r->dx, &plain);
    LK_TRY(r->dev->type->download(r->dev, r->staging, lk__shape_count(r->x.shape) * sizeof(float), out->dx));
    LK_TRY(r->dev->type->download(r->dev, r->loss, r->n * sizeof *out->loss, out->loss));
    LK_TRY(r->dev->type->download(r->dev, r->rank, r->n * sizeof *out->rank, out->rank));
    return r->dev->type->sync(r->dev);
}

/* The arrays of a call of the device's function; those from LOSS on are written. */
enum { X, LABELS, TARGETS, WEIGHTS, LOSS, DX, RANK, ARRAYS };

typedef struct watch {
    const lk_op_loss_rig *rig;
    const lk_loss_def *def;
    lk_op_guarded arrays[ARRAYS]; /* room 0: there is none */
    lk_loss_cuda_call call;
} watch;

static lk_status add_all(watch *w)
{
    static const char *const names[ARRAYS] = {"x", "labels", "targets", "weights", "loss", "dx", "label_rank"};
    size_t n = w->rig->n, x = lk__shape_count(w->rig->x.shape), targets = w->rig->target_floats;
    const size_t rooms[ARRAYS] = {x, targets ? 0 : n, n * targets, n, n, x, n};
    for (int i = 0; i < ARRAYS; i++)
        if (rooms[i])
            LK_TRY(lk__op_guarded_init(w->rig->dev, names[i], rooms[i], &w->arrays[i]));
    return LK_OK;
}

/* Labels and label ranks travel as the floats with their bits. */
static lk_status put_watched(watch *w, const lk_op_loss_arrays *in, size_t n)
{
    const void *const values[ARRAYS] = {in->x, in->labels, in->targets, in->weights};
    for (int i = 0; i < ARRAYS; i++) {
        lk_op_guarded *g = &w->arrays[i];
        size_t count = g->room / w->rig->n * n;
        if (!g->room)
            continue;
        LK_TRY(values[i] ? lk__op_guarded_put(w->rig->dev, g, values[i], count, 0)
                         : lk__op_guarded_fill(w->rig->dev, g, NAN, count));
    }
    return LK_OK;
}

static void *at(const watch *w, int index)
{
    return w->arrays[index].room ? lk__op_guarded_at(&w->arrays[index]) : NULL;
}

static void run_one(void *arg, size_t begin, size_t end, void *stream)
{
    watch *w = arg;
    (void)begin, (void)end;
    w->call.stream = stream;
    w->def->cuda(w->def->arg, &w->call);
}

static lk_status check(watch *w, const char *loss, const lk_op_loss_arrays *in, size_t n)
{
    lk_device *dev = w->rig->dev;
    char who[200];
    LK_TRY(put_watched(w, in, n));
    w->call = (lk_loss_cuda_call){.count = n,
                                  .floats = in->floats,
                                  .x = at(w, X),
                                  .labels = at(w, LABELS),
                                  .target_floats = w->rig->target_floats,
                                  .targets = at(w, TARGETS),
                                  .weights = at(w, WEIGHTS),
                                  .scale = 1,
                                  .loss = at(w, LOSS),
                                  .dx = at(w, DX),
                                  .label_rank = at(w, RANK)};
    dev->kernels->run_parts(dev, 1, run_one, w);
    snprintf(who, sizeof who, "loss '%.127s', check `guards`: `cuda` of %zu sample%s", loss, n, n == 1 ? "" : "s");
    for (int i = 0; i < ARRAYS; i++)
        if (w->arrays[i].room)
            LK_TRY(lk__op_guarded_check(dev, &w->arrays[i], who, i >= LOSS));
    return LK_OK;
}

lk_status lk__op_loss_rig_check_guards(const lk_op_loss_rig *r, const char *loss, const lk_op_loss_arrays *in)
{
    watch w = {.rig = r};
    if (r->dev->type->host_memory)
        return LK_OK;
    LK_TRY(lk__op_own_loss(loss, &w.def));
    lk_status status = add_all(&w);
    if (status == LK_OK)
        status = check(&w, loss, in, 1);
    if (status == LK_OK)
        status = check(&w, loss, in, r->n);
    for (int i = 0; i < ARRAYS; i++)
        lk__op_guarded_fini(r->dev, &w.arrays[i]);
    return status;
}
