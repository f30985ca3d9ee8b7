/* adam.c - Adam and AdamW as in PyTorch. Adam adds the weight decay to the gradient, AdamW shrinks
 * the parameter by it. */
#include "optim/rule.h"

#include <math.h>

enum { BETA1, BETA2, EPS, WEIGHT_DECAY };

/* Multiplies, because libm's pow differs between machines. */
static void raise_powers(lk_optim *optim)
{
    optim->powers[0] *= optim->values[BETA1];
    optim->powers[1] *= optim->values[BETA2];
}

/* The scalars that Adam and AdamW share, without weight decay. */
static lk_adam settings(const lk_optim *optim, double lr)
{
    const double *values = optim->values;
    return (lk_adam){.beta2 = (float)values[BETA2],
                     .one_minus_beta1 = (float)(1 - values[BETA1]),
                     .one_minus_beta2 = (float)(1 - values[BETA2]),
                     .step_size = (float)(lr / (1 - optim->powers[0])),
                     .root_correction = (float)sqrt(1 - optim->powers[1]),
                     .eps = (float)values[EPS],
                     .shrink = 1.0f};
}

static lk_rule_scalars adam_scalars(const lk_optim *optim, double lr, double weight_decay)
{
    lk_rule_scalars scalars = {.adam = settings(optim, lr)};
    scalars.adam.weight_decay = (float)weight_decay;
    return scalars;
}

static lk_rule_scalars adamw_scalars(const lk_optim *optim, double lr, double weight_decay)
{
    lk_rule_scalars scalars = {.adam = settings(optim, lr)};
    scalars.adam.shrink = (float)(1 - lr * weight_decay);
    return scalars;
}

static void range(lk_optim *optim, const lk_optim_range *r)
{
    lk_update_arrays arrays = lk__rule_arrays(optim, r);
    optim->dev->kernels->adam_step(optim->dev, &optim->scalars[r->group].adam, r->flag, r->end - r->begin, &arrays,
                                   optim->state[0] + r->begin, optim->state[1] + r->begin);
}

#define ADAM_PARAMS(decay)                                                                             \
    {                                                                                                  \
        [BETA1] = {"beta1", 0.9, 0, 0.999999, false}, [BETA2] = {"beta2", 0.999, 0, 0.999999, false},  \
        [EPS] = {"eps", 1e-8, 0, 1, false}, [WEIGHT_DECAY] = {"weight_decay", (decay), 0, 1e6, false}, \
    }

const lk_rule lk__rule_adam = {
    .info = {.name = "adam", .summary = "beta1=0.9,beta2=0.999,eps=1e-8,weight_decay=0; learning rate 0.001"},
    .lr = 1e-3,
    .params = ADAM_PARAMS(0),
    .state_names = {"exp_avg", "exp_avg_sq"},
    .begin = raise_powers,
    .scalars = adam_scalars,
    .range = range,
};

const lk_rule lk__rule_adamw = {
    .info = {.name = "adamw", .summary = "beta1=0.9,beta2=0.999,eps=1e-8,weight_decay=0.01; learning rate 0.001"},
    .lr = 1e-3,
    .params = ADAM_PARAMS(0.01),
    .state_names = {"exp_avg", "exp_avg_sq"},
    .begin = raise_powers,
    .scalars = adamw_scalars,
    .range = range,
};
