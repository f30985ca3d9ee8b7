/* run_waves.c - waves on their way through this rank's layers.
 *
 * A wave comes from the batch or from the stage before, goes forward, on to the
 * next stage, and back the same way. What is sent is on its way while the next
 * wave is computed. */
#include "base/clock.h"
#include "base/mem.h"
#include "parallel/engine/engine_impl.h"
#include "parallel/step/pipeline.h"
#include "parallel/step/resident.h"
#include "parallel/step/staging.h"

/* What goes to another stage, or comes from it. */
typedef struct parcel {
    lk_tensor tensor; /* data NULL where there is nothing to move */
    size_t n;
    void *copy; /* of a lane */
    int stage;  /* the other one */
} parcel;

static lk_buffer as_data(const parcel *p)
{
    return (lk_buffer){lk__staging_at(p->copy, p->tensor.data), p->n * lk__tensor_stride(&p->tensor), LK_DTYPE_U8};
}

static lk_status await(lk_engine *engine, lk_request **request)
{
    lk_request *pending = *request;
    *request = NULL;
    if (!pending)
        return LK_OK;
    double began = lk__clock();
    LK_TRY(lk_request_wait(pending));
    engine->waits.other += lk__clock() - began;
    return LK_OK;
}

static lk_status send(lk_engine *engine, parcel p, lk_request **request)
{
    if (!p.tensor.data || p.n == 0)
        return LK_OK;
    lk_buffer data = as_data(&p);
    if (engine->direct)
        LK_TRY(lk__device_sums_settle_gather(engine->direct));
    LK_TRY(lk__staging_fetch(engine->dev, p.tensor.data, data.count, data.at));
    return lk_send(engine->grid.pipeline, data, p.stage, request);
}

static lk_status receive(lk_engine *engine, parcel p)
{
    if (!p.tensor.data || p.n == 0)
        return LK_OK;
    lk_request *request = NULL;
    lk_buffer data = as_data(&p);
    LK_TRY(lk__staging_clear(engine->dev, p.tensor.data, data.at));
    LK_TRY(lk_recv(engine->grid.pipeline, data, p.stage, &request));
    LK_TRY(await(engine, &request));
    return lk__staging_store(engine->dev, data.at, data.count, p.tensor.data);
}

/* Samples come from the host f32 and without pads, or are on the device. */
static lk_status upload_samples(lk_engine *engine, const lk_engine_part *part, size_t begin, size_t n,
                                const lk_engine_lane *lane, lk_tensor input)
{
    lk_device *dev = engine->dev;
    size_t sample = lk__shape_sample(input.shape);
    if (part->resident)
        return LK_OK;
    return dev->type->upload(dev, part->x + begin * sample, n * sample * sizeof *part->x,
                             lane->samples ? lane->samples : input.data);
}

/* Brings them to the plan's input, where they are not there already. ids, on
 * the device, tell which those are. */
static void take_samples(lk_engine *engine, const lk_resident *resident, const uint32_t *ids, size_t n,
                         const lk_engine_lane *lane, lk_tensor input)
{
    lk_device *dev = engine->dev;
    input.shape.n = n;
    lk_tensor samples = {.data = lane->samples, .dtype = LK_DTYPE_F32, .shape = input.shape};
    if (resident)
        lk__resident_gather(engine, resident, ids, &input);
    else if (lane->samples)
        dev->kernels->copy(dev, &samples, &input);
}

static lk_status upload_names(lk_engine *engine, const lk_engine_part *part, size_t begin, size_t n,
                              const lk_engine_lane *lane)
{
    lk_device *dev = engine->dev;
    LK_TRY(dev->type->upload(dev, part->labels + begin, n * sizeof *part->labels, lane->labels));
    return dev->type->upload(dev, part->ids + begin, n * sizeof *part->ids, lane->ids);
}

static void name_wave(const lk_engine_lane *lane, lk_op_wave *wave)
{
    wave->ids = lane->ids;
    wave->labels = lane->labels;
    wave->loss = lane->loss;
    wave->place = lane->place;
}

/* Brings samples [begin, begin + wave->n) of the part, or what the stage before
 * made of them, to the wave's lane. */
