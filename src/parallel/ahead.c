/* ahead.c - recording steps, sending them, and reading their results. */
#include "parallel/ahead.h"

#include <float.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"

/* Sizes of batches that are remembered: all but the last of an epoch are alike. */
enum { SIZES = 4 };

/* Looks at a result before the host sleeps between two, and asks whether the device
 * still works; and how long. */
enum { LOOKS = 1 << 14, SLEEP_NS = 20000 };

typedef struct known_size {
    size_t total;            /* 0: unused */
    lk_recording *recording; /* NULL until it is sent for the first time */
    const lk_resident *from; /* whose samples that takes; NULL: those that come with the batch */
} known_size;

typedef struct flight {
    size_t total;
    lk_optim_numbers before; /* it: what the optimiser goes back to */
    uint32_t *ids;           /* (batch) */
} flight;

struct lk_ahead {
    known_size sizes[SIZES];
    flight flights[LK_AHEAD_DEPTH];
    const lk_resident *from; /* of the step that is being sent */
    uint64_t sent, received;
    size_t stride;
    char *ring;    /* (LK_AHEAD_DEPTH, stride) results */
    lk_flag *flag; /* device */
    size_t in_stride;
    char *in_ring;  /* (LK_AHEAD_DEPTH, in_stride) what steps need: lk_step_inputs */
    uint32_t *turn; /* device: steps that were played */
    uint32_t turns; /* the same, as far as they were enqueued */
};

static bool can_record(const lk_engine *engine)
{
    return engine->dev->type->record && !engine->grid.world && engine->waves->single && engine->opts.clip_norm == 0 &&
           !engine->opts.eval_only;
}

static lk_status clear_flag(lk_engine *engine, lk_ahead *ahead)
{
    lk_flag flag = {.first = LK_NOWHERE};
    return engine->dev->type->upload(engine->dev, &flag, sizeof flag, ahead->flag);
}

/* Of a step of n samples. */
static size_t input_bytes(size_t n)
{
    return sizeof(lk_step_inputs) + n * (sizeof(uint32_t) + sizeof(int32_t));
}

static lk_status alloc_parts(lk_engine *engine, lk_ahead *ahead)
{
    lk_device *dev = engine->dev;
    size_t batch = engine->opts.batch;
    ahead->stride = lk__round_up(sizeof(lk_results) + batch * (sizeof(float) + sizeof(int32_t)), LK_ALIGN);
    for (int i = 0; i < LK_AHEAD_DEPTH; i++)
        LK_TRY(LK_ALLOC(batch, "sample ids", &ahead->flights[i].ids));
    LK_TRY(dev->type->alloc_host(dev, ahead->stride * LK_AHEAD_DEPTH, "results", (void **)&ahead->ring));
    LK_TRY(dev->type->alloc(dev, sizeof *ahead->flag, "results", (void **)&ahead->flag));
    ahead->in_stride = lk__round_up(input_bytes(batch), LK_ALIGN);
    LK_TRY(dev->type->alloc_host(dev, ahead->in_stride * LK_AHEAD_DEPTH, "steps", (void **)&ahead->in_ring));
    LK_TRY(dev->type->alloc(dev, sizeof *ahead->turn, "steps", (void **)&ahead->turn));
    return clear_flag(engine, ahead);
}

lk_status lk__ahead_create(lk_engine *engine, lk_ahead **out)
{
    lk_ahead *ahead;
    if (!can_record(engine))
        return LK_OK;
    LK_TRY(LK_ALLOC(1, "steps under way", &ahead));
    *out = ahead;
    return alloc_parts(engine, ahead);
}

