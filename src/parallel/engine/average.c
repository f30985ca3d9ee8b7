/* average.c - the exponential moving average of the weights, on the device. */
#include <string.h>

#include "base/mem.h"
#include "parallel/engine/engine.h"
#include "parallel/layout/replicas.h"
#include "parallel/step/engine_impl.h"

/* The average in the form of the model's parameters. */
static lk_params as_params(const lk_engine *engine)
{
    lk_params view = *engine->params;
    view.params = engine->mean.params;
    view.values = engine->mean.params;
    view.buffers = engine->mean.buffers;
    view.batches = engine->mean.batches;
    return view;
}

static lk_status ensure(lk_device *dev, size_t bytes, void **at)
{
    return *at ? LK_OK : dev->type->alloc(dev, bytes, "averaged weights", at);
}

/* Allocates mean->params last: if it is set, everything else is there. */
static lk_status ensure_mean(lk_engine *engine)
{
    lk_engine_mean *mean = &engine->mean;
    lk_device *dev = engine->dev;
    const lk_params *params = engine->params;
    if (!mean->batches)
        LK_TRY(LK_ALLOC((size_t)engine->graph->count, "averaged weights", &mean->batches));
    LK_TRY(ensure(dev, sizeof *mean->rule, (void **)&mean->rule));
    LK_TRY(ensure(dev, params->buffer_count * sizeof *mean->buffers, (void **)&mean->buffers));
    return ensure(dev, params->count * sizeof *mean->params, (void **)&mean->params);
}

/* mean += (1 - decay) * (weights - mean): plain gradient descent on the mean, whose gradient is the weights, with a
 * weight decay of -1 and the rate decay - 1. */
static lk_status average(lk_engine *engine, double decay)
{
    lk_device *dev = engine->dev;
    const lk_params *params = engine->params;
    lk_sgd rule = {.lr = (float)(decay - 1), .weight_decay = -1};
    bool first = !engine->mean.params;
    LK_TRY(ensure_mean(engine));
    lk_engine_mean *mean = &engine->mean;
    LK_TRY(dev->type->upload(dev, &rule, sizeof rule, mean->rule));
    lk_update_arrays arrays = {.grad = params->params, .param = mean->params};
    if (first)
        dev->kernels->copy_bytes(dev, params->count * sizeof(float), params->params, mean->params);
    else
        dev->kernels->sgd_step(dev, mean->rule, NULL, params->count, &arrays, NULL);
    dev->kernels->copy_bytes(dev, params->buffer_count * sizeof(float), params->buffers, mean->buffers);
    memcpy(mean->batches, params->batches, (size_t)engine->graph->count * sizeof *mean->batches);
    return dev->type->sync(dev);
}

lk_status lk_engine_average(lk_engine *engine, double decay)
{
    LK_TRY(LK_GIVEN(engine));
    if (!(decay >= 0 && decay < 1))
        return lk__fail(LK_STATUS_USAGE, "`decay` %g is not in [0,1)", decay);
    LK_TRY(lk__engine_enter_idle(engine));
    return lk__engine_leave(engine, average(engine, decay));
}

static lk_status export_mean(const lk_engine *engine, lk_state **out)
{
    lk_params view = as_params(engine);
    return lk__engine_export(engine, &view, out);
}

lk_status lk_engine_averaged_state(const lk_engine *engine, lk_state **out)
{
    LK_TRY(LK_GIVEN(engine));
    LK_TRY(LK_GIVEN(out));
    LK_TRY(lk__engine_enter_idle(engine));
    if (!engine->mean.params)
        return lk__engine_leave(
            engine, lk__fail(LK_STATUS_USAGE, "there is no average; lk_engine_average must have succeeded before"));
    return lk__engine_leave(engine, lk__engine_abort_on_failure(engine, export_mean(engine, out)));
}

static lk_status set_mean(lk_engine *engine, const lk_state *state)
{
    LK_TRY(lk__engine_check_state(engine, state));
    LK_TRY(ensure_mean(engine));
    lk_params view = as_params(engine);
    LK_TRY(lk__params_import(&view, state));
    return engine->grid.sums ? lk__replicas_start(engine->grid.sums, &view) : LK_OK;
}

lk_status lk_engine_set_averaged_state(lk_engine *engine, const lk_state *state)
{
    LK_TRY(LK_GIVEN(engine));
    LK_TRY(LK_GIVEN(state));
    LK_TRY(lk__engine_enter_idle(engine));
    return lk__engine_leave(engine, lk__engine_abort_on_failure(engine, set_mean(engine, state)));
}
