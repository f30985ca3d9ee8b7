/* rmsprop.c - RMSprop as in PyTorch: the gradient divided by the root of a running mean of its squares. */
#include "optim/rule.h"

enum { ALPHA, EPS, WEIGHT_DECAY, MOMENTUM, CENTERED };
enum { SQUARE_AVG, MOMENTUM_BUFFER, GRAD_AVG };

static unsigned states(const double *values)
{
    return 1u << SQUARE_AVG | (values[MOMENTUM] != 0 ? 1u << MOMENTUM_BUFFER : 0) |
           (values[CENTERED] != 0 ? 1u << GRAD_AVG : 0);
}

static lk_rule_scalars scalars(const lk_optim *optim, double lr, double weight_decay)
{
    const double *values = optim->values;
    return (lk_rule_scalars){.rmsprop = {.lr = (float)lr,
                                         .alpha = (float)values[ALPHA],
                                         .one_minus_alpha = (float)(1 - values[ALPHA]),
                                         .eps = (float)values[EPS],
                                         .weight_decay = (float)weight_decay,
                                         .momentum = (float)values[MOMENTUM]}};
}

static float *from(float *state, size_t begin)
{
    return state ? state + begin : NULL;
}

static void range(lk_optim *optim, const lk_optim_range *r)
{
    lk_update_arrays arrays = lk__rule_arrays(optim, r);
    lk_rmsprop_state state = {.square = optim->state[SQUARE_AVG] + r->begin,
                              .buffer = from(optim->state[MOMENTUM_BUFFER], r->begin),
                              .mean = from(optim->state[GRAD_AVG], r->begin)};
    optim->dev->kernels->rmsprop_step(optim->dev, &optim->scalars[r->group].rmsprop, r->flag, r->end - r->begin,
                                      &arrays, &state);
}

const lk_rule lk__rule_rmsprop = {
    .info = {.name = "rmsprop",
             .summary = "alpha=0.99,eps=1e-8,weight_decay=0,momentum=0,centered=0; learning rate 0.01"},
    .lr = 0.01,
    .params = {[ALPHA] = {"alpha", 0.99, 0, 1, false},
               [EPS] = {"eps", 1e-8, 0, 1, false},
               [WEIGHT_DECAY] = {"weight_decay", 0, 0, 1e6, false},
               [MOMENTUM] = {"momentum", 0, 0, 1, false},
               [CENTERED] = {"centered", 0, 0, 1, true}},
    .states = states,
    .state_names = {[SQUARE_AVG] = "square_avg", [MOMENTUM_BUFFER] = "momentum_buffer", [GRAD_AVG] = "grad_avg"},
    .scalars = scalars,
    .range = range,
};
