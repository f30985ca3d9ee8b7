/* engine.c - the public functions of an engine: checks of arguments, the gate against concurrent
 * calls, the status. The steps themselves are in step.c. */
#include "parallel/engine/engine.h"

#include <math.h>

#include "base/cores.h"
#include "base/fault.h"
#include "base/mem.h"
#include "nn/op.h"
#include "parallel/engine/backend.h"
#include "parallel/step/outputs.h"
#include "parallel/step/recorded.h"
#include "parallel/step/resident.h"
#include "parallel/step/step.h"

static lk_shard_range range_of(const lk_engine *engine, const lk_waves *waves)
{
    return (lk_shard_range){
        .shards = waves->shards, .first = waves->first, .last = waves->last, .labels_only = engine->grid.stage > 0};
}

lk_shard_range lk_engine_shard_range(const lk_engine *engine)
{
    if (!engine || !engine->grid.world)
        return (lk_shard_range){0};
    return range_of(engine, engine->even);
}

static lk_status check_samples(const lk_engine *engine, const lk_batch *batch, const lk_engine_part *part)
{
    size_t sample = lk__shape_sample(engine->graph->layers[0].shape);
    if (batch->count > 0 && batch->sample_floats != sample)
        return lk__fail(LK_STATUS_MISMATCH, "the batch has %zu values a sample, the model takes %zu",
                        batch->sample_floats, sample);
    return part->x ? lk__graph_check_samples(engine->graph, part->x, part->count, batch->ids ? part->names : NULL)
                   : LK_OK;
}

/* Checks that the batch has the targets that the loss learns. Every stage checks their number; only the last stage
 * reads them. */
static lk_status check_target_floats(const lk_engine *engine, const lk_batch *batch)
{
    size_t floats = lk__graph_target_floats(engine->graph);
    const char *loss = lk__graph_loss(engine->graph)->op->name;
    if (batch->count == 0 || batch->target_floats == floats)
        return LK_OK;
    if (floats == 0)
        return lk__fail(LK_STATUS_MISMATCH,
                        "the batch has targets of %zu floats, and %s learns labels: give batches without targets "
                        "(`target_floats` 0), or use a loss of float targets",
                        batch->target_floats, loss);
    return lk__fail(LK_STATUS_MISMATCH,
                    "%s learns targets of %zu floats a sample, and the batch has %zu "
                    "(`target_floats`)",
                    loss, floats, batch->target_floats);
}

static lk_status check_weights(const lk_engine_part *part)
{
    for (size_t i = 0; part->weights && i < part->count; i++) {
        if (!(part->weights[i] >= 0 && isfinite(part->weights[i])))
            return lk__fail(LK_STATUS_MISMATCH, "sample %u has weight %g; `weights` are numbers not below 0",
                            part->names[i], (double)part->weights[i]);
    }
    return LK_OK;
}

/* Checks what only the loss reads. */
static lk_status check_targets(const lk_engine *engine, const lk_batch *batch, const lk_engine_part *part)
{
    const lk_layer *loss = lk__graph_loss(engine->graph);
    LK_TRY(check_target_floats(engine, batch));
    LK_TRY(check_weights(part));
    for (size_t i = 0; !loss->op->targets && i < part->count; i++) {
        if (part->labels[i] < 0 || (size_t)part->labels[i] >= loss->shape.c)
            return lk__fail(LK_STATUS_MISMATCH, "sample %u has label %d, but the model has %zu classes", part->names[i],
                            part->labels[i], loss->shape.c);
    }
    return LK_OK;
}

/* Sets the pointers of the part to its samples, from index `begin` of the batch. Pointers that are not needed may be
 * NULL; the part then gets valid pointers that are never read. */
