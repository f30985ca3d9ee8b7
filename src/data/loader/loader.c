/* loader.c - batches, prepared ahead by worker threads.
 *
 * Batch b of an epoch is made in slot b % depth of a ring, by any worker; its content depends only
 * on b, the epoch and the seed. One lock guards all counters. Slots are filled without the lock: a
 * slot belongs to the worker that took its batch until it is ready, then to the consumer until the
 * next batch is requested. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/gate.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/trace.h"
#include "data/loader/loader.h"

enum { MAX_WORKERS = 256, SPARE_SLOTS = 2, DETAIL = 2048 };

typedef struct slot {
    lk_batch batch;
    float *x;                // (N, H, W, C); NULL if only labels and ids are loaded
    int32_t *labels;         // (N)
    float *targets;          // (N, targets of the data set); NULL if targets are labels
    uint32_t *ids;           // (N)
    lk_image image, scratch; /* the current sample, and scratch memory for its transforms */
    bool ready;
    lk_status status;
    char detail[DETAIL]; /* of a status that is not LK_OK */
} slot;

struct lk_loader {
    lk_gate gate;
    const lk_dataset *data;
    size_t batch, batches;
    lk_shard_range share;
    bool shuffle;
    uint64_t seed;
    lk_transforms transforms;
    lk_sample_shape shape; /* of each sample after the transforms */
    lk_normalise normalise;
    const void *named; /* the argument of lk__loader_names_only */

    /* Changed only while no worker is busy. */
    bool started;
    uint32_t epoch;
    uint32_t *order;    // (count)
    const void *source; /* `named` at the last start; not NULL: batches have no samples */

    pthread_mutex_t lock;
    pthread_cond_t work, done;
    size_t taken;    /* batches before it were taken by workers */
    size_t consumed; /* batches before it were given to the consumer */
    size_t held;     /* batches before it are no longer used by the consumer */
    size_t busy;     /* workers that fill a slot */
    bool paused, stop;

    size_t depth;
    slot *slots;
    size_t workers;       /* running threads */
    size_t named_threads; /* threads that have their name in traces */
    pthread_t *threads;
    int rank; /* for which the loader works (trace.h) */
};

static size_t sample_size(const lk_loader *l)
{
    return l->shape.channels * l->shape.height * l->shape.width;
}

/* Adds the sample to the error detail of a transform. */
static lk_status blame_sample(const lk_loader *l, uint32_t id, lk_status status)
{
    char sample[LK_MAX_PATH], why[DETAIL];
    if (status == LK_OK)
        return LK_OK;
    snprintf(why, sizeof why, "%s", lk_error_detail());
    if (l->data->ops->path != NULL)
        l->data->ops->path(l->data, id, sample, sizeof sample);
    else
        snprintf(sample, sizeof sample, "sample %u of %s", id, l->data->info.name);
    return lk__fail(status, "%s: %s", sample, why);
}

/* Without a transform that fixes the size, a file may have changed since all sizes were compared. */
static lk_status check_shape(const lk_loader *l, const lk_image *image)
{
    const lk_sample_shape *want = &l->shape;
    if (image->channels == want->channels && image->height == want->height && image->width == want->width)
        return LK_OK;
    return lk__fail(LK_STATUS_FORMAT, "the image comes out with %zu by %zu pixels, the others with %zu by %zu",
                    image->width, image->height, want->width, want->height);
}

/* The memory for the target of sample i. */
static void *target_at(const lk_loader *l, slot *s, size_t i)
{
    return s->targets ? (void *)(s->targets + i * l->data->info.targets) : (void *)&s->labels[i];
}

/* Sets the label of sample i where targets are probabilities; it is 0 where they are other values. */
static void set_label(const lk_loader *l, slot *s, size_t i)
{
    const lk_dataset_info *info = &l->data->info;
    if (s->targets)
        s->labels[i] = info->classes ? lk__dataset_likeliest(s->targets + i * info->targets, info->classes) : 0;
}

/* Writes the target of a sample that is not loaded. False if the sample must be read for it. */
static bool fill_target(const lk_loader *l, uint32_t id, slot *s, size_t i)
{
    const lk_dataset_ops *ops = l->data->ops;
    if (ops->label)
        s->labels[i] = ops->label(l->data, id);
    else if (ops->targets)
        memcpy(target_at(l, s, i), ops->targets(l->data, id), l->data->info.targets * sizeof *s->targets);
    return ops->label || ops->targets;
}

