/* folder.c - the folder of a sweep: sweep.json, the lock, and what the run folders say about cells. */
#define _XOPEN_SOURCE 700 /* nftw */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "base/fd.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/sweep/sweep.h"
#include "record/runs.h"

enum { MAX_JSON = 1 << 20 };
static const char format[] = "lockstep-sweep-1";
static const char file_name[] = "sweep.json";

const char *const lk__sweep_state_names[LK_SWEEP_STATE_COUNT] = {"not run", "running", "stopped", "failed", "done"};

static lk_status json_path(const char *dir, char path[LK_PATH_BYTES])
{
    if (!lk__path_join(dir, file_name, path, LK_PATH_BYTES))
        return lk__fail(LK_STATUS_USAGE, "%s: the path is too long", dir);
    return LK_OK;
}

static cJSON *add_texts(cJSON *object, const char *name, char *const *texts, size_t count)
{
    cJSON *array = cJSON_AddArrayToObject(object, name);
    for (size_t i = 0; array && i < count; i++)
        if (!cJSON_AddItemToArray(array, cJSON_CreateString(texts[i])))
            return NULL;
    return array;
}

/* NULL if there is no memory. */
static cJSON *describe(const lk_sweep *sweep)
{
    cJSON *root = cJSON_CreateObject(), *axes;
    bool done = root && cJSON_AddStringToObject(root, "format", format) &&
                add_texts(root, "train", sweep->words, sweep->word_count) &&
                (axes = cJSON_AddArrayToObject(root, "axes"));
    for (size_t a = 0; done && a < sweep->axis_count; a++) {
        cJSON *axis = cJSON_CreateObject();
        done = axis && cJSON_AddItemToArray(axes, axis) &&
               cJSON_AddStringToObject(axis, "option", sweep->axes[a].option) &&
               add_texts(axis, "values", sweep->axes[a].values, sweep->axes[a].count);
    }
    if (done)
        return root;
    cJSON_Delete(root);
    return NULL;
}

static lk_status fail_format(const char *path)
{
    return lk__fail(LK_STATUS_FORMAT, "%s is not what sweep writes; give another folder with -o", path);
}

static lk_status read_texts(const cJSON *array, const char *path, char ***out, size_t *count)
{
    const cJSON *item;
    if (!cJSON_IsArray(array))
        return fail_format(path);
    LK_TRY(LK_ALLOC((size_t)cJSON_GetArraySize(array) + 1, "texts of a sweep", out));
    cJSON_ArrayForEach(item, array)
    {
        if (!cJSON_IsString(item))
            return fail_format(path);
        LK_TRY(lk__mem_copy_text(item->valuestring, "texts of a sweep", &(*out)[*count]));
        ++*count;
    }
    return LK_OK;
}

static lk_status read_axis(const cJSON *axis, const char *path, lk_sweep *sweep)
{
    lk_sweep_axis *to = &sweep->axes[sweep->axis_count];
    const char *option = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(axis, "option"));
    if (!option || sweep->axis_count == LK_SWEPT_MAX)
        return fail_format(path);
    LK_TRY(lk__mem_copy_text(option, "options of a sweep", &to->option));
    sweep->axis_count++;
    LK_TRY(read_texts(cJSON_GetObjectItemCaseSensitive(axis, "values"), path, &to->values, &to->count));
    if (!to->count || sweep->cells > LK_SWEEP_MOST_CELLS / to->count)
        return fail_format(path);
    sweep->cells *= to->count;
    return LK_OK;
}

static lk_status read_sweep(const cJSON *root, const char *path, lk_sweep *sweep)
{
    const char *is = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "format"));
    const cJSON *axis;
    if (!is || strcmp(is, format) != 0)
        return fail_format(path);
    LK_TRY(read_texts(cJSON_GetObjectItemCaseSensitive(root, "train"), path, &sweep->words, &sweep->word_count));
    cJSON_ArrayForEach(axis, cJSON_GetObjectItemCaseSensitive(root, "axes")) LK_TRY(read_axis(axis, path, sweep));
    return sweep->axis_count ? LK_OK : fail_format(path);
}

