/* test_job_plan.c - plans of jobs: plans for GPUs, second plans for the CPU, and plans that ranks inherit
 * from their launcher. */
#include "check.h"
#include "cli/job/plan.h"

static int gpus; /* number of GPUs that "auto" finds */
static lk_args args;
static lk_job_plan plan, second; /* second: for the CPU, or of a rank of the launcher */

static int count_gpus(void)
{
    return gpus;
}

/* A device type that plans treat like a GPU. */
static const lk_device_type fake_gpu = {.name = "fake", .precision = LK_PRECISION_TF32CONV, .count = count_gpus};

static int add_gpus(void **state)
{
    /* Hides the GPUs of this machine. */
    return setenv("CUDA_VISIBLE_DEVICES", "", 1) == 0 && lk__device_add(&fake_gpu) == LK_OK ? 0 : -1;
}

/* Parses a line of `train` on a machine with this number of GPUs. */
static void read_line(const char *line, int machine)
{
    static char words[512];
    char *argv[32];
    int argc = 0;
    snprintf(words, sizeof words, "%s", line);
    for (char *rest = words, *word; argc < 32 && (word = strtok_r(rest, " ", &rest)); argc++)
        argv[argc] = word;
    lk_options_set set = lk__args_options("train", LK_CMD_TRAIN, 0);
    gpus = machine;
    assert_int_equal(lk__args_parse(&set, argc, argv, &args), LK_OK);
    assert_int_equal(lk__args_complete(&args), LK_OK);
}

/* The launcher of this number of processes, all on this host. */
static lk_join launcher(int processes)
{
    return (lk_join){.way = LK_JOIN_WAY_LAUNCH, .size_known = true, .processes = processes, .local_size = processes};
}

static lk_join child(int rank, int processes)
{
    return (lk_join){.way = LK_JOIN_WAY_ENV,
                     .size_known = true,
                     .rank = rank,
                     .processes = processes,
                     .local_rank = rank,
                     .local_size = processes};
}

static lk_status make(lk_join join)
{
    return lk__job_plan_make(&args, &args.devices, &join, &plan);
}

static lk_status inherit(lk_join join)
{
    return lk__job_plan_inherit(&args, &plan, &join, &second);
}

/* Checks the shards of the plan, with `each` GPUs for each process, and of the second plan. */
static void shards_are(const char *line, int each, int processes, int expected)
{
    read_line(line, each * processes);
    assert_int_equal(make(launcher(processes)), LK_OK);
    assert_int_equal(plan.train.shards, expected);
    lk__job_plan_on_cpu(&args, &plan, &second);
    assert_int_equal(second.train.shards, expected);
    assert_int_equal(plan.train.shards, expected);
    assert_int_equal(second.devices.count, each);
    assert_string_equal(second.train.device, "cpu");
    assert_string_equal(plan.train.device, "fake:0");
}

/* Devices, modes and waves do not matter; replicas only where there are more than 16. */
static void shards_are_those_of_every_device(void **state)
{
    shards_are("", 1, 1, 16);
    shards_are("", 2, 1, 16);
    shards_are("", 1, 3, 16);
    shards_are("", 1, 16, 16);
    shards_are("", 1, 17, 17);
    shards_are("", 4, 8, 32);
    shards_are("--stages 2", 1, 4, 16);
    shards_are("--stages 2", 1, 40, 20);
    shards_are("--parallel pp", 1, 4, 16);
    shards_are("--batch-size 64 --micro-batch 15", 1, 2, 16);
    shards_are("--batch-size 5", 1, 2, 16);
    shards_are("--accumulate 3", 1, 2, 48);
    shards_are("--accumulate 3", 1, 20, 60);
    shards_are("--accumulate 250", 1, 20, 4000); /* 20 for each batch would exceed the maximum of 4096 */
    shards_are("--shards 8", 1, 2, 8);
    shards_are("--shards 8 --accumulate 2", 1, 2, 16);
    shards_are("--shards 8", 1, 9, 8); /* the engine refuses so many replicas */
}

