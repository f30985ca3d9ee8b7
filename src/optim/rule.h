/* rule.h - an update rule: the row of the table that an optimiser's own file provides.
 *
 * An optimiser is its parameters, its state arrays (one float for every element each) and a call of
 * its kernel. Scalars are computed in double for each group of elements and rounded once when an update
 * begins. They are in the device's memory, where a recorded step reads them. */
#ifndef LK_OPTIM_RULE_H
#define LK_OPTIM_RULE_H

#include "base/spec.h"
#include "optim/optim.h"

enum { LK_RULE_MAX_PARAMS = LK_OPTIMIZER_MAX_PARAMS, LK_RULE_MAX_STATES = LK_OPTIMIZER_MAX_STATES };

typedef union lk_rule_scalars {
    lk_sgd sgd;
    lk_adam adam;
    lk_adadelta adadelta;
    lk_rmsprop rmsprop;
    lk_optimizer_numbers own;
} lk_rule_scalars;

typedef struct lk_rule {
    lk_optim_info info;
    double lr;                                /* default */
    lk_spec_param params[LK_RULE_MAX_PARAMS]; /* name is NULL after the last */
    /* Optional: refuses parameters that contradict each other. */
    lk_status (*check)(const double *values);
    const char *state_names[LK_RULE_MAX_STATES]; /* the state arrays, with PyTorch's names */
    /* Which of them these parameters need: bit i for state_names[i]. NULL: all. They are zero before the first step. */
    unsigned (*states)(const double *values);
    /* Optional: called after a training step was counted in `steps` and before its update, if it
     * has one. */
    void (*count)(lk_optim *optim);
    /* Optional: called once for an update, before and after the scalars of its groups are computed. */
    void (*begin)(lk_optim *optim);
    void (*end)(lk_optim *optim);
    /* The kernel's scalars for a group of elements: its learning rate and weight decay. */
    lk_rule_scalars (*scalars)(const lk_optim *optim, double lr, double weight_decay);
    /* Enqueues the update of a range with optim->scalars[range->group]. */
    void (*range)(lk_optim *optim, const lk_optim_range *range);
    const lk_optimizer_def *own; /* of a rule of the program; NULL for the library's */
} lk_rule;

struct lk_optim {
    const lk_rule *rule;
    lk_device *dev;
    double lr;
    uint64_t steps;                    /* counted steps, with or without an update */
    double values[LK_RULE_MAX_PARAMS]; /* in the order of rule->params */
    double powers[2];                  /* for the rule: parameters to the power of the updates, or flags; 1 at first */
    float *state[LK_RULE_MAX_STATES];  // (count) each, in the order of rule->state_names, NULL where unused
    lk_optim_group groups[LK_OPTIM_MAX_GROUPS];
    size_t group_count;
    lk_rule_scalars *scalars; /* device memory; (group_count) of the current update */
    bool borrowed;            /* the scalars are the caller's memory */
};

extern const lk_rule lk__rule_sgd;
extern const lk_rule lk__rule_adam;
extern const lk_rule lk__rule_adamw;
extern const lk_rule lk__rule_adadelta;
extern const lk_rule lk__rule_rmsprop;
/* Row `index` of the table (rules.c); NULL after the last. */
const lk_rule *lk__rule_at(size_t index);

/* Returns the arrays of the range's elements, for a kernel. */
lk_update_arrays lk__rule_arrays(const lk_optim *optim, const lk_optim_range *range);

#endif
