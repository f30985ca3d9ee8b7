/* recorded.c - recording steps and evaluations, sending them, and reading their results. */
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
#include "parallel/step/marks.h"
#include "parallel/step/part_copy.h"
#include "parallel/step/staging.h"

/* Batch sizes whose recordings are kept, of steps and of evaluations. Only the last batch of an epoch or of a data set
 * has another size. */
enum { SIZES = 4 };

/* Samples of several waves are uploaded together if they take at most this many prompt uploads. Larger ones take so
 * long to compute that a recording gains nothing. */
enum { PROMPT_UPLOADS = 16 };

/* After LOOKS checks of a result, the host sleeps SLEEP_NS nanoseconds between checks and polls the device. */
enum { LOOKS = 1 << 14, SLEEP_NS = 20000 };

/* Seconds that destroying waits for steps under way. */
static const double END_WITHIN = 1;

/* Where the samples of a part come from: 0 is an upload, 1 + i is the cached data set i. */
enum { SOURCES = 1 + LK_MAX_RESIDENTS };

typedef struct known_size {
    size_t total; /* samples of all ranks; 0: unused */
    bool refused; /* a rank has no memory for the samples: batches of this size are not recorded */
    /* By source, without and with the gradient's norm; NULL until one is sent. */
    lk_device_recording *recording[SOURCES][2];
} known_size;

/* A part under way. */
typedef struct sent_part {
    lk_engine_part_copy copy;
    lk_optim_numbers before; /* the optimiser's numbers before the step */
    double launched;         /* for traces: when the part was sent; 0: without a trace */
    bool norm;               /* it takes the gradient's norm */
} sent_part;

struct lk_recorded {
    known_size sizes[2][SIZES]; /* of steps, of evaluations */
    sent_part sent[LK_RECORDED_DEPTH];
    lk_engine_part sending; /* the part being sent, as the device computes it */
    lk_flag *flag;          /* device */
    size_t samples_bytes;
    float *samples; /* device, (samples_bytes) the samples of all waves of a part; NULL until some are uploaded */
    size_t room;    /* engine->room for which the fields below and all recordings are made; 0: they are unused */
    size_t stride;
    char *ring; /* (LK_RECORDED_DEPTH, stride) results: lk_results */
    size_t in_stride;
    char *in_ring;  /* (LK_RECORDED_DEPTH, in_stride) inputs: lk_engine_step_inputs */
    uint32_t *turn; /* device: number of parts whose inputs were fetched */
    uint32_t turns; /* number of parts that were enqueued */
};

/* Collective: whether all ranks say so. */
static lk_status agree(const lk_engine *engine, bool mine, bool *out)
{
    int64_t can = mine;
    if (engine->grid.world)
        LK_TRY(lk_allreduce(engine->grid.world, (lk_buffer){&can, 1, LK_DTYPE_I64}, LK_REDUCTION_MIN, NULL));
    *out = can == 1;
    return LK_OK;
}

/* Collective: either all ranks record or none. Ranks that only evaluate need no channel. Faults are injected only into
 * steps that are not recorded; a rank alone finds that out when it sends. */
static lk_status can_record(const lk_engine *engine, bool *out)
{
    bool joined = engine->channel ? engine->channel->records : engine->opts.eval_only;
    bool may = engine->dev->type->record && !lk__graph_label_weights(engine->graph) &&
               (!engine->grid.world || (joined && engine->grid.stages == 1));
    *out = false;
    return may ? agree(engine, !engine->grid.world || !lk__fault_is_on(), out) : LK_OK;
}

static lk_status clear_flag(lk_engine *engine, lk_recorded *recorded)
{
    lk_flag flag = {.first = LK_FLAG_NONE};
    return engine->dev->type->upload(engine->dev, &flag, sizeof flag, recorded->flag);
}

static lk_status alloc_parts(lk_engine *engine, lk_recorded *recorded)
{
    lk_device *dev = engine->dev;
    for (int i = 0; i < LK_RECORDED_DEPTH; i++)
        LK_TRY(lk__engine_part_copy_init(engine, &recorded->sent[i].copy));
    LK_TRY(dev->type->alloc(dev, sizeof *recorded->flag, "results", (void **)&recorded->flag));
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
    for (int i = 0; i < 2 * SOURCES; i++) {
        lk_device_recording **recording = &size->recording[i / 2][i % 2];
        if (*recording)
            dev->type->forget(dev, *recording);
        *recording = NULL;
    }
}

