/* own_check.c - lk_op_check: runs an op of the program's own in different ways, and compares.
 *
 * A run is what a plan does with the layer: forward for all waves, then backward for all waves, on inputs and a dy
 * that are random. L is the sum of dy * y, so the gradients are those of L. The differences of L are computed in
 * double from forward's floats, with the steps h and 2h:
 *   D = (8 (L(h) - L(-h)) - (L(2h) - L(-2h))) / 12h
 * Rounding of y changes D by less than 2^-22 * sum |dy y| * 18 / 12h; ROUNDING is twice this factor. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "nn/ops/own_rig.h"

#define STEP 0x1p-5
#define ROUNDING (2 * 0x1p-22 * 18 / 12 / STEP)

enum { SAMPLES = 7, THREADS = 3, SHARDS = 3, PROBES = 48 };
/* Streams of random numbers. */
enum { DRAW_X, DRAW_DY = LK_OP_MAX_INPUTS, DRAW_PARAM, DRAW_PROBE = DRAW_PARAM + LK_OP_MAX_PARAMS };

typedef struct trial {
    const lk_op_check_opts *opts;
    const char *op;
    lk_graph *graph;
    const lk_layer *layer;
    size_t n;
    double tolerance;
    lk_op_rig rigs[THREADS]; /* with 1, 2, 3 threads; dev NULL: not there */
    lk_op_arrays wanted, got;
    size_t reported; /* characters of the report */
} trial;

static size_t x_floats(const trial *t, int i)
{
    return lk__shape_sample(t->layer->own.x[i]);
}

static size_t y_floats(const trial *t)
{
    return lk__shape_sample(t->layer->shape);
}

static size_t param_floats(const trial *t, int i)
{
    return lk__op_slot_count(&t->layer->params[i]);
}

static lk_status run(const trial *t, lk_op_way w, const lk_op_arrays *in, lk_op_arrays *out)
{
    return lk__op_rig_run(&t->rigs[w.threads - 1], w, in, out);
}

/* A tensor of results, by its name in messages. */
typedef struct result {
    char name[32];
    size_t count, sample; /* elements, and those of a sample; 0: a parameter */
    const float *wanted, *got;
} result;

/* Result number `index`: y, dx of each input, grad of each parameter; false after the last. */
static bool result_at(const trial *t, int index, result *out)
{
    int inputs = t->layer->input_count, slot = index - 1 - inputs;
    if (index == 0) {
        *out = (result){"y", t->n * y_floats(t), y_floats(t), t->wanted.y, t->got.y};
    } else if (index <= inputs) {
        int i = index - 1;
        *out = (result){"", t->n * x_floats(t, i), x_floats(t, i), t->wanted.dx[i], t->got.dx[i]};
        snprintf(out->name, sizeof out->name, "dx[%d]", i);
    } else if (slot < t->layer->param_count) {
        *out = (result){"", param_floats(t, slot), 0, t->wanted.grad[slot], t->got.grad[slot]};
        snprintf(out->name, sizeof out->name, "grad of %.23s", t->layer->params[slot].suffix);
    } else {
        return false;
    }
    return true;
}

static void place_of(const result *r, size_t i, char text[96])
{
    if (r->sample)
        snprintf(text, 96, "%s of sample %zu, element %zu,", r->name, i / r->sample, i % r->sample);
    else
        snprintf(text, 96, "%s, element %zu,", r->name, i);
}

/* Which results a comparison looks at. */
enum { LOOK_Y = 1, LOOK_DX = 2, LOOK_GRAD = 4, LOOK_ALL = 7 };

static bool looks_at(int look, const trial *t, int index)
{
    return look & (index == 0 ? LOOK_Y : index <= t->layer->input_count ? LOOK_DX : LOOK_GRAD);
}

