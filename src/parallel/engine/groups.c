/* groups.c - setting parameter groups: the ranks compare what they set, then each sets it. */
#include <stdio.h>

#include "base/hash.h"
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
    return lk__agree_lines(engine->grid.world, lines.at, &engine->agreed);
}

static lk_status set_group(lk_engine *engine, const char *pattern, const lk_param_group *group)
{
    LK_TRY(agree_group(engine, pattern, group));
    /* From here on every rank finds the same failure, except that memory is short. */
    lk_status status = lk__param_groups_set(&engine->groups, engine->params, engine->optim, pattern, group);
    engine->agreed = status == LK_STATUS_USAGE || status == LK_STATUS_MISMATCH;
    LK_TRY(status);
    return lk__recorded_forget(engine);
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
