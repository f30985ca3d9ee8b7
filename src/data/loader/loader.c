/* loader.c - batches, prepared ahead by worker threads.
 *
 * Batch b of an epoch is made in slot b % depth of a ring; its content depends only on b, the epoch and the seed.
 * Workers take the samples of a batch in pieces, in their order, and those of the next batch when none are left: all
 * workers make the batch that is needed first. One lock guards all counters. Samples are made without the lock: the
 * memory of a piece belongs to the worker that took it until the batch is ready, then to the consumer until the next
 * batch is requested. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/gate.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/trace.h"
#include "data/loader/loader.h"

/* While one batch is used and one is ready, workers make at least two more, if there are two workers. Shares of a batch
 * that are small need more: each worker shall find PIECES samples. */
enum { MAX_WORKERS = 256, MAX_AUTO_WORKERS = 16, SPARE_SLOTS = 2, PIECES = 4 };

typedef struct slot {
    lk_batch batch;
    lk_loader_room room;
    const uint32_t *order; // (batch.count) ids of the samples
    size_t made;           /* samples */
    bool ready;
    lk_status status;
    size_t failed;                 /* the sample of a status that is not LK_OK */
    char detail[LK_LOADER_DETAIL]; /* of such a status */
} slot;

struct lk_loader {
    lk_gate gate;
    size_t batch, batches;
    lk_shard_range share;
    bool shuffle;
    lk_transforms transforms;
    lk_normalise normalise;

    /* Changed only while no worker is busy; named also by lk__loader_names_only. */
    bool started;
    lk_loader_source source;
    uint32_t *order;     // (count)
    const void *held_by; /* `named` at the last start; not NULL: batches have no samples */

    pthread_mutex_t lock;
    pthread_cond_t work, done;
    size_t taken;       /* all samples of the batches before it were taken by workers */
    size_t next_sample; /* of batch `taken`: samples before it were taken */
    size_t consumed;    /* batches before it were given to the consumer */
    size_t held;        /* batches before it are no longer used by the consumer */
    size_t busy;        /* workers that make a piece */
    bool paused, stop;
    lk_loader_work work_done; /* without threads */

    size_t depth;
    size_t room; /* samples of a slot */
    slot *slots;
    size_t piece;              /* samples that a worker takes at once */
    lk_loader_scratch scratch; /* of a loader without workers */
    size_t workers;            /* running threads */
    size_t named_threads;      /* threads that have their name in traces */
    pthread_t *threads;
    int rank; /* for which the loader works (trace.h) */
};

/* A part of the samples of a batch, which one thread makes. */
typedef struct piece {
    size_t batch;
    slot *slot;
    size_t begin, end; /* samples of this loader's share of the batch */
} piece;

/* Empties the slot of batch `index` for new samples. */
static void open_slot(const lk_loader *l, size_t index, slot *s)
{
    size_t first = index * l->batch, total = lk__size_min(l->batch, l->source.data->info.count - first);
    size_t count = lk_shard_range_count(l->share, total);
    const lk_loader_room *room = &s->room;
    s->order = l->order + first + lk_shard_range_begin(l->share, total);
    s->made = 0;
    s->ready = false;
    s->status = LK_OK;
    s->batch = (lk_batch){.count = count,
                          .sample_floats = lk__loader_sample_floats(&l->source),
                          .x = room->x,
                          .labels = room->labels,
                          .target_floats = l->source.data->info.targets,
                          .targets = room->targets,
                          .ids = room->ids,
                          .origins = room->origins,
                          .total = l->share.shards > 0 ? total : 0,
                          .epoch = l->source.epoch,
                          .source = l->held_by};
}

/* Takes the next samples of the first batch that has any left; an empty batch is one piece. */
static piece take_piece(lk_loader *l)
{
    piece p = {.batch = l->taken, .slot = &l->slots[l->taken % l->depth], .begin = l->next_sample};
    if (p.begin == 0)
        open_slot(l, p.batch, p.slot);
    p.end = lk__size_min(p.slot->batch.count, p.begin + l->piece);
    l->next_sample = p.end;
    if (p.end == p.slot->batch.count) {
        l->taken++;
        l->next_sample = 0;
    }
    return p;
}