static lk_status same_bits(const trial *t, int look, const char *check, const char *why)
{
    result r;
    for (int index = 0; result_at(t, index, &r); index++) {
        if (!looks_at(look, t, index) || memcmp(r.wanted, r.got, r.count * sizeof *r.got) == 0)
            continue;
        size_t i = 0;
        char place[96];
        while (memcmp(&r.wanted[i], &r.got[i], sizeof *r.got) == 0)
            i++;
        place_of(&r, i, place);
        return lk__fail(LK_STATUS_MISMATCH, "op '%s', check `%s`: %s is %.9g, but %.9g %s", t->op, check, place,
                        (double)r.wanted[i], (double)r.got[i], why);
    }
    return LK_OK;
}

static void report(trial *t, const char *line)
{
    size_t room = t->opts->report ? t->opts->report_bytes : 0;
    if (t->reported >= room)
        return;
    int length = snprintf(t->opts->report + t->reported, room - t->reported, "%s\n", line);
    t->reported = lk__size_min(room - 1, t->reported + (size_t)length);
}

static const lk_op_way reference = {.threads = 1, .shards = SHARDS};

/* Also makes the results that the other checks compare with. */
static lk_status check_outputs(trial *t)
{
    result r;
    LK_TRY(run(t, reference, &t->wanted, &t->wanted));
    for (int index = 0; result_at(t, index, &r); index++) {
        for (size_t i = 0; i < r.count; i++) {
            char place[96];
            if (isfinite(r.wanted[i]))
                continue;
            place_of(&r, i, place);
            return lk__fail(LK_STATUS_MISMATCH,
                            "op '%s', check `outputs`: %s is %s; %s must write every element, and finite inputs must "
                            "give finite results (results and workspace contain NaN before forward)",
                            t->op, place, isnan(r.wanted[i]) ? "NaN" : "infinite", index ? "backward" : "forward");
        }
    }
    report(t, "outputs: all elements are written and finite");
    return LK_OK;
}

static void draw(const trial *t, int stream, uint32_t sample, double low, double high, size_t count, float *out)
{
    lk_rng rng = lk__rng(t->opts->seed, LK_RNG_PURPOSE_AUGMENT, (uint32_t)stream, 0, sample);
    for (size_t i = 0; i < count; i++)
        out[i] = (float)(low + (high - low) * (double)lk__rng_unit(lk__rng_u32(&rng, i)));
}

static void draw_inputs(const trial *t, uint32_t turn, lk_op_arrays *a)
{
    const lk_op_check_opts *o = t->opts;
    bool given = o->low != 0 || o->high != 0;
    for (int i = 0; i < t->layer->input_count; i++)
        draw(t, DRAW_X + i, turn, given ? o->low : -1, given ? o->high : 1, t->n * x_floats(t, i), a->x[i]);
    draw(t, DRAW_DY, turn, -1, 1, t->n * y_floats(t), a->dy);
}

static void copy_inputs(const trial *t, const lk_op_arrays *from, lk_op_arrays *to)
{
    for (int i = 0; i < t->layer->input_count; i++)
        memcpy(to->x[i], from->x[i], t->n * x_floats(t, i) * sizeof(float));
    memcpy(to->dy, from->dy, t->n * y_floats(t) * sizeof(float));
    for (int i = 0; i < t->layer->param_count; i++)
        memcpy(to->param[i], from->param[i], param_floats(t, i) * sizeof(float));
}

static lk_status check_state(trial *t)
{
    draw_inputs(t, 1, &t->got);
    LK_TRY(run(t, reference, &t->got, &t->got));
    copy_inputs(t, &t->wanted, &t->got);
    LK_TRY(run(t, reference, &t->got, &t->got));
    LK_TRY(same_bits(t, LOOK_ALL, "state",
                     "when the same call is made again after one with other samples: the op must not keep anything "
                     "from one call to the next"));
    report(t, "state: equal calls give equal bits");
    return LK_OK;
}

static lk_status check_samples(trial *t)
{
    LK_TRY(run(t, (lk_op_way){.threads = 1, .shards = (int)t->n, .wave = 1}, &t->got, &t->got));
    LK_TRY(same_bits(t, LOOK_Y | LOOK_DX, "samples",
                     "when each sample is computed alone: results must not depend on other samples or on n"));
    report(t, "samples: each sample alone gives the same bits");
    return LK_OK;
}

