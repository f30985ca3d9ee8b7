/* own_loss_check.c - lk_loss_check: calls a loss of the program's own in different ways, and compares.
 *
 * `sample` is called by itself, with one sample at a time, in memory with guards. Then the layer runs on the device as
 * in a plan, with all samples or parts of them. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"
#include "base/tree.h"
#include "nn/ops/own_loss_rig.h"

/* Calls of each sample by the threads of a trial. */
enum { THREADS = 3, ROUNDS = 8 };
/* Limits the finite differences: for each element the loss is computed five times, from all floats of its sample. */
enum { PROBED_FLOATS = 1 << 22 };
/* Streams of random numbers. */
enum { DRAW_X, DRAW_TARGET, DRAW_WEIGHT, DRAW_PROBE };
/* The factor of gradients, which the device multiplies without rounding. */
static const float scale = 0.125f;

typedef struct trial {
    const lk_loss_check_opts *opts;
    const char *name;
    const lk_loss_def *def;
    lk_graph *graph;
    const lk_layer *layer;
    size_t n, floats, target_floats;
    double tolerance;
    lk_op_report report;
    lk_op_loss_arrays wanted, got;
    lk_device *cpu; /* has the arrays of single calls */
    lk_op_guarded x, target, dx;
} trial;

static lk_status differ(const trial *t, const char *check, const char *what, size_t sample, double wanted, double got,
                        const char *why)
{
    return lk__fail(LK_STATUS_MISMATCH, "loss '%s', check `%s`: %s of sample %zu is %.9g, but %.9g %s", t->name, check,
                    what, sample, wanted, got, why);
}

/* Compares the results of one sample by their bits. dx NULL: it was not computed. */
static lk_status same_bits(const trial *t, const char *check, size_t i, float loss, const float *dx, int32_t rank,
                           const char *why)
{
    const float *wanted = t->wanted.dx + i * t->floats;
    if (memcmp(&t->wanted.loss[i], &loss, sizeof loss) != 0)
        return differ(t, check, "the loss", i, (double)t->wanted.loss[i], (double)loss, why);
    if (t->wanted.rank[i] != rank)
        return differ(t, check, "the rank", i, t->wanted.rank[i], rank, why);
    for (size_t k = 0; dx && k < t->floats; k++) {
        char what[48];
        if (memcmp(&wanted[k], &dx[k], sizeof *dx) == 0)
            continue;
        snprintf(what, sizeof what, "element %zu of dx", k);
        return differ(t, check, what, i, (double)wanted[k], (double)dx[k], why);
    }
    return LK_OK;
}

static int32_t rank_of(const trial *t, const float *x, int32_t label, const float *target)
{
    int32_t rank = t->def->rank ? t->def->rank(t->def->arg, x, t->floats, label, target, t->target_floats) : -1;
    return rank < 0 ? INT32_MAX : rank;
}

static lk_status check_call(trial *t, const char *function, size_t i)
{
    char who[200];
    snprintf(who, sizeof who, "loss '%.127s', check `guards`: `%s` of sample %zu", t->name, function, i);
    LK_TRY(lk__op_guarded_check(t->cpu, &t->x, who, false));
    LK_TRY(lk__op_guarded_check(t->cpu, &t->target, who, false));
    return lk__op_guarded_check(t->cpu, &t->dx, who, true);
}

/* One call of `sample` and of `rank`, with or without dx, which contains NaN before. */
static lk_status call(trial *t, size_t i, size_t shift, bool back, lk_op_loss_arrays *out)
{
    float *x = t->wanted.x + i * t->floats, *targets = t->wanted.targets + i * t->target_floats;
    int32_t label = t->wanted.labels[i];
    LK_TRY(lk__op_guarded_fill(t->cpu, &t->dx, NAN, t->floats));
    LK_TRY(lk__op_guarded_put(t->cpu, &t->x, x, t->floats, shift));
    LK_TRY(lk__op_guarded_put(t->cpu, &t->target, targets, t->target_floats, shift));
    const float *at = lk__op_guarded_at(&t->x), *target = t->target_floats ? lk__op_guarded_at(&t->target) : NULL;
    out->loss[i] = t->def->sample(t->def->arg, at, t->floats, label, target, t->target_floats,
                                  back ? lk__op_guarded_at(&t->dx) : NULL);
    LK_TRY(check_call(t, "sample", i));
    if (back)
        memcpy(out->dx + i * t->floats, lk__op_guarded_seen(&t->dx), t->floats * sizeof *out->dx);
    out->rank[i] = rank_of(t, at, label, target);
    return check_call(t, "rank", i);
}