static lk_status load_wave(lk_engine *engine, const lk_engine_part *part, size_t begin, lk_op_wave *wave)
{
    lk_engine_lane *lane = &engine->lanes[wave->lane];
    lk_tensor input = lk__plan_input(engine->plan, wave->lane);
    /* The lane's last wave may still be on its way. */
    LK_TRY(await(engine, &lane->sent_value));
    LK_TRY(await(engine, &lane->sent_grad));
    if (engine->grid.stage == 0)
        LK_TRY(upload_samples(engine, part, begin, wave->n, lane, input));
    else
        LK_TRY(receive(engine, (parcel){input, wave->n, lane->before_copy, engine->grid.stage - 1}));
    LK_TRY(upload_names(engine, part, begin, wave->n, lane));
    if (engine->grid.stage == 0)
        take_samples(engine, part->resident, lane->ids, wave->n, lane, input);
    name_wave(lane, wave);
    return LK_OK;
}

static lk_status forward(lk_engine *engine, const lk_engine_part *part, size_t begin, lk_op_wave *wave)
{
    lk_engine_lane *lane = &engine->lanes[wave->lane];
    lk_device *dev = engine->dev;
    LK_TRY(load_wave(engine, part, begin, wave));
    LK_TRY(lk__plan_forward(engine->plan, wave));
    if (!lk__engine_has_losses(engine)) {
        lk_tensor output = lk__plan_output(engine->plan, wave->lane);
        return send(engine, (parcel){output, wave->n, lane->next_copy, engine->grid.stage + 1}, &lane->sent_value);
    }
    if (engine->direct)
        LK_TRY(lk__device_sums_settle_gather(engine->direct));
    LK_TRY(dev->type->download(dev, lane->loss, wave->n * sizeof *lane->loss, engine->loss + begin));
    return dev->type->download(dev, lane->place, wave->n * sizeof *lane->place, engine->place + begin);
}

static lk_status backward(lk_engine *engine, const lk_op_wave *wave)
{
    lk_engine_lane *lane = &engine->lanes[wave->lane];
    if (!lk__engine_has_losses(engine)) {
        lk_tensor grad = lk__plan_output_grad(engine->plan, wave->lane);
        /* It is there before its gradient comes back, and their copies are one. */
        LK_TRY(await(engine, &lane->sent_value));
        LK_TRY(receive(engine, (parcel){grad, wave->n, lane->next_copy, engine->grid.stage + 1}));
    }
    LK_TRY(lk__plan_backward(engine->plan, wave));
    if (engine->grid.stage == 0)
        return LK_OK;
    lk_tensor grad = lk__plan_input_grad(engine->plan, wave->lane);
    return send(engine, (parcel){grad, wave->n, lane->before_copy, engine->grid.stage - 1}, &lane->sent_grad);
}

/* What of a wave does not depend on its place. */
static void describe_step(const lk_engine *engine, size_t total, lk_op_wave *wave)
{
    wave->train = true;
    wave->bn = engine->opts.bn;
    wave->seed = engine->opts.seed;
    wave->smoothing = (float)engine->opts.label_smoothing;
    wave->step = &engine->inputs->numbers.step;
    wave->grad_scale = 1.0f / (float)total;
    wave->step_rows = total;
}

/* The wave's labels and ids are still in its lane when it goes backward. */
static lk_op_wave wave_at(lk_engine *engine, const lk_engine_part *part, int index)
{
    lk_op_wave wave = lk__waves_at(engine->waves, index);
    describe_step(engine, part->total, &wave);
    wave.lane = index % engine->lane_count;
    const lk_engine_lane *lane = &engine->lanes[wave.lane];
    wave.ids = lane->ids;
    wave.labels = lane->labels;
    return wave;
}

static lk_status await_sent(lk_engine *engine)
{
    for (int i = 0; i < engine->lane_count; i++) {
        LK_TRY(await(engine, &engine->lanes[i].sent_value));
        LK_TRY(await(engine, &engine->lanes[i].sent_grad));
    }
    return LK_OK;
}

static lk_status upload_numbers(lk_engine *engine, const lk_engine_part *part)
{
    lk_engine_step_numbers numbers = {.step = (uint32_t)lk__optim_steps(engine->optim), .epoch = part->epoch};
    return engine->dev->type->upload(engine->dev, &numbers, sizeof numbers, &engine->inputs->numbers);
}

lk_status lk__engine_upload_step(lk_engine *engine, const lk_engine_part *part)
{
    return upload_samples(engine, part, 0, part->count, engine->lanes, lk__plan_input(engine->plan, 0));
}