lk_status lk__sweep_load(const char *dir, lk_sweep **out)
{
    char path[LK_PATH_BYTES];
    uint8_t *text;
    size_t bytes;
    lk_sweep *sweep = NULL;
    LK_TRY(json_path(dir, path));
    if (!lk__file_exists(path))
        return lk__fail(LK_STATUS_NOT_FOUND, "%s has no sweep; begin one, as in 'lockstep sweep --nproc 1,2 -- train'",
                        dir);
    LK_TRY(lk__file_read(path, MAX_JSON, &text, &bytes));
    cJSON *root = cJSON_ParseWithLength((const char *)text, bytes);
    lk__mem_free(text);
    lk_status status = LK_ALLOC(1, "sweep", &sweep);
    if (status == LK_OK) {
        sweep->cells = 1;
        status = lk__mem_copy_text(dir, "folder of a sweep", &sweep->dir);
    }
    if (status == LK_OK)
        status = read_sweep(root, path, sweep);
    cJSON_Delete(root);
    if (status == LK_OK)
        *out = sweep;
    else
        lk__sweep_destroy(sweep);
    return status;
}

static bool same_texts(char *const *a, size_t count, char *const *b, size_t other)
{
    for (size_t i = 0; count == other && i < count; i++)
        if (strcmp(a[i], b[i]) != 0)
            return false;
    return count == other;
}

/* Cells of two sweeps are comparable if only the lists of values differ. */
static bool comparable(const lk_sweep *a, const lk_sweep *b)
{
    for (size_t i = 0; a->axis_count == b->axis_count && i < a->axis_count; i++)
        if (strcmp(a->axes[i].option, b->axes[i].option) != 0)
            return false;
    return a->axis_count == b->axis_count && same_texts(a->words, a->word_count, b->words, b->word_count);
}

static lk_status check_earlier(const lk_sweep *sweep, const char *path)
{
    lk_sweep *earlier;
    if (!lk__file_exists(path))
        return LK_OK;
    LK_TRY(lk__sweep_load(sweep->dir, &earlier));
    bool same = comparable(sweep, earlier);
    lk__sweep_destroy(earlier);
    if (same)
        return LK_OK;
    return lk__fail(
        LK_STATUS_USAGE,
        "sweep: %s has a sweep with other options of train, or over other options, as %s says; give another "
        "folder with -o",
        sweep->dir, path);
}

