/* defaults.h - the options of an engine with a value for each. */
#ifndef LK_PARALLEL_LAYOUT_DEFAULTS_H
#define LK_PARALLEL_LAYOUT_DEFAULTS_H

#include <lockstep/engine.h>

/* opts with a default for every option that is not given, except threads: their default
 * depends on the ranks of a host. */
lk_engine_opts lk__engine_defaults(const lk_engine_opts *opts);

#endif