static lk_status check_way(trial *t, lk_op_way w)
{
    char why[160], waves[32] = "one wave";
    if (w.wave)
        snprintf(waves, sizeof waves, "waves of %d shard%s", w.wave, w.wave == 1 ? "" : "s");
    snprintf(why, sizeof why, "with %d thread%s, %s%s", w.threads, w.threads == 1 ? "" : "s", waves,
             w.no_dx ? " and no gradient of inputs" : "");
    LK_TRY(run(t, w, &t->got, &t->got));
    return same_bits(t, w.no_dx ? LOOK_Y | LOOK_GRAD : LOOK_ALL, "threads", why);
}

static lk_status check_ways(trial *t)
{
    for (int threads = 1; threads <= THREADS && t->rigs[threads - 1].dev; threads++) {
        for (int wave = 0; wave < SHARDS; wave++)
            LK_TRY(check_way(t, (lk_op_way){.threads = threads, .shards = SHARDS, .wave = wave}));
        LK_TRY(check_way(t, (lk_op_way){.threads = threads, .shards = SHARDS, .no_dx = true}));
    }
    report(t, "threads: 1, 2 and 3 threads, one wave and several, give the same bits");
    return LK_OK;
}

static double largest(const float *values, size_t count)
{
    double most = 0;
    for (size_t i = 0; i < count; i++) {
        double size = fabs((double)values[i]);
        most = size > most ? size : most;
    }
    return most;
}

static lk_status check_cut(trial *t, int shards)
{
    result r;
    LK_TRY(run(t, (lk_op_way){.threads = 1, .shards = shards}, &t->got, &t->got));
    for (int index = 1 + t->layer->input_count; result_at(t, index, &r); index++) {
        double bound = t->tolerance * largest(r.wanted, r.count);
        for (size_t i = 0; i < r.count; i++) {
            char place[96];
            if (fabs((double)r.got[i] - (double)r.wanted[i]) <= bound)
                continue;
            place_of(&r, i, place);
            return lk__fail(LK_STATUS_MISMATCH,
                            "op '%s', check `shards`: %s is %.9g in %d shards, but %.9g in %d; the gradient of a shard "
                            "must be the sum over its samples, whatever n is",
                            t->op, place, (double)r.wanted[i], SHARDS, (double)r.got[i], shards);
        }
    }
    return LK_OK;
}

static lk_status check_cuts(trial *t)
{
    LK_TRY(check_cut(t, 1));
    LK_TRY(check_cut(t, (int)t->n));
    report(t, "shards: gradients of parameters do not depend on the cut");
    return LK_OK;
}

/* A tensor whose gradient is checked. */
typedef struct probe {
    result r;
    float *values; /* those that forward reads, in t->got */
    bool is_param;
} probe;

/* The sum of dy * y, or of its magnitudes, over the samples [first,last). */
static double loss_of(const trial *t, const float *y, size_t first, size_t last, bool magnitude)
{
    double sum = 0;
    for (size_t i = first * y_floats(t); i < last * y_floats(t); i++) {
        double term = (double)t->got.dy[i] * (double)y[i];
        sum += magnitude ? fabs(term) : term;
    }
    return sum;
}

/* L with `delta` added to one value. The step that was taken, which rounding has changed, is added to *taken. */
static lk_status loss_at(trial *t, const probe *p, size_t i, double delta, double *taken, double *out)
{
    size_t first = p->is_param ? 0 : i / p->r.sample, last = p->is_param ? t->n : first + 1;
    float before = p->values[i], changed = (float)((double)before + delta);
    p->values[i] = changed;
    lk_status status = lk__op_rig_forward(&t->rigs[0], &t->got, t->got.y);
    p->values[i] = before;
    LK_TRY(status);
    *taken = (double)changed - (double)before;
    *out = loss_of(t, t->got.y, first, last, false);
    return LK_OK;
}

/* The derivative by value i, and by how much L is not smooth there: the slopes over 2h and over 4h differ, or the
 * change of the slope does not double with the step. At a kink one of the two is at least 0.8 times the error. */
