/* test_ranks.c - gradients of 2 and 4 ranks against PyTorch's DistributedDataParallel with the same number of
 * processes, SyncBatchNorm in resnet20, and a step with clipped gradients. The ranks save their results; the test
 * compares them. */
#include "golden/samples.h"

#include "comm/harness.h"
#include "temp_folder.h"

#define DATA LK_TESTS_DIR "/golden/data"

enum { BATCH = 8 };

static const lk_model_shape mnist = {.channels = 1, .height = 28, .width = 28, .classes = 10};
static const lk_model_shape cifar = {.channels = 3, .height = 32, .width = 32, .classes = 10};

typedef struct row {
    const char *name, *model;
    const lk_model_shape *shape;
    team_spec team;
    const char *stages;
    bool clip;
} row;

/* The inputs of the ranks of a row. */
typedef struct job {
    const row *r;
    const lk_batch *batch;
    double limit;
    char folder[TEMP_FOLDER_BYTES];
    lk_state *golden; /* of the parent; reachable here for the leak check of a forked rank */
} job;

static void save(const job *j, const char *what, int rank, const lk_state *state)
{
    char path[TEMP_FOLDER_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s_%d.safetensors", j->folder, what, rank);
    CHECK_OK(lk_state_save(state, path));
}

static lk_state *saved(const job *j, const char *what, int rank)
{
    char file[64];
    snprintf(file, sizeof file, "%s_%d.safetensors", what, rank);
    return golden_load(j->folder, file);
}

static void save_loss(const job *j, int rank, double loss)
{
    lk_state *state;
    lk_state_entry *entry;
    CHECK_OK(lk_state_create(&state));
    CHECK_OK(lk_state_add(state, "loss", LK_DTYPE_F64, 1, (size_t[]){1}, &entry));
    *(double *)entry->data = loss;
    save(j, "loss", rank, state);
    lk_state_destroy(state);
}

static lk_status create(const job *j, lk_group *group, lk_engine **out)
{
    lk_graph *graph;
    lk_engine_opts opts = {.threads = 1,
                           .batch = BATCH,
                           .optimizer = "sgd",
                           .lr = 1,
                           .clip_norm = j->limit,
                           .stages = j->r->stages,
                           .group = group};
    LK_TRY(lk_model_build(j->r->model, *j->r->shape, &graph));
    lk_status status = lk_engine_create(graph, &opts, out);
    lk_graph_destroy(graph);
    return status;
}

static void set_first_state(lk_engine *engine)
{
    lk_state *state;
    CHECK_OK(lk_engine_state(engine, &state));
    for (size_t i = 0; i < lk_state_count(state); i++)
        golden_fill_entry(lk_state_at(state, i));
    CHECK_OK(lk_engine_set_state(engine, state));
    lk_state_destroy(state);
}

static bool be_rank(lk_group *group, const team_spec *team, const void *arg)
{
    const job *j = arg;
    int rank = lk_group_rank(group);
    lk_engine *engine;
    lk_metrics metrics;
    lk_state *grads, *state;
    CHECK_OK(create(j, group, &engine));
    set_first_state(engine);
    CHECK_OK(lk_engine_gradients(engine, j->batch, &metrics));
    CHECK_OK(lk_engine_grads(engine, &grads));
    CHECK_OK(lk_engine_update(engine));
    CHECK_OK(lk_engine_state(engine, &state));
    save_loss(j, rank, metrics.loss);
    save(j, "grads", rank, grads);
    save(j, "state", rank, state);
    lk_state_destroy(state);
    lk_state_destroy(grads);
    lk_engine_destroy(engine);
    return false;
}

/* Compares every entry of which the golden file has samples; there must be at least `least`. */
static void check_all(const lk_state *ours, const lk_state *golden, const char *prefix, const char *part, size_t least)
{
    char full[128];
    size_t found = 0;
    snprintf(full, sizeof full, "%s/%s", prefix, part);
    for (size_t i = 0; i < lk_state_count(ours); i++) {
        const lk_state_entry *entry = lk_state_at(ours, i);
        char name[256];
        snprintf(name, sizeof name, "%s/%s", full, entry->name);
        if (!golden_find(golden, name, "samples"))
            continue;
        golden_check_samples(entry, golden, full);
        found++;
    }
    assert_true(found >= least);
}

static void check_rank(const job *j, const lk_state *golden, const char *prefix, int rank)
{
    lk_state *loss = saved(j, "loss", rank), *grads = saved(j, "grads", rank), *state = saved(j, "state", rank);
    golden_near("loss", 0, golden_at(lk_state_find(loss, "loss"), 0), golden_at(golden_get(golden, prefix, "loss"), 0),
                1);
    if (!j->r->clip)
        check_all(grads, golden, prefix, "grad", lk_state_count(grads));
    /* With clipping the whole state, otherwise BatchNorm's statistics, which only resnet20 has. */
    bool whole = j->r->clip, has_bn = strcmp(j->r->name, "resnet20") == 0;
    check_all(state, golden, prefix, "state", whole ? lk_state_count(state) : has_bn ? 42 : 0);
    lk_state_destroy(state);
    lk_state_destroy(grads);
    lk_state_destroy(loss);
}

static void test_row(void **arg)
{
    job j = {.r = *arg};
    char prefix[64];
    lk_state *golden = j.golden = golden_load(DATA, "ranks.safetensors");
    int replicas = j.r->stages ? j.r->team.size / 2 : j.r->team.size;
    snprintf(prefix, sizeof prefix, "%s/%d%s", j.r->name, replicas, j.r->clip ? "/clip" : "");
    size_t which = (size_t)golden_at(golden_get(golden, prefix, "batch"), 0);
    golden_batch batch = golden_model_batch(j.r->name, which, BATCH, *j.r->shape);
    j.batch = &batch.view;
    if (j.r->clip)
        j.limit = golden_at(golden_get(golden, prefix, "limit"), 0);
    temp_folder_create(j.folder);
    assert_true(team_run(j.r->team, be_rank, &j));
    for (int rank = 0; rank < j.r->team.size; rank++)
        check_rank(&j, golden, prefix, rank);
    temp_folder_remove(j.folder);
    golden_batch_free(&batch);
    lk_state_destroy(golden);
}

static const row rows[] = {
    {"cnn", "cnn:dropout=0", &mnist, {.size = 2, .transport = "shm"}, NULL, false},
    {"cnn", "cnn:dropout=0", &mnist, {.size = 4, .transport = "inproc"}, NULL, false},
    {"mlp", "mlp", &mnist, {.size = 2, .transport = "tcp"}, NULL, false},
    {"mlp", "mlp", &mnist, {.size = 4, .transport = "shm"}, NULL, false},
    {"resnet20", "resnet20", &cifar, {.size = 2, .transport = "shm"}, NULL, false},
    {"resnet20", "resnet20", &cifar, {.size = 4, .transport = "inproc"}, NULL, false},
    {"resnet20", "resnet20", &cifar, {.size = 4, .transport = "inproc"}, "2", false},
    {"cnn", "cnn:dropout=0", &mnist, {.size = 2, .transport = "inproc"}, NULL, true},
    {"cnn", "cnn:dropout=0", &mnist, {.size = 4, .transport = "inproc"}, "2", true},
    {"mlp", "mlp", &mnist, {.size = 4, .transport = "inproc"}, NULL, true},
};
enum { ROWS = sizeof rows / sizeof *rows };

int main(void)
{
    struct CMUnitTest tests[ROWS];
    char names[ROWS][64];
    for (size_t i = 0; i < ROWS; i++) {
        snprintf(names[i], sizeof names[i], "%s, %d ranks%s%s", rows[i].name, rows[i].team.size,
                 rows[i].stages ? " in 2 stages" : "", rows[i].clip ? ", clipped" : "");
        tests[i] =
            (struct CMUnitTest){.name = names[i], .test_func = test_row, .initial_state = (void *)(uintptr_t)&rows[i]};
    }
    return _cmocka_run_group_tests("PyTorch's DDP", tests, ROWS, NULL, NULL);
}
