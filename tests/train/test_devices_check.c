/* test_devices_check.c - ranks without a named device: either all ranks use their GPUs, or, if one GPU cannot
 * be used, all ranks use the CPU, as on machines without GPUs. */
#include <stdatomic.h>

#include "base/status.h"
#include "processes.h"
#include "tensor/device.h"
#include "tiny.h"
#include "train/parts.h"

enum { GPUS = 4, CPU_SHARDS = 16, GPU_SHARDS = 4 };

/* The CPU as devices "gpu:0" to "gpu:3". */
static lk_device_type gpu;
static bool broken[GPUS];
static atomic_int probes;
static atomic_size_t needed; /* bytes, of the last probe */

static lk_status probe_gpu(int index, size_t need)
{
    probes++;
    needed = need;
    assert_true(index < GPUS);
    return broken[index] ? lk__fail(LK_STATUS_UNSUPPORTED, "gpu:%d is broken", index) : LK_OK;
}

static int add_gpus(void **state)
{
    gpu = lk__device_cpu;
    gpu.name = "gpu";
    gpu.probe = probe_gpu;
    return make_data(state) == 0 && lk__device_add(&gpu) == LK_OK ? 0 : -1;
}

static int mend_gpus(void **state)
{
    memset(broken, 0, sizeof broken);
    probes = 0;
    return 0;
}

/* The ranks of a process and their results. */
typedef struct job {
    const char *devices[MAX_RANKS];
    lk_train_opts opts;
    int first; /* rank, if there are two processes */
    bool named;
    int switches; /* to the CPU */
    char why[2048];
    record told[MAX_RANKS];
    lk_train_outcome result;
    lk_status status;
} job;

static void fail_told(void *arg, const lk_train_failure *failure)
{
    fail_msg("a failure was told: %s", failure->detail);
}

/* Calls lk__train again, with a copy of the options. */
static void switch_to_cpu(job *j, lk_train_ranks ranks, const lk_train_failure *failure)
{
    static const char *const cpus[MAX_RANKS] = {"cpu", "cpu", "cpu", "cpu", "cpu"};
    lk_train_failure second;
    lk_train_opts opts = j->opts;
    opts.shards = CPU_SHARDS;
    ranks.opts = &opts;
    ranks.devices = cpus;
    for (int i = 0; i < ranks.count; i++)
        assert_int_equal(j->told[i].starts, 0);
    assert_int_equal(j->status, LK_STATUS_UNSUPPORTED);
    assert_non_null(*ranks.joined);
    assert_true(failure->speaker);
    assert_string_equal(failure->detail, lk_error_detail());
    snprintf(j->why, sizeof j->why, "%s", failure->detail);
    j->switches++;
    j->status = lk__train(&ranks, &j->result, &second);
}

static void run_process(job *j, int count, const lk_group_opts *group)
{
    lk_train_hooks hooks[MAX_RANKS];
    lk_train_crew *joined = NULL;
    lk_train_failure failure = {0};
    for (int i = 0; i < count; i++)
        hooks[i] = (lk_train_hooks){.arg = &j->told[i], .begin = on_start, .step = on_step, .end = on_end};
    lk_train_ranks ranks = {.opts = &j->opts,
                            .count = count,
                            .first = j->first,
                            .devices = j->devices,
                            .group = group,
                            .one_process = !group->init_method,
                            .hooks = hooks,
                            .failed = fail_told,
                            .joined = j->named ? NULL : &joined};
    j->status = lk__train(&ranks, &j->result, &failure);
    if (failure.fault == LK_TRAIN_FAULT_DEVICE)
        switch_to_cpu(j, ranks, &failure);
    assert_null(joined);
}

static void run(job *j, int count, bool named)
{
    j->named = named;
    run_process(j, count, &(lk_group_opts){.timeout = 60});
    if (j->status != LK_OK)
        fail_msg("%s", lk_error_detail());
}

