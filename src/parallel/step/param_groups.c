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

static bool same_decay(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b;
}

/* Finds the optimiser's group of a parameter, or adds it. */
static lk_status find_row(lk_param_groups *groups, const lk_param_group *group, size_t *out)
{
    lk_optim_group row = as_optim(group);
    for (*out = 0; *out < groups->row_count; ++*out)
        if (row.lr_scale == groups->rows[*out].lr_scale &&
            same_decay(row.weight_decay, groups->rows[*out].weight_decay))
            return LK_OK;
    if (groups->row_count == LK_OPTIM_MAX_GROUPS)
        return lk__fail(LK_STATUS_USAGE, "the parameters would have over %d different groups; give fewer",
                        LK_OPTIM_MAX_GROUPS);
    groups->rows[groups->row_count++] = row;
    return LK_OK;
}

static void add_range(lk_param_groups *groups, lk_param_range range)
{
    lk_param_range *last = groups->count > 0 ? &groups->ranges[groups->count - 1] : NULL;
    if (last && last->group == range.group && last->frozen == range.frozen)
        last->end = range.end;
    else
        groups->ranges[groups->count++] = range;
}

static lk_status add_param(lk_param_groups *groups, const lk_params *params, const lk_layer *layer, int slot)
{
    const lk_param_group *group = &groups->of[layer->index][slot];
    lk_param_range range = {.frozen = group->frozen};
    if (group->frozen)
        groups->frozen[layer->index] |= 1u << slot;
    else
        LK_TRY(find_row(groups, group, &range.group));
    if (layer->index < params->first || layer->index >= params->last)
        return LK_OK;
    range.begin = params->param_offset[layer->index][slot];
    range.end = lk__params_end(params, layer, slot);
    add_range(groups, range);
    return LK_OK;
}

/* Finds the groups of the whole model, and the ranges of this stage in the order of the flat array. */
static lk_status divide(lk_param_groups *groups, const lk_params *params)
{
    size_t most = 1;
    for (int i = params->first; i < params->last; i++)
        most += (size_t)params->graph->layers[i].param_count;
    LK_TRY(LK_ALLOC(most, "parameter groups", &groups->ranges));
    LK_TRY(LK_ALLOC((size_t)params->graph->count, "parameter groups", &groups->frozen));
    groups->rows[0] = (lk_optim_group){.lr_scale = 1, .weight_decay = NAN};
    groups->row_count = 1;
    for (int i = params->graph->count - 1; i >= 0; i--)
        for (int slot = params->graph->layers[i].param_count - 1; slot >= 0; slot--)
            LK_TRY(add_param(groups, params, &params->graph->layers[i], slot));
    return LK_OK;
}

static lk_status make(const lk_param_groups *old, const lk_params *params, const lk_optim *optim, const char *pattern,
                      const lk_param_group *group, lk_param_groups *out)
{
    size_t layers = (size_t)params->graph->count;
    if (isnan(group->weight_decay))
        return lk__fail(LK_STATUS_USAGE, "`weight_decay` is not a number; 0 means the optimiser's own");
    lk_optim_group row = as_optim(group);
    LK_TRY(lk__optim_check_group(optim, &row));
    LK_TRY(LK_ALLOC(layers, "parameter groups", &out->of));
    if (old->of)
        memcpy(out->of, old->of, layers * sizeof *out->of);
    if (set_matching(out, params->graph, pattern, group) == 0)
        return fail_unmatched(params->graph, pattern);
    return divide(out, params);
}

lk_status lk__param_groups_make(const lk_param_groups *old, const lk_params *params, const lk_optim *optim,
                                const char *pattern, const lk_param_group *group, lk_param_groups *out)
{
    lk_param_groups made = {0};
    lk_status status = make(old, params, optim, pattern, group, &made);
    if (status == LK_OK)
        *out = made;
    else
        lk__param_groups_fini(&made);
    return status;
}

void lk__param_groups_fini(lk_param_groups *groups)
{
    lk__mem_free(groups->frozen);
    lk__mem_free(groups->ranges);
    lk__mem_free(groups->of);
    *groups = (lk_param_groups){0};
}

bool lk__param_groups_are_frozen(const lk_param_groups *groups, size_t begin, size_t end)
{
    for (size_t i = 0; i < groups->count; i++)
        if (!groups->ranges[i].frozen && groups->ranges[i].begin < end && groups->ranges[i].end > begin)
            return false;
    return groups->count > 0;
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
        if (part.begin < part.end && !of->frozen)
            lk__optim_range(optim, &part);
    }
}
