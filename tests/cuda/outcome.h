/* outcome.h - runs of an engine on a device, and their results, which are compared by bits. */
#ifndef LK_TESTS_CUDA_OUTCOME_H
#define LK_TESTS_CUDA_OUTCOME_H

#include "parallel/law.h"
#include "tensor/kernel_test.h"

enum { MAX_STEPS = 12 };

/* The results of a run. */
typedef struct outcome {
    double loss[MAX_STEPS];
    double norm[MAX_STEPS]; /* of the gradient, if it was clipped */
    lk_metrics evals[MAX_STEPS];
    lk_metrics eval;
    lk_state *first, *last, *optimizer;
} outcome;

static inline void outcome_free(outcome *o)
{
    lk_state_destroy(o->first);
    lk_state_destroy(o->last);
    lk_state_destroy(o->optimizer);
}

static inline lk_engine *make_engine(const law_case *c, const char *device, law_way way)
{
    lk_engine *engine;
    way.threads = 1;
    lk_engine_opts opts = law_opts(c, &way);
    opts.device = device;
    opts.precision = strcmp(device, "cpu") == 0 ? LK_PRECISION_FP32 : precision;
    law_require(law_create(c, &opts, &engine));
    return engine;
}

/* AT_ONCE may be a recorded step; IN_HALVES (gradients, then update) is not recorded. */
typedef enum step_way { AT_ONCE, IN_HALVES, SENT } step_way;

static inline double take_step(lk_engine *engine, const law_case *c, int step, step_way way)
{
    law_samples s = law_samples_make(c);
    lk_batch batch;
    lk_metrics metrics = {0};
    law_batch(c, step, s.x, s.labels, s.ids, &batch);
    if (way == SENT) {
        law_require(lk_engine_send(engine, &batch));
    } else if (way == AT_ONCE) {
        law_require(lk_engine_step(engine, &batch, &metrics));
    } else {
        law_require(lk_engine_gradients(engine, &batch, &metrics));
        law_require(lk_engine_update(engine));
    }
    law_samples_free(&s);
    return metrics.loss;
}

/* Evaluates a batch of `count` samples, or only sends it. */
static inline lk_metrics evaluate_samples(lk_engine *engine, const law_case *c, size_t count, bool only_send)
{
    law_case sized = *c;
    sized.batch = count;
    law_samples s = law_samples_make(&sized);
    lk_batch batch;
    lk_metrics metrics = {0};
    law_batch(&sized, 0, s.x, s.labels, s.ids, &batch);
    law_require(only_send ? lk_engine_send_eval(engine, &batch) : lk_engine_eval(engine, &batch, &metrics));
    law_samples_free(&s);
    return metrics;
}

static inline lk_metrics evaluate(lk_engine *engine, const law_case *c)
{
    return evaluate_samples(engine, c, c->batch, false);
}

static inline void keep_states(const lk_engine *engine, outcome *o)
{
    law_require(lk_engine_state(engine, &o->last));
    law_require(lk_engine_optimizer_state(engine, &o->optimizer));
}

static inline void finish(lk_engine *engine, const law_case *c, outcome *o)
{
    o->eval = evaluate(engine, c);
    keep_states(engine, o);
    lk_engine_destroy(engine);
}

static inline void keep_step(lk_engine *engine, const law_case *c, int i, step_way how, outcome *o)
{
    o->loss[i] = take_step(engine, c, c->first + i, how);
    o->norm[i] = c->clip_norm > 0 ? lk_engine_grad_norm(engine) : 0;
}

static inline outcome run_case(const law_case *c, const char *device, law_way way)
{
    outcome o = {0};
    lk_engine *engine = make_engine(c, device, way);
    law_require(lk_engine_state(engine, &o.first));
    for (int i = 0; i < c->steps; i++)
        keep_step(engine, c, i, way.halves ? IN_HALVES : AT_ONCE, &o);
    finish(engine, c, &o);
    return o;
}

static inline void print_difference(void *arg, const char *key, const char *what)
{
    fprintf(stderr, "%s: %s: %s\n", (const char *)arg, key, what);
}

static inline void same_states(const char *what, const lk_state *a, const lk_state *b)
{
    char name[64];
    snprintf(name, sizeof name, "%s", what);
    if (lk_state_compare(a, b, print_difference, name) != 0)
        fail_msg("%s: other bits", what);
}

static inline void same_outcomes(const char *what, const outcome *a, const outcome *b)
{
    for (int i = 0; i < MAX_STEPS; i++) {
        if (a->loss[i] != b->loss[i])
            fail_msg("%s: the loss of step %d is %.9g, and %.9g", what, i, a->loss[i], b->loss[i]);
        if (a->norm[i] != b->norm[i])
            fail_msg("%s: the norm in step %d is %.17g, and %.17g", what, i, a->norm[i], b->norm[i]);
        assert_memory_equal(&a->evals[i], &b->evals[i], sizeof a->evals[i]);
    }
    same_states(what, a->last, b->last);
    same_states(what, a->optimizer, b->optimizer);
    assert_true(a->eval.loss == b->eval.loss && a->eval.correct == b->eval.correct);
}

#endif
