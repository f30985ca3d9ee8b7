/* buffers.c - collective calls on buffers in the memory of a GPU ($LOCKSTEP_TEST_DEVICE, default cuda:0): the bits of
 * host memory, with ranks that are threads and ranks that are processes. Status 77: there is no GPU. */
#define _DEFAULT_SOURCE /* anonymous memory that children share */
#include "check.h"
#include "comm/device_buffers.h"

static const char *device_name(void)
{
    const char *name = getenv("LOCKSTEP_TEST_DEVICE");
    return name && *name ? name : "cuda:0";
}

static bool all_calls(lk_group *group, const team_spec *team, const void *arg)
{
    try_device(group, device_name(), SMALL_COUNT, COUNT_OF(side_calls));
    try_device(group, device_name(), LARGE_COUNT, 1);
    try_mixed(group, device_name());
    return false;
}

static bool wrong_index(lk_group *group, const team_spec *team, const void *arg)
{
    float value = 1;
    lk_buffer data = {&value, 1, LK_DTYPE_F32, "cuda:999"};
    CHECK(lk_allreduce(group, data, LK_REDUCTION_SUM, NULL) == LK_STATUS_UNSUPPORTED);
    CHECK_TEXT(lk_error_detail(), "cuda");
    return false;
}

static void calls_on_a_gpu_have_the_bits_of_the_host(void **state)
{
    for (int size = 1; size <= 3; size++) {
        assert_true(team_run((team_spec){.size = size, .transport = "inproc", .timeout = 60}, all_calls, NULL));
        assert_true(team_run((team_spec){.size = size, .transport = "shm", .timeout = 60}, all_calls, NULL));
    }
    assert_true(team_run((team_spec){.size = 2, .transport = "tcp", .timeout = 60}, all_calls, NULL));
}

static void a_gpu_that_is_not_there_is_told(void **state)
{
    assert_true(team_run((team_spec){.size = 2, .transport = "inproc", .timeout = 60}, wrong_index, NULL));
}

int main(void)
{
    const lk_device_type *type = lk__device_find(device_name());
    /* Only children open the GPU: a process must not fork after that. */
    if (!type || !type->count || type->count() == 0) {
        fprintf(stderr, "no %s here: left out\n", device_name());
        return 77;
    }
    return RUN_TESTS(NULL, NULL, TEST(calls_on_a_gpu_have_the_bits_of_the_host), TEST(a_gpu_that_is_not_there_is_told));
}
