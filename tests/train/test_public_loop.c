/* test_public_loop.c - lk_train: the bits of the program's loop for any number of ranks, graphs and data of the
 * program's own, resuming, the order of events, what event functions may ask, and mistakes. */
#include <pthread.h>
#include <stdlib.h>

#include "tiny.h"

enum { SAMPLES = 70, FEATURES = 6, CLASSES = 3, MOST = 3 };

/* Samples of the program's own: each class has its own feature. */
static float own_x[SAMPLES][FEATURES];
static int32_t own_labels[SAMPLES];

static lk_dataset *own_data(size_t count)
{
    lk_dataset_opts opts = {.name = "blobs", .count = count, .dims = {FEATURES}, .classes = CLASSES};
    lk_dataset *data;
    for (int i = 0; i < SAMPLES; i++) {
        own_labels[i] = i % CLASSES;
        for (int f = 0; f < FEATURES; f++)
            own_x[i][f] = (float)((f == i % CLASSES ? 4 : 0) + (i * 7 + f * 3) % 5) / 4;
    }
    assert_ok(lk_dataset_from_memory(&opts, own_x, own_labels, &data));
    return data;
}

static lk_graph *own_graph(size_t hidden)
{
    lk_graph *graph;
    assert_ok(lk_graph_create(&graph));
    lk_node x = lk_flatten(graph, lk_input(graph, FEATURES, 1, 1));
    x = lk_relu(graph, lk_linear(graph, x, "fc1", hidden));
    lk_cross_entropy(graph, lk_linear(graph, x, "fc2", CLASSES));
    return graph;
}

/* What a rank's event functions have seen, and what they do. */
typedef struct seen {
    char order[512]; /* a letter for each event: s < > e v t S */
    size_t stop_at;  /* the step after which `stop_in` asks for a stop; 0: never */
    char stop_in;    /* the letter of the event */
    lk_status fail;  /* the status of the failure that it asks for instead */
    size_t done;     /* of the start */
    double lr;       /* before_step sets this rate; 0: none */
    double last_lr;  /* of the last step */
    char notices[1024];
} seen;

static void note(seen *s, char letter, lk_train_run *run, size_t step)
{
    size_t used = strlen(s->order);
    if (used + 1 < sizeof s->order)
        s->order[used] = letter;
    assert_non_null(lk_train_engine(run));
    if (s->stop_in != letter || s->stop_at != step)
        return;
    if (s->fail)
        lk_train_fail(run, lk_fail(s->fail, "the table is full"));
    else
        lk_train_stop(run);
}

static void on_public_start(void *arg, const lk_train_start *start)
{
    ((seen *)arg)->done = start->done;
    note(arg, 's', start->run, start->done);
}

static void on_next(void *arg, const lk_train_next *next)
{
    seen *s = arg;
    lk_state *state;
    if (s->lr > 0)
        assert_ok(lk_engine_set_lr(lk_train_engine(next->run), s->lr));
    assert_ok(lk_engine_state(lk_train_engine(next->run), &state)); /* no step is under way */
    lk_state_destroy(state);
    note(arg, '<', next->run, next->step);
}

static void on_public_step(void *arg, const lk_train_step *step)
{
    ((seen *)arg)->last_lr = step->lr;
    note(arg, '>', step->run, step->step);
}

static void on_epoch(void *arg, const lk_train_epoch *epoch)
{
    assert_true(epoch->train_loss > 0);
    note(arg, 'e', epoch->run, epoch->step);
}

static void on_public_test(void *arg, const lk_train_test *test)
{
    assert_true(test->metrics.count > 0);
    note(arg, test->val ? 'v' : 't', test->run, test->step);
}

static void on_notice(void *arg, const char *text)
{
    seen *s = arg;
    size_t used = strlen(s->notices);
    snprintf(s->notices + used, sizeof s->notices - used, "%s\n", text);
}

static lk_train_events events_of(seen *s)
{
    return (lk_train_events){.arg = s,
                             .start = on_public_start,
                             .before_step = on_next,
                             .step = on_public_step,
                             .epoch = on_epoch,
                             .test = on_public_test,
                             .notice = on_notice};
}

/* The ranks of a job, which are threads. */
typedef struct task {
    lk_train_opts opts;
    lk_train_events events;
    lk_train_result result;
    lk_status status;
    char detail[2048];
} task;