static void fill_job(job *j, const char *first, const char *second, const char *third)
{
    memset(j, 0, sizeof *j);
    j->opts = options();
    j->opts.no_test = true;
    j->opts.shards = GPU_SHARDS;
    j->devices[0] = first;
    j->devices[1] = second;
    j->devices[2] = third;
}

static job *new_job(const char *first, const char *second, const char *third)
{
    static job j;
    fill_job(&j, first, second, third);
    return &j;
}

static void computed_on(const job *j, int count, const char *device, int switches)
{
    assert_int_equal(j->switches, switches);
    for (int i = 0; i < count; i++)
        assert_memory_equal(j->told[i].start.self.device, device, strlen(device));
}

static uint64_t hash_of(int shards)
{
    static record told;
    lk_train_opts opts = options();
    opts.no_test = true;
    opts.shards = shards;
    return train_well(&opts, &told).hash;
}

static void what_works_is_used(void **state)
{
    uint64_t expected = hash_of(GPU_SHARDS);
    job *j = new_job("gpu:0", "gpu:1", "gpu:2");
    run(j, 3, false);
    computed_on(j, 3, "gpu:", 0);
    assert_int_equal(probes, 3);
    assert_true(j->result.hash == expected);
    j = new_job("gpu:1", NULL, NULL);
    run(j, 1, false);
    computed_on(j, 1, "gpu:1", 0);
}

static void one_that_does_not_sends_all_to_the_cpu(void **state)
{
    uint64_t expected = hash_of(CPU_SHARDS);
    for (int bad = 0; bad < 3; bad++) {
        char rank[32], gpu_name[32];
        mend_gpus(NULL);
        broken[bad] = true;
        job *j = new_job("gpu:0", "gpu:1", "gpu:2");
        run(j, 3, false);
        computed_on(j, 3, "cpu", 1);
        assert_true(j->result.hash == expected);
        snprintf(rank, sizeof rank, "rank %d on ", bad);
        snprintf(gpu_name, sizeof gpu_name, ": gpu:%d is broken", bad);
        assert_contains(j->why, rank);
        assert_contains(j->why, gpu_name);
    }
}

static void alone(void **state)
{
    uint64_t expected = hash_of(CPU_SHARDS);
    broken[3] = true;
    job *j = new_job("gpu:3", NULL, NULL);
    run(j, 1, false);
    computed_on(j, 1, "cpu", 1);
    assert_string_equal(j->why, "gpu:3 is broken");
    assert_true(j->result.hash == expected);
}

/* Two machines, one without a GPU. */
static void where_others_have_none(void **state)
{
    job *j = new_job("gpu:0", "cpu", NULL);
    run(j, 2, false);
    computed_on(j, 2, "cpu", 1);
    assert_contains(j->why, "rank 1 on ");
    assert_contains(j->why, "no GPU is used here");
    j = new_job("cpu", "cpu", "cpu");
    run(j, 3, false);
    computed_on(j, 3, "cpu", 0);
}

static void devices_that_were_named_stay(void **state)
{
    memset(broken, 1, sizeof broken);
    job *j = new_job("gpu:0", "gpu:1", NULL);
    run(j, 2, true);
    computed_on(j, 2, "gpu:", 0);
    assert_int_equal(probes, 0);
}

/* One of two processes. */
typedef struct process {
    lk_train_opts opts;
    lk_group *group;
    const char *device;
    bool named;
    int speaker;
    lk_status status;
    char detail[2048];
} process;

static void choose_process(int number, void *arg)
{
    process *p = (process *)arg + number;
    lk_train_ranks ranks = {.opts = &p->opts, .count = 1, .first = lk_group_rank(p->group)};
    lk_train_shared shared;
    lk_train_rank rank = {.opts = &p->opts, .shared = &shared, .group = p->group, .device = p->device};
    assert_int_equal(lk__train_shared_open(&ranks, &shared), LK_OK);
    p->status = lk__train_check_devices(&rank, p->named, &p->speaker);
    snprintf(p->detail, sizeof p->detail, "%s", lk_error_detail());
    lk_group_destroy(p->group);
    lk__train_shared_close(&shared);
}

