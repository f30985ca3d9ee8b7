/* write.c - the writer of a run folder. */
#include "record/write.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/spec.h"
#include "io/json.h"
#include "record/append.h"
#include "record/cut.h"
#include "record/events.h"

enum { PATH_BYTES = 4096, MOST_NAMES = 99, LINE = 1024, LOG_LINE = 4096, RESERVE = 64 << 10 };

/* Columns of a row of metrics, in the order of metrics.csv. */
static const lk_record_column metric_columns[] = {
    LK_RECORD_COLUMN_STEP,      LK_RECORD_COLUMN_EPOCH,     LK_RECORD_COLUMN_LOSS,
    LK_RECORD_COLUMN_TOP1,      LK_RECORD_COLUMN_TOP5,      LK_RECORD_COLUMN_LR,
    LK_RECORD_COLUMN_GRAD_NORM, LK_RECORD_COLUMN_IMG_PER_S, LK_RECORD_COLUMN_SECONDS,
};
enum { METRIC_COLUMNS = sizeof metric_columns / sizeof *metric_columns };

struct lk_record_writer {
    char path[PATH_BYTES];
    const char *name; /* the end of path */
    bool continued;
    cJSON *run;
    int metrics, csv, ranks, log; /* descriptors */
    int reserve;                  /* a file without a name, whose space run.json takes if the disk is full; or -1 */
    lk_record_events *events;     /* NULL: none */
    double last[LK_RECORD_KIND_COUNT]; /* the step of the last row of each kind; -1: none */
    pthread_mutex_t log_lock;
    char line[LOG_LINE]; /* of the log, incomplete */
    size_t line_bytes;
    bool escape;   /* inside an escape sequence */
    int log_error; /* errno of the first write that failed; 0: none */
};

static lk_status file_path(const lk_record_writer *writer, const char *name, char out[PATH_BYTES])
{
    if (!lk__path_join(writer->path, name, out, PATH_BYTES))
        return lk__fail(LK_STATUS_USAGE, "%s/%s: the path of the run folder is too long", writer->path, name);
    return LK_OK;
}

/* Without a reserve, run.json stays as it was when the disk became full. */
static void open_reserve(lk_record_writer *writer)
{
    char path[PATH_BYTES];
    lk__file_aside(writer->path, path, sizeof path);
    writer->reserve = lk__fd_open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (writer->reserve < 0)
        return;
    unlink(path);
    if (posix_fallocate(writer->reserve, 0, RESERVE) != 0)
        lk__fd_close(&writer->reserve);
}

static lk_status open_log(lk_record_writer *writer)
{
    char path[PATH_BYTES];
    LK_TRY(file_path(writer, "log.txt", path));
    writer->log = lk__fd_open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (writer->log >= 0)
        open_reserve(writer);
    return writer->log >= 0 ? LK_OK : lk__fail(LK_STATUS_IO, "cannot open %s: %s", path, strerror(errno));
}

static lk_status allocate(lk_record_writer **out)
{
    lk_record_writer *writer;
    LK_TRY(LK_ALLOC(1, "run folder", &writer));
    writer->metrics = writer->csv = writer->ranks = writer->log = writer->reserve = -1;
    for (int kind = 0; kind < LK_RECORD_KIND_COUNT; kind++)
        writer->last[kind] = -1;
    pthread_mutex_init(&writer->log_lock, NULL);
    *out = writer;
    return LK_OK;
}

/* Makes the first folder of dir/NAME, dir/NAME-2 ... that does not exist. */
static lk_status make_folder(lk_record_writer *writer, const char *dir, const char *name)
{
    char numbered[LK_RECORD_NAME + 8];
    for (int i = 1; i <= MOST_NAMES; i++) {
        if (i == 1)
            snprintf(numbered, sizeof numbered, "%s", name);
        else
            snprintf(numbered, sizeof numbered, "%.*s-%d", LK_RECORD_NAME - 4, name, i);
        if (!lk__path_join(dir, numbered, writer->path, PATH_BYTES))
            return lk__fail(LK_STATUS_USAGE, "`log_dir` %s: the path is too long", dir);
        writer->name = writer->path + strlen(writer->path) - strlen(numbered);
        if (mkdir(writer->path, 0777) == 0)
            return LK_OK;
        if (errno != EEXIST)
            return lk__fail(LK_STATUS_IO, "`log_dir`: cannot make the run folder %s: %s", writer->path,
                            strerror(errno));
    }
    return lk__fail(LK_STATUS_IO, "`log_dir`: %s and %d more with a number exist: give another folder", writer->path,
                    MOST_NAMES - 1);
}

