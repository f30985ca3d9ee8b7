/* test_output_names.c - names of outputs: those of builders, those of lk_name, and texts of layers without a name;
 * mistakes in them. */
#include "law.h"

#include "nn/graph.h"
#include "parallel/layout/partition.h"

static const lk_model_shape mnist = LAW_MNIST;

static lk_status create_with(const char *outputs, lk_engine **out)
{
    const law_case cnn = {"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "sgd", 0.05, 1, 8, .shards = 4};
    lk_engine_opts opts = law_opts(&cnn, &(law_way){.threads = 1});
    opts.outputs = outputs;
    return law_create(&cnn, &opts, out);
}

static void test_names(void **arg)
{
    lk_engine *engine;
    assert_fails(create_with("fc7", &engine), LK_STATUS_USAGE, "`outputs`: no node 'fc7'");
    assert_contains(lk_error_detail(), "conv1, relu after conv1");
    assert_contains(lk_error_detail(), "log_softmax after fc2");
    assert_fails(create_with("input", &engine), LK_STATUS_USAGE, "no node 'input'");
    assert_fails(create_with("nll_loss after fc2", &engine), LK_STATUS_USAGE, "no node");
    assert_fails(create_with("fc1,,fc2", &engine), LK_STATUS_USAGE, "`outputs` 'fc1,,fc2': name 2 is empty");
    assert_fails(create_with("", &engine), LK_STATUS_USAGE, "name 1 is empty");
    assert_fails(create_with("fc1,", &engine), LK_STATUS_USAGE, "name 2 is empty");
    law_require(create_with("relu after conv1,fc1", &engine));
    assert_int_equal(lk_engine_output_floats(engine, "relu after conv1"), 32 * 26 * 26);
    assert_int_equal(lk_engine_output_floats(engine, "fc1"), 128);
    assert_int_equal(lk_engine_output_floats(engine, "fc2"), 0);
    assert_int_equal(lk_engine_output_floats(NULL, NULL), 0);
    lk_engine_destroy(engine);
}

/* 0 input, 1 flatten, 2 fc, 3 ReLU, 4 ReLU, 5 loss */
static lk_graph *two_relus(const char *first)
{
    lk_graph *g;
    law_require(lk_graph_create(&g));
    lk_node x = lk_linear(g, lk_flatten(g, lk_input(g, 1, 2, 2)), "fc", 3);
    x = lk_relu(g, x);
    x = lk_relu(g, first ? lk_name(g, x, first) : x);
    lk_cross_entropy(g, x);
    return g;
}

static void test_names_of_users(void **arg)
{
    lk_engine *engine;
    lk_engine_opts opts = {.batch = 4, .threads = 1, .shards = 1, .outputs = "relu after fc"};
    lk_graph *g = two_relus(NULL);
    assert_fails(lk_engine_create(g, &opts, &engine), LK_STATUS_USAGE, "is layer 3 and also layer 4; give one a name");
    lk_graph_destroy(g);
    g = two_relus("first");
    opts.outputs = "first,relu after first,fc";
    law_require(lk_engine_create(g, &opts, &engine));
    lk_engine_destroy(engine);
    lk_graph_destroy(g);
    static const struct {
        const char *name, *part;
    } bad[] = {{"fc", "two layers are named 'fc'"},
               {"a,b", "commas separate names"},
               {"a b", "without blanks"},
               {"", "1 to 127 characters"}};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        g = two_relus(bad[i].name);
        assert_fails(lk_graph_check(g), LK_STATUS_USAGE, bad[i].part);
        lk_graph_destroy(g);
    }
    assert_int_equal(lk_name(NULL, (lk_node){0}, "a").index, -1);
    law_require(lk_graph_create(&g));
    lk_name(g, (lk_node){0}, "a");
    assert_fails(lk_graph_check(g), LK_STATUS_USAGE, "lk_name: x");
    lk_graph_destroy(g);
}

/* The keys of a layer with two names are those of its builder, and the model stays the same. */
static void test_second_name(void **arg)
{
    lk_engine *engine;
    lk_state *state;
    lk_graph *g, *same;
    law_require(law_build("mlp", mnist, &g));
    law_require(law_build("mlp", mnist, &same));
    int first_layer = 1;
    while (strcmp(g->layers[first_layer].name, "chunk1.1") != 0)
        first_layer++;
    lk_name(g, (lk_node){.index = first_layer, .graph = g->id}, "hidden");
    assert_true(lk__graph_hash(g) == lk__graph_hash(same));
    lk_engine_opts opts = {.batch = 4, .threads = 1, .shards = 1, .outputs = "hidden,chunk1.1"};
    law_require(lk_engine_create(g, &opts, &engine));
    assert_true(lk_engine_output_floats(engine, "hidden") == lk_engine_output_floats(engine, "chunk1.1"));
    law_require(lk_engine_state(engine, &state));
    assert_non_null(lk_state_find(state, "chunk1.1.weight"));
    assert_null(lk_state_find(state, "hidden.weight"));
    int stages, first[LK_MAX_STAGES + 1];
    law_require(lk__partition(g, "chunk1.3", &stages, first));
    lk_state_destroy(state);
    lk_engine_destroy(engine);
    lk_graph_destroy(same);
    lk_graph_destroy(g);
}

TEST_MAIN(NULL, NULL, cmocka_unit_test(test_names), cmocka_unit_test(test_names_of_users),
          cmocka_unit_test(test_second_name))
