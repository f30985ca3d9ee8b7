/* test_clip.c - the norm of a gradient has the same bits for a whole model and for the model cut into
 * stages; clipping with that norm. */
#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "parallel/step/clip.h"
#include "processes.h"

enum { MAX_STAGES = 8 };

/* The norm of the gradient; clips it if there is a limit. */
static lk_status take_norm(lk_params *params, lk_group *pipe, double limit, double *out)
{
    LK_TRY(lk__clip_prepare(params));
    lk__clip_squares(params, 0, params->count);
    LK_TRY(lk__clip_fold(params, pipe, limit));
    if (limit > 0)
        lk__clip_scale(params, NULL);
    return lk__clip_norm(params, out);
}

/* Makes the layers [first,last) of a model with a gradient; the gaps of the array have a value that
 * must not count. */
static lk_params *make_params(const lk_graph *graph, lk_device *dev, int first, int last, float gap)
{
    lk_params *params;
    if (lk__params_create(graph, dev, first, last, &params) != LK_OK)
        return NULL;
    params->grads = malloc((params->count + 1) * sizeof *params->grads);
    for (size_t i = 0; i <= params->count; i++)
        params->grads[i] = gap;
    for (int i = first; i < last; i++) {
        for (int slot = 0; slot < graph->layers[i].param_count; slot++) {
            float *grad = params->grads + params->param_offset[i][slot];
            lk_rng rng = lk__rng(5, LK_RNG_PURPOSE_DIGITS, (uint32_t)i, 0, (uint32_t)slot);
            for (size_t k = 0; k < lk__op_slot_count(&graph->layers[i].params[slot]); k++)
                grad[k] = (lk__rng_unit(lk__rng_u32(&rng, k)) - 0.5f) * (float)(i + 1);
        }
    }
    return params;
}

static void free_params(lk_params *params)
{
    free(params->grads);
    lk__params_destroy(params);
}

/* One rank with the layers [first,last). */
typedef struct stage {
    const lk_graph *graph;
    lk_group *group;
    int first, last, threads;
    lk_status status;
    double norm;
} stage;

static void run_stage(int number, void *arg)
{
    stage *self = (stage *)arg + number;
    lk_device *dev = NULL;
    self->status = lk__device_open("cpu", &(lk_device_opts){.threads = self->threads}, &dev);
    if (self->status != LK_OK)
        return;
    lk_params *params = make_params(self->graph, dev, self->first, self->last, 1e30f);
    self->status = params ? LK_OK : LK_STATUS_MEMORY;
    /* Blocks of other stages must not count the second time either. */
    for (int i = 0; i < 2 && self->status == LK_OK; i++)
        self->status = take_norm(params, self->group, 0, &self->norm);
    if (params)
        free_params(params);
    lk__device_close(dev);
}

/* Stage s has the layers [cuts[s], cuts[s+1]); every stage must find the norm `want`. */
static void check_cut(const lk_graph *graph, int stages, const int *cuts, double want)
{
    lk_group *groups[MAX_STAGES];
    stage ranks[MAX_STAGES];
    assert_ok(lk_group_create_threads(stages, NULL, groups));
    for (int s = 0; s < stages; s++)
        ranks[s] =
            (stage){.graph = graph, .group = groups[s], .first = cuts[s], .last = cuts[s + 1], .threads = s % 3 + 1};
    threads_run(stages, run_stage, ranks);
    for (int s = 0; s < stages; s++) {
        assert_int_equal(ranks[s].status, LK_OK);
        if (memcmp(&ranks[s].norm, &want, sizeof want) != 0)
            fail_msg("stage %d of %d, from layer %d, finds %.17g, not %.17g", s, stages, cuts[s], ranks[s].norm, want);
    }
    for (int s = stages - 1; s >= 0; s--)
        lk_group_destroy(groups[s]);
}

/* The norm by plain addition in long double. */
static double plain_norm(const lk_params *params, size_t *terms)
{
    long double sum = 0;
    *terms = 0;
    for (int i = params->first; i < params->last; i++) {
        for (int slot = 0; slot < params->graph->layers[i].param_count; slot++) {
            const float *grad = params->grads + params->param_offset[i][slot];
            size_t count = lk__op_slot_count(&params->graph->layers[i].params[slot]);
            for (size_t k = 0; k < count; k++)
                sum += (long double)grad[k] * (long double)grad[k];
            *terms += count;
        }
    }
    return (double)sqrtl(sum);
}

static lk_graph *build(const char *model)
{
    lk_graph *graph;
    assert_ok(lk_model_build(model, (lk_model_shape){3, 32, 32, 10}, &graph));
    return graph;
}

