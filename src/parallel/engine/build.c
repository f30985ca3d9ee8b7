/* build.c - creating and destroying an engine: options, grid, memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cores.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/option_rows.h"
#include "base/spec.h"
#include "comm/collective/own_sums.h"
#include "comm/mpi/load.h"
#include "parallel/agree.h"
#include "parallel/engine/backend.h"
#include "parallel/engine/engine.h"
#include "parallel/engine/ranged.h"
#include "parallel/layout/defaults.h"
#include "parallel/layout/replicas.h"
#include "parallel/memory/fit.h"
#include "parallel/step/marks.h"
#include "parallel/step/outputs.h"
#include "parallel/step/recorded.h"
#include "parallel/step/resident.h"
#include "parallel/step/room.h"
#include "parallel/step/staging.h"

enum { MAX_THREADS = 1024 };

/* The targets of a rank, in bytes. */
static const size_t LARGEST_TARGETS = (size_t)1 << 46;

const char *const lk__agree_bn_names[] = {"batch", "shard", NULL};
const char *const lk__agree_conv_names[] = {"winograd", "direct", NULL};
const char *const lk__agree_reduce_names[] = {"tree", "engine", NULL};

static lk_status check_opts(const lk_engine_opts *opts)
{
    if (opts->batch < 1 || opts->batch > UINT32_MAX)
        return lk__fail(LK_STATUS_USAGE, "`batch` %zu is not in 1 to %u", opts->batch, UINT32_MAX);
    if (opts->shards < 1 || opts->shards > LK_MAX_SHARDS)
        return lk__fail(LK_STATUS_USAGE, "`shards` %d is not in 1 to %d", opts->shards, LK_MAX_SHARDS);
    if ((int)opts->precision < LK_PRECISION_FP32 || opts->precision > LK_PRECISION_TF32CONV)
        return lk__fail(LK_STATUS_USAGE, "`precision` %d is not a value of lk_precision", (int)opts->precision);
    if (opts->bn != LK_BN_MODE_BATCH && opts->bn != LK_BN_MODE_SHARD)
        return lk__fail(LK_STATUS_USAGE, "`bn` %d is not a value of lk_bn_mode", (int)opts->bn);
    if (opts->conv != LK_CONV_MODE_WINOGRAD && opts->conv != LK_CONV_MODE_DIRECT)
        return lk__fail(LK_STATUS_USAGE, "`conv` %d is not a value of lk_conv_mode", (int)opts->conv);
    if (!(opts->label_smoothing >= 0 && (float)opts->label_smoothing < 1)) /* kernels use a float */
        return lk__fail(LK_STATUS_USAGE, "`label_smoothing` %.10g must be a part, from 0 to below 1",
                        opts->label_smoothing);
    if (opts->reduce != LK_REDUCE_ORDER_TREE && opts->reduce != LK_REDUCE_ORDER_ENGINE)
        return lk__fail(LK_STATUS_USAGE, "`reduce` %d is not a value of lk_reduce_order", (int)opts->reduce);
    lk_engine_backend backend = lk__engine_backend_find(opts->backend);
    if (opts->reduce == LK_REDUCE_ORDER_ENGINE && backend == LK_ENGINE_BACKEND_HOST)
        return lk__fail(LK_STATUS_USAGE,
                        "`reduce` engine lets NCCL or MPI sum the gradients, but with this `backend` the host sums "
                        "them: leave one of the two out");
    if (opts->reduce == LK_REDUCE_ORDER_TREE && backend == LK_ENGINE_BACKEND_MPI)
        return lk__fail(LK_STATUS_USAGE, "`backend` mpi sums gradients with `reduce` engine only: MPI has no sum over "
                                         "the tree");
    if (!isfinite(opts->clip_norm) || opts->clip_norm < 0)
        return lk__fail(LK_STATUS_USAGE, "`clip_norm` %g must be a number not below 0", opts->clip_norm);
    if (opts->check_every < -1)
        return lk__fail(LK_STATUS_USAGE, "`check_every` %d is not a number of steps, or -1 for never",
                        opts->check_every);
    return LK_OK;
}

