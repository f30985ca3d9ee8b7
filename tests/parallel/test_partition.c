/* test_partition.c - cutting a graph into stages: the cuts of the built-in models, no cut of all
 * possible ones is better, and the errors for impossible cuts. */
#include "check.h"
#include "nn/op.h"
#include "parallel/layout/partition.h"

static const lk_model_shape mnist = {1, 28, 28, 10}, cifar = {3, 32, 32, 10};

static lk_graph *build(const char *model)
{
    lk_graph *graph = NULL;
    assert_int_equal(lk_model_build(model, strncmp(model, "resnet", 6) == 0 ? cifar : mnist, &graph), LK_OK);
    return graph;
}

/* Writes the first layers of stages 1, 2 ..., by name or by operation. */
static void cut_text(const lk_graph *graph, const char *spec, char text[1024])
{
    int stages = 0, first[LK_MAX_STAGES + 1];
    if (lk__partition(graph, spec, &stages, first) != LK_OK)
        fail_msg("%s: %s", spec, lk_error_detail());
    assert_int_equal(first[0], 1);
    assert_int_equal(first[stages], graph->count);
    text[0] = '\0';
    for (int s = 1; s < stages; s++) {
        const lk_layer *layer = &graph->layers[first[s]];
        size_t used = strlen(text);
        assert_true(first[s - 1] < first[s] && first[s] < graph->count);
        snprintf(text + used, 1024 - used, "%s%s", s > 1 ? " " : "", layer->name[0] ? layer->name : layer->op->name);
    }
}

static void expect(const char *model, const char *spec, const char *cuts)
{
    char text[1024];
    lk_graph *graph = build(model);
    cut_text(graph, spec, text);
    if (strcmp(text, cuts) != 0)
        fail_msg("%s, `stages` %s: cut at \"%s\", not \"%s\"", model, spec, text, cuts);
    lk_graph_destroy(graph);
}

static void numbers(void **state)
{
    expect("mlp", "1", "");
    expect("mlp", "2", "chunk1.3");
    expect("mlp", "3", "chunk1.3 chunk2.0");
    expect("mlp", "4", "chunk1.3 chunk2.0 chunk2.2");
    expect("cnn", "1", "");
    expect("cnn", "2", "fc1");
    expect("cnn", "3", "conv2 fc1");
    expect("cnn", "4", "conv2 fc1 fc2");
    expect("resnet20", "1", "");
    expect("resnet20", "2", "layer2.1.conv1");
    expect("resnet20", "3", "layer2.0.conv1 layer3.0.conv1");
    expect("resnet20", "11",
           "layer1.0.conv1 layer1.1.conv1 layer1.2.conv1 layer2.0.conv1 layer2.1.conv1 layer2.2.conv1 layer3.0.conv1 "
           "layer3.1.conv1 layer3.2.conv1 fc");
}

/* More stages than clean cuts: as few other cuts as possible. */
static void torn_apart(void **state)
{
    expect("mlp", "5", "chunk1.1 chunk1.3 chunk2.0 chunk2.2");
    expect("mlp", "9", "chunk1.1 relu chunk1.3 relu chunk2.0 relu chunk2.2 cross_entropy");
    expect("cnn", "5", "conv2 relu fc1 fc2");
}

static void names(void **state)
{
    expect("mlp", "chunk2", "chunk2.0");
    expect("mlp", "chunk2.0", "chunk2.0");
    expect("mlp", "chunk1,chunk2", "chunk1.1 chunk2.0");
    expect("mlp", "chunk1.3,chunk2,chunk2.2", "chunk1.3 chunk2.0 chunk2.2");
    expect("cnn", "fc1,fc2", "fc1 fc2");
    expect("cnn", "conv2", "conv2");
    expect("resnet20", "layer2", "layer2.0.conv1");
    expect("resnet20", "layer1.1,layer2,layer3.2,fc", "layer1.1.conv1 layer2.0.conv1 layer3.2.conv1 fc");
    expect("resnet20", "bn1", "bn1");
}