static void point_at(const lk_engine *engine, const lk_batch *batch, size_t begin, bool with_x, lk_engine_part *part)
{
    static const float no_x[1];
    static const int32_t no_labels[1];
    static const uint32_t no_ids[1];
    bool empty = part->count == 0;
    part->labels = empty ? no_labels : batch->labels ? batch->labels + begin : NULL;
    part->ids = empty || !batch->ids ? no_ids : batch->ids + begin;
    part->names = empty || !batch->ids || !batch->origins ? part->ids : batch->origins + begin;
    if (engine->target_floats && !part->wanted)
        part->targets = empty ? no_x : batch->targets + begin * batch->target_floats;
    if (!empty && batch->weights && !part->wanted)
        part->weights = batch->weights + begin;
    if (with_x)
        part->x = empty ? no_x : batch->x + begin * batch->sample_floats;
}

/* NULL pointers where something is needed: a batch for outputs needs no labels, and no ids unless they are its
 * samples. */
static lk_status check_given(const lk_engine *engine, const lk_batch *batch, bool with_x, bool learns)
{
    bool labels = learns && !lk__graph_loss(engine->graph)->op->targets;
    bool no_x = with_x && !batch->x, no_ids = (learns || batch->source) && !batch->ids;
    if (batch->count == 0)
        return LK_OK;
    if (labels && !batch->labels && batch->target_floats > 0)
        return check_target_floats(engine, batch);
    if (learns && (no_x || no_ids || (labels && !batch->labels)))
        return lk__fail(LK_STATUS_USAGE, "a batch needs samples, %s and ids; its `%s` is NULL",
                        labels ? "labels" : "targets",
                        no_x     ? "x"
                        : no_ids ? "ids"
                                 : "labels");
    if (no_x || no_ids)
        return lk__fail(LK_STATUS_USAGE, "a batch needs samples, or ids of a cached data set; its `%s` is NULL",
                        no_x ? "x" : "ids");
    if (learns && !batch->targets && engine->target_floats && batch->target_floats)
        return lk__fail(LK_STATUS_USAGE, "the `targets` of a batch with `target_floats` %zu are NULL",
                        batch->target_floats);
    return LK_OK;
}

/* Takes the samples of a rank's shards, those of training or those of evaluations, from a batch, which is either the
 * whole batch or just these samples. wanted: the outputs that are wanted instead of losses, or NULL. */
static lk_status take_part(const lk_engine *engine, const lk_waves *waves, const lk_batch *batch,
                           const lk_engine_wanted *wanted, lk_engine_part *out)
{
    bool first = engine->grid.stage == 0;
    const lk_resident *resident = NULL;
    LK_TRY(LK_CLEAR(batch, "lk_batch"));
    LK_TRY(check_given(engine, batch, first && !batch->source, !wanted));
    if (first && batch->source)
        LK_TRY(lk__resident_find(engine, batch, &resident));
    lk_shard_range share = range_of(engine, waves);
    size_t total = batch->total ? batch->total : batch->count, begin = 0;
    lk_engine_part part = {.resident = resident,
                           .count = lk_shard_range_count(share, total),
                           .total = total,
                           .epoch = (uint32_t)batch->epoch,
                           .eval = wanted != NULL,
                           .wanted = wanted};
    if (batch->count == total)
        begin = lk_shard_range_begin(share, total);
    else if (batch->count != part.count)
        return lk__fail(LK_STATUS_MISMATCH,
                        "this rank's share of a batch of %zu is %zu samples, not %zu; give its loader the share of "
                        "lk_engine_shard_range",
                        total, part.count, batch->count);
    point_at(engine, batch, begin, first && !resident, &part);
    LK_TRY(check_samples(engine, batch, &part));
    if (!wanted)
        LK_TRY(check_targets(engine, batch, &part));
    *out = part;
    return LK_OK;
}

