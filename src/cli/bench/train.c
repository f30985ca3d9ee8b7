/* train.c - `lockstep bench train`: training steps with the data already in memory, so that only the step is
 * timed, in one process or in several ranks of this host.
 *
 * With --independent the ranks start together, but each trains alone on its part of the batch: what the cores
 * can do if ranks never wait. With --in-step they wait for the slowest rank after each step, as ranks that
 * train together must; the remaining difference is the cost of the sums. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <lockstep/group.h>
#include <lockstep/launch.h>

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/cores.h"
#include "base/median.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/bench/steps.h"
#include "cli/cli.h"
#include "cli/report/json.h"
#include "comm/transport/transport.h"

enum { MAX_RUNS = 99 };

/* A rank's measurements in one run. */
typedef struct timing {
    double seconds;
    lk_waits waits;
} timing;

/* Results of a rank for the process that started it. */
typedef struct outcome {
    timing runs[MAX_RUNS];
    double peak_rss_mb;
    size_t samples; /* of a step of this rank's engine */
    lk_status status;
    char detail[1024]; /* of a failure */
} outcome;

typedef struct bench {
    const lk_args *args;
    int ranks;
    size_t runs;
    outcome *outcomes; /* (ranks), memory shared with them */
} bench;

typedef struct bench_rank {
    const bench *bench;
    lk_group *group; /* NULL: the only rank */
    lk_bench_steps steps;
} bench_rank;

static int threads_of(const bench *b)
{
    int part = lk__cores() / b->ranks;
    return b->args->train.threads > 0 ? b->args->train.threads : part > 0 ? part : 1;
}

static lk_status wait_for_others(void *arg)
{
    return lk_barrier(((bench_rank *)arg)->group, NULL);
}

static lk_status run_steps(bench_rank *r, size_t count)
{
    bool waits = r->bench->args->in_step && r->group;
    return lk__bench_steps_run(&r->steps, count, waits ? wait_for_others : NULL, r);
}

static lk_status time_run(bench_rank *r, timing *out)
{
    if (r->group)
        LK_TRY(lk_barrier(r->group, NULL));
    lk_waits before = lk_engine_waits(r->steps.engine);
    double began = lk__clock();
    LK_TRY(run_steps(r, r->bench->args->steps));
    double seconds = lk__clock() - began;
    lk_waits after = lk_engine_waits(r->steps.engine);
    *out = (timing){seconds, {after.gradients - before.gradients, after.other - before.other}};
    return LK_OK;
}

static lk_status time_runs(bench_rank *r, outcome *out)
{
    LK_TRY(lk__bench_steps_open(&r->steps));
    out->samples = r->steps.batch;
    LK_TRY(run_steps(r, LK_BENCH_STEPS_WARM_UP));
    for (size_t i = 0; i < r->bench->runs; i++)
        LK_TRY(time_run(r, &out->runs[i]));
    out->peak_rss_mb = lk__mem_peak_mb();
    return LK_OK;
}

/* The rank's own GPU, where there are enough; NULL: all ranks have the device of the options. */
static const char *device_of(const bench *b, int rank)
{
    const lk_devices *all = &b->args->devices;
    bool chosen = strcmp(b->args->train.device, all->name[0]) == 0; /* not the CPU in place of a GPU */
    return chosen && all->count >= b->ranks ? all->name[rank] : NULL;
}

static lk_status run_rank(const bench *b, int rank, lk_group *group, outcome *out)
{
    bool alone = b->args->independent;
    bench_rank r = {.bench = b,
                    .group = group,
                    .steps = {.args = b->args,
                              .group = alone ? NULL : group,
                              .parts = alone ? (size_t)b->ranks : 1,
                              .threads = threads_of(b),
                              .device = device_of(b, rank)}};
    lk_status status = time_runs(&r, out);
    lk__bench_steps_close(&r.steps);
    return status;
}

static int rank_main(int rank, void *arg)
{
    const bench *b = arg;
    outcome *out = &b->outcomes[rank];
    lk_group_opts opts = {.backend = b->args->backend};
    lk_group *group = NULL;
    lk_status status = lk_group_join(&opts, &group);
    if (status == LK_OK)
        status = run_rank(b, rank, group, out);
    if (status != LK_OK) {
        snprintf(out->detail, sizeof out->detail, "%s", lk_error_detail());
        out->status = status;
    }
    lk_group_destroy(group);
    return status == LK_OK ? LK_EXIT_DONE : LK_EXIT_FAILED;
}

/* The figures of one run, or their medians over all runs; times of waiting are percentages of a step, over the ranks.
 */
typedef struct figures {
    double img_per_s, ms_per_step;
    double gradients, gradients_most, other, other_most;
} figures;

enum { FIGURES = sizeof(figures) / sizeof(double) };

static figures figures_of(const bench *b, size_t run)
{
    figures f = {0};
    double steps = (double)b->args->steps;
    for (int rank = 0; rank < b->ranks; rank++) {
        const outcome *from = &b->outcomes[rank];
        const timing *t = &from->runs[run];
        double gradients = 100 * t->waits.gradients / t->seconds, other = 100 * t->waits.other / t->seconds;
        double samples = (double)from->samples * (b->args->independent ? 1 : 1.0 / b->ranks);
        f.img_per_s += samples * steps / t->seconds;
        f.ms_per_step += 1e3 * t->seconds / steps / b->ranks;
        f.gradients += gradients / b->ranks;
        f.other += other / b->ranks;
        f.gradients_most = gradients > f.gradients_most ? gradients : f.gradients_most;
        f.other_most = other > f.other_most ? other : f.other_most;
    }
    return f;
}

