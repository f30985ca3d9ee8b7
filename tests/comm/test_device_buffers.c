/* test_device_buffers.c - calls on buffers of a device that stands for a GPU: its addresses are no addresses of the
 * host, so a call that reads one of them itself crashes. tests/cuda/buffers.c has the same for a real GPU. */
#define _DEFAULT_SOURCE /* anonymous memory that children share */
#include <stdatomic.h>

#include "check.h"
#include "comm/device_buffers.h"

/* Added to every address of the device. No process has memory there; the highest byte would be ignored on arm64. */
#define HIDDEN ((uintptr_t)1 << 50)

static lk_device_type hidden;
static atomic_int copies;
static atomic_bool broken; /* copies to the device fail */

static lk_status hidden_open(const lk_device_opts *opts, lk_device **out)
{
    LK_TRY(lk__device_cpu.open(opts, out));
    (*out)->type = &hidden;
    return LK_OK;
}

static void *shown(const void *at)
{
    CHECK((uintptr_t)at & HIDDEN);
    return (void *)((uintptr_t)at & ~HIDDEN);
}

static lk_status hidden_alloc(lk_device *dev, size_t bytes, const char *what, void **out)
{
    LK_TRY(lk__device_cpu.alloc(dev, bytes, what, out));
    *out = (void *)((uintptr_t)*out | HIDDEN);
    return LK_OK;
}

static void hidden_free(lk_device *dev, void *block)
{
    lk__device_cpu.free(dev, shown(block));
}

static lk_status hidden_upload(lk_device *dev, const void *host, size_t bytes, void *dst)
{
    copies++;
    if (broken)
        return lk__fail(LK_STATUS_IO, "the device of a test does not work");
    return lk__device_cpu.upload(dev, host, bytes, shown(dst));
}

static lk_status hidden_download(lk_device *dev, const void *src, size_t bytes, void *host)
{
    copies++;
    return lk__device_cpu.download(dev, shown(src), bytes, host);
}

static void add_hidden(void)
{
    hidden = lk__device_cpu;
    hidden.name = "hidden";
    hidden.host_memory = false;
    hidden.open = hidden_open;
    hidden.alloc = hidden_alloc;
    hidden.free = hidden_free;
    hidden.upload = hidden_upload;
    hidden.download = hidden_download;
    CHECK_OK(lk__device_add(&hidden));
}

static bool all_calls(lk_group *group, const team_spec *team, const void *arg)
{
    try_device(group, "hidden:0", SMALL_COUNT, COUNT_OF(side_calls));
    try_device(group, "hidden:0", 1, COUNT_OF(side_calls));
    try_mixed(group, "hidden:0");
    CHECK(copies > 0);
    return false;
}

/* A vector that is summed in pieces. */
static bool large(lk_group *group, const team_spec *team, const void *arg)
{
    try_device(group, "hidden:0", LARGE_COUNT, 1);
    return false;
}

/* A group that is split from another has copies of its own, and may outlive the other. */
static bool split(lk_group *group, const team_spec *team, const void *arg)
{
    lk_group *part = NULL;
    CHECK_OK(lk_group_split(group, 0, 0, &part));
    try_device(part, "hidden:0", SMALL_COUNT, COUNT_OF(side_calls));
    lk_group_destroy(group);
    lk_group_destroy(part);
    return true;
}

/* Wrong names are errors of this rank alone, and the group can still be used. */
static bool wrong_names(lk_group *group, const team_spec *team, const void *arg)
{
    float value = 1;
    lk_buffer data = {&value, 1, LK_DTYPE_F32, "toaster:0"};
    CHECK_FAILS(lk_allreduce(group, data, LK_REDUCTION_SUM, NULL), LK_STATUS_USAGE, "toaster");
    data.device = "hidden:x";
    CHECK_FAILS(lk_allreduce(group, data, LK_REDUCTION_SUM, NULL), LK_STATUS_USAGE, "must be a number");
    data.device = "a name that is longer than the name of any device that there could ever be in a machine";
    CHECK_FAILS(lk_send(group, data, lk_group_rank(group) ^ 1, NULL), LK_STATUS_USAGE, "is no device");
    data.device = "cuda:99";
    lk_status status = lk_allreduce(group, data, LK_REDUCTION_SUM, NULL);
    CHECK(status == LK_STATUS_UNSUPPORTED);
    if (!lk__device_find("cuda"))
        CHECK(strstr(lk_error_detail(), "this build is without CUDA"));
    data.device = "cpu"; /* host memory, too */
    CHECK_OK(lk_allreduce(group, data, LK_REDUCTION_SUM, NULL));
    CHECK(value == (float)lk_group_size(group));
    return false;
}

/* A device that fails at rank 1 is a failure of the group, which all ranks learn. */
static bool fails(lk_group *group, const team_spec *team, const void *arg)
{
    side s = {.group = group, .name = "hidden", .count = SMALL_COUNT};
    float *scratch = malloc(ROOM * s.count * sizeof *scratch);
    lk_status status = LK_OK;
    lk_request *request = NULL;
    CHECK(scratch);
    open_side(&s);
    fill_side(&s, scratch);
    CHECK_OK(call_allreduce(&s, NULL));
    broken = lk_group_rank(group) == 1;
    CHECK_OK(call_allreduce(&s, &request));
    status = lk_request_wait(request);
    for (int i = 0; i < 100 && status == LK_OK; i++)
        status = lk_barrier(group, NULL);
    CHECK(status == (lk_group_rank(group) == 1 ? LK_STATUS_IO : LK_STATUS_PEER) || status == LK_STATUS_IO);
    CHECK(strstr(lk_error_detail(), "the device of a test does not work"));
    close_side(&s);
    free(scratch);
    return false;
}

static void calls_on_devices_have_the_bits_of_the_host(void **state)
{
    for (int size = 1; size <= 5; size += 1 + (size > 2)) {
        team_spec team = {.size = size, .transport = "inproc", .timeout = 60};
        assert_true(team_run(team, all_calls, NULL));
        team.transport = "shm";
        assert_true(team_run(team, all_calls, NULL));
    }
    assert_true(team_run((team_spec){.size = 3, .transport = "tcp", .timeout = 60}, all_calls, NULL));
    assert_true(team_run((team_spec){.size = 2, .transport = "shm", .timeout = 60}, large, NULL));
    assert_true(team_run((team_spec){.size = 3, .transport = "shm", .timeout = 60}, split, NULL));
}

static void errors_of_devices_are_told(void **state)
{
    assert_true(team_run((team_spec){.size = 2, .transport = "inproc", .timeout = 60}, wrong_names, NULL));
    assert_true(team_run((team_spec){.size = 3, .transport = "shm", .timeout = 60}, fails, NULL));
}

static int set_up(void **state)
{
    add_hidden();
    return 0;
}

TEST_MAIN(set_up, NULL, TEST(calls_on_devices_have_the_bits_of_the_host), TEST(errors_of_devices_are_told))
