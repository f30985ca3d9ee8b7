/* run_waves.c - running waves through this rank's layers.
 *
 * A wave's input comes from the batch or from the previous stage. Its activations are sent to the next stage,
 * and its gradients come back from there and go to the previous stage. Sends are under way while the next
 * wave is computed. */
#include "parallel/step/run_waves.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/trace.h"
#include "comm/collective/request.h"
#include "parallel/step/marks.h"
#include "parallel/step/outputs.h"
#include "parallel/step/pipeline.h"
#include "parallel/step/resident.h"
#include "parallel/step/staging.h"

/* A tensor that is sent to another stage or received from it. */
typedef struct message {
    lk_tensor tensor; /* data NULL: there is nothing to move */
    size_t n;         /* samples */
    void *copy;       /* staging buffer of the lane, or NULL */
    int stage;        /* the other stage */
    int lane;
} message;

/* The links to another stage. */
static const lk_links_side *links_to(const lk_engine *engine, int stage)
{
    return stage > engine->grid.stage ? &engine->links.next : &engine->links.previous;
}

static lk_buffer as_data(const message *p)
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

/* Sends or receives a message from device to device. */
static lk_status move_over(lk_engine *engine, lk_device_link *link, const message *p, bool out)
{
    lk_buffer data = as_data(p);
    double began = lk__clock();
    lk_status status = out ? lk__device_link_send(link, p->lane, data.at, data.count)
                           : lk__device_link_receive(link, data.at, data.count);
    engine->waits.other += lk__clock() - began;
    return status;
}

static lk_status send(lk_engine *engine, message p, lk_request **request)
{
    if (!p.tensor.data || p.n == 0)
        return LK_OK;
    lk_buffer data = as_data(&p);
    lk_device_link *link = links_to(engine, p.stage)->out;
    if (engine->device_sums)
        LK_TRY(lk__device_sums_wait_gather(engine->device_sums));
    if (link)
        return move_over(engine, link, &p, true);
    LK_TRY(lk__staging_fetch(engine->dev, p.tensor.data, data.count, data.at));
    LK_TRY(lk_send(engine->grid.pipeline, data, p.stage, request));
    if (lk__trace_is_on())
        lk__request_label(*request, (lk_trace_label){"message to stage", LK_TRACE_KIND_MESSAGE, p.stage}, data.count);
    return LK_OK;
}

static lk_status receive(lk_engine *engine, message p)
{
    if (!p.tensor.data || p.n == 0)
        return LK_OK;
    lk_request *request = NULL;
    lk_buffer data = as_data(&p);
    lk_device_link *link = links_to(engine, p.stage)->in;
    if (link)
        return move_over(engine, link, &p, false);
    LK_TRY(lk__staging_clear(engine->dev, p.tensor.data, data.at));
    LK_TRY(lk_recv(engine->grid.pipeline, data, p.stage, &request));
    LK_TRY(await(engine, &request));
    return lk__staging_store(engine->dev, data.at, data.count, p.tensor.data);
}

/* Uploads samples [begin, begin + n) of the part, f32 and without padding, unless they are on the device. */
static lk_status upload_samples(lk_engine *engine, const lk_engine_part *part, size_t begin, size_t n, int lane)
{
    lk_device *dev = engine->dev;
    lk_tensor input = lk__plan_input(engine->plan, lane);
    size_t sample = lk__shape_sample(input.shape);
    if (!part->x || part->flag)
        return LK_OK;
    return dev->type->upload(dev, part->x + begin * sample, n * sample * sizeof *part->x,
                             lk__staging_at(engine->lanes[lane].samples, input.data));
}