static void forget_all(lk_device *dev, lk_recorded *recorded)
{
    for (int eval = 0; eval < 2; eval++)
        for (int i = 0; i < SIZES; i++)
            forget(dev, &recorded->sizes[eval][i]);
}

static void free_rings(lk_device *dev, lk_recorded *recorded)
{
    dev->type->free(dev, recorded->turn);
    dev->type->free_host(dev, recorded->in_ring);
    dev->type->free_host(dev, recorded->ring);
    recorded->turn = NULL;
    recorded->in_ring = recorded->ring = NULL;
    recorded->room = recorded->turns = 0;
}

/* Makes the rings as large as the memory of the engine. That memory grows only while nothing is under way, and a size
 * is known only when there is room for it: if parts are under way, the rings fit. */
static lk_status fit_rings(lk_engine *engine)
{
    lk_recorded *recorded = engine->recorded;
    lk_device *dev = engine->dev;
    size_t room = engine->room;
    if (recorded->room == room)
        return LK_OK;
    assert(engine->pending == 0);
    forget_all(dev, recorded);
    free_rings(dev, recorded);
    size_t results = sizeof(float) + sizeof(int32_t) + (engine->errors ? 2 * sizeof *engine->errors : 0);
    recorded->stride = lk__size_round_up(sizeof(lk_results) + room * results, LK_ALIGN);
    recorded->in_stride = lk__size_round_up(lk__engine_input_bytes(engine, room), LK_ALIGN);
    LK_TRY(dev->type->alloc_host(dev, recorded->stride * LK_RECORDED_DEPTH, "results", (void **)&recorded->ring));
    LK_TRY(dev->type->alloc_host(dev, recorded->in_stride * LK_RECORDED_DEPTH, "steps", (void **)&recorded->in_ring));
    LK_TRY(dev->type->alloc(dev, sizeof *recorded->turn, "steps", (void **)&recorded->turn));
    recorded->room = room;
    return LK_OK;
}

void lk__recorded_destroy(lk_engine *engine, lk_recorded *recorded)
{
    if (!recorded)
        return;
    lk_device *dev = engine->dev;
    if (engine->device_sums)
        end_steps(engine);
    forget_all(dev, recorded);
    free_rings(dev, recorded);
    dev->type->free(dev, recorded->samples);
    dev->type->free(dev, recorded->flag);
    for (int i = 0; i < LK_RECORDED_DEPTH; i++)
        lk__engine_part_copy_fini(&recorded->sent[i].copy);
    lk__mem_free(recorded);
}

/* Sleeps between two checks of the device; fails if a peer is lost. */
static lk_status pause_wait(lk_engine *engine, double since)
{
    if (engine->device_sums)
        LK_TRY(lk__device_sums_watch(engine->device_sums, since));
    nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    return LK_OK;
}

/* Blocks until everything that was sent is done, or a peer is lost. */
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

lk_status lk__recorded_forget(lk_engine *engine)
{
    if (!engine->recorded)
        return LK_OK;
    LK_TRY(await_idle(engine));
    forget_all(engine->dev, engine->recorded);
    return LK_OK;
}

static known_size *find_size(const lk_recorded *recorded, bool eval, size_t total)
{
    const known_size *sizes = recorded->sizes[eval];
    for (int i = 0; i < SIZES; i++)
        if (sizes[i].total == total)
            return (known_size *)(uintptr_t)&sizes[i];
    return NULL;
}

bool lk__recorded_knows(const lk_engine *engine, bool eval, size_t total)
{
    const known_size *size = engine->recorded && total > 0 ? find_size(engine->recorded, eval, total) : NULL;
    return size && !size->refused;
}

/* Whether every rank and wave has samples in a batch of this size: kernels of no samples cannot be recorded. Equal at
 * all ranks, as fits_all. */
static bool suits_all(const lk_engine *engine, bool eval, size_t total)
{
    bool alone = !engine->grid.world && (eval || engine->waves->single);
    return alone || total >= (size_t)engine->waves->shards;
}

/* Whether the samples of no rank are too large to be uploaded together, and the targets of all not too large to be
 * fetched. Samples of a single wave go to its lane. */