/* Checks the options against the loss. */
static lk_status check_loss(const lk_engine *engine)
{
    const lk_op *op = lk__graph_loss(engine->graph)->op;
    if (engine->opts.label_smoothing > 0 && !op->smooths)
        return lk__fail(LK_STATUS_USAGE, "`label_smoothing` %g is for losses of classes, and %s has none",
                        engine->opts.label_smoothing, op->name);
    return LK_OK;
}

/* A BatchNorm over one value always outputs its bias, so the layers before it would not learn. Checks the
 * largest batch; smaller ones have even fewer values. */
static lk_status check_batchnorm(const lk_engine *engine)
{
    const lk_engine_opts *opts = &engine->opts;
    bool by_shard = opts->bn == LK_BN_MODE_SHARD;
    size_t shards = by_shard ? (size_t)opts->shards : 1, samples = (opts->batch + shards - 1) / shards;
    for (int i = 0; i < engine->graph->count && !opts->eval_only; i++) {
        const lk_layer *layer = &engine->graph->layers[i];
        if (layer->op != &lk__op_batchnorm2d || samples * layer->shape.h * layer->shape.w > 1)
            continue;
        return lk__fail(LK_STATUS_USAGE,
                        "BatchNorm '%s' would normalise one value per channel, %s of images that are 1x1 there: its "
                        "output would not depend on its input. Give a larger `batch`%s, or larger images",
                        layer->name, by_shard ? "a sample a shard" : "a batch of one sample",
                        by_shard ? ", fewer `shards` or `bn` batch" : "");
    }
    return LK_OK;
}

#define FIELD(name) LK_FIELD(lk_engine_opts, name)
#define COMPARED(...)                          \
    {                                          \
        "", "", 0, 0, 0, __VA_ARGS__, NULL, "" \
    }

/* The options that must be equal at all ranks: they decide the result or the order of collective calls. */
static const lk_option compared[] = {
    COMPARED(COUNT(batch, 0, 0)),
    COMPARED(INTEGER(shards, 0, 0)),
    COMPARED(SEED(seed)),
    COMPARED(SPEC(optimizer, NULL)),
    COMPARED(REAL(lr, NULL, 0, 0)),
    COMPARED(CHOICE(bn, lk__agree_bn_names)),
    COMPARED(CHOICE(conv, lk__agree_conv_names)),
    COMPARED(REAL(clip_norm, NULL, 0, 0)),
    COMPARED(REAL(label_smoothing, NULL, 0, 0)),
    COMPARED(COUNT(micro_batch, 0, 0)),
    COMPARED(TERMS(stages, NULL)),
    COMPARED(FLAG(pipelined)),
    COMPARED(CHOICE(reduce, lk__agree_reduce_names)),
    COMPARED(TEXT(backend, NULL)),
    COMPARED(TEXT(outputs, NULL)),
    COMPARED(FLAG(allow_nonfinite)),
    COMPARED(FLAG(eval_only)),
    COMPARED(FLAG(input_grads)),
};

static lk_status agree_options(lk_engine *engine)
{
    lk_engine_opts opts = engine->opts;
    lk_agree_text lines = {.at = ""};
    char size[LK_NUMBER_TEXT];
    if (!opts.group || lk_group_size(opts.group) == 1)
        return LK_OK;
    opts.stages = opts.stages ? opts.stages : "1";
    opts.backend = opts.backend ? opts.backend : lk__engine_backend_names[LK_ENGINE_BACKEND_AUTO];
    opts.outputs = opts.outputs ? opts.outputs : "none";
    lk__agree_add(&lines, "a model of %d layers with %zu parameters (hash %016llx)\n", engine->graph->count,
                  lk_graph_parameters(engine->graph), (unsigned long long)lk__graph_hash(engine->graph));
    for (size_t i = 0; i < sizeof compared / sizeof *compared; i++)
        lk__agree_add_option(&lines, &compared[i], &opts);
    /* The program's option for "never" is 0, the engine's is -1. */
    if (opts.check_every < 0)
        lk__agree_add(&lines, "`check_every` never\n");
    else
        lk__agree_add(&lines, "`check_every` %d\n", opts.check_every);
    lk__agree_add(&lines, "%s MiB in `bucket_bytes`\n", lk__number_text((double)opts.bucket_bytes / (1 << 20), size));
    return lk__agree_lines(opts.group, lines.at, &engine->agreed);
}

