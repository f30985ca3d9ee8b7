/* resume.h - options from a checkpoint: those that a run with --resume does not give, and those that `eval` and
 * `predict` need for the model, which a model file may have, too. */
#ifndef LK_CLI_OPTIONS_RESUME_H
#define LK_CLI_OPTIONS_RESUME_H

#include "cli/options/run_folder.h"

/* For args->resume: finds the checkpoint, and sets in args and parsed the options of its run that neither the
 * command line nor a file of options has given. The texts stay until lk__cli_resume_unload. */
lk_status lk__cli_resume_options(const lk_cli_run_line *line, lk_args *args, lk_options_parsed *parsed) LK_CHECKED;
/* As lk__cli_resume_options, for the model that is evaluated, the first word or --init-from: a checkpoint, a model
 * file, or a run folder, which is replaced by its model. Sets args->notice if a file contradicts options, or does not
 * say what it is. */
lk_status lk__cli_resume_model(const lk_options_set *set, lk_args *args, lk_options_parsed *parsed) LK_CHECKED;
void lk__cli_resume_unload(void);

/* The checkpoint that was found, for the first lines of output; path is "" if none was. */
const lk_resume *lk__cli_resume_found(void);

#endif
