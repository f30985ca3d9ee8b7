/* report.h - the output of `train` and `eval`.
 *
 * Results go to stdout, as lines in the format that scripts already read or as one JSON object on each line;
 * progress goes to stderr. */
#ifndef LK_CLI_REPORT_REPORT_H
#define LK_CLI_REPORT_REPORT_H

#include <pthread.h>
#include <stdatomic.h>

#include "cli/job/plan.h"

/* The terminal of the ranks of a process. One rank prints at a time, since every line must first remove the
 * progress line. */
typedef struct lk_report_screen {
    pthread_mutex_t lock;
    bool terminal; /* stderr is a terminal: the progress line is redrawn */
    bool drawn;    /* the last line of the terminal is a progress line */
} lk_report_screen;

/* The report of one rank. */
typedef struct lk_report {
    const lk_args *args;
    const lk_job_plan *plan;
    bool data_given;
    bool by_hand; /* started without a launcher, with other ranks, and the first rank of its process: prints why it ends
                   */
    double exec_at; /* start of the program, on lk__clock() */
    lk_report_screen *screen;
    atomic_int *level;   /* raised by signals after the run has started; NULL: another rank watches signals */
    double drawn_at;     /* seconds of the run at the last progress line */
    double first_step_s; /* from the start of the program to the end of the first step */
    size_t train_count, classes;
    size_t batches, steps, done; /* done: before this process started */
    /* Set when the run starts. */
    int rank, ranks, stage;
    lk_shard_range share;
} lk_report;

/* Events of a rank: rank 0 prints for all; the others print only lines about themselves, and only with
 * --log-ranks all. report must not be moved. */
lk_train_events lk__report_events(lk_report *report);
/* Removes the progress line from the terminal; the caller has the lock, or no other rank prints. */
void lk__report_screen_clear(lk_report_screen *screen);

/* Lines about checkpoints: the one that the run resumes from, as text or in the JSON of its start (a cJSON
 * object), and one that was saved. */
struct cJSON;
void lk__report_resumed(const lk_report *report, const lk_train_start *start);
void lk__report_resumed_json(struct cJSON *line, const lk_train_start *start);
void lk__report_saved(const lk_report *report, const lk_train_saved *saved);
/* Prints a line on stderr if the model that --init-from or eval names belongs to a checkpoint that was set
 * aside; nothing for NULL. */
void lk__report_suspect(const char *command, const char *path);
/* After a failure, if rank 0 is in this process: prints the checkpoint to resume from. */
void lk__report_last(const lk_args *args, const lk_train_failure *failure);
/* The line of a stopped run: which rank received the signal and, at rank 0, how to resume. Other ranks print it
 * if nobody else prints for them. */
void lk__report_stopped(const lk_report *report, const lk_train_result *result);

/* The lines of a trace, or its JSON object: what holds the steps back. */
void lk__report_trace(const lk_train_trace *trace, bool json);

/* Lines of a rank about itself. */
void lk__report_rank_start(const lk_report *report, const lk_train_start *start);
void lk__report_rank_step(const lk_report *report, const lk_train_step *step);
void lk__report_rank_end(const lk_report *report, const lk_train_result *result);

/* Shared by both kinds of lines. */
static inline double lk__report_percent(size_t part, size_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

/* The line of a separate evaluation. */
void lk__report_metrics(const lk_metrics *metrics, size_t classes, bool json);

#endif
