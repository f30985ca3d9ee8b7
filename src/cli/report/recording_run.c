/* recording_run.c - the fields of run.json. A field that is set again replaces the old one: a resumed run goes on with
 * the file of the earlier one. */
#define _DEFAULT_SOURCE /* gethostname */
#include "cli/report/recording_run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <lockstep/version.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/libraries.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/report/effective.h"
#include "cli/report/report.h"
#include "tensor/cpu/cpu.h"

enum { MAX_COMMAND = 1 << 17, TEXT = 512 };

/* Replaces or adds a field; takes the item over. */
static void set(lk_recording *recording, const char *name, cJSON *item)
{
    cJSON *run = lk__record_object(recording->writer);
    cJSON_DeleteItemFromObjectCaseSensitive(run, name);
    cJSON_AddItemToObject(run, name, item);
}

static void set_number(lk_recording *recording, const char *name, double value)
{
    set(recording, name, cJSON_CreateNumber(value));
}

/* JSON has no bytes that are not UTF-8. */
static cJSON *text_item(const char *text)
{
    char clean[LK_PATH_BYTES];
    snprintf(clean, sizeof clean, "%s", text);
    lk__text_clean(clean, LK_TEXT_KIND_LINES);
    return cJSON_CreateString(clean);
}

static void set_text(lk_recording *recording, const char *name, const char *text)
{
    set(recording, name, text_item(text));
}

static void drop(lk_recording *recording, const char *name)
{
    cJSON_DeleteItemFromObjectCaseSensitive(lk__record_object(recording->writer), name);
}

/* The words of the command line, as the kernel keeps them. */
static cJSON *command_words(void)
{
    cJSON *words = cJSON_CreateArray();
    FILE *file = fopen("/proc/self/cmdline", "re");
    static char text[MAX_COMMAND];
    size_t bytes = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[bytes] = '\0';
    for (size_t at = 0; at < bytes; at += strlen(text + at) + 1)
        cJSON_AddItemToArray(words, text_item(text + at));
    if (file)
        fclose(file);
    return words;
}

const char *lk__recording_directory(char out[LK_PATH_BYTES])
{
    if (!getcwd(out, LK_PATH_BYTES))
        snprintf(out, LK_PATH_BYTES, ".");
    lk__text_clean(out, LK_TEXT_KIND_LINE);
    return out;
}

/* "gcc 12.2.0, kernels neon, hwloc, libzip ..." */
static void build_text(char out[TEXT])
{
    const lk_cpu_build *kernels = lk__cpu_build_list(0);
    const lk_library *library;
    size_t used =
        (size_t)snprintf(out, TEXT, "compiler %s; kernels %s; with", __VERSION__, kernels ? kernels->name : "?");
    for (size_t i = 0; (library = lk__library_list(i)) != NULL && used < TEXT; i++) {
        if (library->present)
            used += (size_t)snprintf(out + used, TEXT - used, " %s", library->name);
    }
}

void lk__recording_begin_run(lk_recording *recording)
{
    char host[65] = "", build[TEXT], directory[LK_PATH_BYTES];
    cJSON *options = cJSON_CreateObject();
    if (gethostname(host, sizeof host - 1) != 0)
        snprintf(host, sizeof host, "?");
    build_text(build);
    if (!lk__record_is_continued(recording->writer)) {
        set_number(recording, "started", lk__clock_unix());
        set(recording, "command", command_words());
        set_text(recording, "directory", lk__recording_directory(directory));
    }
    drop(recording, "ended");
    drop(recording, "error");
    drop(recording, "result");
    drop(recording, "hash");
    set_text(recording, "status", "running");
    set_number(recording, "pid", (double)getpid());
    set_text(recording, "host", host);
    set_text(recording, "version", LK_VERSION);
    set_text(recording, "build", build);
    lk__effective_add(recording->args, recording->plan, options);
    set(recording, "options", options);
}

static void add_resumed(lk_recording *recording, size_t step)
{
    cJSON *run = lk__record_object(recording->writer);
    cJSON *list = cJSON_GetObjectItemCaseSensitive(run, "resumed"), *item = cJSON_CreateObject();
    if (!cJSON_IsArray(list))
        list = cJSON_AddArrayToObject(run, "resumed");
    cJSON_AddNumberToObject(item, "step", (double)step);
    cJSON_AddNumberToObject(item, "at", lk__clock_unix());
    cJSON_AddItemToObject(item, "command", command_words());
    cJSON_AddItemToArray(list, item);
}

void lk__recording_describe(lk_recording *recording, const lk_train_begin *start)
{
    const lk_train_opts *opts = &recording->plan->train;
    set_number(recording, "ranks", start->self.ranks);
    set_number(recording, "threads", start->self.layout.threads);
    set_text(recording, "model", opts->model);
    set_text(recording, "data", start->train->name);
    set_number(recording, "classes", (double)start->train->classes);
    set_number(recording, "train_count", (double)start->train->count);
    set_number(recording, "test_count", start->test ? (double)start->test->count : 0);
    set_number(recording, "parameters", (double)start->parameters);
    set_number(recording, "steps_per_epoch", (double)start->batches);
    set_number(recording, "steps", (double)start->steps);
    if (opts->resume)
        add_resumed(recording, start->done);
}

