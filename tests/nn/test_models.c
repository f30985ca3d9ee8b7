/* test_models.c - keys, their order, shapes and counts of every model against the table that
 * tools/models.py made with PyTorch and torchvision; and how weights are initialised. */
#include <math.h>

#include <lockstep/lockstep.h>

#include "check.h"
#include "nn/models/zoo.h"
#include "nn/op.h"
#include "nn/params.h"

enum { TEXT = 256, SPEC = 64, MAX_ROWS = 64 };

typedef struct table_row {
    char spec[SPEC];
    lk_model_shape shape;
    size_t parameters, entries;
    long entries_at; /* offset in the file */
} table_row;

static FILE *open_table(void)
{
    FILE *file = fopen(LK_TESTS_DIR "/nn/data/models.txt", "r");
    assert_non_null(file);
    return file;
}

static size_t read_rows(FILE *file, table_row rows[MAX_ROWS])
{
    size_t count = 0;
    char line[TEXT];
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "model ", 6) != 0)
            continue;
        assert_true(count < MAX_ROWS);
        table_row *row = &rows[count++];
        int fields =
            sscanf(line, "model %63s %zux%zux%zu %zu %zu %zu", row->spec, &row->shape.channels, &row->shape.height,
                   &row->shape.width, &row->shape.classes, &row->parameters, &row->entries);
        assert_int_equal(fields, 7);
        row->entries_at = ftell(file);
    }
    return count;
}

/* Compares the next line of the table with an entry of the model. */
static void expect_entry(FILE *file, const table_row *row, const char *key, const char *dtype, int ndim,
                         const size_t *dims)
{
    char want[TEXT], ours[TEXT];
    assert_non_null(fgets(want, sizeof want, file));
    size_t used = (size_t)snprintf(ours, sizeof ours, "%s %s %s", key, dtype, ndim ? "" : "-");
    for (int i = 0; i < ndim; i++)
        used += (size_t)snprintf(ours + used, sizeof ours - used, "%s%zu", i ? "x" : "", dims[i]);
    want[strcspn(want, "\n")] = '\0';
    if (strcmp(ours, want) != 0)
        fail_msg("%s: '%s' where PyTorch has '%s'", row->spec, ours, want);
}

static void expect_slots(FILE *file, const table_row *row, const lk_layer *layer, const lk_op_slot *slots, int count)
{
    for (int i = 0; i < count; i++) {
        char key[LK_MAX_KEY];
        lk__op_slot_key(layer, slots[i].suffix, key);
        expect_entry(file, row, key, "F32", slots[i].ndim, slots[i].dims);
    }
}

/* Compares the entries that a state of the graph would have, without allocating one. */
static size_t expect_graph(FILE *file, const table_row *row, const lk_graph *graph)
{
    size_t entries = 0;
    for (int i = 0; i < graph->count; i++) {
        const lk_layer *layer = &graph->layers[i];
        expect_slots(file, row, layer, layer->params, layer->param_count);
        expect_slots(file, row, layer, layer->buffers, layer->buffer_count);
        entries += (size_t)(layer->param_count + layer->buffer_count + layer->counts_batches);
        if (!layer->counts_batches)
            continue;
        char key[LK_MAX_KEY];
        lk__op_slot_key(layer, "num_batches_tracked", key);
        expect_entry(file, row, key, "I64", 0, NULL);
    }
    return entries;
}

static void test_table(void **arg)
{
    table_row rows[MAX_ROWS];
    FILE *file = open_table();
    size_t count = read_rows(file, rows);
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        lk_graph *graph;
        if (lk_model_build(rows[i].spec, rows[i].shape, &graph) != LK_OK)
            fail_msg("%s: %s", rows[i].spec, lk_error_detail());
        fseek(file, rows[i].entries_at, SEEK_SET);
        assert_int_equal(expect_graph(file, &rows[i], graph), rows[i].entries);
        assert_int_equal(lk_graph_parameters(graph), rows[i].parameters);
        lk_graph_destroy(graph);
    }
    fclose(file);
}

