/* predict.c - the classes of single images, by a model of a file. */
#include "train/predict.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/codec/codec.h"
#include "data/transform/transform.h"
#include "train/parts.h"

#define MAX_FILE_BYTES ((size_t)1 << 28)

struct lk_predictor {
    lk_description what;
    lk_transforms transforms;
    lk_normalise normalise;
    lk_engine *engine;
    lk_image image, scratch;
    float *x;      // (H, W, C)
    float *scores; // (classes)
};

/* Makes the notes of a file that has none from the data set that it was trained on. */
static lk_status describe(const lk_train_opts *opts, lk_state *state)
{
    lk_dataset *data = NULL;
    lk_sample_shape shape;
    char transforms[LK_AUGMENT_TEXT];
    lk_status status;
    if (!opts->model || !opts->data)
        return lk__fail(LK_STATUS_USAGE,
                        "%s does not say what it is, as files of `save_model` do: give `model` NAME and "
                        "`data` NAME, the data set that it was trained on",
                        opts->init_from);
    LK_TRY(lk_dataset_open(opts->data, opts->data_dir, LK_SPLIT_TEST, &data));
    LK_TRY_GOTO(lk__train_evaluation_shape(opts, data, &shape, transforms), destroy_data);
    lk_description_source from = {
        .model = opts->model, .name = opts->data, .data = data, .shape = shape, .transforms = transforms};
    status = lk__description_note(&from, state);
destroy_data:
    lk_dataset_destroy(data);
    return status;
}

static lk_status choose_transforms(const lk_train_opts *opts, const lk_state *state, lk_transforms *out)
{
    bool given = opts->test_augment && strcmp(opts->test_augment, "auto") != 0;
    const char *text = given ? opts->test_augment : lk_state_note(state, lk__description_transforms);
    lk_dataset kind = {.split = LK_SPLIT_TEST}; /* in which nothing random is allowed */
    return lk__transforms_choose(&kind, text ? text : "none", out);
}

static lk_status build_engine(const lk_train_opts *opts, const lk_state *state, lk_predictor *p)
{
    lk_train_opts own = *opts;
    lk_graph *graph = NULL;
    lk_status status;
    own.model = opts->model ? opts->model : lk_state_note(state, lk__description_model);
    own.shards = 1;
    if (!own.model)
        return lk__fail(LK_STATUS_FORMAT, "%s does not say which model it has: give `model` NAME", opts->init_from);
    LK_TRY(lk_model_build(own.model, p->what.shape, &graph));
    LK_TRY_GOTO(lk_graph_check(graph), destroy_graph);
    lk_train_evaluator on = {.device = own.device, .wave = 1};
    status = lk__train_load_engine(&own, graph, &on, state, &p->engine);
destroy_graph:
    lk_graph_destroy(graph);
    return status;
}

static lk_status fill(const lk_train_opts *opts, lk_state *state, lk_predictor *p)
{
    lk_model_shape *shape = &p->what.shape;
    if (!lk__description_is(state))
        LK_TRY(describe(opts, state));
    LK_TRY(lk__description_read(state, opts->init_from, &p->what));
    LK_TRY(choose_transforms(opts, state, &p->transforms));
    lk__normalise_init(&p->normalise, p->what.mean, p->what.std, shape->channels);
    LK_TRY(LK_ALLOC(shape->channels * shape->height * shape->width, "an image", &p->x));
    LK_TRY(LK_ALLOC(shape->classes, "scores", &p->scores));
    return build_engine(opts, state, p);
}

lk_status lk__predictor_create(const lk_train_opts *opts, lk_predictor **out)
{
    lk_state *state = NULL;
    lk_predictor *p = NULL;
    lk_status status;
    LK_TRY(lk__train_load_weights(opts->init_from, &state));
    LK_TRY_GOTO(LK_ALLOC(1, "a predictor", &p), destroy_state);
    LK_TRY_GOTO(fill(opts, state, p), destroy_predictor);
    *out = p;
    p = NULL;
destroy_predictor:
    lk__predictor_destroy(p);
destroy_state:
    lk_state_destroy(state);
    return status;
}

void lk__predictor_destroy(lk_predictor *p)
{
    if (!p)
        return;
    lk_engine_destroy(p->engine);
    lk__image_fini(&p->image);
    lk__image_fini(&p->scratch);
    lk__mem_free(p->x);
    lk__mem_free(p->scores);
    lk__description_fini(&p->what);
    lk__mem_free(p);
}

const lk_description *lk__predictor_description(const lk_predictor *p)
{
    return &p->what;
}

static lk_status decode(lk_predictor *p, const char *path)
{
    lk_image_file file = {.path = path};
    uint8_t *bytes;
    LK_TRY(lk__file_read(path, MAX_FILE_BYTES, &bytes, &file.count));
    file.bytes = bytes;
    lk_status status = lk__image_decode(&file, NULL, &p->image);
    lk__mem_free(bytes);
    return status;
}

/* The channels of the three planes are then equal, and the first is the image. */
static void make_grey(lk_image *image)
{
    lk__image_grayscale(image);
    image->channels = 1;
}

static lk_status prepare(lk_predictor *p, const char *path)
{
    const lk_model_shape *want = &p->what.shape;
    LK_TRY(decode(p, path));
    size_t height = p->image.height, width = p->image.width;
    if (want->channels == 1)
        make_grey(&p->image);
    lk_status status = lk__transforms_apply(&p->transforms, (lk_transforms_address){0}, &p->image, &p->scratch);
    if (status != LK_OK)
        return lk__fail(status, "%s: %s", path, lk_error_detail());
    if (p->image.height == want->height && p->image.width == want->width && p->image.channels == want->channels)
        return LK_OK;
    size_t side = lk__size_max(want->height, want->width);
    return lk__fail(LK_STATUS_MISMATCH,
                    "%s has %zux%zu pixels (width and height), and %zux%zu after the transforms, but the model takes "
                    "%zux%zu: `test_augment` resize=%zu,center_crop=%zu makes images of any size fit",
                    path, width, height, p->image.width, p->image.height, want->width, want->height, side, side);
}

/* Computes the softmax; scores and log-probabilities give the same result. */
static lk_status softmax(const float *scores, size_t count, const char *path, double *out)
{
    double largest = (double)scores[0], sum = 0;
    for (size_t i = 1; i < count; i++)
        largest = (double)scores[i] > largest ? (double)scores[i] : largest;
    for (size_t i = 0; i < count; i++)
        sum += out[i] = lk__math_exp64((double)scores[i] - largest);
    for (size_t i = 0; i < count; i++)
        out[i] /= sum;
    if (isfinite(sum))
        return LK_OK;
    return lk__fail(LK_STATUS_NONFINITE, "%s: the model's scores are not finite: its weights are too large", path);
}

lk_status lk__predictor_image(lk_predictor *p, const char *path, double *probabilities)
{
    const lk_model_shape *shape = &p->what.shape;
    LK_TRY(prepare(p, path));
    lk__normalise_apply(&p->normalise, &p->image, p->x);
    lk_batch batch = {.count = 1, .sample_floats = shape->channels * shape->height * shape->width, .x = p->x};
    LK_TRY(lk_engine_forward(p->engine, &batch, p->scores));
    return softmax(p->scores, shape->classes, path, probabilities);
}
