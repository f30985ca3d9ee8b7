/* open.c - opens what the ranks of a process share: data, model, initial weights, and the saver. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "train/description.h"
#include "train/parts.h"
#include "train/start.h"

/* The two splits of a user's folder may not belong together. */
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

/* The data set of the program, or the named one. */
static lk_status open_split(const lk_train_ranks *ranks, lk_split split, lk_train_shared *shared,
                            const lk_dataset **out)
{
    const lk_train_opts *opts = ranks->opts;
    if (opts->train) {
        *out = split == LK_SPLIT_TRAIN ? opts->train : opts->test;
        return LK_OK;
    }
    lk_dataset **opened = &shared->opened[shared->opened_count];
    LK_TRY(lk__train_may_share(ranks) ? lk__dataset_open_idle(opts->data, opts->data_dir, split, opened)
                                      : lk_dataset_open(opts->data, opts->data_dir, split, opened));
    shared->opened_count++;
    *out = *opened;
    return LK_OK;
}

static lk_status open_training(const lk_train_ranks *ranks, lk_train_shared *shared)
{
    const lk_train_opts *opts = ranks->opts;
    if (opts->val_split == 0)
        return open_split(ranks, LK_SPLIT_TRAIN, shared, &shared->train);
    LK_TRY(open_split(ranks, LK_SPLIT_TRAIN, shared, &shared->whole));
    lk_dataset **parts = &shared->opened[shared->opened_count];
    shared->opened_count += 2;
    LK_TRY(lk__train_split(opts, shared->whole, &parts[0], &parts[1]));
    shared->train = parts[0];
    shared->val = parts[1];
    return LK_OK;
}

static lk_status open_splits(const lk_train_ranks *ranks, lk_train_shared *shared)
{
    LK_TRY(open_training(ranks, shared));
    if (ranks->opts->no_test)
        return LK_OK;
    lk_status status = open_split(ranks, LK_SPLIT_TEST, shared, &shared->test);
    if (status == LK_STATUS_NOT_FOUND)
        return lk__fail(status, "%s; `no_test` trains without a test split", lk_error_detail());
    LK_TRY(status);
    return check_splits(shared->train, shared->test);
}

const char *lk__train_augment(const lk_dataset *data, const char *augment)
{
    return augment && strcmp(augment, "auto") != 0 ? augment : data->augment;
}

lk_status lk__train_shape(const lk_dataset *data, const char *augment, lk_sample_shape *out)
{
    lk_transforms list;
    LK_TRY(lk__transforms_parse(lk__train_augment(data, augment), &list));
    return lk__transforms_one_shape(&list, data, out);
}

static bool gives_test_augment(const lk_train_opts *opts)
{
    return opts->test_augment && strcmp(opts->test_augment, "auto") != 0;
}

static lk_status write_test_augment(const lk_train_opts *opts, const lk_dataset *data, lk_sample_shape shape,
                                    char text[LK_AUGMENT_TEXT])
{
    lk_transforms training;
    LK_TRY(lk__transforms_parse(lk__train_augment(data, opts->augment), &training));
    if (!gives_test_augment(opts))
        return lk__transforms_for_test(data, shape, lk__transforms_fix_size(&training), text);
    if (strlen(opts->test_augment) >= LK_AUGMENT_TEXT)
        return lk__fail(LK_STATUS_USAGE, "`test_augment` is longer than %d characters", LK_AUGMENT_TEXT - 1);
    snprintf(text, LK_AUGMENT_TEXT, "%s", opts->test_augment);
    return LK_OK;
}

lk_status lk__train_evaluation_shape(const lk_train_opts *opts, const lk_dataset *data, lk_sample_shape *out,
                                     char text[LK_AUGMENT_TEXT])
{
    lk_sample_shape shape = {0};
    if (!gives_test_augment(opts))
        LK_TRY(lk__train_shape(data, opts->augment, &shape));
    LK_TRY(write_test_augment(opts, data, shape, text));
    return lk_augmented_shape(data, text, out);
}

/* The transforms that give test samples the shape of training samples: those of opts, or for "auto" chosen by
 * the shape. */
static lk_status choose_test_augment(const lk_train_opts *opts, const lk_dataset *data, lk_sample_shape shape,
                                     char text[LK_AUGMENT_TEXT])
{
    lk_sample_shape test;
    LK_TRY(write_test_augment(opts, data, shape, text));
    LK_TRY(lk_augmented_shape(data, text, &test));
    if (test.channels == shape.channels && test.height == shape.height && test.width == shape.width)
        return LK_OK;
    return lk__fail(LK_STATUS_MISMATCH,
                    "%s: training images come out as %zux%zux%zu (`augment` %s), test images as %zux%zux%zu "
                    "(`test_augment` %s); they must be alike",
                    lk_dataset_get_info(data)->name, shape.channels, shape.height, shape.width,
                    opts->augment ? opts->augment : "auto", test.channels, test.height, test.width, text);
}

