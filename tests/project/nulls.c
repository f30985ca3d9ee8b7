/* nulls.c - NULL where it is not allowed is an error, not a crash: every public function is called with NULL for
 * each of its pointers, one at a time, with valid values for the other arguments. tools/api.py writes the cases from
 * the headers (nulls.inc), so a new function has its cases at once; an argument of a new type needs a value below.
 *
 * A function with a status must return USAGE and name the argument. A builder leaves that mistake in its graph. Every
 * other function must return. Each case runs in a process of its own, so that a crash is named. */
#include <signal.h>
#include <sys/wait.h>

#include <lockstep/lockstep.h>

#include "check.h"
#include "temp_folder.h"

typedef enum null_kind { KIND_LK_STATUS, KIND_BUILDER, KIND_OTHER } null_kind;

typedef struct null_case {
    const char *function, *argument;
    null_kind kind;
    lk_status (*call)(void);
} null_case;

/* The arguments that may be NULL, as the headers say; "*" is every function. */
static const struct allowed {
    const char *function, *argument;
} allowed[] = {
    {"*", "request"},
    {"*", "arg"},
    {"lk_allgather", "counts"},
    {"lk_alltoall", "recv"},
    {"lk_alltoall", "send"},
    {"lk_augmented_shape", "augment"},
    {"lk_checkpoint_create", "model"},
    {"lk_checkpoint_create", "optimizer"},
    {"lk_dataset_open", "dir"},
    {"lk_gather", "counts"},
    {"lk_group_create_threads", "opts"},
    {"lk_group_from_mpi", "opts"},
    {"lk_group_join", "opts"},
    {"lk_op_add", "name"},
    {"lk_reduce_scatter", "counts"},
    {"lk_scatter", "counts"},
    {"lk_state_add", "dims"},
    {"lk_train", "events"},
    {"lk_train", "out"},
};

static char word[] = "word";
static float floats[16];
static const void *const roots[] = {floats};
static const int bounds[] = {0, 1};
static const size_t sizes[] = {1, 0};
static size_t counts[] = {1, 0};
static const int32_t labels[] = {0};
static const uint32_t ids[] = {0};
static lk_graph *graph;
static lk_node node;

static lk_graph *value_lk_graph_1(void)
{
    if (!graph) {
        CHECK_OK(lk_graph_create(&graph));
        node = lk_conv2d(graph, lk_input(graph, 1, 1, 1), "conv", (lk_conv2d_opts){.out = 1, .kernel = 1});
    }
    return graph;
}

static lk_node value_lk_node_0(void)
{
    value_lk_graph_1();
    return node;
}

static const lk_train_opts *value_lk_train_opts_1(void)
{
    static const lk_train_opts opts = {.alone = true, .model = "none"};
    return &opts;
}

static const lk_train_events *value_lk_train_events_1(void)
{
    static const lk_train_events events;
    return &events;
}

static lk_train_result *value_lk_train_result_1(void)
{
    static lk_train_result result;
    return &result;
}

static lk_lr_schedule *value_lk_lr_schedule_1(void)
{
    lk_lr_schedule *schedule;
    CHECK_OK(lk_lr_schedule_create("constant", &schedule));
    return schedule;
}

static lk_status builder_mistake(void)
{
    return lk_graph_check(value_lk_graph_1());
}

static lk_state *value_lk_state_1(void)
{
    lk_state *state;
    lk_state_entry *entry;
    CHECK_OK(lk_state_create(&state));
    CHECK_OK(lk_state_add(state, "entry", LK_DTYPE_F32, 1, sizes, &entry));
    return state;
}

static lk_checkpoint *value_lk_checkpoint_1(void)
{
    lk_checkpoint *checkpoint;
    CHECK_OK(lk_checkpoint_create(value_lk_state_1(), value_lk_state_1(), &checkpoint));
    return checkpoint;
}

static lk_dataset *value_lk_dataset_1(void)
{
    lk_dataset *data;
    CHECK_OK(lk_dataset_open("digits", NULL, LK_SPLIT_TEST, &data));
    return data;
}

static const lk_dataset_opts *value_lk_dataset_opts_1(void)
{
    static const lk_dataset_opts opts = {.count = 1, .dims = {1}, .targets = 1};
    return &opts;
}

static lk_status read_nothing(void *arg, size_t index, void *sample, void *target)
{
    return LK_OK;
}

static lk_dataset_read_fn value_lk_dataset_read_fn_0(void)
{
    return read_nothing;
}

