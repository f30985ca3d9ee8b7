/* rules.c - the table of optimisers: the library's rules, then those that the program has registered. */
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "optim/rule.h"

static const lk_rule *const rules[] = {
    &lk__rule_sgd, &lk__rule_adam, &lk__rule_adamw, &lk__rule_adadelta, &lk__rule_rmsprop,
};

enum { RULES = sizeof rules / sizeof *rules, MOST = 32, MAX_STATE_NAME = 31 };

typedef struct own_rule {
    lk_rule rule;
    lk_optimizer_def def; /* without its names, which are in `rule` */
} own_rule;

/* Rows are added, never changed: readers need no lock. */
static own_rule rows[MOST];
static atomic_size_t count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

const lk_rule *lk__rule_at(size_t index)
{
    if (index < RULES)
        return rules[index];
    return index - RULES < atomic_load(&count) ? &rows[index - RULES].rule : NULL;
}

const lk_optim_info *lk_optimizer_list(size_t index)
{
    const lk_rule *rule = lk__rule_at(index);
    return rule ? &rule->info : NULL;
}

static lk_rule_scalars scalars(const lk_optim *optim, double lr, double weight_decay)
{
    return (lk_rule_scalars){.own = {.lr = lr, .weight_decay = weight_decay, .step = optim->steps}};
}

/* The update of a range, of which threads do parts. */
typedef struct range_update {
    const lk_optim *optim;
    const lk_optim_range *range;
} range_update;

static void update_part(void *arg, size_t begin, size_t end, void *stream)
{
    const range_update *u = arg;
    const lk_optim *optim = u->optim;
    const lk_optimizer_def *def = optim->rule->own;
    size_t at = u->range->begin + begin;
    lk_optimizer_update update = {.count = end - begin,
                                  .grads = u->range->grads + at,
                                  .params = u->range->params + at,
                                  .values = optim->values,
                                  .numbers = &optim->scalars[u->range->group].own,
                                  .stream = stream};
    for (size_t i = 0; i < def->state_count; i++)
        update.states[i] = optim->state[i] + at;
    bool host = optim->dev->type->host_memory;
    if (!host && u->range->flag)
        update.skip = &u->range->flag->bad;
    (host ? def->cpu : def->cuda)(def->arg, &update);
}

static void range(lk_optim *optim, const lk_optim_range *r)
{
    lk_device *dev = optim->dev;
    if (dev->type->host_memory && r->flag && r->flag->bad)
        return;
    dev->kernels->run_parts(dev, r->end - r->begin, update_part, &(range_update){optim, r});
}

static lk_status check_name(const char *what, const char *name, size_t most)
{
    if (name && lk__text_is_name(name, most, "_"))
        return LK_OK;
    return lk__fail(LK_STATUS_USAGE,
                    "the name of %s of an optimiser is '%s'; give letters, digits and '_', at most %zu", what,
                    name ? name : "", most);
}

static lk_status check_param(const lk_optimizer_def *def, size_t index)
{
    const lk_optimizer_param *param = &def->params[index];
    LK_TRY(check_name("a parameter", param->name, LK_SPEC_MAX_NAME - 1));
    for (size_t i = 0; i < index; i++)
        if (strcmp(def->params[i].name, param->name) == 0)
            return lk__fail(LK_STATUS_USAGE, "optimiser '%s' has two parameters '%s'", def->name, param->name);
    bool any = param->min == 0 && param->max == 0;
    if (!isfinite(param->value) || (!any && !(param->value >= param->min && param->value <= param->max)))
        return lk__fail(LK_STATUS_USAGE, "optimiser '%s': the default %g of %s is not in %g to %g", def->name,
                        param->value, param->name, param->min, param->max);
    return LK_OK;
}

static lk_status check_state(const lk_optimizer_def *def, size_t index)
{
    LK_TRY(check_name("a state array", def->states[index], MAX_STATE_NAME));
    for (size_t i = 0; i < index; i++)
        if (strcmp(def->states[i], def->states[index]) == 0)
            return lk__fail(LK_STATUS_USAGE, "optimiser '%s' has two state arrays '%s'", def->name, def->states[i]);
    return LK_OK;
}