/* Copies the wave's samples, from index `begin` of the part, to the plan's input, unless they are there. */
static void take_samples(lk_engine *engine, const lk_engine_part *part, size_t begin, const lk_op_wave *wave)
{
    lk_device *dev = engine->dev;
    lk_tensor input = lk__plan_input(engine->plan, wave->lane);
    input.shape.n = wave->n;
    lk_tensor samples = {.data = engine->lanes[wave->lane].samples, .dtype = LK_DTYPE_F32, .shape = input.shape};
    if (part->flag && part->x)
        samples.data = (void *)(uintptr_t)(part->x + begin * lk__shape_sample(input.shape));
    if (part->resident)
        lk__resident_gather(engine, part->resident, wave->ids, &input);
    else if (samples.data)
        dev->kernels->copy(dev, &samples, &input);
}

static lk_status upload_floats(lk_device *dev, const float *from, size_t count, float *to)
{
    return from && count > 0 ? dev->type->upload(dev, from, count * sizeof *from, to) : LK_OK;
}

/* Uploads the numbers of the step, and the arrays of the part. A recorded part fetches them itself. A pass for outputs
 * reads no labels, and ids only to gather samples. */
static lk_status upload_inputs(lk_engine *engine, const lk_engine_part *part)
{
    lk_device *dev = engine->dev;
    size_t n = part->count;
    lk_engine_arrays to = lk__engine_arrays_at(engine, engine->inputs, n);
    lk_engine_step_numbers numbers = {.step = (uint32_t)lk__optim_steps(engine->optim), .epoch = part->epoch};
    if (part->flag || (part->wanted && !part->resident))
        return LK_OK;
    LK_TRY(dev->type->upload(dev, &numbers, sizeof numbers, &engine->inputs->numbers));
    if (part->labels && !part->wanted)
        LK_TRY(dev->type->upload(dev, part->labels, n * sizeof *part->labels, to.labels));
    LK_TRY(upload_floats(dev, part->targets, n * engine->target_floats, to.targets));
    LK_TRY(upload_floats(dev, part->weights, n, to.weights));
    return dev->type->upload(dev, part->ids, n * sizeof *part->ids, to.ids);
}

/* The samples of a wave that begins at index `begin` of the part, if the plan reads them where they are. */
static const float *samples_in_place(const lk_engine *engine, const lk_engine_part *part, size_t begin)
{
    if (!part->x || part->flag || part->wanted || !lk__plan_takes_samples(engine->plan))
        return NULL;
    return part->x + begin * lk__shape_sample(lk__plan_input(engine->plan, 0).shape);
}

/* Sets the pointers of a wave that begins at index `begin` of the part, to inputs and results in device memory. */
static void point_wave(const lk_engine *engine, const lk_engine_part *part, size_t begin, lk_op_wave *wave)
{
    lk_engine_arrays arrays = lk__engine_arrays_at(engine, engine->inputs, part->count);
    wave->samples = samples_in_place(engine, part, begin);
    wave->ids = arrays.ids + begin;
    wave->labels = arrays.labels + begin;
    wave->targets = engine->target_floats ? arrays.targets + begin * engine->target_floats : NULL;
    wave->weights = part->weights ? arrays.weights + begin : NULL;
    wave->error = engine->errors ? engine->errors + 2 * begin : NULL;
    wave->loss = lk__engine_own_losses(engine, part->eval) + begin;
    wave->label_rank = engine->label_ranks + begin;
}

/* Downloads losses and label ranks of the part, unless it is recorded or has none. */
static lk_status download_results(lk_engine *engine, const lk_engine_part *part)
{
    lk_device *dev = engine->dev;
    const float *losses = lk__engine_own_losses(engine, part->eval);
    size_t n = part->count;
    if (part->flag || part->wanted || !lk__engine_has_losses(engine))
        return LK_OK;
    if (engine->device_sums)
        LK_TRY(lk__device_sums_wait_gather(engine->device_sums));
    LK_TRY(dev->type->download(dev, losses, n * sizeof *losses, engine->host_losses));
    if (engine->errors)
        LK_TRY(dev->type->download(dev, engine->errors, 2 * n * sizeof *engine->errors, engine->host_errors));
    return dev->type->download(dev, engine->label_ranks, n * sizeof *engine->label_ranks, engine->host_label_ranks);
}

