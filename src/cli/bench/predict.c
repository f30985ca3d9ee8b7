/* predict.c - `lockstep bench predict`: the time of one sample's forward pass (lk_engine_forward with a batch of 1), in
 * turn with the core's peak of fused multiply-adds. */
#include <stdio.h>

#include "base/clock.h"
#include "base/median.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/bench/limits.h"
#include "cli/cli.h"
#include "cli/report/json.h"
#include "nn/summary.h"
#include "tensor/cpu/cpu.h"

enum { PEAK_ROUNDS = 1 << 14, MAX_CALLS = 100000 };

typedef struct bench {
    const lk_args *args;
    int threads;
    lk_dataset *data;
    lk_graph *graph;
    lk_engine *engine;
    float *x;      // (H, W, C)
    float *scores; // (floats of the loss's input)
    double *calls; /* (args->steps) seconds */
    double peak;   /* GF/s: the largest that was measured; 0: not measured */
} bench;

/* Values in [-1,1): zeros and subnormals would distort the speed. */
static lk_status make_sample(bench *b, size_t floats)
{
    lk_rng rng = lk__rng(1, LK_RNG_PURPOSE_INIT, 1, 0, 0);
    LK_TRY(LK_ALLOC(floats, "a sample", &b->x));
    for (size_t i = 0; i < floats; i++)
        b->x[i] = 2 * lk__rng_unit(lk__rng_u32(&rng, i)) - 1;
    return LK_OK;
}

static lk_status open_bench(bench *b)
{
    const lk_train_opts *opts = &b->args->train;
    lk_sample_shape shape;
    lk_engine_opts engine = lk__train_engine_opts(opts);
    engine.threads = b->threads;
    engine.batch = 1;
    engine.shards = 1;
    engine.eval_only = true;
    LK_TRY(lk_dataset_open(opts->data, opts->data_dir, LK_SPLIT_TEST, &b->data));
    LK_TRY(lk__train_shape(b->data, opts->test_augment, &shape));
    LK_TRY(lk__train_build_model(opts, b->data, shape, &b->graph));
    LK_TRY(lk_engine_create(b->graph, &engine, &b->engine));
    LK_TRY(make_sample(b, lk__shape_sample(b->graph->layers[0].shape)));
    LK_TRY(LK_ALLOC(lk_engine_output_floats(b->engine, NULL), "scores", &b->scores));
    return LK_ALLOC(b->args->steps, "times", &b->calls);
}

static void close_bench(bench *b)
{
    lk__mem_free(b->calls);
    lk__mem_free(b->scores);
    lk__mem_free(b->x);
    lk_engine_destroy(b->engine);
    lk_graph_destroy(b->graph);
    lk_dataset_destroy(b->data);
}

/* build: of the CPU's kernels, or NULL. */
static lk_status time_calls(bench *b, const lk_cpu_build *build)
{
    lk_batch batch = {.count = 1, .sample_floats = lk__shape_sample(b->graph->layers[0].shape), .x = b->x};
    LK_TRY(lk_engine_forward(b->engine, &batch, b->scores)); /* warms up */
    for (size_t i = 0; i < b->args->steps; i++) {
        double began = lk__clock();
        LK_TRY(lk_engine_forward(b->engine, &batch, b->scores));
        b->calls[i] = lk__clock() - began;
        double peak = build ? b->threads * lk__bench_peak(build, PEAK_ROUNDS) : 0;
        b->peak = peak > b->peak ? peak : b->peak;
    }
    return LK_OK;
}

/* The rate is that of the fastest call, which is the least disturbed one, as the largest peak is. */
static void print(const bench *b)
{
    const lk_train_opts *opts = &b->args->train;
    double median = lk__median(b->calls, b->args->steps), fastest = b->calls[0]; /* sorted by now */
    double rate = 2e-9 * lk__graph_summary(b->graph).macs / fastest;
    if (!b->args->json) {
        printf("%s on %s, one sample, %d thread%s: median %.1f us, fastest %.1f us, %.1f GF/s", opts->model, opts->data,
               b->threads, b->threads == 1 ? "" : "s", 1e6 * median, 1e6 * fastest, rate);
        if (b->peak > 0)
            printf(", %.0f %% of the peak of %.1f", 100 * rate / b->peak, b->peak);
        printf("\n");
        return;
    }
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "case", "predict");
    cJSON_AddStringToObject(line, "model", opts->model);
    cJSON_AddStringToObject(line, "data", opts->data);
    cJSON_AddNumberToObject(line, "threads", b->threads);
    cJSON_AddNumberToObject(line, "calls", (double)b->args->steps);
    cJSON_AddNumberToObject(line, "median_us", 1e6 * median);
    cJSON_AddNumberToObject(line, "fastest_us", 1e6 * fastest);
    cJSON_AddNumberToObject(line, "gflops", rate);
    if (b->peak > 0)
        cJSON_AddNumberToObject(line, "peak_gflops", b->peak);
    lk__cli_json_line(line);
}

static lk_status find_build(const bench *b, lk_device **dev, const lk_cpu_build **build)
{
    lk_device_opts opts = {.threads = 1};
    if (lk__device_find(b->args->train.device) != &lk__device_cpu)
        return LK_OK;
    LK_TRY(lk__device_open(b->args->train.device, &opts, dev));
    *build = ((lk_cpu_device *)*dev)->build;
    return LK_OK;
}

lk_status lk__bench_predict(const lk_args *args)
{
    bench b = {.args = args, .threads = args->train.threads > 0 ? args->train.threads : 1};
    lk_device *dev = NULL;
    const lk_cpu_build *build = NULL;
    if (args->steps > MAX_CALLS)
        return lk__fail(LK_STATUS_USAGE, "`steps` %zu: bench predict times at most %d calls", args->steps, MAX_CALLS);
    lk_status status = open_bench(&b);
    if (status == LK_OK)
        status = find_build(&b, &dev, &build);
    if (status == LK_OK)
        status = time_calls(&b, build);
    if (status == LK_OK)
        print(&b);
    lk__device_close(dev);
    close_bench(&b);
    return status;
}