static void too_many_shards(void **state)
{
    lk_options_set set = lk__args_options("train", LK_CMD_TRAIN, 0);
    char *line[] = {"--accumulate", "1000", "--shards", "16"};
    for (int i = 0; i < 4; i++) {
        gpus = i % 2;
        assert_int_equal(lk__args_parse(&set, i / 2 ? 4 : 2, line, &args), LK_OK);
        assert_int_equal(lk__args_complete(&args), LK_STATUS_USAGE);
        assert_non_null(strstr(lk_error_detail(), "16000 shards"));
    }
}

static lk_precision precision_on(const char *line, int machine, bool from_checkpoint)
{
    read_line(line, machine);
    if (from_checkpoint)
        args.precision_given = false;
    assert_int_equal(make(launcher(1)), LK_OK);
    return plan.train.precision;
}

/* Without --precision, or with auto, the device decides. */
static void precision_is_that_of_the_device(void **state)
{
    assert_int_equal(precision_on("", 1, false), LK_PRECISION_TF32CONV);
    lk__job_plan_on_cpu(&args, &plan, &second);
    assert_int_equal(second.train.precision, LK_PRECISION_FP32);
    assert_int_equal(precision_on("", 0, false), LK_PRECISION_FP32);
    assert_int_equal(precision_on("--precision auto", 1, false), LK_PRECISION_TF32CONV);
    lk__job_plan_on_cpu(&args, &plan, &second);
    assert_int_equal(second.train.precision, LK_PRECISION_FP32);
    assert_int_equal(precision_on("--precision auto", 0, false), LK_PRECISION_FP32);
    assert_int_equal(precision_on("--precision fp32", 1, false), LK_PRECISION_FP32);
    assert_int_equal(precision_on("--precision tf32conv", 0, false), LK_PRECISION_TF32CONV);
}

/* A device that does not have the precision of a checkpoint resumes in its own. A precision that the user asks for is
 * kept. */
static void precision_of_a_checkpoint(void **state)
{
    assert_int_equal(precision_on("--precision bf16", 1, true), LK_PRECISION_BF16);
    assert_int_equal(precision_on("--precision bf16", 0, true), LK_PRECISION_BF16);
    assert_int_equal(precision_on("--precision bf16", 0, false), LK_PRECISION_BF16);
    assert_int_equal(precision_on("--precision tf32", 0, true), LK_PRECISION_FP32);
    assert_int_equal(precision_on("--precision tf32", 0, false), LK_PRECISION_TF32);
    assert_int_equal(precision_on("--precision fp32", 1, true), LK_PRECISION_FP32);
}

/* A rank inherits all but its devices from the launcher's plan; its own options change nothing. */
static void ranks_inherit_the_launchers_plan(void **state)
{
    read_line("--parallel pp", 4);
    assert_int_equal(make(launcher(2)), LK_OK);
    assert_string_equal(plan.train.stages, "4");
    args.parallel = LK_ARGS_PARALLEL_DDP;
    args.train.shards = 99;
    args.devices.count = 1;
    assert_int_equal(inherit(child(1, 2)), LK_OK);
    assert_int_equal(second.mode.parallel, LK_ARGS_PARALLEL_PP);
    assert_int_equal(second.train.shards, plan.train.shards);
    assert_string_equal(second.train.stages, "4");
    assert_ptr_equal(second.train.stages, second.mode.whole);
    assert_int_equal(second.devices.count, 2);
    assert_string_equal(second.devices.name[0], "fake:2");
    assert_string_equal(second.train.device, "fake:2");
    assert_int_equal(second.join.rank, 1);
}

