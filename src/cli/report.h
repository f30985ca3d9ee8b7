/* report.h - what `train` and `eval` print.
 *
 * Results go to stdout, as the lines that people's scripts already read or as
 * one JSON object a line; progress goes to stderr. */
#ifndef LK_CLI_REPORT_H
#define LK_CLI_REPORT_H

#include "cli/args.h"

typedef struct lk_report {
    const lk_args *args;
    bool data_given;
    bool terminal;       /* stderr is one: progress is redrawn in place */
    bool drawn;          /* a progress line is on the terminal's last line */
    double drawn_at;     /* run seconds of the last progress */
    double first_step_s; /* from exec to the end of the first step */
    size_t train_count;
    size_t batches, steps;
} lk_report;

/* args must outlive the report. */
void lk__report_init(lk_report *report, const lk_args *args, bool data_given);
lk_train_events lk__report_events(lk_report *report);
/* Removes the progress line from the terminal. */
void lk__report_clear(lk_report *report);
void lk__report_end(lk_report *report, const lk_train_result *result);

/* The line of an evaluation on its own. */
void lk__report_metrics(const lk_metrics *metrics, bool json);

#endif