/* Compares kind and precision of the devices: different ones give different bits. */
static lk_status agree_device(lk_engine *engine)
{
    char line[LK_AGREED_VALUE];
    if (!engine->grid.world)
        return LK_OK;
    snprintf(line, sizeof line, "`device` %s and `precision` %s", engine->dev->type->name,
             lk__device_precision_names[engine->opts.precision]);
    return lk__agree_lines(engine->grid.world, line, &engine->agreed);
}

static lk_status open_device(lk_engine *engine)
{
    lk_engine_opts *opts = &engine->opts;
    int part = lk__cores_part(engine->grid.sharers, lk__grid_neighbours(&engine->grid));
    if (opts->threads < 0 || opts->threads > MAX_THREADS)
        return lk__fail(LK_STATUS_USAGE, "`threads` %d is not in 1 to %d", opts->threads, MAX_THREADS);
    if (!opts->threads)
        opts->threads = part > 0 ? part : 1;
    lk_device_opts device = {.threads = opts->threads, .crowded = opts->threads > part, .precision = opts->precision};
    return lk__device_open(opts->device, &device, &engine->dev);
}

/* Writes the obstacle of a build without channels between such devices. MPI has sums in its own order. */
static void describe_no_channel(const lk_engine *engine, lk_device_channel_choice *choice)
{
    const char *remedy = choice->name || !choice->own_order ? "leave it out"
                         : lk__mpi_module_is_chosen()       ? "add `backend` mpi, or choose `reduce` tree"
                                                            : "start the ranks with mpirun and `backend` mpi, as in "
                                                              "'mpirun -n 4 lockstep train ...', or choose `reduce` tree";
    snprintf(choice->obstacle, sizeof choice->obstacle,
             "this build has nothing for that between devices of kind %s; %s", engine->dev->type->name, remedy);
}

/* The only channel that the options allow; NULL: any. */
static const char *named_channel(const lk_engine *engine)
{
    const char *word = engine->opts.backend;
    return lk__engine_backend_find(word) == LK_ENGINE_BACKEND_COUNT ? word : NULL;
}

/* Chooses the first channel that can connect the devices of all ranks and that the options allow; NULL
 * if there is none. For sums in an engine's own order, the group's engine (MPI) is used where there is no channel.
 * If the options require a channel or an engine, all ranks fail with the same obstacle. */
static lk_status choose_channel(lk_engine *engine)
{
    const lk_engine_opts *opts = &engine->opts;
    lk_group *group = engine->grid.sums;
    lk_device_channel_choice choice = {.name = named_channel(engine),
                                       .own_order = opts->reduce == LK_REDUCE_ORDER_ENGINE};
    lk_engine_backend backend = lk__engine_backend_find(opts->backend);
    bool mpi = backend == LK_ENGINE_BACKEND_MPI, any = backend == LK_ENGINE_BACKEND_AUTO;
    if (opts->eval_only || backend == LK_ENGINE_BACKEND_HOST)
        return LK_OK;
    if (!mpi)
        LK_TRY(lk__device_channel_choose(group, engine->dev, &choice));
    engine->channel = choice.channel;
    engine->own_sums = !choice.channel && choice.own_order && group && lk__group_has_own_sums(group);
    bool none = !group && (choice.tried || mpi);
    if (choice.channel || engine->own_sums || none || (any && !choice.own_order))
        return LK_OK;
    if (mpi)
        snprintf(choice.obstacle, sizeof choice.obstacle, "MPI does not connect the ranks; they use %s",
                 group ? lk_group_transport(group) : "nothing");
    else if (!choice.tried)
        describe_no_channel(engine, &choice);
    engine->agreed = true;
    return lk__fail(LK_STATUS_USAGE, "%s%s: gradients cannot be summed between the devices: %s%s",
                    any ? "`reduce` engine" : "`backend` ", any ? "" : opts->backend, choice.obstacle,
                    !choice.tried && !mpi ? ""
                    : any                 ? "; `reduce` tree sums them another way"
                                          : "; leave it out to sum them another way");
}

/* Chooses how neighbouring stages exchange activations: from device to device, if a channel can join the two and the
 * options allow it. If the options require a channel, all ranks fail with the same obstacle. */