static bool fits_all(const lk_engine *engine, bool eval, size_t total)
{
    const lk_grid *grid = &engine->grid;
    size_t most = 0, limit = PROMPT_UPLOADS * engine->dev->type->prompt_upload;
    if (lk__engine_target_bytes(engine, total) > limit)
        return false;
    if (!eval && (engine->opts.micro_batch == 0 || lk__graph_takes_one_wave(engine->graph, engine->opts.bn)))
        return true;
    for (int r = 0; r < grid->replicas; r++)
        most = lk__size_max(most, lk__shard_begin(total, engine->waves->shards, grid->bounds[r + 1]) -
                                      lk__shard_begin(total, engine->waves->shards, grid->bounds[r]));
    return lk__engine_sample_bytes(engine, most) <= limit;
}

/* The bytes of recorded->samples that this part needs. */
static size_t samples_of_waves(const lk_engine *engine, const lk_engine_part *part)
{
    return part->x && (part->eval || !engine->waves->single) ? lk__engine_sample_bytes(engine, part->count) : 0;
}

static lk_status ensure_samples(lk_engine *engine, size_t bytes)
{
    lk_recorded *recorded = engine->recorded;
    lk_device *dev = engine->dev;
    if (bytes <= recorded->samples_bytes)
        return LK_OK;
    LK_TRY(await_idle(engine));
    forget_all(dev, recorded);
    dev->type->free(dev, recorded->samples);
    recorded->samples = NULL;
    recorded->samples_bytes = 0;
    LK_TRY(dev->type->alloc(dev, bytes, "samples", (void **)&recorded->samples));
    recorded->samples_bytes = bytes;
    return LK_OK;
}

/* Shares losses once without recording, so that the channel has run every call that will be recorded. */
static lk_status share_losses(lk_engine *engine, size_t total)
{
    LK_TRY(lk__device_sums_share(engine->device_sums, total, engine->losses));
    LK_TRY(lk__device_sums_lead_share(engine->device_sums));
    return lk__device_sums_wait(engine->device_sums);
}

lk_status lk__recorded_learn(lk_engine *engine, const lk_engine_part *part)
{
    lk_recorded *recorded = engine->recorded;
    size_t total = part->total;
    known_size *slot = find_size(recorded, part->eval, 0);
    if (find_size(recorded, part->eval, total) || !slot || !suits_all(engine, part->eval, total) ||
        !fits_all(engine, part->eval, total))
        return LK_OK;
    bool can;
    lk_status status = ensure_samples(engine, samples_of_waves(engine, part));
    if (status != LK_OK && status != LK_STATUS_MEMORY)
        return status;
    LK_TRY(agree(engine, status == LK_OK, &can));
    slot->total = total;
    slot->refused = !can;
    return engine->device_sums && !part->eval ? share_losses(engine, total) : LK_OK;
}

static bool takes_norm(const lk_engine *engine, const lk_engine_part *part)
{
    return !part->eval && (engine->norm_wanted || engine->opts.clip_norm > 0);
}

void lk__recorded_post(lk_engine *engine)
{
    const lk_recorded *recorded = engine->recorded;
    lk_post post = {.n = recorded->sending.count,
                    .loss = lk__engine_own_losses(engine, recorded->sending.eval),
                    .label_rank = engine->label_ranks,
                    .error = engine->errors,
                    .flag = recorded->flag,
                    .norm = takes_norm(engine, &recorded->sending) ? engine->params->norm : NULL,
                    .turn = &engine->inputs->numbers.turn,
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
                           .bytes = lk__engine_input_bytes(engine, recorded->sending.count),
                           .turn = recorded->turn};
    engine->dev->kernels->fetch(engine->dev, &fetch, engine->inputs);
    return &recorded->sending;
}

static int source_of(const lk_engine *engine, const lk_engine_part *part)
{
    int source = 0;
    for (int i = 0; part->resident && i < LK_MAX_RESIDENTS; i++)
        source = engine->residents[i] == part->resident ? 1 + i : source;
    return source;
}

static lk_status play(lk_engine *engine, known_size *size, lk_status (*enqueue)(void *engine))
{
    lk_device *dev = engine->dev;
    const lk_engine_part *part = &engine->recorded->sending;
    lk_device_recording **recording = &size->recording[source_of(engine, part)][takes_norm(engine, part)];
    if (!*recording) {
        LK_TRY(await_idle(engine));
        LK_TRY(dev->type->record(dev, enqueue, engine, recording));
    }
    return dev->type->play(dev, *recording);
}

