/* launch.h - starts ranks from the command line: shared by `run` and `train -n`, from reading the options to
 * printing how the job ended. */
#ifndef LK_CLI_JOB_LAUNCH_H
#define LK_CLI_JOB_LAUNCH_H

#include "cli/options/args.h"
#include "launch/run.h"

/* Sets the fields that the options of nodes and ranks determine; the caller sets what the ranks run. Pointers
 * in *out belong to args. */
lk_status lk__cli_launch_options(const char *command, const lk_args *args, lk_launch_opts *out) LK_CHECKED;

/* The number of ranks that the text of -n asks for. */
lk_status lk__cli_launch_ranks(const char *command, const char *text, int *out) LK_CHECKED;

/* Runs the job, prints notices and how it ended, and returns the exit status. Sets notice, failed and arg of
 * opts. */
int lk__cli_launch(const char *command, lk_launch_opts *opts);

#endif