/* Also makes the results that the other checks compare with. */
static lk_status check_guards(trial *t)
{
    for (size_t i = 0; i < t->n; i++)
        LK_TRY(call(t, i, 0, true, &t->wanted));
    lk__op_report_add(&t->report, "guards: nothing is written outside of the results");
    return LK_OK;
}

static lk_status check_outputs(trial *t)
{
    for (size_t i = 0; i < t->n * t->floats; i++) {
        bool first = i % t->floats == 0;
        float loss = t->wanted.loss[i / t->floats], dx = t->wanted.dx[i];
        if (first && !isfinite(loss))
            return lk__fail(
                LK_STATUS_MISMATCH,
                "loss '%s', check `outputs`: the loss of sample %zu is %g; finite inputs must give a finite "
                "loss",
                t->name, i / t->floats, (double)loss);
        if (!isfinite(dx))
            return lk__fail(LK_STATUS_MISMATCH,
                            "loss '%s', check `outputs`: element %zu of dx of sample %zu is %s; every element must be "
                            "written, and finite (dx contains NaN before the call)",
                            t->name, i % t->floats, i / t->floats, isnan(dx) ? "NaN" : "infinite");
    }
    lk__op_report_add(&t->report, "outputs: all elements are written and finite");
    return LK_OK;
}

static lk_status check_state(trial *t)
{
    static const char again[] = "when the samples come in another order, at other addresses: the loss must depend on "
                                "its arguments only",
                      alone[] = "without dx: the loss must not depend on whether its gradient is wanted";
    for (size_t i = t->n; i-- > 0;) {
        LK_TRY(call(t, i, 1 + i % 3, true, &t->got));
        LK_TRY(same_bits(t, "state", i, t->got.loss[i], t->got.dx + i * t->floats, t->got.rank[i], again));
    }
    for (size_t i = 0; i < t->n; i++) {
        LK_TRY(call(t, i, 0, false, &t->got));
        LK_TRY(same_bits(t, "state", i, t->got.loss[i], NULL, t->got.rank[i], alone));
    }
    lk__op_report_add(&t->report, "state: equal calls give equal bits");
    return LK_OK;
}

/* Calls by several threads: task number k has sample k % n. */
typedef struct crowd {
    const trial *t;
    lk_op_loss_arrays out; /* of all tasks */
} crowd;

static void run_task(void *arg, size_t index, int thread)
{
    crowd *c = arg;
    const trial *t = c->t;
    size_t i = index % t->n;
    const float *x = t->wanted.x + i * t->floats;
    const float *target = t->target_floats ? t->wanted.targets + i * t->target_floats : NULL;
    int32_t label = t->wanted.labels[i];
    (void)thread;
    c->out.loss[index] =
        t->def->sample(t->def->arg, x, t->floats, label, target, t->target_floats, c->out.dx + index * t->floats);
    c->out.rank[index] = rank_of(t, x, label, target);
}

static lk_status check_crowd(const trial *t, int threads, crowd *c)
{
    char why[96];
    lk_pool *pool;
    LK_TRY(lk__pool_create(threads, true, &pool));
    lk__pool_run(pool, ROUNDS * t->n, run_task, c);
    lk__pool_destroy(pool);
    snprintf(why, sizeof why, "when %d thread%s at once: the loss must keep nothing between calls", threads,
             threads == 1 ? " calls" : "s call it");
    for (size_t k = 0; k < ROUNDS * t->n; k++)
        LK_TRY(same_bits(t, "threads", k % t->n, c->out.loss[k], c->out.dx + k * t->floats, c->out.rank[k], why));
    return LK_OK;
}

