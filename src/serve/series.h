/* series.h - the curves of runs, thinned. Keeps the rows of runs that were asked for, within a bound of memory. One
 * thread uses an lk_series. */
#ifndef LK_SERVE_SERIES_H
#define LK_SERVE_SERIES_H

#include "record/read.h"
#include "serve/body.h"
#include "serve/thin.h"

enum { LK_SERIES_MAX_POINTS = 4000 };

typedef struct lk_series lk_series;
lk_status lk__series_create(lk_series **out) LK_CHECKED;
void lk__series_destroy(lk_series *series);

typedef struct lk_series_query {
    const char *folder;    /* of the run */
    lk_record_column axis; /* STEP, EPOCH or SECONDS */
    lk_thin_range range;   /* on the axis */
    size_t buckets;        /* at most LK_SERIES_MAX_POINTS */
} lk_series_query;

/* Writes a JSON object: for each kind of row and each column {"x":[...],"y":[...]}, and "complete". One call reads a
 * few megabytes of new rows; *complete is false if more is left, and the next call reads on. NOT_FOUND if the run is
 * gone. */
lk_status lk__series_write(lk_series *series, const lk_series_query *query, lk_body *body, bool *complete) LK_CHECKED;

#endif
