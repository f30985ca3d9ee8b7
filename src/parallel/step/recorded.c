/* recorded.c - recording steps, sending them, and reading their results. */
#include "parallel/step/recorded.h"

#include <assert.h>
#include <math.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/trace.h"
#include "parallel/step/clip.h"
#include "parallel/step/marks.h"
#include "parallel/step/staging.h"

/* Batch sizes whose recordings are kept. Only the last batch of an epoch has another size. */
enum { SIZES = 4 };

/* After LOOKS checks of a result, the host sleeps SLEEP_NS nanoseconds between checks and polls the device. */
enum { LOOKS = 1 << 14, SLEEP_NS = 20000 };

/* Seconds that destroying waits for steps under way. */
static const double END_WITHIN = 1;

typedef struct known_size {
    size_t total;                      /* samples of all ranks; 0: unused */
    lk_device_recording *recording[2]; /* of steps without and with the gradient's norm; NULL until one is sent */
    const lk_resident *from;           /* the cached data set that the recording reads; NULL: samples are uploaded */
} known_size;

/* A step under way, with copies of everything that repeating it needs. */
typedef struct sent_step {
    lk_engine_part part;     /* its pointers are ids, labels and x */
    uint32_t *ids;           /* (most) */
    int32_t *labels;         /* (most) */
    float *x;                /* samples; NULL until some are kept */
    lk_optim_numbers before; /* the optimiser's numbers before the step */
    double launched;         /* for traces: when the step was sent; 0: without a trace */
    bool norm;               /* it takes the gradient's norm */
} sent_step;

struct lk_recorded {
    known_size sizes[SIZES];
    sent_step sent[LK_RECORDED_DEPTH];
    lk_engine_part sending; /* the part of the step being sent, as the device computes it */
    size_t stride;
    char *ring;     /* (LK_RECORDED_DEPTH, stride) results of steps: lk_results */
    lk_flag *flag;  /* device */
    float *samples; /* device, (most, h, w, c) of all waves of a step; NULL if there is one wave */
    size_t in_stride;
    char *in_ring;  /* (LK_RECORDED_DEPTH, in_stride) inputs of steps: lk_engine_step_inputs */
    uint32_t *turn; /* device: number of steps whose inputs were fetched */
    uint32_t turns; /* number of steps that were enqueued */
};

static size_t sample_bytes(const lk_engine *engine, size_t count)
{
    return count * lk__shape_sample(engine->graph->layers[0].shape) * sizeof(float);
}

/* Collective: either all ranks record or none. Faults are injected only into steps that are not recorded. */
static lk_status can_record(const lk_engine *engine, bool *out)
{
    lk_group *world = engine->grid.world;
    bool joined = engine->channel && engine->channel->records && engine->grid.stages == 1;
    /* `may` is equal at all ranks, `can` is this rank's. */
    bool may =
        engine->dev->type->record && (!world || joined) && engine->opts.clip_norm == 0 && !engine->opts.eval_only;
    bool fits = !world && sample_bytes(engine, engine->most) <= engine->dev->type->prompt_upload;
    int64_t can = (engine->waves->single || fits) && !(world && lk__fault_is_on());
    if (may && world)
        LK_TRY(lk_allreduce(world, (lk_buffer){&can, 1, LK_DTYPE_I64}, LK_REDUCTION_MIN, NULL));
    *out = may && can == 1;
    return LK_OK;
}

static lk_status clear_flag(lk_engine *engine, lk_recorded *recorded)
{
    lk_flag flag = {.first = LK_FLAG_NONE};
    return engine->dev->type->upload(engine->dev, &flag, sizeof flag, recorded->flag);
}

/* Bytes of the inputs of a step of n samples. */
static size_t input_bytes(size_t n)
{
    return sizeof(lk_engine_step_inputs) + n * (sizeof(uint32_t) + sizeof(int32_t));
}

