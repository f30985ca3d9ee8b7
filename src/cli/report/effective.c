/* effective.c - walks over the options of train and writes those that make a run what it is. */
#include "cli/report/effective.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/utf8.h"
#include "data/sets/dataset.h"
#include "io/json.h"

/* Options of places, of output, and of how this process was started. --gamma is part of the schedule. */
static const char *const left_out[] = {
    "bind",        "config",     "resume",     "requeue", "checkpoint", "save-every",  "keep",
    "reshard",     "save-model", "log-dir",    "json",    "quiet",      "help",        "gamma",
    "init-method", "rank",       "world-size", "nnodes",  "node-rank",  "master-addr", "master-port",
    "serve",       "trace",      "trace-file", NULL,
};

static bool is_left_out(const lk_options_set *set, size_t index)
{
    const lk_option *row = &set->rows[index];
    if (!(row->commands & set->commands) || row->kind == LK_OPTION_KIND_ALIAS)
        return true;
    for (size_t i = 0; left_out[i]; i++) {
        if (strcmp(row->name, left_out[i]) == 0)
            return true;
    }
    for (size_t i = 0; i < index; i++) { /* another spelling */
        if (set->rows[i].commands & set->commands && set->rows[i].kind != LK_OPTION_KIND_ALIAS &&
            lk__options_same(&set->rows[i], row))
            return true;
    }
    return false;
}

/* The values as one would type them: of a step's batches and shards, those of one batch. */
static lk_args effective(const lk_args *args, const lk_job_plan *plan)
{
    lk_args out = *args;
    out.train = plan->train;
    out.train.batch /= plan->train.accumulate;
    out.train.shards /= (int)plan->train.accumulate;
    if (out.train.lr == 0)
        out.train.lr = lk__optim_default_lr(out.train.optimizer);
    if (!args->devices.named && !args->no_cuda && strcmp(plan->devices.name[0], "cpu") == 0)
        snprintf(out.device_names, sizeof out.device_names, "cpu");
    return out;
}

void lk__effective_add(const lk_args *args, const lk_job_plan *plan, cJSON *object)
{
    lk_options_set set = lk__args_options("train", LK_CMD_TRAIN, 0);
    lk_args values = effective(args, plan);
    for (size_t i = 0; i < set.count; i++) {
        char number[LK_OPTION_TEXT_BYTES];
        const char *text = is_left_out(&set, i) ? NULL : lk__option_value(&set.rows[i], &values, number);
        if (text && lk__utf8_is_valid(text))
            cJSON_AddStringToObject(object, set.rows[i].name, text);
    }
}

/* Whether YAML reads the value as it is: true, or a number. */
static bool is_plain(const lk_option *row)
{
    return row->kind == LK_OPTION_KIND_FLAG || row->kind == LK_OPTION_KIND_COUNT || row->kind == LK_OPTION_KIND_INT ||
           row->kind == LK_OPTION_KIND_SEED || row->kind == LK_OPTION_KIND_REAL;
}

static bool is_data_name(const char *text)
{
    const lk_dataset_row *row;
    for (size_t i = 0; (row = lk_dataset_list(i)) != NULL; i++)
        if (strcmp(row->name, text) == 0)
            return true;
    return false;
}

/* Whether the value is a path that depends on the working directory. */
static bool is_relative(const lk_option *row, const char *text)
{
    if (strcmp(row->name, "data") == 0)
        return *text != '/' && !is_data_name(text);
    return *text != '/' && (strcmp(row->name, "data-dir") == 0 || strcmp(row->name, "init-from") == 0);
}

/* The value in the file, which may be used from another directory: paths are whole. */
static const char *file_value(const lk_option *row, const char *text, char path[LK_PATH_BYTES])
{
    char here[LK_PATH_BYTES];
    bool whole =
        text && is_relative(row, text) && getcwd(here, sizeof here) && lk__path_join(here, text, path, LK_PATH_BYTES);
    return whole ? path : text;
}

/* The folder in which data that are given by name were found; false for built-in data, and where the splits are in
 * different folders, which one --data-dir cannot say. */
static bool find_data(const lk_train_opts *opts, char folder[LK_MAX_PATH])
{
    char test[LK_MAX_PATH];
    if (opts->data_dir || !opts->data || !is_data_name(opts->data) ||
        lk__dataset_find(opts->data, NULL, LK_SPLIT_TRAIN, folder) != LK_OK || !*folder)
        return false;
    return opts->no_test ||
           (lk__dataset_find(opts->data, NULL, LK_SPLIT_TEST, test) == LK_OK && strcmp(test, folder) == 0);
}

/* The file is written to a stream in memory. */
static void put_lines(const lk_args *args, const lk_job_plan *plan, FILE *out)
{
    lk_options_set set = lk__args_options("train", LK_CMD_TRAIN, 0);
    lk_args values = effective(args, plan);
    char folder[LK_MAX_PATH];
    if (find_data(&values.train, folder))
        values.train.data_dir = strncmp(folder, "./", 2) == 0 ? folder + 2 : folder;
    for (size_t i = 0; i < set.count; i++) {
        char number[LK_OPTION_TEXT_BYTES], path[LK_PATH_BYTES], quoted[6 * LK_PATH_BYTES + 3];
        const lk_option *row = &set.rows[i];
        const char *text = is_left_out(&set, i) ? NULL : file_value(row, lk__option_value(row, &values, number), path);
        if (!text)
            continue;
        if (strlen(text) >= LK_PATH_BYTES || !lk__utf8_is_valid(text)) {
            fprintf(out, "# %s: its value is not UTF-8, or too long, and must be given again\n", row->name);
            continue;
        }
        if (!is_plain(row)) {
            quoted[lk__json_quote(text, quoted)] = '\0'; /* JSON's texts are YAML's, too */
            text = quoted;
        }
        fprintf(out, "%s: %s\n", row->name, text);
    }
}

lk_status lk__effective_yaml(const lk_args *args, const lk_job_plan *plan, const char *comment, char **out,
                             size_t *bytes)
{
    FILE *file = open_memstream(out, bytes);
    if (!file)
        return lk__fail_memory(LK_PATH_BYTES, "config.yaml");
    fprintf(file, "# %s\n", comment);
    put_lines(args, plan, file);
    return fclose(file) == 0 ? LK_OK : lk__fail_memory(LK_PATH_BYTES, "config.yaml");
}
