/* read.c - reads run.json and the row files, again and again as they grow.
 *
 * A reader remembers how far it has read a row file and the last bytes before that place. If these bytes have
 * changed, the run was resumed and its rows were cut: the reader begins again. */
#include "record/read.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/fd.h"
#include "base/file.h"
#include "base/mem.h"
#include "record/columns.h"

enum { PATH_BYTES = 4096, TAIL = 64, CHUNK = 1 << 20, MAX_LINE = 1 << 24, MAX_RUN = 1 << 22 };

static const char run_name[] = "run.json";

/* A row file; rows before `at` have been read. */
typedef struct row_file {
    char path[PATH_BYTES];
    size_t at, lines;
    bool sought; /* lines are counted from a place within the file, not from its begin */
    size_t tail_bytes;
    char tail[TAIL]; /* the last tail_bytes bytes before at */
    lk_status (*take)(lk_record *record, const cJSON *line);
} row_file;

struct lk_record {
    char folder[PATH_BYTES], run_path[PATH_BYTES];
    struct stat run_seen; /* run.json when it was read */
    cJSON *run, *last_ranks;
    lk_record_table tables[LK_RECORD_KIND_COUNT];
    row_file metrics, ranks;
    lk_record_limits limits;
    bool complete;
};

static void take_numbers(const cJSON *object, lk_record_row *row)
{
    for (const cJSON *item = object->child; item; item = item->next) {
        lk_record_column column = lk__record_column_find(item->string);
        if (column < LK_RECORD_COLUMN_COUNT && (cJSON_IsNumber(item) || cJSON_IsNull(item)))
            lk__record_row_set(row, column, cJSON_IsNumber(item) ? item->valuedouble : NAN);
    }
}

static lk_status take_metrics(lk_record *record, const cJSON *line)
{
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(line, "kind"));
    lk_record_kind kind = name ? lk__record_kind_find(name) : LK_RECORD_KIND_RANKS;
    lk_record_row row = {0};
    if (kind >= LK_RECORD_KIND_RANKS)
        return name ? LK_OK : lk__fail(LK_STATUS_FORMAT, "the row has no \"kind\"");
    take_numbers(line, &row);
    return lk__record_table_add(&record->tables[kind], &row);
}

static lk_status take_ranks(lk_record *record, const cJSON *line)
{
    const cJSON *ranks = cJSON_GetObjectItemCaseSensitive(line, "ranks"), *rank;
    lk_record_row shared = {0};
    if (!cJSON_IsArray(ranks))
        return lk__fail(LK_STATUS_FORMAT, "the row has no array \"ranks\"");
    take_numbers(line, &shared);
    cJSON_ArrayForEach(rank, ranks)
    {
        lk_record_row row = shared;
        if (!cJSON_IsObject(rank))
            return lk__fail(LK_STATUS_FORMAT, "\"ranks\" has a value that is no object");
        take_numbers(rank, &row);
        LK_TRY(lk__record_table_add(&record->tables[LK_RECORD_KIND_RANKS], &row));
    }
    return LK_OK;
}

static lk_status line_failed(const row_file *file, lk_status status, const char *why)
{
    char place[48];
    snprintf(place, sizeof place, file->sought ? ", the line at byte %zu" : ":%zu",
             file->sought ? file->at : file->lines + 1);
    return lk__fail(status, "%s%s: %s; a run folder's rows are written by `lockstep train`, one JSON object a line",
                    file->path, place, why);
}

/* Takes one line, without its newline. */
static lk_status take_line(lk_record *record, row_file *file, const char *line, size_t bytes)
{
    char why[256];
    cJSON *object = cJSON_ParseWithLength(line, bytes);
    if (!cJSON_IsObject(object)) {
        cJSON_Delete(object);
        return line_failed(file, LK_STATUS_FORMAT, "the line is no JSON object");
    }
    lk_status status = file->take(record, object);
    if (status == LK_STATUS_FORMAT) {
        snprintf(why, sizeof why, "%s", lk_error_detail());
        status = line_failed(file, status, why);
    }
    if (status == LK_OK && file == &record->ranks) {
        cJSON_Delete(record->last_ranks);
        record->last_ranks = object;
    } else
        cJSON_Delete(object);
    return status;
}

static void remember(row_file *file, const char *line, size_t bytes)
{
    file->at += bytes;
    file->lines++;
    file->tail_bytes = lk__size_min(bytes, TAIL);
    memcpy(file->tail, line + bytes - file->tail_bytes, file->tail_bytes);
}

