/* runs.c - finds runs, watches their files, and writes the list. */
#include "serve/runs.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "record/runs.h"

enum { TAIL_BYTES = 16384, PROBLEM_BYTES = 512, VERSION_BYTES = 48 };
static const double SCAN_SECONDS = 1, SCAN_SHARE = 20;

static const char *const watched[] = {"run.json", "metrics.jsonl", "ranks.jsonl", "log.txt"};
enum { WATCHED = sizeof watched / sizeof *watched };

/* Values of run.json that a row of the list repeats. */
static const char *const repeated[] = {"status", "started", "ended", "model", "data",
                                       "ranks",  "threads", "steps", "error"};
enum { REPEATED = sizeof repeated / sizeof *repeated };

/* Newest values of the row files in a row of the list. */
static const struct {
    const char *name;
    lk_record_kind kind;
    lk_record_column column;
} newest[] = {
    {"step", LK_RECORD_KIND_TRAIN, LK_RECORD_COLUMN_STEP},
    {"epoch", LK_RECORD_KIND_TRAIN, LK_RECORD_COLUMN_EPOCH},
    {"loss", LK_RECORD_KIND_TRAIN, LK_RECORD_COLUMN_LOSS},
    {"top1", LK_RECORD_KIND_TRAIN, LK_RECORD_COLUMN_TOP1},
    {"img_per_s", LK_RECORD_KIND_TRAIN, LK_RECORD_COLUMN_IMG_PER_S},
    {"seconds", LK_RECORD_KIND_TRAIN, LK_RECORD_COLUMN_SECONDS},
    {"val_loss", LK_RECORD_KIND_VAL, LK_RECORD_COLUMN_LOSS},
    {"val_top1", LK_RECORD_KIND_VAL, LK_RECORD_COLUMN_TOP1},
    {"test_loss", LK_RECORD_KIND_TEST, LK_RECORD_COLUMN_LOSS},
    {"test_top1", LK_RECORD_KIND_TEST, LK_RECORD_COLUMN_TOP1},
};
enum { NEWEST = sizeof newest / sizeof *newest };

typedef struct watched_run {
    lk_runs_entry entry;
    uint64_t seen;         /* signature of the files at the last look */
    double changed;        /* Unix seconds of the newest file */
    double values[NEWEST]; /* NaN: unknown */
    char problem[PROBLEM_BYTES];
} watched_run;

struct lk_runs {
    char folder[LK_RUNS_PATH];
    watched_run **list; /* (count) sorted by name */
    size_t count;
    uint64_t version, removed; /* removed: the version at which a run was removed */
    uint64_t id;               /* of this server, in versions */
    double next_scan;
    double reading; /* processor seconds of the scan under way in files that have changed */
};

lk_status lk__runs_create(const char *folder, lk_runs **out)
{
    lk_runs *runs;
    struct timespec now;
    size_t length = lk__path_length(folder);
    if (length >= LK_RUNS_PATH)
        return lk__fail(LK_STATUS_USAGE, "the path of the folder has %d bytes at most", LK_RUNS_PATH - 1);
    LK_TRY(LK_ALLOC(1, "list of runs", &runs));
    memcpy(runs->folder, folder, length);
    clock_gettime(CLOCK_REALTIME, &now);
    runs->id = lk__hash(&now, sizeof now, 0);
    *out = runs;
    return LK_OK;
}

static void destroy_run(watched_run *run)
{
    lk__record_close(run->entry.record);
    lk__mem_free(run->entry.name);
    lk__mem_free(run->entry.folder);
    lk__mem_free(run);
}

void lk__runs_destroy(lk_runs *runs)
{
    if (!runs)
        return;
    for (size_t i = 0; i < runs->count; i++)
        destroy_run(runs->list[i]);
    lk__mem_free(runs->list);
    lk__mem_free(runs);
}

/* Hash of the sizes and times of a run's files. */
static uint64_t look(watched_run *run)
{
    uint64_t signature = 0;
    for (size_t i = 0; i < WATCHED; i++) {
        char path[LK_RUNS_PATH];
        struct stat at;
        if (!lk__path_join(run->entry.folder, watched[i], path, sizeof path) || stat(path, &at) != 0)
            continue;
        const int64_t numbers[] = {(int64_t)i, (int64_t)at.st_size, (int64_t)at.st_ino, (int64_t)at.st_mtim.tv_sec,
                                   (int64_t)at.st_mtim.tv_nsec};
        signature = lk__hash(numbers, sizeof numbers, signature);
        run->changed = fmax(run->changed, (double)at.st_mtim.tv_sec);
    }
    return signature;
}

