/* trace_json.c - writes a trace in the trace-event format, which Perfetto and Chrome read: a process for each rank, a
 * thread for each thread, "X" events for spans, pairs of "b" and "e" events for flights. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "train/trace.h"

enum { LINE = 1024, NAME = 256, TIME = 32, THREADS = 1000 };

/* How a kind is shown: the name, a number behind the name, and names of the other numbers, NULL for none. */
static const struct {
    const char *before, *after;
    bool numbered;
    const char *number, *from, *to;
} shown[LK_TRACE_KIND_COUNT] = {
    [LK_TRACE_KIND_STEP] = {.numbered = true, .number = "step"},
    [LK_TRACE_KIND_DATA] = {.number = "batch"},
    [LK_TRACE_KIND_FORWARD] = {.after = " forward", .number = "index", .from = "first_shard", .to = "last_shard"},
    [LK_TRACE_KIND_BACKWARD] = {.after = " backward", .number = "index", .from = "first_shard", .to = "last_shard"},
    [LK_TRACE_KIND_DEVICE] = {.number = "step"},
    [LK_TRACE_KIND_SAVE] = {.number = "step"},
    [LK_TRACE_KIND_EVAL] = {.number = "step"},
    [LK_TRACE_KIND_WAIT] = {.before = "wait for "},
    [LK_TRACE_KIND_BUCKET] = {.numbered = true, .number = "bucket", .to = "bytes"},
    [LK_TRACE_KIND_MESSAGE] = {.numbered = true, .number = "stage", .to = "bytes"},
    [LK_TRACE_KIND_LAUNCHED] = {.numbered = true, .number = "step"},
};

/* Writes one event, with a comma before all but the first. */
__attribute__((format(printf, 2, 3))) static lk_status put(lk_train_trace_json *json, const char *format, ...)
{
    char line[LINE];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (length < 0 || (size_t)length >= sizeof line)
        return lk__fail(LK_STATUS_FORMAT, "an event of the trace is longer than %d bytes", LINE - 1);
    const char *comma = json->comma ? ",\n" : "\n";
    json->comma = true;
    LK_TRY(lk__writer_write(json->writer, comma, strlen(comma)));
    return lk__writer_write(json->writer, line, (size_t)length);
}

/* Writes text as the inside of a JSON string, cut to fit. */
static const char *escape(const char *text, char out[NAME])
{
    size_t used = 0;
    for (; *text && used + 7 < NAME; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            out[used++] = '\\';
        if (c < ' ')
            used += (size_t)snprintf(out + used, NAME - used, "\\u%04x", c);
        else
            out[used++] = (char)c;
    }
    out[used] = '\0';
    return out;
}