static void *run_task(void *arg)
{
    task *t = arg;
    t->status = lk_train(&t->opts, &t->events, &t->result);
    snprintf(t->detail, sizeof t->detail, "%s", t->status == LK_OK ? "" : lk_error_detail());
    return NULL;
}

/* Runs the tasks, which have options and events. */
static void run_ranks(task *tasks, int count)
{
    lk_group *groups[MOST];
    pthread_t threads[MOST];
    assert_ok(lk_group_create_threads(count, &(lk_group_opts){.timeout = 60}, groups));
    for (int i = 0; i < count; i++) {
        tasks[i].opts.group = groups[i];
        assert_int_equal(pthread_create(&threads[i], NULL, run_task, &tasks[i]), 0);
    }
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    for (int i = count; i-- > 0;)
        lk_group_destroy(groups[i]);
}

/* Runs `count` ranks with the same options and no events; returns the hash. */
static uint64_t hash_of(const lk_train_opts *opts, int count)
{
    task tasks[MOST] = {0};
    for (int i = 0; i < count; i++)
        tasks[i].opts = *opts;
    run_ranks(tasks, count);
    for (int i = 0; i < count; i++) {
        assert_string_equal(tasks[i].detail, "");
        assert_int_equal(tasks[i].result.rank, i);
        assert_int_equal(tasks[i].result.ranks, count);
        assert_int_equal(tasks[i].result.hash, tasks[0].result.hash);
    }
    return tasks[0].result.hash;
}

/* Zeros mean what the command line means without these options. */
static void ranks_have_the_bits_of_the_program(void **state)
{
    char path[PATH];
    lk_train_opts opts = {.model = "mlp", .data = below("tiny", path), .epochs = 2, .seed = 1, .accumulate = 2};
    lk_train_opts settings = options(); /* in which a zero is a zero */
    settings.accumulate = 2;
    settings.batch = 2 * 64;
    settings.shards = 2 * 16;
    settings.test_batch = 1000;
    settings.schedule = "step:size=1,gamma=.7";
    record told;
    lk_train_outcome outcome = train_well(&settings, &told);
    lk_train_result result;
    opts.alone = true;
    assert_ok(lk_train(&opts, NULL, &result));
    assert_int_equal(result.hash, outcome.hash);
    assert_int_equal(result.steps, outcome.steps);
    assert_int_equal(result.test.correct, outcome.test.correct);
    assert_int_equal(result.best_step, outcome.best_step);
    opts.alone = false;
    opts.workers = -1;
    for (int ranks = 1; ranks <= MOST; ranks++)
        assert_int_equal(hash_of(&opts, ranks), outcome.hash);
}

static lk_train_opts own_opts(const lk_graph *graph, const lk_dataset *data)
{
    return (lk_train_opts){
        .graph = graph, .train = data, .batch = 16, .epochs = 3, .optimizer = "adam", .schedule = "constant"};
}

static void own_graphs_and_data_give_the_same_bits(void **state)
{
    lk_graph *graph = own_graph(8);
    lk_dataset *data = own_data(SAMPLES), *test = own_data(30);
    lk_train_opts opts = own_opts(graph, data);
    opts.alone = true;
    lk_train_result result;
    assert_ok(lk_train(&opts, NULL, &result));
    assert_int_equal(result.steps, 15);
    assert_int_equal(result.test.count, 0);
    assert_int_equal(result.best_step, 0);
    opts.alone = false;
    opts.test = test;
    opts.val_split = 0; /* tests do not change the weights */
    for (int ranks = 1; ranks <= MOST; ranks++)
        assert_int_equal(hash_of(&opts, ranks), result.hash);
    opts.stages = "2";
    opts.pipelined = true;
    assert_int_equal(hash_of(&opts, 2), result.hash);
    opts.stages = NULL;
    opts.pipelined = false;
    opts.val_split = .2;
    opts.alone = true;
    assert_ok(lk_train(&opts, NULL, &result));
    assert_int_equal(result.val.count, 14);
    assert_int_equal(result.test.count, 30);
    assert_true(result.best_step > 0);
    lk_dataset_destroy(test);
    lk_dataset_destroy(data);
    lk_graph_destroy(graph);
}

