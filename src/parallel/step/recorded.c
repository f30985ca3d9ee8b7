/* recorded.c - recording steps, sending them, and reading their results. */
#include "parallel/step/recorded.h"

#include <assert.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"
#include "parallel/step/staging.h"

/* Sizes of batches that are remembered: all but the last of an epoch are alike. */
enum { SIZES = 4 };

/* Looks at a result before the host sleeps between two, and asks whether the device
 * still works; and how long. */
enum { LOOKS = 1 << 14, SLEEP_NS = 20000 };

/* Seconds for steps to end that no one waits for any more. */
static const double END_WITHIN = 1;

typedef struct known_size {
    size_t total;                   /* 0: unused */
    lk_device_recording *recording; /* NULL until it is sent for the first time */
    const lk_resident *from;        /* whose samples that takes; NULL: those that come with the batch */
} known_size;

/* A step under way, with what doing it again takes. */
typedef struct flight {
    lk_engine_part part;     /* of these copies: */
    uint32_t *ids;           /* (most) */
    int32_t *labels;         /* (most) */
    float *x;                /* a copy of samples; NULL until some are kept */
    lk_optim_numbers before; /* it: what the optimiser goes back to */
} flight;

struct lk_recorded {
    known_size sizes[SIZES];
    flight flights[LK_AHEAD_DEPTH];
    lk_engine_part sending; /* as the device does it */
    size_t stride;
    char *ring;     /* (LK_AHEAD_DEPTH, stride) results */
    lk_flag *flag;  /* device */
    float *samples; /* device, (most, h, w, c) of all waves of a step; NULL where there is one */
    size_t in_stride;
    char *in_ring;  /* (LK_AHEAD_DEPTH, in_stride) what steps need: lk_engine_step_inputs */
    uint32_t *turn; /* device: steps that were played */
    uint32_t turns; /* the same, as far as they were enqueued */
};

static size_t sample_bytes(const lk_engine *engine, size_t count)
{
    return count * lk__shape_sample(engine->graph->layers[0].shape) * sizeof(float);
}

/* Together: steps of one are steps of all. Faults meet none that are recorded. */
static lk_status can_record(const lk_engine *engine, bool *out)
{
    lk_group *world = engine->grid.world;
    bool joined = engine->channel && engine->channel->records && engine->grid.stages == 1;
    /* What all ranks know of each other, and what only this one knows. */
    bool may =
        engine->dev->type->record && (!world || joined) && engine->opts.clip_norm == 0 && !engine->opts.eval_only;
    bool fits = !world && sample_bytes(engine, engine->most) <= engine->dev->type->prompt_upload;
    int64_t can = (engine->waves->single || fits) && !(world && lk__fault_is_on());
    if (may && world)
        LK_TRY(lk_allreduce(world, (lk_buffer){&can, 1, LK_DTYPE_I64}, LK_REDUCTION_MIN, NULL));
    *out = may && can == 1;
    return LK_OK;
}

static lk_status clear_flag(lk_engine *engine, lk_recorded *ahead)
{
    lk_flag flag = {.first = LK_FLAG_NONE};
    return engine->dev->type->upload(engine->dev, &flag, sizeof flag, ahead->flag);
}

/* Of a step of n samples. */
static size_t input_bytes(size_t n)
{
    return sizeof(lk_engine_step_inputs) + n * (sizeof(uint32_t) + sizeof(int32_t));
}

static lk_status alloc_parts(lk_engine *engine, lk_recorded *ahead)
{
    lk_device *dev = engine->dev;
    size_t most = engine->most;
    ahead->stride = lk__size_round_up(sizeof(lk_results) + most * (sizeof(float) + sizeof(int32_t)), LK_ALIGN);
    for (int i = 0; i < LK_AHEAD_DEPTH; i++) {
        LK_TRY(LK_ALLOC(most, "sample ids", &ahead->flights[i].ids));
        LK_TRY(LK_ALLOC(most, "labels", &ahead->flights[i].labels));
    }
    LK_TRY(dev->type->alloc_host(dev, ahead->stride * LK_AHEAD_DEPTH, "results", (void **)&ahead->ring));
    LK_TRY(dev->type->alloc(dev, sizeof *ahead->flag, "results", (void **)&ahead->flag));
    ahead->in_stride = lk__size_round_up(input_bytes(most), LK_ALIGN);
    LK_TRY(dev->type->alloc_host(dev, ahead->in_stride * LK_AHEAD_DEPTH, "steps", (void **)&ahead->in_ring));
    LK_TRY(dev->type->alloc(dev, sizeof *ahead->turn, "steps", (void **)&ahead->turn));
    if (!engine->waves->single)
        LK_TRY(dev->type->alloc(dev, sample_bytes(engine, most), "samples", (void **)&ahead->samples));
    return clear_flag(engine, ahead);
}