/* Two nodes: a launcher knows the devices of its own processes only. */
static void ranks_of_several_nodes_choose_the_mode(void **state)
{
    lk_join join = launcher(2);
    join.processes = 0;
    read_line("--stages 2", 3);
    lk_devices cpu = {.count = 1, .name = {"cpu"}};
    assert_int_equal(lk__job_plan_make(&args, &cpu, &join, &plan), LK_OK);
    assert_int_equal(plan.mode.parallel, LK_ARGS_PARALLEL_AUTO);
    join = child(1, 2);
    join.processes = 3;
    assert_int_equal(inherit(join), LK_STATUS_USAGE);
    assert_non_null(strstr(lk_error_detail(), "3 ranks"));
    join.processes = 4;
    assert_int_equal(inherit(join), LK_OK);
    assert_int_equal(second.mode.parallel, LK_ARGS_PARALLEL_PP);
    assert_string_equal(second.devices.name[0], "cpu");
    assert_int_equal(second.train.shards, 16);
    /* The launcher reports mistakes that do not depend on other nodes. */
    join = launcher(2);
    join.processes = 0;
    assert_int_equal(make(join), LK_STATUS_USAGE);
    assert_non_null(strstr(lk_error_detail(), "2 processes"));
}

static void threads_need_no_backend(void **state)
{
    lk_join alone = {.processes = 1}, one = launcher(1),
            hand = {.way = LK_JOIN_WAY_HAND, .size_known = true, .processes = 2};
    read_line("--backend tcp --devices cpu:0,cpu:1", 0);
    assert_int_equal(make(alone), LK_STATUS_USAGE);
    assert_non_null(strstr(lk_error_detail(), "need no backend"));
    assert_int_equal(make(hand), LK_OK);
    /* The only rank of a launcher reports it. */
    assert_int_equal(make(one), LK_OK);
    assert_int_equal(inherit(alone), LK_STATUS_USAGE);
    args.devices.count = 1;
    assert_int_equal(make(alone), LK_OK);
}

static void commands_of_one_device(void **state)
{
    read_line("", 4);
    assert_int_equal(lk__job_plan_one_device(&args, "bench", 3, &plan), LK_OK);
    assert_int_equal(plan.devices.count, 1);
    assert_int_equal(plan.train.shards, 16);
    assert_string_equal(plan.train.device, "fake:0");
    lk__job_plan_on_cpu(&args, &plan, &second);
    assert_int_equal(second.train.shards, 16);
    args.devices.named = true;
    assert_int_equal(lk__job_plan_one_device(&args, "bench", 3, &plan), LK_STATUS_USAGE);
    assert_non_null(strstr(lk_error_detail(), "`devices` fake:0"));
    read_line("--stages 0", 1);
    assert_int_equal(lk__job_plan_one_device(&args, "bench", 2, &plan), LK_OK);
    assert_int_equal(plan.train.shards, 16); /* the engine refuses such stages */
}

/* Ranks share no GPU that they were not given by name. */
static void ranks_without_a_gpu_each_use_the_cpu(void **state)
{
    read_line("", 4);
    lk_devices host = lk__job_plan_host("bench", &args, 4);
    assert_int_equal(host.count, 4);
    assert_string_equal(host.name[3], "fake:3");
    host = lk__job_plan_host("bench", &args, 5);
    assert_int_equal(host.count, 1);
    assert_string_equal(host.name[0], "cpu");
    args.devices.named = true;
    host = lk__job_plan_host("bench", &args, 5);
    assert_string_equal(host.name[0], "fake:0");
}

TEST_MAIN(add_gpus, NULL, TEST(shards_are_those_of_every_device), TEST(too_many_shards),
          TEST(precision_is_that_of_the_device), TEST(precision_of_a_checkpoint),
          TEST(ranks_inherit_the_launchers_plan), TEST(ranks_of_several_nodes_choose_the_mode),
          TEST(threads_need_no_backend), TEST(commands_of_one_device), TEST(ranks_without_a_gpu_each_use_the_cpu))
