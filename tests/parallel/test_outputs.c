/* test_outputs.c - scores and values of nodes: equal bits however the work is divided, and the node's own values
 * whatever else is kept; no bit of training depends on what is kept; nothing is allocated after the first call of a
 * size. */
#include "heap.h"
#include "ranks.h"

#include "nn/plan.h"
#include "parallel/step/engine_impl.h"

enum { CNN, RES, OPS, NORMS, ATTENTION, LEAKY, MLP, CASES };

/* A forward pass has 2 * batch + 3 samples, which is more than an engine's batch, or one sample. */
static const law_case cases[CASES] = {
    [CNN] = {"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "sgd", 0.05, 2, 8, .shards = 5},
    [RES] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "sgd", 0.05, 2, 7, .shards = 6},
    [OPS] = {"ops", LAW_ODD, LK_BN_MODE_SHARD, "sgd", 0.05, 2, 7, .shards = 6},
    [NORMS] = {"norms", LAW_ODD, LK_BN_MODE_BATCH, "sgd", 0.05, 2, 7, .shards = 6},
    [ATTENTION] = {"attention", LAW_ODD, LK_BN_MODE_BATCH, "sgd", 0.05, 2, 7, .shards = 6},
    [LEAKY] = {"leaky", LAW_ODD, LK_BN_MODE_BATCH, "sgd", 0.05, 2, 7, .shards = 6},
    [MLP] = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "sgd", 0.05, 2, 7, .shards = 6},
};

enum { TEXT = 16384, MOST_OUTPUTS = 128, MOST_SAMPLES = 32, MOST_FLOATS = 32 * 1024 };

/* Builds the model of a case with a name, "node7", for every layer that has none: texts of layers without a name may be
 * ambiguous. */
static lk_graph *named_graph(const law_case *c)
{
    lk_graph *graph;
    CHECK_OK(law_build(c->model, c->shape, &graph));
    for (int i = 1; i < graph->count - 1; i++) {
        char name[32];
        snprintf(name, sizeof name, "node%d", i);
        if (!graph->layers[i].name[0])
            lk_name(graph, (lk_node){.index = i, .graph = graph->id}, name);
    }
    CHECK_OK(lk_graph_check(graph));
    return graph;
}

/* The names of all nodes, separated by commas; returns their number. */
static size_t all_names(const lk_graph *graph, char text[TEXT])
{
    size_t at = 0;
    for (int i = 1; i < graph->count - 1; i++) {
        const lk_layer *layer = &graph->layers[i];
        at += (size_t)snprintf(text + at, TEXT - at, "%s%s", i > 1 ? "," : "",
                               layer->name[0] ? layer->name : layer->alias);
        CHECK(at < TEXT);
    }
    return (size_t)graph->count - 2;
}

static lk_engine *named_engine(const law_case *c, const law_way *way, const char *outputs, lk_group *group)
{
    lk_graph *graph = named_graph(c);
    lk_engine *engine;
    lk_engine_opts opts = law_opts(c, way);
    opts.outputs = outputs;
    opts.group = group;
    CHECK_OK(lk_engine_create(graph, &opts, &engine));
    lk_graph_destroy(graph);
    return engine;
}

/* The scores and all named values of a batch; `names` is borrowed. */
typedef struct values {
    size_t count;
    lk_output list[MOST_OUTPUTS];
    size_t floats[MOST_OUTPUTS]; /* of all samples */
    char text[TEXT];             /* the names, with a '\0' after each */
} values;

static void values_make(const lk_engine *engine, const char *names, size_t samples, values *v)
{
    snprintf(v->text, sizeof v->text, "%s", names ? names : "");
    v->count = 1;
    v->list[0].node = NULL;
    for (char *name = names ? v->text : NULL, *comma; name; name = comma) {
        CHECK(v->count < MOST_OUTPUTS);
        v->list[v->count++].node = name;
        comma = strchr(name, ',');
        if (comma)
            *comma++ = '\0';
    }
    for (size_t i = 0; i < v->count; i++) {
        v->floats[i] = samples * lk_engine_output_floats(engine, v->list[i].node);
        CHECK(v->floats[i] > 0);
        v->list[i].values = malloc(v->floats[i] * sizeof(float));
        CHECK(v->list[i].values != NULL);
        memset(v->list[i].values, 0x7f, v->floats[i] * sizeof(float));
    }
}

