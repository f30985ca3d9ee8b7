/* part_copy.h - a copy of a step that is under way: what repeating the step needs. */
#ifndef LK_PARALLEL_STEP_PART_COPY_H
#define LK_PARALLEL_STEP_PART_COPY_H

#include "parallel/step/engine_impl.h"

typedef struct lk_engine_part_copy {
    lk_engine_part part; /* its pointers are the arrays below; of an evaluation they are NULL */
    uint32_t *ids;       /* (engine->most) */
    uint32_t *names;     /* (engine->most) */
    int32_t *labels;     /* (engine->most) */
    float *targets;      /* (engine->most, engine->target_floats), or NULL */
    float *x;            /* samples; NULL until some are copied */
} lk_engine_part_copy;

/* *copy is all zero before; lk__engine_part_copy_fini frees it even after a failure. */
lk_status lk__engine_part_copy_init(const lk_engine *engine, lk_engine_part_copy *copy) LK_CHECKED;
void lk__engine_part_copy_fini(lk_engine_part_copy *copy);

/* Copies a part. The arrays of an evaluation are not copied: it is never repeated. Samples are copied only if their
 * upload does not wait. */
lk_status lk__engine_part_copy_set(const lk_engine *engine, const lk_engine_part *part,
                                   lk_engine_part_copy *copy) LK_CHECKED;

/* Whether the upload of the part's samples may wait for earlier uploads, and so for other ranks. */
bool lk__engine_part_upload_waits(const lk_engine *engine, const lk_engine_part *part);

#endif
