/* test_own_op.c - registering ops of the program's own, each mistake in doing so, and lk_op_check, which must find each
 * planted fault by the check that is meant for it. */
#include <pthread.h>

#include <lockstep/lockstep.h>

#include "nn/graph.h"
#include "own_ops.h"

static const lk_op_check_opts small = {.x = {{2, 3, 4}, {2, 3, 4}}};

static lk_op_def swish_as(const char *name)
{
    return (lk_op_def){.name = name,
                       .inputs = 1,
                       .params = {"slope"},
                       .shape = swish_shape,
                       .forward = swish_forward,
                       .backward = swish_backward};
}

static void test_correct(void **arg)
{
    char report[1024];
    lk_op_check_opts opts = small;
    gate_attr attr = {.no_bias = 1};
    opts.report = report;
    opts.report_bytes = sizeof report;
    assert_ok(lk_op_check("swish", &opts));
    assert_contains(report, "guards: ");
    assert_contains(report, "outputs: ");
    assert_contains(report, "state: ");
    assert_contains(report, "samples: ");
    assert_contains(report, "threads: ");
    assert_contains(report, "shards: ");
    assert_contains(report, "gradients: ");
    assert_ok(lk_op_check("gate", &opts));
    opts.samples = 13;
    opts.seed = 5;
    assert_ok(lk_op_check("gate", &opts));
    opts.attr = &attr;
    opts.attr_bytes = sizeof attr;
    assert_ok(lk_op_check("gate", &opts));
}

static void forward_hole(const lk_op_args *args)
{
    swish_forward(args);
    uint32_t nan = 0x7fc00000u;
    memcpy(&args->y[5], &nan, sizeof nan);
}

static void backward_adds(const lk_op_args *args)
{
    for (size_t i = 0; i < swish_floats(args); i++) {
        if (args->dx[0])
            args->dx[0][i] += args->dy[i];
    }
}

static void backward_wrong(const lk_op_args *args)
{
    for (size_t i = 0; i < swish_floats(args) && args->dx[0]; i++)
        args->dx[0][i] = args->dy[i] * args->workspace[i];
    if (args->grad[0])
        swish_backward(args);
}

static void backward_wrong_param(const lk_op_args *args)
{
    swish_backward(args);
    for (size_t i = 0; i < args->y_size.channels && args->grad[0]; i++)
        args->grad[0][i] = -args->grad[0][i];
}

/* Every sample gets a part of the first sample of the call. */
static void forward_mixes(const lk_op_args *args)
{
    size_t sample = swish_floats(args) / args->n;
    swish_forward(args);
    for (size_t i = 0; i < swish_floats(args); i++)
        args->y[i] += 0.125f * args->x[0][i % sample];
}

static void forward_counts(const lk_op_args *args)
{
    static unsigned calls;
    float extra = (float)(__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) % 5);
    swish_forward(args);
    args->y[0] += extra;
}

/* What backward needs is kept in a variable: two waves between their passes overwrite it. */
static float kept[4096];

static void forward_keeps(const lk_op_args *args)
{
    swish_forward(args);
    memcpy(kept, args->workspace, swish_floats(args) * sizeof *kept);
}

static void backward_keeps(const lk_op_args *args)
{
    lk_op_args changed = *args;
    changed.workspace = kept;
    swish_backward(&changed);
}

/* A call of two samples is not used by waves of 13 samples in 3 shards, but by two threads. */
static void forward_of_two(const lk_op_args *args)
{
    swish_forward(args);
    if (args->n == 2)
        args->y[0] = 0.0f;
}

/* The mean instead of the sum. */
static void backward_mean(const lk_op_args *args)
{
    swish_backward(args);
    for (size_t i = 0; i < args->y_size.channels && args->grad[0]; i++)
        args->grad[0][i] /= (float)args->n;
}

/* Thousands of steps in the range of inputs. */
static void forward_rough(const lk_op_args *args)
{
    for (size_t i = 0; i < swish_floats(args); i++) {
        args->workspace[i] = 0.5f;
        args->y[i] = floorf(args->x[0][i] * 40.0f);
    }
}

