/* test_models.c - models against PyTorch: keys, shapes and counts; 30 steps of cnn and mlp; one step of resnet20,
 * by samples of every tensor (large_resnet20.c compares whole tensors). */
#include "golden/samples.h"

#include <cjson/cJSON.h>

#define DATA LK_TESTS_DIR "/golden/data"

enum { BATCH = 16, SMOOTH_BATCH = 8, STEPS = 30 };

static const lk_model_shape mnist = {.channels = 1, .height = 28, .width = 28, .classes = 10};
static const lk_model_shape cifar = {.channels = 3, .height = 32, .width = 32, .classes = 10};

static lk_engine *make_engine(const char *model, lk_model_shape shape, lk_engine_opts opts)
{
    lk_graph *graph;
    lk_engine *engine;
    assert_ok(lk_model_build(model, shape, &graph));
    assert_ok(lk_engine_create(graph, &opts, &engine));
    lk_graph_destroy(graph);
    return engine;
}

static cJSON *load_table(void)
{
    FILE *file = fopen(DATA "/models.json", "rb");
    assert_non_null(file);
    char *text = golden_alloc(1 << 16, 1);
    size_t length = fread(text, 1, (1 << 16) - 1, file);
    fclose(file);
    cJSON *table = cJSON_ParseWithLength(text, length);
    free(text);
    assert_non_null(table);
    return table;
}

static void check_entry(const cJSON *row, const lk_state_entry *entry)
{
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(row, "shape");
    if (!entry)
        fail_msg("there is no %s", row->string);
    assert_string_equal(lk_dtype_name(entry->dtype), cJSON_GetObjectItemCaseSensitive(row, "dtype")->valuestring);
    assert_int_equal(entry->ndim, cJSON_GetArraySize(shape));
    for (int i = 0; i < entry->ndim; i++)
        assert_int_equal(entry->dims[i], cJSON_GetArrayItem(shape, i)->valueint);
}

static void check_model(const cJSON *model)
{
    const cJSON *input = cJSON_GetObjectItemCaseSensitive(model, "input"), *row;
    const cJSON *keys = cJSON_GetObjectItemCaseSensitive(model, "state");
    lk_model_shape shape = cJSON_GetArrayItem(input, 0)->valueint == 1 ? mnist : cifar;
    lk_graph *graph;
    assert_ok(lk_model_build(model->string, shape, &graph));
    assert_int_equal(lk_graph_parameters(graph), cJSON_GetObjectItemCaseSensitive(model, "parameters")->valueint);
    lk_graph_destroy(graph);

    lk_state *state;
    lk_engine *engine =
        make_engine(model->string, shape, (lk_engine_opts){.threads = 1, .batch = 1, .optimizer = "sgd"});
    assert_ok(lk_engine_state(engine, &state));
    assert_int_equal(lk_state_count(state), cJSON_GetArraySize(keys));
    cJSON_ArrayForEach(row, keys) check_entry(row, lk_state_find(state, row->string));
    lk_state_destroy(state);
    lk_engine_destroy(engine);
}

static void test_keys_and_shapes(void **unused)
{
    cJSON *table = load_table(), *model;
    assert_int_equal(cJSON_GetArraySize(table), 3);
    cJSON_ArrayForEach(model, table) check_model(model);
    cJSON_Delete(table);
}

/* Steps follow each other: an error of one step affects all later steps. */
static void check_curve(const char *name, const char *model, const char *optimizer)
{
    lk_state *golden = golden_load(DATA, "models.safetensors");
    const lk_state_entry *losses = golden_get(golden, name, "losses");
    lk_engine *engine =
        make_engine(model, mnist, (lk_engine_opts){.threads = 2, .batch = BATCH, .optimizer = optimizer});
    golden_fill_engine(engine);
    assert_int_equal(golden_count(losses), STEPS);
    for (size_t step = 0; step < STEPS; step++) {
        lk_metrics metrics;
        golden_batch batch = golden_model_batch(name, step, BATCH, mnist);
        assert_ok(lk_engine_step(engine, &batch.view, &metrics));
        golden_batch_free(&batch);
        double truth = golden_at(losses, step);
        if (!(fabs(metrics.loss - truth) <= 1e-4))
            fail_msg("%s: the loss of step %zu is %.7f, PyTorch has %.7f", name, step, metrics.loss, truth);
    }
    lk_engine_destroy(engine);
    lk_state_destroy(golden);
}

static void test_cnn(void **unused)
{
    check_curve("cnn", "cnn:dropout=0", "adadelta");
}

static void test_mlp(void **unused)
{
    check_curve("mlp", "mlp", "adam");
}

static void check_all_samples(const lk_state *ours, const lk_state *golden, const char *part)
{
    assert_true(lk_state_count(ours) > 0);
    for (size_t i = 0; i < lk_state_count(ours); i++)
        golden_check_samples(lk_state_at(ours, i), golden, part);
}

static void test_resnet20_step(void **unused)
{
    lk_state *golden = golden_load(DATA, "models.safetensors"), *grads, *state;
    lk_engine_opts opts = {.threads = 2, .batch = SMOOTH_BATCH, .optimizer = "sgd:momentum=.9", .lr = 0.1};
    lk_engine *engine = make_engine("resnet20", cifar, opts);
    golden_fill_engine(engine);
    size_t which = (size_t)golden_at(golden_get(golden, "resnet20", "batch"), 0);
    golden_batch batch = golden_model_batch("resnet20", which, SMOOTH_BATCH, cifar);
    lk_metrics metrics;
    assert_ok(lk_engine_step(engine, &batch.view, &metrics));
    golden_near("resnet20/loss", 0, metrics.loss, golden_at(golden_get(golden, "resnet20", "loss"), 0), 1);
    assert_ok(lk_engine_grads(engine, &grads));
    check_all_samples(grads, golden, "resnet20/grad");
    assert_ok(lk_engine_state(engine, &state));
    check_all_samples(state, golden, "resnet20/state");
    lk_state_destroy(grads);
    lk_state_destroy(state);
    lk_state_destroy(golden);
    lk_engine_destroy(engine);
    golden_batch_free(&batch);
}

TEST_MAIN(NULL, NULL, TEST(test_keys_and_shapes), TEST(test_cnn), TEST(test_mlp), TEST(test_resnet20_step))