static lk_status alloc_parts(lk_engine *engine, lk_recorded *recorded)
{
    lk_device *dev = engine->dev;
    size_t most = engine->most;
    recorded->stride = lk__size_round_up(sizeof(lk_results) + most * (sizeof(float) + sizeof(int32_t)), LK_ALIGN);
    for (int i = 0; i < LK_RECORDED_DEPTH; i++) {
        LK_TRY(LK_ALLOC(most, "sample ids", &recorded->sent[i].ids));
        LK_TRY(LK_ALLOC(most, "labels", &recorded->sent[i].labels));
    }
    LK_TRY(dev->type->alloc_host(dev, recorded->stride * LK_RECORDED_DEPTH, "results", (void **)&recorded->ring));
    LK_TRY(dev->type->alloc(dev, sizeof *recorded->flag, "results", (void **)&recorded->flag));
    recorded->in_stride = lk__size_round_up(input_bytes(most), LK_ALIGN);
    LK_TRY(dev->type->alloc_host(dev, recorded->in_stride * LK_RECORDED_DEPTH, "steps", (void **)&recorded->in_ring));
    LK_TRY(dev->type->alloc(dev, sizeof *recorded->turn, "steps", (void **)&recorded->turn));
    if (!engine->waves->single)
        LK_TRY(dev->type->alloc(dev, sample_bytes(engine, most), "samples", (void **)&recorded->samples));
    return clear_flag(engine, recorded);
}

lk_status lk__recorded_create(lk_engine *engine, lk_recorded **out)
{
    lk_recorded *recorded;
    bool can;
    LK_TRY(can_record(engine, &can));
    if (!can)
        return LK_OK;
    LK_TRY(LK_ALLOC(1, "steps under way", &recorded));
    *out = recorded;
    return alloc_parts(engine, recorded);
}

/* Waits a moment for the steps under way; gives the sums up if they do not end, because other ranks may have
 * left. */
static void end_steps(lk_engine *engine)
{
    bool idle = false;
    double began = lk__clock();
    while (!idle) {
        if (engine->dev->type->poll(engine->dev, &idle) != LK_OK || lk__clock() - began > END_WITHIN) {
            lk__device_sums_give_up(engine->device_sums);
            return;
        }
        sched_yield();
    }
}

static void forget(lk_device *dev, known_size *size)
{
    for (int norm = 0; norm < 2; norm++) {
        if (size->recording[norm])
            dev->type->forget(dev, size->recording[norm]);
        size->recording[norm] = NULL;
    }
}

void lk__recorded_destroy(lk_engine *engine, lk_recorded *recorded)
{
    if (!recorded)
        return;
    const lk_device_type *type = engine->dev->type;
    if (engine->device_sums)
        end_steps(engine);
    for (int i = 0; i < SIZES; i++)
        forget(engine->dev, &recorded->sizes[i]);
    type->free(engine->dev, recorded->samples);
    type->free(engine->dev, recorded->turn);
    type->free_host(engine->dev, recorded->in_ring);
    type->free(engine->dev, recorded->flag);
    type->free_host(engine->dev, recorded->ring);
    for (int i = 0; i < LK_RECORDED_DEPTH; i++) {
        lk__mem_free(recorded->sent[i].x);
        lk__mem_free(recorded->sent[i].labels);
        lk__mem_free(recorded->sent[i].ids);
    }
    lk__mem_free(recorded);
}

static known_size *find_size(const lk_recorded *recorded, size_t total)
{
    for (int i = 0; i < SIZES; i++)
        if (recorded->sizes[i].total == total)
            return (known_size *)(uintptr_t)&recorded->sizes[i];
    return NULL;
}

bool lk__recorded_knows(const lk_engine *engine, size_t total)
{
    return engine->recorded && find_size(engine->recorded, total);
}

/* Whether every rank and wave has samples in a step of this size: kernels of no samples cannot be recorded. */
static bool suits_all(const lk_engine *engine, size_t total)
{
    return (!engine->grid.world && engine->waves->single) || total >= (size_t)engine->waves->shards;
}