lk_status lk__train_trace_json_begin(const char *path, double base, lk_train_trace_json *out)
{
    static const char head[] = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [";
    lk_train_trace_json json = {.base = base};
    LK_TRY(lk__writer_open(path, &json.writer));
    lk_status status = lk__writer_write(json.writer, head, sizeof head - 1);
    if (status != LK_OK)
        lk__writer_abort(json.writer);
    else
        *out = json;
    return status;
}

/* Numbers of threads differ between ranks, too, because some viewers need that. */
static unsigned thread_id(int rank, uint32_t thread)
{
    return (unsigned)rank * THREADS + thread + 1;
}

static lk_status put_thread(lk_train_trace_json *json, int rank, const lk_train_trace_view *view, uint32_t thread)
{
    char name[NAME], number[16] = "";
    const lk_train_trace_thread *t = &view->threads[thread];
    unsigned id = thread_id(rank, thread);
    if (t->index >= 0)
        snprintf(number, sizeof number, " %d", t->index);
    escape(view->text + t->name, name);
    LK_TRY(put(json, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%u,\"args\":{\"name\":\"%s%s\"}}", rank,
               id, name, number));
    /* Steps first, then the workers, then the rest. */
    int order = strcmp(name, "steps") == 0 ? 0 : strcmp(name, "worker") == 0 ? 1 + t->index : THREADS + t->index;
    return put(json, "{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":%d,\"tid\":%u,\"args\":{\"sort_index\":%d}}",
               rank, id, order);
}

/* "conv1 backward", "bucket 3" */
static void show_name(const lk_train_trace_view *view, const lk_train_trace_span *span, char out[NAME])
{
    char text[NAME], name[NAME], number[16] = "";
    const char *before = shown[span->kind].before, *after = shown[span->kind].after;
    if (shown[span->kind].numbered && span->number >= 0)
        snprintf(number, sizeof number, " %d", span->number);
    snprintf(text, sizeof text, "%s%.200s%s%s", before ? before : "", view->text + span->name, after ? after : "",
             number);
    snprintf(out, NAME, "%s", escape(text, name));
}

static void add_number(char args[NAME], const char *key, int64_t value)
{
    size_t used = strlen(args);
    if (key)
        snprintf(args + used, NAME - used, "%s\"%s\":%" PRId64, used ? "," : "", key, value);
}

/* The inside of the object "args". A layer has no shards, a wave has. */
static void show_numbers(const lk_train_trace_span *span, char args[NAME])
{
    *args = '\0';
    if (span->number >= 0)
        add_number(args, shown[span->kind].number, span->number);
    bool wave = shown[span->kind].from && span->to >= span->from && (span->from || span->to);
    if (wave)
        add_number(args, shown[span->kind].from, span->from);
    if (wave || lk__trace_kind_is_flight((lk_trace_kind)span->kind))
        add_number(args, shown[span->kind].to, span->to);
}

/* Since the beginning of the trace. Both ends of a span are rounded in the same way, so that spans still nest. */
static int64_t nanoseconds(const lk_train_trace_json *json, double time)
{
    double since = (time - json->base) * 1e9;
    return since > 0 ? (int64_t)(since + 0.5) : 0;
}

/* Microseconds with three digits. */
static void show_time(int64_t nanoseconds, char out[TIME])
{
    snprintf(out, TIME, "%" PRId64 ".%03d", nanoseconds / 1000, (int)(nanoseconds % 1000));
}

static lk_status put_span(lk_train_trace_json *json, int rank, const lk_train_trace_view *view,
                          const lk_train_trace_span *span)
{
    char name[NAME], args[NAME];
    const char *kind = lk__trace_kinds[span->kind];
    char begin[TIME], end[TIME], length[TIME];
    int64_t began = nanoseconds(json, span->begin), ended = nanoseconds(json, span->end);
    show_time(began, begin);
    show_time(ended, end);
    show_time(ended - began, length);
    unsigned thread = thread_id(rank, span->thread);
    show_name(view, span, name);
    show_numbers(span, args);
    if (!lk__trace_kind_is_flight((lk_trace_kind)span->kind))
        return put(json,
                   "{\"ph\":\"X\",\"name\":\"%s\",\"cat\":\"%s\",\"pid\":%d,\"tid\":%u,\"ts\":%s,\"dur\":%s,"
                   "\"args\":{%s}}",
                   name, kind, rank, thread, begin, length, args);
    uint64_t id = ++json->flights;
    LK_TRY(put(json,
               "{\"ph\":\"b\",\"name\":\"%s\",\"cat\":\"%s\",\"id\":\"%" PRIu64
               "\",\"pid\":%d,\"tid\":%u,\"ts\":%s,\"args\":{%s}}",
               name, kind, id, rank, thread, begin, args));
    return put(json,
               "{\"ph\":\"e\",\"name\":\"%s\",\"cat\":\"%s\",\"id\":\"%" PRIu64 "\",\"pid\":%d,\"tid\":%u,\"ts\":%s}",
               name, kind, id, rank, thread, end);
}

lk_status lk__train_trace_json_rank(lk_train_trace_json *json, int rank, const lk_train_trace_view *view)
{
    char name[NAME];
    LK_TRY(put(json, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"%s\"}}", rank,
               escape(view->text, name)));
    LK_TRY(put(json, "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%d,\"args\":{\"sort_index\":%d}}", rank,
               rank));
    for (uint32_t t = 0; t < view->pack->threads; t++)
        LK_TRY(put_thread(json, rank, view, t));
    for (uint64_t i = 0; i < view->pack->spans; i++)
        LK_TRY(put_span(json, rank, view, &view->spans[i]));
    return LK_OK;
}

lk_status lk__train_trace_json_end(lk_train_trace_json *json)
{
    static const char tail[] = "\n]}\n";
    lk_status status = lk__writer_write(json->writer, tail, sizeof tail - 1);
    if (status == LK_OK)
        return lk__writer_commit(json->writer);
    lk__writer_abort(json->writer);
    return status;
}
