/* test_gauge.c - sensors of GPUs, with fake_nvml.c in the place of the driver's library. CTest sets LD_LIBRARY_PATH. */
#include "tensor/gauge.h"

#include <dlfcn.h>
#include <math.h>
#include <time.h>

#include "base/clock.h"
#include "check.h"

enum { DEADLINE_S = 60 };

static int opened(void)
{
    int (*count)(void);
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    void *address = dlsym(library, "fake_nvml_opened");
    assert_non_null(address);
    memcpy(&count, &address, sizeof count);
    return count();
}

static void a_gpu_is_found_by_its_address(void **state)
{
    lk_gauge *first = lk__gauge_create("0000:3b:00.0"), *second = lk__gauge_create("0000:af:00.0");
    assert_non_null(first);
    assert_non_null(second);
    assert_int_equal(opened(), 2);
    lk_gauge_reading one = lk__gauge_read(first), two = lk__gauge_read(second);
    assert_true(one.busy_pct == 87 && one.memory_mb == 1500 && one.celsius >= 40 && one.celsius < 70);
    assert_true(isnan(two.busy_pct) && two.memory_mb == 3072 && two.celsius >= 70);
    lk__gauge_destroy(first);
    lk__gauge_destroy(second);
    assert_int_equal(opened(), 0);
}

static void readings_are_renewed(void **state)
{
    lk_gauge *gauge = lk__gauge_create("0000:3b:00.0");
    double first = lk__gauge_read(gauge).celsius, began = lk__clock();
    while (lk__gauge_read(gauge).celsius < first + 2 && lk__clock() - began < DEADLINE_S)
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    assert_true(lk__gauge_read(gauge).celsius >= first + 2);
    lk__gauge_destroy(gauge);
}

static void an_unknown_gpu_has_no_gauge(void **state)
{
    assert_null(lk__gauge_create("0000:01:00.0"));
    assert_int_equal(opened(), 0);
    lk_gauge_reading none = lk__gauge_read(NULL);
    assert_true(isnan(none.busy_pct) && isnan(none.memory_mb) && isnan(none.celsius));
    lk__gauge_destroy(NULL);
}

TEST_MAIN(NULL, NULL, TEST(a_gpu_is_found_by_its_address), TEST(readings_are_renewed),
          TEST(an_unknown_gpu_has_no_gauge))