/* Shares losses once without recording, so that the channel has run every call that will be recorded. */
lk_status lk__recorded_learn(lk_engine *engine, size_t total)
{
    lk_recorded *recorded = engine->recorded;
    known_size *slot = find_size(recorded, 0);
    if (find_size(recorded, total) || !slot || !suits_all(engine, total))
        return LK_OK;
    slot->total = total;
    if (!engine->device_sums)
        return LK_OK;
    LK_TRY(lk__device_sums_share(engine->device_sums, total, engine->losses));
    LK_TRY(lk__device_sums_lead_share(engine->device_sums));
    return lk__device_sums_wait(engine->device_sums);
}

void lk__recorded_post(lk_engine *engine)
{
    const lk_recorded *recorded = engine->recorded;
    lk_post post = {.n = recorded->sending.count,
                    .loss = engine->losses + lk__waves_sample(engine->waves, engine->waves->first),
                    .label_rank = engine->label_ranks,
                    .flag = recorded->flag,
                    .squares = engine->params->squares,
                    .blocks = engine->norm_wanted ? lk__clip_blocks(engine->params) : 0,
                    .step = &engine->inputs->numbers.step,
                    .ring = recorded->ring,
                    .slots = LK_RECORDED_DEPTH,
                    .stride = recorded->stride};
    engine->dev->kernels->post(engine->dev, &post);
}

const lk_engine_part *lk__recorded_fetch(lk_engine *engine)
{
    const lk_recorded *recorded = engine->recorded;
    lk_fetch_desc fetch = {.ring = recorded->in_ring,
                           .slots = LK_RECORDED_DEPTH,
                           .stride = recorded->in_stride,
                           .bytes = input_bytes(recorded->sending.count),
                           .turn = recorded->turn};
    engine->dev->kernels->fetch(engine->dev, &fetch, engine->inputs);
    return &recorded->sending;
}

/* Sleeps between two checks of the device; fails if a peer is lost. */
static lk_status pause_wait(lk_engine *engine, double since)
{
    if (engine->device_sums)
        LK_TRY(lk__device_sums_watch(engine->device_sums, since));
    nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    return LK_OK;
}

/* Blocks until all sent steps are done, or a peer is lost. */
static lk_status await_idle(lk_engine *engine)
{
    bool idle = !engine->device_sums;
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
    const lk_resident *from = engine->recorded->sending.resident;
    lk_device_recording **recording = &size->recording[engine->norm_wanted];
    if (!*recording || size->from != from)
        LK_TRY(await_idle(engine));
    if (size->from != from)
        forget(dev, size);
    size->from = from;
    if (!*recording)
        LK_TRY(dev->type->record(dev, enqueue, engine, recording));
    return dev->type->play(dev, *recording);
}

/* The slot of the ring for a step's results. */
static lk_results *results_of(const lk_recorded *recorded, uint64_t step)
{
    return (lk_results *)(void *)(recorded->ring + step % LK_RECORDED_DEPTH * recorded->stride);
}

/* Writes the step's inputs to the ring from which the device fetches them, and advances the optimiser. */
static void write_inputs(lk_engine *engine, const lk_engine_part *part)
{
    lk_recorded *recorded = engine->recorded;
    char *slot = recorded->in_ring + recorded->turns % LK_RECORDED_DEPTH * recorded->in_stride;
    lk_engine_step_inputs *inputs = (lk_engine_step_inputs *)(void *)slot;
    uint32_t *ids = (uint32_t *)(inputs + 1);
    inputs->numbers = (lk_engine_step_numbers){(uint32_t)lk__optim_steps(engine->optim), part->epoch};
    lk__optim_count(engine->optim);
    lk__optim_advance(engine->optim, inputs->scalars);
    memcpy(ids, part->ids, part->count * sizeof *ids);
    memcpy(ids + part->count, part->labels, part->count * sizeof *part->labels);
}

/* Whether the upload of the samples may wait for earlier uploads, and so for other ranks. */
static bool upload_waits(const lk_engine *engine, const lk_engine_part *part)
{
    static_assert(LK_RECORDED_DEPTH <= 4, "the fourth step before is done");
    return part->x && sample_bytes(engine, part->count) > engine->dev->type->prompt_upload;
}

/* Copies everything that repeating the step needs. Samples are copied only if they are small enough for an
 * upload that does not wait. */
static lk_status keep_part(lk_engine *engine, const lk_engine_part *part, sent_step *f)
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