static lk_status check(const lk_optimizer_def *def)
{
    LK_TRY(check_name("the rule", def->name, LK_SPEC_MAX_NAME - 1));
    if (!def->cpu)
        return lk__fail(LK_STATUS_USAGE, "optimiser '%s' has no function `cpu`", def->name);
    if (!(def->lr > 0 && def->lr <= FLT_MAX))
        return lk__fail(LK_STATUS_USAGE, "optimiser '%s': its default `lr` %g must be a number above 0", def->name,
                        def->lr);
    if (def->param_count > LK_RULE_MAX_PARAMS || def->state_count > LK_RULE_MAX_STATES)
        return lk__fail(LK_STATUS_USAGE, "optimiser '%s' has %zu parameters and %zu state arrays; at most %d and %d",
                        def->name, def->param_count, def->state_count, LK_RULE_MAX_PARAMS, LK_RULE_MAX_STATES);
    if ((def->param_count && !def->params) || (def->state_count && !def->states))
        return lk__fail(LK_STATUS_USAGE, "optimiser '%s': `params` or `states` is NULL, and its count is not 0",
                        def->name);
    for (size_t i = 0; i < def->param_count; i++)
        LK_TRY(check_param(def, i));
    for (size_t i = 0; i < def->state_count; i++)
        LK_TRY(check_state(def, i));
    return LK_OK;
}

static lk_status copy(const char *text, const char **out)
{
    char *copied;
    LK_TRY(lk__mem_copy_text(text, "an optimiser", &copied));
    *out = copied;
    return LK_OK;
}

static lk_status copy_summary(const lk_optimizer_def *def, const char **out)
{
    char text[1024], number[LK_NUMBER_TEXT];
    size_t used = 0;
    for (size_t i = 0; i < def->param_count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s=%s", i ? "," : "", def->params[i].name,
                                 lk__number_text(def->params[i].value, number));
    snprintf(text + used, sizeof text - used, "%slearning rate %s", used ? "; " : "", lk__number_text(def->lr, number));
    return copy(text, out);
}

/* If a copy fails, the copies made before it are not freed: the process is out of memory anyway. */
static lk_status fill(const lk_optimizer_def *def, own_rule *row)
{
    lk_rule *rule = &row->rule;
    row->def = *def;
    row->def.name = NULL;
    row->def.params = NULL;
    row->def.states = NULL;
    *rule = (lk_rule){.lr = def->lr, .scalars = scalars, .range = range, .own = &row->def};
    LK_TRY(copy(def->name, &rule->info.name));
    LK_TRY(copy_summary(def, &rule->info.summary));
    for (size_t i = 0; i < def->param_count; i++) {
        const lk_optimizer_param *from = &def->params[i];
        bool any = from->min == 0 && from->max == 0;
        rule->params[i] =
            (lk_spec_param){.value = from->value, .min = any ? -DBL_MAX : from->min, .max = any ? DBL_MAX : from->max};
        LK_TRY(copy(from->name, &rule->params[i].name));
    }
    for (size_t i = 0; i < def->state_count; i++)
        LK_TRY(copy(def->states[i], &rule->state_names[i]));
    return LK_OK;
}

static lk_status add_row(const lk_optimizer_def *def)
{
    size_t at = atomic_load(&count);
    const lk_optim_info *info;
    for (size_t i = 0; (info = lk_optimizer_list(i)); i++)
        if (strcmp(info->name, def->name) == 0)
            return lk__fail(LK_STATUS_USAGE, "there is an optimiser '%s' already; give another `name`", def->name);
    if (at == MOST)
        return lk__fail(LK_STATUS_USAGE, "optimiser '%s': this process has registered %d rules; register each once",
                        def->name, MOST);
    LK_TRY(fill(def, &rows[at]));
    atomic_store(&count, at + 1);
    return LK_OK;
}

lk_status lk_optimizer_register(const lk_optimizer_def *def)
{
    LK_TRY(LK_GIVEN(def));
    LK_TRY(LK_CLEAR(def, "lk_optimizer_def"));
    LK_TRY(check(def));
    pthread_mutex_lock(&lock);
    lk_status status = add_row(def);
    pthread_mutex_unlock(&lock);
    return status;
}