void lk__ahead_destroy(lk_engine *engine, lk_ahead *ahead)
{
    if (!ahead)
        return;
    const lk_device_type *type = engine->dev->type;
    for (int i = 0; i < SIZES; i++)
        if (ahead->sizes[i].recording)
            type->forget(engine->dev, ahead->sizes[i].recording);
    type->free(engine->dev, ahead->turn);
    type->free_host(engine->dev, ahead->in_ring);
    type->free(engine->dev, ahead->flag);
    type->free_host(engine->dev, ahead->ring);
    for (int i = 0; i < LK_AHEAD_DEPTH; i++)
        lk__free(ahead->flights[i].ids);
    lk__free(ahead);
}

static known_size *find_size(const lk_ahead *ahead, size_t total)
{
    for (int i = 0; i < SIZES; i++)
        if (ahead->sizes[i].total == total)
            return (known_size *)(uintptr_t)&ahead->sizes[i];
    return NULL;
}

bool lk__ahead_knows(const lk_ahead *ahead, size_t total)
{
    return find_size(ahead, total) != NULL;
}

void lk__ahead_learn(lk_ahead *ahead, size_t total)
{
    for (int i = 0; i < SIZES && !lk__ahead_knows(ahead, total); i++)
        if (ahead->sizes[i].total == 0)
            ahead->sizes[i].total = total;
}

int lk__ahead_pending(const lk_ahead *ahead)
{
    return (int)(ahead->sent - ahead->received);
}

/* Losses are the first places, the gradients those behind. */
static void look_for_nonfinite(lk_engine *engine, const lk_wave *wave, lk_flag *flag)
{
    lk_device *dev = engine->dev;
    const lk_params *params = engine->params;
    if (engine->opts.allow_nonfinite)
        return;
    dev->kernels->flag_above(dev, wave->n, FLT_MAX, wave->loss, 0, flag);
    dev->kernels->flag_above(dev, params->count, FLT_MAX, params->grads, wave->n, flag);
}

static void post_results(const lk_engine *engine, const lk_wave *wave)
{
    const lk_ahead *ahead = engine->ahead;
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
    const lk_ahead *ahead = engine->ahead;
    lk_fetch_desc fetch = {.ring = ahead->in_ring,
                           .slots = LK_AHEAD_DEPTH,
                           .stride = ahead->in_stride,
                           .bytes = input_bytes(engine->waves->batch),
                           .turn = ahead->turn};
    engine->dev->kernels->fetch(engine->dev, &fetch, engine->inputs);
}

/* Enqueues a step whose samples, or data set, are on the device. */
static lk_status enqueue_step(void *arg)
{
    lk_engine *engine = arg;
    lk_ahead *ahead = engine->ahead;
    fetch_inputs(engine);
    lk_wave wave = lk__take_step(engine, ahead->from);
    wave.flag = ahead->flag;
    LK_TRY(lk__plan_forward(engine->plan, &wave));
    LK_TRY(lk__plan_backward(engine->plan, &wave));
    look_for_nonfinite(engine, &wave, ahead->flag);
    LK_TRY(lk__plan_finish(engine->plan, &wave));
    lk__update_range(engine, 0, engine->params->count, ahead->flag);
    post_results(engine, &wave);
    return LK_OK;
}

