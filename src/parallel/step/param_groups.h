/* param_groups.h - parameter groups: parameters that have their own learning rate and weight decay, or are frozen.
 *
 * The settings are those of the whole model and equal at all ranks. They divide the flat array of a stage into
 * ranges, which are updated one by one. Without settings, an update has one range. */
#ifndef LK_PARALLEL_STEP_PARAM_GROUPS_H
#define LK_PARALLEL_STEP_PARAM_GROUPS_H

#include <lockstep/engine.h>

#include "nn/params.h"
#include "optim/optim.h"

/* A part of the flat array whose elements have one group of the optimiser. */
typedef struct lk_param_range {
    size_t begin, end;
    size_t group;
    bool frozen;
} lk_param_range;

/* All zero: every parameter has the optimiser's own settings. */
typedef struct lk_param_groups {
    lk_param_group (*of)[LK_MAX_PARAMS]; /* (layers of the model) by layer and slot */
    lk_param_range *ranges;              /* (count) in order; together they are the flat array */
    size_t count;
    unsigned *frozen; /* (layers of the model) bit i: parameter i of the layer is frozen */
    lk_optim_group rows[LK_OPTIM_MAX_GROUPS];
    size_t row_count;
} lk_param_groups;

/* Whether a key matches a pattern, in which '*' is any text, also with dots, and '?' is any one character. */
bool lk__param_groups_match(const char *pattern, const char *key);

/* Makes the settings that `old` becomes when the parameters whose keys match the pattern get this group. MISMATCH if no
 * key matches, with the keys of the model; USAGE if the optimiser cannot have these groups. */
lk_status lk__param_groups_make(const lk_param_groups *old, const lk_params *params, const lk_optim *optim,
                                const char *pattern, const lk_param_group *group, lk_param_groups *out) LK_CHECKED;
void lk__param_groups_fini(lk_param_groups *groups);

/* Whether all elements of [begin,end) are frozen. */
bool lk__param_groups_are_frozen(const lk_param_groups *groups, size_t begin, size_t end);

/* Enqueues the optimiser's update of the elements of *range that are not frozen. */
void lk__param_groups_update(const lk_param_groups *groups, lk_optim *optim, const lk_optim_range *range);

#endif
