/* layers.c - `lockstep bench layers`: the time of each layer of a training step, forward and backward, beside the
 * shortest time at the machine's peak of fused multiply-adds and its bandwidth of memory.
 *
 * A layer must do its multiply-adds, and read and write each of its tensors once; what takes longer is the limit.
 * Tensors that are still in a cache can be faster than that. Layers that are fused are one row: that of the layer that
 * does the work. Times are spans of traces (base/trace.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/median.h"
#include "base/mem.h"
#include "base/trace.h"
#include "cli/bench/limits.h"
#include "cli/bench/steps.h"
#include "cli/cli.h"
#include "cli/report/json.h"
#include "nn/graph.h"
#include "nn/summary.h"

enum { PASSES = 2, MAX_TRACKS = 64, PEAK_ROUNDS = 1 << 15, PEAKS = 100, MAX_STEPS = 10000 };

/* Seconds below which a pass does nothing but to be called. */
static const double nothing = 1e-6;
static const char *const pass_names[PASSES] = {"forward", "backward"};

typedef struct bench {
    const lk_args *args;
    lk_bench_steps steps;
    size_t layers;
    double *times;  // (layers, PASSES, args->steps) seconds
    double *update; // (args->steps)
    double *whole;  // (args->steps)
    const lk_cpu_build *build;
    double peak, bandwidth; /* GF/s and GB/s of all threads */
} bench;

/* One pass of one layer, or a part of the step that has no layer. */
typedef struct row {
    int layer; /* -1: none */
    const char *name, *op, *pass;
    double seconds; /* the median */
    double gflop, gbyte;
} row;

static double *times_of(const bench *b, size_t layer, size_t pass)
{
    return b->times + (layer * PASSES + pass) * b->args->steps;
}

static lk_status measure_limits(bench *b)
{
    lk_device *dev;
    lk_device_opts opts = {.threads = b->steps.threads};
    LK_TRY(lk__device_open(b->args->train.device, &opts, &dev));
    b->build = ((lk_cpu_device *)dev)->build;
    for (int i = 0; i < PEAKS; i++)
        b->peak = fmax(b->peak, b->steps.threads * lk__bench_peak(b->build, PEAK_ROUNDS));
    lk_status status = lk__bench_bandwidth(dev, &b->bandwidth);
    lk__device_close(dev);
    return status;
}

/* The layer that an event is of; the number of layers if it is of none. A fused layer is computed at the place of one
 * that follows it. */
static size_t layer_of(const bench *b, const lk_trace_event *event)
{
    for (int i = event->number; i >= 0 && (size_t)i < b->layers; i--) {
        lk_layer_summary layer = lk__layer_summary(b->steps.graph, (size_t)i);
        if (strcmp(event->name, *layer.name ? layer.name : layer.op) == 0)
            return (size_t)i;
    }
    return b->layers;
}

static void add_event(bench *b, const lk_trace_event *event, size_t step)
{
    double seconds = event->end - event->begin;
    bool backward = event->kind == LK_TRACE_KIND_BACKWARD;
    if (event->kind == LK_TRACE_KIND_UPDATE && strcmp(event->name, "update") == 0)
        b->update[step] += seconds;
    if (!backward && event->kind != LK_TRACE_KIND_FORWARD)
        return;
    size_t layer = layer_of(b, event);
    if (layer < b->layers)
        times_of(b, layer, backward)[step] += seconds;
}

/* Only the events of this thread: those of the threads that help it are in the same time. */
static void add_events(bench *b, size_t step)
{
    lk_trace_track tracks[MAX_TRACKS];
    size_t count = lk__size_min(lk__trace_tracks(0, tracks, MAX_TRACKS), MAX_TRACKS);
    for (size_t t = 0; t < count; t++) {
        for (size_t i = 0; i < tracks[t].count && tracks[t].index < 0; i++)
            add_event(b, &tracks[t].events[i], step);
    }
}

static lk_status time_steps(bench *b)
{
    LK_TRY(lk__bench_steps_run(&b->steps, LK_BENCH_STEPS_WARM_UP, NULL, NULL));
    lk__trace_thread(0, "bench", -1);
    for (size_t step = 0; step < b->args->steps; step++) {
        lk__trace_start();
        double began = lk__clock();
        lk_status status = lk__bench_steps_run(&b->steps, 1, NULL, NULL);
        b->whole[step] = lk__clock() - began;
        lk__trace_stop();
        LK_TRY(status);
        add_events(b, step);
    }
    return LK_OK;
}

static lk_status open_bench(bench *b)
{
    LK_TRY(lk__bench_steps_open(&b->steps));
    b->layers = lk__graph_summary(b->steps.graph).layers;
    LK_TRY(LK_ALLOC(b->layers * PASSES * b->args->steps, "times", &b->times));
    LK_TRY(LK_ALLOC(b->args->steps, "times", &b->update));
    LK_TRY(LK_ALLOC(b->args->steps, "times", &b->whole));
    return measure_limits(b);
}

static void close_bench(bench *b)
{
    lk__mem_free(b->whole);
    lk__mem_free(b->update);
    lk__mem_free(b->times);
    lk__bench_steps_close(&b->steps);
}

