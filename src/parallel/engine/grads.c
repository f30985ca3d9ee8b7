/* grads.c - replacing the gradients of a step before its update. */
#include <math.h>

#include "parallel/engine/engine.h"
#include "parallel/layout/replicas.h"
#include "parallel/step/engine_impl.h"

static const char owner[] = "the gradient";

static lk_status check_unknown(const lk_params *params, const lk_state *grads)
{
    for (size_t i = 0; i < lk_state_count(grads); i++) {
        const char *key = lk_state_at(grads, i)->name;
        if (!lk__params_array_has(params, NULL, key))
            return lk__fail(LK_STATUS_MISMATCH, "the state has a key '%s' that %s does not know", key, owner);
    }
    return LK_OK;
}

static lk_status check_finite(const lk_state *grads)
{
    for (size_t i = 0; i < lk_state_count(grads); i++) {
        const lk_state_entry *entry = lk_state_at(grads, i);
        const float *values = entry->data;
        for (size_t k = 0; k < entry->bytes / sizeof *values; k++)
            if (!isfinite(values[k]))
                return lk__fail(
                    LK_STATUS_NONFINITE,
                    "element %zu of the gradient of %s is %g; lk_engine_set_grads needs finite values, or an engine "
                    "with `allow_nonfinite`",
                    k, entry->name, (double)values[k]);
    }
    return LK_OK;
}

static lk_status check(const lk_engine *engine, const lk_state *grads)
{
    size_t known = 0;
    LK_TRY(lk__params_check_array(engine->params, NULL, grads, owner, &known));
    if (known < lk_state_count(grads))
        LK_TRY(check_unknown(engine->params, grads));
    return engine->opts.allow_nonfinite ? LK_OK : check_finite(grads);
}

static lk_status set_grads(lk_engine *engine, const lk_state *grads)
{
    lk_params *params = engine->params;
    LK_TRY(check(engine, grads));
    LK_TRY(lk__params_import_array(params, grads, (lk_params_array){.data = params->grads}));
    for (size_t i = 0; i < engine->groups.count; i++)
        if (engine->groups.ranges[i].frozen)
            lk__engine_clear_grads(engine, engine->groups.ranges[i].begin, engine->groups.ranges[i].end);
    return engine->grid.sums ? lk__replicas_start_array(engine->grid.sums, params, params->grads) : LK_OK;
}

lk_status lk_engine_set_grads(lk_engine *engine, const lk_state *grads)
{
    LK_TRY(LK_GIVEN(engine));
    LK_TRY(LK_GIVEN(grads));
    LK_TRY(lk__engine_enter_idle(engine));
    if (!engine->ready)
        return lk__engine_leave(engine, lk__fail(LK_STATUS_USAGE, "no gradients to replace; lk_engine_gradients must "
                                                                  "have succeeded before, and no update after it"));
    return lk__engine_leave(engine, lk__engine_abort_on_failure(engine, set_grads(engine, grads)));
}