static const struct fault {
    const char *name;
    void (*forward)(const lk_op_args *args);
    void (*backward)(const lk_op_args *args);
    size_t samples;
    const char *check, *place; /* parts of the detail */
} faults[] = {
    {"hole", forward_hole, swish_backward, 0, "check `outputs`", "y of sample 0, element 5, is NaN"},
    {"adds", swish_forward, backward_adds, 0, "check `outputs`", "dx[0] of sample 0, element 0, is NaN"},
    {"counts", forward_counts, swish_backward, 0, "check `state`", "y of sample 0, element 0, is"},
    {"mixes", forward_mixes, swish_backward, 0, "check `samples`", "y of sample 1, element 0, is"},
    {"keeps", forward_keeps, backward_keeps, 0, "check `samples`", "dx[0] of sample 0, element 0, is"},
    {"of_two", forward_of_two, swish_backward, 13, "check `threads`", "with 2 threads"},
    {"mean", swish_forward, backward_mean, 0, "check `shards`", "grad of slope, element 0, is"},
    {"wrong", swish_forward, backward_wrong, 0, "check `gradients`", "dx[0] of sample"},
    {"wrong_param", swish_forward, backward_wrong_param, 0, "check `gradients`", "grad of slope, element 0, is"},
    {"rough", forward_rough, swish_backward, 0, "check `gradients`", "not smooth"},
};

static void test_faults(void **arg)
{
    for (size_t i = 0; i < COUNT_OF(faults); i++) {
        lk_op_def def = swish_as(faults[i].name);
        lk_op_check_opts opts = small;
        opts.samples = faults[i].samples;
        def.forward = faults[i].forward;
        def.backward = faults[i].backward;
        assert_ok(lk_op_register(&def));
        assert_fails(lk_op_check(faults[i].name, &opts), LK_STATUS_MISMATCH, faults[i].check);
        assert_contains(lk_error_detail(), faults[i].place);
        assert_contains(lk_error_detail(), faults[i].name);
    }
}

/* Gives the gradient of the second input only together with that of the first. */
static void backward_pair(const lk_op_args *args)
{
    lk_op_args changed = *args;
    if (!args->dx[0])
        changed.dx[1] = NULL;
    gate_backward(&changed);
}

/* In a graph, one input of an op may be the samples, which want no gradient. */
static void test_one_gradient(void **arg)
{
    lk_op_def def = {.name = "pair",
                     .inputs = 2,
                     .params = {"weight", "bias"},
                     .shape = gate_shape,
                     .forward = gate_forward,
                     .backward = backward_pair};
    lk_op_check_opts opts = {.x = {{2, 3, 4}, {2, 3, 4}}};
    assert_ok(lk_op_register(&def));
    assert_fails(lk_op_check("pair", &opts), LK_STATUS_MISMATCH, "check `threads`: dx[1] of sample 0, element 0, is");
    assert_contains(lk_error_detail(), "nan with 1 thread, one wave and no dx[0]");
}

/* An op with kinks, which random inputs hit now and then. */
static lk_status abs_shape(lk_op_shape *shape)
{
    (void)shape;
    return LK_OK;
}

static void abs_forward(const lk_op_args *args)
{
    for (size_t i = 0; i < swish_floats(args); i++)
        args->y[i] = fabsf(args->x[0][i]);
}

static void abs_backward(const lk_op_args *args)
{
    for (size_t i = 0; i < swish_floats(args) && args->dx[0]; i++)
        args->dx[0][i] = args->x[0][i] < 0 ? -args->dy[i] : args->dy[i];
}

static void test_kinks(void **arg)
{
    lk_op_def def = {.name = "abs", .inputs = 1, .shape = abs_shape, .forward = abs_forward, .backward = abs_backward};
    assert_ok(lk_op_register(&def));
    for (uint64_t seed = 0; seed < 8; seed++) {
        lk_op_check_opts opts = small;
        opts.seed = seed;
        assert_ok(lk_op_check("abs", &opts));
    }
}

static void rejects(lk_op_def def, const char *part)
{
    assert_fails(lk_op_register(&def), LK_STATUS_USAGE, part);
}