void lk__recording_describe_ranks(lk_recording *recording, const lk_train_uses *uses)
{
    cJSON *devices = cJSON_CreateArray();
    int nodes = 0;
    for (int i = 0; i < uses->ranks; i++) {
        int k = 0;
        cJSON_AddItemToArray(devices, text_item(uses->use[i].device));
        while (k < i && strcmp(uses->use[k].host, uses->use[i].host) != 0)
            k++;
        nodes += k == i;
    }
    set(recording, "devices", devices);
    set_number(recording, "nodes", nodes);
}

/* Sets "test_loss", "test_top1", "test_top5"; nothing if there was no evaluation. */
static void add_metrics(cJSON *item, const char *kind, const lk_metrics *metrics)
{
    char name[32];
    const struct {
        const char *column;
        double value;
    } rows[] = {{"loss", metrics->loss},
                {"top1", lk__report_percent(metrics->correct, metrics->count)},
                {"top5", lk__report_percent(metrics->top5, metrics->count)}};
    for (size_t i = 0; metrics->count && i < sizeof rows / sizeof *rows; i++) {
        snprintf(name, sizeof name, "%s_%s", kind, rows[i].column);
        cJSON *old = cJSON_GetObjectItemCaseSensitive(item, name);
        if (cJSON_IsNumber(old))
            cJSON_SetNumberValue(old, rows[i].value);
        else
            cJSON_AddNumberToObject(item, name, rows[i].value);
    }
}

static cJSON *result_item(const lk_recording *recording, const lk_train_outcome *result)
{
    cJSON *item = cJSON_CreateObject();
    double seconds = result->train_seconds;
    cJSON_AddNumberToObject(item, "steps", (double)result->steps);
    cJSON_AddNumberToObject(item, "samples", (double)(recording->earlier_samples + result->samples));
    cJSON_AddNumberToObject(item, "seconds", recording->earlier + result->seconds);
    cJSON_AddNumberToObject(item, "train_seconds", seconds);
    cJSON_AddNumberToObject(item, "img_per_s", seconds > 0 ? (double)result->samples / seconds : 0);
    add_metrics(item, lk__record_kind_name(LK_RECORD_KIND_VAL), &result->val);
    add_metrics(item, lk__record_kind_name(LK_RECORD_KIND_TEST), &result->test);
    lk__report_early_json(item, result);
    lk__report_waits_json(item, result);
    cJSON_AddNumberToObject(item, "peak_rss_mb", lk__mem_peak_mb());
    lk__report_uses_json(item, "ranks", result);
    return item;
}

void lk__recording_conclude(lk_recording *recording, const lk_train_outcome *result)
{
    char hash[17];
    bool done = !result->stopped;
    set_text(recording, "status", done ? "done" : "stopped");
    set_number(recording, "ended", lk__clock_unix());
    set(recording, "result", result_item(recording, result));
    snprintf(hash, sizeof hash, "%016" PRIx64, result->hash);
    if (done)
        set_text(recording, "hash", hash);
}

bool lk__recording_is_done(const lk_recording *recording)
{
    const cJSON *run = lk__record_object(recording->writer);
    const char *status = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(run, "status"));
    return status && strcmp(status, "done") == 0;
}

bool lk__recording_has_result(const lk_recording *recording, size_t step)
{
    const cJSON *result = cJSON_GetObjectItemCaseSensitive(lk__record_object(recording->writer), "result");
    const cJSON *steps = cJSON_GetObjectItemCaseSensitive(result, "steps");
    return cJSON_IsNumber(steps) && steps->valuedouble == (double)step;
}

double lk__recording_earlier(const lk_recording *recording, const lk_train_begin *start)
{
    const cJSON *result = cJSON_GetObjectItemCaseSensitive(lk__record_object(recording->writer), "result");
    const cJSON *seconds = cJSON_GetObjectItemCaseSensitive(result, "seconds");
    bool known = lk__recording_has_result(recording, start->done) && cJSON_IsNumber(seconds);
    return known ? fmax(start->earlier, seconds->valuedouble) : start->earlier;
}

void lk__recording_add_tests(lk_recording *recording, const lk_train_outcome *result)
{
    cJSON *item = cJSON_GetObjectItemCaseSensitive(lk__record_object(recording->writer), "result");
    add_metrics(item, lk__record_kind_name(LK_RECORD_KIND_VAL), &result->val);
    add_metrics(item, lk__record_kind_name(LK_RECORD_KIND_TEST), &result->test);
}

void lk__recording_describe_muted(lk_recording *recording, const char *why)
{
    char text[LK_PATH_BYTES];
    snprintf(text, sizeof text, "rows and log are not complete: %.4000s", why);
    set_text(recording, "error", text);
}

void lk__recording_describe_failure(lk_recording *recording, const char *status, const char *detail)
{
    set_text(recording, "status", status);
    set_number(recording, "ended", lk__clock_unix());
    set_text(recording, "error", lk__args_spell(detail));
}
