/* own_check.c - lk_op_check: runs an op of the program's own in different ways, and compares.
 *
 * A run is what a plan does with the layer: forward for all waves, then backward for all waves, on inputs and a dy
 * that are random. L is the sum of dy * y, so the gradients are those of L. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "nn/ops/own_rig.h"

enum { THREADS = 3, SHARDS = 3 };
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
    lk_op_report report;
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
        *out = (result){
            .name = "y", .count = t->n * y_floats(t), .sample = y_floats(t), .wanted = t->wanted.y, .got = t->got.y};
    } else if (index <= inputs) {
        int i = index - 1;
        *out = (result){
            .count = t->n * x_floats(t, i), .sample = x_floats(t, i), .wanted = t->wanted.dx[i], .got = t->got.dx[i]};
        snprintf(out->name, sizeof out->name, "dx[%d]", i);
    } else if (slot < t->layer->param_count) {
        *out = (result){.count = param_floats(t, slot), .wanted = t->wanted.grad[slot], .got = t->got.grad[slot]};
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

/* Which results a comparison looks at: bits, of which dx has one for each input. */
enum { LOOK_Y = 1, LOOK_GRAD = 2, LOOK_DX0 = 4, LOOK_DX = ((1 << LK_OP_MAX_INPUTS) - 1) * LOOK_DX0 };
enum { LOOK_ALL = LOOK_Y | LOOK_GRAD | LOOK_DX };

static bool looks_at(unsigned look, const trial *t, int index)
{
    int bit = index == 0 ? LOOK_Y : index <= t->layer->input_count ? LOOK_DX0 << (index - 1) : LOOK_GRAD;
    return look & (unsigned)bit;
}

static lk_status same_bits(const trial *t, unsigned look, const char *check, const char *why)
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
    lk__op_report_add(&t->report, "outputs: all elements are written and finite");
    return LK_OK;
}

static void draw_inputs(const trial *t, uint32_t turn, lk_op_arrays *a)
{
    const lk_op_check_opts *o = t->opts;
    for (int i = 0; i < t->layer->input_count; i++)
        lk__op_trial_draw(o->seed, DRAW_X + i, turn, (lk_op_range){o->low, o->high}, t->n * x_floats(t, i), a->x[i]);
    lk__op_trial_draw(o->seed, DRAW_DY, turn, (lk_op_range){-1, 1}, t->n * y_floats(t), a->dy);
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
    lk__op_report_add(&t->report, "state: equal calls give equal bits");
    return LK_OK;
}

static lk_status check_samples(trial *t)
{
    LK_TRY(run(t, (lk_op_way){.threads = 1, .shards = (int)t->n, .wave = 1}, &t->got, &t->got));
    LK_TRY(same_bits(t, LOOK_Y | LOOK_DX, "samples",
                     "when each sample is computed alone: results must not depend on other samples or on n"));
    lk__op_report_add(&t->report, "samples: each sample alone gives the same bits");
    return LK_OK;
}

/* The bits of all inputs in lk_op_way.no_dx. */
static unsigned all_inputs(const trial *t)
{
    return (1u << t->layer->input_count) - 1;
}

static lk_status check_way(trial *t, lk_op_way w)
{
    static const char *const left_out[] = {"", " and no dx[0]", " and no dx[1]", " and no gradient of inputs"};
    bool none = w.no_dx == all_inputs(t);
    char why[160], waves[32] = "one wave";
    if (w.wave)
        snprintf(waves, sizeof waves, "waves of %d shard%s", w.wave, w.wave == 1 ? "" : "s");
    snprintf(why, sizeof why, "with %d thread%s, %s%s", w.threads, w.threads == 1 ? "" : "s", waves,
             left_out[none ? 3 : w.no_dx]);
    LK_TRY(run(t, w, &t->got, &t->got));
    return same_bits(t, LOOK_ALL & ~(w.no_dx * LOOK_DX0), "threads", why);
}

static lk_status check_ways(trial *t)
{
    for (int threads = 1; threads <= THREADS && t->rigs[threads - 1].dev; threads++) {
        for (int wave = 0; wave < SHARDS; wave++)
            LK_TRY(check_way(t, (lk_op_way){.threads = threads, .shards = SHARDS, .wave = wave}));
        for (unsigned no_dx = 1; no_dx <= all_inputs(t); no_dx++)
            LK_TRY(check_way(t, (lk_op_way){.threads = threads, .shards = SHARDS, .no_dx = no_dx}));
    }
    lk__op_report_add(&t->report, "threads: 1, 2 and 3 threads, one wave and several, give the same bits");
    return LK_OK;
}