static lk_status fill_new(lk_record_writer *writer, const char *dir, const char *name)
{
    LK_TRY(lk__folder_make(dir));
    LK_TRY(make_folder(writer, dir, name));
    writer->run = cJSON_CreateObject();
    if (!writer->run || !cJSON_AddStringToObject(writer->run, "format", lk__record_format) ||
        !cJSON_AddStringToObject(writer->run, "name", writer->name))
        return lk__fail_memory(LINE, "run.json");
    return open_log(writer);
}

lk_status lk__record_create(const char *dir, const char *name, lk_record_writer **out)
{
    lk_record_writer *writer;
    LK_TRY(allocate(&writer));
    lk_status status = fill_new(writer, dir, name);
    if (status == LK_OK)
        *out = writer;
    else
        lk__record_destroy(writer);
    return status;
}

static lk_status fill_old(lk_record_writer *writer, const char *dir, const char *name)
{
    lk_record *record;
    if (!lk__path_join(dir, name, writer->path, PATH_BYTES))
        return lk__fail(LK_STATUS_USAGE, "`log_dir` %s: the path is too long", dir);
    writer->name = writer->path + strlen(writer->path) - strlen(name);
    writer->continued = true;
    LK_TRY(lk__record_open(writer->path, &record));
    writer->run = cJSON_Duplicate(lk__record_run(record), true);
    lk__record_close(record);
    return writer->run ? open_log(writer) : lk__fail_memory(LINE, "run.json");
}

lk_status lk__record_continue(const char *dir, const char *name, lk_record_writer **out)
{
    lk_record_writer *writer;
    LK_TRY(allocate(&writer));
    lk_status status = fill_old(writer, dir, name);
    if (status == LK_OK)
        *out = writer;
    else
        lk__record_destroy(writer);
    return status;
}

void lk__record_destroy(lk_record_writer *writer)
{
    if (!writer)
        return;
    if (writer->line_bytes)
        lk__record_log(writer, "\n", 1);
    lk__record_events_close(writer->events);
    lk__fd_close(&writer->reserve);
    lk__fd_close(&writer->metrics);
    lk__fd_close(&writer->csv);
    lk__fd_close(&writer->ranks);
    lk__fd_close(&writer->log);
    cJSON_Delete(writer->run);
    pthread_mutex_destroy(&writer->log_lock);
    lk__mem_free(writer);
}

const char *lk__record_path(const lk_record_writer *writer)
{
    return writer->path;
}

const char *lk__record_own_name(const lk_record_writer *writer)
{
    return writer->name;
}

bool lk__record_is_continued(const lk_record_writer *writer)
{
    return writer->continued;
}

cJSON *lk__record_object(lk_record_writer *writer)
{
    return writer->run;
}

lk_status lk__record_put(lk_record_writer *writer, const char *name, const void *data, size_t bytes)
{
    char path[PATH_BYTES];
    LK_TRY(file_path(writer, name, path));
    const char *before = lk__fault_enter("record");
    lk_status status = lk__file_replace(path, data, bytes);
    lk__fault_leave(before);
    return status;
}

/* On a full disk the reserve makes room. */
lk_status lk__record_publish(lk_record_writer *writer)
{
    char *text = cJSON_Print(writer->run);
    if (!text)
        return lk__fail_memory(LINE, "run.json");
    lk_status status = lk__record_put(writer, "run.json", text, strlen(text));
    if (status != LK_OK && writer->reserve >= 0) {
        lk__fd_close(&writer->reserve);
        status = lk__record_put(writer, "run.json", text, strlen(text));
    }
    cJSON_free(text);
    return status;
}

lk_status lk__record_put_state(lk_record_writer *writer, const char *name, const lk_state *state)
{
    char file[64], path[PATH_BYTES];
    snprintf(file, sizeof file, "%s.safetensors", name);
    LK_TRY(file_path(writer, file, path));
    const char *before = lk__fault_enter("record");
    lk_status status = lk_state_save(state, path);
    lk__fault_leave(before);
    return status;
}

