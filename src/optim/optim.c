/* optim.c - the code that all optimisers share. */
#include "optim/optim.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "optim/rule.h"

static const char option[] = "`optimizer`";

static const char *rule_name(const void *arg, size_t index)
{
    (void)arg;
    const lk_rule *rule = lk__rule_at(index);
    return rule ? rule->info.name : NULL;
}

static const lk_names names = {.what = option, .kind = "optimiser", .next = rule_name};

bool lk__optim_takes(const char *spec, const char *key)
{
    size_t length = strcspn(spec, ":");
    const lk_rule *rule;
    for (size_t i = 0; (rule = lk__rule_at(i)); i++) {
        if (strncmp(rule->info.name, spec, length) != 0 || rule->info.name[length])
            continue;
        for (size_t k = 0; k < LK_RULE_MAX_PARAMS && rule->params[k].name; k++)
            if (strcmp(rule->params[k].name, key) == 0)
                return true;
    }
    return false;
}

/* Kernels take the rate as a float. */
static lk_status check_lr(double lr)
{
    if (!(lr >= 0 && lr <= FLT_MAX))
        return lk__fail(LK_STATUS_USAGE, "`lr`: the learning rate %g must be a number not below 0, and a float", lr);
    return LK_OK;
}

double lk__optim_default_lr(const char *spec)
{
    size_t found = 0;
    return lk__spec_find(spec, &names, &found) == LK_OK ? lk__rule_at(found)->lr : 0;
}

/* Bit i: these parameters need the state array i. */
static unsigned needed_states(const lk_rule *rule, const double *values)
{
    unsigned all = 0;
    for (size_t i = 0; i < LK_RULE_MAX_STATES; i++)
        all |= rule->state_names[i] ? 1u << i : 0;
    return rule->states ? rule->states(values) : all;
}

static lk_status check_device(const lk_rule *rule, const lk_device *dev)
{
    if (!rule->own || dev->type->host_memory || rule->own->cuda)
        return LK_OK;
    return lk__fail(
        LK_STATUS_UNSUPPORTED,
        "%s: '%s', a rule of this program, has no function `cuda`, and device '%s' needs one; register one, "
        "or use the CPU",
        option, rule->info.name, dev->type->name);
}

lk_status lk__optim_create(const char *spec, double lr, lk_device *dev, size_t count, lk_optim **out)
{
    size_t found = 0;
    double values[LK_RULE_MAX_PARAMS] = {0};
    LK_TRY(lk__spec_find(spec, &names, &found));
    const lk_rule *rule = lk__rule_at(found);
    LK_TRY(lk__spec_values(spec, option, rule->params, LK_RULE_MAX_PARAMS, values));
    if (rule->check)
        LK_TRY(rule->check(values));
    LK_TRY(check_lr(lr));
    LK_TRY(check_device(rule, dev));
    lk_optim *optim;
    LK_TRY(LK_ALLOC(1, "optimiser", &optim));
    *optim = (lk_optim){.rule = rule,
                        .dev = dev,
                        .lr = lr != 0 ? lr : rule->lr,
                        .powers = {1, 1},
                        .groups = {{.lr_scale = 1, .weight_decay = NAN}},
                        .group_count = 1};
    memcpy(optim->values, values, sizeof values);
    lk_status status;
    LK_TRY_GOTO(dev->type->alloc(dev, LK_SCALARS_BYTES, "optimiser", (void **)&optim->scalars), destroy_optim);
    for (size_t i = 0; i < LK_RULE_MAX_STATES; i++)
        if (needed_states(rule, values) >> i & 1)
            LK_TRY_GOTO(dev->type->alloc(dev, count * sizeof(float), "optimiser state", (void **)&optim->state[i]),
                        destroy_optim);
    *out = optim;
    return LK_OK;

destroy_optim:
    lk__optim_destroy(optim);
    return status;
}

void lk__optim_destroy(lk_optim *optim)
{
    if (!optim)
        return;
    for (size_t i = 0; i < LK_RULE_MAX_STATES; i++)
        if (optim->state[i])
            optim->dev->type->free(optim->dev, optim->state[i]);
    if (!optim->borrowed)
        optim->dev->type->free(optim->dev, optim->scalars);
    lk__mem_free(optim);
}

double lk__optim_lr(const lk_optim *optim)
{
    return optim->lr;
}

lk_status lk__optim_set_lr(lk_optim *optim, double lr)
{
    LK_TRY(check_lr(lr));
    optim->lr = lr;
    return LK_OK;
}

uint64_t lk__optim_steps(const lk_optim *optim)
{
    return optim->steps;
}

size_t lk__optim_states(const lk_optim *optim)
{
    return (size_t)__builtin_popcount(needed_states(optim->rule, optim->values));
}

/* The place of the state array `index` among all that the rule can have. */
static size_t state_place(const lk_optim *optim, size_t index)
{
    size_t place = 0;
    assert(index < lk__optim_states(optim));
    for (unsigned needed = needed_states(optim->rule, optim->values);; place++)
        if (needed >> place & 1 && index-- == 0)
            return place;
}