static void values_free(values *v)
{
    for (size_t i = 0; i < v->count; i++)
        free(v->list[i].values);
}

static const float *value_of(const values *v, const char *node)
{
    for (size_t i = 1; i < v->count; i++)
        if (strcmp(v->list[i].node, node) == 0)
            return v->list[i].values;
    check_failed(__FILE__, __LINE__, node, "is not an output", "");
}

/* Trains a little, so that BatchNorm has statistics and the weights are not the first ones. */
static void train(const law_case *c, lk_engine *engine, bool share)
{
    law_samples s = law_samples_make(c);
    for (int i = 0; i < c->steps; i++) {
        lk_batch batch;
        lk_metrics metrics;
        law_batch(c, i, s.x, s.labels, s.ids, &batch);
        if (share)
            batch = ranks_cut(batch, lk_engine_shard_range(engine));
        CHECK_OK(lk_engine_step(engine, &batch, &metrics));
    }
    law_samples_free(&s);
}

static size_t many(const law_case *c)
{
    return 2 * c->batch + 3;
}

static void forward(const law_case *c, lk_engine *engine, bool share, size_t count, values *v)
{
    law_samples s;
    lk_batch batch = law_samples_only(c, count, &s);
    lk_shard_range range = lk_engine_shard_range(engine);
    if (share) {
        size_t begin = lk_shard_range_begin(range, count);
        batch.count = lk_shard_range_count(range, count);
        batch.x = range.labels_only ? NULL : s.x + begin * batch.sample_floats;
        batch.total = count;
    }
    CHECK_OK(lk_engine_forward_outputs(engine, &batch, v->list, v->count));
    law_samples_free(&s);
}

/* A run of a case, and the values that one rank with one thread has. */
typedef struct job {
    const law_case *c;
    law_way way;
    const char *names;
    uint64_t hash;
    values *many, *one;
} value_job;

static void compare(const values *got, const values *want)
{
    for (size_t i = 0; i < want->count; i++)
        if (memcmp(got->list[i].values, want->list[i].values, want->floats[i] * sizeof(float)) != 0)
            check_failed(__FILE__, __LINE__, want->list[i].node ? want->list[i].node : "scores", "differs", "");
}

static void run(const value_job *job, lk_group *group)
{
    static _Thread_local values v; /* large */
    lk_engine *engine = named_engine(job->c, &job->way, job->names, group);
    train(job->c, engine, job->way.share);
    CHECK(law_hash(engine) == job->hash);
    for (int i = 0; i < 2; i++) {
        values_make(engine, job->names, i ? 1 : many(job->c), &v);
        forward(job->c, engine, job->way.share, i ? 1 : many(job->c), &v);
        compare(&v, i ? job->one : job->many);
        values_free(&v);
    }
    CHECK(law_hash(engine) == job->hash);
    lk_engine_destroy(engine);
}

static bool be_rank(lk_group *group, const team_spec *team, const void *arg)
{
    run(arg, group);
    return false;
}

/* The truth of each case: one rank with one thread, all nodes kept. */
static struct truth {
    bool known;
    char names[TEXT];
    uint64_t hash;
    values many, one;
} truths[CASES];

static struct truth *truth_of(int number)
{
    struct truth *t = &truths[number];
    const law_case *c = &cases[number];
    law_way way = {.threads = 1};
    if (t->known)
        return t;
    lk_graph *graph = named_graph(c);
    all_names(graph, t->names);
    lk_graph_destroy(graph);
    lk_engine *plain = named_engine(c, &way, NULL, NULL), *engine = named_engine(c, &way, t->names, NULL);
    train(c, plain, false);
    train(c, engine, false);
    t->hash = law_hash(plain);
    assert_true(law_hash(engine) == t->hash); /* keeping values changes no bit of training */
    values_make(engine, t->names, many(c), &t->many);
    values_make(engine, t->names, 1, &t->one);
    forward(c, engine, false, many(c), &t->many);
    forward(c, engine, false, 1, &t->one);
    lk_engine_destroy(engine);
    lk_engine_destroy(plain);
    t->known = true;
    return t;
}

