/* adam.c - Adam; weight decay is added to the gradient, as PyTorch does. */
#include "optim/rule.h"

#include <math.h>

enum { BETA1, BETA2, EPS, WEIGHT_DECAY };

static size_t states(const double *values)
{
    (void)values;
    return 2;
}

/* Powers by multiplication: libm's pow differs between machines. */
static void begin_step(lk_optim *optim)
{
    optim->powers[0] *= optim->values[BETA1];
    optim->powers[1] *= optim->values[BETA2];
}

static void range(lk_optim *optim, const float *grads, float *params, size_t begin, size_t end)
{
    const double *values = optim->values;
    lk_adam adam = {.beta2 = (float)values[BETA2],
                    .one_minus_beta1 = (float)(1 - values[BETA1]),
                    .one_minus_beta2 = (float)(1 - values[BETA2]),
                    .step_size = (float)(optim->lr / (1 - optim->powers[0])),
                    .root_correction = (float)sqrt(1 - optim->powers[1]),
                    .eps = (float)values[EPS],
                    .weight_decay = (float)values[WEIGHT_DECAY]};
    optim->dev->kernels->adam_step(optim->dev, &adam, end - begin, grads + begin, params + begin,
                                   optim->state[0] + begin, optim->state[1] + begin);
}

const lk_rule lk__rule_adam = {
    .info = {.name = "adam", .summary = "beta1=0.9,beta2=0.999,eps=1e-8,weight_decay=0; learning rate 0.001"},
    .lr = 1e-3,
    .params = {[BETA1] = {"beta1", 0.9, 0, 0.999999, false},
               [BETA2] = {"beta2", 0.999, 0, 0.999999, false},
               [EPS] = {"eps", 1e-8, 0, 1, false},
               [WEIGHT_DECAY] = {"weight_decay", 0, 0, 1e6, false}},
    .states = states,
    .begin = begin_step,
    .range = range,
};