/* Reads a sample of floats: into the batch, or into the slot's scratch memory for its target only. */
static lk_status fill_values(const lk_loader *l, uint32_t id, slot *s, size_t i)
{
    float *x = s->x ? s->x + i * sample_size(l) : NULL;
    if (!x) {
        LK_TRY(lk__image_resize(&s->scratch, sizeof *x, 1, sample_size(l)));
        x = (float *)(void *)s->scratch.pixels;
    }
    return l->data->ops->values(l->data, id, x, target_at(l, s, i));
}

static lk_status fill_image(const lk_loader *l, uint32_t id, slot *s, size_t i)
{
    LK_TRY(lk__dataset_load(l->data, id, &s->image, target_at(l, s, i)));
    if (s->x == NULL)
        return LK_OK;
    lk_transforms_address address = {.seed = l->seed, .epoch = l->epoch, .sample = id};
    LK_TRY(blame_sample(l, id, lk__transforms_apply(&l->transforms, address, &s->image, &s->scratch)));
    LK_TRY(blame_sample(l, id, check_shape(l, &s->image)));
    lk__normalise_apply(&l->normalise, &s->image, s->x + i * sample_size(l));
    return LK_OK;
}

/* Loads sample `id` of the data set as sample i of the slot. */
static lk_status fill_sample(const lk_loader *l, uint32_t id, slot *s, size_t i)
{
    s->ids[i] = id;
    if (s->x != NULL || !fill_target(l, id, s, i))
        LK_TRY(l->data->ops->values ? fill_values(l, id, s, i) : fill_image(l, id, s, i));
    set_label(l, s, i);
    return LK_OK;
}

static lk_status fill_slot(const lk_loader *l, size_t index, slot *s)
{
    size_t first = index * l->batch, total = lk__size_min(l->batch, l->data->info.count - first);
    size_t begin = first + lk_shard_range_begin(l->share, total), count = lk_shard_range_count(l->share, total);
    for (size_t i = 0; i < count; i++)
        LK_TRY(fill_sample(l, l->order[begin + i], s, i));
    s->batch = (lk_batch){.count = count,
                          .sample_floats = sample_size(l),
                          .x = s->x,
                          .labels = s->labels,
                          .target_floats = l->data->info.targets,
                          .targets = s->targets,
                          .ids = s->ids,
                          .total = l->share.shards > 0 ? total : 0,
                          .epoch = l->epoch,
                          .source = l->source};
    return LK_OK;
}

/* A fault's step is the step that trains with the batch. */
static void inject_fault(const lk_loader *l, size_t index)
{
    lk_fault_site before = lk__fault_site();
    lk__fault_set_site((lk_fault_site){.rank = l->rank, .step = (uint64_t)l->epoch * l->batches + index + 1});
    lk__fault_work("data");
    lk__fault_set_site(before);
}

/* Errors are stored with the batch, for the thread that requests it. */
static void prepare(const lk_loader *l, size_t index, slot *s)
{
    double began = lk__trace_begin();
    if (lk__fault_is_on())
        inject_fault(l, index);
    s->status = fill_slot(l, index, s);
    if (s->status != LK_OK)
        snprintf(s->detail, sizeof s->detail, "%s", lk_error_detail());
    lk__trace_end(LK_TRACE_KIND_DATA, "make batch", (int)index, began);
}

static bool may_take(const lk_loader *l)
{
    return !l->paused && l->taken < l->batches && l->taken < l->held + l->depth;
}