static const ranks_row rows[] = {
    {"threads: cnn", CNN, {.ranks = 1, .transport = "inproc", .threads = 3}},
    {"waves: cnn", CNN, {.ranks = 1, .transport = "inproc", .threads = 1, .micro_batch = 2}},
    {"2 ranks: cnn", CNN, {.ranks = 2, .transport = "inproc", .threads = 1, .share = true}},
    {"3 ranks, whole batches: cnn", CNN, {.ranks = 3, .transport = "shm", .threads = 1}},
    {"2 stages: cnn", CNN, {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "fc1", .share = true}},
    {"3 stages: cnn", CNN, {.ranks = 3, .transport = "inproc", .threads = 1, .stages = "node7,node12"}},
    {"grid: cnn", CNN, {.ranks = 4, .transport = "auto", .threads = 1, .stages = "2", .share = true}},
    {"threads in processes: cnn", CNN, {.ranks = 4, .devices = 2, .transport = "auto", .threads = 1}},
    {"tcp: mlp", MLP, {.ranks = 3, .transport = "tcp", .threads = 1, .share = true}},
    {"2 ranks: resnet", RES, {.ranks = 2, .transport = "inproc", .threads = 2, .share = true}},
    {"pipelined: resnet", RES, {.ranks = 3, .transport = "inproc", .threads = 1, .stages = "3", .pipelined = true}},
    {"grid: resnet", RES, {.ranks = 6, .transport = "inproc", .threads = 1, .stages = "2", .share = true}},
    {"waves, 5 ranks: ops", OPS, {.ranks = 5, .transport = "inproc", .threads = 1, .micro_batch = 1, .share = true}},
    {"3 stages, pipelined: ops",
     OPS,
     {.ranks = 3, .transport = "inproc", .threads = 1, .stages = "3", .pipelined = true, .micro_batch = 2}},
    {"3 ranks: norms", NORMS, {.ranks = 3, .transport = "inproc", .threads = 1}},
    {"2 stages: attention", ATTENTION, {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "2"}},
    {"grid: leaky", LEAKY, {.ranks = 4, .transport = "inproc", .threads = 1, .stages = "2", .share = true}},
};

static void test_row(void **arg)
{
    const ranks_row *row = *arg;
    const struct truth *t = truth_of(row->c);
    value_job j = {.c = &cases[row->c],
                   .way = row->way,
                   .names = t->names,
                   .hash = t->hash,
                   .many = (values *)(uintptr_t)&t->many,
                   .one = (values *)(uintptr_t)&t->one};
    if (!team_run(ranks_team(&row->way), be_rank, &j))
        fail_msg("not as by one rank");
}

/* A node that is kept alone, among layers that share memory and kernels, has the value that it has where every node is
 * kept and nothing is shared. */
static void test_each_node_alone(void **arg)
{
    static values v;
    for (int number = 0; number < CASES; number += (int)law_every()) {
        struct truth *t = truth_of(number);
        const law_case *c = &cases[number];
        lk_state *state;
        lk_engine *trained = named_engine(c, &(law_way){.threads = 1}, NULL, NULL);
        train(c, trained, false);
        law_require(lk_engine_state(trained, &state));
        for (size_t i = 1; i < t->many.count; i += law_every()) {
            const char *name = t->many.list[i].node;
            lk_engine *engine = named_engine(c, &(law_way){.threads = 1}, name, NULL);
            law_require(lk_engine_set_state(engine, state));
            values_make(engine, name, many(c), &v);
            forward(c, engine, false, many(c), &v);
            assert_memory_equal(v.list[0].values, t->many.list[0].values, v.floats[0] * sizeof(float));
            if (memcmp(v.list[1].values, t->many.list[i].values, v.floats[1] * sizeof(float)) != 0)
                fail_msg("%s: %s is another layer's value", c->model, name);
            values_free(&v);
            lk_engine_destroy(engine);
        }
        lk_state_destroy(state);
        lk_engine_destroy(trained);
    }
}