static void events_come_in_order(void **state)
{
    lk_graph *graph = own_graph(8);
    lk_dataset *data = own_data(SAMPLES), *test = own_data(30);
    lk_train_opts opts = own_opts(graph, data);
    seen s = {.lr = .125};
    lk_train_events events = events_of(&s);
    opts.alone = true;
    opts.batch = 32;
    opts.epochs = 2;
    opts.test = test;
    opts.val_split = .2;
    assert_ok(lk_train(&opts, &events, NULL));
    assert_string_equal(s.order, "s<><>evt<><>evt");
    assert_true(s.last_lr == .125);
    lk_dataset_destroy(test);
    lk_dataset_destroy(data);
    lk_graph_destroy(graph);
}

/* Whichever rank asks, all ranks stop after the same step, and the run resumes to the bits of one that never stopped.
 */
static void one_rank_stops_all(void **state)
{
    static const struct {
        char in;
        size_t at, ends;
        bool best; /* an epoch was tested */
    } stops[] = {{'s', 0, 0, false}, {'e', 5, 5, false},  {'t', 5, 5, true},  {'<', 7, 7, true},
                 {'>', 7, 8, true},  {'>', 10, 10, true}, {'e', 10, 10, true}};
    lk_graph *graph = own_graph(8);
    lk_dataset *data = own_data(SAMPLES), *test = own_data(30);
    lk_train_opts opts = own_opts(graph, data);
    opts.test = test;
    uint64_t hash = hash_of(&opts, 1);
    for (size_t i = 0; i < COUNT_OF(stops); i++) {
        for (int ranks = 1; ranks <= MOST; ranks += 2) {
            char name[32], dir[PATH];
            task tasks[MOST] = {0};
            seen all[MOST] = {0};
            snprintf(name, sizeof name, "stop%zu-%d", i, ranks);
            all[ranks - 1].stop_in = stops[i].in;
            all[ranks - 1].stop_at = stops[i].at;
            for (int r = 0; r < ranks; r++) {
                tasks[r] = (task){.opts = opts, .events = events_of(&all[r])};
                tasks[r].opts.checkpoint = below(name, dir);
                tasks[r].opts.resume = "auto";
            }
            run_ranks(tasks, ranks);
            for (int r = 0; r < ranks; r++) {
                assert_string_equal(tasks[r].detail, "");
                assert_true(tasks[r].result.stopped);
                assert_int_equal(tasks[r].result.steps, stops[i].ends);
                assert_int_equal(tasks[r].result.hash, tasks[0].result.hash);
                assert_string_equal(all[r].order, all[0].order);
            }
            char best[2 * PATH];
            snprintf(best, sizeof best, "%s/best/checkpoint.json", dir);
            assert_int_equal(access(best, F_OK) == 0, stops[i].best);
            opts.checkpoint = dir;
            opts.resume = "auto";
            assert_int_equal(hash_of(&opts, 2), hash);
            opts.checkpoint = opts.resume = NULL;
        }
    }
    lk_dataset_destroy(test);
    lk_dataset_destroy(data);
    lk_graph_destroy(graph);
}

static void a_failure_of_an_event_function_ends_the_run(void **state)
{
    lk_graph *graph = own_graph(8);
    lk_dataset *data = own_data(SAMPLES);
    task tasks[2] = {0};
    seen all[2] = {{.stop_in = '>'}, {.stop_in = '>', .stop_at = 4, .fail = LK_STATUS_IO}};
    for (int r = 0; r < 2; r++)
        tasks[r] = (task){.opts = own_opts(graph, data), .events = events_of(&all[r])};
    run_ranks(tasks, 2);
    assert_int_equal(tasks[1].status, LK_STATUS_IO);
    assert_string_equal(tasks[1].detail, "the table is full");
    assert_int_equal(tasks[0].status, LK_STATUS_PEER);
    assert_non_null(strstr(tasks[0].detail, "the table is full"));
    lk_dataset_destroy(data);
    lk_graph_destroy(graph);
}

