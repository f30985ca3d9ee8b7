/* report.c - log lines, JSON lines and progress of a training run, printed by rank 0 for all. report_rank.c has
 * the lines that each rank prints about itself. */
#include "cli/report/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/job/signals.h"
#include "cli/report/json.h"

/* Seconds between two progress lines: redrawn on a terminal, or as separate lines. */
static const double redraw_every = 0.1, line_every = 10;

enum { FEW_CLASSES = 10 };

static double rate(size_t samples, double seconds)
{
    return seconds > 0 ? (double)samples / seconds : 0;
}

void lk__report_screen_clear(lk_report_screen *screen)
{
    if (screen->drawn)
        fputs("\r\033[K", stderr);
    screen->drawn = false;
}

static bool prints_own(const lk_report *report)
{
    return report->args->log_ranks == LK_ARGS_LOG_RANKS_ALL;
}

/* Called before and after the lines of a rank; false if the rank prints none. */
static bool begin_lines(lk_report *report)
{
    if (report->rank != 0 && !prints_own(report))
        return false;
    pthread_mutex_lock(&report->screen->lock);
    lk__report_screen_clear(report->screen);
    return true;
}

static void end_lines(lk_report *report)
{
    pthread_mutex_unlock(&report->screen->lock);
}

static void json_layout(cJSON *line, const lk_report *report, const lk_train_start *start)
{
    const lk_train_rank_info *self = &start->self;
    cJSON_AddStringToObject(line, "parallel", lk__args_parallel_names[report->plan->mode.parallel]);
    cJSON_AddNumberToObject(line, "ranks", self->ranks);
    cJSON_AddNumberToObject(line, "replicas", self->layout.replicas);
    cJSON_AddNumberToObject(line, "stages", self->layout.stages);
    cJSON *names = cJSON_AddArrayToObject(line, "stages_begin");
    for (int i = 1; i < self->layout.stages; i++)
        cJSON_AddItemToArray(names, cJSON_CreateString(start->cuts[i - 1]));
    cJSON_AddBoolToObject(line, "one_wave", self->layout.one_wave);
    cJSON_AddStringToObject(line, "transport", self->transport);
    cJSON_AddStringToObject(line, "sums",
                            self->layout.gradient_backend ? self->layout.gradient_backend : self->transport);
    cJSON_AddNumberToObject(line, "better_shards", start->better_shards);
}

static void json_start(const lk_report *report, const lk_train_start *start)
{
    const lk_train_opts *opts = &report->plan->train;
    char seed[32];
    snprintf(seed, sizeof seed, "%" PRIu64, opts->seed);
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "event", "start");
    if (*report->plan->join.started)
        cJSON_AddStringToObject(line, "started_by", report->plan->join.started);
    cJSON_AddStringToObject(line, "config", report->args->config ? report->args->config : "");
    cJSON_AddStringToObject(line, "data", start->train->name);
    cJSON_AddStringToObject(line, "path", start->train->path);
    cJSON_AddBoolToObject(line, "data_given", report->data_given);
    cJSON_AddNumberToObject(line, "train_samples", (double)start->train->count);
    cJSON_AddNumberToObject(line, "test_samples", start->test ? (double)start->test->count : 0);
    cJSON_AddNumberToObject(line, "classes", (double)start->train->classes);
    cJSON_AddStringToObject(line, "augment", start->augment);
    cJSON_AddStringToObject(line, "test_augment", start->test_augment);
    cJSON_AddStringToObject(line, "model", opts->model);
    cJSON_AddNumberToObject(line, "parameters", (double)start->parameters);
    cJSON_AddStringToObject(line, "device", start->self.device);
    cJSON_AddNumberToObject(line, "threads", start->self.layout.threads);
    cJSON_AddNumberToObject(line, "shards", opts->shards);
    cJSON_AddRawToObject(line, "seed", seed);
    cJSON_AddStringToObject(line, "optimizer", opts->optimizer);
    cJSON_AddStringToObject(line, "schedule", opts->schedule);
    cJSON_AddNumberToObject(line, "lr_first", start->rates.first);
    cJSON_AddNumberToObject(line, "lr_highest", start->rates.highest);
    cJSON_AddNumberToObject(line, "lr_last", start->rates.last);
    cJSON_AddNumberToObject(line, "batch_size", (double)opts->batch);
    cJSON_AddNumberToObject(line, "steps", (double)start->steps);
    json_layout(line, report, start);
    lk__report_resumed_json(line, start);
    lk__cli_json_line(line);
}

