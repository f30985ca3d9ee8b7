/* resume.h - options that come from a checkpoint: what --resume leaves unsaid, and
 * what `eval` needs to know of the model. */
#ifndef LK_CLI_OPTIONS_RESUME_H
#define LK_CLI_OPTIONS_RESUME_H

#include "cli/options/args.h"

/* For args->resume: finds the checkpoint, and gives the options of its run to args
 * and parsed where neither the command line nor a file of options has them. The
 * texts stay until lk__cli_resume_unload. */
lk_status lk__cli_resume_options(const lk_options_set *set, lk_args *args, lk_options_parsed *parsed) LK_CHECKED;
/* The same for a checkpoint that is evaluated; nothing where path is none. */
lk_status lk__cli_resume_model(const lk_options_set *set, const char *path, lk_args *args,
                               lk_options_parsed *parsed) LK_CHECKED;
void lk__cli_resume_unload(void);

/* What was found, for the first lines of output; path "" where nothing was. */
const lk_resume *lk__cli_resume_found(void);

#endif