/* No bit of training depends on which node is kept. */
static void test_training_with_each_node(void **arg)
{
    static const int models[] = {OPS, RES};
    for (size_t m = 0; m < COUNT_OF(models); m++) {
        const law_case *c = &cases[models[m]];
        struct truth *t = truth_of(models[m]);
        for (size_t i = 1; i < t->many.count; i += law_every()) {
            lk_engine *engine = named_engine(c, &(law_way){.threads = 1}, t->many.list[i].node, NULL);
            train(c, engine, false);
            if (law_hash(engine) != t->hash)
                fail_msg("%s: keeping %s changes training", c->model, t->many.list[i].node);
            lk_engine_destroy(engine);
        }
    }
}

/* cnn: 1 conv1, 2 ReLU, 3 conv2, 4 ReLU, 5 pooling, 6 dropout, 7 flatten, 8 fc1, 9 ReLU, 10 dropout, 11 fc2,
 * 12 log_softmax. Images are (C, H, W). */
static void test_values_of_the_cnn(void **arg)
{
    const values *v = &truth_of(CNN)->many;
    const float *conv = value_of(v, "conv2"), *relu = value_of(v, "node4"), *pool = value_of(v, "node5");
    const float *fc1 = value_of(v, "fc1"), *fc1_relu = value_of(v, "node9");
    bool negative = false;
    for (size_t i = 0; i < 64 * 24 * 24; i++) {
        negative |= conv[i] < 0;
        assert_true(relu[i] == (conv[i] > 0 ? conv[i] : 0));
    }
    for (size_t i = 0; i < 128; i++)
        assert_true(fc1_relu[i] == (fc1[i] > 0 ? fc1[i] : 0));
    for (size_t i = 0; i < 64 * 12 * 12; i++) {
        size_t c = i / 144, y = i / 12 % 12, x = i % 12;
        const float *at = relu + (c * 24 + 2 * y) * 24 + 2 * x;
        float most = fmaxf(fmaxf(at[0], at[1]), fmaxf(at[24], at[25]));
        assert_true(pool[i] == most);
    }
    assert_true(negative);
    assert_memory_equal(value_of(v, "node7"), pool, 64 * 12 * 12 * sizeof *pool);
    assert_memory_equal(value_of(v, "node10"), fc1_relu, 128 * sizeof *fc1);
    assert_memory_equal(value_of(v, "node12"), v->list[0].values, v->floats[0] * sizeof(float));
}

/* The loss of a single sample is minus the log-probability of its label, or what cross entropy is of the scores. */
static void test_scores_give_the_loss(void **arg)
{
    static const int models[] = {CNN, MLP, LEAKY};
    for (size_t m = 0; m < COUNT_OF(models); m++) {
        const law_case *c = &cases[models[m]];
        lk_engine *engine = law_engine(c, (law_way){.threads = 1});
        law_samples s = law_samples_make(c);
        lk_batch batch;
        lk_metrics metrics;
        float scores[10];
        assert_int_equal(lk_engine_output_floats(engine, NULL), 10);
        law_batch(c, 0, s.x, s.labels, s.ids, &batch);
        batch.count = 1;
        law_require(lk_engine_eval(engine, &batch, &metrics));
        law_require(lk_engine_forward(engine, &batch, scores));
        double sum = 0;
        for (int i = 0; i < 10; i++)
            sum += exp((double)scores[i]);
        double loss = log(sum) - (double)scores[s.labels[0]];
        if (models[m] == CNN)
            assert_true(metrics.loss == -(double)scores[s.labels[0]]);
        /* Three roundings to float, of scores below 8, and those of a sum of 10 numbers. */
        assert_true(fabs(metrics.loss - loss) < 16 * 8 * 0x1p-24);
        law_samples_free(&s);
        lk_engine_destroy(engine);
    }
}

