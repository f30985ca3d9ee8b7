/* test_graph.c - building graphs: parameter counts of models, and the error of each mistake. */
#include <math.h>

#include <lockstep/lockstep.h>

#include "check.h"
#include "nn/graph.h"

static const lk_model_shape mnist = {1, 28, 28, 10};
static const lk_model_shape cifar = {3, 32, 32, 10};

static size_t parameters(const char *spec, lk_model_shape shape)
{
    lk_graph *graph;
    assert_int_equal(lk_model_build(spec, shape, &graph), LK_OK);
    size_t count = lk_graph_parameters(graph);
    lk_graph_destroy(graph);
    return count;
}

static void test_parameter_counts(void **arg)
{
    assert_int_equal(parameters("cnn", mnist), 1199882);
    assert_int_equal(parameters("mlp", mnist), 59210);
    assert_int_equal(parameters("resnet20", cifar), 272474);
}

static void test_unknown_model(void **arg)
{
    lk_graph *graph;
    assert_fails(lk_model_build("resnet2", cifar, &graph), LK_STATUS_USAGE, "resnet20");
    assert_fails(lk_model_build("cnn:dropuot=0", mnist, &graph), LK_STATUS_USAGE, "dropout");
    assert_fails(lk_model_build("cnn", (lk_model_shape){1, 3, 3, 10}, &graph), LK_STATUS_USAGE, "conv2");
}

typedef void (*mistake_fn)(lk_graph *graph);

static void kernel_too_large(lk_graph *graph)
{
    lk_conv2d(graph, lk_input(graph, 1, 4, 4), "conv", (lk_conv2d_opts){.out = 1, .kernel = 5});
}

static void no_flatten(lk_graph *graph)
{
    lk_linear(graph, lk_input(graph, 1, 4, 4), "fc", 3);
}

static void same_name(lk_graph *graph)
{
    lk_node x = lk_flatten(graph, lk_input(graph, 1, 4, 4));
    lk_linear(graph, lk_linear(graph, x, "fc", 3), "fc", 3);
}

static void unequal_add(lk_graph *graph)
{
    lk_node x = lk_input(graph, 1, 4, 4);
    lk_add(graph, x, lk_maxpool2d(graph, x, (lk_maxpool2d_opts){.kernel = 2}));
}

static void unequal_mul(lk_graph *graph)
{
    lk_node x = lk_input(graph, 1, 4, 4);
    lk_mul(graph, x, lk_maxpool2d(graph, x, (lk_maxpool2d_opts){.kernel = 2}));
}

static void unequal_concat(lk_graph *graph)
{
    lk_node x = lk_input(graph, 1, 4, 4);
    lk_concat(graph, x, lk_maxpool2d(graph, x, (lk_maxpool2d_opts){.kernel = 2}));
}

static void no_rows(lk_graph *graph)
{
    lk_embedding(graph, lk_input(graph, 6, 1, 1), "words", 0, 4);
}

static void no_width(lk_graph *graph)
{
    lk_embedding(graph, lk_input(graph, 6, 1, 1), "words", 4, 0);
}

static void many_rows(lk_graph *graph)
{
    lk_embedding(graph, lk_input(graph, 6, 1, 1), "words", (1 << 24) + 1, 4);
}

static void ids_of_image(lk_graph *graph)
{
    lk_embedding(graph, lk_input(graph, 1, 4, 4), "words", 10, 4);
}

static void ids_of_vectors(lk_graph *graph)
{
    lk_embedding(graph, lk_input(graph, 3, 1, 4), "words", 10, 4);
}

static void no_groups(lk_graph *graph)
{
    lk_groupnorm(graph, lk_input(graph, 6, 4, 4), "norm", 0);
}

static void uneven_groups(lk_graph *graph)
{
    lk_groupnorm(graph, lk_input(graph, 6, 4, 4), "norm", 4);
}

static void unnamed_layernorm(lk_graph *graph)
{
    lk_layernorm(graph, lk_input(graph, 6, 4, 4), NULL);
}

static void endless_maximum(lk_graph *graph)
{
    lk_global_maxpool(graph, lk_input(graph, 1, 1 << 12, (1 << 12) + 1));
}

static void unequal_matrices(lk_graph *graph)
{
    lk_node x = lk_input(graph, 3, 2, 4);
    lk_matmul(graph, x, x);
}

static void unequal_heads(lk_graph *graph)
{
    lk_node x = lk_input(graph, 4, 2, 4);
    lk_matmul(graph, x, lk_reshape(graph, x, 1, 4, 8));
}