static lk_status open_rows(const lk_record_writer *writer, const char *name, const char *head, int *fd)
{
    char path[PATH_BYTES];
    struct stat info;
    LK_TRY(file_path(writer, name, path));
    *fd = lk__fd_open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (*fd < 0 || fstat(*fd, &info) != 0)
        return lk__fail(LK_STATUS_IO, "cannot open %s: %s", path, strerror(errno));
    if (info.st_size == 0 && *head && !lk__record_append(*fd, head, strlen(head)))
        return lk__fail(LK_STATUS_IO, "cannot write %s: %s", path, strerror(errno));
    return LK_OK;
}

static void csv_head(char out[LINE])
{
    size_t used = (size_t)snprintf(out, LINE, "kind");
    for (size_t i = 0; i < METRIC_COLUMNS; i++)
        used += (size_t)snprintf(out + used, LINE - used, ",%s", lk__record_column_name(metric_columns[i]));
    snprintf(out + used, LINE - used, "\n");
}

/* Finds the last steps and the largest time of the rows that are left. */
static lk_status read_last(lk_record_writer *writer, double *seconds)
{
    lk_record *record;
    LK_TRY(lk__record_open(writer->path, &record));
    for (int kind = 0; kind < LK_RECORD_KIND_RANKS; kind++) {
        const lk_record_table *table = lk__record_table(record, (lk_record_kind)kind);
        const double *steps = table->column[LK_RECORD_COLUMN_STEP], *times = table->column[LK_RECORD_COLUMN_SECONDS];
        if (table->count > 0 && steps)
            writer->last[kind] = steps[table->count - 1];
        if (table->count > 0 && times)
            *seconds = fmax(*seconds, times[table->count - 1]);
    }
    lk__record_close(record);
    return LK_OK;
}

lk_status lk__record_begin(lk_record_writer *writer, size_t step, double *seconds)
{
    char head[LINE];
    *seconds = 0;
    if (writer->continued) {
        LK_TRY(lk__record_cut(writer->path, step));
        LK_TRY(read_last(writer, seconds));
    }
    csv_head(head);
    LK_TRY(open_rows(writer, "metrics.jsonl", "", &writer->metrics));
    LK_TRY(open_rows(writer, "metrics.csv", head, &writer->csv));
    LK_TRY(open_rows(writer, "ranks.jsonl", "", &writer->ranks));
    return lk__record_events_open(writer->path, &writer->events);
}

static lk_status append(const lk_record_writer *writer, int fd, const char *name, const char *text, size_t bytes)
{
    if (lk__record_append(fd, text, bytes))
        return LK_OK;
    return lk__fail(LK_STATUS_IO, "cannot write %s/%s: %s", writer->path, name, strerror(errno));
}

/* A number of a row, a whole one without exponent; `missing` for one that is not finite. */
static const char *value_text(double value, const char *missing, char text[LK_NUMBER_TEXT])
{
    if (!isfinite(value))
        return missing;
    if (value != trunc(value) || fabs(value) >= 1e15)
        return lk__number_text(value, text);
    snprintf(text, LK_NUMBER_TEXT, "%.0f", value);
    return text;
}

static size_t json_row(const lk_record_row *row, char *out, size_t room)
{
    size_t used = 0;
    char text[LK_NUMBER_TEXT];
    out[0] = '\0';
    for (int c = 0; c < LK_RECORD_COLUMN_COUNT; c++) {
        if (row->mask & 1u << c)
            used +=
                (size_t)snprintf(out + used, room - used, "%s\"%s\":%s", used ? "," : "",
                                 lk__record_column_name((lk_record_column)c), value_text(row->value[c], "null", text));
    }
    return used;
}

static size_t csv_row(const char *kind, const lk_record_row *row, char *out, size_t room)
{
    size_t used = (size_t)snprintf(out, room, "%s", kind);
    char text[LK_NUMBER_TEXT];
    for (size_t i = 0; i < METRIC_COLUMNS; i++) {
        lk_record_column c = metric_columns[i];
        used += (size_t)snprintf(out + used, room - used, ",%s",
                                 row->mask & 1u << c ? value_text(row->value[c], "nan", text) : "");
    }
    return used + (size_t)snprintf(out + used, room - used, "\n");
}