static void take_values(watched_run *run)
{
    for (size_t i = 0; i < NEWEST; i++) {
        const lk_record_table *table = lk__record_table(run->entry.record, newest[i].kind);
        const double *column = table->column[newest[i].column];
        if (table->count > 0 && column && !isnan(column[table->count - 1]))
            run->values[i] = column[table->count - 1];
    }
}

static void forget_values(watched_run *run)
{
    for (size_t i = 0; i < NEWEST; i++)
        run->values[i] = NAN;
}

/* A run that is done has its last evaluation in run.json, too. */
static void take_result(watched_run *run)
{
    for (size_t i = 0; i < NEWEST; i++) {
        double value = lk__record_result(run->entry.record, newest[i].name);
        if (newest[i].kind == LK_RECORD_KIND_TEST && !isnan(value))
            run->values[i] = value;
    }
}

/* Processor seconds of this thread: on a busy machine the time on the clock says little about a scan. */
static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void refresh(watched_run *run)
{
    bool again = run->entry.record == NULL;
    lk_status status =
        again ? lk__record_open_within(run->entry.folder, (lk_record_limits){.tail = TAIL_BYTES}, &run->entry.record)
              : lk__record_refresh(run->entry.record, &again);
    *run->problem = '\0';
    if (status != LK_OK)
        snprintf(run->problem, sizeof run->problem, "%s", lk_error_detail());
    if (again)
        forget_values(run);
    if (!run->entry.record)
        return;
    take_values(run);
    take_result(run);
}

/* Looks at a run's files and reads what has changed. */
static void watch(lk_runs *runs, watched_run *run)
{
    uint64_t signature = look(run);
    if (signature == run->seen && run->entry.stamp)
        return;
    run->seen = signature;
    run->entry.stamp = ++runs->version;
    double begin = cpu_seconds();
    refresh(run);
    runs->reading += cpu_seconds() - begin;
}

static lk_status add_run(const char *name, const char *folder, watched_run **out)
{
    watched_run *run;
    LK_TRY(LK_ALLOC(1, "a run", &run));
    lk_status status = lk__mem_copy_text(name, "name of a run", &run->entry.name);
    if (status == LK_OK)
        status = lk__mem_copy_text(folder, "folder of a run", &run->entry.folder);
    if (status != LK_OK) {
        destroy_run(run);
        return status;
    }
    forget_values(run);
    *out = run;
    return LK_OK;
}

/* The run of this name: taken out of the old list, or new. *old moves past smaller names, whose runs are removed. */
static lk_status take_run(lk_runs *runs, size_t *old, const char *name, const char *folder, watched_run **out)
{
    int order = 1;
    while (*old < runs->count && (order = strcmp(runs->list[*old]->entry.name, name)) < 0) {
        destroy_run(runs->list[(*old)++]);
        runs->removed = ++runs->version;
    }
    if (*old == runs->count || order != 0)
        return add_run(name, folder, out);
    *out = runs->list[(*old)++];
    return LK_OK;
}

/* A page shows names and sends them back, so they must be text. */
static bool is_name(const char *name)
{
    for (const char *at = name; *at; at++) {
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            return false;
    }
    return lk__utf8_is_valid(name);
}

/* Replaces the list by the runs of these names, which are sorted. only: the folder of the only run, or NULL: runs are
 * below the folder. After a failure, the runs not yet looked for stay in the list. */
static lk_status replace(lk_runs *runs, char *const *names, size_t count, const char *only)
{
    watched_run **list;
    size_t kept = 0, old = 0;
    lk_status status = LK_OK;
    LK_TRY(LK_ALLOC(count + runs->count, "list of runs", &list));
    for (size_t i = 0; i < count && status == LK_OK; i++) {
        char folder[LK_RUNS_PATH];
        if (!is_name(names[i]) || (!only && !lk__path_join(runs->folder, names[i], folder, sizeof folder)))
            continue;
        status = take_run(runs, &old, names[i], only ? only : folder, &list[kept]);
        kept += status == LK_OK;
    }
    for (; old < runs->count; old++) {
        if (status != LK_OK) {
            list[kept++] = runs->list[old];
            continue;
        }
        destroy_run(runs->list[old]);
        runs->removed = ++runs->version;
    }
    lk__mem_free(runs->list);
    runs->list = list;
    runs->count = kept;
    return status;
}