static lk_status choose_links(lk_engine *engine)
{
    const lk_device_type *type = engine->dev->type;
    const char *name = named_channel(engine);
    lk_engine_backend backend = lk__engine_backend_find(engine->opts.backend);
    bool by_group = backend == LK_ENGINE_BACKEND_HOST || backend == LK_ENGINE_BACKEND_MPI;
    if (engine->grid.stages == 1 || engine->opts.eval_only || by_group || type->host_memory || !type->channels)
        return LK_OK;
    LK_TRY(lk__links_choose(&engine->links, &engine->grid, engine->dev, name));
    if (!name || engine->links.names[0])
        return LK_OK;
    engine->agreed = true;
    return lk__fail(LK_STATUS_USAGE,
                    "`backend` %s: activations cannot be sent from device to device: %s; leave it out to send "
                    "them another way",
                    name, engine->links.obstacle);
}

static lk_status plan_waves(lk_engine *engine)
{
    lk_engine_rank_model model = lk__engine_model(engine);
    size_t most = engine->dev->type->most_samples;
    LK_TRY(lk__engine_rank_waves(&model, &engine->waves, &engine->lane_count));
    if (most && engine->waves->capacity > most)
        return lk__fail(LK_STATUS_USAGE,
                        "%zu samples of a rank at once are more than device '%s' takes: %zu. Give a smaller "
                        "`batch`, or `micro_batch` where there is no BatchNorm over the batch",
                        engine->waves->capacity, engine->dev->type->name, most);
    int own = engine->waves->last - engine->waves->first;
    engine->target_floats = lk__engine_has_losses(engine) ? lk__graph_target_floats(engine->graph) : 0;
    engine->most = lk__shard_most(engine->opts.batch, engine->waves->shards, own);
    if (engine->target_floats > LARGEST_TARGETS / sizeof(float) / lk__size_max(engine->most, 1))
        return lk__fail(LK_STATUS_MEMORY, "targets of %zu samples with %zu floats each would need over %zu bytes",
                        engine->most, engine->target_floats, LARGEST_TARGETS);
    engine->even = engine->waves;
    engine->extent = lk__engine_extent(engine->waves);
    return lk__engine_alloc_leaves(engine);
}

/* Checks the host's memory. A device with its own memory fails by itself when that is short. */
static lk_status check_memory(lk_engine *engine)
{
    if (engine->opts.eval_only)
        return LK_OK;
    lk_engine_rank_model model = lk__engine_model(engine);
    model.host_only = !engine->dev->type->host_memory;
    lk_available available = lk__available();
    return lk__fit_check(&model, &available);
}

/* The largest width, in floats, of the sums that a layer of this rank gathers during a pass. */
static size_t widest_sums(const lk_engine *engine)
{
    size_t widest = 0;
    for (int i = engine->grid.first_layer; i < engine->grid.last_layer; i++) {
        const lk_layer *layer = &engine->graph->layers[i];
        if (layer->op->sum_width)
            widest = lk__size_max(widest, layer->op->sum_width(layer));
    }
    return widest;
}

/* Needs the buckets. */
static lk_status open_device_sums(lk_engine *engine)
{
    lk_buckets *buckets = engine->buckets;
    if (!engine->channel)
        return LK_OK;
    lk_device_sums_opts opts = {.group = engine->grid.sums,
                                .bounds = engine->grid.bounds,
                                .dev = engine->dev,
                                .channel = engine->channel,
                                .own_order = engine->opts.reduce == LK_REDUCE_ORDER_ENGINE,
                                .sums = buckets->count,
                                .widest = widest_sums(engine),
                                .samples = engine->channel->records ? engine->most : 0};
    for (int i = 0; i < buckets->count; i++)
        opts.most = lk__size_max(opts.most, buckets->list[i].end - buckets->list[i].begin);
    LK_TRY(lk__device_sums_create(&opts, &engine->device_sums));
    buckets->device_sums = engine->device_sums;
    return LK_OK;
}