static void refuse(const char *model, const char *spec, const char *part)
{
    lk_graph *graph = build(model);
    int stages = 7, first[LK_MAX_STAGES + 1] = {42};
    assert_int_equal(lk__partition(graph, spec, &stages, first), LK_STATUS_USAGE);
    assert_int_equal(stages, 7);
    assert_int_equal(first[0], 42);
    assert_detail("`stages`");
    assert_detail(part);
    lk_graph_destroy(graph);
}

static void bad_numbers(void **state)
{
    refuse("mlp", "0", "there can be 1 to 256 stages");
    refuse("mlp", "-2", "there can be 1 to 256 stages");
    refuse("mlp", "257", "there can be 1 to 256 stages");
    refuse("mlp", "99999999999999999999", "no layer '99999999999999999999'");
    refuse("mlp", "10", "at most 9 stages");
    refuse("cnn", "14", "at most 13 stages");
    refuse("resnet20", "100", "at most 25 stages");
}

static void bad_names(void **state)
{
    refuse("mlp", "", "neither a number nor names");
    refuse("mlp", "chunk2,", "neither a number nor names");
    refuse("mlp", ",chunk2", "neither a number nor names");
    refuse("mlp", "chunk3", "did you mean 'chunk1'? (a stage can begin at: chunk1, chunk2)");
    refuse("mlp", "nolayer", "no layer 'nolayer' (a stage can begin at: chunk1, chunk2)");
    refuse("mlp", "no.layer", "no layer 'no.layer' (a stage can begin at: chunk1.1, chunk1.3, chunk2.0, chunk2.2)");
    refuse("cnn", "nolayer", "(a stage can begin at: conv2, fc1, fc2)");
    refuse("mlp", "chunk2.", "no layer 'chunk2.'");
    refuse("mlp", "chunk", "no layer 'chunk'");
    refuse("cnn", "fc3", "no layer 'fc3'; did you mean 'fc");
    refuse("cnn", "conv2,2", "no layer '2'");
    refuse("resnet20", "layr2", "did you mean 'layer2'?");
    refuse("resnet20", "layer2.o.conv1", "did you mean 'layer2.0.conv1'?");
    refuse("cnn", "fc2,fc1", "'fc1' comes before 'fc2' in the model");
    refuse("cnn", "fc1,fc1", "'fc1' is where stage 1 begins already");
    refuse("mlp", "chunk2,chunk2.0", "'chunk2.0' is where stage 1 begins already");
    refuse("cnn", "conv1", "'conv1' is the model's first layer");
    refuse("resnet20", "conv1,layer2", "'conv1' is the model's first layer");
}

/* A residual connection crosses the cut: the error names it and the nearest possible cuts. */
static void crossed(void **state)
{
    refuse("resnet20", "layer2.1.conv2",
           "no stage can begin at 'layer2.1.conv2': the connection from relu after layer2.0.downsample.1 to add after "
           "layer2.1.bn2 would cross the cut; the nearest that it can begin at: 'layer2.1.conv1' or 'layer2.2.conv1'");
    refuse("resnet20", "layer2.0.downsample",
           "the connection from relu after layer1.2.bn2 to layer2.0.downsample.0 would cross the cut; the nearest that "
           "it can begin at: 'layer2.0.conv1' or 'layer2.1.conv1'");
    refuse("resnet20", "layer1,layer3.2.bn2", "'layer3.2.conv1' or 'fc'");
    refuse("resnet20", "layer1.0.bn1", "the nearest that it can begin at: 'layer1.0.conv1' or 'layer1.1.conv1'");
}

/* The cost of a layer, from its operation. */
static double cost_of(const lk_graph *graph, int index, int first_with_parameters)
{
    const lk_layer *layer = &graph->layers[index];
    double passes = index > first_with_parameters ? 3 : 2, cost = 0;
    lk_shape x = lk__op_input_shape(graph, layer, 0), y = layer->shape;
    if (layer->op == &lk__op_conv2d)
        return passes * 2 * (double)(layer->attr.conv.h.kernel * layer->attr.conv.w.kernel * x.c * y.c * y.h * y.w);
    if (layer->op == &lk__op_linear)
        return passes * 2 * (double)(x.c * x.h * x.w * y.c);
    for (int i = 0; i < layer->input_count; i++)
        cost += 2 * (double)lk__shape_count(lk__op_input_shape(graph, layer, i));
    return cost;
}