static void *worker_main(void *arg)
{
    lk_loader *l = arg;
    pthread_mutex_lock(&l->lock);
    lk__trace_thread(l->rank, "loader", (int)l->named_threads++);
    while (!l->stop) {
        if (!may_take(l)) {
            pthread_cond_wait(&l->work, &l->lock);
            continue;
        }
        size_t index = l->taken++;
        slot *s = &l->slots[index % l->depth];
        s->ready = false;
        l->busy++;
        pthread_mutex_unlock(&l->lock);
        prepare(l, index, s);
        pthread_mutex_lock(&l->lock);
        s->ready = true;
        l->busy--;
        pthread_cond_signal(&l->done);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* Returns with the lock held and no worker in a slot. No worker takes a batch until paused is
 * cleared. */
static void pause_workers(lk_loader *l)
{
    pthread_mutex_lock(&l->lock);
    l->paused = true;
    while (l->busy > 0)
        pthread_cond_wait(&l->done, &l->lock);
}

static lk_status create_slots(lk_loader *l)
{
    size_t most = lk__shard_range_most(l->share, l->batch), values;
    if (__builtin_mul_overflow(most, sample_size(l), &values))
        return lk__fail(LK_STATUS_MEMORY, "`batch`: %zu samples are more than can be addressed", l->batch);
    LK_TRY(LK_ALLOC(l->depth, "the loader's slots", &l->slots));
    for (size_t i = 0; i < l->depth; i++) {
        slot *s = &l->slots[i];
        if (!l->share.labels_only)
            LK_TRY(LK_ALLOC(values, "a batch (smaller with `batch`, one less with fewer `workers`)", &s->x));
        LK_TRY(LK_ALLOC(most, "a batch's labels", &s->labels));
        LK_TRY(LK_ALLOC(most, "a batch's sample ids", &s->ids));
        if (l->data->info.targets > 0)
            LK_TRY(lk__mem_alloc(most, l->data->info.targets * sizeof *s->targets, "a batch's targets",
                                 (void **)&s->targets));
    }
    return LK_OK;
}

static lk_status start_workers(lk_loader *l, size_t count)
{
    LK_TRY(LK_ALLOC(count, "the loader's threads", &l->threads));
    for (; l->workers < count; l->workers++) {
        int error = lk__thread_create(&l->threads[l->workers], worker_main, l);
        if (error != 0)
            return lk__fail(LK_STATUS_MEMORY,
                            "cannot start worker %zu of the loader: %s; use fewer (`workers`), or raise the limit on "
                            "processes (ulimit -u) or memory (ulimit -v)",
                            l->workers + 1, strerror(error));
    }
    return LK_OK;
}

/* Batches of an epoch. */
static size_t count_batches(size_t samples, const lk_loader_opts *opts)
{
    return samples / opts->batch + (!opts->drop_last && samples % opts->batch > 0);
}

static lk_status check_opts(const lk_dataset *data, const lk_loader_opts *opts)
{
    if (opts->batch == 0)
        return lk__fail(LK_STATUS_USAGE, "`batch` is 0; a batch has at least one sample");
    if (opts->workers < 0 || opts->workers > MAX_WORKERS)
        return lk__fail(LK_STATUS_USAGE, "`workers` %d is not in 0 to %d", opts->workers, MAX_WORKERS);
    LK_TRY(lk__shard_range_check(opts->share));
    if (data->info.count == 0 || data->info.count > UINT32_MAX)
        return lk__fail(LK_STATUS_UNSUPPORTED, "%s has %zu samples (supported: 1 to %u)", data->info.name,
                        data->info.count, UINT32_MAX);
    if (count_batches(data->info.count, opts) == 0)
        return lk__fail(
            LK_STATUS_USAGE,
            "with `drop_last` an epoch of %s has no batch: %zu samples are fewer than a batch of %zu; use a "
            "smaller `batch`",
            data->info.name, data->info.count, opts->batch);
    return LK_OK;
}

lk_status lk_loader_create(const lk_dataset *data, const lk_loader_opts *opts, lk_loader **out)
{
    LK_TRY(LK_GIVEN(data));
    LK_TRY(LK_GIVEN(opts));
    LK_TRY(LK_GIVEN(out));
    lk_transforms transforms = {0};
    lk_sample_shape shape = {0};
    LK_TRY(LK_CLEAR(opts, "lk_loader_opts"));
    LK_TRY(check_opts(data, opts));
    LK_TRY(lk__transforms_choose(data, opts->augment, &transforms));
    LK_TRY(lk_augmented_shape(data, opts->augment, &shape));
    lk_loader *l = NULL;
    lk_status status;
    LK_TRY(LK_ALLOC(1, "a loader", &l));
    lk__gate_init(&l->gate, "loader");
    l->data = data;
    l->rank = lk__trace_rank();
    l->batch = lk__size_min(opts->batch, data->info.count);
    l->batches = count_batches(data->info.count, opts);
    l->share = opts->share;
    l->shuffle = opts->shuffle;
    l->seed = opts->seed;
    l->transforms = transforms;
    l->shape = shape;
    if (!data->ops->values)
        lk__normalise_init(&l->normalise, data->info.mean, data->info.std, data->info.channels);
    l->paused = true;
    l->depth = opts->workers > 0 ? (size_t)opts->workers + SPARE_SLOTS : 1;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->done, NULL);
    LK_TRY_GOTO(LK_ALLOC(data->info.count, "the order of samples", &l->order), destroy_loader);
    LK_TRY_GOTO(create_slots(l), destroy_loader);
    LK_TRY_GOTO(start_workers(l, (size_t)opts->workers), destroy_loader);
    *out = l;
    return LK_OK;
destroy_loader:
    lk_loader_destroy(l);
    return status;
}

static void destroy_slots(lk_loader *l)
{
    for (size_t i = 0; l->slots != NULL && i < l->depth; i++) {
        lk__mem_free(l->slots[i].x);
        lk__mem_free(l->slots[i].labels);
        lk__mem_free(l->slots[i].targets);
        lk__mem_free(l->slots[i].ids);
        lk__image_fini(&l->slots[i].image);
        lk__image_fini(&l->slots[i].scratch);
    }
    lk__mem_free(l->slots);
}

void lk_loader_destroy(lk_loader *loader)
{
    /* A forked process cannot join the loader's workers: the memory stays until that process ends. */
    if (loader == NULL || lk__gate_inherited(&loader->gate))
        return;
    pthread_mutex_lock(&loader->lock);
    loader->stop = true;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->lock);
    for (size_t i = 0; i < loader->workers; i++)
        pthread_join(loader->threads[i], NULL);
    pthread_cond_destroy(&loader->done);
    pthread_cond_destroy(&loader->work);
    pthread_mutex_destroy(&loader->lock);
    destroy_slots(loader);
    lk__mem_free(loader->threads);
    lk__mem_free(loader->order);
    lk__mem_free(loader);
}