static lk_status check_threads(trial *t)
{
    crowd c = {.t = t};
    lk_status status = lk__op_loss_arrays_init(ROUNDS * t->n, t->floats, 0, &c.out);
    for (int threads = 1; threads <= THREADS && status == LK_OK; threads++)
        status = check_crowd(t, threads, &c);
    lk__op_loss_arrays_fini(&c.out);
    LK_TRY(status);
    lk__op_report_add(&t->report, "threads: 1, 2 and 3 threads get the same bits");
    return LK_OK;
}

/* What the device must give for sample i: the loss and its gradient times weight and scale. */
static float factor_of(const trial *t, bool weighted, size_t i)
{
    return weighted ? t->wanted.weights[i] : 1;
}

/* Compares a run on the device with `sample`; slack: the error that is accepted, relative to the largest number. */
static lk_status check_values(const trial *t, bool weighted, double slack)
{
    const lk_op_loss_arrays *a = &t->wanted, *b = &t->got;
    const char *why = weighted ? "on the device, which must multiply it by the sample's weight"
                               : "on the device, which must multiply the gradient by `scale`";
    double loss_bound = slack * lk__op_trial_largest(a->loss, t->n);
    double bound = slack * (double)scale * lk__op_trial_largest(a->dx, t->n * t->floats);
    for (size_t i = 0; i < t->n; i++) {
        float loss = factor_of(t, weighted, i) * a->loss[i];
        if (!(fabs((double)loss - (double)b->loss[i]) <= loss_bound))
            return differ(t, "shards", "the loss", i, (double)loss, (double)b->loss[i], why);
        if (a->rank[i] != b->rank[i])
            return differ(t, "shards", "the rank", i, a->rank[i], b->rank[i], "on the device");
        for (size_t k = 0; k < t->floats; k++) {
            float dx = scale * factor_of(t, weighted, i) * a->dx[i * t->floats + k], got = b->dx[i * t->floats + k];
            if (!(fabs((double)dx - (double)got) <= bound))
                return differ(t, "shards", "dx", i, (double)dx, (double)got, why);
        }
    }
    return LK_OK;
}

/* All samples at once, then in parts, which must give the same bits. */
static lk_status check_parts(trial *t, const lk_op_loss_rig *rig, bool weighted, lk_op_loss_arrays *whole)
{
    lk_op_loss_way way = {.part = t->n, .weighted = weighted, .scale = scale};
    LK_TRY(lk__op_loss_rig_run(rig, way, &t->wanted, &t->got));
    LK_TRY(check_values(t, weighted, rig->dev->type->host_memory ? 0 : t->tolerance));
    for (way.part = 1; way.part < t->n; way.part++) {
        LK_TRY(lk__op_loss_rig_run(rig, way, &t->wanted, whole));
        for (size_t i = 0; i < t->n; i++) {
            const float *a = t->got.dx + i * t->floats, *b = whole->dx + i * t->floats;
            bool same = memcmp(&t->got.loss[i], &whole->loss[i], sizeof(float)) == 0 &&
                        memcmp(a, b, t->floats * sizeof *a) == 0 && t->got.rank[i] == whole->rank[i];
            if (!same)
                return differ(t, "shards", "the loss", i, (double)t->got.loss[i], (double)whole->loss[i],
                              "in parts, or its dx or rank differs: a sample must not depend on others");
        }
    }
    return LK_OK;
}

static lk_status check_on(trial *t, const lk_op_loss_rig *rig)
{
    lk_op_loss_arrays parts;
    LK_TRY(lk__op_loss_rig_check_guards(rig, t->name, &t->wanted));
    lk_status status = lk__op_loss_arrays_init(t->n, t->floats, 0, &parts);
    for (int weighted = 0; weighted < 2 && status == LK_OK; weighted++)
        status = check_parts(t, rig, weighted, &parts);
    lk__op_loss_arrays_fini(&parts);
    return status;
}

static lk_status check_shards(trial *t)
{
    lk_op_loss_rig rig;
    lk_status status = lk__op_loss_rig_init(t->layer, t->n, t->opts->device ? t->opts->device : "cpu", 2, &rig);
    if (status == LK_OK)
        status = check_on(t, &rig);
    lk__op_loss_rig_fini(&rig);
    LK_TRY(status);
    lk__op_report_add(&t->report, "shards: all samples at once or in parts, with and without weights: the same bits");
    return LK_OK;
}