static const lk_loader_opts *value_lk_loader_opts_1(void)
{
    static const lk_loader_opts opts = {.batch = 1};
    return &opts;
}

static lk_loader *value_lk_loader_1(void)
{
    lk_loader *loader;
    CHECK_OK(lk_loader_create(value_lk_dataset_1(), value_lk_loader_opts_1(), &loader));
    CHECK_OK(lk_loader_start(loader, 0, 0));
    return loader;
}

static const lk_engine_opts *value_lk_engine_opts_1(void)
{
    static const lk_engine_opts opts = {.batch = 1, .threads = 1};
    return &opts;
}

static lk_engine *value_lk_engine_1(void)
{
    lk_graph *whole;
    lk_engine *engine;
    CHECK_OK(lk_graph_create(&whole));
    lk_cross_entropy(whole, lk_linear(whole, lk_flatten(whole, lk_input(whole, 1, 2, 2)), "fc", 2));
    CHECK_OK(lk_engine_create(whole, value_lk_engine_opts_1(), &engine));
    return engine;
}

static const lk_batch *value_lk_batch_1(void)
{
    static const lk_batch batch = {.count = 1, .sample_floats = 4, .x = floats, .labels = labels, .ids = ids};
    return &batch;
}

static const lk_group_opts *value_lk_group_opts_1(void)
{
    static const lk_group_opts opts = {.timeout = 5};
    return &opts;
}

static void combine_nothing(void *arg, lk_dtype dtype, const void *left, const void *right, void *out, size_t count)
{
}

static lk_reduction_fn value_lk_reduction_fn_0(void)
{
    return combine_nothing;
}

static lk_reduction *value_lk_reduction_1(void)
{
    static lk_reduction reduction;
    return &reduction;
}

static lk_group *value_lk_group_1(void)
{
    static lk_group *group;
    if (!group)
        CHECK_OK(lk_group_create_threads(1, NULL, &group));
    return group;
}

static lk_request *value_lk_request_1(void)
{
    lk_request *request;
    CHECK_OK(lk_barrier(value_lk_group_1(), &request));
    return request;
}

static const lk_shard_sums *value_lk_shard_sums_1(void)
{
    static const lk_shard_sums sums = {bounds, roots};
    return &sums;
}

static int level(void *arg)
{
    return arg != NULL;
}

static int child_of_spawn(int rank, void *arg)
{
    return rank + (arg == NULL);
}

static void ignore_difference(void *arg, const char *key, const char *what)
{
}

/* VALUE(NAME, TYPE, EXPRESSION): the function value_NAME. */
#define VALUE(name, type, ...)            \
    static inline type value_##name(void) \
    {                                     \
        return __VA_ARGS__;               \
    }
/* OUTPUT(NAME, TYPE): memory for a result. */
#define OUTPUT(name, type)                 \
    static inline type *value_##name(void) \
    {                                      \
        static type place[8];              \
        return place;                      \
    }
