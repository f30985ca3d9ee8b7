/* description.h - what a model is and how its images are prepared, as notes of its state (lk_state_set_note), so that a
 * file is enough to evaluate it or to predict.
 *
 * An image is decoded, made grey if the model has one channel, and changed by `transforms`; its bytes are divided by
 * 255, `mean` is subtracted, and the result is divided by `std`. */
#ifndef LK_TRAIN_DESCRIPTION_H
#define LK_TRAIN_DESCRIPTION_H

#include <lockstep/graph.h>
#include <lockstep/state.h>

#include "data/sets/dataset.h"

/* The names of the notes. */
extern const char lk__description_model[], lk__description_data[], lk__description_transforms[];

/* What the notes are made of. */
typedef struct lk_description_source {
    const char *model;      /* as in lk_train_opts */
    const char *name;       /* of the data set, as the user gave it */
    const lk_dataset *data; /* normalisation and names of classes */
    lk_sample_shape shape;  /* of the model's input */
    const char *transforms; /* of images that are not trained on; NULL: unknown, and there is no note of it */
} lk_description_source;
/* Sets the notes of a state. A name of data that is not UTF-8 is left out. */
lk_status lk__description_note(const lk_description_source *from, lk_state *state) LK_CHECKED;

typedef struct lk_description {
    lk_model_shape shape;
    float mean[LK_DATASET_MAX_CHANNELS], std[LK_DATASET_MAX_CHANNELS];
    char **names; /* (classes) */
} lk_description;
/* Whether a state has the notes that lk__description_read needs. */
bool lk__description_is(const lk_state *state);
/* Reads the notes of a state; FORMAT, with path, if one is missing or malformed. */
lk_status lk__description_read(const lk_state *state, const char *path, lk_description *out) LK_CHECKED;
void lk__description_fini(lk_description *description);

#endif
