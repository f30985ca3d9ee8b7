/* init.h - the table of initialisation policies, and the drawing of initial values. */
#ifndef LK_NN_INIT_H
#define LK_NN_INIT_H

#include <stddef.h>

#include "base/pool.h"
#include "base/rng.h"
#include "nn/op.h"

/* Rows of the table, NULL after the last. */
typedef struct lk_init_info {
    const char *name;
    const char *summary; /* includes the policy's parameters */
} lk_init_info;
const lk_init_info *lk__init_list(size_t index);

/* Draws the elements of a slot, in PyTorch's order. rng may be NULL for a constant. */
void lk__init_draw(const lk_op_slot *def, const lk_rng *rng, lk_pool *pool, float *values);

#endif
