/* config.h - options out of a YAML file: what --config names.
 *
 * Its keys are the long names of options. The command line always wins; relative
 * paths in it are those of the folder that the command runs in, as in options. */
#ifndef LK_CLI_OPTIONS_CONFIG_H
#define LK_CLI_OPTIONS_CONFIG_H

#include "cli/options/options.h"

/* Fills values and parsed with what the file says and the command line does not
 * (see lk__options_fill). Options of `recipe` that the set has not are checked
 * and passed over, so that one file serves several commands. USAGE names file and
 * line. The texts stay until lk__config_unload; a second file takes the place of the
 * first. */
lk_status lk__config_load(const lk_options_set *set, const lk_options_set *recipe, const char *path, void *values,
                          lk_options_parsed *parsed) LK_CHECKED;
void lk__config_unload(void);

#endif