static lk_status build_params(lk_engine *engine)
{
    const lk_grid *grid = &engine->grid;
    LK_TRY(lk__params_create(engine->graph, engine->dev, grid->first_layer, grid->last_layer, &engine->params));
    LK_TRY(lk__params_init(engine->params, engine->opts.seed, engine->opts.threads));
    LK_TRY(lk__engine_alloc_grads(engine));
    lk_buckets_opts buckets = {.group = grid->sums,
                               .bounds = grid->bounds,
                               .params = engine->params,
                               .copy = engine->grads ? engine->shared : NULL,
                               .roots = engine->waves->own_roots,
                               .bytes = engine->opts.bucket_bytes,
                               .own_order = engine->own_sums,
                               .check = !engine->opts.allow_nonfinite};
    LK_TRY(lk__buckets_create(&buckets, &engine->buckets));
    LK_TRY(open_device_sums(engine));
    return lk__optim_create(engine->opts.optimizer, engine->opts.lr, engine->dev, engine->params->count,
                            &engine->optim);
}

/* Needs the plan. The links stay as they are: where there are stages, no shards move. */
static lk_status open_links(lk_engine *engine)
{
    lk_tensor input = lk__plan_input(engine->plan, 0), output = lk__plan_output(engine->plan, 0);
    size_t capacity = engine->extent.capacity;
    lk_links_opts opts = {.previous = capacity * lk__tensor_stride(&input),
                          .next = lk__engine_has_losses(engine) ? 0 : capacity * lk__tensor_stride(&output),
                          .lanes = engine->lane_count};
    return lk__links_open(&engine->links, &engine->grid, engine->dev, &opts);
}

/* Staging buffer for sums that are gathered during a pass. */
static lk_status alloc_sums_copy(lk_engine *engine)
{
    size_t widest = engine->grid.moments && !engine->channel ? widest_sums(engine) : 0;
    size_t bytes = (size_t)engine->waves->all_roots * widest * sizeof(float);
    return widest ? lk__staging_alloc(engine->dev, bytes, "a copy of sums", (void **)&engine->sums_copy) : LK_OK;
}

static lk_status alloc_input_grads(lk_engine *engine)
{
    lk_device *dev = engine->dev;
    size_t floats = engine->most * lk__shape_sample(engine->graph->layers[0].shape);
    if (!engine->opts.input_grads || engine->grid.stage > 0)
        return LK_OK;
    return dev->type->alloc(dev, floats * sizeof *engine->input_grads, "input gradients",
                            (void **)&engine->input_grads);
}

/* Allocates everything large. If memory is short, the detail says what the rank needs; the group's own
 * detail is kept if the group's memory is short. */
static lk_status allocate(lk_engine *engine)
{
    lk_status status;
    LK_TRY_GOTO(build_params(engine), explain);
    LK_TRY_GOTO(lk__engine_alloc_plan(engine), explain);
    LK_TRY_GOTO(open_links(engine), explain);
    LK_TRY_GOTO(lk__engine_alloc_lanes(engine), explain);
    LK_TRY_GOTO(alloc_input_grads(engine), explain);
    LK_TRY_GOTO(lk__engine_ensure_room(engine, engine->most), explain);
    LK_TRY_GOTO(alloc_sums_copy(engine), explain);
    LK_TRY_GOTO(lk__recorded_create(engine, &engine->recorded), explain);
    return LK_OK;

explain:
    if (status != LK_STATUS_MEMORY || (engine->params && !engine->shared && engine->grid.sums))
        return status;
    lk_engine_rank_model model = lk__engine_model(engine);
    return lk__fit_explain(&model);
}

static lk_status build(lk_engine *engine, const lk_graph *graph)
{
    const lk_engine_opts *opts = &engine->opts;
    lk_grid_opts grid = {.world = opts->group, .stages = opts->stages, .shards = opts->shards};
    LK_TRY(lk__graph_copy(graph, &engine->graph));
    LK_TRY(agree_options(engine));
    LK_TRY(check_opts(opts));
    if (opts->conv == LK_CONV_MODE_WINOGRAD)
        lk__graph_use_winograd(engine->graph);
    LK_TRY(check_loss(engine));
    LK_TRY(check_batchnorm(engine));
    int ranks = opts->group ? lk_group_size(opts->group) : 1;
    LK_TRY(lk__engine_outputs_create(engine->graph, opts->outputs, opts->stages, ranks, &engine->outputs));
    LK_TRY(lk__grid_init(&engine->grid, engine->graph, &grid));
    LK_TRY(open_device(engine));
    LK_TRY(agree_device(engine));
    LK_TRY(choose_channel(engine));
    LK_TRY(choose_links(engine));
    LK_TRY(plan_waves(engine));
    LK_TRY(check_memory(engine));
    LK_TRY(allocate(engine));
    if (engine->grid.sums)
        LK_TRY(lk__replicas_start(engine->grid.sums, engine->params));
    /* If one rank fails, no rank gets an engine. */
    return engine->grid.world ? lk_barrier(engine->grid.world, NULL) : LK_OK;
}

