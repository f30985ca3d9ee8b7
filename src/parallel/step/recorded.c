/* recorded.c - recording steps, sending them, and reading their results. */
#include "parallel/step/recorded.h"

#include <assert.h>
#include <float.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"

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

typedef struct flight {
    size_t total, count;     /* samples of all ranks, and of this one */
    lk_optim_numbers before; /* it: what the optimiser goes back to */
    uint32_t *ids;           /* (batch) */
} flight;

struct lk_recorded {
    known_size sizes[SIZES];
    flight flights[LK_AHEAD_DEPTH];
    const lk_resident *from; /* of the step that is being sent */
    uint64_t sent, received;
    size_t stride;
    char *ring;    /* (LK_AHEAD_DEPTH, stride) results */
    lk_flag *flag; /* device */
    float *losses; /* device, (batch) of all ranks; NULL for a rank alone */
    size_t in_stride;
    char *in_ring;  /* (LK_AHEAD_DEPTH, in_stride) what steps need: lk_engine_step_inputs */
    uint32_t *turn; /* device: steps that were played */
    uint32_t turns; /* the same, as far as they were enqueued */
};

/* As far as all ranks know it of each other. */
static bool may_record(const lk_engine *engine)
{
    const lk_grid *grid = &engine->grid;
    bool joined = engine->channel && engine->channel->records && grid->stages == 1;
    return engine->dev->type->record && (!grid->world || joined) && engine->opts.clip_norm == 0 &&
           !engine->opts.eval_only;
}

/* Together: steps of one are steps of all. Faults meet none that are recorded. */
static lk_status can_record(const lk_engine *engine, bool *out)
{
    lk_group *world = engine->grid.world;
    int64_t can = engine->waves->single && !(world && lk__fault_is_on());
    *out = false;
    if (!may_record(engine))
        return LK_OK;
    if (world)
        LK_TRY(lk_allreduce(world, (lk_buffer){&can, 1, LK_DTYPE_I64}, LK_REDUCTION_MIN, NULL));
    *out = can == 1;
    return LK_OK;
}

static lk_status clear_flag(lk_engine *engine, lk_recorded *ahead)
{
    lk_flag flag = {.first = LK_NOWHERE};
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
    size_t batch = engine->opts.batch;
    ahead->stride = lk__size_round_up(sizeof(lk_results) + batch * (sizeof(float) + sizeof(int32_t)), LK_ALIGN);
    for (int i = 0; i < LK_AHEAD_DEPTH; i++)
        LK_TRY(LK_ALLOC(batch, "sample ids", &ahead->flights[i].ids));
    LK_TRY(dev->type->alloc_host(dev, ahead->stride * LK_AHEAD_DEPTH, "results", (void **)&ahead->ring));
    LK_TRY(dev->type->alloc(dev, sizeof *ahead->flag, "results", (void **)&ahead->flag));
    if (engine->direct)
        LK_TRY(dev->type->alloc(dev, batch * sizeof *ahead->losses, "losses", (void **)&ahead->losses));
    ahead->in_stride = lk__size_round_up(input_bytes(batch), LK_ALIGN);
    LK_TRY(dev->type->alloc_host(dev, ahead->in_stride * LK_AHEAD_DEPTH, "steps", (void **)&ahead->in_ring));
    LK_TRY(dev->type->alloc(dev, sizeof *ahead->turn, "steps", (void **)&ahead->turn));
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
    type->free(engine->dev, ahead->turn);
    type->free_host(engine->dev, ahead->in_ring);
    type->free(engine->dev, ahead->losses);
    type->free(engine->dev, ahead->flag);
    type->free_host(engine->dev, ahead->ring);
    for (int i = 0; i < LK_AHEAD_DEPTH; i++)
        lk__mem_free(ahead->flights[i].ids);
    lk__mem_free(ahead);
}

static known_size *find_size(const lk_recorded *ahead, size_t total)
{
    for (int i = 0; i < SIZES; i++)
        if (ahead->sizes[i].total == total)
            return (known_size *)(uintptr_t)&ahead->sizes[i];
    return NULL;
}

bool lk__recorded_knows(const lk_recorded *ahead, size_t total)
{
    return find_size(ahead, total) != NULL;
}

/* Where ranks have no samples, kernels would be given nothing to do. */
static bool suits_all(const lk_engine *engine, size_t total)
{
    return !engine->grid.world || total >= (size_t)engine->waves->shards;
}

/* Ranks share losses here, once without recording, so that the channel has met all
 * that will be recorded. */