/* Writes the inputs of a part to the ring from which the device fetches them. A step advances the optimiser. */
static void write_inputs(lk_engine *engine, const lk_engine_part *part)
{
    lk_recorded *recorded = engine->recorded;
    char *slot = recorded->in_ring + recorded->turns % LK_RECORDED_DEPTH * recorded->in_stride;
    lk_engine_step_inputs *inputs = (lk_engine_step_inputs *)(void *)slot;
    lk_engine_arrays to = lk__engine_arrays_at(engine, inputs, part->count);
    inputs->numbers = (lk_engine_step_numbers){
        .step = (uint32_t)lk__optim_steps(engine->optim), .epoch = part->epoch, .turn = recorded->turns};
    if (!part->eval) {
        lk__optim_count(engine->optim);
        lk__optim_advance(engine->optim, inputs->scalars);
    }
    memcpy(to.ids, part->ids, part->count * sizeof *to.ids);
    if (part->labels)
        memcpy(to.labels, part->labels, part->count * sizeof *to.labels);
    if (part->targets)
        memcpy(to.targets, part->targets, lk__engine_target_bytes(engine, part->count));
}

/* Uploads to the memory that the waves read: a single wave reads its lane. */
static lk_status upload_samples(lk_engine *engine, const lk_engine_part *part)
{
    lk_device *dev = engine->dev;
    void *lane = lk__staging_at(engine->lanes[0].samples, lk__plan_input(engine->plan, 0).data);
    void *to = lk__staging_at((void *)(uintptr_t)engine->recorded->sending.x, lane);
    return part->x ? dev->type->upload(dev, part->x, lk__engine_sample_bytes(engine, part->count), to) : LK_OK;
}

/* Prepares the memory of a part, and the part that the device computes. */
static lk_status prepare(lk_engine *engine, const lk_engine_part *part)
{
    static_assert(LK_RECORDED_DEPTH <= 4, "a prompt upload may wait for the fourth upload before it, which is done");
    lk_recorded *recorded = engine->recorded;
    size_t bytes = samples_of_waves(engine, part);
    LK_TRY(fit_rings(engine));
    LK_TRY(ensure_samples(engine, bytes));
    if (engine->device_sums && lk__engine_part_upload_waits(engine, part))
        LK_TRY(await_idle(engine));
    recorded->sending = (lk_engine_part){.x = bytes > 0 ? recorded->samples : NULL,
                                         .resident = part->resident,
                                         .count = part->count,
                                         .total = part->total,
                                         .eval = part->eval,
                                         .flag = recorded->flag};
    return upload_samples(engine, part);
}

/* For traces: an evaluation has the number of the step before it. */
static int trace_number(const sent_part *f)
{
    return (int)f->before.steps + !f->copy.part.eval;
}

static lk_status launch(lk_engine *engine, sent_part *f, int slot, lk_status (*enqueue)(void *engine))
{
    known_size *size = find_size(engine->recorded, f->copy.part.eval, f->copy.part.total);
    f->launched = lk__trace_begin();
    lk__marks_begin_step(engine, slot);
    lk_status status = play(engine, size, enqueue);
    lk__marks_end_step(engine, slot);
    lk__trace_end(LK_TRACE_KIND_DEVICE, f->copy.part.eval ? "launch evaluation" : "launch step", trace_number(f),
                  f->launched);
    return status;
}

lk_status lk__recorded_send(lk_engine *engine, const lk_engine_part *part, lk_status (*enqueue)(void *engine))
{
    lk_recorded *recorded = engine->recorded;
    LK_TRY(prepare(engine, part));
    int slot = (int)(recorded->turns % LK_RECORDED_DEPTH);
    sent_part *f = &recorded->sent[slot];
    LK_TRY(lk__engine_part_copy_set(engine, part, &f->copy));
    f->before = lk__optim_numbers(engine->optim);
    f->norm = takes_norm(engine, part);
    write_inputs(engine, part);
    lk_status status = launch(engine, f, slot, enqueue);
    if (status != LK_OK) {
        lk__optim_set_numbers(engine->optim, &f->before);
        return status;
    }
    if (!part->eval)
        lk__plan_count(engine->plan, 1);
    recorded->turns++;
    engine->pending++;
    return LK_OK;
}

/* The turn of a part under way: 0 is the oldest one, -1 the one that was received last. */
static uint32_t turn_of(const lk_engine *engine, int index)
{
    return engine->recorded->turns - (uint32_t)(engine->pending - index);
}

