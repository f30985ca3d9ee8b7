/* info_model.c - `lockstep info --model`: a model's layers, its size, and the cost of a training step. Creates
 * weights only to take a step on the device of --devices. */
#include "cli/commands/info_model.h"

#include <stdio.h>

#include "base/mem.h"
#include "base/spec.h"
#include "base/text.h"
#include "cli/commands/info_device.h"
#include "cli/report/json.h"
#include "nn/models/zoo.h"
#include "nn/summary.h"
#include "parallel/memory/memory.h"

enum { NUMBER = 32, SHAPE = 64, PARTS = 6 };

/* A multiply-add is two operations. */
static const double flops_a_mac = 2;
/* Forward, gradients of the inputs, gradients of the weights: each takes the same number of operations. */
static const double passes_a_step = 3;

typedef struct report {
    const char *model;
    lk_model_shape shape;
    lk_graph *graph;
    lk_graph_summary summary;
    lk_engine_opts engine;
    lk_engine_size memory;
    lk_devices devices; /* count is 0 without --devices */
    cJSON *lines;       /* of info_device.h: an array of strings */
} report;

static const struct part {
    const char *key, *title;
    size_t offset;
} parts[PARTS] = {
    {"parameters", "parameters", offsetof(lk_engine_size, parameters)},
    {"gradients", "gradients", offsetof(lk_engine_size, gradients)},
    {"optimizer", "optimiser's state", offsetof(lk_engine_size, optimizer)},
    {"statistics", "BatchNorm's statistics", offsetof(lk_engine_size, statistics)},
    {"activations", "activations", offsetof(lk_engine_size, activations)},
    {"scratch", "scratch of kernels", offsetof(lk_engine_size, scratch)},
};

static size_t part_bytes(const report *r, int i)
{
    return *(const size_t *)((const char *)&r->memory + parts[i].offset);
}

static lk_status shape_of_data(const lk_args *args, lk_model_shape *shape)
{
    lk_dataset *data;
    lk_sample_shape sample;
    LK_TRY(lk_dataset_open(args->train.data, args->train.data_dir, LK_SPLIT_TRAIN, &data));
    lk_status status = lk_augmented_shape(data, "auto", &sample);
    if (status == LK_OK)
        *shape = (lk_model_shape){.channels = sample.channels,
                                  .height = sample.height,
                                  .width = sample.width,
                                  .classes = lk_dataset_get_info(data)->classes};
    lk_dataset_destroy(data);
    return status;
}

static lk_status choose_shape(const lk_args *args, lk_model_shape *shape)
{
    LK_TRY(lk__model_usual_shape(args->train.model, shape));
    if (args->train.data)
        LK_TRY(shape_of_data(args, shape));
    return lk__args_change_shape(args, shape);
}

/* 1234567 as "1,234,567". */
static const char *grouped(double value, char text[NUMBER])
{
    char digits[NUMBER];
    int length = snprintf(digits, sizeof digits, "%.0f", value), used = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = '\0';
    return text;
}

/* Three digits and a unit: "1.82 G". */
static const char *scaled(double value, char text[NUMBER])
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P"};
    size_t unit = 0;
    for (; value >= 999.5 && unit + 1 < sizeof units / sizeof *units; unit++)
        value /= 1000;
    int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(text, NUMBER, "%.*f %s", decimals, value, units[unit]);
    return text;
}

static void print_layers(const report *r)
{
    printf("%5s  %-14s %-28s %-14s %12s %16s\n", "layer", "op", "name", "output", "parameters", "MACs");
    for (size_t i = 0; i < r->summary.layers; i++) {
        lk_layer_summary layer = lk__layer_summary(r->graph, i);
        char shape[SHAPE], parameters[NUMBER] = "", macs[NUMBER] = "";
        snprintf(shape, sizeof shape, "%zux%zux%zu", layer.output.c, layer.output.h, layer.output.w);
        if (layer.parameters)
            grouped((double)layer.parameters, parameters);
        if (layer.macs > 0)
            grouped(layer.macs, macs);
        printf("%5zu  %-14s %-28s %-14s %12s %16s\n", i, layer.op, layer.name, shape, parameters, macs);
    }
}

static void print_memory(const report *r)
{
    char bytes[LK_TEXT_AMOUNT];
    size_t total = 0;
    printf("memory: of one rank, %zu samples a step", r->engine.batch);
    if (r->memory.samples < r->engine.batch)
        printf(", %zu at once", r->memory.samples);
    printf(", %s\n", r->engine.optimizer);
    for (int i = 0; i < PARTS; i++) {
        total += part_bytes(r, i);
        printf("  %-24s %11s\n", parts[i].title, lk__text_amount(part_bytes(r, i), bytes));
    }
    printf("  %-24s %11s\n", "together", lk__text_amount(total, bytes));
}

static void add_line(void *arg, const char *line)
{
    cJSON_AddItemToArray(arg, cJSON_CreateString(line));
}

static void print_device(const report *r)
{
    if (!r->devices.count)
        return;
    printf("on %s, %s, %zu samples in %d shards:\n", r->devices.name[0],
           lk__device_precision_names[r->engine.precision], r->engine.batch, r->engine.shards);
    const cJSON *line;
    cJSON_ArrayForEach(line, r->lines) printf("  %s\n", line->valuestring);
    if (!cJSON_GetArraySize(r->lines))
        printf("  own kernels compute all layers, whole waves at once\n");
}

