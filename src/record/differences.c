/* differences.c - compares the options of runs. */
#include "record/differences.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

/* Keys of run.json that are compared beside the options. */
static const char *const facts[] = {"ranks", "threads", "nodes", NULL};

/* Options that say where output goes, or that a fact stands for. */
static const char *const skipped[] = {
    "log-dir", "checkpoint", "resume",         "save-model", "config",      "quiet",     "json",        "log-ranks",
    "trace",   "serve",      "nproc",          "nnodes",     "threads",     "node-rank", "master-addr", "master-port",
    "rank",    "world-size", "nproc-per-node", "timeout",    "init-method", NULL};

static bool contains(const char *const *names, const char *name)
{
    for (; names && *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

bool lk__record_differences_compares(const char *option)
{
    return !contains(skipped, option);
}

static bool is_fact(const char *name)
{
    return contains(facts, name);
}

static const cJSON *find_item(const cJSON *run, const char *name)
{
    const cJSON *from = is_fact(name) ? run : cJSON_GetObjectItemCaseSensitive(run, "options");
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(from, name);
    return is_fact(name) ? (cJSON_IsNumber(item) ? item : NULL) : (cJSON_IsString(item) ? item : NULL);
}

/* The value as text, or NULL. `room` is for numbers. */
static const char *read_value(const cJSON *run, const char *name, char room[32])
{
    const cJSON *item = find_item(run, name);
    if (!item || cJSON_IsString(item))
        return item ? item->valuestring : NULL;
    snprintf(room, 32, "%.15g", item->valuedouble);
    return room;
}

static bool differs(const cJSON *const *runs, size_t count, const char *name)
{
    char first[32], other[32];
    const char *a = read_value(runs[0], name, first);
    for (size_t r = 1; r < count; r++) {
        const char *b = read_value(runs[r], name, other);
        if (!a != !b || (a && strcmp(a, b) != 0))
            return true;
    }
    return false;
}

static bool is_listed(const lk_record_differences *d, const char *name)
{
    for (size_t i = 0; i < d->count; i++)
        if (strcmp(d->names[i], name) == 0)
            return true;
    return false;
}

static lk_status copy_clean(const char *text, char **out)
{
    LK_TRY(lk__mem_copy_text(text, "what differs between runs", out));
    lk__text_clean(*out, LK_TEXT_KIND_LINE);
    return LK_OK;
}

static lk_status add_name(lk_record_differences *d, const cJSON *const *runs, const char *name)
{
    if (is_listed(d, name) || !differs(runs, d->runs, name))
        return LK_OK;
    LK_TRY(lk__mem_copy_text(name, "what differs between runs", &d->names[d->count]));
    d->count++;
    return LK_OK;
}

static lk_status find_names(lk_record_differences *d, const cJSON *const *runs)
{
    const cJSON *item;
    for (size_t i = 0; facts[i] && d->runs; i++)
        LK_TRY(add_name(d, runs, facts[i]));
    for (size_t r = 0; r < d->runs; r++) {
        cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(runs[r], "options"))
        {
            if (item->string && lk__record_differences_compares(item->string) && !is_fact(item->string))
                LK_TRY(add_name(d, runs, item->string));
        }
    }
    return LK_OK;
}

static lk_status find_values(lk_record_differences *d, const cJSON *const *runs)
{
    char number[32];
    for (size_t i = 0; i < d->count * d->runs; i++) {
        const char *value = read_value(runs[i % d->runs], d->names[i / d->runs], number);
        if (value)
            LK_TRY(copy_clean(value, &d->values[i]));
    }
    /* The names are the keys of the values until here. */
    for (size_t i = 0; i < d->count; i++)
        lk__text_clean(d->names[i], LK_TEXT_KIND_LINE);
    return LK_OK;
}

static lk_status find_titles(lk_record_differences *d, const cJSON *const *runs)
{
    LK_TRY(LK_ALLOC(d->runs, "names of runs", &d->titles));
    for (size_t r = 0; r < d->runs; r++) {
        const cJSON *name = cJSON_GetObjectItemCaseSensitive(runs[r], "name");
        LK_TRY(copy_clean(cJSON_IsString(name) ? name->valuestring : "run", &d->titles[r]));
    }
    return LK_OK;
}

/* An upper bound of the names that differ. */
static size_t most_names(const cJSON *const *runs, size_t count)
{
    size_t sum = sizeof facts / sizeof *facts;
    for (size_t r = 0; r < count; r++)
        sum += (size_t)cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(runs[r], "options"));
    return sum;
}