lk_status lk__recorded_create(lk_engine *engine, lk_recorded **out)
{
    lk_recorded *ahead;
    bool can;
    LK_TRY(can_record(engine, &can));
    if (!can)
        return LK_OK;
    LK_TRY(LK_ALLOC(1, "steps under way", &ahead));
    *out = ahead;
    return alloc_parts(engine, ahead);
}

/* What is under way may wait for ranks that will never come. */
static void end_steps(lk_engine *engine)
{
    bool idle = false;
    double began = lk__clock();
    while (!idle) {
        if (engine->dev->type->poll(engine->dev, &idle) != LK_OK || lk__clock() - began > END_WITHIN) {
            lk__device_sums_give_up(engine->direct);
            return;
        }
        sched_yield();
    }
}

void lk__recorded_destroy(lk_engine *engine, lk_recorded *ahead)
{
    if (!ahead)
        return;
    const lk_device_type *type = engine->dev->type;
    if (engine->direct)
        end_steps(engine);
    for (int i = 0; i < SIZES; i++)
        if (ahead->sizes[i].recording)
            type->forget(engine->dev, ahead->sizes[i].recording);
    type->free(engine->dev, ahead->samples);
    type->free(engine->dev, ahead->turn);
    type->free_host(engine->dev, ahead->in_ring);
    type->free(engine->dev, ahead->flag);
    type->free_host(engine->dev, ahead->ring);
    for (int i = 0; i < LK_AHEAD_DEPTH; i++) {
        lk__mem_free(ahead->flights[i].x);
        lk__mem_free(ahead->flights[i].labels);
        lk__mem_free(ahead->flights[i].ids);
    }
    lk__mem_free(ahead);
}

static known_size *find_size(const lk_recorded *ahead, size_t total)
{
    for (int i = 0; i < SIZES; i++)
        if (ahead->sizes[i].total == total)
            return (known_size *)(uintptr_t)&ahead->sizes[i];
    return NULL;
}

bool lk__recorded_knows(const lk_engine *engine, size_t total)
{
    return engine->ahead && find_size(engine->ahead, total);
}

/* Where ranks or waves have no samples, kernels would be given nothing to do. */
static bool suits_all(const lk_engine *engine, size_t total)
{
    return (!engine->grid.world && engine->waves->single) || total >= (size_t)engine->waves->shards;
}

/* Ranks share losses here, once without recording, so that the channel has met all
 * that will be recorded. */
lk_status lk__recorded_learn(lk_engine *engine, size_t total)
{
    lk_recorded *ahead = engine->ahead;
    known_size *place = find_size(ahead, 0);
    if (find_size(ahead, total) || !place || !suits_all(engine, total))
        return LK_OK;
    place->total = total;
    if (!engine->direct)
        return LK_OK;
    LK_TRY(lk__device_sums_share(engine->direct, total, engine->losses));
    LK_TRY(lk__device_sums_lead_share(engine->direct));
    return lk__device_sums_wait(engine->direct);
}

void lk__recorded_post(lk_engine *engine)
{
    const lk_recorded *ahead = engine->ahead;
    lk_post post = {.n = ahead->sending.count,
                    .loss = engine->losses + lk__waves_sample(engine->waves, engine->waves->first),
                    .label_rank = engine->places,
                    .flag = ahead->flag,
                    .step = &engine->inputs->numbers.step,
                    .ring = ahead->ring,
                    .slots = LK_AHEAD_DEPTH,
                    .stride = ahead->stride};
    engine->dev->kernels->post(engine->dev, &post);
}