/* The table has every model with its usual shape. */
static void test_every_model(void **arg)
{
    table_row rows[MAX_ROWS];
    FILE *file = open_table();
    size_t count = read_rows(file, rows);
    fclose(file);
    const lk_model_info *info;
    for (size_t m = 0; (info = lk_model_list(m)); m++) {
        lk_model_shape usual;
        assert_int_equal(lk__model_usual_shape(info->name, &usual), LK_OK);
        bool found = false;
        for (size_t i = 0; i < count; i++)
            found |= strcmp(rows[i].spec, info->name) == 0 && memcmp(&rows[i].shape, &usual, sizeof usual) == 0;
        if (!found)
            fail_msg("the table has no '%s' for %zux%zux%zu and %zu classes", info->name, usual.channels, usual.height,
                     usual.width, usual.classes);
    }
}

static void test_usual_shape(void **arg)
{
    static const struct {
        const char *spec;
        size_t side;
    } rows[] = {
        {"cnn:dropout=0", 28},
        {"vgg16", 224},
        {"vgg16:cifar", 32},
        {"resnet18:cifar=0", 224},
        {"resnet50:cifar=1", 32},
        {"resnet20:width=8", 32},
        {"mobilenet_v2:width=.5,cifar", 32},
        {"mobilenet_v2:cifar,width=.5", 32},
        {"mobilenet_v2:width=.5,cifar=0,dropout", 224},
        {"pyramidnet:blocks=1", 32},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lk_model_shape shape;
        assert_int_equal(lk__model_usual_shape(rows[i].spec, &shape), LK_OK);
        assert_int_equal(shape.width, rows[i].side);
    }
}

/* States of the models that need little memory. */
static void test_states(void **arg)
{
    enum { MOST = 5000000 };
    table_row rows[MAX_ROWS];
    FILE *file = open_table();
    size_t count = read_rows(file, rows);
    lk_device *dev;
    assert_int_equal(lk__device_open("cpu", &(lk_device_opts){.threads = 1}, &dev), LK_OK);
    for (size_t i = 0; i < count; i++) {
        lk_graph *graph;
        lk_params *params;
        lk_state *state;
        if (rows[i].parameters > MOST)
            continue;
        assert_int_equal(lk_model_build(rows[i].spec, rows[i].shape, &graph), LK_OK);
        assert_int_equal(lk__params_create(graph, dev, 0, graph->count, &params), LK_OK);
        assert_int_equal(lk__params_export(params, &state), LK_OK);
        assert_int_equal(lk_state_count(state), rows[i].entries);
        fseek(file, rows[i].entries_at, SEEK_SET);
        for (size_t e = 0; e < rows[i].entries; e++) {
            const lk_state_entry *entry = lk_state_at(state, e);
            expect_entry(file, &rows[i], entry->name, entry->dtype == LK_DTYPE_I64 ? "I64" : "F32", entry->ndim,
                         entry->dims);
        }
        lk_state_destroy(state);
        lk__params_destroy(params);
        lk_graph_destroy(graph);
    }
    lk__device_close(dev);
    fclose(file);
}

static const lk_layer *layer_named(const lk_graph *graph, const char *name)
{
    for (int i = 0; i < graph->count; i++) {
        if (strcmp(graph->layers[i].name, name) == 0)
            return &graph->layers[i];
    }
    fail_msg("no layer '%s'", name);
    return NULL;
}