static lk_status fill(lk_record_differences *d, const cJSON *const *runs, size_t count)
{
    d->runs = count;
    LK_TRY(find_titles(d, runs));
    LK_TRY(LK_ALLOC(most_names(runs, count), "what differs between runs", &d->names));
    LK_TRY(find_names(d, runs));
    LK_TRY(LK_ALLOC(d->count * count, "what differs between runs", &d->values));
    return find_values(d, runs);
}

lk_status lk__record_differences_find(const cJSON *const *runs, size_t count, lk_record_differences **out)
{
    lk_record_differences *d;
    LK_TRY(LK_ALLOC(1, "what differs between runs", &d));
    lk_status status = fill(d, runs, count);
    if (status == LK_OK)
        *out = d;
    else
        lk__record_differences_destroy(d);
    return status;
}

void lk__record_differences_destroy(lk_record_differences *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->count; i++)
        lk__mem_free(d->names[i]);
    for (size_t i = 0; i < d->count * d->runs && d->values; i++)
        lk__mem_free(d->values[i]);
    for (size_t i = 0; i < d->runs && d->titles; i++)
        lk__mem_free(d->titles[i]);
    lk__mem_free(d->names);
    lk__mem_free(d->values);
    lk__mem_free(d->titles);
    lk__mem_free(d);
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

bool lk__record_differences_same(const lk_record_differences *d, size_t a, size_t b, const char *const *skip)
{
    for (size_t i = 0; i < d->count; i++)
        if (!contains(skip, d->names[i]) && !same_text(d->values[i * d->runs + a], d->values[i * d->runs + b]))
            return false;
    return true;
}

/* Whether another run has the same values. */
static bool is_repeated(const lk_record_differences *d, size_t run)
{
    for (size_t other = 0; other < d->runs; other++)
        if (other != run && lk__record_differences_same(d, run, other, NULL))
            return true;
    return false;
}

/* "2 ranks", "lr 0.1", "pipelined", "no pipelined"; "test" is the absence of "no-test". */
static void write_part(const char *name, const char *value, char *out, size_t bytes)
{
    size_t length = strlen(name);
    if (!value || strcmp(value, "false") == 0)
        snprintf(out, bytes, "%s%s", strncmp(name, "no-", 3) == 0 ? "" : "no ",
                 name + (strncmp(name, "no-", 3) ? 0 : 3));
    else if (is_fact(name))
        snprintf(out, bytes, "%s %.*s", value, (int)(length - (strcmp(value, "1") == 0)), name);
    else if (strcmp(value, "true") == 0)
        snprintf(out, bytes, "%s", name);
    else
        snprintf(out, bytes, "%s %s", name, value);
}

/* Appends a part; false if it was cut. */
static bool append(char *text, size_t bytes, const char *part)
{
    size_t used = strlen(text);
    int wanted = snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", part);
    if (wanted >= 0 && (size_t)wanted < bytes - used)
        return true;
    if (bytes > 4) {
        snprintf(text + bytes - 4, 4, "...");
        lk__text_clean(text, LK_TEXT_KIND_LINE); /* a character may have been cut in two */
    }
    return false;
}

void lk__record_differences_label_without(const lk_record_differences *d, size_t run, const char *const *skip,
                                          char *text, size_t bytes)
{
    char part[256];
    *text = 0;
    for (size_t i = 0; i < d->count; i++) {
        if (contains(skip, d->names[i]))
            continue;
        write_part(d->names[i], d->values[i * d->runs + run], part, sizeof part);
        if (!append(text, bytes, part))
            return;
    }
}

void lk__record_differences_label(const lk_record_differences *d, size_t run, char *text, size_t bytes)
{
    lk__record_differences_label_without(d, run, NULL, text, bytes);
    if (!d->count || is_repeated(d, run))
        (void)append(text, bytes, d->titles[run]);
}
