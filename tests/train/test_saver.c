/* test_saver.c - saving checkpoints during training: which checkpoints stay, who may save where, and
 * the errors when saving fails.
 *
 * A fault is selected by the step of the caller's thread; the saver's thread must take that step
 * over. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/mem.h"
#include "check.h"
#include "io/checkpoint/checkpoint.h"
#include "temp_folder.h"
#include "train/saver.h"

enum { PATH = 512, FULL_STEP = 901, SLOW_STEP = 902, PROBE_STEP = 903, DOUBT_STEP = 904 };

static const char faults[] = "write:op=save,step=901;delay:op=save,step=902,seconds=0.2;write:step=903;write:step=904";

static const char *below(const char *name, char path[PATH])
{
    snprintf(path, PATH, "%s/%s", temp_folder, name);
    return path;
}

static bool exists(const char *name)
{
    char path[PATH];
    struct stat info;
    return lstat(below(name, path), &info) == 0;
}

static void make_folder(const char *name)
{
    char path[PATH];
    assert_int_equal(mkdir(below(name, path), 0777), 0);
}

static void make_file(const char *name)
{
    char path[PATH];
    FILE *file = fopen(below(name, path), "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
}

/* Model and optimiser have one tensor each, filled with the step. */
static lk_checkpoint *checkpoint_of(uint64_t step)
{
    lk_state *states[2];
    lk_checkpoint *checkpoint;
    for (int i = 0; i < 2; i++) {
        lk_state_entry *entry;
        assert_int_equal(lk_state_create(&states[i]), LK_OK);
        assert_int_equal(
            lk_state_add(states[i], i ? "exp_avg.fc.weight" : "fc.weight", LK_DTYPE_F32, 1, (size_t[]){1000}, &entry),
            LK_OK);
        for (size_t k = 0; k < 1000; k++)
            ((float *)entry->data)[k] = (float)step;
    }
    assert_int_equal(lk_checkpoint_create(states[0], states[1], &checkpoint), LK_OK);
    return checkpoint;
}

static lk_saver_opts options(const char *name, size_t keep)
{
    static char dir[PATH];
    return (lk_saver_opts){.dir = below(name, dir), .keep = keep};
}

/* Resumes from the checkpoint of the step in the folder. */
static void go_on(lk_saver_opts *opts, const char *name, uint64_t step)
{
    static char from[PATH + 32];
    char dir[PATH];
    assert_int_equal(lk__checkpoint_path(below(name, dir), step, from, sizeof from), LK_OK);
    opts->from = from;
    opts->step = step;
}

static lk_saver *open_saver(const lk_saver_opts *opts)
{
    lk_saver *saver;
    assert_int_equal(lk__saver_open(opts, &saver), LK_OK);
    return saver;
}

static lk_saver *open_new(const char *name, size_t keep)
{
    lk_saver_opts opts = options(name, keep);
    return open_saver(&opts);
}

static void refuses(const lk_saver_opts *opts, lk_status status, const char *const *words)
{
    lk_saver *saver;
    assert_int_equal(lk__saver_open(opts, &saver), status);
    for (; *words; words++)
        assert_detail(*words);
}
#define REFUSES(opts, status, ...) refuses((opts), (status), (const char *const[]){__VA_ARGS__, NULL})

static lk_status put(lk_saver *saver, uint64_t step, bool best)
{
    return lk__saver_put(saver, checkpoint_of(step), step, best);
}

/* Saves a checkpoint and waits until it is saved. */
static void save(lk_saver *saver, uint64_t step, bool best)
{
    bool done = false;
    lk_saver_saved saved;
    assert_int_equal(put(saver, step, best), LK_OK);
    assert_int_equal(lk__saver_wait(saver, &done, &saved), LK_OK);
    assert_true(done);
    assert_int_equal(saved.step, step);
    assert_int_equal(saved.best, best);
    assert_true(saved.seconds >= 0);
    assert_string_equal(saved.path, lk__saver_last(saver));
    assert_int_equal(lk_checkpoint_verify(saved.path), LK_OK);
}

