/* defaults.h - the defaults of an engine's options. */
#ifndef LK_PARALLEL_LAYOUT_DEFAULTS_H
#define LK_PARALLEL_LAYOUT_DEFAULTS_H

#include <lockstep/engine.h>

/* The shards of a batch if their number is not given: 16 on every device, and one for each replica if there are more
 * replicas. stages as in lk_engine_opts. */
int lk__engine_default_shards(int ranks, const char *stages);

/* opts with the default of every option that is zero, except threads: that default depends on the ranks
 * of the host. A precision of AUTO becomes that of the device. */
lk_engine_opts lk__engine_defaults(const lk_engine_opts *opts);

#endif