static lk_status check_step(const lk_engine *engine, const lk_batch *batch)
{
    size_t count = batch->total ? batch->total : batch->count;
    if (engine->opts.eval_only)
        return lk__fail(LK_STATUS_USAGE, "a step of an engine that was created for evaluation alone (eval_only)");
    if (count < 1 || count > engine->opts.batch)
        return lk__fail(LK_STATUS_USAGE, "a batch of %zu samples; this engine takes 1 to %zu", count,
                        engine->opts.batch);
    if (lk__optim_steps(engine->optim) >= UINT32_MAX)
        return lk__fail(LK_STATUS_USAGE, "a run has at most %u steps", UINT32_MAX);
    return LK_OK;
}

uint64_t lk__engine_equal_at(const lk_engine *engine)
{
    return engine->grid.replicas > 1 ? engine->equal_at : lk__optim_steps(engine->optim);
}

bool lk__engine_replicas_differ(const lk_engine *engine)
{
    return engine->replicas_differ;
}

static lk_status end_collective(lk_engine *engine, lk_status status)
{
    if (lk__fault_is_on())
        lk__fault_leave(NULL);
    if (status != LK_OK)
        engine->agreed_signal = 0;
    return engine->agreed ? status : lk__engine_abort_on_failure(engine, status);
}

lk_status lk__engine_enter(const lk_engine *engine)
{
    return lk__gate_enter((lk_gate *)(uintptr_t)&engine->gate);
}

lk_status lk__engine_leave(const lk_engine *engine, lk_status status)
{
    lk__gate_leave((lk_gate *)(uintptr_t)&engine->gate);
    return status;
}

lk_status lk__engine_enter_idle(const lk_engine *engine)
{
    LK_TRY(lk__engine_enter(engine));
    if (engine->pending == 0)
        return LK_OK;
    return lk__engine_leave(
        engine, lk__fail(LK_STATUS_USAGE, "%d steps are under way: lk_engine_receive must have got their results first",
                         engine->pending));
}

lk_status lk_engine_cache_dataset(lk_engine *engine, lk_loader *loader, bool *cached)
{
    LK_TRY(LK_GIVEN(engine));
    LK_TRY(LK_GIVEN(loader));
    LK_TRY(LK_GIVEN(cached));
    LK_TRY(lk__engine_enter_idle(engine));
    return lk__engine_leave(engine, lk__resident_add(engine, loader, cached));
}

/* Takes this rank's part of a training batch; earlier gradients become invalid. */
static lk_status prepare_step(lk_engine *engine, const lk_batch *batch, lk_engine_part *out)
{
    engine->has_grads = engine->ready = engine->agreed = engine->has_input_grads = false;
    LK_TRY(check_step(engine, batch));
    return take_part(engine, engine->waves, batch, NULL, out);
}

static lk_status gradients(lk_engine *engine, const lk_batch *batch, lk_metrics *out)
{
    lk_engine_part part;
    LK_TRY(prepare_step(engine, batch, &part));
    return lk__step_gradients(engine, &part, out);
}

lk_status lk_engine_gradients(lk_engine *engine, const lk_batch *batch, lk_metrics *out)
{
    LK_TRY(LK_GIVEN(engine));
    LK_TRY(LK_GIVEN(batch));
    LK_TRY(LK_GIVEN(out));
    LK_TRY(lk__engine_enter_idle(engine));
    return lk__engine_leave(engine, end_collective(engine, gradients(engine, batch, out)));
}

lk_status lk_engine_update(lk_engine *engine)
{
    LK_TRY(LK_GIVEN(engine));
    LK_TRY(lk__engine_enter_idle(engine));
    engine->agreed = false;
    return lk__engine_leave(engine, end_collective(engine, lk__step_update(engine)));
}

int lk_engine_depth(const lk_engine *engine)
{
    if (!engine)
        return 0;
    return engine->recorded ? LK_RECORDED_DEPTH : 1;
}

bool lk_engine_can_send(const lk_engine *engine, size_t total)
{
    return engine && lk__step_can_send(engine, false, total);
}

bool lk_engine_can_send_eval(const lk_engine *engine, size_t total)
{
    return engine && lk__step_can_send(engine, true, total);
}

