/* 11_regression.c - a network that learns numbers instead of classes, from a table of your own.
 *
 * The table has four features and two targets a row. Start the program alone, as ranks, or as ranks that are stages:
 *     build/examples/11_regression
 *     lockstep run -n 3 build/examples/11_regression
 *     lockstep run -n 2 build/examples/11_regression 2
 * The bits are the same each time. */
#include <stdio.h>

#include <lockstep/lockstep.h>

enum { ROWS = 2048, FEATURES = 4, TARGETS = 2, BATCH = 64, EPOCHS = 8 };

static float features[ROWS][FEATURES], targets[ROWS][TARGETS];

/* Features in [-1,1); the targets are functions of them that the network does not know. */
static void fill_table(void)
{
    uint32_t noise = 1;
    for (int row = 0; row < ROWS; row++) {
        float *x = features[row];
        for (int k = 0; k < FEATURES; k++) {
            noise = noise * 1664525u + 1013904223u;
            x[k] = (float)(noise >> 8) / 8388608.f - 1.f;
        }
        targets[row][0] = x[0] * x[1] - x[2];
        targets[row][1] = x[3] < 0 ? -x[3] : 2 * x[3];
    }
}

static void build_network(lk_graph *graph)
{
    lk_node x = lk_input(graph, FEATURES, 1, 1);
    x = lk_gelu(graph, lk_linear(graph, x, "fc1", 32));
    x = lk_gelu(graph, lk_linear(graph, x, "fc2", 32));
    lk_mse_loss(graph, lk_linear(graph, x, "fc3", TARGETS));
}

static lk_status train(lk_engine *engine, lk_loader *loader, bool speaker)
{
    for (size_t epoch = 0; epoch < EPOCHS; epoch++) {
        const lk_batch *batch;
        lk_metrics last = {0};
        LK_TRY(lk_loader_start(loader, epoch, 0));
        LK_TRY(lk_loader_next(loader, &batch));
        while (batch) {
            LK_TRY(lk_engine_step(engine, batch, &last));
            LK_TRY(lk_loader_next(loader, &batch));
        }
        if (speaker)
            printf("epoch %zu: squared error %.5f, absolute error %.4f\n", epoch + 1, last.squared_error,
                   last.absolute_error);
    }
    return LK_OK;
}

static lk_status run(lk_group *group, const char *stages)
{
    lk_dataset *data;
    lk_graph *graph;
    lk_engine *engine;
    lk_loader *loader;
    lk_state *state;
    fill_table();
    lk_dataset_opts table = {.name = "table", .count = ROWS, .dims = {FEATURES}, .targets = TARGETS};
    LK_TRY(lk_dataset_from_memory(&table, features, targets, &data));
    LK_TRY(lk_graph_create(&graph));
    build_network(graph);
    lk_engine_opts opts = {.batch = BATCH, .optimizer = "adam", .lr = .01, .seed = 1, .group = group, .stages = stages};
    LK_TRY(lk_engine_create(graph, &opts, &engine));
    lk_loader_opts load = {.batch = BATCH, .shuffle = true, .seed = 1, .share = lk_engine_shard_range(engine)};
    LK_TRY(lk_loader_create(data, &load, &loader));
    bool speaker = !group || lk_group_rank(group) == 0;
    LK_TRY(train(engine, loader, speaker));
    LK_TRY(lk_engine_state(engine, &state));
    if (speaker)
        printf("State hash %016llx\n", (unsigned long long)lk_state_hash(state));
    lk_state_destroy(state);
    lk_loader_destroy(loader);
    lk_engine_destroy(engine);
    lk_graph_destroy(graph);
    lk_dataset_destroy(data);
    return LK_OK;
}

int main(int argc, char **argv)
{
    lk_group *group = NULL; /* NULL: one process */
    lk_status status = lk_group_launched() ? lk_group_join(NULL, &group) : LK_OK;
    if (status == LK_OK)
        status = run(group, argc > 1 ? argv[1] : NULL);
    if (status != LK_OK)
        fprintf(stderr, "11_regression: %s\n", lk_error_detail());
    lk_group_destroy(group);
    return status != LK_OK;
}