static lk_status check_saving(const lk_train_opts *opts, int rank)
{
    char path[sizeof((lk_train_outcome *)NULL)->saved];
    if (!lk__train_saves(opts, rank))
        return LK_OK;
    LK_TRY(lk__train_save_path(opts->save_model, rank, path, sizeof path));
    return lk__train_save_check(path);
}

/* A model file says how images are prepared that are not trained on, also if the run evaluates none. */
static void choose_seen(const lk_train_opts *opts, lk_train_shared *shared)
{
    const char *chosen = shared->test ? shared->test_augment : shared->val_augment;
    if (shared->test || shared->val)
        memcpy(shared->seen, chosen, sizeof shared->seen);
    else if (write_test_augment(opts, shared->train, shared->shape, shared->seen) != LK_OK)
        *shared->seen = '\0';
}

/* Whether `lockstep predict` could prepare images for this model. */
static bool is_described(const lk_train_opts *opts, const lk_dataset_info *data)
{
    return !opts->graph && data->dtype == LK_DTYPE_U8 && data->classes > 0 &&
           (data->channels == 1 || data->channels == LK_DATASET_MAX_CHANNELS);
}

lk_status lk__train_describe(const lk_train_opts *opts, const lk_train_shared *shared, lk_state *state)
{
    if (!is_described(opts, lk_dataset_get_info(shared->train)))
        return LK_OK;
    lk_description_source from = {.model = opts->model,
                                  .name = opts->data,
                                  .data = shared->train,
                                  .shape = shared->shape,
                                  .transforms = *shared->seen ? shared->seen : NULL};
    return lk__description_note(&from, state);
}

/* Refuses options that would have no effect. */
static lk_status check_initial(const lk_train_opts *opts)
{
    if (opts->init_skip && !opts->init_from)
        return lk__fail(LK_STATUS_USAGE, "`init_skip` leaves layers of a file out: give the file with `init_from`");
    if (opts->init && opts->init_from && !opts->init_skip)
        return lk__fail(LK_STATUS_USAGE, "`init` has no effect where all weights come from `init_from`; give one");
    return LK_OK;
}

/* Refuses options that depend on results where there are none. */
static lk_status check_watched(const lk_train_opts *opts, const lk_lr_schedule *schedule)
{
    bool stops = opts->early_stop > 0;
    const char *watcher = stops ? "`early_stop`" : "`schedule` ", *name = stops ? "" : opts->schedule;
    if (!opts->no_test || opts->val_split != 0 || (!stops && !lk_lr_schedule_watches(schedule)))
        return LK_OK;
    if (opts->train && !opts->test)
        return lk__fail(LK_STATUS_USAGE,
                        "%s%s watches the results of epochs, and there are none: give the data set `test`, or "
                        "`val_split` PART",
                        watcher, name);
    return lk__fail(LK_STATUS_USAGE,
                    "%s%s watches the results of epochs, and `no_test` leaves none: add `val_split` PART, or leave "
                    "`no_test` out",
                    watcher, name);
}

/* Opens the saver if this process has rank 0 and checkpoints are saved. */
static lk_status open_saver(const lk_train_ranks *ranks, lk_train_shared *shared)
{
    const lk_train_opts *opts = ranks->opts;
    lk_position position = {0};
    if (!opts->checkpoint || ranks->first > 0)
        return LK_OK;
    if (shared->resume)
        LK_TRY(lk__position_read(shared->resume, opts->resume, &position));
    lk_saver_opts saver = {.dir = opts->checkpoint,
                           .keep = opts->keep,
                           .from = opts->resume,
                           .step = position.step,
                           .exact = ranks->resume_exact,
                           .best = position.best_step,
                           .complete = lk__data_notes_add,
                           .arg = shared->data_notes};
    return lk__saver_open(&saver, &shared->saver);
}

/* Loads the checkpoint to resume from, or the file of initial weights. */
static lk_status open_weights(const lk_train_opts *opts, lk_train_shared *shared)
{
    LK_TRY(check_initial(opts));
    if (opts->resume)
        return lk_checkpoint_load(opts->resume, &shared->resume);
    if (!opts->init_from)
        return LK_OK;
    lk_status status = lk__train_load_weights(opts->init_from, &shared->initial);
    if (status != LK_OK)
        return lk__fail(status, "`init_from`: %s", lk_error_detail());
    return lk__train_check_finite(shared->initial, opts->init_from);
}

/* Equal numbers of values are not enough: an image with its sides exchanged would be learnt in silence. */
static lk_status check_graph(const lk_graph *graph, lk_sample_shape shape)
{
    LK_TRY(lk_graph_check(graph));
    lk_model_shape input = lk_graph_shape(graph);
    if (input.channels == shape.channels && input.height == shape.height && input.width == shape.width)
        return LK_OK;
    return lk__fail(LK_STATUS_MISMATCH,
                    "`graph` takes samples of %zu channels, height %zu and width %zu (lk_input), and the data have %zu "
                    "channels, height %zu and width %zu",
                    input.channels, input.height, input.width, shape.channels, shape.height, shape.width);
}

