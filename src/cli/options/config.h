/* config.h - options from a YAML file (--config).
 *
 * Its keys are the long names of options. The command line has precedence. Relative paths in the file are
 * relative to the working folder of the command, as in options. */
#ifndef LK_CLI_OPTIONS_CONFIG_H
#define LK_CLI_OPTIONS_CONFIG_H

#include "cli/options/options.h"

/* Sets values and parsed from the file, except for options on the command line (see lk__options_fill). Options
 * of `recipe` that the set does not have are checked and skipped, so that one file serves several commands.
 * USAGE names file and line. The texts stay until lk__config_unload; loading a second file replaces the first. */
lk_status lk__config_load(const lk_options_set *set, const lk_options_set *recipe, const char *path, void *values,
                          lk_options_parsed *parsed) LK_CHECKED;
void lk__config_unload(void);

#endif
