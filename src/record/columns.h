/* columns.h - one row of numbers, and tables that grow: what reader and writer share. */
#ifndef LK_RECORD_COLUMNS_H
#define LK_RECORD_COLUMNS_H

#include "record/read.h"

/* One row: value[c] counts where mask has bit 1 << c; a number that is not finite is NaN. */
typedef struct lk_record_row {
    double value[LK_RECORD_COLUMN_COUNT];
    uint32_t mask;
} lk_record_row;

void lk__record_row_set(lk_record_row *row, lk_record_column column, double value);

/* The column or kind of a name; LK_RECORD_COLUMN_COUNT or LK_RECORD_KIND_COUNT if there is none. */
lk_record_column lk__record_column_find(const char *name);
lk_record_kind lk__record_kind_find(const char *name);

/* Appends a row. A table begins as zeros. After a failure the table has the rows that it had. */
lk_status lk__record_table_add(lk_record_table *table, const lk_record_row *row) LK_CHECKED;
/* Removes all rows and frees their memory. */
void lk__record_table_clear(lk_record_table *table);

#endif