static lk_status play(lk_engine *engine, known_size *size)
{
    lk_device *dev = engine->dev;
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
static lk_results *results_of(const lk_ahead *ahead, uint64_t step)
{
    return (lk_results *)(void *)(ahead->ring + step % LK_AHEAD_DEPTH * ahead->stride);
}

/* What the step at hand needs, to the place in which the device will look for it; the
 * optimiser goes on to it. */
static void write_inputs(lk_engine *engine, const lk_part *part)
{
    lk_ahead *ahead = engine->ahead;
    char *slot = ahead->in_ring + ahead->turns % LK_AHEAD_DEPTH * ahead->in_stride;
    lk_step_inputs *inputs = (lk_step_inputs *)(void *)slot;
    uint32_t *ids = (uint32_t *)(inputs + 1);
    inputs->numbers = (lk_step_numbers){(uint32_t)lk__optim_steps(engine->optim), part->epoch};
    lk__optim_advance(engine->optim, inputs->scalars);
    memcpy(ids, part->ids, part->count * sizeof *ids);
    memcpy(ids + part->count, part->labels, part->count * sizeof *part->labels);
}

lk_status lk__ahead_send(lk_engine *engine, const lk_part *part)
{
    lk_ahead *ahead = engine->ahead;
    flight *f = &ahead->flights[lk__optim_steps(engine->optim) % LK_AHEAD_DEPTH];
    ahead->from = part->resident;
    f->total = part->total;
    f->before = lk__optim_numbers(engine->optim);
    memcpy(f->ids, part->ids, part->count * sizeof *part->ids);
    lk__waves_cut(engine->waves, part->total);
    LK_TRY(lk__upload_step(engine, part));
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
    const lk_ahead *ahead = engine->ahead;
    *step = lk__optim_steps(engine->optim) - (ahead->sent - ahead->received);
    return (flight *)(uintptr_t)&ahead->flights[*step % LK_AHEAD_DEPTH];
}

static bool are_there(const lk_results *results, uint64_t step)
{
    return __atomic_load_n(&results->number, __ATOMIC_ACQUIRE) == (uint32_t)step + 1;
}

/* A device that is done must have left the results. */
static lk_status ask_device(lk_engine *engine, uint64_t step, const lk_results *results)
{
    bool idle = false;
    LK_TRY(engine->dev->type->poll(engine->dev, &idle));
    if (idle && !are_there(results, step))
        return lk__fail(LK_STATUS_IO, "the device finished step %llu without its results",
                        (unsigned long long)step + 1);
    nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    return LK_OK;
}

static lk_status await_results(lk_engine *engine, uint64_t step, lk_results **out)
{
    lk_results *results = results_of(engine->ahead, step);
    for (int looks = 0; !are_there(results, step); looks += looks < LOOKS) {
        if (looks == LOOKS)
            LK_TRY(ask_device(engine, step, results));
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

/* The state is that from before the oldest step, which failed, and so are numbers. */
static lk_status go_back(lk_engine *engine, const flight *f, uint64_t step, const lk_results *results)
{
    uint64_t place = results->flag.first;
    double loss = place < f->total ? (double)((const float *)(results + 1))[place] : 0;
    lk_ahead *ahead = engine->ahead;
    char key[LK_MAX_KEY], what[LK_MAX_KEY + 64];
    LK_TRY(engine->dev->type->sync(engine->dev));
    LK_TRY(clear_flag(engine, ahead));
    lk__optim_set_numbers(engine->optim, &f->before);
    lk__plan_count(engine->plan, -(int64_t)(ahead->sent - ahead->received));
    ahead->received = ahead->sent;
    if (place < f->total) {
        snprintf(what, sizeof what, "the loss of sample %u (shard %d) is %g", f->ids[place],
                 shard_of(engine, f->total, (size_t)place), loss);
    } else {
        lk__params_key_at(engine->params, (size_t)place - f->total, key);
        snprintf(what, sizeof what, "the gradient of %s is not finite", key);
    }
    return lk__fail(LK_STATUS_NONFINITE, "step %llu: %s; %s", (unsigned long long)step + 1, what, lk__nonfinite_advice);
}

lk_status lk__ahead_receive(lk_engine *engine, lk_metrics *out)
{
    uint64_t step;
    lk_results *results = NULL;
    flight *f = oldest(engine, &step);
    LK_TRY(await_results(engine, step, &results));
    if (results->flag.bad)
        return go_back(engine, f, step, results);
    const float *loss = (const float *)(results + 1);
    memcpy(engine->loss, loss, f->total * sizeof *loss);
    memcpy(engine->place, loss + f->total, f->total * sizeof *engine->place);
    engine->ahead->received++;
    engine->own = lk__metrics_leaves(engine, f->total);
    LK_TRY(lk__check_total(engine, f->total));
    return lk__metrics_total(engine, f->total, out);
}
