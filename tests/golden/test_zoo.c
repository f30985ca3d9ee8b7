/* test_zoo.c - one step of every model against PyTorch, in both modes of BatchNorm, on small images: loss,
 * gradients, and the state after the step.
 *
 * tools/golden_models.py has the rows and made the values; its figures() describes what is recorded of each tensor.
 * Both sides make the same random first state. */
#include "golden/golden.h"

#define DATA LK_TESTS_DIR "/golden/data"

enum { BATCH = 4, SHARDS = 2, CLASSES = 20, SAMPLES = 5, FIGURES = 3 + SAMPLES };

/* A row of tools/golden_models.py. */
typedef struct row {
    char prefix[96]; /* of its entries in the golden file: "resnet20/batch" */
    char spec[64];
    size_t channels, side;
    lk_bn_mode bn;
    float bias, end; /* see fill() */
} row;

static lk_state *golden;
static row rows[65]; /* the last one is followed by one with an empty spec */

/* Returns the number of rows in the golden file. */
static size_t read_rows(void)
{
    size_t count = 0;
    for (size_t i = 0; i < lk_state_count(golden); i++) {
        const lk_state_entry *entry = lk_state_at(golden, i);
        if (!golden_ends(entry->name, "/row"))
            continue;
        assert_true(count + 1 < COUNT_OF(rows));
        row *r = &rows[count++];
        int length = (int)(strlen(entry->name) - strlen("/row"));
        snprintf(r->prefix, sizeof r->prefix, "%.*s", length, entry->name);
        snprintf(r->spec, sizeof r->spec, "%.*s", length - (int)strlen("/batch"), entry->name);
        r->bn = golden_ends(r->prefix, "/shard") ? LK_BN_MODE_SHARD : LK_BN_MODE_BATCH;
        r->channels = (size_t)golden_at(entry, 0);
        r->side = (size_t)golden_at(entry, 1);
        r->bias = (float)golden_at(entry, 2);
        r->end = (float)golden_at(entry, 3);
    }
    return count;
}

/* The name has one letter, because every word of a stream hashes the name again. */
static float stream(size_t index)
{
    return golden_noise("z", index);
}

/* Weights have a size of about 1 / sqrt(fan in). BatchNorm's biases have a mean that keeps most inputs of a ReLU
 * away from 0. At the end of a residual block BatchNorm is scaled down, so that activations and their rounding
 * errors do not grow with depth. */
static void fill(const lk_state_entry *entry, bool after_norm_weight, const row *r, size_t at)
{
    const char *name = entry->name;
    bool weight = golden_ends(name, ".weight");
    float scale = 0.125f, offset = 0, *values = entry->data;
    size_t fan_in = 1;
    for (int i = 1; i < entry->ndim; i++)
        fan_in *= entry->dims[i];
    if (entry->ndim >= 2) {
        scale = 2;
        for (size_t reach = 1; reach < fan_in; reach *= 4)
            scale *= 0.5f;
    } else if (weight || golden_ends(name, ".running_var")) {
        scale = 0.25f;
        offset = 1;
    } else if (after_norm_weight) {
        scale = 0.5f;
        offset = r->bias;
    }
    float part = (weight || after_norm_weight) && (strstr(name, "bn2.") || strstr(name, "bn3.")) ? r->end : 1.0f;
    for (size_t i = 0; i < golden_count(entry); i++)
        values[i] = part * (offset + scale * stream(at + i));
}

static void set_first_state(lk_engine *engine, const row *r)
{
    lk_state *state;
    size_t at = 0;
    bool norm_weight = false;
    assert_ok(lk_engine_state(engine, &state));
    for (size_t i = 0; i < lk_state_count(state); i++) {
        const lk_state_entry *entry = lk_state_at(state, i);
        if (entry->dtype == LK_DTYPE_I64)
            *(int64_t *)entry->data = 3;
        else
            fill(entry, norm_weight, r, at);
        norm_weight = entry->ndim == 1 && golden_ends(entry->name, ".weight");
        at += golden_count(entry);
    }
    assert_ok(lk_engine_set_state(engine, state));
    lk_state_destroy(state);
}