static figures median_figures(const bench *b)
{
    double all[FIGURES][MAX_RUNS], one[FIGURES];
    figures result;
    for (size_t run = 0; run < b->runs; run++) {
        figures f = figures_of(b, run);
        memcpy(one, &f, sizeof f);
        for (size_t i = 0; i < FIGURES; i++)
            all[i][run] = one[i];
    }
    for (size_t i = 0; i < FIGURES; i++)
        one[i] = lk__median(all[i], b->runs);
    memcpy(&result, one, sizeof result);
    return result;
}

static double most_memory(const bench *b)
{
    double most = 0;
    for (int rank = 0; rank < b->ranks; rank++)
        most = b->outcomes[rank].peak_rss_mb > most ? b->outcomes[rank].peak_rss_mb : most;
    return most;
}

/* Samples of a step of all ranks together. */
static size_t batch_of(const bench *b)
{
    return b->outcomes[0].samples * (b->args->independent ? (size_t)b->ranks : 1);
}

static const char *precision_of(const bench *b)
{
    const lk_train_opts *opts = &b->args->train;
    return lk__device_precision_names[lk__device_precision(opts->device, opts->precision)];
}

static void print_text(const bench *b, const figures *f)
{
    const lk_train_opts *opts = &b->args->train;
    int threads = threads_of(b);
    char memory[LK_TEXT_AMOUNT];
    printf("%s on %s, %s, batch %zu, ", opts->model, lk__bench_steps_data(b->args), precision_of(b), batch_of(b));
    if (b->ranks > 1)
        printf("%d %sranks of ", b->ranks, b->args->independent ? "independent " : "");
    printf("%d thread%s, %d shards: %.1f img/s, %.3f ms a step, %s%s at most", threads, threads == 1 ? "" : "s",
           opts->shards, f->img_per_s, f->ms_per_step, lk__text_amount((size_t)(1e6 * most_memory(b)), memory),
           b->ranks > 1 ? " a rank" : "");
    if (b->ranks > 1 && !b->args->independent)
        printf("; waiting for gradients %.2f %% of a step (at most %.2f %%), for other data of other ranks %.2f %% "
               "(%.2f %%)",
               f->gradients, f->gradients_most, f->other, f->other_most);
    printf("\n");
}

static void print_json(const bench *b, const figures *f)
{
    const lk_train_opts *opts = &b->args->train;
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "case", "train");
    cJSON_AddStringToObject(line, "model", opts->model);
    cJSON_AddStringToObject(line, "data", lk__bench_steps_data(b->args));
    cJSON_AddStringToObject(line, "optimizer", opts->optimizer);
    cJSON_AddStringToObject(line, "precision", precision_of(b));
    cJSON_AddNumberToObject(line, "batch_size", (double)batch_of(b));
    cJSON_AddNumberToObject(line, "ranks", b->ranks);
    cJSON_AddBoolToObject(line, "independent", b->args->independent);
    cJSON_AddNumberToObject(line, "threads", threads_of(b));
    cJSON_AddNumberToObject(line, "shards", opts->shards);
    cJSON_AddNumberToObject(line, "steps", (double)b->args->steps);
    cJSON_AddNumberToObject(line, "img_per_s", f->img_per_s);
    cJSON_AddNumberToObject(line, "ms_per_step", f->ms_per_step);
    cJSON_AddNumberToObject(line, "wait_gradients_percent", f->gradients);
    cJSON_AddNumberToObject(line, "wait_gradients_percent_most", f->gradients_most);
    cJSON_AddNumberToObject(line, "wait_other_percent", f->other);
    cJSON_AddNumberToObject(line, "wait_other_percent_most", f->other_most);
    cJSON_AddNumberToObject(line, "peak_rss_mb", most_memory(b));
    lk__cli_json_line(line);
}

/* A rank's own reason says more than the exit of its process, or than the reports of other ranks about it. */
static lk_status explain(const bench *b, lk_status status)
{
    const outcome *cause = NULL;
    for (int rank = 0; rank < b->ranks; rank++) {
        const outcome *out = &b->outcomes[rank];
        if (out->status != LK_OK && (!cause || cause->status == LK_STATUS_PEER))
            cause = out;
    }
    return cause ? lk__fail(cause->status, "%s", cause->detail) : status;
}

static lk_status run_all(bench *b)
{
    if (b->ranks == 1)
        return run_rank(b, 0, NULL, b->outcomes);
    lk_status status = lk_spawn(b->ranks, rank_main, b);
    return status == LK_OK ? LK_OK : explain(b, status);
}

lk_status lk__bench_train(const lk_args *args)
{
    bench b = {.args = args, .ranks = args->nproc ? args->nproc : 1, .runs = args->runs ? args->runs : 1};
    const lk_transport_type *transport;
    if (args->in_step && !args->independent)
        return lk__fail(LK_STATUS_USAGE, "`in_step` is for `independent` ranks; others are in step anyway");
    if (args->independent && args->train.stages)
        return lk__fail(LK_STATUS_USAGE, "`independent` ranks have no stages; leave `independent` or `stages` out");
    if (args->backend)
        LK_TRY(lk__transport_find(args->backend, &transport));
    size_t bytes = (size_t)b.ranks * sizeof *b.outcomes;
    b.outcomes = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b.outcomes == MAP_FAILED)
        return lk__fail_memory(bytes, "the times of all ranks");
    lk_status status = run_all(&b);
    if (status == LK_OK) {
        figures f = median_figures(&b);
        (args->json ? print_json : print_text)(&b, &f);
    }
    munmap(b.outcomes, bytes);
    return status;
}