lk_status lk__recorded_learn(lk_engine *engine, size_t total)
{
    lk_recorded *ahead = engine->ahead;
    known_size *place = find_size(ahead, 0);
    if (lk__recorded_knows(ahead, total) || !place || !suits_all(engine, total))
        return LK_OK;
    place->total = total;
    if (!engine->direct)
        return LK_OK;
    LK_TRY(lk__device_sums_share(engine->direct, total, ahead->losses));
    LK_TRY(lk__device_sums_lead_share(engine->direct));
    return lk__device_sums_settle(engine->direct);
}

int lk__recorded_pending(const lk_recorded *ahead)
{
    return (int)(ahead->sent - ahead->received);
}

/* Losses are the first places, the gradients those behind. All ranks look at the
 * losses of all, and at the sums over all. */
static void look_for_nonfinite(lk_engine *engine, const lk_op_wave *wave, lk_flag *flag)
{
    lk_device *dev = engine->dev;
    const lk_params *params = engine->params;
    size_t total = engine->waves->batch;
    if (engine->opts.allow_nonfinite)
        return;
    dev->kernels->flag_above(dev, total, FLT_MAX, engine->direct ? engine->ahead->losses : wave->loss, 0, flag);
    dev->kernels->flag_above(dev, params->count, FLT_MAX, params->grads, total, flag);
}

/* First sample of this rank in a batch. */
static size_t first_sample(const lk_engine *engine, size_t total)
{
    return lk__shard_begin(total, engine->waves->shards, engine->waves->first);
}

static lk_status share_losses(lk_engine *engine, const lk_op_wave *wave)
{
    lk_device *dev = engine->dev;
    size_t total = engine->waves->batch;
    float *mine = engine->ahead->losses + first_sample(engine, total);
    dev->kernels->copy_bytes(dev, wave->n * sizeof *mine, wave->loss, mine);
    return lk__device_sums_share(engine->direct, total, engine->ahead->losses);
}

/* Until all that ranks exchange has come, the rest of the device's work waits. */
static lk_status join_ranks(lk_engine *engine)
{
    lk_buckets *buckets = engine->buckets;
    LK_TRY(lk__buckets_start(buckets, engine->params->count));
    for (int i = 0; i < buckets->count; i++)
        LK_TRY(lk__buckets_wait(buckets, i));
    lk__buckets_reset(buckets, false);
    return lk__device_sums_lead_share(engine->direct);
}

static void post_results(const lk_engine *engine, const lk_op_wave *wave)
{
    const lk_recorded *ahead = engine->ahead;
    lk_post post = {.n = wave->n,
                    .loss = wave->loss,
                    .place = wave->place,
                    .flag = ahead->flag,
                    .step = &engine->inputs->numbers.step,
                    .ring = ahead->ring,
                    .slots = LK_AHEAD_DEPTH,
                    .stride = ahead->stride};
    engine->dev->kernels->post(engine->dev, &post);
}

static void fetch_inputs(const lk_engine *engine)
{
    const lk_recorded *ahead = engine->ahead;
    lk_fetch_desc fetch = {.ring = ahead->in_ring,
                           .slots = LK_AHEAD_DEPTH,
                           .stride = ahead->in_stride,
                           .bytes = input_bytes(lk__waves_at(engine->waves, 0).n),
                           .turn = ahead->turn};
    engine->dev->kernels->fetch(engine->dev, &fetch, engine->inputs);
}