/* Uploads to the memory that the waves read: a single wave reads its lane. */
static lk_status upload_samples(lk_engine *engine, const lk_engine_part *part)
{
    lk_device *dev = engine->dev;
    void *lane = lk__staging_at(engine->lanes[0].samples, lk__plan_input(engine->plan, 0).data);
    void *to = lk__staging_at(engine->recorded->samples, lane);
    return part->x ? dev->type->upload(dev, part->x, sample_bytes(engine, part->count), to) : LK_OK;
}

lk_status lk__recorded_send(lk_engine *engine, const lk_engine_part *part, lk_status (*enqueue)(void *engine))
{
    lk_recorded *recorded = engine->recorded;
    int slot = (int)(lk__optim_steps(engine->optim) % LK_RECORDED_DEPTH);
    sent_step *f = &recorded->sent[slot];
    if (engine->device_sums && upload_waits(engine, part))
        LK_TRY(await_idle(engine));
    LK_TRY(keep_part(engine, part, f));
    f->before = lk__optim_numbers(engine->optim);
    f->norm = engine->norm_wanted;
    recorded->sending = (lk_engine_part){.x = recorded->samples,
                                         .resident = part->resident,
                                         .count = part->count,
                                         .total = part->total,
                                         .flag = recorded->flag};
    LK_TRY(upload_samples(engine, part));
    /* The slot may have the results of an earlier step with this number: numbers can be set back. */
    results_of(recorded, f->before.steps)->number = 0;
    write_inputs(engine, part);
    f->launched = lk__trace_begin();
    lk__marks_begin_step(engine, slot);
    lk_status status = play(engine, find_size(recorded, part->total), enqueue);
    lk__marks_end_step(engine, slot);
    lk__trace_end(LK_TRACE_KIND_DEVICE, "launch step", (int)f->before.steps + 1, f->launched);
    if (status != LK_OK) {
        lk__optim_set_numbers(engine->optim, &f->before);
        return status;
    }
    lk__plan_count(engine->plan, 1);
    recorded->turns++;
    engine->pending++;
    return LK_OK;
}

static bool are_there(const lk_results *results, uint64_t step)
{
    return __atomic_load_n(&results->number, __ATOMIC_ACQUIRE) == (uint32_t)step + 1;
}

/* Polls the device: fails if it is idle but has not written the results. */
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
    lk_results *results = results_of(engine->recorded, step);
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
    lk_recorded *recorded = engine->recorded;
    uint64_t step = lk__optim_steps(engine->optim) - (uint64_t)engine->pending;
    const sent_step *f = &recorded->sent[step % LK_RECORDED_DEPTH];
    lk_results *results = NULL;
    double began = lk__trace_begin();
    LK_TRY(await_results(engine, step, &results));
    lk__trace_end(LK_TRACE_KIND_DEVICE, "wait for the device", (int)step + 1, began);
    lk__trace_end(LK_TRACE_KIND_LAUNCHED, "step on the device", (int)step + 1, f->launched);
    if (f->launched > 0)
        (void)lk__marks_read_step(engine, (int)(step % LK_RECORDED_DEPTH), (int)step + 1);
    const float *loss = (const float *)(results + 1);
    memcpy(engine->host_losses, loss, f->part.count * sizeof *loss);
    memcpy(engine->host_label_ranks, loss + f->part.count, f->part.count * sizeof *engine->host_label_ranks);
    *part = f->part;
    *found = results->flag;
    engine->grad_norm = f->norm ? sqrt(results->square) : NAN;
    engine->pending--;
    return LK_OK;
}

lk_status lk__recorded_roll_back(lk_engine *engine)
{
    lk_recorded *recorded = engine->recorded;
    int undone = engine->pending + 1;
    uint64_t step = lk__optim_steps(engine->optim) - (uint64_t)undone;
    LK_TRY(await_idle(engine));
    LK_TRY(clear_flag(engine, recorded));
    lk__optim_set_numbers(engine->optim, &recorded->sent[step % LK_RECORDED_DEPTH].before);
    lk__plan_count(engine->plan, -undone);
    engine->pending = 0;
    return LK_OK;
}