/* USAGE before there is a grid is found by every rank: the options have been compared. */
lk_status lk__engine_abort_on_failure(const lk_engine *engine, lk_status status)
{
    char detail[LK_AGREED_TEXT];
    lk_group *world = engine->grid.world;
    if (!world && status != LK_STATUS_USAGE)
        world = engine->opts.group;
    if (status == LK_OK || status == LK_STATUS_PEER || !world)
        return status;
    snprintf(detail, sizeof detail, "%s", lk_error_detail());
    lk_group_abort(world, detail);
    return lk__fail(status, "%s", detail);
}

bool lk__engine_agreed(const lk_engine *engine)
{
    return engine->agreed;
}

lk_status lk_engine_create(const lk_graph *graph, const lk_engine_opts *opts, lk_engine **out)
{
    LK_TRY(LK_GIVEN(graph));
    LK_TRY(LK_GIVEN(opts));
    LK_TRY(LK_GIVEN(out));
    LK_TRY(LK_CLEAR(opts, "lk_engine_opts"));
    lk_engine_opts full = lk__engine_defaults(opts);
    LK_TRY(lk__fault_load());
    LK_TRY(lk_graph_check(graph));
    lk_engine *engine;
    LK_TRY(LK_ALLOC(1, "engine", &engine));
    lk__gate_init(&engine->gate, "engine");
    engine->opts = full;
    engine->grad_norm = NAN;
    lk_status status = build(engine, graph);
    if (status != LK_OK) {
        if (!engine->agreed)
            status = lk__engine_abort_on_failure(engine, status);
        lk_engine_destroy(engine);
        return status;
    }
    *out = engine;
    return LK_OK;
}

static void destroy_mean(lk_engine *engine)
{
    const lk_device_type *type = engine->dev->type;
    type->free(engine->dev, engine->mean.params);
    type->free(engine->dev, engine->mean.buffers);
    type->free(engine->dev, engine->mean.rule);
    lk__mem_free(engine->mean.batches);
}

void lk_engine_destroy(lk_engine *engine)
{
    /* A forked process cannot join the engine's threads, and leaving the group would end the parent's
     * group: the memory stays allocated until this process ends. */
    if (!engine || lk__gate_inherited(&engine->gate))
        return;
    lk__mem_free(engine->leaves);
    lk__device_sums_leave(engine->device_sums);
    lk__links_leave(&engine->links);
    /* The groups first: other ranks may still read this rank's memory. */
    lk__grid_fini(&engine->grid);
    lk__recorded_destroy(engine, engine->recorded);
    lk__marks_destroy(engine->marks);
    lk__device_sums_destroy(engine->device_sums);
    lk__links_fini(&engine->links);
    lk__engine_free_plan(engine);
    lk__engine_outputs_destroy(engine->outputs);
    lk__param_groups_fini(&engine->groups);
    lk__optim_destroy(engine->optim);
    lk__buckets_destroy(engine->buckets);
    lk__params_destroy(engine->params);
    if (engine->even != engine->waves)
        lk__waves_destroy(engine->even);
    lk__waves_destroy(engine->waves);
    lk__mem_free(engine->bounds);
    if (engine->dev) {
        lk__mem_free(engine->sums_copy);
        lk__residents_destroy(engine);
        lk__engine_free_room(engine);
        engine->dev->type->free(engine->dev, engine->grads);
        engine->dev->type->free(engine->dev, engine->input_grads);
        destroy_mean(engine);
    }
    lk__device_close(engine->dev);
    lk_graph_destroy(engine->graph);
    lk__mem_free(engine);
}