/* "2 stages x 2 replicas (stage 1 begins with fc1), " */
static void print_grid(const lk_train_start *start)
{
    const lk_layout *layout = &start->self.layout;
    if (layout->stages < 2)
        return;
    printf("%d stages x %d replica%s (", layout->stages, layout->replicas, layout->replicas == 1 ? "" : "s");
    for (int i = 1; i < layout->stages; i++)
        printf("%sstage %d begins with %s", i > 1 ? ", " : "", i, start->cuts[i - 1]);
    printf("), ");
}

/* Devices and ranks: "cpu with 2 threads", "ddp, 4 ranks over shm with 1 thread each". */
static void print_ranks(const lk_report *report, const lk_train_start *start)
{
    const lk_train_rank_info *self = &start->self;
    const char *plural = start->self.layout.threads == 1 ? "" : "s";
    if (self->ranks == 1) {
        printf("%s with %d thread%s", self->device, start->self.layout.threads, plural);
        return;
    }
    printf("%s, ", lk__args_parallel_names[report->plan->mode.parallel]);
    print_grid(start);
    const char *sums = self->layout.gradient_backend;
    bool both = sums && strcmp(sums, self->transport) != 0;
    printf("%d ranks over %s%s%s with %d thread%s each", self->ranks, both ? sums : "", both ? " and " : "",
           self->transport, start->self.layout.threads, plural);
}

/* Effects of combined options that a user may not expect. */
static void print_hints(const lk_report *report, const lk_train_start *start)
{
    const lk_train_opts *opts = &report->plan->train;
    const lk_layout *layout = &start->self.layout;
    bool stages = layout->stages > 1 && opts->pipelined;
    if (layout->gradient_backend && opts->reduce == LK_REDUCE_ORDER_BACKEND)
        printf("--reduce engine: %s adds gradients up in an order of its own, and the result is that of %d replicas "
               "on these devices; --reduce tree has the same bits for any number\n",
               layout->gradient_backend, layout->replicas);
    if (layout->one_wave && stages)
        printf("--pipelined has little effect here: BatchNorm under --bn batch needs the whole batch at once, and the "
               "stages take turns, segment by segment; --bn shard lets them work at the same time\n");
    if (layout->one_wave && (opts->micro_batch || opts->accumulate > 1))
        printf("%s here: BatchNorm under --bn batch needs the whole batch at once\n",
               opts->micro_batch ? "--micro-batch has no effect" : "--accumulate saves no memory");
    if (!report->args->shards_given && layout->replicas > 1 && lk__devices_few_shards(start->self.device))
        printf("a shard a replica: the result is that of %d replicas; --shards 16 has one for any number of them\n",
               layout->replicas);
    bool tree = opts->reduce == LK_REDUCE_ORDER_TREE;
    if (tree && start->better_shards % (int)opts->accumulate == 0 && start->better_shards)
        printf("%d shards are not %d replicas times a power of two, so that replicas exchange several partial sums: "
               "--shards %d is faster, with a result of its own\n",
               opts->shards, layout->replicas, start->better_shards / (int)opts->accumulate);
}

/* Prints nothing if images are used as they are. */
static void print_transforms(const lk_train_start *start)
{
    bool changed = strcmp(start->augment, "none") != 0, tests_changed = strcmp(start->test_augment, "none") != 0;
    if (changed || tests_changed)
        printf("training images: %s; test images: %s\n", changed ? start->augment : "as they are",
               tests_changed ? start->test_augment : "as they are");
}

/* Learning rates of the steps of this process. Six digits distinguish all rates in common use. */
static void print_rates(const lk_train_start *start)
{
    const lk_lr_schedule_rates *rates = &start->rates;
    if (start->done >= start->steps)
        return;
    if (rates->first == rates->highest && rates->last == rates->highest)
        printf("learning rate: %.6g in all steps\n", rates->first);
    else
        printf("learning rate: first %.6g, highest %.6g, last %.6g\n", rates->first, rates->highest, rates->last);
    if (start->warmup)
        printf("the warm-up of %zu steps is longer than the run: the learning rate never reaches its full value\n",
               start->warmup);
}

static void text_start(const lk_report *report, const lk_train_start *start)
{
    const lk_train_opts *opts = &report->plan->train;
    const char *path = start->train->path;
    if (*report->plan->join.started)
        printf("%s\n", report->plan->join.started);
    printf("data %s (", start->train->name);
    if (!*path)
        printf(report->data_given ? "built in; " : "built in, as --data was not given; ");
    else if (strcmp(path, start->train->name) != 0)
        printf("%s; ", path);
    printf("%zu training", start->train->count);
    if (start->test)
        printf(" and %zu test", start->test->count);
    printf(" samples, %zu classes), model %s (%zu parameters), ", start->train->classes, opts->model,
           start->parameters);
    print_ranks(report, start);
    printf(", %d shard%s, seed %" PRIu64, opts->shards, opts->shards == 1 ? "" : "s", opts->seed);
    if (report->args->config)
        printf(", config %s", report->args->config);
    printf("\n");
    print_transforms(start);
    print_rates(start);
    print_hints(report, start);
    lk__report_resumed(report, start);
}