const lk_engine_part *lk__recorded_fetch(lk_engine *engine)
{
    const lk_recorded *ahead = engine->ahead;
    lk_fetch_desc fetch = {.ring = ahead->in_ring,
                           .slots = LK_AHEAD_DEPTH,
                           .stride = ahead->in_stride,
                           .bytes = input_bytes(ahead->sending.count),
                           .turn = ahead->turn};
    engine->dev->kernels->fetch(engine->dev, &fetch, engine->inputs);
    return &ahead->sending;
}

/* Between two looks at the device. */
static lk_status pause_wait(lk_engine *engine, double since)
{
    if (engine->direct)
        LK_TRY(lk__device_sums_watch(engine->direct, since));
    nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    return LK_OK;
}

/* Until all steps that were sent are done, or a peer is lost. */
static lk_status await_idle(lk_engine *engine)
{
    bool idle = !engine->direct;
    double since = lk__clock();
    while (!idle) {
        LK_TRY(engine->dev->type->poll(engine->dev, &idle));
        if (!idle)
            LK_TRY(pause_wait(engine, since));
    }
    return engine->dev->type->sync(engine->dev);
}

static lk_status play(lk_engine *engine, known_size *size, lk_status (*enqueue)(void *engine))
{
    lk_device *dev = engine->dev;
    const lk_resident *from = engine->ahead->sending.resident;
    if (!size->recording || size->from != from)
        LK_TRY(await_idle(engine));
    if (size->recording && size->from != from) {
        dev->type->forget(dev, size->recording);
        size->recording = NULL;
    }
    size->from = from;
    if (!size->recording)
        LK_TRY(dev->type->record(dev, enqueue, engine, &size->recording));
    return dev->type->play(dev, size->recording);
}

/* Where a step's results go. */
static lk_results *results_of(const lk_recorded *ahead, uint64_t step)
{
    return (lk_results *)(void *)(ahead->ring + step % LK_AHEAD_DEPTH * ahead->stride);
}

/* What the step at hand needs, to the place in which the device will look for it; the
 * optimiser goes on to it. */
static void write_inputs(lk_engine *engine, const lk_engine_part *part)
{
    lk_recorded *ahead = engine->ahead;
    char *slot = ahead->in_ring + ahead->turns % LK_AHEAD_DEPTH * ahead->in_stride;
    lk_engine_step_inputs *inputs = (lk_engine_step_inputs *)(void *)slot;
    uint32_t *ids = (uint32_t *)(inputs + 1);
    inputs->numbers = (lk_engine_step_numbers){(uint32_t)lk__optim_steps(engine->optim), part->epoch};
    lk__optim_count(engine->optim);
    lk__optim_advance(engine->optim, inputs->scalars);
    memcpy(ids, part->ids, part->count * sizeof *ids);
    memcpy(ids + part->count, part->labels, part->count * sizeof *part->labels);
}

/* Whether the upload of samples may wait for earlier ones, and so for other ranks. */
static bool upload_waits(const lk_engine *engine, const lk_engine_part *part)
{
    static_assert(LK_AHEAD_DEPTH <= 4, "the fourth step before is done");
    return part->x && sample_bytes(engine, part->count) > engine->dev->type->prompt_upload;
}

/* Keeps what doing the step again would take. Samples are kept where a copy of them takes
 * no more than an upload that does not wait. */
static lk_status keep_part(lk_engine *engine, const lk_engine_part *part, flight *f)
{
    size_t room = lk__size_min(engine->dev->type->prompt_upload, sample_bytes(engine, engine->most));
    f->part = *part;
    f->part.ids = f->ids;
    f->part.labels = f->labels;
    f->part.x = NULL;
    memcpy(f->ids, part->ids, part->count * sizeof *f->ids);
    memcpy(f->labels, part->labels, part->count * sizeof *f->labels);
    if (!part->x || upload_waits(engine, part))
        return LK_OK;
    if (!f->x)
        LK_TRY(LK_ALLOC(room / sizeof *f->x, "samples", &f->x));
    memcpy(f->x, part->x, sample_bytes(engine, part->count));
    f->part.x = f->x;
    return LK_OK;
}