/* The norm of the whole model on one rank, checked against plain addition. */
static double whole_norm(const lk_graph *graph)
{
    stage whole = {.graph = graph, .last = graph->count, .threads = 1};
    run_stage(0, &whole);
    assert_ok(whole.status);
    lk_device *dev;
    assert_ok(lk__device_open("cpu", &(lk_device_opts){.threads = 1}, &dev));
    size_t terms;
    lk_params *params = make_params(graph, dev, 0, graph->count, 0);
    double plain = plain_norm(params, &terms);
    /* Each addition rounds by 2^-53 at most; the root halves the error. */
    assert_true(plain > 0 && fabs(whole.norm - plain) <= (double)terms * 0x1p-53 * plain);
    free_params(params);
    lk__device_close(dev);
    return whole.norm;
}

static void check_model(const char *model)
{
    lk_graph *graph = build(model);
    double want = whole_norm(graph);
    int n = graph->count, step = n > 16 ? n / 8 : 1;
    check_cut(graph, 1, (int[]){0, n}, want);
    for (int cut = 1; cut < n; cut += step)
        check_cut(graph, 2, (int[]){0, cut, n}, want);
    for (int cut = 2; cut < n; cut += 2 * step)
        check_cut(graph, 3, (int[]){0, cut / 2, cut, n}, want);
    check_cut(graph, 5, (int[]){0, 1, 2, 2, n - 1, n}, want);
    lk_graph_destroy(graph);
}

static void test_stages_do_not_show(void **state)
{
    check_model("mlp");
    check_model("cnn");
    check_model("resnet20:width=4");
}

static void test_clip(void **state)
{
    lk_graph *graph = build("mlp");
    lk_device *dev;
    assert_ok(lk__device_open("cpu", &(lk_device_opts){.threads = 2}, &dev));
    lk_params *params = make_params(graph, dev, 0, graph->count, 0);
    size_t bytes = params->count * sizeof *params->grads;
    float *before = malloc(bytes);
    memcpy(before, params->grads, bytes);
    double norm, after;
    assert_ok(take_norm(params, NULL, 0, &norm));

    assert_ok(take_norm(params, NULL, norm * 1.01, &after));
    assert_true(after == norm);
    assert_memory_equal(params->grads, before, bytes);

    double limit = norm / 7;
    assert_ok(take_norm(params, NULL, limit, &after));
    assert_true(after == norm);
    float factor = (float)(limit / (norm + 1e-6));
    for (size_t i = 0; i < params->count; i++) {
        if (params->grads[i] != before[i] * factor)
            fail_msg("element %zu is %.9g", i, (double)params->grads[i]);
    }
    /* The factor and the products are rounded to f32. */
    assert_ok(take_norm(params, NULL, 0, &after));
    assert_true(fabs(after - limit) <= limit * (2 * 0x1p-24 + 1e-6 / norm));
    free(before);
    free_params(params);
    lk__device_close(dev);
    lk_graph_destroy(graph);
}

/* Ranges of any length, one after the other, give the blocks of the whole. */
static void test_ranges(void **state)
{
    static const size_t lengths[] = {16, 1000, LK_NORM_BLOCK, LK_NORM_BLOCK + 16, 5 * LK_NORM_BLOCK - 48, 1 << 20};
    lk_graph *graph = build("cnn");
    lk_device *dev;
    assert_ok(lk__device_open("cpu", &(lk_device_opts){.threads = 2}, &dev));
    lk_params *params = make_params(graph, dev, 0, graph->count, 1e30f);
    double want, got;
    assert_ok(take_norm(params, NULL, 0, &want));
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        memset(params->squares, 0xff, lk__clip_blocks(params) * sizeof *params->squares);
        for (size_t begin = 0; begin < params->count; begin += lengths[i])
            lk__clip_squares(params, begin, lk__size_min(begin + lengths[i], params->count));
        assert_ok(lk__clip_fold(params, NULL, 0));
        assert_ok(lk__clip_norm(params, &got));
        assert_memory_equal(&got, &want, sizeof got);
    }
    free_params(params);
    lk__device_close(dev);
    lk_graph_destroy(graph);
}

/* Zeros stay zeros, and a NaN norm makes all gradients NaN, as in PyTorch. */
static void test_odd_norms(void **state)
{
    lk_graph *graph = build("mlp");
    lk_device *dev;
    assert_ok(lk__device_open("cpu", &(lk_device_opts){.threads = 1}, &dev));
    lk_params *params = make_params(graph, dev, 0, graph->count, 0);
    memset(params->grads, 0, params->count * sizeof *params->grads);
    double norm = -1;
    assert_ok(take_norm(params, NULL, 1e-9, &norm));
    assert_true(norm == 0);
    assert_true(params->grads[0] == 0);
    params->grads[0] = NAN;
    assert_ok(take_norm(params, NULL, 1, &norm));
    assert_true(isnan(norm));
    assert_true(isnan(params->grads[1]));
    free_params(params);
    lk__device_close(dev);
    lk_graph_destroy(graph);
}

TEST_MAIN(NULL, NULL, TEST(test_stages_do_not_show), TEST(test_ranges), TEST(test_clip), TEST(test_odd_norms))
