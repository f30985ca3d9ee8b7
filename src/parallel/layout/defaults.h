/* defaults.h - the defaults of an engine's options. */
#ifndef LK_PARALLEL_LAYOUT_DEFAULTS_H
#define LK_PARALLEL_LAYOUT_DEFAULTS_H

#include <lockstep/engine.h>

/* opts with the default of every option that is zero, except threads: that default depends on the ranks
 * of the host. */
lk_engine_opts lk__engine_defaults(const lk_engine_opts *opts);

#endif
