/* report_end.c - the last lines of a run: the closing table, and the end as JSON. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/cores.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/tree.h"
#include "cli/report/bar.h"
#include "cli/report/json.h"
#include "cli/report/report.h"
#include "io/checkpoint/checkpoint.h"

/* Images in a second that the loader's threads could give if nobody held them up. */
static double loader_rate(const lk_train_use *use)
{
    return use->loader_seconds > 0 ? (double)(use->loaded * (uint64_t)use->loader_threads) / use->loader_seconds : 0;
}

static cJSON *use_item(const lk_train_use *use)
{
    cJSON *item = cJSON_CreateObject();
    cJSON_AddNumberToObject(item, "rank", (double)use->rank);
    if (*use->host)
        cJSON_AddStringToObject(item, "host", use->host);
    cJSON_AddStringToObject(item, "device", use->device);
    cJSON_AddNumberToObject(item, "samples", (double)use->samples);
    cJSON_AddNumberToObject(item, "data_s", use->phases.data);
    cJSON_AddNumberToObject(item, "compute_s", use->phases.compute);
    if (!use->joint)
        cJSON_AddNumberToObject(item, "wait_s", use->phases.wait);
    cJSON_AddNumberToObject(item, "other_s", use->phases.other);
    if (use->loaded)
        cJSON_AddNumberToObject(item, "loader_img_per_s", loader_rate(use));
    cJSON_AddNumberToObject(item, "cpu_s", use->cpu_seconds);
    cJSON_AddNumberToObject(item, "peak_rss_mb", use->peak_mb);
    cJSON_AddNumberToObject(item, "shards", (double)use->shards);
    return item;
}

void lk__report_waits_json(cJSON *object, const lk_train_outcome *result)
{
    if (result->joint)
        return;
    cJSON_AddNumberToObject(object, "wait_gradients_s", result->waits.gradients);
    cJSON_AddNumberToObject(object, "wait_other_s", result->waits.other);
}

void lk__report_uses_json(cJSON *object, const char *name, const lk_train_outcome *result)
{
    cJSON *list = cJSON_AddArrayToObject(object, name);
    for (int i = 0; result->uses && i < result->ranks; i++)
        cJSON_AddItemToArray(list, use_item(&result->uses[i]));
}

const lk_metrics *lk__report_judged(const lk_train_outcome *result, const char **name)
{
    bool val = result->val.count > 0;
    *name = val ? "validation" : "test";
    return val ? &result->val : &result->test;
}

void lk__report_early_json(cJSON *object, const lk_train_outcome *result)
{
    const char *name;
    const lk_metrics *judged = lk__report_judged(result, &name);
    if (!result->stale)
        return;
    cJSON *early = cJSON_AddObjectToObject(object, "early_stop");
    cJSON_AddStringToObject(early, "data", name);
    cJSON_AddNumberToObject(early, "epochs_without_better", (double)result->stale);
    cJSON_AddNumberToObject(early, "best_step", (double)result->best_step);
    cJSON_AddNumberToObject(early, "best_top1", lk__report_percent(result->best_correct, judged->count));
}

/* Where the weights of the best result are; the final ones are later. */
static void print_best(const lk_report *report, const lk_train_outcome *result)
{
    const char *folder = report->plan->train.checkpoint;
    uint64_t step;
    if (folder && lk__checkpoint_best(folder, &step) && step == result->best_step)
        printf("The best weights are in %s/best\n", folder);
    else
        printf("The best weights were not kept; %s\n",
               report->args->log_dir ? "--save-every epoch keeps them, as checkpoints/best of the run folder"
                                     : "--checkpoint DIR keeps them, as DIR/best");
}

void lk__report_early(const lk_report *report, const lk_train_outcome *result)
{
    const char *name;
    const lk_metrics *judged = lk__report_judged(result, &name);
    if (!result->stale)
        return;
    printf("Ended early, after epoch %zu of %zu: no better %s accuracy in %zu epoch%s; the best was %.2f %%, after "
           "epoch %zu\n",
           result->steps / report->batches, report->plan->train.epochs, name, result->stale,
           result->stale == 1 ? "" : "s", lk__report_percent(result->best_correct, judged->count),
           result->best_step / report->batches);
    print_best(report, result);
}