/* One value by which a loss is differentiated. */
typedef struct varied {
    const trial *t;
    size_t i; /* of x */
} varied;

static lk_status loss_at(void *arg, double delta, double *taken, double *out)
{
    const varied *v = arg;
    const trial *t = v->t;
    size_t sample = v->i / t->floats;
    float *x = t->got.x + sample * t->floats, before = t->got.x[v->i], changed = (float)((double)before + delta);
    t->got.x[v->i] = changed;
    *out = (double)t->def->sample(t->def->arg, x, t->floats, t->wanted.labels[sample],
                                  t->target_floats ? t->wanted.targets + sample * t->target_floats : NULL,
                                  t->target_floats, NULL);
    t->got.x[v->i] = before;
    *taken = (double)changed - (double)before;
    return LK_OK;
}

/* The number of elements of dx that are checked: all, unless that takes too long. */
static size_t probe_count(const trial *t)
{
    return lk__size_min(t->n * t->floats, lk__size_max(LK_OP_TRIAL_SAMPLES, PROBED_FLOATS / t->floats));
}

/* The elements are spread over the samples, and over the elements of a sample: sample k % n, and there one element of
 * each of equal parts, by chance. */
static size_t probe_at(const trial *t, size_t k)
{
    size_t count = probe_count(t), sample = k % t->n, turn = k / t->n;
    size_t turns = (count - sample - 1) / t->n + 1; /* of this sample */
    size_t first = lk__shard_begin(t->floats, (int)turns, (int)turn);
    size_t room = lk__shard_begin(t->floats, (int)turns, (int)turn + 1) - first;
    lk_rng rng = lk__rng(t->opts->seed, LK_RNG_PURPOSE_AUGMENT, DRAW_PROBE, 0, 0);
    return sample * t->floats + first + lk__rng_u32(&rng, k) % room;
}

static lk_status compare(const trial *t, const lk_op_slope *slopes, size_t count)
{
    double size = 0, bound;
    size_t rough = 0;
    for (size_t i = 0; i < t->n; i++)
        size += fabs((double)t->wanted.loss[i]);
    bound = lk__op_slope_bound(slopes, count, t->tolerance, size);
    for (size_t k = 0; k < count; k++) {
        size_t i = probe_at(t, k);
        double dx = (double)t->wanted.dx[i];
        if (lk__op_slope_is_rough(slopes[k], bound))
            rough++;
        else if (!(fabs(slopes[k].slope - dx) <= bound))
            return lk__fail(LK_STATUS_MISMATCH,
                            "loss '%s', check `gradients`: element %zu of dx of sample %zu is %.6g, but finite "
                            "differences of the loss give %.6g (%.2g is accepted)",
                            t->name, i % t->floats, i / t->floats, dx, slopes[k].slope, bound);
    }
    if (2 * rough > count)
        return lk__fail(LK_STATUS_MISMATCH,
                        "loss '%s', check `gradients`: the loss is not smooth at %zu of %zu elements; choose inputs by "
                        "`low` and `high`, and targets by `target_low` and `target_high`, where it is",
                        t->name, rough, count);
    return LK_OK;
}

static lk_status check_gradients(trial *t)
{
    lk_op_slope *slopes;
    size_t count = probe_count(t);
    lk_status status = LK_OK;
    LK_TRY(LK_ALLOC(count, "finite differences", &slopes));
    memcpy(t->got.x, t->wanted.x, t->n * t->floats * sizeof *t->got.x);
    for (size_t k = 0; k < count && status == LK_OK; k++) {
        varied v = {.t = t, .i = probe_at(t, k)};
        status = lk__op_slope_find(loss_at, &v, (double)t->got.x[v.i], &slopes[k]);
    }
    if (status == LK_OK)
        status = compare(t, slopes, count);
    lk__mem_free(slopes);
    LK_TRY(status);
    lk__op_report_add(&t->report, "gradients: dx is finite differences of the loss");
    return LK_OK;
}