static void test_register_mistakes(void **arg)
{
    lk_op_def def = swish_as("swish");
    rejects(def, "op 'swish' is registered already");
    rejects(swish_as(""), "a name has 1 to 63");
    rejects(swish_as("two words"), "a name has 1 to 63");
    rejects(swish_as(NULL), "name");
    assert_fails(lk_op_register(NULL), LK_STATUS_USAGE, "def");
    def = swish_as("bad");
    def.inputs = 0;
    rejects(def, "`inputs` is 0");
    def.inputs = 3;
    rejects(def, "`inputs` is 3; 1 to 2");
    def = swish_as("bad");
    def.shape = NULL;
    rejects(def, "`shape` is NULL");
    def = swish_as("bad");
    def.forward = NULL;
    rejects(def, "`forward` is NULL");
    def = swish_as("bad");
    def.backward = NULL;
    rejects(def, "`backward` is NULL");
    def = swish_as("bad");
    def.cuda_forward = swish_forward;
    rejects(def, "`cuda_backward` is NULL");
    def = swish_as("bad");
    def.params[1] = "slope";
    rejects(def, "two parameters are named 'slope'");
    def.params[1] = "a.b";
    rejects(def, "'a.b' of parameter 1");
    def = swish_as("bad");
    def.reserved[3] = 1;
    rejects(def, "reserved");
    assert_fails(lk_op_check("bad", &small), LK_STATUS_NOT_FOUND, "no op 'bad'");
}

/* A shape function that makes the mistake that its attribute numbers. */
static lk_status shape_bad(lk_op_shape *shape)
{
    LK_TRY(swish_shape(shape));
    switch (*(const int32_t *)shape->attr) {
    case 0:
        shape->y.width = 0;
        break;
    case 1:
        shape->param_count = 2;
        break;
    case 2:
        shape->param[0].ndim = 5;
        break;
    case 3:
        shape->param[0].dims[0] = 0;
        break;
    case 4:
        shape->param[0].first = (lk_op_first)9;
        break;
    case 5:
        shape->param[0].first = LK_OP_FIRST_UNIFORM;
        shape->param[0].number = 0;
        break;
    case 6:
        shape->reserved[0] = 1;
        break;
    case 7:
        return lk_fail(LK_STATUS_FORMAT, "no such table");
    case 8:
        shape->workspace = SIZE_MAX;
        break;
    case 9:
        return LK_STATUS_UNSUPPORTED;
    case 10:
        return (lk_status)-1;
    default:
        break;
    }
    return LK_OK;
}

static void test_shape_mistakes(void **arg)
{
    static const struct {
        const char *part;
        lk_status status; /* LK_OK: USAGE */
    } mistakes[] = {
        {"width 0"},
        {"`param_count` is 2"},
        {"5 dimensions"},
        {"`dims[0]` of parameter 'slope' is 0"},
        {"`first`"},
        {"a fan in"},
        {"lk_op_shape"},
        {"op 'misshaped': no such table", LK_STATUS_FORMAT},
        {"workspace"},
        {"op 'misshaped': not available", LK_STATUS_UNSUPPORTED}, /* not the detail of the mistake before it */
        {"op 'misshaped': the program's function returned -1"},
    };
    lk_op_def def = swish_as("misshaped");
    def.shape = shape_bad;
    assert_ok(lk_op_register(&def));
    for (int32_t i = 0; i < (int32_t)COUNT_OF(mistakes); i++) {
        lk_graph *graph;
        assert_ok(lk_graph_create(&graph));
        lk_node x = lk_input(graph, 3, 2, 2);
        x = lk_op_add(graph, "misshaped", "own", &x, 1, &i, sizeof i);
        assert_true(x.index < 0);
        assert_fails(lk_graph_check(graph), mistakes[i].status ? mistakes[i].status : LK_STATUS_USAGE,
                     mistakes[i].part);
        lk_graph_destroy(graph);
    }
}

typedef lk_node (*add_fn)(lk_graph *graph, lk_node x);

static lk_node add_unknown(lk_graph *graph, lk_node x)
{
    return lk_op_add(graph, "swosh", "own", &x, 1, NULL, 0);
}

static lk_node add_null_op(lk_graph *graph, lk_node x)
{
    return lk_op_add(graph, NULL, "own", &x, 1, NULL, 0);
}

static lk_node add_null_inputs(lk_graph *graph, lk_node x)
{
    (void)x;
    return lk_op_add(graph, "swish", "own", NULL, 1, NULL, 0);
}

static lk_node add_null_attr(lk_graph *graph, lk_node x)
{
    return lk_op_add(graph, "swish", "own", &x, 1, NULL, 4);
}

static lk_node add_one(lk_graph *graph, lk_node x)
{
    return lk_op_add(graph, "gate", "own", &x, 1, NULL, 0);
}

static lk_node add_large(lk_graph *graph, lk_node x)
{
    static const char attr[LK_OP_MAX_ATTR + 1];
    return lk_op_add(graph, "swish", "own", &x, 1, attr, sizeof attr);
}