/* The folder has the checkpoints of these steps, all complete, and no temporary files. */
static void expect_steps(const char *name, size_t count, const uint64_t *wanted)
{
    char dir[PATH], path[PATH];
    uint64_t *steps;
    size_t found;
    assert_int_equal(lk__checkpoint_list(below(name, dir), &steps, &found), LK_OK);
    assert_int_equal(found, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(steps[i], wanted[i]);
        assert_int_equal(lk__checkpoint_path(dir, steps[i], path, sizeof path), LK_OK);
        assert_int_equal(lk_checkpoint_verify(path), LK_OK);
    }
    lk__mem_free(steps);
    DIR *folder = opendir(dir);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        assert_int_not_equal(strncmp(entry->d_name, ".lk-", 4), 0);
    closedir(folder);
}
#define EXPECT_STEPS(name, ...) \
    expect_steps((name), sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), (uint64_t[]){__VA_ARGS__})

/* Sets the step of the caller's thread. */
static void set_step(uint64_t step)
{
    lk__fault_set_site((lk_fault_site){.step = step});
}

static void test_order(void **state)
{
    bool done = true;
    lk_saver_saved saved = {.step = 77};
    int priority = getpriority(PRIO_PROCESS, 0);
    lk_saver *saver = open_new("order", 3);
    assert_true(exists("order"));
    assert_string_equal(lk__saver_last(saver), "");
    assert_int_equal(lk__saver_poll(saver, &done, &saved), LK_OK);
    assert_false(done);
    assert_int_equal(lk__saver_wait(saver, &done, &saved), LK_OK);
    assert_false(done);
    assert_int_equal(saved.step, 77);

    assert_int_equal(put(saver, 5, false), LK_OK);
    while (!done) {
        assert_int_equal(lk__saver_poll(saver, &done, &saved), LK_OK);
        assert_int_equal(saved.step, done ? 5 : 77);
        sched_yield();
    }
    assert_contains(saved.path, "/order/step-000000005");
    assert_string_equal(lk__saver_last(saver), saved.path);
    /* It is reported once. */
    assert_int_equal(lk__saver_poll(saver, &done, &saved), LK_OK);
    assert_false(done);
    save(saver, 6, false);
    lk__saver_close(saver);
    EXPECT_STEPS("order", 5, 6);
    assert_false(exists("order/best"));
    /* The saver's thread has a lower priority, not the caller's. */
    assert_int_equal(getpriority(PRIO_PROCESS, 0), priority);
}

/* The second put waits for the first, which is slow; close waits for the second. */
static void test_overlap(void **state)
{
    lk_saver *saver = open_new("overlap", 3);
    set_step(SLOW_STEP);
    assert_int_equal(put(saver, 1, false), LK_OK);
    assert_int_equal(put(saver, 2, true), LK_OK);
    assert_true(exists("overlap/step-000000001"));
    assert_contains(lk__saver_last(saver), "/step-000000001");
    lk__saver_close(saver);
    set_step(0);
    EXPECT_STEPS("overlap", 1, 2);
    assert_true(exists("overlap/best"));
}

static void test_keep(void **state)
{
    lk_saver *saver = open_new("one", 1);
    save(saver, 1, false);
    EXPECT_STEPS("one", 1);
    save(saver, 2, false);
    EXPECT_STEPS("one", 2);
    lk__saver_close(saver);

    saver = open_new("three", 3);
    for (uint64_t step = 10; step <= 50; step += 10)
        save(saver, step, false);
    EXPECT_STEPS("three", 30, 40, 50);
    /* A checkpoint of the same step is replaced. */
    save(saver, 50, false);
    EXPECT_STEPS("three", 30, 40, 50);
    lk__saver_close(saver);
}

static void test_best(void **state)
{
    char dir[PATH];
    uint64_t best = 0;
    lk_saver *saver = open_new("best", 2);
    save(saver, 1, true);
    for (uint64_t step = 2; step <= 5; step++)
        save(saver, step, false);
    EXPECT_STEPS("best", 1, 4, 5);
    assert_true(lk__checkpoint_best(below("best", dir), &best));
    assert_int_equal(best, 1);
    /* The former best checkpoint is removed when there is a better one. */
    save(saver, 6, true);
    EXPECT_STEPS("best", 5, 6);
    save(saver, 7, false);
    save(saver, 8, false);
    EXPECT_STEPS("best", 6, 7, 8);
    assert_true(lk__checkpoint_best(dir, &best));
    assert_int_equal(best, 6);
    lk__saver_close(saver);
}

static void test_lock(void **state)
{
    lk_saver *saver = open_new("locked", 1);
    save(saver, 1, false);
    lk_saver_opts opts = options("locked", 1);
    go_on(&opts, "locked", 1);
    REFUSES(&opts, LK_STATUS_USAGE, "/locked'", "another run is saving there", "a folder of its own");
    lk__saver_close(saver);
    saver = open_saver(&opts);
    assert_contains(lk__saver_last(saver), "/locked/step-000000001");
    lk__saver_close(saver);
}