static lk_status build(trial *t)
{
    LK_TRY(lk_graph_create(&t->graph));
    lk_loss(t->graph, lk__op_trial_input(t->graph, t->opts->x), t->name);
    if (t->graph->status != LK_OK)
        return lk__fail(t->graph->status, "%s", t->graph->detail);
    t->layer = &t->graph->layers[t->graph->count - 1];
    t->floats = lk__shape_sample(t->layer->shape);
    t->target_floats = t->layer->op->targets ? t->layer->op->targets(t->layer) : 0;
    return LK_OK;
}

/* Labels are the whole parts of uniform numbers. The first weight is 0, which is allowed. */
static lk_status prepare(trial *t)
{
    const lk_loss_check_opts *o = t->opts;
    lk_op_loss_arrays *a = &t->wanted;
    size_t last = t->opts->x.channels - 1;
    LK_TRY(lk__op_loss_arrays_init(t->n, t->floats, t->target_floats, a));
    LK_TRY(lk__op_loss_arrays_init(t->n, t->floats, t->target_floats, &t->got));
    lk__op_trial_draw(o->seed, DRAW_X, 0, (lk_op_range){o->low, o->high}, t->n * t->floats, a->x);
    lk__op_trial_draw(o->seed, DRAW_TARGET, 0, (lk_op_range){o->target_low, o->target_high}, t->n * t->target_floats,
                      a->targets);
    for (size_t i = 0; i < t->n && !t->target_floats; i++)
        a->labels[i] = (int32_t)(i % (last + 1));
    lk__op_trial_draw(o->seed, DRAW_WEIGHT, 0, (lk_op_range){0, 2}, t->n, a->weights);
    a->weights[0] = 0;
    LK_TRY(lk__device_open("cpu", &(lk_device_opts){.threads = 1}, &t->cpu));
    LK_TRY(lk__op_guarded_init(t->cpu, "x", t->floats, &t->x));
    LK_TRY(lk__op_guarded_init(t->cpu, "target", t->target_floats, &t->target));
    return lk__op_guarded_init(t->cpu, "dx", t->floats, &t->dx);
}

static lk_status check_all(trial *t)
{
    static lk_status (*const checks[])(trial * t) = {check_guards,  check_outputs, check_state,
                                                     check_threads, check_shards,  check_gradients};
    LK_TRY(build(t));
    LK_TRY(prepare(t));
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        LK_TRY(checks[i](t));
    return LK_OK;
}

static lk_status check_opts(const lk_loss_check_opts *o)
{
    static const char function[] = "lk_loss_check";
    LK_TRY(LK_CLEAR(o, "lk_loss_check_opts"));
    if (!o->x.height || !o->x.width || !o->x.channels)
        return lk__fail(LK_STATUS_USAGE, "lk_loss_check: `x` has a size of 0: height %zu, width %zu, %zu channels",
                        o->x.height, o->x.width, o->x.channels);
    LK_TRY(lk__op_trial_check_samples(function, o->samples, 2));
    LK_TRY(lk__op_trial_check_range(function, (const char *[2]){"low", "high"}, (lk_op_range){o->low, o->high}));
    LK_TRY(lk__op_trial_check_range(function, (const char *[2]){"target_low", "target_high"},
                                    (lk_op_range){o->target_low, o->target_high}));
    return lk__op_trial_check_tolerance(function, o->tolerance);
}

lk_status lk_loss_check(const char *loss, const lk_loss_check_opts *opts)
{
    LK_TRY(LK_GIVEN(loss));
    LK_TRY(LK_GIVEN(opts));
    LK_TRY(check_opts(opts));
    trial t = {.opts = opts, .name = loss, .n = opts->samples ? opts->samples : LK_OP_TRIAL_USUAL};
    LK_TRY(lk__op_own_loss(loss, &t.def));
    t.tolerance = opts->tolerance > 0 ? opts->tolerance : 0.01;
    lk__op_report_begin(&t.report, opts->report, opts->report_bytes);
    lk_status status = check_all(&t);
    if (t.cpu) {
        lk__op_guarded_fini(t.cpu, &t.x);
        lk__op_guarded_fini(t.cpu, &t.target);
        lk__op_guarded_fini(t.cpu, &t.dx);
        lk__device_close(t.cpu);
    }
    lk__op_loss_arrays_fini(&t.got);
    lk__op_loss_arrays_fini(&t.wanted);
    lk_graph_destroy(t.graph);
    return status;
}