static void on_start(void *arg, const lk_train_start *start)
{
    lk_report *report = arg;
    report->train_count = start->train->count;
    report->classes = start->train->classes;
    report->batches = start->batches;
    report->steps = start->steps;
    report->done = start->done;
    report->rank = start->self.rank;
    report->ranks = start->self.ranks;
    report->stage = start->self.layout.stage;
    report->share = start->self.share;
    if (report->level)
        lk__job_signals_watch(report->level);
    if (!begin_lines(report))
        return;
    if (report->rank == 0)
        (report->args->json ? json_start : text_start)(report, start);
    if (report->rank == 0 && start->done == 0)
        lk__report_suspect("train", report->plan->train.init_from);
    if (report->rank == 0 && *report->plan->join.note)
        fprintf(stderr, "lockstep train: %s\n", report->plan->join.note);
    if (report->rank == 0 && start->traced)
        fprintf(stderr, "lockstep train: --trace %s: these steps are done, and no trace is written\n",
                report->plan->train.trace);
    if (report->rank == 0 && *lk__fault_text())
        fprintf(stderr, "LOCKSTEP_FAULT is set: %s\n", lk__fault_text());
    if (prints_own(report))
        lk__report_rank_start(report, start);
    end_lines(report);
}

static void json_step(const lk_train_step *step)
{
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "event", "step");
    cJSON_AddNumberToObject(line, "epoch", (double)step->epoch);
    cJSON_AddNumberToObject(line, "batch", (double)step->batch);
    cJSON_AddNumberToObject(line, "step", (double)step->step);
    cJSON_AddNumberToObject(line, "loss", step->metrics.loss);
    cJSON_AddNumberToObject(line, "accuracy", lk__report_percent(step->metrics.correct, step->metrics.count));
    cJSON_AddNumberToObject(line, "top5", lk__report_percent(step->metrics.top5, step->metrics.count));
    cJSON_AddNumberToObject(line, "lr", step->lr);
    cJSON_AddNumberToObject(line, "img_per_s", rate(step->samples, step->train_seconds));
    cJSON_AddNumberToObject(line, "seconds", step->seconds);
    lk__cli_json_line(line);
}

static void text_step(const lk_report *report, const lk_train_step *step)
{
    printf("Train Epoch: %zu [%zu/%zu (%.0f%%)]\tLoss: %.6f\n", step->epoch, step->seen, report->train_count,
           lk__report_percent(step->batch, report->batches), step->metrics.loss);
}

/* Redrawn on a terminal; elsewhere a plain line from time to time. */
static void progress(lk_report *report, const lk_train_step *step)
{
    lk_report_screen *screen = report->screen;
    double every = screen->terminal ? redraw_every : line_every;
    if (report->args->quiet || step->seconds - report->drawn_at < every)
        return;
    report->drawn_at = step->seconds;
    double left = step->seconds / (double)(step->step - report->done) * (double)(report->steps - step->step);
    unsigned long long eta = (unsigned long long)(left + 0.5);
    pthread_mutex_lock(&screen->lock);
    fprintf(stderr, "%sepoch %zu, step %zu/%zu, loss %.4f, %.0f img/s, ETA %llu:%02llu:%02llu%s",
            screen->terminal ? "\r\033[K" : "", step->epoch, step->step, report->steps, step->metrics.loss,
            rate(step->samples, step->train_seconds), eta / 3600, eta / 60 % 60, eta % 60,
            screen->terminal ? "" : "\n");
    screen->drawn = screen->terminal;
    pthread_mutex_unlock(&screen->lock);
}

static void on_step(void *arg, const lk_train_step *step)
{
    lk_report *report = arg;
    if (step->step == report->done + 1)
        report->first_step_s = lk__clock() - report->exec_at;
    if (step->batch % report->args->log_interval == 0 && begin_lines(report)) {
        if (report->rank == 0 && report->args->json)
            json_step(step);
        else if (report->rank == 0)
            text_step(report, step);
        if (prints_own(report))
            lk__report_rank_step(report, step);
        end_lines(report);
    }
    if (report->rank == 0)
        progress(report, step);
}

