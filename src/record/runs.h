/* runs.h - the runs that a user named, opened and summed up: what plots, reports and sweeps begin with. */
#ifndef LK_RECORD_RUNS_H
#define LK_RECORD_RUNS_H

#include "record/differences.h"
#include "record/read.h"

typedef struct lk_record_runs {
    size_t count, room;
    lk_record **records;                /* (count) in the order of the paths; those of one folder by name */
    lk_record_differences *differences; /* of all of them */
} lk_record_runs;

/* Called for a run inside a named folder that cannot be read and is left out; lk_error_detail() says why. */
typedef void (*lk_record_skip_fn)(void *arg);

/* Opens runs. A path is a run folder, a folder of run folders, or a folder of such folders (as `sweep` makes
 * them): then all of them are opened. A path without a run is NOT_FOUND; a run that was named itself and cannot be
 * read is an error. */
lk_status lk__record_runs_open(const char *const *paths, size_t count, lk_record_skip_fn skip, void *arg,
                               lk_record_runs **out) LK_CHECKED;
void lk__record_runs_close(lk_record_runs *runs);

/* The figures of one run; NaN: not known. */
typedef struct lk_record_summary {
    double steps, epochs, seconds; /* of the run's end; of the last row of any kind while it runs */
    double train_loss;             /* of the last training row that has one */
    double test_loss, top1, top5;  /* of the last test row */
    double best_top1;              /* of all test rows */
    double img_per_s;              /* median of the training rows; of more than two without the first */
    double val_loss, val_top1;     /* of the last validation row */
    double val_best_top1;          /* of all validation rows */
} lk_record_summary;
#define LK_RECORD_SUMMARY_NONE                                     \
    (lk_record_summary)                                            \
    {                                                              \
        NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN \
    }
lk_status lk__record_summarise(const lk_record *record, lk_record_summary *out) LK_CHECKED;

/* A number or text of run.json; NaN, or "" if it is absent. */
double lk__record_number(const lk_record *record, const char *key);
const char *lk__record_text(const lk_record *record, const char *key);
/* A number of run.json's result; NaN if it is absent. An item of any kind, borrowed from the record; NULL if it is
 * absent. */
double lk__record_result(const lk_record *record, const char *key);
const cJSON *lk__record_result_item(const lk_record *record, const char *key);

#endif