static double most_costly(const lk_graph *graph, int stages, const int *first)
{
    double most = 0;
    int lead = 1;
    while (graph->layers[lead].param_count == 0)
        lead++;
    for (int s = 0; s < stages; s++) {
        double cost = 0;
        for (int i = first[s]; i < first[s + 1]; i++)
            cost += cost_of(graph, i, lead);
        most = cost > most ? cost : most;
    }
    return most;
}

/* Tries all ways to cut before the given layers; best is the first of the best ways. */
static void try_all(const lk_graph *graph, const int *places, int count, int stages, int *best)
{
    int pick[LK_MAX_STAGES], first[LK_MAX_STAGES + 1] = {1};
    double least = -1;
    for (int s = 0; s < stages - 1; s++)
        pick[s] = s;
    for (;;) {
        for (int s = 1; s < stages; s++)
            first[s] = places[pick[s - 1]];
        first[stages] = graph->count;
        double most = most_costly(graph, stages, first);
        if (least < 0 || most < least) {
            least = most;
            memcpy(best, first, ((size_t)stages + 1) * sizeof *best);
        }
        int s = stages - 2;
        while (s >= 0 && pick[s] == count - (stages - 1) + s)
            s--;
        if (s < 0)
            return;
        pick[s]++;
        for (s++; s < stages - 1; s++)
            pick[s] = pick[s - 1] + 1;
    }
}

/* Lists the layers at which a user would cut: not conv2 of a block, shortcuts or BatchNorms. */
static int find_places(const lk_graph *graph, int *places)
{
    int count = 0;
    bool seen = false;
    for (int i = 1; i < graph->count; i++) {
        const lk_layer *layer = &graph->layers[i];
        bool weights = layer->op == &lk__op_conv2d || layer->op == &lk__op_linear;
        bool inner = strstr(layer->name, ".conv2") || strstr(layer->name, "downsample");
        if (weights && seen && !inner)
            places[count++] = i;
        seen = seen || weights;
    }
    return count;
}

static void no_cut_is_better(void **state)
{
    static const char *const models[] = {"mlp", "mlp:hidden=1000", "cnn", "resnet20", "resnet20:width=64"};
    for (size_t m = 0; m < COUNT_OF(models); m++) {
        lk_graph *graph = build(models[m]);
        int places[64], best[LK_MAX_STAGES + 1] = {0}, got[LK_MAX_STAGES + 1] = {0}, stages = 0;
        int count = find_places(graph, places);
        for (int k = 2; k <= count + 1; k++) {
            char spec[16];
            snprintf(spec, sizeof spec, "%d", k);
            assert_int_equal(lk__partition(graph, spec, &stages, got), LK_OK);
            assert_int_equal(stages, k);
            try_all(graph, places, count, k, best);
            assert_memory_equal(got, best, ((size_t)k + 1) * sizeof *got);
        }
        lk_graph_destroy(graph);
    }
}

/* Of several equally good cuts the earliest is chosen. */
static void ties(void **state)
{
    lk_graph *graph = NULL;
    char text[1024];
    assert_int_equal(lk_graph_create(&graph), LK_OK);
    lk_node x = lk_input(graph, 8, 1, 1);
    for (int i = 0; i < 5; i++) {
        char name[16];
        snprintf(name, sizeof name, "fc%d", i);
        x = lk_linear(graph, x, name, 8);
    }
    lk_cross_entropy(graph, lk_linear(graph, x, "big", 1000));
    assert_int_equal(lk_graph_check(graph), LK_OK);
    cut_text(graph, "2", text);
    assert_string_equal(text, "big");
    cut_text(graph, "3", text);
    assert_string_equal(text, "fc1 big");
    cut_text(graph, "4", text);
    assert_string_equal(text, "fc1 fc2 big");
    lk_graph_destroy(graph);
}

TEST_MAIN(NULL, NULL, TEST(numbers), TEST(torn_apart), TEST(names), TEST(bad_numbers), TEST(bad_names), TEST(crossed),
          TEST(ties), TEST(no_cut_is_better))