/* A fault's step is the step that trains with the batch. */
static void inject_fault(const lk_loader *l, size_t index)
{
    lk_fault_site before = lk__fault_site();
    lk__fault_set_site((lk_fault_site){.rank = l->rank, .step = (uint64_t)l->source.epoch * l->batches + index + 1});
    lk__fault_work("data");
    lk__fault_set_site(before);
}

/* Makes the samples of a piece. *failed is the one that could not be made if the status is not LK_OK. */
static lk_status make_piece(const lk_loader *l, const piece *p, lk_loader_scratch *scratch, size_t *failed)
{
    double began = lk__trace_begin();
    lk_status status = LK_OK;
    if (p->begin == 0 && lk__fault_is_on())
        inject_fault(l, p->batch);
    for (*failed = p->begin; *failed < p->end; ++*failed) {
        status = lk__loader_make_sample(&l->source, p->slot->order[*failed], &p->slot->room, *failed, scratch);
        if (status != LK_OK)
            break;
    }
    lk__trace_end(LK_TRACE_KIND_DATA, "make batch", (int)p->batch, began);
    return status;
}

/* Counts a piece, which was begun at this time, as made. The error of a batch is that of its first sample that failed,
 * and is stored for the thread that requests the batch. */
static void finish_piece(lk_loader *l, const piece *p, double began, lk_status status, size_t failed)
{
    slot *s = p->slot;
    if (status != LK_OK && (s->status == LK_OK || failed < s->failed)) {
        s->status = status;
        s->failed = failed;
        snprintf(s->detail, sizeof s->detail, "%s", lk_error_detail());
    }
    if (s->batch.x) {
        l->work_done.samples += p->end - p->begin;
        l->work_done.seconds += lk__clock() - began;
    }
    s->made += p->end - p->begin;
    s->ready = s->made == s->batch.count;
}

static bool may_take(const lk_loader *l)
{
    return !l->paused && l->taken < l->batches && l->taken < l->held + l->depth;
}

static void *worker_main(void *arg)
{
    lk_loader *l = arg;
    lk_loader_scratch scratch = {0};
    pthread_mutex_lock(&l->lock);
    lk__trace_thread(l->rank, "loader", (int)l->named_threads++);
    while (!l->stop) {
        if (!may_take(l)) {
            pthread_cond_wait(&l->work, &l->lock);
            continue;
        }
        piece p = take_piece(l);
        size_t failed;
        l->busy++;
        pthread_mutex_unlock(&l->lock);
        double began = lk__clock();
        lk_status status = make_piece(l, &p, &scratch, &failed);
        pthread_mutex_lock(&l->lock);
        finish_piece(l, &p, began, status, failed);
        l->busy--;
        if (p.slot->ready || l->busy == 0)
            pthread_cond_signal(&l->done);
    }
    pthread_mutex_unlock(&l->lock);
    lk__image_fini(&scratch.image);
    lk__image_fini(&scratch.other);
    return NULL;
}

/* Returns with the lock held and no worker in a slot. No worker takes samples until paused is
 * cleared. */
static void pause_workers(lk_loader *l)
{
    pthread_mutex_lock(&l->lock);
    l->paused = true;
    while (l->busy > 0)
        pthread_cond_wait(&l->done, &l->lock);
}

/* Chooses the size of a piece; returns the samples of the share at most. */
static size_t set_piece(lk_loader *l, size_t workers)
{
    size_t most = lk__size_max(lk__shard_range_most(l->share, l->batch), 1);
    l->piece = workers > 1 ? lk__size_max(most / (PIECES * workers), 1) : most;
    return most;
}

/* Chooses the number of slots and the size of a piece. */
static void set_depth(lk_loader *l, size_t workers)
{
    size_t most = set_piece(l, workers), needed = lk__size_max((PIECES * workers + most - 1) / most, 2);
    l->depth = workers > 0 ? lk__size_min(needed, workers) + SPARE_SLOTS : 1;
}

