/* report.c - log lines, JSON lines and progress of a training run. */
#include "cli/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/json.h"

/* Seconds between two progress lines: redrawn in place, or one under another. */
static const double redraw_every = 0.1, line_every = 10;

static double percent(size_t part, size_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

static double rate(size_t samples, double seconds)
{
    return seconds > 0 ? (double)samples / seconds : 0;
}

void lk__report_init(lk_report *report, const lk_args *args, bool data_given)
{
    *report = (lk_report){.args = args, .data_given = data_given, .terminal = isatty(STDERR_FILENO) == 1};
}

void lk__report_clear(lk_report *report)
{
    if (report->drawn)
        fputs("\r\033[K", stderr);
    report->drawn = false;
}

static void json_start(const lk_report *report, const lk_train_start *start)
{
    const lk_train_opts *opts = &report->args->train;
    char seed[32];
    snprintf(seed, sizeof seed, "%" PRIu64, opts->seed);
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "event", "start");
    cJSON_AddStringToObject(line, "data", start->train->name);
    cJSON_AddStringToObject(line, "path", start->train->path);
    cJSON_AddBoolToObject(line, "data_given", report->data_given);
    cJSON_AddNumberToObject(line, "train_samples", (double)start->train->count);
    cJSON_AddNumberToObject(line, "test_samples", start->test ? (double)start->test->count : 0);
    cJSON_AddNumberToObject(line, "classes", (double)start->train->classes);
    cJSON_AddStringToObject(line, "model", opts->model);
    cJSON_AddNumberToObject(line, "parameters", (double)start->parameters);
    cJSON_AddStringToObject(line, "device", opts->device);
    cJSON_AddNumberToObject(line, "threads", start->threads);
    cJSON_AddNumberToObject(line, "shards", opts->shards);
    cJSON_AddRawToObject(line, "seed", seed);
    cJSON_AddStringToObject(line, "optimizer", opts->optimizer);
    cJSON_AddStringToObject(line, "schedule", opts->schedule);
    cJSON_AddNumberToObject(line, "batch_size", (double)opts->batch);
    cJSON_AddNumberToObject(line, "steps", (double)start->steps);
    lk__json_line(line);
}

static void text_start(const lk_report *report, const lk_train_start *start)
{
    const lk_train_opts *opts = &report->args->train;
    const char *path = start->train->path;
    printf("data %s (", start->train->name);
    if (!*path)
        printf(report->data_given ? "built in; " : "built in, as --data was not given; ");
    else if (strcmp(path, start->train->name) != 0)
        printf("%s; ", path);
    printf("%zu training", start->train->count);
    if (start->test)
        printf(" and %zu test", start->test->count);
    printf(" samples, %zu classes), model %s (%zu parameters), %s with %d thread%s, %d shard%s, seed %" PRIu64 "\n",
           start->train->classes, opts->model, start->parameters, opts->device, start->threads,
           start->threads == 1 ? "" : "s", opts->shards, opts->shards == 1 ? "" : "s", opts->seed);
    if (opts->micro_batch && start->one_wave)
        printf("--micro-batch has no effect here: BatchNorm under --bn batch needs the whole batch at once\n");
}

static void on_start(void *arg, const lk_train_start *start)
{
    lk_report *report = arg;
    report->train_count = start->train->count;
    report->batches = start->batches;
    report->steps = start->steps;
    (report->args->json ? json_start : text_start)(report, start);
}

static void json_step(const lk_train_step *step)
{
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "event", "step");
    cJSON_AddNumberToObject(line, "epoch", (double)step->epoch);
    cJSON_AddNumberToObject(line, "batch", (double)step->batch);
    cJSON_AddNumberToObject(line, "step", (double)step->step);
    cJSON_AddNumberToObject(line, "loss", step->metrics.loss);
    cJSON_AddNumberToObject(line, "accuracy", percent(step->metrics.correct, step->metrics.count));
    cJSON_AddNumberToObject(line, "lr", step->lr);
    cJSON_AddNumberToObject(line, "img_per_s", rate(step->samples, step->train_seconds));
    cJSON_AddNumberToObject(line, "seconds", step->seconds);
    lk__json_line(line);
}