/* A rank that fails before its first step does not leave the others waiting. */
static void a_mistake_of_one_rank_ends_all(void **state)
{
    lk_graph *graph = own_graph(8);
    lk_dataset *data = own_data(SAMPLES);
    task tasks[2] = {{.opts = own_opts(graph, data)}, {.opts = own_opts(graph, data)}};
    tasks[1].opts.optimizer = "adamm";
    run_ranks(tasks, 2);
    assert_int_not_equal(tasks[1].status, LK_OK);
    assert_non_null(strstr(tasks[1].detail, "adamm"));
    assert_int_not_equal(tasks[0].status, LK_OK);
    tasks[1].opts.optimizer = "adam";
    tasks[1].opts.val_split = 2;
    run_ranks(tasks, 2);
    assert_int_equal(tasks[1].status, LK_STATUS_USAGE);
    assert_int_equal(tasks[0].status, LK_STATUS_PEER);
    assert_non_null(strstr(tasks[0].detail, "`val_split`"));
    lk_dataset_destroy(data);
    lk_graph_destroy(graph);
}

/* Expects that a run with these options fails with this status and this part of its detail. */
static void refuse(const lk_train_opts *opts, lk_status status, const char *part)
{
    lk_train_opts alone = *opts;
    alone.alone = !alone.group;
    lk_status got = lk_train(&alone, NULL, NULL);
    if (got != status || !strstr(lk_error_detail(), part))
        fail_msg("%s, not '%s': %s", lk_status_string(got), part, got ? lk_error_detail() : "");
}

static void a_checkpoint_is_bound_to_model_and_data(void **state)
{
    char dir[PATH];
    lk_graph *graph = own_graph(8), *same = own_graph(8), *other = own_graph(9);
    lk_dataset *data = own_data(SAMPLES), *fewer = own_data(SAMPLES - 6);
    lk_train_opts opts = own_opts(graph, data);
    opts.alone = true;
    lk_train_result whole, result;
    seen s = {0};
    lk_train_events events = events_of(&s);
    assert_ok(lk_train(&opts, NULL, &whole));
    opts.checkpoint = below("bound", dir);
    opts.epochs = 1;
    assert_ok(lk_train(&opts, NULL, &result));
    assert_non_null(strstr(result.checkpoint, "step-000000005"));
    refuse(&opts, LK_STATUS_USAGE, dir); /* a new run in a folder with checkpoints */
    opts.resume = "auto";
    opts.epochs = 3;
    opts.graph = other;
    refuse(&opts, LK_STATUS_USAGE, "`graph` graph:hash=");
    refuse(&opts, LK_STATUS_USAGE, "another model than that of the checkpoint");
    opts.graph = NULL;
    opts.model = "mlp";
    refuse(&opts, LK_STATUS_USAGE, "`model` mlp is another model");
    opts.model = NULL;
    opts.graph = same;
    opts.train = fewer;
    refuse(&opts, LK_STATUS_MISMATCH, "`data` blobs has 64 training samples");
    own_x[3][2] += 1; /* another content */
    opts.train = data;
    refuse(&opts, LK_STATUS_MISMATCH, "`data` blobs");
    own_x[3][2] -= 1;
    opts.lr = .5;
    refuse(&opts, LK_STATUS_USAGE, "`lr` 0.5 contradicts");
    opts.lr = 0;
    assert_ok(lk_train(&opts, &events, &result));
    assert_int_equal(s.done, 5);
    assert_int_equal(result.hash, whole.hash);
    lk_dataset_destroy(fewer);
    lk_dataset_destroy(data);
    lk_graph_destroy(other);
    lk_graph_destroy(same);
    lk_graph_destroy(graph);
}

static lk_status read_own(void *arg, size_t index, void *sample, void *target)
{
    memcpy(sample, own_x[index], sizeof own_x[index]);
    memcpy(target, &own_labels[index], sizeof own_labels[index]);
    return *(bool *)arg && index == 41 ? lk_fail(LK_STATUS_IO, "the table is locked") : LK_OK;
}

/* Samples that a function reads give the bits of the same samples in memory; its failure is the run's. */
static void samples_may_be_read(void **state)
{
    bool locked = false;
    lk_graph *graph = own_graph(8);
    lk_dataset *data = own_data(SAMPLES), *read;
    lk_dataset_opts shape = {.count = SAMPLES, .dims = {FEATURES}, .classes = CLASSES};
    assert_ok(lk_dataset_create(&shape, read_own, &locked, &read));
    lk_train_opts opts = own_opts(graph, data);
    uint64_t hash = hash_of(&opts, 1);
    opts.train = read;
    assert_int_equal(hash_of(&opts, 2), hash);
    locked = true;
    refuse(&opts, LK_STATUS_IO, "sample 41 of own: the table is locked");
    lk_dataset_destroy(read);
    lk_dataset_destroy(data);
    lk_graph_destroy(graph);
}

