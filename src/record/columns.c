/* columns.c - names of the columns and kinds of rows, and tables that grow. */
#include "record/columns.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

enum { FIRST_ROOM = 256 };

const char lk__record_format[] = "lockstep-run-1";

static const char *const column_names[LK_RECORD_COLUMN_COUNT] = {
    [LK_RECORD_COLUMN_STEP] = "step",
    [LK_RECORD_COLUMN_EPOCH] = "epoch",
    [LK_RECORD_COLUMN_LOSS] = "loss",
    [LK_RECORD_COLUMN_TOP1] = "top1",
    [LK_RECORD_COLUMN_TOP5] = "top5",
    [LK_RECORD_COLUMN_LR] = "lr",
    [LK_RECORD_COLUMN_GRAD_NORM] = "grad_norm",
    [LK_RECORD_COLUMN_IMG_PER_S] = "img_per_s",
    [LK_RECORD_COLUMN_SECONDS] = "seconds",
    [LK_RECORD_COLUMN_RANK] = "rank",
    [LK_RECORD_COLUMN_WAIT_PCT] = "wait_pct",
    [LK_RECORD_COLUMN_DATA_PCT] = "data_pct",
    [LK_RECORD_COLUMN_COMPUTE_PCT] = "compute_pct",
    [LK_RECORD_COLUMN_CPU_PCT] = "cpu_pct",
    [LK_RECORD_COLUMN_MEMORY_MB] = "memory_mb",
    [LK_RECORD_COLUMN_GPU_PCT] = "gpu_pct",
    [LK_RECORD_COLUMN_GPU_MEMORY_MB] = "gpu_memory_mb",
    [LK_RECORD_COLUMN_GPU_CELSIUS] = "gpu_celsius",
};

static const char *const kind_names[LK_RECORD_KIND_COUNT] = {"train", "test", "val", "ranks"};

const char *lk__record_column_name(lk_record_column column)
{
    return column_names[column];
}

const char *lk__record_kind_name(lk_record_kind kind)
{
    return kind_names[kind];
}

lk_record_column lk__record_column_find(const char *name)
{
    int i = 0;
    while (i < LK_RECORD_COLUMN_COUNT && strcmp(name, column_names[i]) != 0)
        i++;
    return (lk_record_column)i;
}

lk_record_kind lk__record_kind_find(const char *name)
{
    int i = 0;
    while (i < LK_RECORD_KIND_COUNT && strcmp(name, kind_names[i]) != 0)
        i++;
    return (lk_record_kind)i;
}

/* Moves the first `count` of an array into one with `room` elements; the rest becomes NaN. */
static lk_status grow_column(double **column, size_t count, size_t room)
{
    double *grown;
    LK_TRY(LK_ALLOC(room, "rows of a run folder", &grown));
    for (size_t i = 0; i < room; i++)
        grown[i] = i < count && *column ? (*column)[i] : NAN;
    lk__mem_free(*column);
    *column = grown;
    return LK_OK;
}

static lk_status grow(lk_record_table *table)
{
    size_t room = table->room ? 2 * table->room : FIRST_ROOM;
    uint32_t *mask;
    for (int c = 0; c < LK_RECORD_COLUMN_COUNT; c++) {
        if (table->column[c])
            LK_TRY(grow_column(&table->column[c], table->count, room));
    }
    LK_TRY(LK_ALLOC(room, "rows of a run folder", &mask));
    if (table->count > 0)
        memcpy(mask, table->mask, table->count * sizeof *mask);
    lk__mem_free(table->mask);
    table->mask = mask;
    table->room = room;
    return LK_OK;
}

lk_status lk__record_table_add(lk_record_table *table, const lk_record_row *row)
{
    if (table->count == table->room)
        LK_TRY(grow(table));
    for (int c = 0; c < LK_RECORD_COLUMN_COUNT; c++) {
        if (!(row->mask & 1u << c))
            continue;
        if (!table->column[c])
            LK_TRY(grow_column(&table->column[c], 0, table->room));
        table->column[c][table->count] = row->value[c];
    }
    table->mask[table->count++] = row->mask;
    return LK_OK;
}

void lk__record_table_clear(lk_record_table *table)
{
    for (int c = 0; c < LK_RECORD_COLUMN_COUNT; c++)
        lk__mem_free(table->column[c]);
    lk__mem_free(table->mask);
    *table = (lk_record_table){0};
}

void lk__record_row_set(lk_record_row *row, lk_record_column column, double value)
{
    row->value[column] = isfinite(value) ? value : NAN;
    row->mask |= 1u << column;
}