static lk_status differ(trial *t, const probe *p, size_t i, double *slope, double *doubt)
{
    double at[5], step[5], h = STEP * fmax(1, fabs((double)p->values[i]));
    const double deltas[] = {h, -h, 2 * h, -2 * h, 0};
    for (int k = 0; k < 5; k++)
        LK_TRY(loss_at(t, p, i, deltas[k], &step[k], &at[k]));
    double near = (at[0] - at[1]) / (step[0] - step[1]), far = (at[2] - at[3]) / (step[2] - step[3]);
    double bend = (at[0] - at[4]) / step[0] - (at[1] - at[4]) / step[1];
    double wide = (at[2] - at[4]) / step[2] - (at[3] - at[4]) / step[3];
    *slope = (4 * near - far) / 3;
    *doubt = fmax(fabs(near - far), fabs(wide - 2 * bend));
    return LK_OK;
}

/* The elements to check: all, or PROBES of them by chance. */
static size_t probe_at(const trial *t, const probe *p, size_t k)
{
    lk_rng rng = lk__rng(t->opts->seed, LK_RNG_PURPOSE_AUGMENT, DRAW_PROBE, 0, p->is_param);
    return p->r.count <= PROBES ? k : lk__rng_u32(&rng, k) % p->r.count;
}

static lk_status compare(const trial *t, const probe *p, const double *slope, const double *doubt, size_t count)
{
    double most = 0, rounding = ROUNDING * loss_of(t, t->wanted.y, 0, t->n, true);
    size_t rough = 0;
    for (size_t k = 0; k < count; k++)
        most = fmax(most, fabs(slope[k]));
    double bound = t->tolerance * most + rounding;
    for (size_t k = 0; k < count; k++) {
        size_t i = probe_at(t, p, k);
        char place[96];
        if (doubt[k] > bound / 2) {
            rough++;
            continue;
        }
        if (fabs(slope[k] - (double)p->r.wanted[i]) <= bound)
            continue;
        place_of(&p->r, i, place);
        return lk__fail(LK_STATUS_MISMATCH,
                        "op '%s', check `gradients`: %s is %.6g, but finite differences of forward give %.6g (%.2g is "
                        "accepted)",
                        t->op, place, (double)p->r.wanted[i], slope[k], bound);
    }
    if (2 * rough > count)
        return lk__fail(LK_STATUS_MISMATCH,
                        "op '%s', check `gradients`: forward is not smooth at %zu of %zu elements for %s; choose "
                        "inputs by `low` and `high` where it is",
                        t->op, rough, count, p->r.name);
    return LK_OK;
}

static lk_status check_gradient(trial *t, const probe *p)
{
    double slope[PROBES], doubt[PROBES];
    size_t count = lk__size_min(p->r.count, PROBES);
    for (size_t k = 0; k < count; k++)
        LK_TRY(differ(t, p, probe_at(t, p, k), &slope[k], &doubt[k]));
    return compare(t, p, slope, doubt, count);
}

static lk_status check_gradients(trial *t)
{
    int inputs = t->layer->input_count;
    result r;
    for (int index = 1; result_at(t, index, &r); index++) {
        bool is_param = index > inputs;
        probe p = {.r = r, .is_param = is_param};
        p.values = is_param ? t->got.param[index - 1 - inputs] : t->got.x[index - 1];
        LK_TRY(check_gradient(t, &p));
    }
    report(t, "gradients: those of inputs and parameters are finite differences");
    return LK_OK;
}

static lk_status accept(const lk_graph *graph, lk_layer *layer)
{
    (void)graph;
    if (!lk__shape_sample(layer->shape))
        return lk__fail(LK_STATUS_USAGE, "lk_op_check: `x[%d]` has a size of 0: height %zu, width %zu, %zu channels",
                        layer->index, layer->shape.h, layer->shape.w, layer->shape.c);
    return LK_OK;
}

/* An input of the trial's graph, which may have several. */
static const lk_op given_op = {.name = "given", .infer = accept};

