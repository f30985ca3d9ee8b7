/* query.c - messages about GPUs that cannot be used. The test replaces the functions of the CUDA runtime, so it needs
 * no GPU, and includes the files under test. */
#include <cuda_runtime_api.h>

#include "check.h"
#include "tensor/cuda/runtime/libraries.h"

/* A machine with GPUs of one kind, and its faults. */
static struct machine {
    int driver, gpus, major, minor;
    cudaError_t counting, opening;
    size_t available, total;
    bool no_library;
} machine;

static cudaError_t fake_driver(int *version)
{
    *version = machine.driver;
    return cudaSuccess;
}

static cudaError_t fake_count(int *count)
{
    *count = machine.gpus;
    return machine.counting;
}

static cudaError_t fake_attribute(int *value, enum cudaDeviceAttr attribute, int index)
{
    assert_true(index < machine.gpus);
    *value = attribute == cudaDevAttrComputeCapabilityMajor ? machine.major : machine.minor;
    return cudaSuccess;
}

static cudaError_t fake_properties(struct cudaDeviceProp *gpu, int index)
{
    *gpu = (struct cudaDeviceProp){.major = machine.major, .minor = machine.minor};
    snprintf(gpu->name, sizeof gpu->name, "NVIDIA X%d", index);
    return cudaSuccess;
}

static cudaError_t fake_set(int index)
{
    return machine.opening;
}

static cudaError_t fake_memory(size_t *available, size_t *total)
{
    *available = machine.available;
    *total = machine.total;
    return cudaSuccess;
}

static cudaError_t fake_last(void)
{
    return cudaSuccess;
}

static cudaError_t fake_runtime(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

static const char *fake_name(cudaError_t error)
{
    return error == cudaErrorDevicesUnavailable ? "cudaErrorDevicesUnavailable" : "cudaErrorOther";
}

static const char *fake_string(cudaError_t error)
{
    return "a reason";
}

static lk_status fake_libraries(void)
{
    return machine.no_library ? lk__fail(LK_STATUS_UNSUPPORTED, "libcudnn.so cannot be loaded") : LK_OK;
}

#undef cudaGetDeviceProperties
#define cudaDriverGetVersion fake_driver
#define cudaGetDeviceCount fake_count
#define cudaDeviceGetAttribute fake_attribute
#define cudaGetDeviceProperties fake_properties
#define cudaSetDevice fake_set
#define cudaMemGetInfo fake_memory
#define cudaGetLastError fake_last
#define cudaRuntimeGetVersion fake_runtime
#define cudaGetErrorName fake_name
#define cudaGetErrorString fake_string
#define lk__cuda_libraries_find fake_libraries
#include "tensor/cuda/runtime/open.c"
#include "tensor/cuda/runtime/query.c"

static const size_t GIGA = (size_t)1 << 30;

static int good_machine(void **state)
{
    unsetenv("CUDA_VISIBLE_DEVICES");
    machine =
        (struct machine){.driver = CUDART_VERSION, .gpus = 2, .major = 9, .available = 100 * GIGA, .total = 140 * GIGA};
    return 0;
}

static void refuses(int index, size_t need, lk_status expected, const char *word, const char *other)
{
    assert_int_equal(lk__cuda_probe(index, need), expected);
    if (!strstr(lk_error_detail(), word) || !strstr(lk_error_detail(), other))
        fail_msg("'%s', without '%s' and '%s'", lk_error_detail(), word, other);
}

static void a_good_one(void **state)
{
    assert_int_equal(lk__cuda_probe(0, GIGA), LK_OK);
    assert_int_equal(lk__cuda_probe(1, GIGA), LK_OK);
    assert_int_equal(lk__cuda_check(1), LK_OK);
}

static void none(void **state)
{
    refuses(2, 0, LK_STATUS_UNSUPPORTED, "cuda:2: the driver shows 2 GPUs", "cuda:0 (NVIDIA X0), cuda:1 (NVIDIA X1)");
    assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "5,6", 1), 0);
    refuses(2, 0, LK_STATUS_UNSUPPORTED, "cuda:2", "CUDA_VISIBLE_DEVICES 5,6");
    machine.gpus = 0;
    refuses(0, 0, LK_STATUS_UNSUPPORTED, "cuda:0", "CUDA_VISIBLE_DEVICES '5,6'");
    machine.counting = cudaErrorInsufficientDriver;
    machine.driver = 11040;
    refuses(0, 0, LK_STATUS_UNSUPPORTED, "for CUDA 11.4", "newer driver");
    machine.driver = 0;
    refuses(0, 0, LK_STATUS_UNSUPPORTED, "no NVIDIA driver", "libcuda.so.1");
}

static void too_old(void **state)
{
    machine.major = 7;
    machine.minor = 5;
    refuses(1, 0, LK_STATUS_UNSUPPORTED, "cuda:1 (NVIDIA X1) is too old", "7.5, and 8.0 is needed");
    assert_int_equal(lk__cuda_check(1), LK_STATUS_UNSUPPORTED);
}

/* Memory that other processes use is reported, unless the request is larger than the GPU. */
static void full(void **state)
{
    refuses(0, 120 * GIGA, LK_STATUS_MEMORY, "cuda:0 (NVIDIA X0) is full", "107 GB of its 150 GB are free");
    assert_int_equal(lk__cuda_probe(0, 200 * GIGA), LK_OK);
    machine.available = 1 << 20;
    refuses(0, 0, LK_STATUS_MEMORY, "is full: about 268 MB", "1.05 MB of its 150 GB");
    machine.opening = cudaErrorMemoryAllocation;
    refuses(0, 0, LK_STATUS_MEMORY, "cuda:0 (NVIDIA X0) cannot be opened", "nvidia-smi");
}

static void of_no_use(void **state)
{
    machine.no_library = true;
    refuses(1, 0, LK_STATUS_UNSUPPORTED, "cuda:1 (NVIDIA X1): ", "libcudnn.so");
    machine.no_library = false;
    machine.opening = cudaErrorDevicesUnavailable;
    refuses(0, 0, LK_STATUS_UNSUPPORTED, "cudaErrorDevicesUnavailable", "nvidia-smi");
}

static void what_info_says(void **state)
{
    char text[4096];
    lk__cuda_describe(text, sizeof text);
    assert_non_null(strstr(text, "cuda:1: NVIDIA X1, compute capability 9.0, 107 GB of 150 GB free"));
    machine.major = 6;
    lk__cuda_describe(text, sizeof text);
    assert_non_null(strstr(text, "cuda:0: NVIDIA X0, compute capability 6.0: too old, 8.0 is needed"));
    machine.gpus = 0;
    lk__cuda_describe(text, sizeof text);
    assert_string_equal(text, "no GPU: the driver finds no device");
}

TEST_MAIN(NULL, NULL, cmocka_unit_test_setup(a_good_one, good_machine), cmocka_unit_test_setup(none, good_machine),
          cmocka_unit_test_setup(too_old, good_machine), cmocka_unit_test_setup(full, good_machine),
          cmocka_unit_test_setup(of_no_use, good_machine), cmocka_unit_test_setup(what_info_says, good_machine))
