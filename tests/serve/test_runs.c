/* test_runs.c - the list of runs: a failure of the system removes no run from it. */
#include "heap.h"

#include <sys/stat.h>

#include "base/clock.h"
#include "check.h"
#include "serve/runs.h"
#include "temp_folder.h"

enum { SCANS = 40, PATH_BYTES = 1024 };
static const double SCAN_SECONDS = 1.2;

static const char *const first[] = {"b", "d", "f"}, *const later[] = {"a", "c", "e", "g"};

static void make_run(const char *dir, const char *name)
{
    static const char text[] = "{\"format\":\"lockstep-run-1\"}";
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/%s/run.json", dir, name);
    temp_write(path, text, strlen(text));
}

static lk_runs *make_list(const char *dir)
{
    lk_runs *runs;
    assert_ok(lk__runs_create(dir, &runs));
    lk__runs_scan(runs);
    return runs;
}

static void assert_has(const lk_runs *runs, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_non_null(lk__runs_find(runs, names[i]));
}

/* The next scan finds four new runs. In each list's scan another allocation fails. */
static void test_memory_is_short(void **state)
{
    lk_runs *runs[SCANS];
    const char *dir = temp_path("short");
    bool failed[SCANS];
    assert_int_equal(mkdir(dir, 0700), 0);
    for (size_t i = 0; i < COUNT_OF(first); i++)
        make_run(dir, first[i]);
    for (size_t i = 0; i < SCANS; i++) {
        runs[i] = make_list(dir);
        assert_has(runs[i], first, COUNT_OF(first));
    }
    for (size_t i = 0; i < COUNT_OF(later); i++)
        make_run(dir, later[i]);
    lk__clock_sleep(SCAN_SECONDS);
    for (size_t i = 0; i < SCANS; i++) {
        heap_watch(i + 1);
        lk__runs_scan(runs[i]);
        heap_leave();
        failed[i] = heap.failed;
        assert_has(runs[i], first, COUNT_OF(first));
    }
    assert_true(!HEAP_REPLACED || failed[0]);
    lk__clock_sleep(SCAN_SECONDS);
    for (size_t i = 0; i < SCANS; i++) {
        lk__runs_scan(runs[i]);
        assert_has(runs[i], first, COUNT_OF(first));
        assert_has(runs[i], later, COUNT_OF(later));
        lk__runs_destroy(runs[i]);
    }
}

/* A folder that is removed has no runs; one that cannot be read for another reason keeps them. */
static void test_folder_is_lost(void **state)
{
    char dir[PATH_BYTES], link[PATH_BYTES];
    snprintf(dir, sizeof dir, "%s", temp_path("lost"));
    snprintf(link, sizeof link, "%s", temp_path("link"));
    assert_int_equal(mkdir(dir, 0700), 0);
    make_run(dir, "a");
    assert_int_equal(symlink(dir, link), 0);
    lk_runs *runs = make_list(link);
    assert_non_null(lk__runs_find(runs, "a"));
    assert_int_equal(unlink(link), 0);
    assert_int_equal(symlink(link, link), 0); /* ELOOP */
    lk__clock_sleep(SCAN_SECONDS);
    lk__runs_scan(runs);
    assert_non_null(lk__runs_find(runs, "a"));
    assert_int_equal(unlink(link), 0);
    lk__clock_sleep(SCAN_SECONDS);
    lk__runs_scan(runs);
    assert_null(lk__runs_find(runs, "a"));
    lk__runs_destroy(runs);
}

TEST_MAIN(temp_folder_set_up, temp_folder_tear_down, TEST(test_memory_is_short), TEST(test_folder_is_lost))