/* Fills the wave's input, unless its samples are read where they are: samples [begin, begin + wave->n) of the part, or
 * the previous stage's activations. */
static lk_status load_wave(lk_engine *engine, const lk_engine_part *part, size_t begin, const lk_op_wave *wave)
{
    lk_engine_lane *lane = &engine->lanes[wave->lane];
    lk_tensor input = lk__plan_input(engine->plan, wave->lane);
    /* The sends of the lane's previous wave may still be under way. */
    LK_TRY(await(engine, &lane->sent_value));
    LK_TRY(await(engine, &lane->sent_grad));
    LK_TRY(lk__links_clear(&engine->links, wave->lane));
    if (engine->grid.stage > 0)
        return receive(engine, (message){.tensor = input,
                                         .n = wave->n,
                                         .copy = lane->previous_copy,
                                         .stage = engine->grid.stage - 1,
                                         .lane = wave->lane});
    if (wave->samples)
        return LK_OK;
    LK_TRY(upload_samples(engine, part, begin, wave->n, wave->lane));
    take_samples(engine, part, begin, wave);
    return LK_OK;
}

static lk_status forward(lk_engine *engine, const lk_engine_part *part, size_t begin, const lk_op_wave *wave)
{
    lk_engine_lane *lane = &engine->lanes[wave->lane];
    lk__fault_work("forward");
    LK_TRY(load_wave(engine, part, begin, wave));
    LK_TRY(lk__plan_forward(engine->plan, wave));
    if (lk__engine_has_losses(engine))
        return LK_OK;
    lk_tensor output = lk__plan_output(engine->plan, wave->lane);
    return send(engine,
                (message){.tensor = output,
                          .n = wave->n,
                          .copy = lane->next_copy,
                          .stage = engine->grid.stage + 1,
                          .lane = wave->lane},
                &lane->sent_value);
}

static lk_status backward(lk_engine *engine, const lk_op_wave *wave)
{
    lk_engine_lane *lane = &engine->lanes[wave->lane];
    lk__fault_work("backward");
    if (!lk__engine_has_losses(engine)) {
        lk_tensor grad = lk__plan_output_grad(engine->plan, wave->lane);
        /* The activation has arrived before its gradient is received: both may use the same memory. */
        LK_TRY(await(engine, &lane->sent_value));
        LK_TRY(lk__links_clear(&engine->links, wave->lane));
        LK_TRY(receive(engine, (message){.tensor = grad,
                                         .n = wave->n,
                                         .copy = lane->next_copy,
                                         .stage = engine->grid.stage + 1,
                                         .lane = wave->lane}));
    }
    LK_TRY(lk__plan_backward(engine->plan, wave));
    if (engine->grid.stage == 0)
        return LK_OK;
    lk_tensor grad = lk__plan_input_grad(engine->plan, wave->lane);
    return send(engine,
                (message){.tensor = grad,
                          .n = wave->n,
                          .copy = lane->previous_copy,
                          .stage = engine->grid.stage - 1,
                          .lane = wave->lane},
                &lane->sent_grad);
}

/* Fills the fields of a wave that do not come from lk__waves_at. */
static void describe_wave(const lk_engine *engine, const lk_engine_part *part, int index, lk_op_wave *wave)
{
    wave->lane = index % engine->lane_count;
    wave->train = true;
    wave->bn = engine->opts.bn;
    wave->seed = engine->opts.seed;
    wave->smoothing = (float)engine->opts.label_smoothing;
    wave->step = &engine->inputs->numbers.step;
    wave->grad_scale = 1.0f / (float)part->total;
    wave->step_rows = part->total;
    wave->flag = part->flag;
    point_wave(engine, part, lk__waves_begin(engine->waves, index), wave);
}

static lk_op_wave wave_at(const lk_engine *engine, const lk_engine_part *part, int index)
{
    lk_op_wave wave = lk__waves_at(engine->waves, index);
    describe_wave(engine, part, index, &wave);
    return wave;
}