/* With few classes the top-5 accuracy has no meaning. */
static void text_metrics(const lk_metrics *metrics, size_t classes)
{
    printf("Test set: Average loss: %.4f, Accuracy: %zu/%zu (%.0f%%)", metrics->loss, metrics->correct, metrics->count,
           lk__report_percent(metrics->correct, metrics->count));
    if (classes > FEW_CLASSES)
        printf(", Top-5: %zu/%zu (%.0f%%)", metrics->top5, metrics->count,
               lk__report_percent(metrics->top5, metrics->count));
    printf("\n");
}

static cJSON *json_metrics(const lk_metrics *metrics)
{
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "event", "test");
    cJSON_AddNumberToObject(line, "loss", metrics->loss);
    cJSON_AddNumberToObject(line, "correct", (double)metrics->correct);
    cJSON_AddNumberToObject(line, "count", (double)metrics->count);
    cJSON_AddNumberToObject(line, "accuracy", lk__report_percent(metrics->correct, metrics->count));
    cJSON_AddNumberToObject(line, "top5", lk__report_percent(metrics->top5, metrics->count));
    return line;
}

void lk__report_metrics(const lk_metrics *metrics, size_t classes, bool json)
{
    if (json)
        lk__cli_json_line(json_metrics(metrics));
    else
        text_metrics(metrics, classes);
}

static void json_test(const lk_train_test *test)
{
    cJSON *line = json_metrics(&test->metrics);
    cJSON_AddNumberToObject(line, "epoch", (double)test->epoch);
    cJSON_AddNumberToObject(line, "train_loss", test->train_loss);
    cJSON_AddNumberToObject(line, "seconds", test->seconds);
    lk__cli_json_line(line);
}

static void on_test(void *arg, const lk_train_test *test)
{
    lk_report *report = arg;
    if (report->rank != 0 || !begin_lines(report))
        return;
    if (report->args->json)
        json_test(test);
    else
        text_metrics(&test->metrics, report->classes);
    end_lines(report);
}

static void on_saved(void *arg, const lk_train_saved *saved)
{
    lk_report *report = arg;
    if (!begin_lines(report))
        return;
    lk__report_saved(report, saved);
    end_lines(report);
}

static void on_trace(void *arg, const lk_train_trace *trace)
{
    lk_report *report = arg;
    if (!begin_lines(report))
        return;
    lk__report_trace(trace, report->args->json);
    end_lines(report);
}

static void json_end(const lk_report *report, const lk_train_result *result)
{
    char hash[17];
    snprintf(hash, sizeof hash, "%016" PRIx64, result->hash);
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "event", "end");
    cJSON_AddNumberToObject(line, "steps", (double)result->steps);
    cJSON_AddNumberToObject(line, "samples", (double)result->samples);
    cJSON_AddNumberToObject(line, "seconds", result->seconds);
    cJSON_AddNumberToObject(line, "train_seconds", result->train_seconds);
    cJSON_AddNumberToObject(line, "img_per_s", rate(result->samples, result->train_seconds));
    cJSON_AddNumberToObject(line, "first_step_s", report->first_step_s);
    cJSON_AddNumberToObject(line, "peak_rss_mb", lk__mem_peak_mb());
    cJSON_AddNumberToObject(line, "ranks", result->ranks);
    cJSON_AddNumberToObject(line, "wait_gradients_s", result->waits.gradients);
    cJSON_AddNumberToObject(line, "wait_other_s", result->waits.other);
    cJSON_AddStringToObject(line, "state_hash", hash);
    cJSON_AddStringToObject(line, "saved", result->saved);
    cJSON_AddStringToObject(line, "checkpoint", result->checkpoint);
    lk__cli_json_line(line);
}

static void text_end(const lk_train_result *result)
{
    printf("Total Training Time %.2f seconds\n", result->seconds);
    if (*result->saved)
        printf("Model saved to %s\n", result->saved);
    printf("State hash %016" PRIx64 "\n", result->hash);
}

static void on_end(void *arg, const lk_train_result *result)
{
    lk_report *report = arg;
    if (!begin_lines(report))
        return;
    if (prints_own(report))
        lk__report_rank_end(report, result);
    if (report->rank == 0 && report->args->json)
        json_end(report, result);
    else if (report->rank == 0)
        text_end(result);
    end_lines(report);
}

static void on_stopped(void *arg, const lk_train_result *result)
{
    lk_report *report = arg;
    if (report->rank > 0 && !report->by_hand)
        return;
    pthread_mutex_lock(&report->screen->lock);
    lk__report_screen_clear(report->screen);
    lk__report_stopped(report, result);
    end_lines(report);
}

lk_train_events lk__report_events(lk_report *report)
{
    return (lk_train_events){.arg = report,
                             .start = on_start,
                             .step = on_step,
                             .test = on_test,
                             .end = on_end,
                             .stopped = on_stopped,
                             .saved = on_saved,
                             .trace = on_trace};
}
