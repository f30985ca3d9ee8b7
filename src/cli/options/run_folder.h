/* run_folder.h - run folders (`train --log-dir`) as values that stand for what they contain: the checkpoints of an
 * earlier run of the same line, the model to evaluate, options that only the folder has. */
#ifndef LK_CLI_OPTIONS_RUN_FOLDER_H
#define LK_CLI_OPTIONS_RUN_FOLDER_H

#include "cli/options/args.h"

/* Whether path is a run folder. */
bool lk__cli_run_is(const char *path);

/* A command line of train. */
typedef struct lk_cli_run_line {
    const lk_options_set *set;
    int argc;
    char *const *argv;
} lk_cli_run_line;
/* What lk__cli_run_find found. */
typedef struct lk_cli_run_found {
    char checkpoints[LK_PATH_BYTES]; /* of an earlier run of the line; "": there is none */
    size_t damaged;                  /* runs with a checkpoint whose run.json cannot be read */
    char why[LK_PATH_BYTES];         /* the reason for the last of these */
} lk_cli_run_found;
/* Searches the checkpoints of an earlier run of this line: of the runs in log_dir whose command has the same options of
 * the result and that have a checkpoint, the one that began last. */
lk_status lk__cli_run_find(const lk_cli_run_line *line, const char *log_dir, lk_cli_run_found *out) LK_CHECKED;

/* The model of a run folder: the final state of a run that is done, else its newest checkpoint. NOT_FOUND, with what to
 * do, if it has neither. */
lk_status lk__cli_run_model(const char *folder, char out[LK_PATH_BYTES]) LK_CHECKED;

/* The value of an option in the run.json of log_dir/name; false if there is none. */
bool lk__cli_run_option(const char *log_dir, const char *name, const char *option, char *out, size_t bytes);

#endif
