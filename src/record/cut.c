/* cut.c - cuts a run folder back to a step. */
#include "record/cut.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "record/events.h"

enum { PATH_BYTES = 4096 };

/* The step of a line of JSON; -1 if it has none. */
static double json_step(const char *line, size_t bytes)
{
    cJSON *object = cJSON_ParseWithLength(line, bytes);
    const cJSON *step = cJSON_GetObjectItemCaseSensitive(object, "step");
    double value = cJSON_IsNumber(step) ? step->valuedouble : -1;
    cJSON_Delete(object);
    return value;
}

/* The step of a line of CSV, the second field; -1 for the head. The line ends with a newline. */
static double csv_step(const char *line, size_t bytes)
{
    const char *comma = memchr(line, ',', bytes);
    char *end;
    double value = comma ? strtod(comma + 1, &end) : -1;
    return comma && end > comma + 1 ? value : -1;
}

/* Bytes of the lines to keep, moved to the front of text. Lines are in the order of their steps, but lines of
 * different kinds may share a step. */
static size_t keep_lines(char *text, size_t bytes, size_t step, double (*step_of)(const char *line, size_t bytes))
{
    size_t kept = 0, at = 0;
    for (const char *end; (end = memchr(text + at, '\n', bytes - at)) != NULL;) {
        size_t length = (size_t)(end - text) - at + 1;
        if (step_of(text + at, length) <= (double)step) {
            memmove(text + kept, text + at, length);
            kept += length;
        }
        at += length;
    }
    return kept;
}

/* Cuts one file; keep returns the bytes to keep, at the front of the data. */
typedef size_t (*keep_fn)(char *data, size_t bytes, size_t step);

static lk_status cut_file(const char *folder, const char *name, size_t step, keep_fn keep)
{
    char path[PATH_BYTES];
    uint8_t *data;
    size_t bytes;
    if (!lk__path_join(folder, name, path, sizeof path))
        return lk__fail(LK_STATUS_USAGE, "%s: the path of the run folder is too long", folder);
    if (!lk__file_exists(path))
        return LK_OK;
    LK_TRY(lk__file_read(path, 0, &data, &bytes));
    size_t kept = keep((char *)data, bytes, step);
    lk_status status = kept == bytes ? LK_OK : lk__file_replace(path, data, kept);
    lk__mem_free(data);
    return status;
}

static size_t keep_json(char *data, size_t bytes, size_t step)
{
    return keep_lines(data, bytes, step, json_step);
}

static size_t keep_csv(char *data, size_t bytes, size_t step)
{
    return keep_lines(data, bytes, step, csv_step);
}

static lk_status cut_events(const char *folder, size_t step)
{
    DIR *names = opendir(folder);
    lk_status status = LK_OK;
    if (!names)
        return lk__fail(lk__status_of(errno), "cannot open the folder %s: %s", folder, strerror(errno));
    for (const struct dirent *entry; status == LK_OK && (entry = readdir(names)) != NULL;) {
        if (strstr(entry->d_name, lk__record_events_mark))
            status = cut_file(folder, entry->d_name, step, lk__record_events_keep);
    }
    closedir(names);
    return status;
}

lk_status lk__record_cut(const char *folder, size_t step)
{
    LK_TRY(cut_file(folder, "metrics.jsonl", step, keep_json));
    LK_TRY(cut_file(folder, "metrics.csv", step, keep_csv));
    LK_TRY(cut_file(folder, "ranks.jsonl", step, keep_json));
    return cut_events(folder, step);
}