/* Samples are independent: one at a time gives the rows of a batch. */
static void test_one_at_a_time(void **arg)
{
    const law_case *c = &cases[CNN];
    const values *v = &truth_of(CNN)->many;
    lk_engine *engine = named_engine(c, &(law_way){.threads = 1}, NULL, NULL);
    law_samples s;
    float scores[10];
    train(c, engine, false);
    lk_batch batch = law_samples_only(c, many(c), &s);
    batch.count = 1;
    for (size_t i = 0; i < many(c); i++, batch.x += batch.sample_floats) {
        law_require(lk_engine_forward(engine, &batch, scores));
        assert_memory_equal(scores, v->list[0].values + i * 10, sizeof scores);
    }
    law_samples_free(&s);
    lk_engine_destroy(engine);
}

static void count_allocations(lk_engine *engine, const law_case *c, size_t count, values *v)
{
    law_samples s;
    lk_batch batch = law_samples_only(c, count, &s);
    CHECK_OK(lk_engine_forward_outputs(engine, &batch, v->list, v->count));
    heap_watch(0);
    for (int i = 0; i < 3; i++)
        CHECK_OK(lk_engine_forward_outputs(engine, &batch, v->list, v->count));
    heap_leave();
    if (heap.count > 0)
        fprintf(stderr, "%zu samples: %zu allocations\n", count, heap.count);
    CHECK(heap.count == 0);
    law_samples_free(&s);
}

static void test_allocations(void **arg)
{
    static values v;
    const law_case *c = &cases[CNN];
    if (!HEAP_REPLACED)
        skip();
    for (int threads = 1; threads <= 2; threads++) {
        lk_engine *engine = named_engine(c, &(law_way){.threads = threads}, "conv2,fc1", NULL);
        values_make(engine, "conv2,fc1", many(c), &v);
        count_allocations(engine, c, many(c), &v);
        count_allocations(engine, c, 1, &v);
        values_free(&v);
        lk_engine_destroy(engine);
    }
}

/* A device whose losses compute the log-softmax before them, and whose memory the host cannot reach. */
static lk_device_type viewing;

static lk_status open_viewing(const lk_device_opts *opts, lk_device **out)
{
    LK_TRY(lk__device_cpu.open(opts, out));
    (*out)->type = &viewing;
    return LK_OK;
}

static void test_loss_views(void **arg)
{
    const law_case *c = &cases[CNN];
    const struct truth *t = truth_of(CNN);
    static values v;
    viewing = lk__device_cpu;
    viewing.name = "viewing";
    viewing.loss_views = true;
    viewing.host_memory = false;
    viewing.open = open_viewing;
    law_require(lk__device_add(&viewing));
    lk_engine *engine = named_engine(c, &(law_way){.threads = 1, .device = "viewing"}, t->names, NULL);
    lk_engine *cpu = named_engine(c, &(law_way){.threads = 1}, NULL, NULL);
    lk_state *state;
    train(c, cpu, false);
    law_require(lk_engine_state(cpu, &state));
    law_require(lk_engine_set_state(engine, state));
    values_make(engine, t->names, many(c), &v);
    forward(c, engine, false, many(c), &v);
    assert_memory_equal(value_of(&v, "fc2"), value_of(&t->many, "fc2"), many(c) * 10 * sizeof(float));
    assert_memory_equal(value_of(&v, "node12"), v.list[0].values, v.floats[0] * sizeof(float));
    for (size_t i = 0; i < v.floats[0]; i++) /* both are rounded from about the same number, below 8 */
        assert_true(fabsf(v.list[0].values[i] - t->many.list[0].values[i]) <= 4 * 8 * 0x1p-24f);
    values_free(&v);
    lk_state_destroy(state);
    lk_engine_destroy(cpu);
    lk_engine_destroy(engine);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_node_alone),   cmocka_unit_test(test_training_with_each_node),
        cmocka_unit_test(test_values_of_the_cnn), cmocka_unit_test(test_scores_give_the_loss),
        cmocka_unit_test(test_one_at_a_time),     cmocka_unit_test(test_allocations),
        cmocka_unit_test(test_loss_views)};
    int failed = ranks_run_rows(rows, COUNT_OF(rows), argc > 1 ? argv[1] : NULL, test_row);
    return argc > 1 ? failed : failed + cmocka_run_group_tests(tests, NULL, NULL);
}
