/* part_copy.c - copying the arrays of a step. */
#include "parallel/step/part_copy.h"

#include <string.h>

#include "base/mem.h"

lk_status lk__engine_part_copy_init(const lk_engine *engine, lk_engine_part_copy *copy)
{
    LK_TRY(LK_ALLOC(engine->most, "sample ids", &copy->ids));
    LK_TRY(LK_ALLOC(engine->most, "sample ids", &copy->names));
    LK_TRY(LK_ALLOC(engine->most, "labels", &copy->labels));
    if (!engine->target_floats)
        return LK_OK;
    return lk__mem_alloc(engine->most, engine->target_floats * sizeof(float), "targets", (void **)&copy->targets);
}

void lk__engine_part_copy_fini(lk_engine_part_copy *copy)
{
    lk__mem_free(copy->x);
    lk__mem_free(copy->targets);
    lk__mem_free(copy->labels);
    lk__mem_free(copy->names);
    lk__mem_free(copy->ids);
}

bool lk__engine_part_upload_waits(const lk_engine *engine, const lk_engine_part *part)
{
    return part->x && lk__engine_sample_bytes(engine, part->count) > engine->dev->type->prompt_upload;
}

static lk_status copy_samples(const lk_engine *engine, const lk_engine_part *part, lk_engine_part_copy *copy)
{
    size_t room = lk__size_min(engine->dev->type->prompt_upload, lk__engine_sample_bytes(engine, engine->most));
    if (!part->x || lk__engine_part_upload_waits(engine, part))
        return LK_OK;
    if (!copy->x)
        LK_TRY(LK_ALLOC(room / sizeof *copy->x, "samples", &copy->x));
    memcpy(copy->x, part->x, lk__engine_sample_bytes(engine, part->count));
    copy->part.x = copy->x;
    return LK_OK;
}

lk_status lk__engine_part_copy_set(const lk_engine *engine, const lk_engine_part *part, lk_engine_part_copy *copy)
{
    copy->part = *part;
    copy->part.ids = NULL;
    copy->part.names = NULL;
    copy->part.labels = NULL;
    copy->part.targets = NULL;
    copy->part.x = NULL;
    if (part->eval)
        return LK_OK;
    copy->part.ids = copy->ids;
    copy->part.names = copy->names;
    copy->part.labels = part->labels ? copy->labels : NULL;
    copy->part.targets = part->targets ? copy->targets : NULL;
    memcpy(copy->ids, part->ids, part->count * sizeof *copy->ids);
    memcpy(copy->names, part->names, part->count * sizeof *copy->names);
    if (part->labels)
        memcpy(copy->labels, part->labels, part->count * sizeof *copy->labels);
    if (part->targets)
        memcpy(copy->targets, part->targets, lk__engine_target_bytes(engine, part->count));
    return copy_samples(engine, part, copy);
}
