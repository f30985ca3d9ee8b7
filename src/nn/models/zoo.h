/* zoo.h - functions on the table of models that are not public. */
#ifndef LK_NN_MODELS_ZOO_H
#define LK_NN_MODELS_ZOO_H

#include <lockstep/graph.h>

/* The shape of samples and the number of classes that a model was made for. */
lk_status lk__model_usual_shape(const char *spec, lk_model_shape *out) LK_CHECKED;

#endif
