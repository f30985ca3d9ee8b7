/* adadelta.c - Adadelta with PyTorch's learning rate. */
#include "optim/rule.h"

enum { RHO, EPS, WEIGHT_DECAY };

static lk_rule_scalars scalars(const lk_optim *optim, double lr, double weight_decay)
{
    const double *values = optim->values;
    return (lk_rule_scalars){.adadelta = {.lr = (float)lr,
                                          .rho = (float)values[RHO],
                                          .one_minus_rho = (float)(1 - values[RHO]),
                                          .eps = (float)values[EPS],
                                          .weight_decay = (float)weight_decay}};
}

static void range(lk_optim *optim, const lk_optim_range *r)
{
    lk_update_arrays arrays = lk__rule_arrays(optim, r);
    optim->dev->kernels->adadelta_step(optim->dev, &optim->scalars[r->group].adadelta, r->flag, r->end - r->begin,
                                       &arrays, optim->state[0] + r->begin, optim->state[1] + r->begin);
}

const lk_rule lk__rule_adadelta = {
    .info = {.name = "adadelta", .summary = "rho=0.9,eps=1e-6,weight_decay=0; learning rate 1"},
    .lr = 1.0,
    .params = {[RHO] = {"rho", 0.9, 0, 1, false},
               [EPS] = {"eps", 1e-6, 0, 1, false},
               [WEIGHT_DECAY] = {"weight_decay", 0, 0, 1e6, false}},
    .state_names = {"square_avg", "acc_delta"},
    .scalars = scalars,
    .range = range,
};
