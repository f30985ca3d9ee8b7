/* launch.h - starting ranks from the command line: what `run` and `train -n`
 * share, from reading the options to saying how the job ended. */
#ifndef LK_CLI_JOB_LAUNCH_H
#define LK_CLI_JOB_LAUNCH_H

#include "cli/options/args.h"
#include "launch/run.h"

/* Fills in what the options of nodes and ranks say; what the ranks run is left
 * to the caller. The pointers are args'. */
lk_status lk__cli_launch_options(const char *command, const lk_args *args, lk_launch_opts *out) LK_CHECKED;

/* Runs the job, prints notices and how it ended, and returns the exit status.
 * Fills in notice, failed and arg of opts. */
int lk__cli_launch(const char *command, lk_launch_opts *opts);

#endif
