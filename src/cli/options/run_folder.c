/* run_folder.c - reads run folders for options. */
#include "cli/options/run_folder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/spec.h"
#include "io/checkpoint/checkpoint.h"
#include "record/runs.h"

enum { MOST_WORDS = 4096, TAIL = 4096 };

/* Options of which a line must have the same values to go on with a run, besides those that a checkpoint binds. */
static const char *const also_compared[] = {"batch-size", "accumulate", "shards", "data", "data-dir",
                                            "init-from",  "gamma",      "config", NULL};

/* Only run.json is of interest. */
static lk_status open_run(const char *folder, lk_record **out)
{
    return lk__record_open_within(folder, (lk_record_limits){.tail = TAIL, .no_ranks = true}, out);
}

bool lk__cli_run_is(const char *path)
{
    char file[LK_PATH_BYTES];
    return lk__path_join(path, "run.json", file, sizeof file) && lk__file_exists(file);
}

static bool is_compared(const lk_options_set *set, const lk_option *row)
{
    if (!(row->commands & set->commands) || row->kind == LK_OPTION_KIND_ALIAS)
        return false;
    if (row->properties & LK_OPTION_BOUND)
        return true;
    for (size_t i = 0; also_compared[i]; i++)
        if (strcmp(row->name, also_compared[i]) == 0)
            return true;
    return false;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && lk__spec_same(a, b));
}

/* Words of other programs that are parameters of a text, as --momentum. */
static bool same_foreign(const lk_options_parsed *a, const lk_options_parsed *b)
{
    bool same = a->foreign_count == b->foreign_count;
    for (size_t i = 0; same && i < a->foreign_count; i++)
        same = a->foreign[i].row == b->foreign[i].row && same_text(a->foreign[i].value, b->foreign[i].value);
    return same;
}

/* Both lines as they were typed: what a file of options or a checkpoint adds is the same for both. */
static bool same_line(const lk_cli_run_line *line, int argc, char *const *argv)
{
    const lk_options_set *set = line->set;
    lk_args here = {0}, there = {0};
    lk_options_parsed parsed[2];
    if (lk__options_parse(set, line->argc, line->argv, &here, &parsed[0]) != LK_OK ||
        lk__options_parse(set, argc, argv, &there, &parsed[1]) != LK_OK || !same_foreign(&parsed[0], &parsed[1]))
        return false;
    for (size_t i = 0; i < set->count; i++) {
        char a[LK_OPTION_TEXT_BYTES], b[LK_OPTION_TEXT_BYTES];
        if (is_compared(set, &set->rows[i]) &&
            !same_text(lk__option_value(&set->rows[i], &here, a), lk__option_value(&set->rows[i], &there, b)))
            return false;
    }
    return true;
}

/* The command of run.json is a line of train: PROGRAM train WORDS... */
static bool is_made_by(const cJSON *run, const lk_cli_run_line *line)
{
    const cJSON *words = cJSON_GetObjectItemCaseSensitive(run, "command"), *word;
    char *argv[MOST_WORDS];
    int argc = 0;
    cJSON_ArrayForEach(word, words)
    {
        if (!cJSON_IsString(word) || argc == MOST_WORDS)
            return false;
        argv[argc++] = word->valuestring;
    }
    return argc >= 2 && strcmp(argv[1], "train") == 0 && same_line(line, argc - 2, argv + 2);
}

/* Whether folder/checkpoints has one; writes its path. */
static lk_status find_checkpoints(const char *folder, char out[LK_PATH_BYTES], uint64_t *newest, bool *found)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    if (!lk__path_join(folder, "checkpoints", out, LK_PATH_BYTES))
        return lk__fail(LK_STATUS_USAGE, "%s: the path is too long", folder);
    LK_TRY(lk__checkpoint_list(out, &steps, &count));
    *found = count > 0;
    if (count > 0)
        *newest = steps[count - 1];
    lk__mem_free(steps);
    return LK_OK;
}

/* Takes the run if it is of this line and began after `latest`. */
static lk_status consider(const lk_cli_run_line *line, const char *folder, double *latest, lk_cli_run_found *out)
{
    char path[LK_PATH_BYTES];
    lk_record *record;
    uint64_t newest;
    bool found = false;
    LK_TRY(find_checkpoints(folder, path, &newest, &found));
    if (!found)
        return LK_OK;
    if (open_run(folder, &record) != LK_OK) {
        snprintf(out->why, sizeof out->why, "%s", lk_error_detail());
        out->damaged++;
        return LK_OK;
    }
    double started = lk__record_number(record, "started");
    if (started > *latest && is_made_by(lk__record_run(record), line)) {
        *latest = started;
        memcpy(out->checkpoints, path, sizeof path);
    }
    lk__record_close(record);
    return LK_OK;
}

lk_status lk__cli_run_find(const lk_cli_run_line *line, const char *log_dir, lk_cli_run_found *out)
{
    lk_record_list *list;
    double latest = -INFINITY;
    *out = (lk_cli_run_found){0};
    lk_status status = lk__record_list(log_dir, &list);
    if (status == LK_STATUS_NOT_FOUND)
        return LK_OK;
    LK_TRY(status);
    for (size_t i = 0; status == LK_OK && i < list->count; i++) {
        char folder[LK_PATH_BYTES];
        if (lk__path_join(log_dir, list->names[i], folder, sizeof folder))
            status = consider(line, folder, &latest, out);
    }
    lk__record_list_destroy(list);
    return status;
}

lk_status lk__cli_run_model(const char *folder, char out[LK_PATH_BYTES])
{
    char path[LK_PATH_BYTES];
    lk_record *record;
    uint64_t newest = 0;
    bool found = false;
    LK_TRY(open_run(folder, &record));
    bool done = strcmp(lk__record_text(record, "status"), "done") == 0;
    lk__record_close(record);
    if (done && lk__path_join(folder, "final.safetensors", path, sizeof path) && lk__file_exists(path)) {
        memcpy(out, path, sizeof path);
        return LK_OK;
    }
    LK_TRY(find_checkpoints(folder, path, &newest, &found));
    if (found)
        return lk__checkpoint_path(path, newest, out, LK_PATH_BYTES);
    return lk__fail(LK_STATUS_NOT_FOUND,
                    "%s is the folder of a run that is not done, and it has no checkpoint: there is no trained model "
                    "in it; `save_every` N of train saves some on the way",
                    folder);
}

bool lk__cli_run_option(const char *log_dir, const char *name, const char *option, char *out, size_t bytes)
{
    char folder[LK_PATH_BYTES];
    lk_record *record;
    if (!lk__path_join(log_dir, name, folder, sizeof folder) || !lk__cli_run_is(folder) ||
        open_run(folder, &record) != LK_OK)
        return false;
    const cJSON *options = cJSON_GetObjectItemCaseSensitive(lk__record_run(record), "options");
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(options, option));
    bool fits = text && (size_t)snprintf(out, bytes, "%s", text) < bytes;
    lk__record_close(record);
    return fits;
}
