/* report_rank.c - the lines that every rank prints about itself with --log-ranks all: host and device, its
 * samples, its own loss, accuracy and time, its end. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "cli/report/json.h"
#include "cli/report/report.h"

enum { TIME_BYTES = 32, HOST_BYTES = 256 };

static void now_text(char text[TIME_BYTES])
{
    time_t now = time(NULL);
    struct tm parts;
    localtime_r(&now, &parts);
    strftime(text, TIME_BYTES, "%Y-%m-%d %H:%M:%S", &parts);
}

static cJSON *json_begin(const lk_report *report, const char *event)
{
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "event", event);
    cJSON_AddNumberToObject(line, "rank", report->rank);
    return line;
}

/* A rank that is alone has no group to know its host by. */
static const char *host_name(const lk_train_rank_info *self, char own[HOST_BYTES])
{
    if (*self->host)
        return self->host;
    own[0] = '\0';
    gethostname(own, HOST_BYTES - 1);
    own[HOST_BYTES - 1] = '\0';
    return own;
}

/* Samples of a batch that this rank computes; all if it has no shard range. */
static size_t share_of(lk_shard_range share, size_t batch)
{
    return share.shards > 0 ? lk_shard_range_count(share, batch) : batch;
}

/* Samples of a step that this rank computed. Only ranks without other stages exchange shards. */
static size_t samples_of(const lk_report *report, const lk_train_step *step)
{
    return report->stages == 1 ? step->own.count : share_of(report->share, step->metrics.count);
}

void lk__report_rank_start(const lk_report *report, const lk_train_begin *start)
{
    const lk_train_rank_info *self = &start->self;
    char when[TIME_BYTES], own[HOST_BYTES];
    const char *host = host_name(self, own);
    now_text(when);
    if (!report->args->json) {
        printf("[rank %d] host %s, pid %ld, local rank %d, device %s, stage %d of %d, %zu of %zu samples a batch, "
               "begins at %s\n",
               self->rank, host, (long)getpid(), self->local_rank, self->device, self->layout.stage,
               self->layout.stages, share_of(self->share, start->batch), start->batch, when);
        return;
    }
    cJSON *line = json_begin(report, "rank_start");
    cJSON_AddStringToObject(line, "host", host);
    cJSON_AddNumberToObject(line, "pid", (double)getpid());
    cJSON_AddNumberToObject(line, "local_rank", self->local_rank);
    cJSON_AddStringToObject(line, "device", self->device);
    cJSON_AddNumberToObject(line, "replica", self->layout.replica);
    cJSON_AddNumberToObject(line, "stage", self->layout.stage);
    cJSON_AddNumberToObject(line, "samples", (double)share_of(self->share, start->batch));
    cJSON_AddNumberToObject(line, "batch_size", (double)start->batch);
    cJSON_AddStringToObject(line, "time", when);
    lk__cli_json_line(line);
}

static void json_step(const lk_report *report, const lk_train_step *step)
{
    cJSON *line = json_begin(report, "rank_step");
    cJSON_AddNumberToObject(line, "epoch", (double)step->epoch);
    cJSON_AddNumberToObject(line, "batch", (double)step->batch);
    cJSON_AddNumberToObject(line, "step", (double)step->step);
    if (step->own.count > 0) {
        cJSON_AddNumberToObject(line, "loss", step->own.loss);
        cJSON_AddNumberToObject(line, "accuracy", lk__report_percent(step->own.correct, step->own.count));
        cJSON_AddNumberToObject(line, "running_loss", step->running.loss);
        cJSON_AddNumberToObject(line, "running_accuracy",
                                lk__report_percent(step->running.correct, step->running.count));
    }
    cJSON_AddNumberToObject(line, "samples", (double)samples_of(report, step));
    cJSON_AddNumberToObject(line, "batch_samples", (double)step->metrics.count);
    cJSON_AddNumberToObject(line, "batch_seconds", step->batch_seconds);
    lk__cli_json_line(line);
}

void lk__report_rank_step(const lk_report *report, const lk_train_step *step)
{
    char own[160];
    if (report->args->json) {
        json_step(report, step);
        return;
    }
    size_t count = samples_of(report, step);
    if (step->own.count > 0)
        snprintf(own, sizeof own, "Loss: %.6f\tAccuracy: %.2f%% (epoch so far %.4f, %.2f%%)", step->own.loss,
                 lk__report_percent(step->own.correct, step->own.count), step->running.loss,
                 lk__report_percent(step->running.correct, step->running.count));
    else if (count == 0)
        snprintf(own, sizeof own, "no samples of this batch");
    else
        snprintf(own, sizeof own, "stage %d, losses are the last stage's", report->stage);
    printf("[rank %d] Train Epoch: %zu [%zu/%zu (%.0f%%)]\t%s\t%zu of %zu samples\tbatch time %.4f s\n", report->rank,
           step->epoch, step->seen, report->train_count, lk__report_percent(step->batch, report->batches), own, count,
           step->metrics.count, step->batch_seconds);
}

void lk__report_rank_end(const lk_report *report, const lk_train_outcome *result)
{
    char when[TIME_BYTES];
    now_text(when);
    if (!report->args->json) {
        printf("[rank %d] ends at %s after %.2f seconds", report->rank, when, result->seconds);
        if (!result->joint)
            printf(", %.2f of them waiting for gradients and %.2f for other data of other ranks",
                   result->waits.gradients, result->waits.other);
        putchar('\n');
        return;
    }
    cJSON *line = json_begin(report, "rank_end");
    cJSON_AddNumberToObject(line, "seconds", result->seconds);
    lk__report_waits_json(line, result);
    cJSON_AddStringToObject(line, "saved", result->saved);
    cJSON_AddStringToObject(line, "time", when);
    lk__cli_json_line(line);
}
