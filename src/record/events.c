/* events.c - writes event files with protobuf-c. A build without it has events_missing.c instead. */
#define _DEFAULT_SOURCE /* gethostname */
#include "record/events.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/mem.h"
#include "record/append.h"
#include "record/histogram.h"
#include "record/tfevents.pb-c.h"

enum { PATH_BYTES = 4096, HOST_BYTES = 65, MOST_FILES = 1000, TAG_BYTES = LK_MAX_TENSOR_NAME + 32 };

const bool lk__record_events_possible = true;

static char version[] = "brain.Event:2";

struct lk_record_events {
    char path[PATH_BYTES];
    int fd;
    uint8_t *buffer; /* a record */
    size_t room;
    lk_record_histogram histogram;
};

/* The columns that are results. */
static const uint32_t result_columns = 1u << LK_RECORD_COLUMN_LOSS | 1u << LK_RECORD_COLUMN_TOP1 |
                                       1u << LK_RECORD_COLUMN_TOP5 | 1u << LK_RECORD_COLUMN_LR |
                                       1u << LK_RECORD_COLUMN_GRAD_NORM | 1u << LK_RECORD_COLUMN_IMG_PER_S;

/* Makes room for a record of this many bytes. */
static lk_status reserve(lk_record_events *events, size_t bytes)
{
    if (bytes <= events->room)
        return LK_OK;
    lk__mem_free(events->buffer);
    events->buffer = NULL;
    events->room = 0;
    LK_TRY(LK_ALLOC(2 * bytes, "a record of an event file", &events->buffer));
    events->room = 2 * bytes;
    return LK_OK;
}

static lk_status write_event(lk_record_events *events, const Tfevents__Event *event)
{
    size_t body = tfevents__event__get_packed_size(event);
    LK_TRY(reserve(events, body + LK_RECORD_FRAME));
    tfevents__event__pack(event, events->buffer + LK_RECORD_FRAME_HEAD);
    lk__record_events_frame(events->buffer, body);
    if (!lk__record_append(events->fd, events->buffer, body + LK_RECORD_FRAME))
        return lk__fail(LK_STATUS_IO, "cannot write %s: %s", events->path, strerror(errno));
    return LK_OK;
}

static lk_status write_values(lk_record_events *events, size_t step, Tfevents__Summary__Value **values, size_t count)
{
    Tfevents__Summary summary = TFEVENTS__SUMMARY__INIT;
    Tfevents__Event event = TFEVENTS__EVENT__INIT;
    summary.n_value = count;
    summary.value = values;
    event.has_wall_time = event.has_step = 1;
    event.wall_time = lk__clock_unix();
    event.step = (int64_t)step;
    event.summary = &summary;
    return write_event(events, &event);
}

/* The first free name: a run may be resumed within a second, by a process of the same id. */
static lk_status create_file(lk_record_events *events, const char *folder)
{
    char host[HOST_BYTES] = "", name[HOST_BYTES + 96];
    if (gethostname(host, sizeof host - 1) != 0 || !*host || strchr(host, '/'))
        snprintf(host, sizeof host, "localhost");
    for (int i = 0; i < MOST_FILES; i++) {
        snprintf(name, sizeof name, "events.out.%s.%010lld.%s.%ld.%d", lk__record_events_mark, (long long)time(NULL),
                 host, (long)getpid(), i);
        if (!lk__path_join(folder, name, events->path, sizeof events->path))
            return lk__fail(LK_STATUS_USAGE, "%s: the path of the run folder is too long", folder);
        events->fd = lk__fd_open(events->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND, 0666);
        if (events->fd >= 0 || errno != EEXIST)
            break;
    }
    return events->fd >= 0 ? LK_OK : lk__fail(LK_STATUS_IO, "cannot create %s: %s", events->path, strerror(errno));
}

static lk_status begin_file(lk_record_events *events, const char *folder)
{
    Tfevents__Event event = TFEVENTS__EVENT__INIT;
    LK_TRY(create_file(events, folder));
    event.has_wall_time = 1;
    event.wall_time = lk__clock_unix();
    event.file_version = version;
    return write_event(events, &event);
}

lk_status lk__record_events_open(const char *folder, lk_record_events **out)
{
    lk_record_events *events;
    LK_TRY(LK_ALLOC(1, "event file", &events));
    events->fd = -1;
    lk_status status = begin_file(events, folder);
    if (status == LK_OK)
        *out = events;
    else
        lk__record_events_close(events);
    return status;
}

void lk__record_events_close(lk_record_events *events)
{
    if (!events)
        return;
    lk__fd_close(&events->fd);
    lk__mem_free(events->buffer);
    lk__mem_free(events);
}

lk_status lk__record_events_row(lk_record_events *events, lk_record_kind kind, const lk_record_row *row)
{
    Tfevents__Summary__Value values[LK_RECORD_COLUMN_COUNT], *list[LK_RECORD_COLUMN_COUNT];
    char tags[LK_RECORD_COLUMN_COUNT][32];
    size_t count = 0;
    if (!events)
        return LK_OK;
    for (int c = 0; c < LK_RECORD_COLUMN_COUNT; c++) {
        if (!(row->mask & result_columns & 1u << c) || !isfinite(row->value[c]))
            continue;
        snprintf(tags[count], sizeof tags[count], "%s/%s", lk__record_column_name((lk_record_column)c),
                 lk__record_kind_name(kind));
        tfevents__summary__value__init(&values[count]);
        values[count].tag = tags[count];
        values[count].has_simple_value = 1;
        values[count].simple_value = (float)row->value[c];
        list[count] = &values[count];
        count++;
    }
    return write_values(events, (size_t)row->value[LK_RECORD_COLUMN_STEP], list, count);
}

static lk_status write_histogram(lk_record_events *events, size_t step, char *tag)
{
    lk_record_histogram *h = &events->histogram;
    Tfevents__Histogram histo = TFEVENTS__HISTOGRAM__INIT;
    Tfevents__Summary__Value value = TFEVENTS__SUMMARY__VALUE__INIT, *list = &value;
    histo.has_min = histo.has_max = histo.has_num = histo.has_sum = histo.has_sum_squares = 1;
    histo.min = h->min;
    histo.max = h->max;
    histo.num = h->num;
    histo.sum = h->sum;
    histo.sum_squares = h->sum_squares;
    histo.n_bucket_limit = histo.n_bucket = h->count;
    histo.bucket_limit = h->limit;
    histo.bucket = h->bucket;
    value.tag = tag;
    value.histo = &histo;
    return write_values(events, step, &list, 1);
}

lk_status lk__record_events_state(lk_record_events *events, size_t step, const char *prefix, const lk_state *state)
{
    char tag[TAG_BYTES];
    for (size_t i = 0; events && i < lk_state_count(state); i++) {
        const lk_state_entry *entry = lk_state_at(state, i);
        if (entry->dtype != LK_DTYPE_F32)
            continue;
        lk__record_histogram(entry->data, entry->bytes / sizeof(float), &events->histogram);
        snprintf(tag, sizeof tag, "%s/%s", prefix, entry->name);
        if (events->histogram.num > 0)
            LK_TRY(write_histogram(events, step, tag));
    }
    return LK_OK;
}