size_t lk_loader_batches(const lk_loader *loader)
{
    return loader ? loader->batches : 0;
}

static void set_order(lk_loader *l)
{
    uint32_t count = (uint32_t)l->data->info.count;
    if (l->shuffle) {
        lk__sampler_permute(l->seed, l->epoch, count, l->order);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        l->order[i] = i;
}

lk_loader_source lk__loader_source(const lk_loader *loader)
{
    return (lk_loader_source){.data = loader->data,
                              .transforms = &loader->transforms,
                              .shape = loader->shape,
                              .normalise = &loader->normalise,
                              .seed = loader->seed,
                              .named = loader->named};
}

void lk__loader_names_only(lk_loader *loader, const void *source)
{
    loader->named = source;
}

/* Frees the memory for samples, which are no longer loaded. */
static void drop_samples(lk_loader *l)
{
    for (size_t i = 0; i < l->depth; i++) {
        lk__mem_free(l->slots[i].x);
        l->slots[i].x = NULL;
    }
}

static lk_status start(lk_loader *loader, size_t epoch, size_t first_batch)
{
    if (epoch > UINT32_MAX)
        return lk__fail(LK_STATUS_USAGE, "epoch %zu is out of range (0 to %u)", epoch, UINT32_MAX);
    if (first_batch > loader->batches)
        return lk__fail(LK_STATUS_USAGE, "an epoch has %zu batches, it cannot start at batch %zu", loader->batches,
                        first_batch);
    pause_workers(loader);
    loader->epoch = (uint32_t)epoch;
    set_order(loader);
    loader->source = loader->named;
    if (loader->source != NULL)
        drop_samples(loader);
    loader->taken = loader->consumed = loader->held = first_batch;
    loader->started = true;
    loader->paused = false;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->lock);
    return LK_OK;
}

lk_status lk_loader_start(lk_loader *loader, size_t epoch, size_t first_batch)
{
    LK_TRY(LK_GIVEN(loader));
    LK_TRY(lk__gate_enter(&loader->gate));
    lk_status status = start(loader, epoch, first_batch);
    lk__gate_leave(&loader->gate);
    return status;
}

/* Waits for the slot of batch `consumed`, or fills it here without workers. Releases the batch that
 * was given out before. */
static slot *await_slot(lk_loader *l)
{
    size_t index = l->consumed;
    slot *s = &l->slots[index % l->depth];
    if (l->workers == 0) {
        prepare(l, index, s);
        return s;
    }
    pthread_mutex_lock(&l->lock);
    l->held = index;
    pthread_cond_broadcast(&l->work);
    while (l->taken <= index || !s->ready)
        pthread_cond_wait(&l->done, &l->lock);
    pthread_mutex_unlock(&l->lock);
    return s;
}

static lk_status next(lk_loader *loader, const lk_batch **out)
{
    if (!loader->started)
        return lk__fail(LK_STATUS_USAGE, "lk_loader_start must be called before lk_loader_next");
    if (loader->consumed == loader->batches) {
        *out = NULL;
        return LK_OK;
    }
    double began = lk__trace_begin();
    slot *s = await_slot(loader);
    lk__trace_end(LK_TRACE_KIND_DATA, "next batch", (int)loader->consumed, began);
    if (s->status != LK_OK)
        return lk__fail(s->status, "%s", s->detail);
    loader->consumed++;
    *out = &s->batch;
    return LK_OK;
}

lk_status lk_loader_next(lk_loader *loader, const lk_batch **out)
{
    LK_TRY(LK_GIVEN(loader));
    LK_TRY(LK_GIVEN(out));
    LK_TRY(lk__gate_enter(&loader->gate));
    lk_status status = next(loader, out);
    lk__gate_leave(&loader->gate);
    return status;
}
