/* init.c - the initialisation policies of convolutions and linear layers, by name. params.c draws the numbers. */
#include "nn/init.h"

#include <math.h>
#include <stdio.h>

#include "base/spec.h"
#include "nn/graph.h"
#include "nn/op.h"

enum { FAN_OUT, ZERO_BIAS, STD, VALUES };

/* A parsed policy. */
typedef struct policy {
    const struct row *row;
    double values[VALUES];
} policy;

typedef struct fans {
    double in, out;
} fans;

typedef struct row {
    lk_init_info info;
    lk_op_fill fill;
    /* Variance of the weights. NULL: the default policy, which has a bound instead. */
    double (*variance)(const policy *p, fans fan);
    bool takes[VALUES];
} row;

static double kaiming(const policy *p, fans fan)
{
    return 2 / (p->values[FAN_OUT] > 0 ? fan.out : fan.in);
}

static double xavier(const policy *p, fans fan)
{
    (void)p;
    return 2 / (fan.in + fan.out);
}

static double given(const policy *p, fans fan)
{
    (void)fan;
    return p->values[STD] * p->values[STD];
}

#define KAIMING "variance 2 / fan in, for ReLU: fan_out (for the other fan), zero_bias"
#define XAVIER "variance 2 / (fan in + fan out): zero_bias"

static const row rows[] = {
    {{"default", "uniform in +-1/sqrt(fan in), biases too"}, LK_OP_FILL_FAN, NULL, {0}},
    {{"kaiming_normal", KAIMING}, LK_OP_FILL_NORMAL, kaiming, {[FAN_OUT] = true, [ZERO_BIAS] = true}},
    {{"kaiming_uniform", KAIMING}, LK_OP_FILL_UNIFORM, kaiming, {[FAN_OUT] = true, [ZERO_BIAS] = true}},
    {{"xavier_normal", XAVIER}, LK_OP_FILL_NORMAL, xavier, {[ZERO_BIAS] = true}},
    {{"xavier_uniform", XAVIER}, LK_OP_FILL_UNIFORM, xavier, {[ZERO_BIAS] = true}},
    {{"normal", "std=.01, zero_bias"}, LK_OP_FILL_NORMAL, given, {[ZERO_BIAS] = true, [STD] = true}},
};

enum { ROWS = sizeof rows / sizeof *rows };

const lk_init_info *lk__init_list(size_t index)
{
    return index < ROWS ? &rows[index].info : NULL;
}

static const char option[] = "`init`";

static const char *name_at(const void *arg, size_t index)
{
    (void)arg;
    return index < ROWS ? rows[index].info.name : NULL;
}

static const lk_names names = {.what = option, .kind = "policy", .next = name_at};

static lk_status parse(const char *text, policy *out)
{
    static const lk_spec_key all[VALUES] = {
        [FAN_OUT] = {.name = "fan_out", .max = 1, .whole = true},
        [ZERO_BIAS] = {.name = "zero_bias", .max = 1, .whole = true},
        [STD] = {.name = "std", .max = 1e6},
    };
    policy p = {.values = {[STD] = .01}};
    size_t found = 0, count = 0;
    LK_TRY(lk__fail_unless(text != NULL, "policy", "lk_init"));
    lk_spec_key keys[VALUES];
    LK_TRY(lk__spec_find(text, &names, &found));
    p.row = &rows[found];
    for (int i = 0; i < VALUES; i++) {
        if (!p.row->takes[i])
            continue;
        keys[count] = all[i];
        keys[count++].value = &p.values[i];
    }
    LK_TRY(lk__spec_params(text, option, keys, count));
    *out = p;
    return LK_OK;
}

static bool has_weights(const lk_layer *layer)
{
    return layer->op->flags & LK_OP_HAS_WEIGHTS;
}

/* The fan-out of a convolution counts all groups, as in PyTorch. */
static fans fans_of(const lk_op_slot *weight)
{
    size_t out = weight->dims[0];
    for (int i = 2; i < weight->ndim; i++)
        out *= weight->dims[i];
    return (fans){.in = (double)weight->fan_in, .out = (double)out};
}

static lk_status check_target(const lk_graph *graph, lk_node x, const char *text)
{
    char role[96];
    snprintf(role, sizeof role, "lk_init '%.64s': x", text);
    LK_TRY(lk__graph_check_node(graph, x, role));
    if (!has_weights(&graph->layers[x.index]))
        return lk__fail(LK_STATUS_USAGE, "lk_init '%s': node %d is neither a convolution nor a linear layer", text,
                        x.index);
    return LK_OK;
}

static void apply(const policy *p, lk_layer *layer)
{
    lk_op_slot *weight = &layer->params[0], *bias = &layer->params[1];
    double variance = p->row->variance ? p->row->variance(p, fans_of(weight)) : 0;
    weight->fill = p->row->fill;
    weight->spread = sqrt(p->row->fill == LK_OP_FILL_UNIFORM ? 3 * variance : variance);
    if (layer->param_count > 1)
        bias->fill = p->values[ZERO_BIAS] > 0 ? LK_OP_FILL_ZERO : LK_OP_FILL_FAN;
}

lk_node lk_init(lk_graph *graph, lk_node x, const char *text)
{
    policy p;
    if (!graph || graph->status != LK_OK)
        return x;
    lk_status status = parse(text, &p);
    if (status == LK_OK)
        status = check_target(graph, x, text);
    if (status != LK_OK)
        lk__graph_reject(graph, status);
    else
        apply(&p, &graph->layers[x.index]);
    return x;
}

void lk_init_all(lk_graph *graph, const char *text)
{
    policy p;
    if (!graph || graph->status != LK_OK)
        return;
    lk_status status = parse(text, &p);
    if (status != LK_OK) {
        lk__graph_reject(graph, status);
        return;
    }
    for (int i = 0; i < graph->count; i++) {
        if (has_weights(&graph->layers[i]))
            apply(&p, &graph->layers[i]);
    }
}
