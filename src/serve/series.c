/* series.c - rows of the runs that are watched, and their curves as JSON. */
#include "serve/series.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { PATH_BYTES = 4096, MAX_OPEN = 64, CALL_BYTES = 4 << 20 };
static const size_t MAX_MEMORY = (size_t)512 << 20;

static const lk_record_kind kinds[] = {LK_RECORD_KIND_TRAIN, LK_RECORD_KIND_TEST, LK_RECORD_KIND_VAL};
static const lk_record_column columns[] = {LK_RECORD_COLUMN_LOSS,      LK_RECORD_COLUMN_TOP1,
                                           LK_RECORD_COLUMN_TOP5,      LK_RECORD_COLUMN_LR,
                                           LK_RECORD_COLUMN_GRAD_NORM, LK_RECORD_COLUMN_IMG_PER_S};

typedef struct opened {
    char folder[PATH_BYTES];
    lk_record *record; /* NULL: this slot is free */
    uint64_t used;     /* number of the call that used it last */
} opened;

struct lk_series {
    opened slots[MAX_OPEN];
    uint64_t calls;
    size_t chosen[2 * LK_SERIES_MAX_POINTS + 2];
};

lk_status lk__series_create(lk_series **out)
{
    return LK_ALLOC(1, "curves of runs", out);
}

static void close_slot(opened *slot)
{
    lk__record_close(slot->record);
    slot->record = NULL;
}

void lk__series_destroy(lk_series *series)
{
    for (size_t i = 0; series && i < MAX_OPEN; i++)
        close_slot(&series->slots[i]);
    lk__mem_free(series);
}

static size_t record_bytes(const lk_record *record)
{
    size_t bytes = 0;
    for (size_t k = 0; record && k < sizeof kinds / sizeof *kinds; k++) {
        const lk_record_table *table = lk__record_table(record, kinds[k]);
        for (int c = 0; c < LK_RECORD_COLUMN_COUNT; c++)
            bytes += table->column[c] ? table->room * sizeof(double) : 0;
    }
    return bytes;
}

/* The slot that was used longest ago; free slots come first. */
static opened *oldest_slot(lk_series *series)
{
    opened *oldest = &series->slots[0];
    for (size_t i = 0; i < MAX_OPEN; i++) {
        opened *slot = &series->slots[i];
        if (!slot->record)
            return slot;
        oldest = slot->used < oldest->used ? slot : oldest;
    }
    return oldest;
}

/* Closes runs that were used long ago until the rest fits; `kept` stays. */
static void bound_memory(lk_series *series, const opened *kept)
{
    for (;;) {
        size_t bytes = 0;
        opened *oldest = NULL;
        for (size_t i = 0; i < MAX_OPEN; i++) {
            opened *slot = &series->slots[i];
            bytes += record_bytes(slot->record);
            if (slot->record && slot != kept && (!oldest || slot->used < oldest->used))
                oldest = slot;
        }
        if (bytes <= MAX_MEMORY || !oldest)
            return;
        close_slot(oldest);
    }
}

static lk_status open_run(lk_series *series, const char *folder, opened **out)
{
    const lk_record_limits limits = {.bytes = CALL_BYTES, .no_ranks = true};
    opened *slot = oldest_slot(series);
    close_slot(slot);
    LK_TRY(lk__record_open_within(folder, limits, &slot->record));
    snprintf(slot->folder, sizeof slot->folder, "%s", folder);
    *out = slot;
    return LK_OK;
}

/* The rows of a run, as new as its files. */
static lk_status find_run(lk_series *series, const char *folder, opened **out)
{
    opened *slot = NULL;
    bool again;
    for (size_t i = 0; i < MAX_OPEN && !slot; i++) {
        if (series->slots[i].record && strcmp(series->slots[i].folder, folder) == 0)
            slot = &series->slots[i];
    }
    lk_status status = slot ? lk__record_refresh(slot->record, &again) : open_run(series, folder, &slot);
    if (status == LK_STATUS_NOT_FOUND && slot)
        close_slot(slot);
    if (status != LK_OK)
        return status;
    slot->used = ++series->calls;
    bound_memory(series, slot);
    *out = slot;
    return LK_OK;
}

static void write_numbers(lk_body *body, const double *column, const size_t *chosen, size_t count, int digits)
{
    lk__body_text(body, "[");
    for (size_t i = 0; i < count; i++) {
        lk__body_text(body, i ? "," : "");
        lk__body_number(body, column[chosen[i]], digits);
    }
    lk__body_text(body, "]");
}

static void write_column(lk_series *series, const lk_series_query *query, const lk_record_table *table,
                         lk_record_column column, lk_body *body)
{
    const double *x = table->column[query->axis], *y = table->column[column];
    size_t count = lk__thin(x, y, table->count, query->range, query->buckets, series->chosen);
    lk__body_string(body, lk__record_column_name(column));
    lk__body_text(body, ":{\"x\":");
    write_numbers(body, x, series->chosen, count, 9);
    lk__body_text(body, ",\"y\":");
    write_numbers(body, y, series->chosen, count, 6);
    lk__body_text(body, "}");
}

static void write_kind(lk_series *series, const lk_series_query *query, const lk_record *record, lk_record_kind kind,
                       lk_body *body)
{
    const lk_record_table *table = lk__record_table(record, kind);
    bool any = false;
    lk__body_string(body, lk__record_kind_name(kind));
    lk__body_text(body, ":{");
    for (size_t c = 0; c < sizeof columns / sizeof *columns; c++) {
        if (!table->column[query->axis] || !table->column[columns[c]])
            continue;
        lk__body_text(body, any ? ",\n" : "");
        write_column(series, query, table, columns[c], body);
        any = true;
    }
    lk__body_text(body, "},\n");
}

lk_status lk__series_write(lk_series *series, const lk_series_query *query, lk_body *body, bool *complete)
{
    opened *run;
    LK_TRY(find_run(series, query->folder, &run));
    *complete = lk__record_is_complete(run->record);
    lk__body_text(body, "{");
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        write_kind(series, query, run->record, kinds[k], body);
    lk__body_text(body, *complete ? "\"complete\":true}\n" : "\"complete\":false}\n");
    return LK_OK;
}