static void choose_two(process two[2])
{
    lk_group *groups[2];
    lk_group_opts opts = {.timeout = 60};
    assert_int_equal(lk_group_create_threads(2, &opts, groups), LK_OK);
    for (int i = 0; i < 2; i++) {
        two[i].opts = options();
        two[i].group = groups[i];
    }
    threads_run(2, choose_process, two);
}

static void processes_that_were_told_differently(void **state)
{
    static process both[2];
    broken[1] = true;
    both[0] = (process){.device = "gpu:0", .named = true};
    both[1] = (process){.device = "gpu:1"};
    choose_two(both);
    assert_int_equal(both[0].status, LK_STATUS_MISMATCH);
    assert_contains(both[0].detail, "rank 0 was given `device` gpu:0");
    assert_contains(both[0].detail, "gpu:1 is broken");
    /* Only rank 1 has to change its device, and reports it. */
    both[0] = (process){.device = "cpu", .named = true};
    both[1] = (process){.device = "gpu:0"};
    choose_two(both);
    assert_int_equal(both[0].status, LK_OK);
    assert_int_equal(both[1].status, LK_STATUS_UNSUPPORTED);
    assert_int_equal(both[1].speaker, 1);
    assert_non_null(strstr(both[1].detail, "rank 0 on "));
}

/* Runs two of four ranks. */
static void *run_half(void *arg)
{
    job *j = arg;
    char path[PATH], url[PATH + 8];
    snprintf(url, sizeof url, "file://%s", below("meeting", path));
    lk_group_opts group = {.init_method = url, .rank = j->first / 2, .world_size = 2, .timeout = 60};
    run_process(j, 2, &group);
    return NULL;
}

/* Ranks that have joined stay in their group while the other process makes its second plan. */
static void one_process_switches_and_the_other_waits(void **state)
{
    static job cpus, gpus;
    uint64_t expected = hash_of(CPU_SHARDS);
    pthread_t thread;
    fill_job(&cpus, "cpu:0", "cpu:1", NULL);
    fill_job(&gpus, "gpu:0", "gpu:1", NULL);
    cpus.named = true;
    cpus.opts.shards = CPU_SHARDS;
    gpus.first = 2;
    assert_int_equal(pthread_create(&thread, NULL, run_half, &gpus), 0);
    run_half(&cpus);
    pthread_join(thread, NULL);
    assert_int_equal(cpus.status, LK_OK);
    assert_int_equal(gpus.status, LK_OK);
    computed_on(&cpus, 2, "cpu:", 0);
    computed_on(&gpus, 2, "cpu", 1);
    assert_true(cpus.result.hash == expected);
    assert_true(gpus.result.hash == expected);
}

static size_t need_of(size_t batch, size_t micro_batch, int ranks)
{
    job *j = new_job("gpu:0", "gpu:0", "gpu:0");
    j->opts.batch = batch;
    j->opts.micro_batch = micro_batch;
    j->opts.epochs = 0;
    run(j, ranks, false);
    return needed;
}

/* The probe asks for the memory that the rank will need. */
static void the_need_is_of_the_ranks_own_samples(void **state)
{
    size_t whole = need_of(64, 0, 1);
    assert_true(whole > 0);
    assert_true(need_of(64, 0, 2) < whole);
    assert_int_equal(need_of(64, 32, 1), need_of(32, 0, 1));
}

#define CASE(test) cmocka_unit_test_setup(test, mend_gpus)
TEST_MAIN(add_gpus, temp_folder_tear_down, CASE(what_works_is_used), CASE(one_that_does_not_sends_all_to_the_cpu),
          CASE(alone), CASE(where_others_have_none), CASE(devices_that_were_named_stay),
          CASE(processes_that_were_told_differently), CASE(one_process_switches_and_the_other_waits),
          CASE(the_need_is_of_the_ranks_own_samples))
