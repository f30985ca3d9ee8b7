/* report.h - what `train` and `eval` print.
 *
 * Results go to stdout, as the lines that people's scripts already read or as
 * one JSON object a line; progress goes to stderr. */
#ifndef LK_CLI_REPORT_REPORT_H
#define LK_CLI_REPORT_REPORT_H

#include <pthread.h>
#include <stdatomic.h>

#include "cli/job/plan.h"

/* Where the ranks of a process print: one at a time, since a line of any of them
 * must first remove the progress line. */
typedef struct lk_report_screen {
    pthread_mutex_t lock;
    bool terminal; /* stderr is one: progress is redrawn in place */
    bool drawn;    /* a progress line is on the terminal's last line */
} lk_report_screen;

/* Of one rank. */
typedef struct lk_report {
    const lk_args *args;
    const lk_job_plan *plan;
    bool data_given;
    bool by_hand;   /* started without a launcher beside others, and the first of its process: tells why it ends */
    double exec_at; /* when the program was started, on lk__clock() */
    lk_report_screen *screen;
    atomic_int *wish;    /* signals are watched from the start on; NULL: another rank sees to it */
    double drawn_at;     /* run seconds of the last progress */
    double first_step_s; /* from the program's start to the end of the first step */
    size_t train_count, classes;
    size_t batches, steps, done; /* done: before this process began */
    /* Known from the start on. */
    int rank, ranks, stage;
    lk_shard_range share;
} lk_report;

/* What rank 0 prints for all; nothing but its own lines at the others, and those
 * with --log-ranks all only. report must stay where it is. */
lk_train_events lk__report_events(lk_report *report);
/* Removes the progress line from the terminal; the caller has the lock, or is the
 * only one. */
void lk__report_screen_clear(lk_report_screen *screen);

/* Lines about checkpoints: which the run goes on from, as text or in the JSON of
 * its start (a cJSON object), and one that was saved. */
struct cJSON;
void lk__report_resumed(const lk_report *report, const lk_train_start *start);
void lk__report_resumed_json(struct cJSON *line, const lk_train_start *start);
void lk__report_saved(const lk_report *report, const lk_train_saved *saved);
/* A line on stderr where the model that --init-from or eval names is one of a checkpoint
 * that was set aside; none for NULL. */
void lk__report_suspect(const char *command, const char *path);
/* After a failure, where rank 0 is here: the checkpoint to go on from. */
void lk__report_last(const lk_args *args, const lk_train_failure *failure);
/* The line of a run that was stopped, by which rank's signal, and at rank 0 how to go
 * on with it. Ranks other than 0 print it where nobody else speaks for them. */
void lk__report_stopped(const lk_report *report, const lk_train_result *result);

/* Lines of a rank's own. */
void lk__report_rank_start(const lk_report *report, const lk_train_start *start);
void lk__report_rank_step(const lk_report *report, const lk_train_step *step);
void lk__report_rank_end(const lk_report *report, const lk_train_result *result);

/* Shared by both kinds of lines. */
static inline double lk__report_percent(size_t part, size_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

/* The line of an evaluation on its own. */
void lk__report_metrics(const lk_metrics *metrics, size_t classes, bool json);

#endif
