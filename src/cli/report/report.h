/* report.h - the output of `train` and `eval`.
 *
 * Results go to stdout, as lines in the format that scripts already read or as one JSON object on each line;
 * progress goes to stderr: a line that is redrawn on a terminal, elsewhere a line every ten seconds. With --quiet there
 * is no progress, and only the last result is printed, and notices on stderr, unless --log-interval or --log-ranks all
 * asks for more. */
#ifndef LK_CLI_REPORT_REPORT_H
#define LK_CLI_REPORT_REPORT_H

#include <stdatomic.h>
#include <stdio.h>

#include "cli/job/plan.h"
#include "cli/report/screen.h"

/* The report of one rank. */
typedef struct lk_report {
    const lk_args *args;
    const lk_job_plan *plan;
    bool data_given;
    bool by_hand; /* started without a launcher, with other ranks, and the first rank of its process: prints why it ends
                   */
    double exec_at;      /* start of the program, on lk__clock() */
    lk_screen *screen;   /* of the process */
    bool draws;          /* this rank has the progress line: the first of the process with rank 0 */
    bool redrawn;        /* stdout is the terminal of the progress line, which replaces the lines of intervals */
    lk_bar bar;          /* what the progress line shows, without the fields that the screen fills in */
    lk_metrics epoch;    /* of the steps of this epoch; loss is a sum */
    atomic_int *level;   /* raised by signals after the run has started; NULL: another rank watches signals */
    double drawn_at;     /* seconds of the run at the last line of progress, where nothing is redrawn */
    bool told;           /* a test result has been printed as text */
    double first_step_s; /* from the start of the program to the end of the first step */
    size_t train_count, classes;
    size_t batches, steps, done; /* done: before this process started */
    /* Set when the run starts. */
    int rank, ranks, stage, stages;
    lk_shard_range share;
} lk_report;

/* Events of a rank: rank 0 prints for all; the others print only lines about themselves, and only with
 * --log-ranks all. report must not be moved. */
lk_train_hooks lk__report_hooks(lk_report *report);

/* start_text prints the first lines, start_notices prints to stderr those that --quiet keeps; the closing table, and
 * the end as JSON. */
void lk__report_start_text(const lk_report *report, const lk_train_begin *start);
void lk__report_start_notices(const lk_report *report, const lk_train_begin *start);
void lk__report_start_json(const lk_report *report, const lk_train_begin *start);
void lk__report_table(const lk_report *report, const lk_train_outcome *result);
void lk__report_end_json(const lk_report *report, const lk_train_outcome *result);
/* The line of --early-stop, if it has ended the run. */
void lk__report_early(const lk_report *report, const lk_train_outcome *result);
/* The evaluation by which results are judged: of the validation data if there are any, else of the test data. */
const lk_metrics *lk__report_judged(const lk_train_outcome *result, const char **name);
struct cJSON;
/* Adds the waits of this rank, where they are known. */
void lk__report_waits_json(struct cJSON *object, const lk_train_outcome *result);
/* Adds a list of objects: where the time of every rank went. */
void lk__report_uses_json(struct cJSON *object, const char *name, const lk_train_outcome *result);
/* Adds the object "early_stop", if --early-stop has ended the run. */
void lk__report_early_json(struct cJSON *object, const lk_train_outcome *result);

/* Prints the checkpoints that were passed over, with the reasons: a line for each, behind the prefix. */
void lk__report_passed_over(FILE *to, const char *prefix);
/* Lines about checkpoints: the one that the run resumes from, as text or in the JSON of its start (a cJSON
 * object), and one that was saved. */
void lk__report_resumed(const lk_report *report, const lk_train_begin *start);
void lk__report_resumed_json(struct cJSON *line, const lk_train_begin *start);
void lk__report_saved(const lk_report *report, const lk_train_saved *saved);
/* Prints a line on stderr if the model that --init-from or eval names belongs to a checkpoint that was set
 * aside; nothing for NULL. */
void lk__report_suspect(const char *command, const char *path);
/* Prints a notice of a command on stderr, unless it is "". */
void lk__report_notice(const char *command, const char *notice);
/* After a failure, if rank 0 is in this process: prints the checkpoint to resume from. */
void lk__report_last(const lk_args *args, const lk_train_failure *failure);
/* The line of a stopped run: which rank received the signal and, at rank 0, how to resume. Other ranks print it
 * if nobody else prints for them. */
void lk__report_stopped(const lk_report *report, const lk_train_outcome *result);

/* After a run that is complete: prints each fault of $LOCKSTEP_FAULT that never struck. Every process does so for its
 * ranks, which are `count` from `first` of `ranks`; that of rank 0 also for faults without a rank, by what happened in
 * that process, and for faults of ranks that the job does not have. */
void lk__report_faults(int first, int count, int ranks);

/* The lines of a trace, or its JSON object: what holds the steps back. */
void lk__report_trace(const lk_train_trace *trace, bool json);

/* Lines of a rank about itself. */
void lk__report_rank_start(const lk_report *report, const lk_train_begin *start);
void lk__report_rank_step(const lk_report *report, const lk_train_step *step);
void lk__report_rank_end(const lk_report *report, const lk_train_outcome *result);

/* Shared by all kinds of lines. With few classes the top-5 accuracy has no meaning. */
enum { LK_REPORT_FEW_CLASSES = 10 };
static inline double lk__report_rate(size_t samples, double seconds)
{
    return seconds > 0 ? (double)samples / seconds : 0;
}

static inline double lk__report_percent(size_t part, size_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

/* The line of a separate evaluation. */
void lk__report_metrics(const lk_metrics *metrics, size_t classes, bool json);

#endif