static lk_status append_row(lk_record_writer *writer, lk_record_kind kind, const lk_record_row *row)
{
    char numbers[LINE], line[LINE + 64];
    json_row(row, numbers, sizeof numbers);
    int bytes = snprintf(line, sizeof line, "{\"kind\":\"%s\",%s}\n", lk__record_kind_name(kind), numbers);
    LK_TRY(append(writer, writer->metrics, "metrics.jsonl", line, (size_t)bytes));
    size_t length = csv_row(lk__record_kind_name(kind), row, line, sizeof line);
    LK_TRY(append(writer, writer->csv, "metrics.csv", line, length));
    return lk__record_events_row(writer->events, kind, row);
}

/* The failure of a write to the log, once. */
static lk_status log_result(lk_record_writer *writer)
{
    pthread_mutex_lock(&writer->log_lock);
    int error = writer->log_error;
    writer->log_error = 0;
    pthread_mutex_unlock(&writer->log_lock);
    return error ? lk__fail(LK_STATUS_IO, "cannot write %s/log.txt: %s", writer->path, strerror(error)) : LK_OK;
}

lk_status lk__record_row(lk_record_writer *writer, lk_record_kind kind, const lk_record_row *row)
{
    double step = row->value[LK_RECORD_COLUMN_STEP];
    LK_TRY(log_result(writer));
    if (step <= writer->last[kind])
        return LK_OK;
    long long metrics = lk__record_length(writer->metrics), csv = lk__record_length(writer->csv);
    lk_status status = append_row(writer, kind, row);
    if (status == LK_OK)
        writer->last[kind] = step;
    else { /* a row is in both files, or in none */
        lk__record_cut_to(writer->metrics, metrics);
        lk__record_cut_to(writer->csv, csv);
    }
    return status;
}

/* Appends ,"key":"text", unless text is empty or too long to be a name. */
static size_t put_text(char *out, size_t room, const char *key, const char *text)
{
    size_t used = (size_t)snprintf(out, room, ",\"%s\":", key);
    if (!*text || used + 6 * strlen(text) + 2 > room)
        return 0;
    return used + lk__json_quote(text, out + used);
}

lk_status lk__record_ranks(lk_record_writer *writer, size_t step, double seconds, const lk_record_rank *ranks,
                           int count)
{
    enum { RANK = 2 * LINE };
    char *line, number[LK_NUMBER_TEXT];
    size_t room = LINE + (size_t)count * RANK;
    LK_TRY(LK_ALLOC(room, "a row of ranks", &line));
    size_t used = (size_t)snprintf(line, room, "{\"step\":%zu,\"seconds\":%s,\"ranks\":[", step,
                                   value_text(seconds, "null", number));
    for (int i = 0; i < count; i++) {
        used += (size_t)snprintf(line + used, room - used, "%s{", i ? "," : "");
        used += json_row(&ranks[i].row, line + used, room - used);
        used += put_text(line + used, room - used, "host", ranks[i].host);
        used += put_text(line + used, room - used, "device", ranks[i].device);
        used += (size_t)snprintf(line + used, room - used, "}");
    }
    used += (size_t)snprintf(line + used, room - used, "]}\n");
    lk_status status = append(writer, writer->ranks, "ranks.jsonl", line, used);
    lk__mem_free(line);
    return status;
}

lk_status lk__record_histograms(lk_record_writer *writer, size_t step, const char *prefix, const lk_state *state)
{
    return lk__record_events_state(writer->events, step, prefix, state);
}

/* Writes what has been gathered of the log's last line. After a failure the log stays as it is. */
static void end_line(lk_record_writer *writer)
{
    if (writer->log >= 0 && writer->line_bytes && !lk__record_append(writer->log, writer->line, writer->line_bytes)) {
        writer->log_error = errno;
        lk__fd_close(&writer->log);
    }
    writer->line_bytes = 0;
}

/* An escape sequence ends with a letter. */
static bool ends_escape(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static void take_byte(lk_record_writer *writer, char c)
{
    if (writer->escape)
        writer->escape = !ends_escape(c);
    else if (c == '\033')
        writer->escape = true;
    else if (c == '\r')
        writer->line_bytes = 0;
    else if (c == '\n' || c == '\t' || (unsigned char)c >= ' ')
        writer->line[writer->line_bytes++] = c;
    if (c == '\n' || writer->line_bytes == sizeof writer->line)
        end_line(writer);
}

void lk__record_log(lk_record_writer *writer, const char *text, size_t bytes)
{
    pthread_mutex_lock(&writer->log_lock);
    for (size_t i = 0; i < bytes; i++)
        take_byte(writer, text[i]);
    pthread_mutex_unlock(&writer->log_lock);
}