static void test_other_run(void **state)
{
    lk_saver *saver = open_new("other", 3);
    save(saver, 100, false);
    save(saver, 200, false);
    lk__saver_close(saver);

    lk_saver_opts opts = options("other", 3);
    REFUSES(&opts, LK_STATUS_USAGE, "/other'", "2 checkpoints", "newest of step 200", "`resume` auto",
            "another folder");
    go_on(&opts, "other", 100);
    opts.exact = true;
    REFUSES(&opts, LK_STATUS_USAGE, "/other has", "newer", "step 100", "/other/step-000000200:", "`checkpoint`",
            "`resume`");
    EXPECT_STEPS("other", 100, 200);

    go_on(&opts, "other", 200);
    saver = open_saver(&opts);
    assert_contains(lk__saver_last(saver), "/other/step-000000200");
    lk__saver_close(saver);
    /* The run resumes from another folder: the checkpoints here belong to another run. */
    saver = open_new("elsewhere", 3);
    save(saver, 300, false);
    lk__saver_close(saver);
    opts = options("other", 3);
    go_on(&opts, "elsewhere", 300);
    for (int exact = 0; exact < 2; exact++) {
        opts.exact = exact;
        REFUSES(&opts, LK_STATUS_USAGE, "/other'", "2 checkpoints of another run", "newest of step 200",
                "another folder");
        EXPECT_STEPS("other", 100, 200);
    }
}

/* After a crash between saving the best checkpoint and setting the link `best`. */
static void test_best_is_found_again(void **state)
{
    char path[PATH];
    uint64_t best = 0;
    lk_saver *saver = open_new("mended", 1);
    save(saver, 5, true);
    lk__saver_close(saver);
    below("mended/best", path);
    assert_int_equal(unlink(path), 0);
    lk_saver_opts opts = options("mended", 1);
    go_on(&opts, "mended", 5);
    opts.best = 5;
    saver = open_saver(&opts);
    assert_true(lk__checkpoint_best(opts.dir, &best));
    assert_int_equal(best, 5);
    assert_int_equal(unlink(path), 0); /* even without the link the best checkpoint stays */
    save(saver, 6, false);
    save(saver, 7, false);
    EXPECT_STEPS("mended", 5, 7);
    lk__saver_close(saver);
}

static void test_what_is_not_finite_is_not_saved(void **state)
{
    lk_saver_saved saved;
    bool done;
    lk_saver *saver = open_new("infinite", 1);
    save(saver, 1, false);
    lk_checkpoint *checkpoint = checkpoint_of(2);
    ((float *)lk_state_at(lk_checkpoint_model(checkpoint), 0)->data)[0] = INFINITY;
    assert_int_equal(lk__saver_put(saver, checkpoint, 2, false), LK_OK);
    assert_fails(lk__saver_wait(saver, &done, &saved), LK_STATUS_NONFINITE, "the model after step 2");
    assert_detail("the last good checkpoint is");
    EXPECT_STEPS("infinite", 1);
    lk__saver_close(saver);
}

/* A newer checkpoint that was passed over stays until its step is reached, and does not count for
 * keep. */
static void test_passed_over(void **state)
{
    lk_saver *saver = open_new("passed", 3);
    save(saver, 10, false);
    save(saver, 20, false);
    save(saver, 30, false);
    lk__saver_close(saver);
    lk_saver_opts opts = options("passed", 1);
    go_on(&opts, "passed", 10);
    saver = open_saver(&opts);
    assert_contains(lk__saver_last(saver), "/step-000000010");
    save(saver, 15, false);
    EXPECT_STEPS("passed", 15, 20, 30);
    save(saver, 20, false);
    EXPECT_STEPS("passed", 20, 30);
    save(saver, 35, false);
    EXPECT_STEPS("passed", 35);
    lk__saver_close(saver);
}