static void same_axis(lk_graph *graph)
{
    lk_transpose(graph, lk_input(graph, 3, 4, 4), 2, 2);
}

static void sample_axis(lk_graph *graph)
{
    lk_transpose(graph, lk_input(graph, 3, 4, 4), 0, 1);
}

static void other_count(lk_graph *graph)
{
    lk_reshape(graph, lk_input(graph, 3, 4, 4), 1, 7, 7);
}

static void wrapped_count(lk_graph *graph)
{
    lk_reshape(graph, lk_input(graph, 4, 4, 4), SIZE_MAX / 4 + 1, 4, 64);
}

static void no_features(lk_graph *graph)
{
    lk_linear(graph, lk_input(graph, 3, 1, 4), "fc", 0);
}

static void transpose_of(lk_graph *graph, lk_conv_transpose2d_opts opts)
{
    lk_conv_transpose2d(graph, lk_input(graph, 6, 4, 4), "up", opts);
}

static void no_kernel(lk_graph *graph)
{
    transpose_of(graph, (lk_conv_transpose2d_opts){.out = 3});
}

static void wide_out_pad(lk_graph *graph)
{
    transpose_of(graph, (lk_conv_transpose2d_opts){.out = 3, .kernel = 3, .stride = 2, .out_pad = 2});
}

static void wide_pad(lk_graph *graph)
{
    transpose_of(graph, (lk_conv_transpose2d_opts){.out = 3, .kernel = 3, .pad = 3});
}

static void uneven_transpose(lk_graph *graph)
{
    transpose_of(graph, (lk_conv_transpose2d_opts){.out = 3, .kernel = 3, .groups = 2});
}

static void padded_away(lk_graph *graph)
{
    lk_conv_transpose2d(graph, lk_input(graph, 6, 1, 1), "up",
                        (lk_conv_transpose2d_opts){.out = 3, .kernel = 2, .pad = 1});
}

static void bad_dropout(lk_graph *graph)
{
    lk_dropout(graph, lk_input(graph, 1, 4, 4), 1.0);
}

static void bad_slope(lk_graph *graph)
{
    lk_leaky_relu(graph, lk_input(graph, 1, 4, 4), 1.0);
}

static void after_loss(lk_graph *graph)
{
    lk_node x = lk_flatten(graph, lk_input(graph, 1, 4, 4));
    lk_relu(graph, lk_cross_entropy(graph, x));
}

static void invented_node(lk_graph *graph)
{
    lk_input(graph, 1, 4, 4);
    lk_relu(graph, (lk_node){.index = 17});
}

static void zero_node(lk_graph *graph)
{
    lk_node forgotten = {0};
    lk_input(graph, 1, 4, 4);
    lk_cross_entropy(graph, lk_flatten(graph, forgotten));
}

/* A node of a destroyed graph; its index is valid in this graph, too. */
static lk_node node_of_another(bool failed)
{
    lk_graph *other;
    assert_int_equal(lk_graph_create(&other), LK_OK);
    lk_node node = lk_relu(other, lk_input(other, 1, 4, 4));
    if (failed)
        node = lk_linear(other, node, "fc", 3);
    lk_graph_destroy(other);
    return node;
}

static void foreign_node(lk_graph *graph)
{
    lk_relu(graph, lk_input(graph, 1, 4, 4));
    lk_cross_entropy(graph, lk_flatten(graph, node_of_another(false)));
}

static void foreign_addend(lk_graph *graph)
{
    lk_node x = lk_relu(graph, lk_input(graph, 1, 4, 4));
    lk_cross_entropy(graph, lk_flatten(graph, lk_add(graph, x, node_of_another(false))));
}

static void failed_node(lk_graph *graph)
{
    lk_input(graph, 1, 4, 4);
    lk_relu(graph, node_of_another(true));
}

static void foreign_init(lk_graph *graph)
{
    lk_node x = lk_linear(graph, lk_flatten(graph, lk_input(graph, 1, 4, 4)), "fc", 3);
    lk_init(graph, node_of_another(false), "kaiming_normal");
    lk_cross_entropy(graph, x);
}

static void two_inputs(lk_graph *graph)
{
    lk_node x = lk_input(graph, 1, 4, 4);
    lk_cross_entropy(graph, lk_flatten(graph, lk_add(graph, x, lk_input(graph, 1, 4, 4))));
}

