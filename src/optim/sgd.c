/* sgd.c - stochastic gradient descent with PyTorch's momentum. */
#include "optim/rule.h"

enum { MOMENTUM, DAMPENING, WEIGHT_DECAY, NESTEROV };

static lk_status check(const double *values)
{
    if (values[NESTEROV] != 0 && (values[MOMENTUM] == 0 || values[DAMPENING] != 0))
        return lk__fail(LK_STATUS_USAGE, "`optimizer` sgd: nesterov needs a momentum above 0 and dampening=0");
    return LK_OK;
}

static unsigned states(const double *values)
{
    return values[MOMENTUM] != 0 ? 1 : 0;
}

/* powers[0] is 0 after the first counted step until the first update, which takes the gradient as
 * its momentum; else it is 1. */
static void count(lk_optim *optim)
{
    if (optim->steps == 1)
        optim->powers[0] = 0;
}

static void end(lk_optim *optim)
{
    optim->powers[0] = 1;
}

static lk_rule_scalars scalars(const lk_optim *optim, double lr, double weight_decay)
{
    return (lk_rule_scalars){.sgd = {.lr = (float)lr,
                                     .momentum = (float)optim->values[MOMENTUM],
                                     .dampening = (float)optim->values[DAMPENING],
                                     .weight_decay = (float)weight_decay,
                                     .nesterov = optim->values[NESTEROV] != 0,
                                     .first = optim->powers[0] == 0}};
}

static void range(lk_optim *optim, const lk_optim_range *r)
{
    lk_update_arrays arrays = lk__rule_arrays(optim, r);
    float *buffer = optim->state[0] ? optim->state[0] + r->begin : NULL;
    optim->dev->kernels->sgd_step(optim->dev, &optim->scalars[r->group].sgd, r->flag, r->end - r->begin, &arrays,
                                  buffer);
}

const lk_rule lk__rule_sgd = {
    .info = {.name = "sgd", .summary = "momentum=0,dampening=0,weight_decay=0,nesterov=0; learning rate 0.01"},
    .lr = 0.01,
    .params = {[MOMENTUM] = {"momentum", 0, 0, 1, false},
               [DAMPENING] = {"dampening", 0, 0, 1, false},
               [WEIGHT_DECAY] = {"weight_decay", 0, 0, 1e6, false},
               [NESTEROV] = {"nesterov", 0, 0, 1, true}},
    .check = check,
    .states = states,
    .state_names = {"momentum_buffer"},
    .count = count,
    .end = end,
    .scalars = scalars,
    .range = range,
};