static void text_step(const lk_report *report, const lk_train_step *step)
{
    printf("Train Epoch: %zu [%zu/%zu (%.0f%%)]\tLoss: %.6f\n", step->epoch, step->seen, report->train_count,
           percent(step->batch, report->batches), step->metrics.loss);
}

/* Redrawn in place on a terminal; elsewhere a plain line now and then. */
static void progress(lk_report *report, const lk_train_step *step)
{
    double every = report->terminal ? redraw_every : line_every;
    if (report->args->quiet || step->seconds - report->drawn_at < every)
        return;
    report->drawn_at = step->seconds;
    double left = step->seconds / (double)step->step * (double)(report->steps - step->step);
    unsigned long long eta = (unsigned long long)(left + 0.5);
    fprintf(stderr, "%sepoch %zu, step %zu/%zu, loss %.4f, %.0f img/s, ETA %llu:%02llu:%02llu%s",
            report->terminal ? "\r\033[K" : "", step->epoch, step->step, report->steps, step->metrics.loss,
            rate(step->samples, step->train_seconds), eta / 3600, eta / 60 % 60, eta % 60,
            report->terminal ? "" : "\n");
    report->drawn = report->terminal;
}

static void on_step(void *arg, const lk_train_step *step)
{
    lk_report *report = arg;
    if (step->step == 1)
        report->first_step_s = lk__since_exec();
    if (step->batch % report->args->log_interval == 0) {
        lk__report_clear(report);
        if (report->args->json)
            json_step(step);
        else
            text_step(report, step);
    }
    progress(report, step);
}

static void text_metrics(const lk_metrics *metrics)
{
    printf("Test set: Average loss: %.4f, Accuracy: %zu/%zu (%.0f%%)\n", metrics->loss, metrics->correct,
           metrics->count, percent(metrics->correct, metrics->count));
}

static cJSON *json_metrics(const lk_metrics *metrics)
{
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "event", "test");
    cJSON_AddNumberToObject(line, "loss", metrics->loss);
    cJSON_AddNumberToObject(line, "correct", (double)metrics->correct);
    cJSON_AddNumberToObject(line, "count", (double)metrics->count);
    cJSON_AddNumberToObject(line, "accuracy", percent(metrics->correct, metrics->count));
    return line;
}

void lk__report_metrics(const lk_metrics *metrics, bool json)
{
    if (json)
        lk__json_line(json_metrics(metrics));
    else
        text_metrics(metrics);
}

static void on_test(void *arg, const lk_train_test *test)
{
    lk_report *report = arg;
    lk__report_clear(report);
    if (!report->args->json) {
        text_metrics(&test->metrics);
        return;
    }
    cJSON *line = json_metrics(&test->metrics);
    cJSON_AddNumberToObject(line, "epoch", (double)test->epoch);
    cJSON_AddNumberToObject(line, "train_loss", test->train_loss);
    cJSON_AddNumberToObject(line, "seconds", test->seconds);
    lk__json_line(line);
}

lk_train_events lk__report_events(lk_report *report)
{
    return (lk_train_events){.arg = report, .start = on_start, .step = on_step, .test = on_test};
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
    cJSON_AddNumberToObject(line, "peak_rss_mb", lk__peak_rss_mb());
    cJSON_AddStringToObject(line, "state_hash", hash);
    cJSON_AddStringToObject(line, "saved", result->saved);
    lk__json_line(line);
}

void lk__report_end(lk_report *report, const lk_train_result *result)
{
    lk__report_clear(report);
    if (report->args->json) {
        json_end(report, result);
        return;
    }
    printf("Total Training Time %.2f seconds\n", result->seconds);
    if (*result->saved)
        printf("Model saved to %s\n", result->saved);
    printf("State hash %016" PRIx64 "\n", result->hash);
}