void lk__report_end_json(const lk_report *report, const lk_train_outcome *result)
{
    char hash[17];
    snprintf(hash, sizeof hash, "%016" PRIx64, result->hash);
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "event", "end");
    cJSON_AddNumberToObject(line, "steps", (double)result->steps);
    cJSON_AddNumberToObject(line, "samples", (double)result->samples);
    lk__report_early_json(line, result);
    cJSON_AddNumberToObject(line, "seconds", result->seconds);
    cJSON_AddNumberToObject(line, "train_seconds", result->train_seconds);
    cJSON_AddNumberToObject(line, "img_per_s", lk__report_rate(result->samples, result->train_seconds));
    cJSON_AddNumberToObject(line, "first_step_s", report->first_step_s);
    cJSON_AddNumberToObject(line, "peak_rss_mb", lk__mem_peak_mb());
    cJSON_AddNumberToObject(line, "ranks", result->ranks);
    lk__report_waits_json(line, result);
    lk__report_uses_json(line, "rank_times", result);
    cJSON_AddNumberToObject(line, "shard_moves", (double)result->moves);
    cJSON_AddStringToObject(line, "state_hash", hash);
    cJSON_AddStringToObject(line, "saved", result->saved);
    cJSON_AddStringToObject(line, "checkpoint", result->checkpoint);
    lk__cli_json_line(line);
}