static lk_status send(lk_engine *engine, const lk_batch *batch)
{
    lk_engine_part part;
    LK_TRY(prepare_step(engine, batch, &part));
    return lk__step_send(engine, &part);
}

lk_status lk_engine_send(lk_engine *engine, const lk_batch *batch)
{
    LK_TRY(LK_GIVEN(engine));
    LK_TRY(LK_GIVEN(batch));
    LK_TRY(lk__engine_enter(engine));
    return lk__engine_leave(engine, end_collective(engine, send(engine, batch)));
}

lk_status lk_engine_receive(lk_engine *engine, lk_metrics *out)
{
    LK_TRY(LK_GIVEN(engine));
    LK_TRY(LK_GIVEN(out));
    LK_TRY(lk__engine_enter(engine));
    engine->agreed = false;
    return lk__engine_leave(engine, end_collective(engine, lk__step_receive(engine, out)));
}

lk_status lk_engine_step(lk_engine *engine, const lk_batch *batch, lk_metrics *out)
{
    LK_TRY(LK_GIVEN(engine));
    LK_TRY(LK_GIVEN(batch));
    LK_TRY(LK_GIVEN(out));
    LK_TRY(lk__engine_enter_idle(engine));
    lk_status status = send(engine, batch);
    if (status == LK_OK)
        status = lk__step_receive(engine, out);
    return lk__engine_leave(engine, end_collective(engine, status));
}

static lk_status send_eval(lk_engine *engine, const lk_batch *batch)
{
    lk_engine_part part;
    engine->agreed = false;
    if (batch->count < 1 && !batch->total)
        return lk__fail(LK_STATUS_USAGE, "evaluation needs at least one sample");
    LK_TRY(take_part(engine, engine->even, batch, NULL, &part));
    part.eval = true;
    return lk__step_send(engine, &part);
}

lk_status lk_engine_send_eval(lk_engine *engine, const lk_batch *batch)
{
    LK_TRY(LK_GIVEN(engine));
    LK_TRY(LK_GIVEN(batch));
    LK_TRY(lk__engine_enter(engine));
    return lk__engine_leave(engine, end_collective(engine, send_eval(engine, batch)));
}

lk_status lk_engine_eval(lk_engine *engine, const lk_batch *batch, lk_metrics *out)
{
    LK_TRY(LK_GIVEN(engine));
    LK_TRY(LK_GIVEN(batch));
    LK_TRY(LK_GIVEN(out));
    LK_TRY(lk__engine_enter_idle(engine));
    lk_status status = send_eval(engine, batch);
    if (status == LK_OK)
        status = lk__step_receive(engine, out);
    return lk__engine_leave(engine, end_collective(engine, status));
}

static lk_status run_forward(lk_engine *engine, const lk_batch *batch, const lk_engine_wanted *wanted)
{
    lk_engine_part part;
    engine->agreed = false;
    LK_TRY(lk__engine_outputs_check(engine->outputs, wanted));
    if (batch->count < 1 && !batch->total)
        return lk__fail(LK_STATUS_USAGE, "a forward pass needs at least one sample");
    LK_TRY(take_part(engine, engine->even, batch, wanted, &part));
    return lk__step_forward(engine, &part);
}

lk_status lk_engine_forward_outputs(lk_engine *engine, const lk_batch *batch, const lk_output *outputs, size_t count)
{
    LK_TRY(LK_GIVEN(engine));
    LK_TRY(LK_GIVEN(batch));
    LK_TRY(LK_GIVEN(outputs));
    LK_TRY(lk__engine_enter_idle(engine));
    lk_engine_wanted wanted = {.list = outputs, .count = count};
    return lk__engine_leave(engine, end_collective(engine, run_forward(engine, batch, &wanted)));
}

