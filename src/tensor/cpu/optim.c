/* optim.c - one optimiser step over flat arrays, by PyTorch's rules.
 *
 * Elements are independent, so any range may be updated alone. Multiply and add are fused only where v_fma is
 * called. */
#include <assert.h>

#include "tensor/cpu/chunks.h"
#include "tensor/cpu/decls.h"

typedef struct step {
    size_t count;
    const void *rule; /* lk_sgd, lk_adam, lk_adadelta or lk_rmsprop */
    const float *grad;
    float *param;
    float *state[3];
} step;

/* The *_vector functions update the n <= V elements from i on. `full` is a constant at each call, so whole
 * vectors need no mask. */
#define LOAD(p) (full ? v_load((p) + i) : v_load_n((p) + i, n))
#define STORE(p, x) (full ? v_store((p) + i, (x)) : v_store_n((p) + i, (x), n))

static inline void sgd_vector(const step *s, const lk_sgd *sgd, size_t i, size_t n, bool full)
{
    v_f32 p = LOAD(s->param);
    v_f32 d = v_fma(v_set1(sgd->weight_decay), p, LOAD(s->grad));
    if (s->state[0]) {
        v_f32 momentum = v_set1(sgd->momentum), buffer = d;
        if (!sgd->first)
            buffer = v_fma(v_set1(1.0f - sgd->dampening), d, v_mul(momentum, LOAD(s->state[0])));
        STORE(s->state[0], buffer);
        d = sgd->nesterov ? v_fma(momentum, buffer, d) : buffer;
    }
    STORE(s->param, v_fma(v_set1(-sgd->lr), d, p));
}

static inline void adam_vector(const step *s, const lk_adam *adam, size_t i, size_t n, bool full)
{
    v_f32 p = LOAD(s->param), m = LOAD(s->state[0]), v = LOAD(s->state[1]);
    p = v_mul(v_set1(adam->shrink), p); /* exact if shrink is 1 */
    v_f32 g = v_fma(v_set1(adam->weight_decay), p, LOAD(s->grad));
    m = v_fma(v_set1(adam->one_minus_beta1), v_sub(g, m), m);
    v = v_fma(v_mul(v_set1(adam->one_minus_beta2), g), g, v_mul(v_set1(adam->beta2), v));
    v_f32 root = v_add(v_div(v_sqrt(v), v_set1(adam->root_correction)), v_set1(adam->eps));
    STORE(s->state[0], m);
    STORE(s->state[1], v);
    STORE(s->param, v_fma(v_set1(-adam->step_size), v_div(m, root), p));
}

static inline void adadelta_vector(const step *s, const lk_adadelta *rule, size_t i, size_t n, bool full)
{
    v_f32 p = LOAD(s->param), square = LOAD(s->state[0]), delta = LOAD(s->state[1]);
    v_f32 rho = v_set1(rule->rho), rest = v_set1(rule->one_minus_rho), eps = v_set1(rule->eps);
    v_f32 g = v_fma(v_set1(rule->weight_decay), p, LOAD(s->grad));
    square = v_fma(v_mul(rest, g), g, v_mul(rho, square));
    v_f32 change = v_mul(v_div(v_sqrt(v_add(delta, eps)), v_sqrt(v_add(square, eps))), g);
    delta = v_fma(v_mul(rest, change), change, v_mul(rho, delta));
    STORE(s->state[0], square);
    STORE(s->state[1], delta);
    STORE(s->param, v_fma(v_set1(-rule->lr), change, p));
}

static inline void rmsprop_vector(const step *s, const lk_rmsprop *rule, size_t i, size_t n, bool full)
{
    v_f32 p = LOAD(s->param), square = LOAD(s->state[0]);
    v_f32 g = v_fma(v_set1(rule->weight_decay), p, LOAD(s->grad)), rest = v_set1(rule->one_minus_alpha);
    square = v_fma(v_mul(rest, g), g, v_mul(v_set1(rule->alpha), square));
    STORE(s->state[0], square);
    if (s->state[2]) {
        v_f32 mean = LOAD(s->state[2]);
        mean = v_fma(rest, v_sub(g, mean), mean);
        STORE(s->state[2], mean);
        square = v_relu(v_sub(square, v_mul(mean, mean))); /* rounding may make it negative */
    }
    v_f32 d = v_div(g, v_add(v_sqrt(square), v_set1(rule->eps)));
    if (s->state[1]) {
        d = v_fma(v_set1(rule->momentum), LOAD(s->state[1]), d);
        STORE(s->state[1], d);
    }
    STORE(s->param, v_fma(v_set1(-rule->lr), d, p));
}

#define DEFINE_TASK(name)                                            \
    static void name##_task(void *arg, size_t index, int thread)     \
    {                                                                \
        (void)thread;                                                \
        const step *s = arg;                                         \
        lk_chunk_range range = lk__chunk(s->count, LK_CHUNK, index); \
        size_t i = range.begin;                                      \
        for (; i + V <= range.end; i += V)                           \
            name##_vector(s, s->rule, i, V, true);                   \
        if (i < range.end)                                           \
            name##_vector(s, s->rule, i, range.end - i, false);      \
    }

DEFINE_TASK(sgd)
DEFINE_TASK(adam)
DEFINE_TASK(adadelta)
DEFINE_TASK(rmsprop)

static void run_step(lk_device *dev, const lk_flag *flag, lk_pool_fn task, step *s)
{
    if (!flag || !flag->bad)
        lk__chunk_run(dev, s->count, task, s);
}

/* Values of this device are params themselves. */
static step step_of(size_t count, const lk_update_arrays *arrays)
{
    assert(!arrays->values);
    return (step){.count = count, .grad = arrays->grad, .param = arrays->param};
}

void LK_KERNEL(sgd_step)(lk_device *dev, const lk_sgd *sgd, const lk_flag *flag, size_t count,
                         const lk_update_arrays *arrays, float *buffer)
{
    step s = step_of(count, arrays);
    s.rule = sgd;
    s.state[0] = buffer;
    run_step(dev, flag, sgd_task, &s);
}

void LK_KERNEL(adam_step)(lk_device *dev, const lk_adam *adam, const lk_flag *flag, size_t count,
                          const lk_update_arrays *arrays, float *m, float *v)
{
    step s = step_of(count, arrays);
    s.rule = adam;
    s.state[0] = m;
    s.state[1] = v;
    run_step(dev, flag, adam_task, &s);
}

void LK_KERNEL(adadelta_step)(lk_device *dev, const lk_adadelta *adadelta, const lk_flag *flag, size_t count,
                              const lk_update_arrays *arrays, float *square, float *delta)
{
    step s = step_of(count, arrays);
    s.rule = adadelta;
    s.state[0] = square;
    s.state[1] = delta;
    run_step(dev, flag, adadelta_task, &s);
}

void LK_KERNEL(rmsprop_step)(lk_device *dev, const lk_rmsprop *rmsprop, const lk_flag *flag, size_t count,
                             const lk_update_arrays *arrays, const lk_rmsprop_state *state)
{
    step s = step_of(count, arrays);
    s.rule = rmsprop;
    s.state[0] = state->square;
    s.state[1] = state->buffer;
    s.state[2] = state->mean;
    run_step(dev, flag, rmsprop_task, &s);
}