static lk_engine *make_engine(const row *r, lk_model_shape shape)
{
    lk_graph *graph;
    lk_engine *engine;
    lk_engine_opts opts = {.threads = 2,
                           .batch = BATCH,
                           .shards = SHARDS,
                           .bn = r->bn,
                           .lr = 0.05,
                           .optimizer = "sgd:momentum=.9,weight_decay=.01"};
    assert_ok(lk_model_build(r->spec, shape, &graph));
    assert_ok(lk_engine_create(graph, &opts, &engine));
    lk_graph_destroy(graph);
    set_first_state(engine, r);
    return engine;
}

/* Compares tensor `index` of a part. If every element is within e of its truth, norms are within
 * e * sqrt(count). The weighted sum, with weights of both signs and at most 1, has the same bound. */
static void check_tensor(const char *part, size_t index, const lk_state_entry *ours, const float figures[FIGURES])
{
    char what[256];
    const float *values = ours->data;
    size_t count = golden_count(ours);
    double max = figures[0], square = 0, sum = 0, reach = max * sqrt((double)count);
    snprintf(what, sizeof what, "%s/%s", part, ours->name);
    for (size_t i = 0; i < SAMPLES; i++) {
        size_t place = golden_word("places", index * SAMPLES + i) % count;
        golden_near(what, place, values[place], figures[3 + i], max);
    }
    for (size_t i = 0; i < count; i++) {
        double value = (double)values[i];
        square += value * value;
        sum += value * (double)stream(i);
    }
    golden_near(what, count, sqrt(square), figures[1], reach);
    golden_near(what, count, sum, figures[2], reach);
}

static void check_part(const lk_state *ours, const char *prefix, const char *part)
{
    const lk_state_entry *truth = golden_get(golden, prefix, part);
    char what[128];
    size_t index = 0;
    assert_int_equal(truth->ndim, 2);
    assert_int_equal(truth->dims[1], FIGURES);
    snprintf(what, sizeof what, "%s/%s", prefix, part);
    for (size_t i = 0; i < lk_state_count(ours); i++) {
        const lk_state_entry *entry = lk_state_at(ours, i);
        if (entry->dtype == LK_DTYPE_I64) {
            assert_int_equal(*(const int64_t *)entry->data, 4); /* num_batches_tracked, which was 3 before the step */
            continue;
        }
        assert_int_equal(entry->dtype, LK_DTYPE_F32);
        assert_true(index < truth->dims[0]);
        check_tensor(what, index, entry, (const float *)truth->data + index * FIGURES);
        index++;
    }
    assert_int_equal(index, truth->dims[0]);
}

static void test_row(void **arg)
{
    const row *r = *arg;
    lk_model_shape shape = {r->channels, r->side, r->side, CLASSES};
    lk_state *grads, *state;
    size_t which = (size_t)golden_at(golden_get(golden, r->prefix, "which"), 0);
    golden_batch batch = golden_model_batch(r->spec, which, BATCH, shape);
    lk_engine *engine = make_engine(r, shape);
    lk_metrics metrics;
    assert_ok(lk_engine_step(engine, &batch.view, &metrics));
    double loss = golden_at(golden_get(golden, r->prefix, "loss"), 0);
    golden_near("loss", 0, metrics.loss, loss, loss);
    assert_ok(lk_engine_grads(engine, &grads));
    check_part(grads, r->prefix, "grad");
    lk_state_destroy(grads);
    assert_ok(lk_engine_state(engine, &state));
    check_part(state, r->prefix, "state");
    lk_state_destroy(state);
    lk_engine_destroy(engine);
    golden_batch_free(&batch);
}

static void test_every_model(void **unused)
{
    const lk_model_info *info;
    for (size_t m = 0; (info = lk_model_list(m)); m++) {
        bool found = false;
        for (const row *r = rows; *r->spec; r++)
            found |=
                strcspn(r->spec, ":") == strlen(info->name) && strncmp(r->spec, info->name, strlen(info->name)) == 0;
        if (!found)
            fail_msg("no step of '%s' is compared", info->name);
    }
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(rows) + 1];
    golden = golden_load(DATA, "zoo.safetensors");
    size_t count = read_rows();
    for (size_t i = 0; i < count; i++)
        tests[i] = (struct CMUnitTest){.name = rows[i].prefix, .test_func = test_row, .initial_state = &rows[i]};
    tests[count] = (struct CMUnitTest)cmocka_unit_test(test_every_model);
    int failed = _cmocka_run_group_tests("the zoo", tests, count + 1, NULL, NULL);
    lk_state_destroy(golden);
    return failed;
}