/* Takes the complete lines of a block that begins at file->at; *taken are their bytes. */
static lk_status take_block(lk_record *record, row_file *file, const char *block, size_t bytes, size_t *taken)
{
    size_t at = 0;
    lk_status status = LK_OK;
    for (const char *end; status == LK_OK && (end = memchr(block + at, '\n', bytes - at)) != NULL;) {
        size_t length = (size_t)(end - block) - at;
        status = take_line(record, file, block + at, length);
        if (status != LK_OK)
            break;
        remember(file, block + at, length + 1);
        at += length + 1;
    }
    *taken = at;
    return status;
}

static lk_status read_at(const row_file *file, int fd, void *block, size_t room, size_t at, size_t *got)
{
    ssize_t n = lk__fd_read_at(fd, block, room, (off_t)at);
    if (n < 0)
        return lk__fail(LK_STATUS_IO, "cannot read %s: %s", file->path, strerror(errno));
    *got = (size_t)n;
    return LK_OK;
}

/* Whether the bytes before file->at are those that were read. */
static lk_status same_tail(const row_file *file, int fd, bool *same)
{
    char tail[TAIL];
    size_t got = 0;
    if (file->tail_bytes > 0)
        LK_TRY(read_at(file, fd, tail, file->tail_bytes, file->at - file->tail_bytes, &got));
    *same = got == file->tail_bytes && memcmp(tail, file->tail, got) == 0;
    return LK_OK;
}

/* Reads block after block of a file that had `bytes`; a line that is longer than a block doubles it. `most`: about so
 * many bytes are read. */
static lk_status read_blocks(lk_record *record, row_file *file, int fd, size_t bytes, size_t most)
{
    char *block = NULL;
    size_t rest = bytes > file->at ? bytes - file->at + 1 : 1;
    size_t room = lk__size_min(rest, CHUNK), got = 0, taken = 0, begin = file->at;
    lk_status status = LK_ALLOC(room, "rows of a run folder", &block);
    while (status == LK_OK && (record->complete = file->at - begin < most)) {
        status = read_at(file, fd, block, room, file->at, &got);
        if (status == LK_OK)
            status = take_block(record, file, block, got, &taken);
        if (status != LK_OK || (taken == 0 && got < room))
            break;
        if (taken > 0)
            continue;
        lk__mem_free(block);
        block = NULL;
        room *= 2;
        status = room > MAX_LINE ? line_failed(file, LK_STATUS_FORMAT, "the line is longer than 16 MiB")
                                 : LK_ALLOC(room, "rows of a run folder", &block);
    }
    lk__mem_free(block);
    return status;
}

static void clear_tables(lk_record *record, const row_file *file)
{
    for (int kind = 0; kind < LK_RECORD_KIND_COUNT; kind++) {
        if ((kind == LK_RECORD_KIND_RANKS) == (file == &record->ranks))
            lk__record_table_clear(&record->tables[kind]);
    }
}

static void clear_rows(lk_record *record, const row_file *file)
{
    clear_tables(record, file);
    if (file == &record->ranks) {
        cJSON_Delete(record->last_ranks);
        record->last_ranks = NULL;
    }
}

/* Moves file->at to the first line that lies in the last `tail` bytes; if none does, doubles `tail`. */
static lk_status seek_tail(row_file *file, int fd, size_t bytes, size_t tail)
{
    for (; tail < bytes && tail <= MAX_LINE; tail *= 2) {
        char *block;
        size_t got = 0;
        LK_TRY(LK_ALLOC(tail, "rows of a run folder", &block));
        lk_status status = read_at(file, fd, block, tail, bytes - tail, &got);
        const char *first = status == LK_OK ? memchr(block, '\n', got) : NULL;
        bool found = first && memchr(first + 1, '\n', got - (size_t)(first + 1 - block));
        if (found)
            file->at = bytes - tail + (size_t)(first + 1 - block);
        file->sought = found;
        lk__mem_free(block);
        if (found || status != LK_OK)
            return status;
    }
    return LK_OK;
}

/* Reads the new rows of an open file. */
static lk_status read_new(lk_record *record, row_file *file, int fd, size_t bytes, bool *again)
{
    const lk_record_limits *limits = &record->limits;
    bool same;
    LK_TRY(same_tail(file, fd, &same));
    if (!same) {
        clear_rows(record, file);
        file->at = file->lines = file->tail_bytes = 0;
        file->sought = false;
        *again = true;
    }
    if (limits->tail && file->at < bytes)
        clear_tables(record, file);
    if (limits->tail && file->at == 0)
        LK_TRY(seek_tail(file, fd, bytes, limits->tail));
    size_t most = limits->bytes && file == &record->metrics ? limits->bytes : SIZE_MAX;
    return read_blocks(record, file, fd, bytes, most);
}