static void empty_input(lk_graph *graph)
{
    lk_cross_entropy(graph, lk_flatten(graph, lk_input(graph, 1, 0, 4)));
}

static void no_number(lk_graph *graph)
{
    lk_dropout(graph, lk_input(graph, 1, 4, 4), NAN);
}

static void unused_node(lk_graph *graph)
{
    lk_node x = lk_flatten(graph, lk_input(graph, 1, 4, 4));
    lk_linear(graph, x, "aside", 3);
    lk_cross_entropy(graph, lk_linear(graph, x, "fc", 3));
}

static void too_large(lk_graph *graph)
{
    lk_input(graph, (size_t)1 << 40, (size_t)1 << 40, 1);
}

static void no_name(lk_graph *graph)
{
    lk_batchnorm2d(graph, lk_input(graph, 1, 4, 4), NULL);
}

static void bad_name(lk_graph *graph)
{
    lk_batchnorm2d(graph, lk_input(graph, 1, 4, 4), "a\n");
}

static void nearly_one(lk_graph *graph)
{
    lk_dropout(graph, lk_input(graph, 1, 4, 4), 0.99999999);
}

static void bad_dropout2d(lk_graph *graph)
{
    lk_dropout2d(graph, lk_input(graph, 1, 4, 4), -0.1);
}

static void fewer_channels(lk_graph *graph)
{
    lk_pad_channels(graph, lk_input(graph, 6, 4, 4), 5);
}

static void far_too_many_channels(lk_graph *graph)
{
    lk_pad_channels(graph, lk_input(graph, 6, 4, 4), SIZE_MAX);
}

static void no_window(lk_graph *graph)
{
    lk_avgpool2d(graph, lk_input(graph, 1, 4, 4), (lk_avgpool2d_opts){.stride = 2});
}

static void wide_window(lk_graph *graph)
{
    lk_avgpool2d(graph, lk_input(graph, 1, 4, 7), (lk_avgpool2d_opts){.kernel = 5});
}

/* The window would reach a whole stride beyond the input. */
static void wide_ceil_window(lk_graph *graph)
{
    lk_avgpool2d(graph, lk_input(graph, 1, 4, 7), (lk_avgpool2d_opts){.kernel = 6, .stride = 2, .ceil = true});
}

static void wide_padding(lk_graph *graph)
{
    lk_avgpool2d(graph, lk_input(graph, 1, 4, 4), (lk_avgpool2d_opts){.kernel = 3, .pad = 2});
}

static void endless_padding(lk_graph *graph)
{
    lk_maxpool2d(graph, lk_input(graph, 1, 4, 4), (lk_maxpool2d_opts){.kernel = 2, .pad = SIZE_MAX / 2 + 1});
}

static void no_loss(lk_graph *graph)
{
    lk_relu(graph, lk_input(graph, 1, 4, 4));
}