typedef int (*level_fn)(void *);
VALUE(function, level_fn, level)
VALUE(lk_spawn_fn_0, lk_spawn_fn, child_of_spawn)
VALUE(lk_difference_fn_0, lk_difference_fn, ignore_difference)
VALUE(char_1, char *, word)
VALUE(void_1, void *, floats + 8)
VALUE(size_t_1, size_t *, counts)
VALUE(int_0, int, 0)
VALUE(lk_status_0, lk_status, LK_STATUS_IO)
VALUE(size_t_0, size_t, 1)
VALUE(int32_t_0, int32_t, 0)
VALUE(bool_0, bool, false)
VALUE(double_0, double, 0)
VALUE(lk_dtype_0, lk_dtype, LK_DTYPE_F32)
VALUE(lk_split_0, lk_split, LK_SPLIT_TEST)
VALUE(lk_reduction_0, lk_reduction, LK_REDUCTION_SUM)
VALUE(lk_buffer_0, lk_buffer, (lk_buffer){floats, 1, LK_DTYPE_F32})
VALUE(lk_model_shape_0, lk_model_shape, (lk_model_shape){1, 28, 28, 10})
VALUE(lk_conv2d_opts_0, lk_conv2d_opts, (lk_conv2d_opts){.out = 1, .kernel = 1})
VALUE(lk_conv_transpose2d_opts_0, lk_conv_transpose2d_opts, (lk_conv_transpose2d_opts){.out = 1, .kernel = 1})
VALUE(lk_maxpool2d_opts_0, lk_maxpool2d_opts, (lk_maxpool2d_opts){.kernel = 1})
VALUE(lk_avgpool2d_opts_0, lk_avgpool2d_opts, (lk_avgpool2d_opts){.kernel = 1})
VALUE(float_1, float *, floats)
VALUE(lk_node_1, const lk_node *, (value_lk_graph_1(), &node))
VALUE(lk_lr_schedule_at_0, lk_lr_schedule_at, (lk_lr_schedule_at){.epochs = 1, .batches = 1})
VALUE(lk_lr_schedule_result_0, lk_lr_schedule_result, (lk_lr_schedule_result){0})
OUTPUT(lk_output_1, lk_output)
OUTPUT(lk_param_group_1, lk_param_group)
OUTPUT(lk_op_check_opts_1, lk_op_check_opts)
OUTPUT(lk_loss_check_opts_1, lk_loss_check_opts)
OUTPUT(lk_lr_schedule_watch_1, lk_lr_schedule_watch)
OUTPUT(lk_lr_schedule_2, lk_lr_schedule *)
OUTPUT(bool_1, bool)
OUTPUT(int_1, int)
OUTPUT(int32_t_1, int32_t)
OUTPUT(uint8_t_1, uint8_t)
OUTPUT(void_2, void *)
OUTPUT(lk_batch_2, const lk_batch *)
OUTPUT(lk_checkpoint_2, lk_checkpoint *)
OUTPUT(lk_dataset_2, lk_dataset *)
OUTPUT(lk_engine_2, lk_engine *)
OUTPUT(lk_graph_2, lk_graph *)
OUTPUT(lk_group_2, lk_group *)
OUTPUT(lk_loader_2, lk_loader *)
OUTPUT(lk_metrics_1, lk_metrics)
OUTPUT(lk_request_2, lk_request *)
OUTPUT(lk_sample_shape_1, lk_sample_shape)
OUTPUT(lk_state_2, lk_state *)
OUTPUT(lk_state_entry_2, lk_state_entry *)

#include "nulls.inc"

static bool may_be_null(const null_case *c)
{
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
        if ((strcmp(allowed[i].function, "*") == 0 || strcmp(allowed[i].function, c->function) == 0) &&
            strcmp(allowed[i].argument, c->argument) == 0)
            return true;
    return false;
}

/* A builder whose graph is NULL has no place for its mistake. */
static bool needs_error(const null_case *c)
{
    return c->kind == KIND_LK_STATUS || (c->kind == KIND_BUILDER && strcmp(c->argument, "graph") != 0);
}

static void run_in_child(const null_case *c)
{
    /* cmocka handles these signals: the parent must see them. */
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        signal(crashes[i], SIG_DFL);
    alarm(60);
    lk_status status = c->call();
    if (needs_error(c) && !may_be_null(c)) {
        char words[128];
        CHECK(status == LK_STATUS_USAGE);
        snprintf(words, sizeof words, "%s is NULL", c->argument);
        CHECK_TEXT(lk_error_detail(), words);
    }
    _exit(0);
}

static bool passes(const null_case *c)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        run_in_child(c);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    print_error("%s with %s NULL: %s %d\n", c->function, c->argument, WIFSIGNALED(status) ? "signal" : "exit status",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return false;
}

static void test_null_is_an_error(void **state)
{
    int failures = 0;
    for (size_t i = 0; i < sizeof null_cases / sizeof *null_cases; i++)
        failures += !passes(&null_cases[i]);
    assert_int_equal(failures, 0);
}

/* A failing case may leave files. */
static int set_up(void **state)
{
    return temp_folder_set_up(state) || chdir(temp_folder);
}

/* Every row of `allowed` is an argument that exists. */
static void test_allowed_arguments_exist(void **state)
{
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
        bool found = false;
        for (size_t k = 0; k < sizeof null_cases / sizeof *null_cases; k++)
            found =
                found ||
                ((strcmp(allowed[i].function, "*") == 0 || strcmp(allowed[i].function, null_cases[k].function) == 0) &&
                 strcmp(allowed[i].argument, null_cases[k].argument) == 0);
        if (!found)
            fail_msg("%s has no pointer %s", allowed[i].function, allowed[i].argument);
    }
}

TEST_MAIN(set_up, temp_folder_tear_down, TEST(test_null_is_an_error), TEST(test_allowed_arguments_exist))