/* A run whose rates an event function sets resumes to the same bits; a damaged checkpoint is skipped with a notice. */
static void own_rates_and_damage(void **state)
{
    char dir[PATH], file[PATH], path[4096 + 64];
    lk_graph *graph = own_graph(8);
    lk_dataset *data = own_data(SAMPLES);
    lk_train_opts opts = own_opts(graph, data);
    lk_train_result whole, result;
    seen s = {.lr = .02};
    lk_train_events events = events_of(&s);
    opts.alone = true;
    assert_ok(lk_train(&opts, &events, &whole));
    opts.epochs = 2;
    opts.checkpoint = below("rates", dir);
    assert_ok(lk_train(&opts, &events, &result));
    snprintf(path, sizeof path, "%s/model.safetensors", result.checkpoint);
    assert_int_equal(truncate(path, 100), 0);
    opts.epochs = 3;
    opts.resume = "auto";
    opts.save_model = below("rates.safetensors", file);
    assert_ok(lk_train(&opts, &events, &result));
    assert_int_equal(s.done, 5);
    assert_non_null(strstr(s.notices, "step-000000010"));
    assert_int_equal(result.hash, whole.hash);
    lk_state *saved;
    assert_ok(lk_state_load(file, &saved));
    assert_int_equal(lk_state_hash(saved), whole.hash);
    lk_state_destroy(saved);
    lk_dataset_destroy(data);
    lk_graph_destroy(graph);
}

/* What ranks must have in common. */
static void ranks_are_compared(void **state)
{
    static float other_x[SAMPLES][FEATURES];
    lk_graph *graph = own_graph(8);
    lk_dataset *data = own_data(SAMPLES), *other;
    seen s = {0};
    task tasks[2] = {{.opts = own_opts(graph, data)}, {.opts = own_opts(graph, data)}};
    tasks[1].events = (lk_train_events){.arg = &s, .before_step = on_next};
    run_ranks(tasks, 2);
    assert_int_equal(tasks[1].status, LK_STATUS_MISMATCH);
    assert_non_null(strstr(tasks[0].detail, "rank 1 has a `before_step`"));
    lk_dataset_opts shape = {.name = "blobs", .count = SAMPLES, .dims = {FEATURES}, .classes = CLASSES};
    memcpy(other_x, own_x, sizeof other_x);
    other_x[SAMPLES - 4][0] += 1;
    assert_ok(lk_dataset_from_memory(&shape, other_x, own_labels, &other));
    tasks[1].events = (lk_train_events){0};
    tasks[1].opts.train = other;
    run_ranks(tasks, 2);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(tasks[r].status, LK_STATUS_MISMATCH);
        assert_non_null(strstr(tasks[r].detail, "`train` with samples of hash"));
    }
    lk_dataset_destroy(other);
    lk_dataset_destroy(data);
    lk_graph_destroy(graph);
}

/* Float targets: results are judged by their loss, and all of a result survives a resume. */
static void regression_is_judged_by_its_loss(void **state)
{
    static float targets[SAMPLES][2];
    char dir[PATH];
    lk_dataset *labelled = own_data(SAMPLES), *data;
    lk_dataset_opts shape = {.name = "curves", .count = SAMPLES, .dims = {FEATURES}, .targets = 2};
    lk_graph *graph;
    for (int i = 0; i < SAMPLES; i++)
        for (int t = 0; t < 2; t++)
            targets[i][t] = own_x[i][t] - own_x[i][t + 1] / 2;
    assert_ok(lk_dataset_from_memory(&shape, own_x, targets, &data));
    assert_ok(lk_graph_create(&graph));
    lk_mse_loss(graph, lk_linear(graph, lk_flatten(graph, lk_input(graph, FEATURES, 1, 1)), "fc", 2));
    lk_train_opts opts = own_opts(graph, data);
    opts.val_split = .3;
    opts.early_stop = 1;
    lk_train_result whole, result;
    opts.alone = true;
    assert_ok(lk_train(&opts, NULL, &whole));
    assert_int_equal(whole.steps, 3 * 4);
    assert_int_equal(whole.best_step, whole.steps); /* each epoch was better, with no sample "correct" */
    assert_int_equal(whole.best_correct, 0);
    assert_true(whole.best_loss == whole.val.loss && whole.val.absolute_error > 0);
    opts.checkpoint = below("curves", dir);
    opts.epochs = 1;
    assert_ok(lk_train(&opts, NULL, &result));
    opts.resume = "auto";
    double error = result.val.absolute_error;
    assert_ok(lk_train(&opts, NULL, &result)); /* nothing is left to do */
    assert_true(result.val.absolute_error == error && result.val.squared_error > 0 && result.val.weight == 21);
    opts.epochs = 3;
    opts.alone = false;
    assert_int_equal(hash_of(&opts, 3), whole.hash);
    lk_graph_destroy(graph);
    lk_dataset_destroy(data);
    lk_dataset_destroy(labelled);
}

