/* test_available.c - limits of memory and cores, read from copies of the system's files. */
#include <limits.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/available.h"
#include "base/cores.h"
#include "check.h"
#include "temp_folder.h"

static void put(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", temp_folder, name);
    for (char *slash = strchr(path + strlen(temp_folder) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void expect_room(size_t bytes, const char *limit)
{
    lk_available_room room = lk__available_below(temp_folder);
    assert_int_equal(room.bytes, bytes);
    if (limit)
        assert_contains(room.limit, limit);
}

static void put_memory(void)
{
    put("proc/meminfo", "MemTotal:       8000 kB\nMemFree:         100 kB\nMemAvailable:   4000 kB\nSwapTotal: 900 "
                        "kB\nSwapFree:  50 kB\n");
}

static void test_no_limits(void **arg)
{
    expect_room(SIZE_MAX, NULL);
    put("proc/meminfo", "MemTotal: what\nMemAvailable: much\n");
    put("proc/self/cgroup", "nonsense\n0\n::\n");
    expect_room(SIZE_MAX, NULL);
}

static void test_memory(void **arg)
{
    put_memory();
    expect_room(4050 * 1024, "free memory");
}

static void test_cgroup2(void **arg)
{
    put_memory();
    put("proc/self/cgroup", "0::/a/b\n");
    put("sys/fs/cgroup/a/b/memory.max", "max\n");
    put("sys/fs/cgroup/a/b/memory.current", "1000000\n");
    expect_room(4050 * 1024, "free memory");
    put("sys/fs/cgroup/a/b/memory.max", "3000000\n");
    expect_room(2000000 + 50 * 1024, "cgroup");
    /* Memory of cached files can be reclaimed, so it is available. */
    put("sys/fs/cgroup/a/b/memory.stat", "anon 400000\nfile 600000\ninactive_file 300000\nactive_file 200000\n");
    expect_room(2500000 + 50 * 1024, "cgroup");
    /* The limit of the parent group is lower. */
    put("sys/fs/cgroup/a/memory.max", "1500000\n");
    put("sys/fs/cgroup/a/memory.current", "1200000\n");
    expect_room(300000 + 50 * 1024, "cgroup");
    put("sys/fs/cgroup/a/memory.current", "1700000\n");
    expect_room(50 * 1024, "cgroup");
}

/* In a container, /proc names the group by its path on the host, but the group is mounted at the root. */
static void test_cgroup1(void **arg)
{
    put_memory();
    put("proc/self/cgroup", "9:name=systemd:/\n4:memory:/docker/1234\n0::/\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
    expect_room(4050 * 1024, "free memory");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "3000000\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000000\n");
    put("sys/fs/cgroup/memory/memory.stat", "inactive_file 7\ntotal_inactive_file 100\ntotal_active_file 20\n");
    expect_room(2000120 + 50 * 1024, "cgroup");
}

static void test_process(void **arg)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* sanitizers need more memory than a limit allows */
#endif
    struct rlimit given, low;
    lk_available before = lk__available();
    assert_int_equal(getrlimit(RLIMIT_DATA, &given), 0);
    if (given.rlim_cur != RLIM_INFINITY)
        skip();
    low = given;
    low.rlim_cur = (rlim_t)1 << 40;
    struct rlimit now;
    assert_int_equal(setrlimit(RLIMIT_DATA, &low), 0);
    assert_int_equal(getrlimit(RLIMIT_DATA, &now), 0);
    lk_available limited = lk__available();
    assert_int_equal(setrlimit(RLIMIT_DATA, &given), 0);
    if (now.rlim_cur != low.rlim_cur)
        skip(); /* an emulator keeps its own limits */
    assert_string_equal(limited.process.limit, "ulimit -d");
    assert_true(limited.process.bytes < (size_t)1 << 40 && limited.process.bytes <= before.process.bytes);
    assert_true(limited.process.bytes > (size_t)1 << 39);
    assert_true(before.host.bytes > 0);
}

static void test_no_quota(void **arg)
{
    assert_int_equal(lk__cores_quota(temp_folder), INT_MAX);
    put("proc/self/cgroup", "nonsense\n0\n::\n3:cpuset:/a\n0::/a/b\n");
    assert_int_equal(lk__cores_quota(temp_folder), INT_MAX);
    put("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "100000\n");
    put("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
    assert_int_equal(lk__cores_quota(temp_folder), INT_MAX);
    put("sys/fs/cgroup/a/b/cpu.max", "100000 0\n");
    assert_int_equal(lk__cores_quota(temp_folder), INT_MAX);
    put("sys/fs/cgroup/a/b/cpu.max", "900000000000000 1\n");
    assert_int_equal(lk__cores_quota(temp_folder), INT_MAX);
}

static void test_quota2(void **arg)
{
    put("proc/self/cgroup", "0::/a/b\n");
    put("sys/fs/cgroup/a/b/cpu.max", "600000 100000\n");
    assert_int_equal(lk__cores_quota(temp_folder), 6);
    put("sys/fs/cgroup/a/b/cpu.max", "290000 100000\n");
    assert_int_equal(lk__cores_quota(temp_folder), 2);
    put("sys/fs/cgroup/a/b/cpu.max", "1000 100000\n");
    assert_int_equal(lk__cores_quota(temp_folder), 0);
    /* The limit of the parent group is lower. */
    put("sys/fs/cgroup/a/b/cpu.max", "600000 100000\n");
    put("sys/fs/cgroup/cpu.max", "200000 50000\n");
    assert_int_equal(lk__cores_quota(temp_folder), 4);
}

static void test_quota1(void **arg)
{
    put("proc/self/cgroup", "9:name=systemd:/\n4:cpuacct,cpu:/docker/1234\n0::/\n");
    put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    assert_int_equal(lk__cores_quota(temp_folder), INT_MAX);
    put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
    assert_int_equal(lk__cores_quota(temp_folder), 4);
}

static void test_cores(void **arg)
{
    const int cores = lk__cores(), quota = lk__cores_quota("");
    assert_true(cores >= 1 && (cores <= quota || quota < 1));
    assert_int_equal(lk__cores_part(INT_MAX, 1), 0);
    assert_int_equal(lk__cores_part(1, 1), quota < cores ? quota : cores);
    assert_int_equal(lk__cores_set(), lk__cores_set());
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, temp_folder_set_up, temp_folder_tear_down)
TEST_MAIN(NULL, NULL, CASE(test_no_limits), CASE(test_memory), CASE(test_cgroup2), CASE(test_cgroup1),
          TEST(test_process), CASE(test_no_quota), CASE(test_quota2), CASE(test_quota1), TEST(test_cores))