__attribute__((format(printf, 2, 3))) static void row(const char *name, const char *format, ...)
{
    va_list args;
    printf("  %-13s", name);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

/* "12.34 s", "1:02", "3h04m" */
static const char *time_text(double seconds, char text[LK_BAR_TIME])
{
    if (seconds >= 60)
        return lk__bar_time(seconds, text);
    snprintf(text, LK_BAR_TIME, "%.2f s", seconds);
    return text;
}

static void time_rows(const lk_train_outcome *result)
{
    char all[LK_BAR_TIME], steps[LK_BAR_TIME], rest[LK_BAR_TIME];
    double other = result->seconds - result->train_seconds;
    row("time", "%s: %s in steps, %s in tests and saves", time_text(result->seconds, all),
        time_text(result->train_seconds, steps), time_text(other > 0 ? other : 0, rest));
    if (result->samples)
        row("speed", "%.0f img/s", lk__report_rate(result->samples, result->train_seconds));
}

/* The part of all ranks' time, in percent. */
static double part(double sum, double seconds)
{
    return seconds > 0 ? 100 * sum / seconds : 0;
}

/* Waits of GPUs that a channel joins are a part of the steps that the host awaits. */
static void phase_row(const lk_train_outcome *result)
{
    lk_train_phases sum = {0};
    double seconds = 0;
    for (int i = 0; i < result->ranks; i++) {
        const lk_train_use *use = &result->uses[i];
        seconds += use->seconds;
        sum.data += use->phases.data;
        sum.compute += use->phases.compute + (use->joint ? use->phases.wait : 0);
        sum.wait += use->joint ? 0 : use->phases.wait;
        sum.other += use->phases.other;
    }
    if (result->uses[0].joint)
        row("steps", "data %.1f %%, compute and waiting %.1f %%, other %.1f %%", part(sum.data, seconds),
            part(sum.compute, seconds), part(sum.other, seconds));
    else
        row("steps", "data %.1f %%, compute %.1f %%, waiting %.1f %%, other %.1f %%", part(sum.data, seconds),
            part(sum.compute, seconds), part(sum.wait, seconds), part(sum.other, seconds));
}

/* The rank that has waited longest for its loader; NULL if no rank has loaded samples. */
static const lk_train_use *longest_wait(const lk_train_outcome *result)
{
    const lk_train_use *longest = NULL;
    for (int i = 0; i < result->ranks; i++) {
        const lk_train_use *use = &result->uses[i];
        if (use->loaded && (!longest || use->phases.data > longest->phases.data))
            longest = use;
    }
    return longest;
}

/* With several ranks: the rate of all loaders. */
static void loader_row(const lk_train_outcome *result)
{
    const lk_train_use *longest = longest_wait(result);
    double rate = 0;
    char waited[LK_BAR_TIME];
    for (int i = 0; i < result->ranks; i++)
        rate += loader_rate(&result->uses[i]);
    if (longest)
        row("loader", "could give %.0f img/s with %d thread%s%s; steps waited %s for it", rate,
            (int)longest->loader_threads, longest->loader_threads == 1 ? "" : "s", result->ranks > 1 ? " a rank" : "",
            time_text(longest->phases.data, waited));
}

/* Seconds that a rank did not wait for others. */
static double own_time(const lk_train_use *use)
{
    return use->seconds - use->phases.wait;
}

static void memory_row(const lk_train_outcome *result)
{
    const lk_train_use *most = &result->uses[0];
    for (int i = 1; i < result->ranks; i++)
        most = result->uses[i].peak_mb > most->peak_mb ? &result->uses[i] : most;
    char amount[LK_TEXT_AMOUNT];
    lk__text_amount((size_t)(1e6 * most->peak_mb), amount);
    if (result->ranks > 1)
        row("peak memory", "%s, at rank %d", amount, (int)most->rank);
    else
        row("peak memory", "%s", amount);
}

/* The rank for which the others wait: the one with the most work of its own. */
static void slowest_row(const lk_train_outcome *result)
{
    const lk_train_use *slowest = &result->uses[0];
    double sum = 0;
    char own[LK_BAR_TIME], others[LK_BAR_TIME];
    for (int i = 0; i < result->ranks; i++) {
        sum += own_time(&result->uses[i]);
        slowest = own_time(&result->uses[i]) > own_time(slowest) ? &result->uses[i] : slowest;
    }
    double rest = (sum - own_time(slowest)) / (double)(result->ranks - 1);
    row("slowest rank", "%d (host %s, %s): %s of work of its own, the others %s", (int)slowest->rank, slowest->host,
        slowest->device, time_text(own_time(slowest), own), time_text(rest, others));
}

/* The shards of a rank while none has moved. Only ranks without other stages exchange shards. */
static int even_shards(int shards, int ranks, int rank)
{
    return (int)(lk__shard_begin((size_t)shards, ranks, rank + 1) - lk__shard_begin((size_t)shards, ranks, rank));
}

/* The ranks that end with fewer shards than they began with, because they are slower. */
static void shards_row(const lk_report *report, const lk_train_outcome *result)
{
    enum { NAMED = 4, NAME = 48 };
    char text[NAMED * NAME] = "";
    int shards = report->plan->train.shards, slow = 0;
    size_t used = 0;
    for (int i = 0; i < result->ranks; i++) {
        if (result->uses[i].shards >= even_shards(shards, result->ranks, i) || slow++ >= NAMED)
            continue;
        used += (size_t)snprintf(text + used, NAME, "; rank %d has %d of %d", (int)result->uses[i].rank,
                                 (int)result->uses[i].shards, shards);
    }
    row("shards", "moved %zu time%s%s%s", result->moves, result->moves == 1 ? "" : "s",
        slow ? text : "; every rank has as many as at the start", slow > NAMED ? " ..." : "");
}

static void accuracy_row(const lk_report *report, const char *name, const lk_metrics *metrics)
{
    double top1 = lk__report_percent(metrics->correct, metrics->count);
    double top5 = lk__report_percent(metrics->top5, metrics->count);
    if (metrics->count && report->classes > LK_REPORT_FEW_CLASSES)
        row(name, "%.2f %%, top-5 %.2f %%", top1, top5);
    else if (metrics->count)
        row(name, "%.2f %%", top1);
}

/* Advises more workers where steps have waited for the loader for a twentieth of their time, and a second at least, and
 * where its threads could not give what the steps take when they do not wait: otherwise the host was busy. */
static void advise_workers(const lk_report *report, const lk_train_outcome *result)
{
    const lk_train_use *use = longest_wait(result);
    double steps = use ? use->seconds - use->phases.data : 0;
    if (steps <= 0 || use->phases.data < 1 || use->phases.data < .05 * use->seconds)
        return;
    double needed = (double)use->samples / steps, one = loader_rate(use) / (double)use->loader_threads;
    if (one <= 0 || needed <= loader_rate(use))
        return;
    size_t ranks = lk__size_max((size_t)report->plan->join.local_size, 1) * (size_t)report->plan->devices.count;
    size_t cores = lk__size_max((size_t)lk__cores() / ranks, 1);
    size_t advised = needed / one + 1 < (double)cores ? (size_t)(needed / one) + 1 : cores;
    printf("Steps waited for the loader for %.0f %% of their time: ", part(use->phases.data, use->seconds));
    if (advised > (size_t)use->loader_threads)
        printf("--num-workers %zu could give up to %.0f img/s%s\n", advised, (double)advised * one,
               result->ranks > 1 ? " a rank" : "");
    else
        printf("a worker gives %.0f img/s, and there are no more cores; smaller image files are decoded faster\n", one);
}

void lk__report_table(const lk_report *report, const lk_train_outcome *result)
{
    accuracy_row(report, "validation", &result->val);
    accuracy_row(report, "accuracy", &result->test);
    time_rows(result);
    if (!result->uses || result->samples == 0)
        return;
    phase_row(result);
    loader_row(result);
    memory_row(result);
    if (result->ranks > 1 && !result->uses[0].joint)
        slowest_row(result);
    if (result->moves > 0)
        shards_row(report, result);
    advise_workers(report, result);
}