/* To where the waves look for them: the only one in its lane. */
static lk_status upload_samples(lk_engine *engine, const lk_engine_part *part)
{
    lk_device *dev = engine->dev;
    void *lane = lk__staging_at(engine->lanes[0].samples, lk__plan_input(engine->plan, 0).data);
    void *to = lk__staging_at(engine->ahead->samples, lane);
    return part->x ? dev->type->upload(dev, part->x, sample_bytes(engine, part->count), to) : LK_OK;
}

lk_status lk__recorded_send(lk_engine *engine, const lk_engine_part *part, lk_status (*enqueue)(void *engine))
{
    lk_recorded *ahead = engine->ahead;
    flight *f = &ahead->flights[lk__optim_steps(engine->optim) % LK_AHEAD_DEPTH];
    if (engine->direct && upload_waits(engine, part))
        LK_TRY(await_idle(engine));
    LK_TRY(keep_part(engine, part, f));
    f->before = lk__optim_numbers(engine->optim);
    ahead->sending = (lk_engine_part){.x = ahead->samples,
                                      .resident = part->resident,
                                      .count = part->count,
                                      .total = part->total,
                                      .flag = ahead->flag};
    LK_TRY(upload_samples(engine, part));
    /* A step of this number may have been there before: numbers can be set back. */
    results_of(ahead, f->before.steps)->number = 0;
    write_inputs(engine, part);
    lk_status status = play(engine, find_size(ahead, part->total), enqueue);
    if (status != LK_OK) {
        lk__optim_set_numbers(engine->optim, &f->before);
        return status;
    }
    lk__plan_count(engine->plan, 1);
    ahead->turns++;
    engine->pending++;
    return LK_OK;
}

static bool are_there(const lk_results *results, uint64_t step)
{
    return __atomic_load_n(&results->number, __ATOMIC_ACQUIRE) == (uint32_t)step + 1;
}

/* A device that is done must have left the results. */
static lk_status ask_device(lk_engine *engine, uint64_t step, const lk_results *results, double since)
{
    bool idle = false;
    LK_TRY(engine->dev->type->poll(engine->dev, &idle));
    if (idle && !are_there(results, step))
        return lk__fail(LK_STATUS_IO, "the device finished step %llu without its results",
                        (unsigned long long)step + 1);
    return pause_wait(engine, since);
}

static lk_status await_results(lk_engine *engine, uint64_t step, lk_results **out)
{
    lk_results *results = results_of(engine->ahead, step);
    double since = lk__clock();
    for (int looks = 0; !are_there(results, step); looks += looks < LOOKS) {
        if (looks == LOOKS)
            LK_TRY(ask_device(engine, step, results, since));
        else if (looks % 64 == 63)
            sched_yield();
    }
    *out = results;
    return LK_OK;
}

lk_status lk__recorded_receive(lk_engine *engine, lk_engine_part *part, lk_flag *found)
{
    lk_recorded *ahead = engine->ahead;
    uint64_t step = lk__optim_steps(engine->optim) - (uint64_t)engine->pending;
    const flight *f = &ahead->flights[step % LK_AHEAD_DEPTH];
    lk_results *results = NULL;
    LK_TRY(await_results(engine, step, &results));
    const float *loss = (const float *)(results + 1);
    memcpy(engine->loss, loss, f->part.count * sizeof *loss);
    memcpy(engine->place, loss + f->part.count, f->part.count * sizeof *engine->place);
    *part = f->part;
    *found = results->flag;
    engine->pending--;
    return LK_OK;
}

lk_status lk__recorded_go_back(lk_engine *engine)
{
    lk_recorded *ahead = engine->ahead;
    int undone = engine->pending + 1;
    uint64_t step = lk__optim_steps(engine->optim) - (uint64_t)undone;
    LK_TRY(await_idle(engine));
    LK_TRY(clear_flag(engine, ahead));
    lk__optim_set_numbers(engine->optim, &ahead->flights[step % LK_AHEAD_DEPTH].before);
    lk__plan_count(engine->plan, -undone);
    engine->pending = 0;
    return LK_OK;
}
