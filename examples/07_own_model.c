/* 07_own_model.c - your own network, data and training loop.
 *
 * A residual network learns to recognise the direction of stripes. Start it as one process, or as several
 * ranks (lockstep run -n 4 build/examples/07_own_model); the bits are the same. */
#include <stdio.h>

#include <lockstep/lockstep.h>

enum { SIDE = 12, SAMPLE = SIDE * SIDE, CLASSES = 4, BATCH = 96, STEPS = 200, TEST = 1000 };

static void build_network(lk_graph *graph)
{
    lk_conv2d_opts conv = {.out = 16, .kernel = 3, .pad = 1, .no_bias = true};
    lk_node x = lk_input(graph, 1, SIDE, SIDE);
    x = lk_relu(graph, lk_batchnorm2d(graph, lk_conv2d(graph, x, "stem", conv), "stem_bn"));
    lk_node y = lk_relu(graph, lk_batchnorm2d(graph, lk_conv2d(graph, x, "block.conv1", conv), "block.bn1"));
    y = lk_batchnorm2d(graph, lk_conv2d(graph, y, "block.conv2", conv), "block.bn2");
    x = lk_flatten(graph, lk_global_avgpool(graph, lk_relu(graph, lk_add(graph, x, y))));
    lk_cross_entropy(graph, lk_linear(graph, lk_dropout(graph, x, .1), "head", CLASSES));
}

/* Draws stripes and noise. They depend only on the sample's id, not on the rank that draws them. */
static int32_t draw(uint32_t id, float *x /* (SIDE, SIDE, 1) */)
{
    int32_t label = (int32_t)(id % CLASSES);
    uint32_t shift = id / CLASSES % 6, noise = id * 2654435761u + 1;
    for (uint32_t i = 0; i < SAMPLE; i++) {
        uint32_t row = i / SIDE, column = i % SIDE, along[CLASSES] = {column, row, row + column, row + SIDE - column};
        noise = noise * 1664525u + 1013904223u;
        x[i] = ((along[label] + shift) % 6 < 3 ? 1.f : -1.f) + (float)(noise >> 16) / 8192.f - 4.f;
    }
    return label;
}

/* This rank's share of a batch of `total` samples, whose ids begin at `first`. */
static lk_batch make_batch(lk_engine *engine, uint32_t first, size_t total)
{
    static float x[TEST * SAMPLE];
    static int32_t labels[TEST];
    static uint32_t ids[TEST];
    lk_shard_range share = lk_engine_shard_range(engine);
    size_t count = lk_shard_range_count(share, total), begin = lk_shard_range_begin(share, total);
    for (size_t i = 0; i < count; i++) {
        ids[i] = first + (uint32_t)(begin + i);
        labels[i] = draw(ids[i], x + i * SAMPLE);
    }
    return (lk_batch){.count = count, .sample_floats = SAMPLE, .x = x, .labels = labels, .ids = ids, .total = total};
}

static lk_status train(lk_engine *engine, bool speaker)
{
    lk_metrics metrics;
    for (uint32_t step = 0; step < STEPS; step++) {
        lk_batch batch = make_batch(engine, step * BATCH, BATCH);
        LK_TRY(lk_engine_set_lr(engine, .1 * (STEPS - step) / STEPS));
        LK_TRY(lk_engine_gradients(engine, &batch, &metrics));
        LK_TRY(lk_engine_update(engine));
        if (speaker && step % 50 == 0)
            printf("step %u: loss %.4f\n", step, metrics.loss);
    }
    lk_batch test = make_batch(engine, STEPS * BATCH, TEST);
    LK_TRY(lk_engine_eval(engine, &test, &metrics));
    if (speaker)
        printf("%zu of %zu new samples are classified correctly\n", metrics.correct, metrics.count);
    return LK_OK;
}

static lk_status run(lk_group *group)
{
    lk_graph *graph;
    lk_engine *engine;
    lk_state *state;
    LK_TRY(lk_graph_create(&graph));
    build_network(graph);
    lk_engine_opts opts = {.batch = BATCH, .optimizer = "sgd:momentum=.9", .seed = 7, .group = group};
    LK_TRY(lk_engine_create(graph, &opts, &engine));
    bool speaker = !group || lk_group_rank(group) == 0;
    LK_TRY(train(engine, speaker));
    LK_TRY(lk_engine_state(engine, &state));
    if (speaker)
        LK_TRY(lk_state_save(state, "07_own_model.safetensors"));
    lk_state_destroy(state);
    lk_engine_destroy(engine);
    lk_graph_destroy(graph);
    return LK_OK;
}

int main(void)
{
    lk_group *group = NULL; /* NULL: one process */
    lk_status status = lk_group_launched() ? lk_group_join(NULL, &group) : LK_OK;
    if (status == LK_OK)
        status = run(group);
    if (status != LK_OK)
        fprintf(stderr, "07_own_model: %s\n", lk_error_detail());
    lk_group_destroy(group);
    return status != LK_OK;
}