lk_status lk_engine_forward(lk_engine *engine, const lk_batch *batch, float *scores)
{
    LK_TRY(LK_GIVEN(scores));
    return lk_engine_forward_outputs(engine, batch, &(lk_output){.values = scores}, 1);
}

size_t lk_engine_output_floats(const lk_engine *engine, const char *node)
{
    return engine ? lk__engine_outputs_floats(engine->outputs, node) : 0;
}

int lk__engine_free_cores(const lk_engine *engine)
{
    int part = lk__cores_part(engine->grid.sharers, lk__grid_neighbours(&engine->grid));
    int used = engine->dev->type == &lk__device_cpu ? engine->opts.threads : 1;
    return part > used ? part - used : 0;
}

void lk__engine_explain(const lk_engine *engine, void (*each)(void *arg, const char *line), void *arg)
{
    if (engine->dev->type->explain)
        engine->dev->type->explain(engine->dev, each, arg);
}

lk_layout lk_engine_layout(const lk_engine *engine)
{
    if (!engine)
        return (lk_layout){0};
    const lk_grid *grid = &engine->grid;
    return (lk_layout){
        .replica = grid->replica,
        .replicas = grid->replicas,
        .stage = grid->stage,
        .stages = grid->stages,
        .first_layer = grid->first_layer,
        .last_layer = grid->last_layer,
        .threads = engine->opts.threads,
        .capacity = engine->even->capacity,
        .one_wave = lk__graph_takes_one_wave(engine->graph, engine->opts.bn),
        .gradient_backend = engine->channel    ? engine->channel->name
                            : engine->own_sums ? lk__engine_backend_names[LK_ENGINE_BACKEND_MPI]
                                               : NULL,
        .stage_backend = engine->links.names[0] ? engine->links.names : NULL,
        .stage_obstacle = engine->links.obstacle[0] ? engine->links.obstacle : NULL,
    };
}

lk_metrics lk_engine_own_metrics(const lk_engine *engine)
{
    return engine ? engine->own : (lk_metrics){0};
}

lk_status lk_engine_set_grad_norm(lk_engine *engine, bool on)
{
    LK_TRY(LK_GIVEN(engine));
    LK_TRY(lk__engine_enter(engine));
    engine->norm_wanted = on;
    return lk__engine_leave(engine, LK_OK);
}

double lk_engine_grad_norm(const lk_engine *engine)
{
    return engine ? engine->grad_norm : 0;
}

lk_waits lk_engine_waits(const lk_engine *engine)
{
    return engine ? engine->waits : (lk_waits){0};
}

void lk__engine_set_meter(lk_engine *engine, lk_engine_meter *meter)
{
    engine->meter = meter;
}

lk_status lk_engine_check(lk_engine *engine)
{
    LK_TRY(LK_GIVEN(engine));
    LK_TRY(lk__engine_enter_idle(engine));
    return lk__engine_leave(engine, end_collective(engine, lk__step_compare(engine)));
}

double lk_engine_lr(const lk_engine *engine)
{
    return engine ? lk__optim_lr(engine->optim) : 0;
}

lk_status lk_engine_set_lr(lk_engine *engine, double lr)
{
    LK_TRY(LK_GIVEN(engine));
    LK_TRY(lk__engine_enter(engine));
    return lk__engine_leave(engine, lk__optim_set_lr(engine->optim, lr));
}

uint64_t lk_engine_steps(const lk_engine *engine)
{
    return engine ? lk__optim_steps(engine->optim) : 0;
}

void lk_engine_set_signal_source(lk_engine *engine, int (*level)(void *arg), void *arg)
{
    if (!engine)
        return;
    engine->signal_source = level;
    engine->signal_arg = arg;
}

int lk_engine_agreed_signal(const lk_engine *engine)
{
    return engine ? engine->agreed_signal : 0;
}

int lk_engine_agreed_signal_rank(const lk_engine *engine)
{
    return engine && engine->agreed_signal > 0 ? engine->agreed_signal_rank : -1;
}
