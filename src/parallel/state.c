/* state.c - an engine's parameters, buffers and gradients in and out. */
#include "parallel/engine_impl.h"
#include "parallel/replicas.h"

/* Each key's bytes are zero at all stages but one, so adding them up as integers
 * brings every bit to every stage. */
static lk_status gather_stages(const lk_engine *engine, lk_state *state)
{
    for (size_t i = 0; engine->grid.pipeline && i < lk_state_count(state); i++) {
        const lk_entry *entry = lk_state_at(state, i);
        LK_TRY(lk_allreduce(engine->grid.pipeline, (lk_data){entry->data, entry->bytes, LK_DTYPE_U8}, LK_REDUCTION_SUM,
                            NULL));
    }
    return LK_OK;
}

typedef lk_status (*export_fn)(const lk_params *params, lk_state **out);

static lk_status export_whole(const lk_engine *engine, export_fn export, lk_state **out)
{
    lk_state *state;
    LK_TRY(export(engine->params, &state));
    lk_status status = gather_stages(engine, state);
    if (status == LK_OK)
        *out = state;
    else
        lk_state_destroy(state);
    return status;
}

lk_status lk_engine_state(const lk_engine *engine, lk_state **out)
{
    return lk__engine_tell(engine, export_whole(engine, lk__params_export, out));
}

lk_status lk_engine_grads(const lk_engine *engine, lk_state **out)
{
    return lk__engine_tell(engine, export_whole(engine, lk__params_export_grads, out));
}

static lk_status set_state(lk_engine *engine, const lk_state *state)
{
    LK_TRY(lk__params_import(engine->params, state));
    return engine->grid.sums ? lk__replicas_start(engine->grid.sums, engine->params) : LK_OK;
}

lk_status lk_engine_set_state(lk_engine *engine, const lk_state *state)
{
    return lk__engine_tell(engine, set_state(engine, state));
}
