/* rule.h - what an optimiser's own file provides: one row of the table.
 *
 * An optimiser is its parameters, the arrays it keeps (one float an element
 * each) and a call of its kernel. Scalars are computed in double and cast once when
 * an update begins, and lie in the device's memory, where a recorded step finds them. */
#ifndef LK_OPTIM_RULE_H
#define LK_OPTIM_RULE_H

#include "base/spec.h"
#include "optim/optim.h"

enum { LK_RULE_MAX_PARAMS = 8, LK_RULE_MAX_STATES = 2 };

typedef union lk_rule_scalars {
    lk_sgd sgd;
    lk_adam adam;
    lk_adadelta adadelta;
} lk_rule_scalars;

typedef struct lk_rule {
    lk_optim_info info;
    double lr;                                /* default */
    lk_spec_param params[LK_RULE_MAX_PARAMS]; /* name NULL after the last */
    /* Optional: refuses parameters that do not go together. */
    lk_status (*check)(const double *values);
    /* Arrays of state that these parameters need, zeroed before the first step. */
    size_t (*states)(const double *values);
    const char *state_names[LK_RULE_MAX_STATES]; /* PyTorch's */
    /* Optional: called when a training step was counted in `steps`, before its update,
     * if it has one. */
    void (*count)(lk_optim *optim);
    /* Begins an update: advances what the rule keeps in `powers`, and gives the kernel's
     * scalars. */
    lk_rule_scalars (*scalars)(lk_optim *optim);
    void (*range)(lk_optim *optim, const lk_optim_range *range);
} lk_rule;

struct lk_optim {
    const lk_rule *rule;
    lk_device *dev;
    double lr;
    uint64_t steps;                    /* counted, with an update or without */
    double values[LK_RULE_MAX_PARAMS]; /* in the order of rule->params */
    double powers[2];                  /* a rule's own: parameters to the power of updates, or marks; 1 at first */
    float *state[LK_RULE_MAX_STATES];  // (count) each, NULL where unused
    lk_rule_scalars *scalars;          /* device; of the update at hand */
    bool placed;                       /* scalars are another's memory */
};

extern const lk_rule lk__rule_sgd;
extern const lk_rule lk__rule_adam;
extern const lk_rule lk__rule_adamw;
extern const lk_rule lk__rule_adadelta;

#endif