static lk_node add_unequal(lk_graph *graph, lk_node x)
{
    lk_node inputs[] = {x, lk_flatten(graph, x)};
    return lk_op_add(graph, "gate", "own", inputs, 2, NULL, 0);
}

static lk_node add_nameless(lk_graph *graph, lk_node x)
{
    return lk_op_add(graph, "swish", NULL, &x, 1, NULL, 0);
}

static void test_add_mistakes(void **arg)
{
    static const struct {
        add_fn add;
        lk_status status;
        const char *part;
    } cases[] = {
        {add_unknown, LK_STATUS_NOT_FOUND, "no op 'swosh' is registered"},
        {add_null_op, LK_STATUS_USAGE, "op"},
        {add_null_inputs, LK_STATUS_USAGE, "inputs"},
        {add_null_attr, LK_STATUS_USAGE, "attr"},
        {add_one, LK_STATUS_USAGE, "takes 2 inputs, and got 1"},
        {add_large, LK_STATUS_USAGE, "257 bytes"},
        {add_unequal, LK_STATUS_USAGE, "op 'gate': a gate needs two inputs of one shape"},
        {add_nameless, LK_STATUS_USAGE, "needs a name"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        lk_graph *graph;
        assert_ok(lk_graph_create(&graph));
        assert_true(cases[i].add(graph, lk_input(graph, 3, 2, 2)).index < 0);
        assert_fails(lk_graph_check(graph), cases[i].status, cases[i].part);
        lk_graph_destroy(graph);
    }
    assert_true(lk_op_add(NULL, "swish", "own", &(lk_node){0}, 1, NULL, 0).index < 0);
}

static void test_check_mistakes(void **arg)
{
    lk_op_check_opts opts = {0};
    assert_fails(lk_op_check("swish", &opts), LK_STATUS_USAGE, "`x[0]` has a size of 0");
    opts = small;
    opts.samples = 2;
    assert_fails(lk_op_check("swish", &opts), LK_STATUS_USAGE, "`samples` is 2");
    opts = small;
    opts.low = 2;
    assert_fails(lk_op_check("swish", &opts), LK_STATUS_USAGE, "`low`");
    opts = small;
    opts.tolerance = 1;
    assert_fails(lk_op_check("swish", &opts), LK_STATUS_USAGE, "`tolerance`");
    assert_fails(lk_op_check(NULL, &opts), LK_STATUS_USAGE, "op");
    assert_fails(lk_op_check("swish", NULL), LK_STATUS_USAGE, "opts");
    opts = small;
    opts.device = "abacus";
    assert_true(lk_op_check("swish", &opts) != LK_OK);
    assert_contains(lk_error_detail(), "abacus");
}

/* A device whose memory is not the host's and whose pixels are padded: the CPU in disguise. */
static lk_kernels padded_kernels;
static lk_device_type padded_type;

static size_t padded_pitch(size_t channels)
{
    return (channels + 7) / 8 * 8;
}

static void padded_copy(lk_device *dev, const lk_tensor *x, lk_tensor *y)
{
    size_t pixels = x->shape.n * x->shape.h * x->shape.w, from = lk__tensor_pitch(x), to = lk__tensor_pitch(y);
    (void)dev;
    for (size_t i = 0; i < pixels * to; i++)
        lk__tensor_f32(y)[i] = i % to < x->shape.c ? lk__tensor_f32(x)[i / to * from + i % to] : 0.0f;
}

static lk_status padded_open(const lk_device_opts *opts, lk_device **out)
{
    LK_TRY(lk__device_cpu.open(opts, out));
    padded_kernels = *(*out)->kernels;
    padded_kernels.copy = padded_copy;
    (*out)->kernels = &padded_kernels;
    (*out)->type = &padded_type;
    return LK_OK;
}

static void padded_add(void)
{
    padded_type = lk__device_cpu;
    padded_type.name = "padded";
    padded_type.host_memory = false;
    padded_type.pitch = padded_pitch;
    padded_type.open = padded_open;
    assert_ok(lk__device_add(&padded_type));
}

static void never(const lk_op_args *args)
{
    (void)args;
    CHECK(!"a function of the CPU runs on another device");
}

/* The functions of the device see dense values; without them the op is not supported there. */
static void test_padded(void **arg)
{
    lk_op_def def = swish_as("elsewhere");
    lk_op_check_opts opts = {.x = {{2, 3, 5}}, .device = "padded"};
    def.forward = def.backward = never;
    def.cuda_forward = swish_forward;
    def.cuda_backward = swish_backward;
    padded_add();
    assert_ok(lk_op_register(&def));
    assert_ok(lk_op_check("elsewhere", &opts));
    opts.x[0].channels = 8;
    assert_ok(lk_op_check("elsewhere", &opts));
    assert_fails(lk_op_check("swish", &opts), LK_STATUS_UNSUPPORTED, "op 'swish' has no functions for padded");
}

static void test_unsupported(void **arg)
{
    lk_graph *graph;
    lk_engine *engine;
    assert_ok(lk_graph_create(&graph));
    lk_node x = lk_input(graph, 3, 1, 1);
    lk_cross_entropy(graph, lk_op_add(graph, "swish", "own", &x, 1, NULL, 0));
    lk_engine_opts opts = {.batch = 4, .device = "padded"};
    assert_fails(lk_engine_create(graph, &opts, &engine), LK_STATUS_UNSUPPORTED, "set `cuda_forward`");
    lk_graph_destroy(graph);
}

/* The hash of a model has the op's name and its attributes. */
static uint64_t hash_with(const char *op, const void *attr, size_t bytes)
{
    lk_graph *graph;
    assert_ok(lk_graph_create(&graph));
    lk_node x = lk_input(graph, 3, 1, 1);
    lk_node inputs[] = {x, x};
    lk_cross_entropy(graph, lk_op_add(graph, op, "own", inputs, strcmp(op, "gate") == 0 ? 2 : 1, attr, bytes));
    assert_ok(lk_graph_check(graph));
    uint64_t hash = lk__graph_hash(graph);
    lk_graph_destroy(graph);
    return hash;
}

static void test_hash(void **arg)
{
    gate_attr with = {0}, without = {1};
    lk_op_def same = swish_as("swash");
    assert_ok(lk_op_register(&same));
    uint64_t a = hash_with("swish", NULL, 0), b = hash_with("swash", NULL, 0);
    uint64_t c = hash_with("gate", NULL, 0), d = hash_with("gate", &with, sizeof with);
    assert_true(a != b && c != d && d != hash_with("gate", &without, sizeof without));
    assert_true(a == hash_with("swish", NULL, 0) && d == hash_with("gate", &with, sizeof with));
}

/* Two threads register at once: of each name one succeeds. A third uses the table. */
enum { NAMES = 40 };

static void *register_all(void *arg)
{
    size_t *done = arg;
    for (int i = 0; i < NAMES; i++) {
        char name[32];
        snprintf(name, sizeof name, "racing%d", i);
        lk_op_def def = swish_as(name);
        *done += lk_op_register(&def) == LK_OK;
    }
    return NULL;
}

static void *look_up(void *arg)
{
    for (int i = 0; i < NAMES; i++) {
        lk_graph *graph;
        CHECK_OK(lk_graph_create(&graph));
        lk_node x = lk_input(graph, 3, 2, 2);
        lk_op_add(graph, "racing7", "own", &x, 1, NULL, 0);
        lk_graph_destroy(graph);
    }
    return arg;
}

static void test_threads(void **arg)
{
    pthread_t threads[3];
    size_t done[2] = {0};
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, register_all, &done[i]), 0);
    assert_int_equal(pthread_create(&threads[2], NULL, look_up, NULL), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(done[0] + done[1], NAMES);
}

/* The last test: fills the table. */
static void test_limit(void **arg)
{
    lk_status status = LK_OK;
    for (int i = 0; i <= LK_OP_LIMIT && status == LK_OK; i++) {
        char name[32];
        snprintf(name, sizeof name, "filler%d", i);
        lk_op_def def = swish_as(name);
        status = lk_op_register(&def);
    }
    assert_int_equal(status, LK_STATUS_USAGE);
    assert_contains(lk_error_detail(), "this process has registered 256 ops");
    assert_ok(lk_op_check("swish", &small));
}

static int set_up(void **arg)
{
    own_ops_register();
    return 0;
}

TEST_MAIN(set_up, NULL, TEST(test_correct), TEST(test_faults), TEST(test_one_gradient), TEST(test_kinks),
          TEST(test_register_mistakes), TEST(test_shape_mistakes), TEST(test_add_mistakes), TEST(test_check_mistakes),
          TEST(test_hash), TEST(test_padded), TEST(test_unsupported), TEST(test_threads), TEST(test_limit))