static bool are_there(const lk_results *results, uint32_t turn)
{
    return __atomic_load_n(&results->number, __ATOMIC_ACQUIRE) == turn + 1;
}

/* Polls the device: fails if it is idle but has not written the results. */
static lk_status ask_device(lk_engine *engine, uint32_t turn, const lk_results *results, double since)
{
    const sent_part *f = &engine->recorded->sent[turn % LK_RECORDED_DEPTH];
    bool idle = false;
    LK_TRY(engine->dev->type->poll(engine->dev, &idle));
    if (idle && !are_there(results, turn))
        return lk__fail(LK_STATUS_IO, "the device finished %s %d without its results",
                        f->copy.part.eval ? "the evaluation after step" : "step", trace_number(f));
    return pause_wait(engine, since);
}

/* Turn t's slot of the ring has the results of turn t - LK_RECORDED_DEPTH before. */
static lk_status await_results(lk_engine *engine, uint32_t turn, const lk_results **out)
{
    const lk_recorded *recorded = engine->recorded;
    const char *slot = recorded->ring + turn % LK_RECORDED_DEPTH * recorded->stride;
    const lk_results *results = (const lk_results *)(const void *)slot;
    double since = lk__clock();
    for (int looks = 0; !are_there(results, turn); looks += looks < LOOKS) {
        if (looks == LOOKS)
            LK_TRY(ask_device(engine, turn, results, since));
        else if (looks % 64 == 63)
            sched_yield();
    }
    *out = results;
    return LK_OK;
}

static void trace_received(lk_engine *engine, const sent_part *f, int slot, double began)
{
    bool eval = f->copy.part.eval;
    lk__trace_end(LK_TRACE_KIND_DEVICE, "wait for the device", trace_number(f), began);
    lk__trace_end(LK_TRACE_KIND_LAUNCHED, eval ? "evaluation on the device" : "step on the device", trace_number(f),
                  f->launched);
    lk_trace_label label = {eval ? "recorded evaluation" : "recorded step", LK_TRACE_KIND_DEVICE, trace_number(f)};
    if (f->launched > 0)
        (void)lk__marks_read_step(engine, slot, label);
}

lk_status lk__recorded_receive(lk_engine *engine, lk_engine_part *part, lk_flag *found)
{
    uint32_t turn = turn_of(engine, 0);
    int slot = (int)(turn % LK_RECORDED_DEPTH);
    const sent_part *f = &engine->recorded->sent[slot];
    const lk_results *results = NULL;
    double began = lk__trace_begin();
    LK_TRY(await_results(engine, turn, &results));
    trace_received(engine, f, slot, began);
    const float *loss = (const float *)(results + 1);
    memcpy(engine->host_losses, loss, f->copy.part.count * sizeof *loss);
    memcpy(engine->host_label_ranks, loss + f->copy.part.count, f->copy.part.count * sizeof *engine->host_label_ranks);
    if (engine->host_errors)
        memcpy(engine->host_errors, loss + 2 * f->copy.part.count, 2 * f->copy.part.count * sizeof *loss);
    *part = f->copy.part;
    *found = results->flag;
    if (!f->copy.part.eval)
        engine->grad_norm = f->norm ? sqrt(results->square) : NAN;
    engine->pending--;
    return LK_OK;
}

void lk__recorded_drop_evals(lk_engine *engine)
{
    for (int i = 0; i < engine->pending; i++)
        if (!engine->recorded->sent[turn_of(engine, i) % LK_RECORDED_DEPTH].copy.part.eval)
            return;
    if (engine->pending > 0)
        (void)engine->dev->type->sync(engine->dev); /* the failure is reported already */
    engine->pending = 0;
}

lk_status lk__recorded_roll_back(lk_engine *engine)
{
    lk_recorded *recorded = engine->recorded;
    const lk_optim_numbers *before = &recorded->sent[turn_of(engine, -1) % LK_RECORDED_DEPTH].before;
    int undone = (int)(lk__optim_steps(engine->optim) - before->steps);
    LK_TRY(await_idle(engine));
    LK_TRY(clear_flag(engine, recorded));
    lk__optim_set_numbers(engine->optim, before);
    lk__plan_count(engine->plan, -undone);
    engine->pending = 0;
    return LK_OK;
}