lk_op_wave lk__engine_take_step(lk_engine *engine, const lk_resident *resident)
{
    lk_op_wave wave = lk__waves_at(engine->waves, 0);
    describe_step(engine, engine->waves->batch, &wave);
    name_wave(engine->lanes, &wave);
    uint32_t *ids = (uint32_t *)(engine->inputs + 1);
    wave.ids = ids;
    wave.labels = (int32_t *)(ids + wave.n);
    take_samples(engine, resident, ids, wave.n, engine->lanes, lk__plan_input(engine->plan, 0));
    return wave;
}

lk_status lk__engine_run_waves(lk_engine *engine, const lk_engine_part *part)
{
    const lk_grid *grid = &engine->grid;
    lk__waves_cut(engine->waves, part->total);
    lk__buckets_reset(engine->buckets, false);
    int count = engine->waves->count;
    LK_TRY(upload_numbers(engine, part));
    int ahead = lk__pipeline_ahead(grid->stages, grid->stage, count, engine->opts.pipelined);
    for (int i = 0; i < 2 * count; i++) {
        lk_pipeline_action action = lk__pipeline_action(ahead, count, i);
        lk_op_wave wave = wave_at(engine, part, action.wave);
        if (action.forward)
            LK_TRY(forward(engine, part, lk__waves_begin(engine->waves, action.wave), &wave));
        else
            LK_TRY(backward(engine, &wave));
    }
    LK_TRY(lk__buckets_start(engine->buckets, engine->params->count));
    return await_sent(engine);
}

lk_status lk__engine_run_leaf(lk_engine *engine, const lk_engine_part *part, int s)
{
    int index = lk__waves_find(engine->waves, s);
    lk_op_wave wave = lk__waves_leaf(engine->waves, index, s);
    describe_step(engine, part->total, &wave);
    LK_TRY(forward(engine, part, lk__waves_begin(engine->waves, index), &wave));
    LK_TRY(backward(engine, &wave));
    return await_sent(engine);
}

/* One shard of all: evaluation adds nothing up. */
lk_status lk__engine_run_eval(lk_engine *engine, const lk_engine_part *part, size_t begin, size_t n)
{
    lk_op_wave wave = {.shards = {.count = 1, .begin = (const size_t[]){0, n}, .merges = (const int[]){0}}, .n = n};
    LK_TRY(upload_numbers(engine, part));
    LK_TRY(forward(engine, part, begin, &wave));
    return await_sent(engine);
}

static lk_status gather(void *arg, const float *mine, size_t width, float *all)
{
    lk_engine *engine = arg;
    const lk_grid *grid = &engine->grid;
    if (engine->direct)
        return lk__device_sums_gather(engine->direct, mine, width, all);
    size_t counts[LK_MAX_SHARDS], total = 0, place = 0;
    for (int r = 0; r < grid->replicas; r++) {
        int roots = lk_shard_roots(engine->opts.shards, grid->bounds[r], grid->bounds[r + 1], NULL);
        counts[r] = (size_t)roots * width;
        place = r == grid->replica ? total : place;
        total += counts[r];
    }
    float *out = lk__staging_at(engine->sums_copy, all);
    lk_buffer data = {(void *)(uintptr_t)mine, counts[grid->replica], LK_DTYPE_F32};
    if (engine->sums_copy)
        data.at = engine->sums_copy + place;
    LK_TRY(lk__staging_fetch(engine->dev, mine, data.count * sizeof *mine, data.at));
    double began = lk__clock();
    LK_TRY(lk_allgather(grid->moments, data, counts, out, NULL));
    engine->waits.other += lk__clock() - began;
    return lk__staging_store(engine->dev, out, total * sizeof *all, all);
}

/* Buckets start in the wave that completes the sums; in all others, and in
 * forward, what is under way is moved on. In a recorded step the devices do that, and
 * a rank alone has no use for buckets. */
static lk_status layer_done(void *arg, const lk_op_wave *wave, size_t done)
{
    lk_engine *engine = arg;
    bool recorded = wave->flag != NULL;
    if (wave->last && wave->search < 0 && done > 0 && (!recorded || engine->direct))
        LK_TRY(lk__buckets_start(engine->buckets, done));
    if (recorded)
        return LK_OK;
    if (engine->grid.pipeline)
        LK_TRY(lk_group_poll(engine->grid.pipeline));
    return lk__buckets_poll(engine->buckets);
}

lk_plan_hooks lk__engine_pass_hooks(lk_engine *engine)
{
    return (lk_plan_hooks){
        .arg = engine,
        .gather = engine->grid.moments ? gather : NULL,
        .layer_done = layer_done,
    };
}
