/* own_trial.c - options, random inputs, reports and finite differences of the checks of own ops and losses.
 *
 * A derivative is computed in double from values of floats, with the steps h and 2h:
 *   D = (8 (L(h) - L(-h)) - (L(2h) - L(-2h))) / 12h
 * Rounding of the floats changes D by less than 2^-22 * (sum of their magnitudes) * 18 / 12h; ROUNDING is twice this
 * factor. */
#include "nn/ops/own_trial.h"

#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/rng.h"

#define STEP 0x1p-5
#define ROUNDING (2 * 0x1p-22 * 18 / 12 / STEP)

lk_status lk__op_trial_check_samples(const char *function, size_t samples, size_t least)
{
    if (samples <= LK_OP_TRIAL_SAMPLES && (!samples || samples >= least))
        return LK_OK;
    return lk__fail(LK_STATUS_USAGE, "%s: `samples` is %zu; %zu to %d are possible", function, samples, least,
                    LK_OP_TRIAL_SAMPLES);
}

lk_status lk__op_trial_check_range(const char *function, const char *names[2], lk_op_range range)
{
    if (isfinite(range.low) && isfinite(range.high) && range.low <= range.high)
        return LK_OK;
    return lk__fail(LK_STATUS_USAGE, "%s: numbers from `%s` %g to `%s` %g are impossible", function, names[0],
                    range.low, names[1], range.high);
}

lk_status lk__op_trial_check_tolerance(const char *function, double tolerance)
{
    if (tolerance >= 0 && tolerance < 1)
        return LK_OK;
    return lk__fail(LK_STATUS_USAGE, "%s: `tolerance` is %g; it must be in [0,1)", function, tolerance);
}

void lk__op_trial_draw(uint64_t seed, int stream, uint32_t turn, lk_op_range range, size_t count, float *out)
{
    lk_rng rng = lk__rng(seed, LK_RNG_PURPOSE_AUGMENT, (uint32_t)stream, 0, turn);
    if (range.low == 0 && range.high == 0)
        range = (lk_op_range){-1, 1};
    for (size_t i = 0; i < count; i++)
        out[i] = (float)(range.low + (range.high - range.low) * (double)lk__rng_unit(lk__rng_u32(&rng, i)));
}

size_t lk__op_trial_probe(uint64_t seed, int stream, uint32_t turn, size_t count, size_t k)
{
    lk_rng rng = lk__rng(seed, LK_RNG_PURPOSE_AUGMENT, (uint32_t)stream, 0, turn);
    return count <= LK_OP_TRIAL_PROBES ? k : lk__rng_u32(&rng, k) % count;
}

double lk__op_trial_largest(const float *values, size_t count)
{
    double most = 0;
    for (size_t i = 0; i < count; i++) {
        double size = fabs((double)values[i]);
        most = size > most ? size : most;
    }
    return most;
}

static lk_status accept(const lk_graph *graph, lk_layer *layer)
{
    (void)graph;
    if (!lk__shape_sample(layer->shape))
        return lk__fail(LK_STATUS_USAGE, "lk_op_check: `x[%d]` has a size of 0: height %zu, width %zu, %zu channels",
                        layer->index, layer->shape.h, layer->shape.w, layer->shape.c);
    return LK_OK;
}

static const lk_op given_op = {.name = "given", .infer = accept};

lk_node lk__op_trial_input(lk_graph *graph, lk_op_size size)
{
    lk_layer layer = {.op = &given_op};
    layer.shape = (lk_shape){.n = 1, .c = size.channels, .h = size.height, .w = size.width};
    return lk__graph_add_layer(graph, layer, NULL, NULL, 0);
}

void lk__op_report_begin(lk_op_report *report, char *text, size_t bytes)
{
    *report = (lk_op_report){.text = text, .bytes = text ? bytes : 0};
    if (report->bytes)
        *text = 0;
}

void lk__op_report_add(lk_op_report *report, const char *line)
{
    if (report->used >= report->bytes)
        return;
    int length = snprintf(report->text + report->used, report->bytes - report->used, "%s\n", line);
    report->used = lk__size_min(report->bytes - 1, report->used + (size_t)length);
}

/* The function is not smooth where the slopes over 2h and over 4h differ, or where the change of the slope does not
 * double with the step. At a kink one of the two is at least 0.8 times the error. */
lk_status lk__op_slope_find(lk_op_slope_fn value, void *arg, double at, lk_op_slope *out)
{
    double y[5], step[5], h = STEP * fmax(1, fabs(at));
    const double deltas[] = {h, -h, 2 * h, -2 * h, 0};
    for (int k = 0; k < 5; k++)
        LK_TRY(value(arg, deltas[k], &step[k], &y[k]));
    double near = (y[0] - y[1]) / (step[0] - step[1]), far = (y[2] - y[3]) / (step[2] - step[3]);
    double bend = (y[0] - y[4]) / step[0] - (y[1] - y[4]) / step[1];
    double wide = (y[2] - y[4]) / step[2] - (y[3] - y[4]) / step[3];
    out->slope = (4 * near - far) / 3;
    out->doubt = fmax(fabs(near - far), fabs(wide - 2 * bend));
    return LK_OK;
}

double lk__op_slope_bound(const lk_op_slope *slopes, size_t count, double tolerance, double size)
{
    double most = 0;
    for (size_t k = 0; k < count; k++)
        most = fmax(most, fabs(slopes[k].slope));
    return tolerance * most + ROUNDING * size;
}

bool lk__op_slope_is_rough(lk_op_slope slope, double bound)
{
    return slope.doubt > bound / 2;
}