static lk_status check_cut(trial *t, int shards)
{
    result r;
    LK_TRY(run(t, (lk_op_way){.threads = 1, .shards = shards}, &t->got, &t->got));
    for (int index = 1 + t->layer->input_count; result_at(t, index, &r); index++) {
        double bound = t->tolerance * lk__op_trial_largest(r.wanted, r.count);
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
    lk__op_report_add(&t->report, "shards: gradients of parameters do not depend on the cut");
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

/* One value by which L is differentiated. */
typedef struct varied {
    trial *t;
    const probe *p;
    size_t i;
} varied;

/* L with `delta` added to the value; see lk_op_slope_fn. */
static lk_status loss_at(void *arg, double delta, double *taken, double *out)
{
    const varied *v = arg;
    trial *t = v->t;
    bool is_param = v->p->is_param;
    size_t first = is_param ? 0 : v->i / v->p->r.sample, last = is_param ? t->n : first + 1;
    float *value = &v->p->values[v->i], before = *value, changed = (float)((double)before + delta);
    *value = changed;
    lk_status status = lk__op_rig_forward(&t->rigs[0], &t->got, t->got.y);
    *value = before;
    LK_TRY(status);
    *taken = (double)changed - (double)before;
    *out = loss_of(t, t->got.y, first, last, false);
    return LK_OK;
}

static size_t probe_at(const trial *t, const probe *p, size_t k)
{
    return lk__op_trial_probe(t->opts->seed, DRAW_PROBE, p->is_param, p->r.count, k);
}

static lk_status compare(const trial *t, const probe *p, const lk_op_slope *slopes, size_t count)
{
    double bound = lk__op_slope_bound(slopes, count, t->tolerance, loss_of(t, t->wanted.y, 0, t->n, true));
    size_t rough = 0;
    for (size_t k = 0; k < count; k++) {
        size_t i = probe_at(t, p, k);
        char place[96];
        if (lk__op_slope_is_rough(slopes[k], bound)) {
            rough++;
            continue;
        }
        if (fabs(slopes[k].slope - (double)p->r.wanted[i]) <= bound)
            continue;
        place_of(&p->r, i, place);
        return lk__fail(LK_STATUS_MISMATCH,
                        "op '%s', check `gradients`: %s is %.6g, but finite differences of forward give %.6g (%.2g is "
                        "accepted)",
                        t->op, place, (double)p->r.wanted[i], slopes[k].slope, bound);
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
    lk_op_slope slopes[LK_OP_TRIAL_PROBES];
    size_t count = lk__size_min(p->r.count, LK_OP_TRIAL_PROBES);
    for (size_t k = 0; k < count; k++) {
        varied v = {.t = t, .p = p, .i = probe_at(t, p, k)};
        LK_TRY(lk__op_slope_find(loss_at, &v, (double)p->values[v.i], &slopes[k]));
    }
    return compare(t, p, slopes, count);
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
    lk__op_report_add(&t->report, "gradients: those of inputs and parameters are finite differences");
    return LK_OK;
}

static lk_status build(trial *t, int inputs)
{
    const lk_op_check_opts *o = t->opts;
    lk_node x[LK_OP_MAX_INPUTS];
    LK_TRY(lk_graph_create(&t->graph));
    for (int i = 0; i < inputs; i++)
        x[i] = lk__op_trial_input(t->graph, o->x[i]);
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
        lk__op_trial_draw(t->opts->seed, DRAW_PARAM + i, 0, (lk_op_range){middle - width, middle + width},
                          param_floats(t, i), a->param[i]);
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

static lk_status check_guards(trial *t)
{
    LK_TRY(lk__op_rig_check_guards(&t->rigs[0], t->op, &t->wanted));
    lk__op_report_add(&t->report, "guards: nothing is written outside of the results");
    return LK_OK;
}

static lk_status check_all(trial *t)
{
    /* The guards come first: later checks would break memory. */
    static lk_status (*const checks[])(trial * t) = {check_guards, check_outputs, check_state,    check_samples,
                                                     check_ways,   check_cuts,    check_gradients};
    LK_TRY(prepare(t));
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        LK_TRY(checks[i](t));
    return LK_OK;
}

static lk_status check_opts(const lk_op_check_opts *o)
{
    LK_TRY(LK_CLEAR(o, "lk_op_check_opts"));
    LK_TRY(lk__op_trial_check_samples("lk_op_check", o->samples, SHARDS));
    LK_TRY(lk__op_trial_check_range("lk_op_check", (const char *[2]){"low", "high"}, (lk_op_range){o->low, o->high}));
    return lk__op_trial_check_tolerance("lk_op_check", o->tolerance);
}

lk_status lk_op_check(const char *op, const lk_op_check_opts *opts)
{
    LK_TRY(LK_GIVEN(op));
    LK_TRY(LK_GIVEN(opts));
    LK_TRY(check_opts(opts));
    const lk_op_def *def;
    LK_TRY(lk__op_own_def(op, &def));
    trial t = {.opts = opts, .op = op, .n = opts->samples ? opts->samples : LK_OP_TRIAL_USUAL};
    t.tolerance = opts->tolerance > 0 ? opts->tolerance : 0.01;
    lk__op_report_begin(&t.report, opts->report, opts->report_bytes);
    lk_status status = build(&t, def->inputs);
    if (status == LK_OK)
        status = check_all(&t);
    for (int i = 0; i < THREADS; i++)
        lk__op_rig_fini(&t.rigs[i]);
    lk__op_arrays_fini(&t.got);
    lk__op_arrays_fini(&t.wanted);
    lk_graph_destroy(t.graph);
    return status;
}