static void mistakes_name_the_field(void **state)
{
    lk_graph *graph = own_graph(8), *empty;
    lk_dataset *data = own_data(SAMPLES);
    lk_train_opts good = own_opts(graph, data), opts;
    assert_ok(lk_graph_create(&empty));
    assert_int_equal(lk_train(NULL, NULL, NULL), LK_STATUS_USAGE);
#define REFUSE(part, ...) \
    opts = good;          \
    __VA_ARGS__;          \
    refuse(&opts, LK_STATUS_USAGE, part)
    REFUSE("`model` and `graph`", opts.model = "mlp");
    REFUSE("`train` and `data`", opts.data = "digits");
    REFUSE("`train` and `data_dir`", opts.data_dir = "/tmp");
    REFUSE("`test` is given and `train` is not", opts.test = data; opts.train = NULL);
    REFUSE("`graph` is given without data", opts.train = NULL);
    REFUSE("`train` is given without a model", opts.graph = NULL);
    REFUSE("`test` has no effect with `no_test`", opts.test = data; opts.no_test = true);
    REFUSE("`init` is for `model`", opts.init = "kaiming_normal");
    REFUSE("`resume` auto looks in the folder `checkpoint`", opts.resume = "auto");
    REFUSE("`keep` has no effect without `checkpoint`", opts.keep = 2);
    REFUSE("`save_every` has no effect without `checkpoint`", opts.save_every = 2);
    REFUSE("`reshard`", opts.reshard = true);
    REFUSE("`trace_file`", opts.trace_file = "x.json");
    REFUSE("`early_stop` watches the results of epochs, and there are none: give the data set `test`, or `val_split`",
           opts.early_stop = 2);
    REFUSE("`schedule` plateau watches the results of epochs, and there are none", opts.schedule = "plateau");
    REFUSE("`val_split` is 2 and must be", opts.val_split = 2);
    REFUSE("`lr` is -1 and must be", opts.lr = -1);
    REFUSE("`lr` is nan", opts.lr = NAN);
    REFUSE("`workers` is -2 and must be 0 to 256, or 0 for the default, or -1 for none", opts.workers = -2);
    REFUSE("`threads` is -1", opts.threads = -1);
    REFUSE("`bn` is 7", opts.bn = (lk_bn_mode)7);
    REFUSE("`save_model` is empty", opts.save_model = "");
    REFUSE("`seed`", opts.seed = UINT64_MAX);
    REFUSE("reserved", opts.reserved[0] = 1);
    opts = good;
    opts.graph = empty;
    assert_int_not_equal(lk_train(&opts, NULL, NULL), LK_OK);
    assert_int_equal(lk_train(&good, &(lk_train_events){.reserved = {1}}, NULL), LK_STATUS_USAGE);
    assert_null(lk_train_engine(NULL));
    lk_train_stop(NULL);
    lk_train_fail(NULL, LK_STATUS_IO);
    lk_graph_destroy(empty);
    lk_dataset_destroy(data);
    lk_graph_destroy(graph);
}

TEST_MAIN(make_data, temp_folder_tear_down, TEST(ranks_have_the_bits_of_the_program),
          TEST(own_graphs_and_data_give_the_same_bits), TEST(events_come_in_order), TEST(one_rank_stops_all),
          TEST(a_failure_of_an_event_function_ends_the_run), TEST(a_mistake_of_one_rank_ends_all),
          TEST(a_checkpoint_is_bound_to_model_and_data), TEST(samples_may_be_read), TEST(own_rates_and_damage),
          TEST(ranks_are_compared), TEST(regression_is_judged_by_its_loss), TEST(mistakes_name_the_field))
