/* open.c - opening a run's data, the model that fits it, and its weights. */
#include "base/mem.h"
#include "train/parts.h"

/* A folder of a user's own may hold two splits that do not belong together. */
static lk_status check_splits(const lk_dataset *train, const lk_dataset *test)
{
    const lk_dataset_info *a = lk_dataset_get_info(train), *b = lk_dataset_get_info(test);
    if (a->channels != b->channels || a->height != b->height || a->width != b->width)
        return lk__fail(LK_STATUS_MISMATCH, "%s: training images are %zux%zux%zu, test images %zux%zux%zu", a->name,
                        a->channels, a->height, a->width, b->channels, b->height, b->width);
    if (b->classes > a->classes)
        return lk__fail(LK_STATUS_MISMATCH, "%s: the test split has %zu classes, the training split only %zu", a->name,
                        b->classes, a->classes);
    return LK_OK;
}

lk_status lk__open_splits(const lk_train_opts *opts, lk_dataset **train, lk_dataset **test)
{
    lk_dataset *first = NULL, *second = NULL;
    lk_status status;
    LK_TRY(lk_dataset_open(opts->data, opts->data_dir, LK_SPLIT_TRAIN, &first));
    if (!opts->no_test) {
        LK_TRY_GOTO(lk_dataset_open(opts->data, opts->data_dir, LK_SPLIT_TEST, &second), destroy_splits);
        LK_TRY_GOTO(check_splits(first, second), destroy_splits);
    }
    *train = first;
    *test = second;
    return LK_OK;

destroy_splits:
    lk_dataset_destroy(second);
    lk_dataset_destroy(first);
    return status;
}

lk_status lk__check_readable(const lk_dataset *data)
{
    const lk_dataset_info *info = lk_dataset_get_info(data);
    uint8_t *pixels;
    int32_t label;
    LK_TRY(LK_ALLOC(info->channels * info->height * info->width, "an image", &pixels));
    lk_status status = lk_dataset_get(data, 0, pixels, &label);
    lk__free(pixels);
    return status;
}

lk_status lk__build_model(const lk_train_opts *opts, const lk_dataset *data, lk_graph **out)
{
    const lk_dataset_info *info = lk_dataset_get_info(data);
    lk_model_shape shape = {
        .channels = info->channels, .height = info->height, .width = info->width, .classes = info->classes};
    return lk_model_build(opts->model, shape, out);
}

lk_status lk__init_engine(lk_engine *engine, const lk_state *state, const char *path)
{
    lk_status status = lk_engine_set_state(engine, state);
    if (status != LK_OK)
        return lk__fail(status, "%s: %s", path, lk_error_detail());
    return lk__check_finite(state, path);
}
