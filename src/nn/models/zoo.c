/* zoo.c - the table of models. */
#include "nn/models/zoo.h"

#include "base/spec.h"
#include "base/status.h"
#include "nn/models/models.h"

#define FAMILY(family) lk__model_##family,
static const lk_model *const families[] = {LK_MODEL_FAMILIES(FAMILY)};

/* NULL after the last. */
static const lk_model *model_at(size_t index)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        for (const lk_model *model = families[i]; model->build; model++)
            if (index-- == 0)
                return model;
    return NULL;
}

const lk_model_info *lk_model_list(size_t index)
{
    const lk_model *model = model_at(index);
    return model ? &model->info : NULL;
}

static const char *name_at(const void *arg, size_t index)
{
    (void)arg;
    const lk_model *model = model_at(index);
    return model ? model->info.name : NULL;
}

static const lk_names names = {.what = "`model`", .kind = "model", .next = name_at};

lk_status lk_model_build(const char *spec, lk_model_shape shape, lk_graph **out)
{
    LK_TRY(LK_GIVEN(spec));
    LK_TRY(LK_GIVEN(out));
    size_t found = 0;
    lk_graph *graph;
    LK_TRY(lk__spec_find(spec, &names, &found));
    LK_TRY(lk_graph_create(&graph));
    const lk_model *model = model_at(found);
    lk_model_args args = {.spec = spec, .shape = shape, .size = model->size, .mean = model->mean};
    lk_status status;
    LK_TRY_GOTO(model->build(&args, graph), destroy_graph);
    LK_TRY_GOTO(lk_graph_check(graph), destroy_graph);
    *out = graph;
    return LK_OK;

destroy_graph:
    lk_graph_destroy(graph);
    return status;
}

lk_status lk__model_usual_shape(const char *spec, lk_model_shape *out)
{
    size_t found = 0;
    LK_TRY(lk__spec_find(spec, &names, &found));
    const lk_model *model = model_at(found);
    *out = model->small.classes && lk__spec_has_switch(spec, "cifar") ? model->small : model->usual;
    return LK_OK;
}
