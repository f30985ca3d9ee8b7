/* runs.c - opens all runs of a list of paths; sums up a run. */
#include "record/runs.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/median.h"
#include "base/mem.h"

enum { PATH_BYTES = 4096 };

/* The runs that are being opened. */
typedef struct opening {
    lk_record_runs *runs;
    lk_record_skip_fn skip;
    void *arg;
} opening;

static lk_status open_one(lk_record_runs *runs, const char *path)
{
    if (runs->count == runs->room)
        LK_TRY(LK_GROW(runs->count, "list of runs", &runs->room, &runs->records));
    LK_TRY(lk__record_open(path, &runs->records[runs->count]));
    runs->count++;
    return LK_OK;
}

/* Opens the run folders directly inside dir. */
static lk_status open_inside(opening *o, const char *dir)
{
    lk_record_list *list;
    char path[PATH_BYTES];
    lk_status status = LK_OK;
    LK_TRY(lk__record_list(dir, &list));
    for (size_t i = 0; status == LK_OK && i < list->count; i++) {
        if (!lk__path_join(dir, list->names[i], path, sizeof path))
            status = lk__fail(LK_STATUS_USAGE, "%s/%s: the path is too long", dir, list->names[i]);
        else
            status = open_one(o->runs, path);
        if (status != LK_OK && status != LK_STATUS_MEMORY && o->skip) {
            o->skip(o->arg);
            status = LK_OK;
        }
    }
    lk__record_list_destroy(list);
    return status;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Opens the runs of the folders inside dir. */
static lk_status open_deeper(opening *o, const char *dir)
{
    struct dirent **entries;
    char path[PATH_BYTES];
    lk_status status = LK_OK;
    int count = scandir(dir, &entries, is_visible, alphasort);
    if (count < 0)
        return lk__fail(lk__status_of(errno), "cannot read the folder %s: %s", dir, strerror(errno));
    for (int i = 0; i < count; i++) {
        DIR *folder = NULL;
        if (status == LK_OK && lk__path_join(dir, entries[i]->d_name, path, sizeof path) && (folder = opendir(path)))
            status = open_inside(o, path);
        if (folder)
            closedir(folder);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static lk_status open_path(opening *o, const char *path)
{
    char run[PATH_BYTES];
    size_t before = o->runs->count;
    if (!lk__path_join(path, "run.json", run, sizeof run))
        return lk__fail(LK_STATUS_USAGE, "%s: the path is too long", path);
    if (lk__file_exists(run))
        return open_one(o->runs, path);
    LK_TRY(open_inside(o, path));
    if (o->runs->count == before)
        LK_TRY(open_deeper(o, path));
    if (o->runs->count == before)
        return lk__fail(LK_STATUS_NOT_FOUND,
                        "%s is no run folder and has none that can be read; `log_dir` DIR of train makes them", path);
    return LK_OK;
}

static lk_status find_differences(lk_record_runs *runs)
{
    const cJSON **objects;
    LK_TRY(LK_ALLOC(runs->count, "list of runs", &objects));
    for (size_t i = 0; i < runs->count; i++)
        objects[i] = lk__record_run(runs->records[i]);
    lk_status status = lk__record_differences_find(objects, runs->count, &runs->differences);
    lk__mem_free(objects);
    return status;
}

lk_status lk__record_runs_open(const char *const *paths, size_t count, lk_record_skip_fn skip, void *arg,
                               lk_record_runs **out)
{
    opening o = {.skip = skip, .arg = arg};
    lk_status status = LK_OK;
    LK_TRY(LK_ALLOC(1, "list of runs", &o.runs));
    for (size_t i = 0; i < count; i++)
        LK_TRY_GOTO(open_path(&o, paths[i]), close_runs);
    LK_TRY_GOTO(find_differences(o.runs), close_runs);
    *out = o.runs;
    return LK_OK;
close_runs:
    lk__record_runs_close(o.runs);
    return status;
}

void lk__record_runs_close(lk_record_runs *runs)
{
    if (!runs)
        return;
    for (size_t i = 0; i < runs->count; i++)
        lk__record_close(runs->records[i]);
    lk__record_differences_destroy(runs->differences);
    lk__mem_free(runs->records);
    lk__mem_free(runs);
}

static double last(const lk_record_table *table, lk_record_column column)
{
    const double *values = table->column[column];
    for (size_t i = table->count; values && i-- > 0;)
        if (table->mask[i] >> column & 1)
            return values[i];
    return NAN;
}

static double largest(double a, double b)
{
    return isnan(a) || b > a ? b : a;
}

/* A run that has ended says in run.json where; its last row may be some steps earlier. */
static void use_result(const lk_record *record, lk_record_summary *s)
{
    double epoch = lk__record_number(record, "steps_per_epoch");
    s->steps = largest(s->steps, lk__record_result(record, "steps"));
    s->seconds = largest(s->seconds, lk__record_result(record, "seconds"));
    if (epoch > 0)
        s->epochs = largest(s->epochs, s->steps / epoch);
}

/* The first row of a longer run contains what happens once: memory that is touched first, caches that are empty. */
static lk_status median_speed(const lk_record_table *train, double *out)
{
    const double *speed = train->column[LK_RECORD_COLUMN_IMG_PER_S];
    double *finite;
    size_t count = 0;
    *out = NAN;
    if (!speed)
        return LK_OK;
    LK_TRY(LK_ALLOC(train->count, "speeds of a run", &finite));
    for (size_t i = train->count > 2 ? 1 : 0; i < train->count; i++)
        if (isfinite(speed[i]))
            finite[count++] = speed[i];
    if (count)
        *out = lk__median(finite, count);
    lk__mem_free(finite);
    return LK_OK;
}

/* The last value of the column in rows of any kind. */
static double furthest(const lk_record *record, lk_record_column column)
{
    double value = NAN;
    for (int kind = 0; kind < LK_RECORD_KIND_RANKS; kind++)
        value = largest(value, last(lk__record_table(record, (lk_record_kind)kind), column));
    return value;
}

static double best(const lk_record_table *table, lk_record_column column)
{
    const double *values = table->column[column];
    double value = NAN;
    for (size_t i = 0; values && i < table->count; i++)
        value = largest(value, values[i]);
    return value;
}

lk_status lk__record_summarise(const lk_record *record, lk_record_summary *out)
{
    const lk_record_table *train = lk__record_table(record, LK_RECORD_KIND_TRAIN);
    const lk_record_table *test = lk__record_table(record, LK_RECORD_KIND_TEST);
    const lk_record_table *val = lk__record_table(record, LK_RECORD_KIND_VAL);
    lk_record_summary s = {.steps = furthest(record, LK_RECORD_COLUMN_STEP),
                           .epochs = furthest(record, LK_RECORD_COLUMN_EPOCH),
                           .seconds = furthest(record, LK_RECORD_COLUMN_SECONDS),
                           .train_loss = last(train, LK_RECORD_COLUMN_LOSS),
                           .test_loss = last(test, LK_RECORD_COLUMN_LOSS),
                           .top1 = last(test, LK_RECORD_COLUMN_TOP1),
                           .top5 = last(test, LK_RECORD_COLUMN_TOP5),
                           .best_top1 = best(test, LK_RECORD_COLUMN_TOP1),
                           .val_loss = last(val, LK_RECORD_COLUMN_LOSS),
                           .val_top1 = last(val, LK_RECORD_COLUMN_TOP1),
                           .val_best_top1 = best(val, LK_RECORD_COLUMN_TOP1)};
    LK_TRY(median_speed(train, &s.img_per_s));
    *out = s;
    use_result(record, out);
    return LK_OK;
}

double lk__record_number(const lk_record *record, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(lk__record_run(record), key);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

const char *lk__record_text(const lk_record *record, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(lk__record_run(record), key));
    return text ? text : "";
}

const cJSON *lk__record_result_item(const lk_record *record, const char *key)
{
    const cJSON *result = cJSON_GetObjectItemCaseSensitive(lk__record_run(record), "result");
    return cJSON_GetObjectItemCaseSensitive(result, key);
}

double lk__record_result(const lk_record *record, const char *key)
{
    const cJSON *item = lk__record_result_item(record, key);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}