/* The work of a pass. Backward, each input gets a gradient, except those that are samples. */
static void count_work(const bench *b, size_t index, bool backward, row *out)
{
    const lk_graph *graph = b->steps.graph;
    const lk_layer *layer = &graph->layers[index];
    lk_layer_summary summary = lk__layer_summary(graph, index);
    double samples = (double)b->steps.batch, floats = samples * (double)lk__shape_sample(layer->shape);
    int grads = 0;
    for (int i = 0; i < layer->input_count; i++) {
        bool needs = backward && layer->inputs[i] > 0;
        floats += samples * (double)lk__shape_sample(graph->layers[layer->inputs[i]].shape) * (needs ? 2 : 1);
        grads += needs;
    }
    floats += (double)summary.parameters * (backward ? 2 : 1);
    int products = backward ? grads + (summary.parameters > 0) : 1;
    out->gbyte = 4e-9 * floats;
    out->gflop = 2e-9 * summary.macs * samples * products;
}

static void print_row(const bench *b, const row *r)
{
    double limit = fmax(r->gflop / b->peak, r->gbyte / b->bandwidth);
    if (!b->args->json) {
        char layer[12] = "";
        if (r->layer >= 0)
            snprintf(layer, sizeof layer, "%d", r->layer);
        printf("%5s  %-14s %-26s %-9s %9.3f", layer, r->op, r->name, r->pass, 1e3 * r->seconds);
        if (r->gflop > 0)
            printf(" %8.1f", r->gflop / r->seconds);
        else
            printf(" %8s", "");
        if (r->gbyte > 0)
            printf(" %8.1f %7.0f%%", r->gbyte / r->seconds, 100 * limit / r->seconds);
        printf("\n");
        return;
    }
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "case", "layers");
    if (r->layer >= 0)
        cJSON_AddNumberToObject(line, "layer", r->layer);
    cJSON_AddStringToObject(line, "name", r->name);
    cJSON_AddStringToObject(line, "op", r->op);
    cJSON_AddStringToObject(line, "pass", r->pass);
    cJSON_AddNumberToObject(line, "ms", 1e3 * r->seconds);
    cJSON_AddNumberToObject(line, "gflops", r->gflop / r->seconds);
    cJSON_AddNumberToObject(line, "gb_per_s", r->gbyte / r->seconds);
    cJSON_AddNumberToObject(line, "limit_ms", 1e3 * limit);
    cJSON_AddNumberToObject(line, "peak_gflops", b->peak);
    cJSON_AddNumberToObject(line, "peak_gb_per_s", b->bandwidth);
    lk__cli_json_line(line);
}

static void print_header(const bench *b)
{
    if (b->args->json)
        return;
    int threads = b->steps.threads;
    printf("%s on %s, batch %zu, %d thread%s, %s kernels; medians of %zu steps\n", b->args->train.model,
           lk__bench_steps_data(b->args), b->steps.batch, threads, threads == 1 ? "" : "s", b->build->name,
           b->args->steps);
    printf("limits: %.1f GF/s, and %.1f GB/s read and written in memory; a layer above 100 %% read caches instead of "
           "memory, or needed fewer products (Winograd)\n",
           b->peak, b->bandwidth);
    printf("%5s  %-14s %-26s %-9s %9s %8s %8s %8s\n", "layer", "op", "name", "pass", "ms", "GF/s", "GB/s", "% limit");
}

/* Medians of the layers and of what is not in a layer. */
static void print(const bench *b)
{
    size_t steps = b->args->steps;
    row whole = {-1, "step", "", "", .seconds = lk__median(b->whole, steps)};
    row update = {-1, "update", "", "", .seconds = lk__median(b->update, steps)};
    row rest = {-1, "rest", "", "", .seconds = whole.seconds - update.seconds};
    print_header(b);
    for (size_t i = 0; i < b->layers; i++) {
        lk_layer_summary summary = lk__layer_summary(b->steps.graph, i);
        for (size_t pass = 0; pass < PASSES; pass++) {
            row r = {(int)i, summary.name, summary.op, pass_names[pass]};
            r.seconds = lk__median(times_of(b, i, pass), steps);
            if (r.seconds < nothing)
                continue;
            count_work(b, i, pass == 1, &r);
            print_row(b, &r);
            rest.seconds -= r.seconds;
            whole.gflop += r.gflop;
            whole.gbyte += r.gbyte;
        }
    }
    print_row(b, &update);
    print_row(b, &rest);
    print_row(b, &whole);
}

lk_status lk__bench_layers(const lk_args *args)
{
    int threads = args->train.threads > 0 ? args->train.threads : 1;
    bench b = {.args = args, .steps = {.args = args, .parts = 1, .threads = threads}};
    if (args->steps > MAX_STEPS)
        return lk__fail(LK_STATUS_USAGE, "`steps` %zu: bench layers times at most %d steps", args->steps, MAX_STEPS);
    lk_status status = open_bench(&b);
    if (status == LK_OK)
        status = time_steps(&b);
    if (status == LK_OK)
        print(&b);
    close_bench(&b);
    return status;
}