static lk_status await_sent(lk_engine *engine)
{
    for (int i = 0; i < engine->lane_count; i++) {
        LK_TRY(await(engine, &engine->lanes[i].sent_value));
        LK_TRY(await(engine, &engine->lanes[i].sent_grad));
        LK_TRY(lk__links_clear(&engine->links, i));
    }
    return LK_OK;
}

/* Copies the gradients of the wave's samples, from index `begin` of the part, if they are wanted. */
static void keep_input_grads(lk_engine *engine, size_t begin, const lk_op_wave *wave)
{
    lk_device *dev = engine->dev;
    lk_tensor from = lk__plan_input_grad(engine->plan, wave->lane);
    if (!engine->input_grads || wave->n == 0)
        return;
    from.shape.n = wave->n;
    lk_tensor to = {.dtype = LK_DTYPE_F32, .shape = from.shape};
    to.data = engine->input_grads + begin * lk__shape_sample(from.shape);
    dev->kernels->copy(dev, &from, &to);
}

/* In a recorded step every device checks the losses of all ranks, so they are shared after the last forward. */
static lk_status run_action(lk_engine *engine, const lk_engine_part *part, lk_pipeline_action action)
{
    lk_op_wave wave = wave_at(engine, part, action.wave);
    if (!action.forward) {
        LK_TRY(backward(engine, &wave));
        keep_input_grads(engine, lk__waves_begin(engine->waves, action.wave), &wave);
        return LK_OK;
    }
    LK_TRY(forward(engine, part, lk__waves_begin(engine->waves, action.wave), &wave));
    bool shares = wave.last && part->flag && engine->device_sums;
    return shares ? lk__device_sums_share(engine->device_sums, part->total, engine->losses) : LK_OK;
}

/* run_action, as a span with the shards of the wave. */
static lk_status act(lk_engine *engine, const lk_engine_part *part, lk_pipeline_action action)
{
    const int *shards = engine->waves->wave_shard + action.wave;
    double began = lk__trace_begin();
    if (!part->flag)
        lk__marks_add(engine, (lk_trace_label){0});
    LK_TRY(run_action(engine, part, action));
    if (began > 0)
        lk__trace_record(&(lk_trace_event){.begin = began,
                                           .end = lk__clock(),
                                           .name = "wave",
                                           .kind = action.forward ? LK_TRACE_KIND_FORWARD : LK_TRACE_KIND_BACKWARD,
                                           .number = action.wave,
                                           .from = shards[0],
                                           .to = shards[1] - 1});
    return LK_OK;
}

/* A recorded step has no hooks when it is replayed. */
static void reset_meter(const lk_engine *engine, const lk_engine_part *part, int waves)
{
    int layers = engine->grid.last_layer - engine->grid.first_layer;
    if (!engine->meter)
        return;
    atomic_store_explicit(&engine->meter->total, part->flag ? 0 : 2 * (unsigned)(layers * waves), memory_order_relaxed);
    atomic_store_explicit(&engine->meter->done, 0, memory_order_relaxed);
}

lk_status lk__engine_run_waves(lk_engine *engine, const lk_engine_part *part)
{
    const lk_grid *grid = &engine->grid;
    lk__waves_cut(engine->waves, part->total);
    lk__buckets_reset(engine->buckets, part->flag != NULL);
    int count = engine->waves->count;
    reset_meter(engine, part, count);
    LK_TRY(upload_inputs(engine, part));
    int ahead = lk__pipeline_ahead(grid->stages, grid->stage, count, engine->opts.pipelined);
    for (int i = 0; i < 2 * count; i++)
        LK_TRY(act(engine, part, lk__pipeline_action(ahead, count, i)));
    LK_TRY(lk__buckets_start(engine->buckets, engine->params->count));
    LK_TRY(await_sent(engine));
    return download_results(engine, part);
}

lk_status lk__engine_finish_waves(lk_engine *engine, const lk_engine_part *part)
{
    lk_op_wave last = wave_at(engine, part, engine->waves->count - 1);
    return lk__plan_finish(engine->plan, &last);
}

