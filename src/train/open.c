/* open.c - opening a run's data, the model that fits it, and its weights. */
#include <pthread.h>
#include <stdio.h>

#include "base/status.h"
#include "train/parts.h"

enum { DETAIL_BYTES = 2048 };

/* A split being opened on another thread, whose error detail is its own. */
typedef struct opening {
    const lk_train_opts *opts;
    lk_dataset *data;
    lk_status status;
    char detail[DETAIL_BYTES];
} opening;

static void *open_test(void *arg)
{
    opening *test = arg;
    test->status = lk_dataset_open(test->opts->data, test->opts->data_dir, LK_SPLIT_TEST, &test->data);
    if (test->status != LK_OK)
        snprintf(test->detail, sizeof test->detail, "%s", lk_error_detail());
    return NULL;
}

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
    opening second = {.opts = opts};
    pthread_t thread;
    bool threaded = !opts->no_test && pthread_create(&thread, NULL, open_test, &second) == 0;
    lk_dataset *first = NULL;
    lk_status status = lk_dataset_open(opts->data, opts->data_dir, LK_SPLIT_TRAIN, &first);
    if (threaded)
        pthread_join(thread, NULL);
    else if (!opts->no_test && status == LK_OK)
        open_test(&second);
    if (status == LK_OK && second.status != LK_OK)
        status = lk__fail(second.status, "%s", second.detail);
    if (status == LK_OK && second.data)
        status = check_splits(first, second.data);
    if (status != LK_OK) {
        lk_dataset_destroy(first);
        lk_dataset_destroy(second.data);
        return status;
    }
    *train = first;
    *test = second.data;
    return LK_OK;
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
    return LK_OK;
}