static void test_places(void **state)
{
    char path[PATH];
    make_file("file");
    lk_saver_opts opts = options("file", 1);
    REFUSES(&opts, LK_STATUS_USAGE, "`checkpoint` '", "/file' is not a folder");
    opts = options("file/below", 1);
    REFUSES(&opts, LK_STATUS_USAGE, "/file/below' cannot be created", "/file' is not a folder", "another");
    opts = options("missing//below/file/deep", 1);
    make_folder("missing");
    make_folder("missing/below");
    make_file("missing/below/file");
    REFUSES(&opts, LK_STATUS_USAGE, "/deep' cannot be created", "/missing//below/file' is not a folder");
    opts.dir = "";
    REFUSES(&opts, LK_STATUS_USAGE, "`checkpoint` ''");
    char *longest = calloc(1, 8000);
    assert_non_null(longest);
    opts.dir = memset(longest, 'x', 7999);
    REFUSES(&opts, LK_STATUS_USAGE, "longer than");
    free(longest);
    assert_int_equal(symlink("nowhere", below("dangling", path)), 0);
    opts = options("dangling", 1);
    REFUSES(&opts, LK_STATUS_IO, "/dangling' cannot be opened", "another folder");
    assert_int_equal(unlink(path), 0);

    /* Missing folders are created, and removed again if nothing was saved. */
    lk__saver_close(open_new("missing/below/some/more//folders/", 1));
    assert_true(exists("missing/below") && !exists("missing/below/some"));
    lk_saver *saver = open_new("missing/below/some/more//folders", 1);
    save(saver, 1, false);
    lk__saver_close(saver);
    EXPECT_STEPS("missing/below/some/more/folders", 1);

    saver = open_new("slashes//", 1);
    save(saver, 1, false);
    assert_contains(lk__saver_last(saver), "/slashes/step-000000001");
    lk__saver_close(saver);
    opts = options("slashes/step-000000001", 1);
    REFUSES(&opts, LK_STATUS_USAGE, "is itself a checkpoint");
}

static void test_unwritable(void **state)
{
    char path[PATH];
    make_folder("unwritable");
    set_step(PROBE_STEP);
    lk_saver_opts opts = options("unwritable", 1);
    REFUSES(&opts, LK_STATUS_IO, "/unwritable' cannot be written to", strerror(ENOSPC), "another folder");
    set_step(0);
    if (geteuid() == 0) /* permissions do not apply to root */
        return;
    assert_int_equal(chmod(below("unwritable", path), 0555), 0);
    REFUSES(&opts, LK_STATUS_IO, "/unwritable' cannot be written to", strerror(EACCES));
    opts = options("unwritable/below", 1);
    REFUSES(&opts, LK_STATUS_IO, "/unwritable/below' cannot be created", strerror(EACCES));
    assert_int_equal(chmod(path, 0777), 0);
}

static void expect_failure(lk_status got, const char *good)
{
    assert_fails(got, LK_STATUS_IO, good);
}

/* Every later call returns the failure. */
static void expect_failed(lk_saver *saver, const char *good)
{
    bool done = false;
    lk_saver_saved saved = {.step = 77};
    expect_failure(lk__saver_wait(saver, &done, &saved), good);
    expect_failure(lk__saver_poll(saver, &done, &saved), good);
    expect_failure(put(saver, 99, true), good);
    expect_failure(lk__saver_wait(saver, &done, &saved), good);
    assert_false(done);
    assert_int_equal(saved.step, 77);
}

static void test_failing_save(void **state)
{
    char wanted[2 * PATH];
    lk_saver *saver = open_new("full", 1);
    save(saver, 1, true);
    set_step(FULL_STEP);
    assert_int_equal(put(saver, 2, true), LK_OK);
    set_step(0);
    snprintf(wanted, sizeof wanted,
             "; the last good checkpoint is %s/full/step-000000001; mend that and go on with `resume` auto",
             temp_folder);
    expect_failed(saver, wanted);
    assert_detail(strerror(ENOSPC));
    assert_contains(lk__saver_last(saver), "/full/step-000000001");
    lk__saver_close(saver);
    EXPECT_STEPS("full", 1);
}

/* The folder is renamed during the run: the next put returns the error. */
static void test_folder_gone(void **state)
{
    char from[PATH], to[PATH], wanted[2 * PATH];
    lk_saver *saver = open_new("gone", 1);
    assert_int_equal(rename(below("gone", from), below("moved", to)), 0);
    assert_int_equal(put(saver, 1, false), LK_OK);
    lk_status status = put(saver, 2, false);
    assert_int_equal(status, LK_STATUS_IO);
    snprintf(wanted, sizeof wanted, "; there is no checkpoint in %s; mend that and start again", from);
    assert_detail(wanted);
    assert_string_equal(lk__saver_last(saver), "");
    lk__saver_close(saver);
    assert_false(exists("gone"));
}