static const struct {
    mistake_fn make;
    const char *words;
} mistakes[] = {
    {kernel_too_large, "kernel 5x5 (height x width), which spans 5x5 pixels, is larger than its padded input 4x4"},
    {no_flatten, "lk_flatten"},
    {same_name, "named 'fc'"},
    {unequal_add, "shapes must be equal"},
    {unequal_mul, "layer 2 multiplies 1x4x4 and 1x2x2; the shapes must be equal"},
    {unequal_concat, "layer 2 concatenates 1x4x4 and 1x2x2; heights and widths must be equal"},
    {no_rows, "embedding 'words' needs at least one row"},
    {no_width, "embedding 'words' needs at least one row and one element"},
    {many_rows, "embedding 'words' has 16777217 rows; a float holds ids below 16777216"},
    {ids_of_image, "embedding 'words' got 1x4x4; ids are a vector"},
    {ids_of_vectors, "embedding 'words' got 3x1x4; ids are a vector"},
    {no_groups, "groupnorm 'norm': 0 groups do not divide its 6 channels"},
    {uneven_groups, "groupnorm 'norm': 4 groups do not divide its 6 channels"},
    {unnamed_layernorm, "layer 1 (layernorm) has parameters and needs a name"},
    {endless_maximum, "at most 2^24"},
    {unequal_matrices, "layer 1 multiplies 2 matrices of 4x3 and 2 of 4x3"},
    {unequal_heads, "layer 2 multiplies 2 matrices of 4x4 and 1 of 4x8"},
    {same_axis, "layer 1 exchanges axes 2 and 2; give two of 1 (height), 2 (width) and 3 (channels)"},
    {sample_axis, "layer 1 exchanges axes 0 and 1"},
    {other_count, "4 x 4 x 3 elements (height, width, channels) cannot be reshaped to 1 x 7 x 7"},
    {wrapped_count, "the products must be equal"},
    {no_features, "linear layer 'fc' needs at least one output"},
    {no_kernel, "transposed convolution 'up' needs output channels and a kernel size"},
    {wide_out_pad, "'up': output padding 2x2 (height x width) must be below its stride 2x2"},
    {wide_pad, "'up': padding 3x3 (height x width) must be below the 3x3 pixels that its kernel spans"},
    {uneven_transpose, "'up': 2 groups must divide both its 6 input and its 3 output channels"},
    {padded_away, "'up': padding 1x1 (height x width) leaves nothing of its output"},
    {bad_dropout, "[0,1)"},
    {bad_slope, "layer 1: slope 1 of leaky ReLU is not in [0,1)"},
    {after_loss, "follows the loss"},
    {invented_node, "layer 1 (relu): input 0 is not a node of this graph, but one that no builder has returned"},
    {zero_node, "one that no builder has returned"},
    {foreign_node, "layer 2 (flatten): input 0 is not a node of this graph, but of another"},
    {foreign_addend, "layer 2 (add): input 1 is not a node of this graph, but of another"},
    {failed_node, "lk_graph_check of its graph says why"},
    {foreign_init, "lk_init 'kaiming_normal': x is not a node of this graph"},
    {two_inputs, "input"},
    {empty_input, "input"},
    {no_number, "[0,1)"},
    {no_loss, "no loss"},
    {unused_node, "layer 2 (linear) is not used"},
    {too_large, "2^34"},
    {no_name, "needs a name"},
    {bad_name, "printable ASCII"},
    {nearly_one, "[0,1)"},
    {bad_dropout2d, "[0,1)"},
    {fewer_channels, "6 channels cannot be padded to 5"},
    {far_too_many_channels, "2^34"},
    {no_window, "layer 1: a pooling window needs a kernel size"},
    {wide_window, "window 5x5 (height x width), which spans 5x5 pixels, is larger than its input 4x7"},
    {wide_ceil_window, "window 6x6 (height x width), which spans 6x6 pixels, is larger than its input 4x7"},
    {wide_padding, "padding 2x2 (height x width) is more than half of pooling window 3x3"},
    {endless_padding, "more than half of pooling window 2x2"},
};

static void test_mistakes(void **arg)
{
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        lk_graph *graph;
        lk_engine *engine;
        assert_int_equal(lk_graph_create(&graph), LK_OK);
        mistakes[i].make(graph);
        assert_fails(lk_graph_check(graph), LK_STATUS_USAGE, mistakes[i].words);
        assert_fails(lk_engine_create(graph, &(lk_engine_opts){.batch = 1}, &engine), LK_STATUS_USAGE,
                     mistakes[i].words);
        lk_graph_destroy(graph);
    }
}

static uint64_t pooled_hash(lk_avgpool2d_opts opts)
{
    lk_graph *graph;
    assert_int_equal(lk_graph_create(&graph), LK_OK);
    lk_cross_entropy(graph, lk_flatten(graph, lk_avgpool2d(graph, lk_input(graph, 2, 8, 8), opts)));
    assert_int_equal(lk_graph_check(graph), LK_OK);
    uint64_t hash = lk__graph_hash(graph);
    lk_graph_destroy(graph);
    return hash;
}

static uint64_t transposed_hash(int a, int b)
{
    lk_graph *graph;
    assert_int_equal(lk_graph_create(&graph), LK_OK);
    lk_cross_entropy(graph, lk_flatten(graph, lk_transpose(graph, lk_input(graph, 4, 4, 4), a, b)));
    assert_int_equal(lk_graph_check(graph), LK_OK);
    uint64_t hash = lk__graph_hash(graph);
    lk_graph_destroy(graph);
    return hash;
}

static void test_hash(void **arg)
{
    assert_true(transposed_hash(1, 2) != transposed_hash(2, 3));
    lk_avgpool2d_opts plain = {.kernel = 2}, same = {.kernel = 2, .stride = 2}, ceil = {.kernel = 2, .ceil = true};
    assert_true(pooled_hash(plain) == pooled_hash(same));
    assert_true(pooled_hash(plain) != pooled_hash(ceil));
}

TEST_MAIN(NULL, NULL, TEST(test_parameter_counts), TEST(test_unknown_model), TEST(test_mistakes), TEST(test_hash))
