/* large_resnet20.c - single steps of resnet20 against PyTorch: loss, every gradient, buffer and parameter. Every
 * step starts from PyTorch's state, because errors grow from step to step in networks with BatchNorm.
 *
 *   large_resnet20 DIR    DIR has the files of `tools/golden.py --large DIR` */
#include "golden/golden.h"

enum { BATCH = 8 };

static const lk_model_shape cifar = {.channels = 3, .height = 32, .width = 32, .classes = 10};
static const char *folder;

static lk_engine *make_engine(const lk_state *golden)
{
    lk_graph *graph;
    lk_engine *engine;
    lk_state *state;
    lk_engine_opts opts = {.threads = 2, .batch = BATCH, .optimizer = "sgd:momentum=.9", .lr = 0.1};
    assert_ok(lk_model_build("resnet20", cifar, &graph));
    assert_ok(lk_engine_create(graph, &opts, &engine));
    lk_graph_destroy(graph);
    assert_ok(lk_engine_state(engine, &state));
    for (size_t i = 0; i < lk_state_count(state); i++) {
        const lk_state_entry *entry = lk_state_at(state, i), *first = golden_get(golden, "first", entry->name);
        assert_int_equal(entry->bytes, first->bytes);
        memcpy(entry->data, first->data, entry->bytes);
    }
    assert_ok(lk_engine_set_state(engine, state));
    lk_state_destroy(state);
    return engine;
}

static void check_step(void **file)
{
    lk_state *golden = golden_load(folder, *file), *grads, *state;
    lk_engine *engine = make_engine(golden);
    size_t which = (size_t)golden_at(lk_state_find(golden, "batch"), 0);
    golden_batch batch = golden_model_batch("resnet20", which, BATCH, cifar);
    lk_metrics metrics;
    assert_ok(lk_engine_step(engine, &batch.view, &metrics));
    golden_near("loss", 0, metrics.loss, golden_at(lk_state_find(golden, "loss"), 0), 1);
    assert_ok(lk_engine_grads(engine, &grads));
    golden_compare_state(grads, golden, "grad");
    assert_ok(lk_engine_state(engine, &state));
    golden_compare_state(state, golden, "state");
    lk_state_destroy(grads);
    lk_state_destroy(state);
    lk_state_destroy(golden);
    lk_engine_destroy(engine);
    golden_batch_free(&batch);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s DIR\n", argv[0]);
        return 2;
    }
    folder = argv[1];
    return RUN_TESTS(NULL, NULL, {"step 0", check_step, NULL, NULL, "resnet20_0.safetensors"},
                     {"step 1", check_step, NULL, NULL, "resnet20_1.safetensors"},
                     {"step 10", check_step, NULL, NULL, "resnet20_10.safetensors"},
                     {"step 29", check_step, NULL, NULL, "resnet20_29.safetensors"});
}
