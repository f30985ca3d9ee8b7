/* zoo.c - the table of models. */
#include "base/spec.h"
#include "base/status.h"
#include "nn/models/models.h"

typedef struct row {
    lk_model_info info;
    lk_model_fn build;
} row;

static const row rows[] = {
    {{"cnn", "two convolutions and two linear layers (MNIST)", "dropout=1 (0: off)"}, lk__model_cnn},
    {{"mlp", "four linear layers", "hidden=64"}, lk__model_mlp},
    {{"resnet20", "residual network (CIFAR)", "width=16"}, lk__model_resnet20},
};

enum { ROWS = sizeof rows / sizeof *rows };

const lk_model_info *lk_model_list(size_t index)
{
    return index < ROWS ? &rows[index].info : NULL;
}

static const char *name_at(const void *arg, size_t index)
{
    (void)arg;
    return index < ROWS ? rows[index].info.name : NULL;
}

static const lk_names names = {.what = "--model", .kind = "model", .next = name_at};

lk_status lk_model_build(const char *spec, lk_model_shape shape, lk_graph **out)
{
    size_t found = 0;
    lk_graph *graph;
    LK_TRY(lk__spec_find(spec, &names, &found));
    LK_TRY(lk_graph_create(&graph));
    lk_status status;
    LK_TRY_GOTO(rows[found].build(spec, shape, graph), destroy_graph);
    LK_TRY_GOTO(lk_graph_check(graph), destroy_graph);
    *out = graph;
    return LK_OK;

destroy_graph:
    lk_graph_destroy(graph);
    return status;
}