/* The distributions of torchvision and of the models' papers. */
static void test_first_weights(void **arg)
{
    static const struct {
        const char *spec, *layer;
        lk_model_shape shape;
        lk_op_fill weight, bias; /* LK_OP_FILL_ONE: no bias */
        double variance;
    } rows[] = {
        {"resnet50", "layer2.0.conv2", {3, 224, 224, 1000}, LK_OP_FILL_NORMAL, LK_OP_FILL_ONE, 2.0 / (9 * 128)},
        {"resnet50", "fc", {3, 224, 224, 1000}, LK_OP_FILL_FAN, LK_OP_FILL_FAN, 0},
        {"resnet20", "conv1", {3, 32, 32, 10}, LK_OP_FILL_FAN, LK_OP_FILL_ONE, 0},
        {"vgg11", "features.4", {3, 224, 224, 1000}, LK_OP_FILL_NORMAL, LK_OP_FILL_ZERO, 2.0 / (9 * 128)},
        {"vgg11", "classifier.3", {3, 224, 224, 1000}, LK_OP_FILL_NORMAL, LK_OP_FILL_ZERO, 1e-4},
        {"vgg11:cifar", "conv.4", {3, 32, 32, 10}, LK_OP_FILL_FAN, LK_OP_FILL_FAN, 0},
        {"mobilenet_v2", "features.2.conv.1.0", {3, 224, 224, 1000}, LK_OP_FILL_NORMAL, LK_OP_FILL_ONE, 2.0 / (9 * 96)},
        {"mobilenet_v2", "classifier.1", {3, 224, 224, 1000}, LK_OP_FILL_NORMAL, LK_OP_FILL_ZERO, 1e-4},
        {"pyramidnet", "layer3.16.conv2", {3, 32, 32, 10}, LK_OP_FILL_NORMAL, LK_OP_FILL_ONE, 2.0 / (9 * 271)},
        {"pyramidnet", "fc_out", {3, 32, 32, 10}, LK_OP_FILL_FAN, LK_OP_FILL_FAN, 0},
        {"conv4", "conv2", {3, 32, 32, 10}, LK_OP_FILL_FAN, LK_OP_FILL_FAN, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lk_graph *graph;
        assert_int_equal(lk_model_build(rows[i].spec, rows[i].shape, &graph), LK_OK);
        const lk_layer *layer = layer_named(graph, rows[i].layer);
        assert_int_equal(layer->params[0].fill, rows[i].weight);
        assert_int_equal(layer->param_count, rows[i].bias == LK_OP_FILL_ONE ? 1 : 2);
        if (layer->param_count == 2)
            assert_int_equal(layer->params[1].fill, rows[i].bias);
        if (rows[i].weight == LK_OP_FILL_NORMAL)
            assert_true(fabs(layer->params[0].spread - sqrt(rows[i].variance)) < 1e-12);
        lk_graph_destroy(graph);
    }
}

/* Both dropout layers of cnn change; the keys stay. */
static void test_dropout2d(void **arg)
{
    static const struct {
        const char *spec;
        const lk_op *op;
    } rows[] = {{"cnn", &lk__op_dropout}, {"cnn:dropout2d", &lk__op_dropout2d}};
    for (size_t i = 0; i < 2; i++) {
        lk_graph *graph;
        int drops = 0;
        assert_int_equal(lk_model_build(rows[i].spec, (lk_model_shape){1, 28, 28, 10}, &graph), LK_OK);
        for (int l = 0; l < graph->count; l++)
            drops += graph->layers[l].op == rows[i].op;
        assert_int_equal(drops, 2);
        lk_graph_destroy(graph);
    }
}

static void test_mistakes(void **arg)
{
    static const struct {
        const char *spec, *words;
        lk_model_shape shape;
    } rows[] = {
        {"vgg16", "vgg16:cifar", {3, 32, 32, 10}},
        {"vgg16", "224x224", {3, 224, 448, 10}},
        {"vgg16:cifar", "pooling window 2", {1, 28, 28, 10}},
        {"lenet5", "needs images of 28x28 or 32x32", {1, 24, 24, 10}},
        {"lenet5", "not 2x28x28", {2, 28, 28, 10}},
        {"conv6", "pooling window 2", {3, 4, 4, 10}},
        {"fc:hidden=3", "no parameter 'hidden'", {1, 28, 28, 10}},
        {"resnet18:cifra", "did you mean 'cifar'", {3, 32, 32, 10}},
        {"mobilenet_v2:width=0", "out of range", {3, 32, 32, 10}},
        {"pyramidnet:blocks=1.5", "whole number", {3, 32, 32, 10}},
        {"pyramidne", "did you mean 'pyramidnet'", {3, 32, 32, 10}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lk_graph *graph;
        assert_fails(lk_model_build(rows[i].spec, rows[i].shape, &graph), LK_STATUS_USAGE, rows[i].words);
    }
}

TEST_MAIN(NULL, NULL, TEST(test_table), TEST(test_every_model), TEST(test_usual_shape), TEST(test_states),
          TEST(test_first_weights), TEST(test_dropout2d), TEST(test_mistakes))
