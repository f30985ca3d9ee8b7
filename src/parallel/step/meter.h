/* meter.h - how far a step is, for somebody who looks at it from another thread. */
#ifndef LK_PARALLEL_STEP_METER_H
#define LK_PARALLEL_STEP_METER_H

#include <stdatomic.h>

/* The passes of layers over waves in the step under way: forward and backward. A step that a device records does not
 * count. The engine writes, any thread may read. */
typedef struct lk_engine_meter {
    atomic_uint done, total; /* total 0: there was no step */
} lk_engine_meter;

#endif
