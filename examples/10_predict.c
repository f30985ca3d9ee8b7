/* 10_predict.c - a trained network in use: images are classified one at a time.
 *
 * The engine gives the scores of an image, which are the input of the loss: here logarithms of probabilities. It also
 * gives the value of a layer in the middle of the network. lk_engine_set_state would load trained weights of a file. */
#include <math.h>
#include <stdio.h>
#include <time.h>

#include <lockstep/lockstep.h>

enum { BATCH = 256, CLASSES = 10, FEATURES = 32, IMAGES = 1000 };

static void build_network(lk_graph *graph, const lk_dataset_info *data)
{
    lk_node x = lk_input(graph, data->channels, data->height, data->width);
    x = lk_relu(graph, lk_conv2d(graph, x, "conv", (lk_conv2d_opts){.out = 8, .kernel = 5, .stride = 2}));
    x = lk_relu(graph, lk_linear(graph, lk_flatten(graph, x), "fc1", FEATURES));
    x = lk_name(graph, x, "features"); /* the name in lk_engine_opts.outputs */
    lk_nll_loss(graph, lk_log_softmax(graph, lk_linear(graph, x, "fc2", CLASSES)));
}

static lk_status train(lk_engine *engine, lk_loader *loader)
{
    const lk_batch *batch;
    lk_metrics metrics;
    LK_TRY(lk_loader_start(loader, 0, 0));
    for (;;) {
        LK_TRY(lk_loader_next(loader, &batch));
        if (!batch)
            return LK_OK;
        LK_TRY(lk_engine_step(engine, batch, &metrics));
    }
}

static int largest(const float *scores)
{
    int best = 0;
    for (int i = 1; i < CLASSES; i++)
        best = scores[i] > scores[best] ? i : best;
    return best;
}

static lk_status predict(lk_engine *engine, lk_loader *images)
{
    float scores[CLASSES], features[FEATURES];
    double seconds = 0;
    const lk_output outputs[] = {{NULL, scores}, {"features", features}};
    int right = 0;
    LK_TRY(lk_loader_start(images, 0, 0));
    for (int i = 0; i < IMAGES; i++) {
        const lk_batch *image;
        LK_TRY(lk_loader_next(images, &image));
        lk_batch batch = {.count = 1, .sample_floats = image->sample_floats, .x = image->x}; /* labels are not needed */
        clock_t began = clock();
        LK_TRY(lk_engine_forward_outputs(engine, &batch, outputs, 2));
        seconds += (double)(clock() - began) / CLOCKS_PER_SEC;
        int best = largest(scores);
        right += best == image->labels[0];
        if (i < 5)
            printf("image %d is a %d (%.1f %%), feature 0 is %.3f\n", i, best, 100 * exp((double)scores[best]),
                   (double)features[0]);
    }
    printf("%d of %d images are classified correctly, in %.0f us each\n", right, IMAGES, 1e6 * seconds / IMAGES);
    return LK_OK;
}

/* After a failure the process ends, so this function then frees nothing. */
static lk_status run(void)
{
    lk_dataset *digits, *test;
    lk_graph *graph;
    lk_engine *engine;
    lk_loader *samples, *images;
    lk_engine_opts opts = {.batch = BATCH, .optimizer = "adam", .threads = 1, .seed = 1, .outputs = "features"};
    LK_TRY(lk_dataset_open("digits", NULL, LK_SPLIT_TRAIN, &digits));
    LK_TRY(lk_dataset_open("digits", NULL, LK_SPLIT_TEST, &test));
    LK_TRY(lk_graph_create(&graph));
    build_network(graph, lk_dataset_get_info(digits));
    LK_TRY(lk_engine_create(graph, &opts, &engine));
    LK_TRY(lk_loader_create(digits, &(lk_loader_opts){.batch = BATCH, .shuffle = true}, &samples));
    LK_TRY(lk_loader_create(test, &(lk_loader_opts){.batch = 1}, &images));
    LK_TRY(train(engine, samples));
    LK_TRY(predict(engine, images));
    lk_loader_destroy(images);
    lk_loader_destroy(samples);
    lk_engine_destroy(engine);
    lk_graph_destroy(graph);
    lk_dataset_destroy(test);
    lk_dataset_destroy(digits);
    return LK_OK;
}

int main(void)
{
    lk_status status = run();
    if (status != LK_OK)
        fprintf(stderr, "10_predict: %s\n", lk_error_detail());
    return status != LK_OK;
}