static lk_status build(trial *t, int inputs)
{
    const lk_op_check_opts *o = t->opts;
    lk_node x[LK_OP_MAX_INPUTS];
    LK_TRY(lk_graph_create(&t->graph));
    for (int i = 0; i < inputs; i++) {
        lk_layer layer = {.op = &given_op};
        layer.shape = (lk_shape){.n = 1, .c = o->x[i].channels, .h = o->x[i].height, .w = o->x[i].width};
        x[i] = lk__graph_add_layer(t->graph, layer, NULL, NULL, 0);
    }
    lk_op_add(t->graph, t->op, "checked", x, inputs, o->attr, o->attr_bytes);
    if (t->graph->status != LK_OK)
        return lk__fail(t->graph->status, "%s", t->graph->detail);
    t->layer = &t->graph->layers[t->graph->count - 1];
    return LK_OK;
}

/* First values as the op wants them, and a tenth more or less, so that none is special. */
static void draw_params(const trial *t, lk_op_arrays *a)
{
    for (int i = 0; i < t->layer->param_count; i++) {
        const lk_op_slot *slot = &t->layer->params[i];
        double middle = slot->fill == LK_OP_FILL_CONSTANT ? slot->spread : 0;
        double width = slot->fill == LK_OP_FILL_CONSTANT ? 0.1 * fmax(1, fabs(middle)) : slot->spread;
        draw(t, DRAW_PARAM + i, 0, middle - width, middle + width, param_floats(t, i), a->param[i]);
    }
}

static lk_status prepare(trial *t)
{
    LK_TRY(lk__op_arrays_init(t->layer, t->n, &t->wanted));
    LK_TRY(lk__op_arrays_init(t->layer, t->n, &t->got));
    draw_inputs(t, 0, &t->wanted);
    draw_params(t, &t->wanted);
    copy_inputs(t, &t->wanted, &t->got);
    for (int i = 0; i < THREADS && (i == 0 || t->rigs[0].dev->type->host_memory); i++)
        LK_TRY(lk__op_rig_init(t->layer, t->n, t->opts->device ? t->opts->device : "cpu", i + 1, &t->rigs[i]));
    return LK_OK;
}

static lk_status check_all(trial *t)
{
    static lk_status (*const checks[])(trial * t) = {check_outputs, check_state, check_samples,
                                                     check_ways,    check_cuts,  check_gradients};
    LK_TRY(prepare(t));
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        LK_TRY(checks[i](t));
    return LK_OK;
}

static lk_status check_opts(const lk_op_check_opts *o)
{
    LK_TRY(LK_CLEAR(o, "lk_op_check_opts"));
    if (o->samples > LK_OP_RIG_SAMPLES || (o->samples && o->samples < SHARDS))
        return lk__fail(LK_STATUS_USAGE, "lk_op_check: `samples` is %zu; %d to %d are possible", o->samples, SHARDS,
                        LK_OP_RIG_SAMPLES);
    if (!isfinite(o->low) || !isfinite(o->high) || o->low > o->high)
        return lk__fail(LK_STATUS_USAGE, "lk_op_check: inputs from `low` %g to `high` %g are impossible", o->low,
                        o->high);
    if (!(o->tolerance >= 0 && o->tolerance < 1))
        return lk__fail(LK_STATUS_USAGE, "lk_op_check: `tolerance` is %g; it must be in [0,1)", o->tolerance);
    return LK_OK;
}

lk_status lk_op_check(const char *op, const lk_op_check_opts *opts)
{
    LK_TRY(LK_GIVEN(op));
    LK_TRY(LK_GIVEN(opts));
    LK_TRY(check_opts(opts));
    int inputs;
    LK_TRY(lk__op_own_inputs(op, &inputs));
    trial t = {.opts = opts, .op = op, .n = opts->samples ? opts->samples : SAMPLES};
    t.tolerance = opts->tolerance > 0 ? opts->tolerance : 0.01;
    if (opts->report && opts->report_bytes)
        *opts->report = 0;
    lk_status status = build(&t, inputs);
    if (status == LK_OK)
        status = check_all(&t);
    for (int i = 0; i < THREADS; i++)
        lk__op_rig_fini(&t.rigs[i]);
    lk__op_arrays_fini(&t.got);
    lk__op_arrays_fini(&t.wanted);
    lk_graph_destroy(t.graph);
    return status;
}
