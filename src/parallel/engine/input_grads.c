/* input_grads.c - the gradients of the samples. */
#include "parallel/engine/engine.h"
#include "parallel/step/engine_impl.h"

static lk_status download(const lk_engine *engine, float *dx)
{
    size_t sample = lk__shape_sample(engine->graph->layers[0].shape);
    if (!engine->opts.input_grads)
        return lk__fail(LK_STATUS_USAGE, "the engine was created without `input_grads`: set it in its options");
    if (engine->grid.stage > 0)
        return lk__fail(LK_STATUS_USAGE, "stage %d has no samples; stage 0 has their gradients", engine->grid.stage);
    if (!engine->has_input_grads)
        return lk__fail(LK_STATUS_USAGE, "no gradients are there; lk_engine_gradients must have succeeded before");
    return engine->dev->type->download(engine->dev, engine->input_grads, engine->input_rows * sample * sizeof *dx, dx);
}

lk_status lk_engine_input_grads(const lk_engine *engine, float *dx)
{
    LK_TRY(LK_GIVEN(engine));
    LK_TRY(LK_GIVEN(dx));
    LK_TRY(lk__engine_enter_idle(engine));
    return lk__engine_leave(engine, download(engine, dx));
}
