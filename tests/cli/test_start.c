/* test_start.c - the first lines of a run with stages: what moves activations between GPUs, and why host memory does.
 */
#include "cli/report/report.h"
#include "temp_folder.h"

enum { LINES = 8192 };

static const lk_channel_type fake_ipc = {.name = "ipc", .title = "CUDA IPC", .one_device = true};
static const lk_channel_type *const channels[] = {&fake_ipc, NULL};
static const lk_device_type fake_gpu = {.name = "fake", .channels = channels};
static lk_args args;
static lk_job_plan plan;

static int read_options(void **state)
{
    char *argv[] = {"--devices", "cpu:0,cpu:1", "--stages", "2"};
    lk_options_set set = lk__args_options("train", LK_CMD_TRAIN, 0);
    lk_join join = {.way = LK_JOIN_WAY_LAUNCH, .size_known = true, .processes = 1, .local_size = 1};
    assert_ok(lk__args_parse(&set, COUNT_OF(argv), argv, &args));
    assert_ok(lk__args_complete(&args));
    assert_ok(lk__job_plan_make(&args, &args.devices, &join, &plan));
    assert_ok(lk__device_add(&fake_gpu));
    return temp_folder_set_up(state);
}

static void write_lines(void (*write)(const lk_report *report, const lk_train_begin *start), const char *device,
                        lk_layout layout, char text[LINES])
{
    static const lk_dataset_info data = {.name = "digits", .path = "", .count = 100, .classes = 10};
    static const char cuts[1][LK_LAYER_TEXT] = {"fc1"};
    char path[TEMP_FOLDER_BYTES + 16];
    lk_report report = {.args = &args, .plan = &plan};
    lk_train_begin start = {.train = &data, .augment = "none", .test_augment = "none", .cuts = cuts};
    start.other_device = "";
    start.self = (lk_train_rank_info){.ranks = 2, .host = "host", .transport = "shm", .device = device};
    start.self.layout = layout;
    snprintf(path, sizeof path, "%s/lines", temp_folder);
    fflush(stdout);
    int before = dup(STDOUT_FILENO);
    assert_non_null(freopen(path, "w", stdout));
    write(&report, &start);
    fflush(stdout);
    assert_true(dup2(before, STDOUT_FILENO) >= 0);
    close(before);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, LINES - 1, file)] = '\0';
    fclose(file);
}

/* Checks the lines and the JSON of such a run; NULL: the word is not there. */
static void expect(const char *device, lk_layout layout, const char *line, const char *why, const char *json)
{
    char text[LINES];
    layout.replicas = 1;
    layout.stages = 2;
    layout.threads = 1;
    write_lines(lk__report_start_text, device, layout, text);
    assert_contains(text, "pp, 2 stages x 1 replica (stage 1 begins with fc1), 2 ranks over shm with 1 thread each");
    if (line)
        assert_contains(text, line);
    else
        assert_null(strstr(text, "activations"));
    if (why)
        assert_contains(text, why);
    else
        assert_null(strstr(text, "which is slower"));
    write_lines(lk__report_start_json, device, layout, text);
    if (json)
        assert_contains(text, json);
    else
        assert_null(strstr(text, "activations"));
}

static void stages_on_gpus_say_what_moves_activations(void **state)
{
    lk_layout joined = {.stage_backend = "nccl and ipc"};
    lk_layout apart = {.stage_obstacle = "rank 0: no library for it"};
    expect("fake:0", joined, " each on fake, activations over nccl and ipc, 16 shards", NULL,
           "\"activations\":\"nccl and ipc\"");
    expect("fake:0", apart, " each on fake, activations through host memory, 16 shards",
           "\nactivations go through host memory between GPUs, which is slower: rank 0: no library for it\n",
           "\"activations\":\"shm\",\"activations_obstacle\":\"rank 0: no library for it\"");
    expect("fake:0", (lk_layout){.stage_backend = "ipc"}, " each on fake:0, activations over CUDA IPC, 16 shards", NULL,
           "\"activations\":\"ipc\"");
    expect("fake:0", (lk_layout){0}, ", activations through host memory, ", NULL, "\"activations\":\"shm\"");
}

static void stages_on_cpus_say_nothing_of_it(void **state)
{
    expect("cpu", (lk_layout){0}, NULL, NULL, NULL);
    expect("cpu:0", (lk_layout){0}, NULL, NULL, NULL);
}

TEST_MAIN(read_options, temp_folder_tear_down, TEST(stages_on_gpus_say_what_moves_activations),
          TEST(stages_on_cpus_say_nothing_of_it))
