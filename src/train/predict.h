/* predict.h - the classes of single images, by a model of a file. */
#ifndef LK_TRAIN_PREDICT_H
#define LK_TRAIN_PREDICT_H

#include "train/description.h"
#include "train/train.h"

typedef struct lk_predictor lk_predictor;

/* Loads the model of opts->init_from. What it is comes from the notes of the file, or, where it has none, from model
 * and data of opts: the data set is then opened for its normalisation and its classes. Uses model, data, data_dir,
 * test_augment, threads, device and init_from of opts; model and test_augment take precedence over the notes. */
lk_status lk__predictor_create(const lk_train_opts *opts, lk_predictor **out) LK_CHECKED;
void lk__predictor_destroy(lk_predictor *predictor);
/* Borrowed from the predictor. */
const lk_description *lk__predictor_description(const lk_predictor *predictor);
/* Reads an image and writes the probability of each class; they have the sum 1. FORMAT or MISMATCH, with the path, for
 * a file that is no image or has another size than the model takes. */
lk_status lk__predictor_image(lk_predictor *predictor, const char *path, double *probabilities) LK_CHECKED;

#endif
