/* models.h - one builder a model; zoo.c has the table. */
#ifndef LK_NN_MODELS_MODELS_H
#define LK_NN_MODELS_MODELS_H

#include <lockstep/graph.h>

/* spec is the whole "name:key=value" text; parameters are the model's own. */
typedef lk_status (*lk_model_fn)(const char *spec, lk_model_shape shape, lk_graph *graph);

lk_status lk__model_cnn(const char *spec, lk_model_shape shape, lk_graph *graph) LK_CHECKED;
lk_status lk__model_mlp(const char *spec, lk_model_shape shape, lk_graph *graph) LK_CHECKED;
lk_status lk__model_resnet20(const char *spec, lk_model_shape shape, lk_graph *graph) LK_CHECKED;

#endif