static void print_report(const report *r)
{
    char a[NUMBER], b[NUMBER], c[NUMBER];
    const lk_graph_summary *s = &r->summary;
    printf("%s for %zux%zux%zu, %zu classes\n", r->model, r->shape.channels, r->shape.height, r->shape.width,
           r->shape.classes);
    print_layers(r);
    printf("parameters: %s in %zu tensors; a state has %zu entries\n", grouped((double)s->parameters, a), s->tensors,
           s->entries);
    printf("a sample: %sMAC forward, that is %sFLOP (a MAC is two); a step of training about %sFLOP (three times "
           "that)\n",
           scaled(s->macs, a), scaled(flops_a_mac * s->macs, b), scaled(passes_a_step * flops_a_mac * s->macs, c));
    print_memory(r);
    print_device(r);
}

static void add_count(cJSON *object, const char *key, size_t value)
{
    cJSON_AddNumberToObject(object, key, (double)value);
}

static void add_shape(cJSON *object, const char *key, size_t c, size_t h, size_t w)
{
    cJSON_AddItemToObject(object, key, cJSON_CreateDoubleArray((double[]){(double)c, (double)h, (double)w}, 3));
}

static cJSON *layer_object(const report *r, size_t index)
{
    lk_layer_summary layer = lk__layer_summary(r->graph, index);
    cJSON *object = cJSON_CreateObject();
    add_count(object, "index", index);
    cJSON_AddStringToObject(object, "op", layer.op);
    cJSON_AddStringToObject(object, "name", layer.name);
    add_shape(object, "output", layer.output.c, layer.output.h, layer.output.w);
    add_count(object, "parameters", layer.parameters);
    cJSON_AddNumberToObject(object, "macs", layer.macs);
    return object;
}

static void print_json(const report *r)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "model", r->model);
    add_shape(object, "input", r->shape.channels, r->shape.height, r->shape.width);
    add_count(object, "classes", r->shape.classes);
    add_count(object, "parameters", r->summary.parameters);
    add_count(object, "tensors", r->summary.tensors);
    add_count(object, "entries", r->summary.entries);
    cJSON_AddNumberToObject(object, "macs", r->summary.macs);
    cJSON_AddNumberToObject(object, "forward_flops", flops_a_mac * r->summary.macs);
    cJSON_AddNumberToObject(object, "train_flops", passes_a_step * flops_a_mac * r->summary.macs);
    add_count(object, "batch_size", r->engine.batch);
    add_count(object, "samples_at_once", r->memory.samples);
    cJSON_AddStringToObject(object, "optimizer", r->engine.optimizer);
    cJSON *memory = cJSON_AddObjectToObject(object, "memory_bytes");
    for (int i = 0; i < PARTS; i++)
        add_count(memory, parts[i].key, part_bytes(r, i));
    cJSON *layers = cJSON_AddArrayToObject(object, "layers");
    for (size_t i = 0; i < r->summary.layers; i++)
        cJSON_AddItemToArray(layers, layer_object(r, i));
    if (r->devices.count) {
        cJSON_AddStringToObject(object, "device", r->devices.name[0]);
        cJSON_AddStringToObject(object, "precision", lk__device_precision_names[r->engine.precision]);
        cJSON_AddItemReferenceToObject(object, "device_layers", r->lines);
    }
    lk__cli_json_line(object);
}

/* The device of --devices, with the precision of a run there. */
static lk_status choose_device(const lk_args *args, report *r)
{
    lk_devices_choice choice = {.devices = args->device_names};
    if (!*args->device_names && args->precision_given)
        return lk__fail(LK_STATUS_USAGE, "--precision is of the step that --devices asks for: add --devices cpu, or "
                                         "--devices cuda:0 where there is a GPU");
    if (!*args->device_names)
        return LK_OK;
    LK_TRY(lk__devices_choose(&choice, lk__device_list, &r->devices));
    if (r->devices.count > 1)
        return lk__fail(LK_STATUS_USAGE, "info --model takes one device, as in --devices %s", r->devices.name[0]);
    r->engine.device = r->devices.name[0];
    r->engine.precision = lk__device_precision(r->engine.device, args->train.precision);
    return LK_OK;
}

static lk_status make_report(report *r)
{
    r->summary = lk__graph_summary(r->graph);
    LK_TRY(lk__engine_measure(r->graph, &r->engine, &r->memory));
    if (!r->devices.count)
        return LK_OK;
    r->lines = cJSON_CreateArray();
    return lk__cmd_info_device(r->graph, &r->engine, add_line, r->lines);
}

lk_status lk__cmd_info_model(const lk_args *args)
{
    const lk_train_opts *train = &args->train;
    report r = {.model = train->model};
    r.engine = (lk_engine_opts){.batch = train->batch,
                                .micro_batch = train->micro_batch,
                                .shards = train->shards,
                                .optimizer = train->optimizer};
    LK_TRY(choose_shape(args, &r.shape));
    LK_TRY(choose_device(args, &r));
    LK_TRY(lk_model_build(r.model, r.shape, &r.graph));
    lk_status status = make_report(&r);
    if (status == LK_OK && args->json)
        print_json(&r);
    else if (status == LK_OK)
        print_report(&r);
    cJSON_Delete(r.lines);
    lk_graph_destroy(r.graph);
    return status;
}