/* The checkpoint is saved, but the link is not: a folder named `best` cannot be replaced. */
static void test_failing_link(void **state)
{
    lk_saver *saver = open_new("link", 1);
    save(saver, 1, false);
    make_folder("link/best");
    make_file("link/best/mine");
    assert_int_equal(put(saver, 2, true), LK_OK);
    expect_failed(saver, "/link/step-000000002; mend that");
    assert_contains(lk__saver_last(saver), "/link/step-000000002");
    lk__saver_close(saver);
    EXPECT_STEPS("link", 1, 2);
}

static void test_sweep(void **state)
{
    lk_saver *saver = open_new("swept", 2);
    save(saver, 1, false);
    lk__saver_close(saver);
    make_folder("swept/.lk-probe.tmp");
    make_folder("swept/.lk-1-0.tmp");
    make_file("swept/.lk-1-0.tmp/model.safetensors");
    make_file("swept/mine");
    lk_saver_opts opts = options("swept", 2);
    go_on(&opts, "swept", 1);
    saver = open_saver(&opts);
    EXPECT_STEPS("swept", 1);
    assert_true(exists("swept/mine"));
    lk__saver_close(saver);
}

/* Later checkpoints get another name, which no list has; an older one of that name is replaced. */
static void test_distrust(void **state)
{
    char example[LK_CHECKPOINT_PATH], path[PATH];
    size_t count = 0;
    lk_saver *saver = open_new("doubt", 9);
    save(saver, 10, true);
    save(saver, 20, false);
    save(saver, 30, true);
    save(saver, 40, false);
    make_folder("doubt/suspect-step-000000040");
    make_file("doubt/suspect-step-000000040/model.safetensors");
    assert_int_equal(lk__saver_distrust(saver, 20, &count, example), LK_OK);
    assert_int_equal(count, 2);
    assert_string_equal(example, below("doubt/suspect-step-000000030", path));
    expect_steps("doubt", 2, (uint64_t[]){10, 20});
    assert_false(exists("doubt/best"));
    assert_true(exists("doubt/suspect-step-000000030/checkpoint.json") &&
                exists("doubt/suspect-step-000000040/checkpoint.json"));
    assert_true(lk__checkpoint_is_suspect(example));
    assert_false(lk__checkpoint_is_suspect(below("doubt/step-000000020", path)));
    assert_string_equal(lk__saver_last(saver), "");
    lk__saver_close(saver);
}

static void test_distrust_fails(void **state)
{
    char example[LK_CHECKPOINT_PATH] = "before", path[PATH];
    size_t count = 7;
    lk_saver *saver = open_new("undoubted", 9);
    save(saver, 10, false);
    save(saver, 20, false);
    set_step(DOUBT_STEP);
    assert_int_equal(lk__saver_distrust(saver, 5, &count, example), LK_STATUS_IO);
    assert_string_equal(example, "before");
    assert_int_equal(count, 7);
    set_step(0);
    EXPECT_STEPS("undoubted", 10, 20);
    assert_int_equal(lk__saver_distrust(saver, 10, &count, example), LK_OK);
    assert_int_equal(count, 1);
    assert_string_equal(example, below("undoubted/suspect-step-000000020", path));
    lk__saver_close(saver);
}

static void test_close(void **state)
{
    lk__saver_close(NULL);
    lk__saver_close(open_new("unused", 1));
    lk_saver *saver = open_new("untold", 1);
    assert_int_equal(put(saver, 1, false), LK_OK);
    lk__saver_close(saver);
    EXPECT_STEPS("untold", 1);
}

int main(void)
{
    if (setenv("LOCKSTEP_FAULT", faults, 1) != 0 || lk__fault_load() != LK_OK) {
        fprintf(stderr, "%s\n", lk_error_detail());
        return 1;
    }
    return RUN_TESTS(temp_folder_set_up, temp_folder_tear_down, TEST(test_order), TEST(test_overlap), TEST(test_keep),
                     TEST(test_best), TEST(test_lock), TEST(test_other_run), TEST(test_best_is_found_again),
                     TEST(test_what_is_not_finite_is_not_saved), TEST(test_passed_over), TEST(test_places),
                     TEST(test_unwritable), TEST(test_failing_save), TEST(test_folder_gone), TEST(test_failing_link),
                     TEST(test_sweep), TEST(test_distrust), TEST(test_distrust_fails), TEST(test_close));
}