/* The lock is held until the process ends. */
static lk_status lock(const char *dir)
{
    int fd = lk__fd_open(dir, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return lk__fail(LK_STATUS_IO, "sweep: cannot open the folder %s: %s", dir, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return LK_OK;
    close(fd);
    return lk__fail(LK_STATUS_USAGE,
                    "sweep: another sweep runs in %s; wait until it ends, or give another folder with -o", dir);
}

static lk_status write_json(const lk_sweep *sweep, const char *path)
{
    cJSON *root = describe(sweep);
    char *text = root ? cJSON_Print(root) : NULL;
    cJSON_Delete(root);
    if (!text)
        return lk__fail_memory(0, file_name);
    lk_status status = lk__file_replace(path, text, strlen(text));
    cJSON_free(text);
    return status;
}

lk_status lk__sweep_begin(const lk_sweep *sweep)
{
    char path[LK_PATH_BYTES];
    LK_TRY(json_path(sweep->dir, path));
    LK_TRY(check_earlier(sweep, path));
    LK_TRY(lk__folder_make(sweep->dir));
    LK_TRY(lock(sweep->dir));
    return write_json(sweep, path);
}

/* Whether two paths end with the same name. */
static bool same_name(const char *a, const char *b)
{
    size_t a_length, b_length;
    const char *a_last = lk__path_last(a, &a_length), *b_last = lk__path_last(b, &b_length);
    return a_length == b_length && memcmp(a_last, b_last, a_length) == 0;
}

/* Whether the process has the folder on its command line, in any spelling that ends with its name. Another process may
 * have got the number of one that ended. A command line that cannot be read counts as the wanted one; that of a process
 * that has ended is empty. */
static bool has_word(long pid, const char *word)
{
    char path[64], *line = NULL;
    size_t room = 0;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%ld/cmdline", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return true;
    while (!found && getdelim(&line, &room, 0, file) > 0)
        found = same_name(line, word);
    fclose(file);
    free(line);
    return found;
}

/* Whether a run that says that it is running does not run any more, as far as this host and Slurm know. The words of
 * its process have its cell's folder, for --log-dir. */
static bool is_dead(const lk_record *record, const char *folder, const lk_sweep_job *job)
{
    char host[256] = "";
    double pid = lk__record_number(record, "pid");
    if (job->number)
        return !job->lives;
    (void)gethostname(host, sizeof host - 1);
    if (strcmp(host, lk__record_text(record, "host")) != 0 || !(pid > 1 && pid < 1e9))
        return false;
    return (kill((pid_t)pid, 0) != 0 && errno == ESRCH) || !has_word((long)pid, folder);
}

/* A run that cannot be read has not been done. */
static lk_sweep_state look_at(const char *path, const char *folder, const lk_sweep_job *job)
{
    lk_record *record;
    lk_sweep_state state = LK_SWEEP_STATE_STOPPED;
    if (lk__record_open(path, &record) != LK_OK)
        return LK_SWEEP_STATE_FAILED;
    for (size_t i = 0; i < LK_SWEEP_STATE_COUNT; i++)
        if (strcmp(lk__record_text(record, "status"), lk__sweep_state_names[i]) == 0)
            state = (lk_sweep_state)i;
    if (state == LK_SWEEP_STATE_RUNNING && is_dead(record, folder, job))
        state = LK_SWEEP_STATE_STOPPED;
    lk__record_close(record);
    return state;
}

lk_status lk__sweep_look(const lk_sweep *sweep, size_t cell, const lk_sweep_job *job, lk_sweep_state *state, char *run,
                         size_t bytes)
{
    char folder[LK_PATH_BYTES], path[LK_PATH_BYTES];
    lk_record_list *list;
    *state = job->lives ? LK_SWEEP_STATE_RUNNING : LK_SWEEP_STATE_NEW;
    *run = 0;
    LK_TRY(lk__sweep_path(sweep, cell, NULL, folder, sizeof folder));
    LK_TRY(lk__sweep_path(sweep, cell, "output.txt", path, sizeof path));
    lk_status status = lk__record_list(folder, &list);
    if (status != LK_OK)
        return status == LK_STATUS_NOT_FOUND ? LK_OK : status;
    /* A try that failed before it made a run folder has left its output. */
    if (!list->count && !job->lives && lk__file_exists(path))
        *state = LK_SWEEP_STATE_FAILED;
    for (size_t i = list->count; i-- > 0 && *state != LK_SWEEP_STATE_DONE;) {
        if (!lk__path_join(folder, list->names[i], path, sizeof path))
            continue;
        lk_sweep_state found = look_at(path, folder, job);
        if (!*run || found == LK_SWEEP_STATE_DONE) {
            *state = job->lives && found != LK_SWEEP_STATE_DONE ? LK_SWEEP_STATE_RUNNING : found;
            snprintf(run, bytes, "%s", path);
        }
    }
    lk__record_list_destroy(list);
    return LK_OK;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

static lk_status forget_job(const lk_sweep *sweep, size_t cell)
{
    char path[LK_PATH_BYTES];
    LK_TRY(lk__sweep_path(sweep, cell, LK_SWEEP_JOB_FILE, path, sizeof path));
    if (remove(path) == 0 || errno == ENOENT)
        return LK_OK;
    return lk__fail(LK_STATUS_IO, "sweep: cannot remove %s: %s", path, strerror(errno));
}

lk_status lk__sweep_clear(const lk_sweep *sweep, size_t cell)
{
    char folder[LK_PATH_BYTES], path[LK_PATH_BYTES];
    lk_record_list *list;
    LK_TRY(forget_job(sweep, cell));
    LK_TRY(lk__sweep_path(sweep, cell, NULL, folder, sizeof folder));
    lk_status status = lk__record_list(folder, &list);
    if (status != LK_OK)
        return status == LK_STATUS_NOT_FOUND ? LK_OK : status;
    for (size_t i = 0; status == LK_OK && i < list->count; i++)
        if (lk__path_join(folder, list->names[i], path, sizeof path) &&
            nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0)
            status =
                lk__fail(LK_STATUS_IO, "sweep: cannot remove %s, which an earlier try left: %s", path, strerror(errno));
    lk__record_list_destroy(list);
    return status;
}