lk_status lk__engine_run_leaf(lk_engine *engine, const lk_engine_part *part, int s)
{
    int index = lk__waves_find(engine->waves, s);
    lk_op_wave wave = lk__waves_leaf(engine->waves, index, s);
    describe_wave(engine, part, index, &wave);
    wave.lane = 0;
    LK_TRY(forward(engine, part, lk__waves_begin(engine->waves, index), &wave));
    LK_TRY(backward(engine, &wave));
    return await_sent(engine);
}

/* Runs samples [begin, begin + n) of an evaluation. They are one shard: an evaluation has no sums over samples. */
static lk_status run_piece(lk_engine *engine, const lk_engine_part *part, size_t begin, size_t n)
{
    lk_op_wave wave = {.shards = {.count = 1,
                                  .begin = (const size_t[]){0, n},
                                  .most = lk__shard_largest(n, 1),
                                  .all = 1,
                                  .merges = (const int[]){0}},
                       .n = n,
                       .no_loss = part->wanted != NULL,
                       .flag = part->flag};
    point_wave(engine, part, begin, &wave);
    LK_TRY(forward(engine, part, begin, &wave));
    return part->wanted ? lk__engine_outputs_fetch(engine, part, begin, n) : LK_OK;
}

/* Runs the part in pieces that the plan has room for; their size makes no difference to the bits. */
static lk_status run_pieces(lk_engine *engine, const lk_engine_part *part)
{
    for (size_t begin = 0, n; begin < part->count; begin += n) {
        n = lk__size_min(engine->even->capacity, part->count - begin);
        LK_TRY(run_piece(engine, part, begin, n));
    }
    return LK_OK;
}

lk_status lk__engine_run_eval(lk_engine *engine, const lk_engine_part *part)
{
    LK_TRY(upload_inputs(engine, part));
    LK_TRY(run_pieces(engine, part));
    LK_TRY(await_sent(engine));
    return download_results(engine, part);
}

/* The plan's hook: gathers the partial sums, `width` floats each, of all replicas. */
static lk_status gather(void *arg, const float *mine, size_t width, float *all)
{
    lk_engine *engine = arg;
    const lk_grid *grid = &engine->grid;
    if (engine->device_sums)
        return lk__device_sums_gather(engine->device_sums, mine, width, all);
    const int *bounds = lk__engine_bounds(engine);
    size_t counts[LK_MAX_SHARDS], total = 0, offset = 0;
    for (int r = 0; r < grid->replicas; r++) {
        int roots = lk_shard_roots(engine->opts.shards, bounds[r], bounds[r + 1], NULL);
        counts[r] = (size_t)roots * width;
        offset = r == grid->replica ? total : offset;
        total += counts[r];
    }
    float *out = lk__staging_at(engine->sums_copy, all);
    lk_buffer data = {(void *)(uintptr_t)mine, counts[grid->replica], LK_DTYPE_F32};
    if (engine->sums_copy)
        data.at = engine->sums_copy + offset;
    LK_TRY(lk__staging_fetch(engine->dev, mine, data.count * sizeof *mine, data.at));
    double began = lk__clock();
    LK_TRY(lk_allgather(grid->moments, data, counts, out, NULL));
    engine->waits.other += lk__clock() - began;
    return lk__staging_store(engine->dev, out, total * sizeof *all, all);
}

/* The plan's hook after each layer. Starts buckets in the last wave's backward pass, and makes progress on
 * sums and sends under way; in a recorded step the devices do this by themselves. */
static lk_status layer_done(void *arg, const lk_op_wave *wave, size_t done)
{
    lk_engine *engine = arg;
    if (engine->meter && wave->train && wave->search < 0)
        atomic_fetch_add_explicit(&engine->meter->done, 1, memory_order_relaxed);
    if (wave->last && wave->search < 0 && done > 0)
        LK_TRY(lk__buckets_start(engine->buckets, done));
    if (wave->flag)
        return LK_OK;
    if (wave->train)
        lk__marks_add(engine, lk__trace_label());
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