float *lk__optim_state(const lk_optim *optim, size_t index)
{
    return optim->state[state_place(optim, index)];
}

const char *lk__optim_state_name(const lk_optim *optim, size_t index)
{
    return optim->rule->state_names[state_place(optim, index)];
}

const char *lk__optim_name(const lk_optim *optim)
{
    return optim->rule->info.name;
}

lk_optim_numbers lk__optim_numbers(const lk_optim *optim)
{
    return (lk_optim_numbers){.steps = optim->steps, .lr = optim->lr, .powers = {optim->powers[0], optim->powers[1]}};
}

void lk__optim_set_numbers(lk_optim *optim, const lk_optim_numbers *numbers)
{
    optim->steps = numbers->steps;
    optim->lr = numbers->lr;
    memcpy(optim->powers, numbers->powers, sizeof optim->powers);
}

void lk__optim_set_scalars(lk_optim *optim, void *scalars)
{
    if (!optim->borrowed)
        optim->dev->type->free(optim->dev, optim->scalars);
    optim->scalars = scalars;
    optim->borrowed = true;
}

void lk__optim_count(lk_optim *optim)
{
    optim->steps++;
    if (optim->rule->count)
        optim->rule->count(optim);
}

/* The place of the weight decay among the rule's parameters; LK_RULE_MAX_PARAMS if it has none. */
static size_t decay_place(const lk_rule *rule)
{
    size_t place = 0;
    while (place < LK_RULE_MAX_PARAMS && rule->params[place].name &&
           strcmp(rule->params[place].name, "weight_decay") != 0)
        place++;
    return place < LK_RULE_MAX_PARAMS && rule->params[place].name ? place : LK_RULE_MAX_PARAMS;
}

lk_status lk__optim_check_group(const lk_optim *optim, const lk_optim_group *group)
{
    const lk_rule *rule = optim->rule;
    size_t place = decay_place(rule);
    double decay = group->weight_decay;
    if (!(group->lr_scale > 0 && group->lr_scale <= FLT_MAX))
        return lk__fail(LK_STATUS_USAGE, "`lr_scale` %g must be a number above 0, and a float", group->lr_scale);
    if (isnan(decay))
        return LK_OK;
    if (place == LK_RULE_MAX_PARAMS && decay != 0)
        return lk__fail(LK_STATUS_USAGE, "`weight_decay` %g: the optimiser %s has none", decay, rule->info.name);
    if (place < LK_RULE_MAX_PARAMS && !(decay >= rule->params[place].min && decay <= rule->params[place].max))
        return lk__fail(LK_STATUS_USAGE, "`weight_decay` %g is not in %g to %g", decay, rule->params[place].min,
                        rule->params[place].max);
    return LK_OK;
}

void lk__optim_set_groups(lk_optim *optim, const lk_optim_group *groups, size_t count)
{
    assert(count >= 1 && count <= LK_OPTIM_MAX_GROUPS);
    memcpy(optim->groups, groups, count * sizeof *groups);
    optim->group_count = count;
}

static lk_rule_scalars scalars_of(const lk_optim *optim, const lk_optim_group *group)
{
    size_t place = decay_place(optim->rule);
    double decay = place < LK_RULE_MAX_PARAMS ? optim->values[place] : 0;
    return optim->rule->scalars(optim, optim->lr * group->lr_scale,
                                isnan(group->weight_decay) ? decay : group->weight_decay);
}

void lk__optim_advance(lk_optim *optim, void *scalars)
{
    static_assert(sizeof(lk_rule_scalars) * LK_OPTIM_MAX_GROUPS <= LK_SCALARS_BYTES, "the scalars of a step have room");
    lk_rule_scalars *out = scalars;
    if (optim->rule->begin)
        optim->rule->begin(optim);
    for (size_t i = 0; i < optim->group_count; i++)
        out[i] = scalars_of(optim, &optim->groups[i]);
    if (optim->rule->end)
        optim->rule->end(optim);
}

lk_status lk__optim_begin(lk_optim *optim)
{
    lk_device *dev = optim->dev;
    lk_rule_scalars scalars[LK_OPTIM_MAX_GROUPS];
    lk__optim_advance(optim, scalars);
    return dev->type->upload(dev, scalars, optim->group_count * sizeof *scalars, optim->scalars);
}

lk_update_arrays lk__rule_arrays(const lk_optim *optim, const lk_optim_range *range)
{
    size_t width = lk_dtype_size(optim->dev->values);
    void *values = range->values ? (char *)range->values + range->begin * width : NULL;
    return (lk_update_arrays){
        .grad = range->grads + range->begin, .param = range->params + range->begin, .values = values};
}

void lk__optim_range(lk_optim *optim, const lk_optim_range *range)
{
    optim->rule->range(optim, range);
}

bool lk__optim_rounds(const lk_optim *optim)
{
    return !optim->rule->own;
}