static lk_status read_rows(lk_record *record, row_file *file, bool *again)
{
    int fd = -1;
    size_t bytes;
    lk_status status = lk__file_open(file->path, &fd, &bytes);
    if (status == LK_STATUS_NOT_FOUND && file->at == 0)
        return LK_OK;
    if (status == LK_OK)
        status = read_new(record, file, fd, bytes, again);
    lk__fd_close(&fd);
    return status;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static lk_status parse_run(const char *path, const uint8_t *text, size_t bytes, cJSON **out)
{
    cJSON *run = cJSON_ParseWithLength((const char *)text, bytes);
    const char *format = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(run, "format"));
    lk_status status = LK_OK;
    if (!cJSON_IsObject(run) || !format)
        status = lk__fail(LK_STATUS_FORMAT, "%s: not the description of a run: no JSON object with a \"format\"", path);
    else if (strcmp(format, lk__record_format) != 0)
        status = lk__fail(LK_STATUS_FORMAT, "%s: has the format \"%.40s\", where this version reads \"%s\"", path,
                          format, lk__record_format);
    if (status == LK_OK)
        *out = run;
    else
        cJSON_Delete(run);
    return status;
}

static lk_status read_run(lk_record *record)
{
    struct stat now;
    uint8_t *text;
    size_t bytes;
    cJSON *run = NULL;
    if (stat(record->run_path, &now) != 0)
        return lk__fail(lk__status_of(errno), "%s is not a run folder: cannot open %s: %s", record->folder,
                        record->run_path, strerror(errno));
    if (record->run && same_file(&now, &record->run_seen))
        return LK_OK;
    LK_TRY(lk__file_read(record->run_path, MAX_RUN, &text, &bytes));
    lk_status status = parse_run(record->run_path, text, bytes, &run);
    lk__mem_free(text);
    if (status != LK_OK)
        return status;
    cJSON_Delete(record->run);
    record->run = run;
    record->run_seen = now;
    return LK_OK;
}

lk_status lk__record_refresh(lk_record *record, bool *again)
{
    *again = false;
    LK_TRY(read_run(record));
    if (!record->limits.no_ranks)
        LK_TRY(read_rows(record, &record->ranks, again));
    record->complete = true;
    return read_rows(record, &record->metrics, again);
}

static lk_status set_paths(lk_record *record, const char *folder)
{
    size_t length = lk__path_length(folder);
    if (length >= sizeof record->folder)
        return lk__fail(LK_STATUS_USAGE, "the path of a run folder has %zu bytes at most", sizeof record->folder - 1);
    memcpy(record->folder, folder, length);
    if (!lk__path_join(record->folder, run_name, record->run_path, PATH_BYTES) ||
        !lk__path_join(record->folder, "metrics.jsonl", record->metrics.path, PATH_BYTES) ||
        !lk__path_join(record->folder, "ranks.jsonl", record->ranks.path, PATH_BYTES))
        return lk__fail(LK_STATUS_USAGE, "%s: the path is too long", record->folder);
    return LK_OK;
}

lk_status lk__record_open(const char *folder, lk_record **out)
{
    return lk__record_open_within(folder, (lk_record_limits){0}, out);
}

bool lk__record_is_complete(const lk_record *record)
{
    return record->complete;
}

lk_status lk__record_open_within(const char *folder, lk_record_limits limits, lk_record **out)
{
    lk_record *record;
    bool again;
    LK_TRY(LK_ALLOC(1, "run folder", &record));
    record->limits = limits;
    record->metrics.take = take_metrics;
    record->ranks.take = take_ranks;
    lk_status status = set_paths(record, folder);
    if (status == LK_OK)
        status = lk__record_refresh(record, &again);
    if (status == LK_OK)
        *out = record;
    else
        lk__record_close(record);
    return status;
}

void lk__record_close(lk_record *record)
{
    if (!record)
        return;
    for (int kind = 0; kind < LK_RECORD_KIND_COUNT; kind++)
        lk__record_table_clear(&record->tables[kind]);
    cJSON_Delete(record->run);
    cJSON_Delete(record->last_ranks);
    lk__mem_free(record);
}

const char *lk__record_folder(const lk_record *record)
{
    return record->folder;
}

const cJSON *lk__record_run(const lk_record *record)
{
    return record->run;
}

const lk_record_table *lk__record_table(const lk_record *record, lk_record_kind kind)
{
    return &record->tables[kind];
}

const cJSON *lk__record_last_ranks(const lk_record *record)
{
    return record->last_ranks;
}