static lk_status create_slots(lk_loader *l)
{
    size_t most = lk__shard_range_most(l->share, l->batch), values;
    if (__builtin_mul_overflow(most, lk__loader_sample_floats(&l->source), &values))
        return lk__fail(LK_STATUS_MEMORY, "`batch`: %zu samples are more than can be addressed", l->batch);
    LK_TRY(LK_ALLOC(l->depth, "the loader's slots", &l->slots));
    for (size_t i = 0; i < l->depth; i++) {
        lk_loader_room *s = &l->slots[i].room;
        if (!l->share.labels_only)
            LK_TRY(LK_ALLOC(values, "a batch (smaller with `batch`)", &s->x));
        LK_TRY(LK_ALLOC(most, "a batch's labels", &s->labels));
        LK_TRY(LK_ALLOC(most, "a batch's sample ids", &s->ids));
        if (l->source.data->origins)
            LK_TRY(LK_ALLOC(most, "a batch's sample ids", &s->origins));
        if (l->source.data->info.targets > 0)
            LK_TRY(lk__mem_alloc(most, l->source.data->info.targets * sizeof *s->targets, "a batch's targets",
                                 (void **)&s->targets));
    }
    l->room = most;
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
    l->source = (lk_loader_source){
        .data = data, .transforms = &l->transforms, .shape = shape, .normalise = &l->normalise, .seed = opts->seed};
    l->rank = lk__trace_rank();
    l->batch = lk__size_min(opts->batch, data->info.count);
    l->batches = count_batches(data->info.count, opts);
    l->share = opts->share;
    l->shuffle = opts->shuffle;
    l->transforms = transforms;
    if (!data->ops->values)
        lk__normalise_init(&l->normalise, data->info.mean, data->info.std, data->info.channels);
    l->paused = true;
    set_depth(l, (size_t)opts->workers);
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
        lk__mem_free(l->slots[i].room.x);
        lk__mem_free(l->slots[i].room.labels);
        lk__mem_free(l->slots[i].room.targets);
        lk__mem_free(l->slots[i].room.ids);
        lk__mem_free(l->slots[i].room.origins);
    }
    lk__mem_free(l->slots);
    l->slots = NULL;
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
    lk__image_fini(&loader->scratch.image);
    lk__image_fini(&loader->scratch.other);
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
    uint32_t count = (uint32_t)l->source.data->info.count;
    if (l->shuffle) {
        lk__sampler_permute(l->source.seed, l->source.epoch, count, l->order);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        l->order[i] = i;
}

lk_loader_source lk__loader_source(const lk_loader *loader)
{
    return loader->source;
}

lk_loader_work lk__loader_work(lk_loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    lk_loader_work work = loader->work_done;
    pthread_mutex_unlock(&loader->lock);
    work.threads = lk__size_max(loader->workers, 1);
    return work;
}

int lk__loader_auto_workers(const lk_dataset *data, int cores)
{
    if (!data->ops->load || cores < 1)
        return 1;
    return cores < MAX_AUTO_WORKERS ? cores : MAX_AUTO_WORKERS;
}

void lk__loader_names_only(lk_loader *loader, const void *source)
{
    loader->source.named = source;
}

/* Frees the memory for samples, which are no longer loaded. */
static void drop_samples(lk_loader *l)
{
    for (size_t i = 0; i < l->depth; i++) {
        lk__mem_free(l->slots[i].room.x);
        l->slots[i].room.x = NULL;
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
    loader->source.epoch = (uint32_t)epoch;
    set_order(loader);
    loader->held_by = loader->source.named;
    if (loader->held_by != NULL)
        drop_samples(loader);
    loader->taken = loader->consumed = loader->held = first_batch;
    loader->next_sample = 0;
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

/* Larger slots for the share, if it needs them; no worker is in a slot. */
static lk_status grow_slots(lk_loader *l)
{
    if (set_piece(l, l->workers) <= l->room)
        return LK_OK;
    destroy_slots(l);
    LK_TRY(create_slots(l));
    if (l->held_by != NULL)
        drop_samples(l);
    return LK_OK;
}

/* Batches that were made ahead have the samples of the old share: they are made again. */
static lk_status set_share(lk_loader *l, lk_shard_range share)
{
    LK_TRY(lk__shard_range_check(share));
    pause_workers(l);
    l->share = share;
    l->taken = l->held = l->consumed;
    l->next_sample = 0;
    lk_status status = grow_slots(l);
    l->paused = !l->started || status != LK_OK;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    return status;
}

lk_status lk__loader_set_share(lk_loader *loader, lk_shard_range share)
{
    LK_TRY(lk__gate_enter(&loader->gate));
    lk_status status = set_share(loader, share);
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
        l->taken = index;
        piece p = take_piece(l);
        size_t failed;
        double began = lk__clock();
        lk_status status = make_piece(l, &p, &l->scratch, &failed);
        finish_piece(l, &p, began, status, failed);
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
