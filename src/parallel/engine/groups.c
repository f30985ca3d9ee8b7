/* groups.c - setting parameter groups: the ranks compare what they set, then each sets it. */
#include <stdio.h>

#include "base/spec.h"
#include "parallel/agree.h"
#include "parallel/engine/engine.h"
#include "parallel/step/recorded.h"

/* Collective: MISMATCH unless all ranks set the same. */
static lk_status agree_group(lk_engine *engine, const char *pattern, const lk_param_group *group)
{
    lk_agree_text lines = {.at = ""};
    char shown[LK_AGREED_VALUE], scale[LK_NUMBER_TEXT], decay[LK_NUMBER_TEXT];
    if (!engine->grid.world)
        return LK_OK;
    lk__agree_add(&lines, "pattern '%s' of lk_engine_set_group\n", lk__agree_value(pattern, shown));
    lk__agree_add(&lines, "`lr_scale` %s\n", lk__number_text(group->lr_scale, scale));
    lk__agree_add(&lines, "`weight_decay` %s\n", lk__number_text(group->weight_decay, decay));
    lk__agree_add(&lines, "`frozen` %s\n", group->frozen ? "true" : "false");
    return lk__agree_lines(engine->grid.world, lines.at, &engine->agreed);
}

void lk__engine_clear_grads(lk_engine *engine, size_t begin, size_t end)
{
    lk_device *dev = engine->dev;
    for (int slot = 0; slot < engine->extent.grad_slots; slot++)
        dev->kernels->zero_bytes(dev, (end - begin) * sizeof(float),
                                 engine->params->grads + (size_t)slot * engine->params->count + begin);
}

static bool same_frozen(const lk_engine *engine, const lk_param_groups *made)
{
    bool same = true;
    for (int i = 0; i < engine->graph->count; i++)
        same &= made->frozen[i] == (engine->groups.frozen ? engine->groups.frozen[i] : 0);
    return same;
}

/* Compiles the plan for other frozen parameters. Their gradients are zero from now on. */
static lk_status freeze(lk_engine *engine, const lk_param_groups *made)
{
    if (same_frozen(engine, made))
        return LK_OK;
    LK_TRY(lk__plan_freeze(engine->plan, made->frozen));
    for (size_t i = 0; i < made->count; i++)
        if (made->ranges[i].frozen)
            lk__engine_clear_grads(engine, made->ranges[i].begin, made->ranges[i].end);
    for (int i = 0; i < engine->buckets->count; i++) {
        lk_bucket *bucket = &engine->buckets->list[i];
        bucket->frozen = lk__param_groups_are_frozen(made, bucket->begin, bucket->end);
    }
    engine->has_grads = engine->ready = false;
    return LK_OK;
}

static lk_status set_group(lk_engine *engine, const char *pattern, const lk_param_group *group)
{
    lk_param_groups made;
    LK_TRY(agree_group(engine, pattern, group));
    /* From here on every rank finds the same failure, except that memory is short. */
    lk_status status = lk__param_groups_make(&engine->groups, engine->params, engine->optim, pattern, group, &made);
    engine->agreed = status == LK_STATUS_USAGE || status == LK_STATUS_MISMATCH;
    LK_TRY(status);
    LK_TRY_GOTO(lk__recorded_forget(engine), fini_made);
    LK_TRY_GOTO(freeze(engine, &made), fini_made);
    lk__optim_set_groups(engine->optim, made.rows, made.row_count);
    lk__param_groups_fini(&engine->groups);
    engine->groups = made;
    return LK_OK;

fini_made:
    lk__param_groups_fini(&made);
    return status;
}

lk_status lk_engine_set_group(lk_engine *engine, const char *pattern, const lk_param_group *group)
{
    LK_TRY(LK_GIVEN(engine));
    LK_TRY(LK_GIVEN(pattern));
    LK_TRY(LK_GIVEN(group));
    LK_TRY(LK_CLEAR(group, "lk_param_group"));
    LK_TRY(lk__engine_enter_idle(engine));
    engine->agreed = false;
    lk_status status = set_group(engine, pattern, group);
    return lk__engine_leave(engine, engine->agreed ? status : lk__engine_abort_on_failure(engine, status));
}
