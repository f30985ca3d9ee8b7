/* param_groups.c - patterns over keys, the groups of the optimiser, and the ranges of the flat array. */
#include "parallel/step/param_groups.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/spec.h"
#include "nn/op.h"

/* After a '*', tries the rest of the pattern at each position; a later '*' replaces an earlier one. */
bool lk__param_groups_match(const char *pattern, const char *key)
{
    const char *star = NULL, *from = NULL;
    while (*key) {
        if (*pattern == '*') {
            star = pattern++;
            from = key;
        } else if (*pattern == '?' || *pattern == *key) {
            pattern++;
            key++;
        } else if (star) {
            pattern = star + 1;
            key = ++from;
        } else {
            return false;
        }
    }
    pattern += strspn(pattern, "*");
    return *pattern == '\0';
}

/* The key of parameter `index` of the model, in PyTorch's order; NULL after the last. The text is this thread's until
 * the next call. */
static const char *key_at(const void *graph_arg, size_t index)
{
    static _Thread_local char key[LK_MAX_KEY];
    const lk_graph *graph = graph_arg;
    for (int i = 0; i < graph->count; i++) {
        const lk_layer *layer = &graph->layers[i];
        size_t count = (size_t)layer->param_count;
        if (index < count) {
            lk__op_slot_key(layer, layer->params[index].suffix, key);
            return key;
        }
        index -= count;
    }
    return NULL;
}

static lk_status fail_unmatched(const lk_graph *graph, const char *pattern)
{
    char keys[512];
    lk__names_join(&(lk_names){.next = key_at, .arg = graph}, keys, sizeof keys);
    return lk__fail(LK_STATUS_MISMATCH, "no parameter's key matches the pattern '%s'; the keys are %s", pattern, keys);
}

/* Sets the group of the parameters that match; returns their number. */
static size_t set_matching(lk_param_groups *groups, const lk_graph *graph, const char *pattern,
                           const lk_param_group *group)
{
    size_t matches = 0;
    char key[LK_MAX_KEY];
    for (int i = 0; i < graph->count; i++) {
        const lk_layer *layer = &graph->layers[i];
        for (int slot = 0; slot < layer->param_count; slot++) {
            lk__op_slot_key(layer, layer->params[slot].suffix, key);
            if (!lk__param_groups_match(pattern, key))
                continue;
            groups->of[i][slot] = *group;
            matches++;
        }
    }
    return matches;
}

/* The settings in the optimiser's form. */
static lk_optim_group as_optim(const lk_param_group *group)
{
    double decay = group->weight_decay;
    return (lk_optim_group){.lr_scale = group->lr_scale != 0 ? group->lr_scale : 1,
                            .weight_decay = decay == 0             ? NAN
                                            : decay == LK_NO_DECAY ? 0
                                                                   : decay};
}

/* The groups of the optimiser. The first one has the optimiser's own settings. */
typedef struct table {
    lk_optim_group rows[LK_OPTIM_MAX_GROUPS];
    size_t count;
} table;

/* Finds the row of a parameter, or adds it. */
static lk_status find_row(table *t, const lk_param_group *group, size_t *out)
{
    lk_optim_group row = as_optim(group);
    for (*out = 0; *out < t->count; ++*out) {
        const lk_optim_group *other = &t->rows[*out];
        bool same_decay =
            isnan(row.weight_decay) ? isnan(other->weight_decay) : row.weight_decay == other->weight_decay;
        if (row.lr_scale == other->lr_scale && same_decay)
            return LK_OK;
    }
    if (t->count == LK_OPTIM_MAX_GROUPS)
        return lk__fail(LK_STATUS_USAGE, "the parameters would have over %d different groups; give fewer",
                        LK_OPTIM_MAX_GROUPS);
    t->rows[t->count++] = row;
    return LK_OK;
}

static void add_range(lk_param_groups *groups, size_t begin, size_t end, size_t group)
{
    lk_param_range *last = groups->count > 0 ? &groups->ranges[groups->count - 1] : NULL;
    if (last && last->group == group)
        last->end = end;
    else
        groups->ranges[groups->count++] = (lk_param_range){begin, end, group};
}

/* Fills the table with the groups of the whole model, and the ranges with those of this stage. */
static lk_status divide(lk_param_groups *groups, const lk_params *params, table *t)
{
    size_t row, most = 1;
    for (int i = params->first; i < params->last; i++)
        most += (size_t)params->graph->layers[i].param_count;
    LK_TRY(LK_ALLOC(most, "parameter groups", &groups->ranges));
    for (int i = params->graph->count - 1; i >= 0; i--) {
        const lk_layer *layer = &params->graph->layers[i];
        for (int slot = layer->param_count - 1; slot >= 0; slot--) {
            LK_TRY(find_row(t, &groups->of[i][slot], &row));
            if (i >= params->first && i < params->last)
                add_range(groups, params->param_offset[i][slot], lk__params_end(params, layer, slot), row);
        }
    }
    return LK_OK;
}

/* Makes the settings that `old` would have after the call. */
static lk_status make(const lk_param_groups *old, const lk_params *params, lk_optim *optim, const char *pattern,
                      const lk_param_group *group, lk_param_groups *out)
{
    size_t layers = (size_t)params->graph->count;
    if (isnan(group->weight_decay))
        return lk__fail(LK_STATUS_USAGE, "`weight_decay` is not a number; 0 means the optimiser's own");
    table t = {.rows = {{.lr_scale = 1, .weight_decay = NAN}}, .count = 1};
    LK_TRY(LK_ALLOC(layers, "parameter groups", &out->of));
    if (old->of)
        memcpy(out->of, old->of, layers * sizeof *out->of);
    if (set_matching(out, params->graph, pattern, group) == 0)
        return fail_unmatched(params->graph, pattern);
    LK_TRY(divide(out, params, &t));
    return lk__optim_set_groups(optim, t.rows, t.count);
}

lk_status lk__param_groups_set(lk_param_groups *groups, const lk_params *params, lk_optim *optim, const char *pattern,
                               const lk_param_group *group)
{
    lk_param_groups made = {0};
    lk_status status = make(groups, params, optim, pattern, group, &made);
    lk__param_groups_fini(status == LK_OK ? groups : &made);
    if (status == LK_OK)
        *groups = made;
    return status;
}

void lk__param_groups_fini(lk_param_groups *groups)
{
    lk__mem_free(groups->ranges);
    lk__mem_free(groups->of);
    *groups = (lk_param_groups){0};
}

void lk__param_groups_update(const lk_param_groups *groups, lk_optim *optim, const lk_optim_range *range)
{
    if (groups->count == 0)
        lk__optim_range(optim, range);
    for (size_t i = 0; i < groups->count; i++) {
        const lk_param_range *of = &groups->ranges[i];
        lk_optim_range part = *range;
        part.begin = lk__size_max(range->begin, of->begin);
        part.end = lk__size_min(range->end, of->end);
        part.group = of->group;
        if (part.begin < part.end)
            lk__optim_range(optim, &part);
    }
}