static lk_status open_model(const lk_train_opts *opts, lk_train_shared *shared)
{
    if (opts->graph) {
        shared->graph = opts->graph;
        return check_graph(opts->graph, shared->shape);
    }
    LK_TRY(lk__train_build_model(opts, shared->train, shared->shape, &shared->built));
    shared->graph = shared->built;
    return LK_OK;
}

static lk_status open_parts(const lk_train_ranks *ranks, lk_train_shared *shared)
{
    const lk_train_opts *opts = ranks->opts;
    /* Parts that need no data come first, so that mistakes in them are found early. */
    LK_TRY(lk_lr_schedule_create(opts->schedule, &shared->schedule));
    LK_TRY(check_watched(opts, shared->schedule));
    LK_TRY(open_weights(opts, shared));
    LK_TRY(lk__data_notes_create(&shared->data_notes));
    LK_TRY(open_saver(ranks, shared));
    for (int i = 0; i < ranks->count; i++)
        LK_TRY(check_saving(opts, ranks->first + i));
    LK_TRY(open_splits(ranks, shared));
    lk__data_notes_set(shared->data_notes, lk__train_whole(shared));
    LK_TRY(lk__train_shape(shared->train, opts->augment, &shared->shape));
    lk_sample_shape shape = shared->shape;
    if (shared->test)
        LK_TRY(choose_test_augment(opts, shared->test, shape, shared->test_augment));
    if (shared->val)
        LK_TRY(choose_test_augment(opts, shared->val, shape, shared->val_augment));
    choose_seen(opts, shared);
    LK_TRY(open_model(opts, shared));
    return lk__train_cuts(shared->graph, opts->stages, &shared->cuts);
}

lk_status lk__train_shared_open(const lk_train_ranks *ranks, lk_train_shared *out)
{
    lk_train_shared shared = {0};
    lk_status status = open_parts(ranks, &shared);
    if (status != LK_OK)
        lk__train_shared_close(&shared);
    else
        *out = shared;
    return status;
}

void lk__train_shared_close(lk_train_shared *shared)
{
    lk__saver_close(shared->saver); /* first: its thread may read the data for their notes */
    lk__data_notes_destroy(shared->data_notes);
    lk__mem_free(shared->cuts);
    lk_graph_destroy(shared->built);
    while (shared->opened_count > 0)
        lk_dataset_destroy(shared->opened[--shared->opened_count]);
    lk__store_destroy(shared->store);
    lk_lr_schedule_destroy(shared->schedule);
    lk_state_destroy(shared->initial);
    lk_checkpoint_destroy(shared->resume);
    *shared = (lk_train_shared){0};
}

lk_status lk__train_check_readable(const lk_dataset *data)
{
    lk_image image = {0};
    int32_t label;
    if (data->ops->values)
        return LK_OK; /* the program's own samples have no files */
    lk_status status = lk__dataset_load(data, 0, NULL, &image, &label);
    lk__image_fini(&image);
    return status;
}

lk_status lk__train_build_model(const lk_train_opts *opts, const lk_dataset *data, lk_sample_shape shape,
                                lk_graph **out)
{
    lk_model_shape model = {.channels = shape.channels,
                            .height = shape.height,
                            .width = shape.width,
                            .classes = lk_dataset_get_info(data)->classes};
    lk_graph *graph;
    if (lk__train_is_graph(opts->model))
        return lk__fail(LK_STATUS_USAGE, "`model` %s is a graph of a program's own: continue with that program",
                        opts->model);
    LK_TRY(lk_model_build(opts->model, model, &graph));
    if (opts->init)
        lk_init_all(graph, opts->init);
    lk_status status = lk_graph_check(graph);
    if (status == LK_OK)
        *out = graph;
    else
        lk_graph_destroy(graph);
    return status;
}

lk_engine_opts lk__train_engine_opts(const lk_train_opts *opts)
{
    return (lk_engine_opts){
        .device = opts->device,
        .threads = opts->threads,
        .shards = opts->shards,
        .micro_batch = opts->micro_batch,
        .bn = opts->bn,
        .conv = opts->conv,
        .precision = opts->precision,
        .optimizer = opts->optimizer,
        .lr = opts->lr,
        .seed = opts->seed,
        .clip_norm = opts->clip_norm,
        .label_smoothing = opts->label_smoothing,
        .bucket_bytes = (size_t)(opts->bucket_mb * (1 << 20)),
        .reduce = opts->reduce,
        .backend = opts->backend,
        .stages = opts->stages,
        .pipelined = opts->pipelined,
        .check_every = opts->check_every ? opts->check_every : -1,
    };
}