/* Enqueues a step whose samples, or data set, are on the device. */
static lk_status enqueue_step(void *arg)
{
    lk_engine *engine = arg;
    lk_recorded *ahead = engine->ahead;
    fetch_inputs(engine);
    lk__buckets_reset(engine->buckets, true);
    lk_op_wave wave = lk__engine_take_step(engine, ahead->from);
    wave.flag = ahead->flag;
    LK_TRY(lk__plan_forward(engine->plan, &wave));
    if (engine->direct)
        LK_TRY(share_losses(engine, &wave));
    LK_TRY(lk__plan_backward(engine->plan, &wave));
    if (engine->direct)
        LK_TRY(join_ranks(engine));
    look_for_nonfinite(engine, &wave, ahead->flag);
    LK_TRY(lk__plan_finish(engine->plan, &wave));
    lk__engine_update_range(engine, 0, engine->params->count, ahead->flag);
    post_results(engine, &wave);
    return LK_OK;
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

static lk_status play(lk_engine *engine, known_size *size)
{
    lk_device *dev = engine->dev;
    if (!size->recording || size->from != engine->ahead->from)
        LK_TRY(await_idle(engine));
    if (size->recording && size->from != engine->ahead->from) {
        dev->type->forget(dev, size->recording);
        size->recording = NULL;
    }
    size->from = engine->ahead->from;
    if (!size->recording)
        LK_TRY(dev->type->record(dev, enqueue_step, engine, &size->recording));
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
    size_t bytes = part->count * lk__shape_sample(engine->graph->layers[0].shape) * sizeof *part->x;
    static_assert(LK_AHEAD_DEPTH <= 4, "the fourth step before is done");
    return bytes > engine->dev->type->prompt_upload;
}

lk_status lk__recorded_send(lk_engine *engine, const lk_engine_part *part)
{
    lk_recorded *ahead = engine->ahead;
    if (engine->direct && !part->resident && upload_waits(engine, part))
        LK_TRY(await_idle(engine));
    flight *f = &ahead->flights[lk__optim_steps(engine->optim) % LK_AHEAD_DEPTH];
    ahead->from = part->resident;
    f->total = part->total;
    f->count = part->count;
    f->before = lk__optim_numbers(engine->optim);
    memcpy(f->ids, part->ids, part->count * sizeof *part->ids);
    lk__waves_cut(engine->waves, part->total);
    LK_TRY(lk__engine_upload_step(engine, part));
    /* A step of this number may have been there before: numbers can be set back. */
    results_of(ahead, f->before.steps)->number = 0;
    write_inputs(engine, part);
    lk_status status = play(engine, find_size(ahead, part->total));
    if (status != LK_OK) {
        lk__optim_set_numbers(engine->optim, &f->before);
        return status;
    }
    lk__plan_count(engine->plan, 1);
    ahead->turns++;
    ahead->sent++;
    return LK_OK;
}

/* Of the oldest step. */
static flight *oldest(const lk_engine *engine, uint64_t *step)
{
    const lk_recorded *ahead = engine->ahead;
    *step = lk__optim_steps(engine->optim) - (ahead->sent - ahead->received);
    return (flight *)(uintptr_t)&ahead->flights[*step % LK_AHEAD_DEPTH];
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

static int shard_of(const lk_engine *engine, size_t total, size_t sample)
{
    int s = 0;
    while (lk__shard_begin(total, engine->waves->shards, s + 1) <= sample)
        s++;
    return s;
}

/* Where several ranks can tell, those with more to tell come first. */
enum { KNOWS_ALL, KNOWS_SHARD };

/* What is not finite; returns how much this rank knows of it. */
static int describe_place(const lk_engine *engine, const flight *f, const lk_results *results, char *text, size_t bytes)
{
    size_t place = (size_t)results->flag.first, own = place - first_sample(engine, f->total);
    char key[LK_MAX_KEY];
    if (place >= f->total) {
        lk__params_key_at(engine->params, place - f->total, key);
        snprintf(text, bytes, "the gradient of %s is not finite", key);
        return KNOWS_ALL;
    }
    int shard = shard_of(engine, f->total, place);
    if (own >= f->count) {
        snprintf(text, bytes, "a loss of shard %d is not finite", shard);
        return KNOWS_SHARD;
    }
    double loss = (double)((const float *)(results + 1))[own];
    snprintf(text, bytes, "the loss of sample %u (shard %d) is %g", f->ids[own], shard, loss);
    return KNOWS_ALL;
}

/* The state is that from before the oldest step, which failed, and so are numbers. */
static lk_status go_back(lk_engine *engine, const flight *f, uint64_t step, const lk_results *results)
{
    lk_recorded *ahead = engine->ahead;
    char what[LK_MAX_KEY + 64] = "", text[sizeof what + 128];
    int place = results->flag.bad ? describe_place(engine, f, results, what, sizeof what) : -1;
    LK_TRY(await_idle(engine));
    LK_TRY(clear_flag(engine, ahead));
    lk__optim_set_numbers(engine->optim, &f->before);
    lk__plan_count(engine->plan, -(int64_t)(ahead->sent - ahead->received));
    ahead->received = ahead->sent;
    LK_TRY(lk__nonfinite_fail_parameters(engine, (unsigned long long)step + 1));
    snprintf(text, sizeof text, "step %llu: %s; %s", (unsigned long long)step + 1, what, lk__nonfinite_advice);
    return lk__nonfinite_fail(engine, place, text);
}

lk_status lk__recorded_receive(lk_engine *engine, lk_metrics *out)
{
    uint64_t step;
    lk_results *results = NULL;
    flight *f = oldest(engine, &step);
    LK_TRY(await_results(engine, step, &results));
    double began = lk__clock();
    bool bad = results->flag.bad;
    LK_TRY(lk__nonfinite_check_recorded(engine, f->total, &bad));
    if (bad)
        return go_back(engine, f, step, results);
    const float *loss = (const float *)(results + 1);
    memcpy(engine->loss, loss, f->count * sizeof *loss);
    memcpy(engine->place, loss + f->count, f->count * sizeof *engine->place);
    engine->ahead->received++;
    engine->own = lk__metrics_leaves(engine, f->total);
    LK_TRY(lk__metrics_total(engine, f->total, out));
    if (engine->grid.world)
        engine->waits.gradients += lk__clock() - began;
    return LK_OK;
}