static lk_status find_runs(lk_runs *runs)
{
    lk_record_list *list = NULL;
    if (lk__record_is_run(runs->folder)) {
        char name[LK_RUNS_PATH], *names = name;
        size_t length;
        const char *last = lk__path_last(runs->folder, &length);
        snprintf(name, sizeof name, "%.*s", (int)length, last);
        return replace(runs, &names, 1, runs->folder);
    }
    lk_status status = lk__record_list(runs->folder, &list);
    if (status == LK_STATUS_NOT_FOUND)
        return replace(runs, NULL, 0, NULL);
    if (status != LK_OK)
        return status;
    status = replace(runs, list->names, list->count, NULL);
    lk__record_list_destroy(list);
    return status;
}

void lk__runs_scan(lk_runs *runs)
{
    if (lk__clock() < runs->next_scan)
        return;
    double begin = cpu_seconds();
    runs->reading = 0;
    if (find_runs(runs) == LK_OK) { /* otherwise the next scan looks for the runs again */
        for (size_t i = 0; i < runs->count; i++)
            watch(runs, runs->list[i]);
    }
    double looking = cpu_seconds() - begin - runs->reading;
    runs->next_scan = lk__clock() + fmax(SCAN_SECONDS, SCAN_SHARE * looking);
}

const lk_runs_entry *lk__runs_find(const lk_runs *runs, const char *name)
{
    size_t low = 0, high = runs->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(runs->list[middle]->entry.name, name);
        if (order == 0)
            return &runs->list[middle]->entry;
        *(order < 0 ? &low : &high) = order < 0 ? middle + 1 : middle;
    }
    return NULL;
}

uint64_t lk__runs_version(const lk_runs *runs)
{
    return runs->version;
}

static void write_key(lk_body *body, const char *key)
{
    lk__body_text(body, ",\"");
    lk__body_text(body, key);
    lk__body_text(body, "\":");
}

static void write_described(const watched_run *run, lk_body *body)
{
    for (size_t i = 0; i < REPEATED; i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(lk__record_run(run->entry.record), repeated[i]);
        const char *text = cJSON_GetStringValue(item);
        if (!text && !cJSON_IsNumber(item))
            continue;
        write_key(body, repeated[i]);
        if (text)
            lk__body_string(body, text);
        else
            lk__body_number(body, item->valuedouble, 15);
    }
}

static void write_run(const watched_run *run, lk_body *body)
{
    lk__body_text(body, "{\"name\":");
    lk__body_string(body, run->entry.name);
    write_key(body, "stamp");
    lk__body_number(body, (double)run->entry.stamp, 15);
    write_key(body, "changed");
    lk__body_number(body, run->changed, 15);
    if (run->entry.record)
        write_described(run, body);
    for (size_t i = 0; i < NEWEST; i++) {
        if (isnan(run->values[i]))
            continue;
        write_key(body, newest[i].name);
        lk__body_number(body, run->values[i], 7);
    }
    if (*run->problem) {
        write_key(body, "problem");
        lk__body_string(body, run->problem);
    }
    lk__body_text(body, "}");
}

/* Versions are "ID.NUMBER". Returns 0 for everything that is no version of this server. */
static uint64_t read_version(const lk_runs *runs, const char *text)
{
    uint64_t id, number;
    int end = 0;
    bool valid =
        text && strlen(text) < VERSION_BYTES && sscanf(text, "%" SCNx64 ".%" SCNu64 "%n", &id, &number, &end) == 2;
    return valid && !text[end] && id == runs->id && number <= runs->version ? number : 0;
}

void lk__runs_write(const lk_runs *runs, const char *since, lk_body *body)
{
    char version[VERSION_BYTES];
    uint64_t known = read_version(runs, since);
    bool all = known == 0 || runs->removed > known, any = false;
    snprintf(version, sizeof version, "%" PRIx64 ".%" PRIu64, runs->id, runs->version);
    lk__body_text(body, "{\"folder\":");
    lk__body_string(body, runs->folder);
    write_key(body, "version");
    lk__body_string(body, version);
    lk__body_text(body, all ? ",\"all\":true,\"runs\":[" : ",\"all\":false,\"runs\":[");
    for (size_t i = 0; i < runs->count; i++) {
        if (!all && runs->list[i]->entry.stamp <= known)
            continue;
        lk__body_text(body, any ? ",\n" : "");
        write_run(runs->list[i], body);
        any = true;
    }
    lk__body_text(body, "]}\n");
}
