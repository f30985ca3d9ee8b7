/* test_checkpoint_faults.c - every write and every allocation of a save fails in turn, a bit of every piece
 * is written wrong, and the save is killed at every write. Afterwards the old checkpoint or the new one is
 * there and whole, and the next save works. Each case is a child process, because faults are read once. */
#define _GNU_SOURCE
#include "state_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/fault.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint.h"
#include "processes.h"

/* Replaces libc's function: on request, the file system cannot exchange names. */
static bool cannot_exchange;
int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    if (cannot_exchange && flags != 0) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

/* Replaces libc's rename. After a rename that moves an old checkpoint out of the way, another process repairs
 * the folder; this happens for the next `mends_between` such renames. */
static size_t mends_between;
int rename(const char *from, const char *to)
{
    int moved = (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    if (mends_between > 0 && strstr(to, "/.lk-was-")) {
        mends_between--;
        assert_int_equal(moved, 0);
        assert_int_equal(lk__checkpoint_mend(temp_folder), LK_OK);
        assert_int_equal(access(from, F_OK), 0);
    }
    return moved;
}

/* Written by a child into shared memory; it stays when the child is killed. */
typedef struct report {
    char fault[64]; /* LOCKSTEP_FAULT of the child */
    lk_status status;
    char detail[1024];
    size_t unused; /* fault points after the work until the fault struck */
} report;

static report *outcome;
enum { FAR = 1000 };

static lk_checkpoint *make(int value)
{
    lk_checkpoint *checkpoint = NULL;
    lk_state *model = make_samples(4), *optimizer = make_samples(6);
    *(unsigned char *)lk_state_at(model, 0)->data = (unsigned char)value;
    char text[32];
    snprintf(text, sizeof text, "%d", value);
    assert_int_equal(lk_checkpoint_create(model, optimizer, &checkpoint), LK_OK);
    assert_int_equal(lk_checkpoint_set_note(checkpoint, "step", text), LK_OK);
    return checkpoint;
}

/* Each works in temp_folder, where checkpoint 1 is saved as step-000000001. */
static lk_status save_over(void)
{
    lk_checkpoint *checkpoint = make(2);
    lk_status status = lk_checkpoint_save(checkpoint, temp_path("step-000000001"));
    lk_checkpoint_destroy(checkpoint);
    return status;
}

static lk_status save_new(void)
{
    lk_checkpoint *checkpoint = make(2);
    lk_status status = lk_checkpoint_save(checkpoint, temp_path("step-000000002"));
    lk_checkpoint_destroy(checkpoint);
    return status;
}

static lk_status load_one(void)
{
    lk_checkpoint *checkpoint = NULL;
    lk_status status = lk_checkpoint_load(temp_path("step-000000001"), &checkpoint);
    lk_checkpoint_destroy(checkpoint);
    return status;
}

static lk_status remove_one(void)
{
    const char *before = lk__fault_enter("save");
    lk_status status = lk__checkpoint_remove(temp_folder, 1);
    lk__fault_leave(before);
    return status;
}

static lk_status set_best(void)
{
    const char *before = lk__fault_enter("save");
    lk_status status = lk__checkpoint_set_best(temp_folder, 1);
    lk__fault_leave(before);
    return status;
}

static size_t count_unused(const char *op, bool (*moment)(void))
{
    const char *before = lk__fault_enter(op);
    size_t count = 0;
    while (count <= FAR && !moment())
        count++;
    lk__fault_leave(before);
    return count;
}

static bool write_moment(void)
{
    return lk__fault_write();
}

static bool alloc_moment(void)
{
    return lk__fault_alloc();
}

/* A fault that strikes during `work`; `moment` is one point at which it can strike. */
typedef struct trial {
    const char *fault, *op;
    lk_status (*work)(void);
    bool (*moment)(void);
} trial;

static void child(int number, void *arg)
{
    const trial *t = arg;
    if (setenv("LOCKSTEP_FAULT", outcome->fault, 1) != 0 || lk__fault_load() != LK_OK)
        _exit(9);
    outcome->status = t->work();
    snprintf(outcome->detail, sizeof outcome->detail, "%s", lk_error_detail());
    if (t->moment)
        outcome->unused = count_unused(t->op, t->moment);
    _exit(0);
}

/* Returns the result of process_wait. */
static int run(trial t, size_t nth)
{
    memset(outcome, 0, sizeof *outcome);
    snprintf(outcome->fault, sizeof outcome->fault, "%s:op=%s,nth=%zu", t.fault, t.op, nth);
    outcome->status = LK_STATUS_COUNT;
    return process_wait(process_start(child, 0, &t));
}

/* The number of points in the work at which the fault can strike. */
static size_t count_moments(const trial *t)
{
    assert_int_equal(run(*t, FAR), 0);
    assert_int_equal(outcome->status, LK_OK);
    assert_true(outcome->unused < FAR);
    return FAR - outcome->unused - 1;
}

static size_t entries(void)
{
    size_t count = 0;
    DIR *dir = opendir(temp_folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    return count;
}

/* The value of the checkpoint, which must be whole; 0: there is none. */
static int value_of(const char *name)
{
    lk_checkpoint *checkpoint = NULL;
    struct stat info;
    if (lstat(temp_path(name), &info) != 0)
        return 0;
    if (lk_checkpoint_load(temp_path(name), &checkpoint) != LK_OK)
        fail_msg("%s", lk_error_detail());
    int value = *(unsigned char *)lk_state_find(lk_checkpoint_model(checkpoint), samples[0].name)->data;
    assert_int_equal(value, strtol(lk_checkpoint_note(checkpoint, "step"), NULL, 10));
    lk_checkpoint_destroy(checkpoint);
    return value;
}

static int begin(void **ctx)
{
    temp_folder_set_up(ctx);
    lk_checkpoint *checkpoint = make(1);
    assert_int_equal(lk_checkpoint_save(checkpoint, temp_path("step-000000001")), LK_OK);
    lk_checkpoint_destroy(checkpoint);
    return 0;
}

/* Restores the folder as it was before the trial. */
static void again(void)
{
    temp_folder_tear_down(NULL);
    begin(NULL);
}

/* A save that succeeds in spite of a fault failed to remove the old checkpoint; the next start removes it. */
static void check_left(lk_status status)
{
    if (status != LK_OK)
        assert_int_equal(entries(), 1);
    assert_int_equal(lk__checkpoint_sweep(temp_folder), LK_OK);
}

static void check_save_over(const trial *t, size_t nth, lk_status wanted)
{
    assert_int_equal(run(*t, nth), 0);
    if (outcome->status != LK_OK && outcome->status != wanted)
        fail_msg("%s %zu: status %d, %s", t->fault, nth, (int)outcome->status, outcome->detail);
    assert_int_equal(value_of("step-000000001"), outcome->status == LK_OK ? 2 : 1);
    check_left(outcome->status);
    assert_int_equal(entries(), 1);
}

static void check_save_new(const trial *t, size_t nth, lk_status wanted)
{
    assert_int_equal(run(*t, nth), 0);
    assert_int_equal(outcome->status, wanted);
    assert_contains(outcome->detail, "cannot save the checkpoint ");
    assert_contains(outcome->detail, temp_path("step-000000002"));
    assert_int_equal(value_of("step-000000001"), 1);
    assert_int_equal(entries(), 1);
}

/* Every write of a save that replaces a checkpoint fails. Returns the number of writes. */
static size_t fail_writes_over(void)
{
    const trial over = {"write", "save", save_over, write_moment};
    size_t count = count_moments(&over);
    for (size_t nth = 1; nth <= count; nth++) {
        again();
        check_save_over(&over, nth, LK_STATUS_IO);
        if (outcome->status != LK_OK)
            assert_contains(outcome->detail, "No space left on device");
        assert_int_equal(outcome->unused, FAR + 1);
    }
    again();
    return count;
}

static void test_writes(void **ctx)
{
    const trial fresh = {"write", "save", save_new, write_moment};
    size_t exchanged = fail_writes_over();
    /* Three files, their folder, and the folder around it. */
    assert_true(exchanged > 20);
    cannot_exchange = true;
    size_t in_turn = fail_writes_over();
    cannot_exchange = false;
    assert_int_equal(in_turn, exchanged + 2);
    size_t count = count_moments(&fresh);
    again();
    for (size_t nth = 1; nth <= count; nth++)
        check_save_new(&fresh, nth, LK_STATUS_IO);
}

static void test_allocations(void **ctx)
{
    const trial over = {"alloc", "save", save_over, alloc_moment}, fresh = {"alloc", "save", save_new, alloc_moment};
    size_t count = count_moments(&over);
    assert_true(count > 10);
    for (size_t nth = 1; nth <= count; nth++) {
        again();
        check_save_over(&over, nth, LK_STATUS_MEMORY);
        assert_int_equal(outcome->status, LK_STATUS_MEMORY);
    }
    for (size_t nth = 1; nth <= count; nth++)
        check_save_new(&fresh, nth, LK_STATUS_MEMORY);
    const trial load = {"alloc", "load", load_one, alloc_moment};
    count = count_moments(&load);
    assert_true(count > 10);
    for (size_t nth = 1; nth <= count; nth++) {
        assert_int_equal(run(load, nth), 0);
        assert_int_equal(outcome->status, LK_STATUS_MEMORY);
    }
}

/* A bit of each piece of each file is written wrong. */
static void test_flips(void **ctx)
{
    const trial over = {"flip", "save", save_over, NULL};
    size_t struck = 0;
    for (size_t nth = 1; nth < 100; nth++) {
        again();
        check_save_over(&over, nth, LK_STATUS_IO);
        if (outcome->status == LK_OK)
            break;
        assert_contains(outcome->detail, "reads back otherwise");
        struck++;
    }
    /* Two headers, ten tensors, the notes. */
    assert_int_equal(struck, 13);
}

/* The calls that restore a checkpoint that was moved out of the way. */
static void mend(void)
{
    assert_int_equal(lk__checkpoint_mend(temp_folder), LK_OK);
}

static void sweep(void)
{
    assert_int_equal(lk__checkpoint_sweep(temp_folder), LK_OK);
}

static void load_it(void)
{
    assert_int_equal(load_one(), LK_OK);
}

static void save_it(void)
{
    assert_int_equal(save_over(), LK_OK);
}

/* Kills a save that replaces 1 by 2 at every write. Returns the number of kills after which there was no
 * checkpoint until `find` was called; NULL: none is called. */
static size_t kill_over(void (*find)(void))
{
    const trial over = {"kill", "save", save_over, NULL};
    size_t nth = 1, seen[3] = {0};
    uint64_t *steps = NULL;
    size_t count = 0;
    for (int ended = 128 + SIGKILL; ended > 128; nth++) {
        again();
        ended = run(over, nth);
        seen[0] += value_of("step-000000001") == 0;
        if (find)
            find();
        assert_int_equal(lk__checkpoint_list(temp_folder, &steps, &count), LK_OK);
        assert_int_equal(count, 1);
        lk__mem_free(steps);
        int value = value_of("step-000000001");
        assert_true(value == 1 || value == 2);
        seen[value]++;
        sweep();
        assert_int_equal(entries(), 1);
        assert_int_equal(value_of("step-000000001"), value);
    }
    assert_true(nth > 20 && (find == save_it || seen[1] > 15) && seen[2] > 1);
    return seen[0];
}

/* If names cannot be exchanged, there is one moment without any checkpoint of that name. */
static void test_kills_over(void **ctx)
{
    assert_int_equal(kill_over(NULL), 0);
    cannot_exchange = true;
    assert_int_equal(kill_over(mend), 1);
    assert_int_equal(kill_over(sweep), 1);
    assert_int_equal(kill_over(load_it), 1);
    assert_int_equal(kill_over(save_it), 1);
    cannot_exchange = false;
}

static void test_kills_new(void **ctx)
{
    const trial fresh = {"kill", "save", save_new, NULL};
    int ended = 128 + SIGKILL;
    size_t nth;
    for (nth = 1; ended > 128; nth++) {
        again();
        ended = run(fresh, nth);
        int value = value_of("step-000000002");
        assert_true(value == 0 || value == 2);
        assert_int_equal(lk__checkpoint_sweep(temp_folder), LK_OK);
        assert_int_equal(entries(), value ? 2 : 1);
        assert_int_equal(value_of("step-000000001"), 1);
    }
    assert_true(nth > 15);
}

static void move(const char *from, const char *to)
{
    char path[4096];
    snprintf(path, sizeof path, "%s", temp_path(from));
    assert_int_equal(rename(path, temp_path(to)), 0);
}

/* Another process repairs the folder whenever the name is free, while a save replaces 1 by 2. */
static lk_status save_while_mending(void)
{
    mends_between = 3;
    return save_over();
}

/* A name that is too long to be part of the name of the old checkpoint. */
static void save_long_name(void)
{
    char name[256] = "";
    memset(name, 'n', 250);
    for (int value = 1; value <= 2; value++) {
        lk_checkpoint *checkpoint = make(value);
        assert_int_equal(lk_checkpoint_save(checkpoint, temp_path(name)), LK_OK);
        lk_checkpoint_destroy(checkpoint);
        assert_int_equal(value_of(name), value);
    }
    assert_int_equal(entries(), 2);
    temp_folder_remove(temp_path(name));
}

/* Repairing restores no incomplete checkpoint, replaces no existing one, and does not disturb a save. */
static void test_mending(void **ctx)
{
    const char *was = ".lk-was-step-000000001.tmp";
    assert_int_equal(save_new(), LK_OK);
    move("step-000000001", was);
    move("step-000000002", "step-000000001");
    mend();
    assert_int_equal(value_of("step-000000001"), 2);
    assert_int_equal(value_of(was), 1);
    assert_int_equal(lk__checkpoint_remove(temp_folder, 1), LK_OK);
    assert_int_equal(unlink(temp_path(".lk-was-step-000000001.tmp/model.safetensors")), 0);
    mend();
    assert_int_equal(value_of("step-000000001"), 0);
    assert_int_equal(entries(), 1);
    again();
    cannot_exchange = true;
    assert_int_equal(save_while_mending(), LK_OK);
    save_long_name();
    cannot_exchange = false;
    assert_int_equal(mends_between, 0);
    assert_int_equal(value_of("step-000000001"), 2);
    assert_int_equal(entries(), 1);
}

/* A removal that fails leaves the checkpoint whole, or nothing of that name. */
static void test_other_work(void **ctx)
{
    const trial removing = {"write", "save", remove_one, write_moment};
    size_t count = count_moments(&removing);
    assert_int_equal(count, 5);
    for (size_t nth = 1; nth <= count; nth++) {
        again();
        assert_int_equal(run(removing, nth), 0);
        assert_int_equal(outcome->status, LK_STATUS_IO);
        assert_int_equal(value_of("step-000000001"), nth == 1);
        assert_int_equal(lk__checkpoint_sweep(temp_folder), LK_OK);
        assert_int_equal(entries(), nth == 1);
    }
    again();
    const trial linking = {"write", "save", set_best, write_moment};
    count = count_moments(&linking);
    assert_int_equal(count, 3);
    for (size_t nth = 1; nth <= count; nth++) {
        again();
        assert_int_equal(run(linking, nth), 0);
        assert_int_equal(outcome->status, LK_STATUS_IO);
        assert_int_equal(entries(), nth < 3 ? 1 : 2);
    }
}

static int share_report(void **ctx)
{
    outcome = process_share(sizeof *outcome);
    return 0;
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, begin, temp_folder_tear_down)
TEST_MAIN(share_report, NULL, CASE(test_writes), CASE(test_allocations), CASE(test_flips), CASE(test_kills_over),
          CASE(test_kills_new), CASE(test_mending), CASE(test_other_work))
