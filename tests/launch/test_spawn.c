/* test_spawn.c - lk_spawn: functions as ranks, their environment, and how they end. */
#include "node_test.h"

#include <sys/stat.h>

static int good(int rank, void *arg)
{
    const char *text = getenv("RANK"), *world = getenv("WORLD_SIZE");
    printf("%s %d\n", (const char *)arg, rank);
    if (text == NULL || strtol(text, NULL, 10) != rank || world == NULL || strcmp(world, "3") != 0)
        return 1;
    return getenv("MASTER_ADDR") != NULL && getenv("MASTER_PORT") != NULL && getenv("LOCKSTEP_TOKEN") != NULL ? 0 : 2;
}

static int bad(int rank, void *arg)
{
    if (rank == 2) {
        signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would exit instead */
        raise(SIGSEGV);
    }
    poll(NULL, 0, *(int *)arg);
    return 0;
}

static int status_7(int rank, void *arg)
{
    return rank == 0 ? 7 : 0;
}

/* Writes its process id and sleeps, as does its child in a session of its own. */
static int sleeper(int rank, void *arg)
{
    char name[16];
    FILE *file;
    if (fork() == 0) {
        setsid();
        rank += 100;
    }
    snprintf(name, sizeof name, "pid%d", rank);
    const char *path = temp_path(name);
    file = fopen(path, "w");
    fprintf(file, "%ld\n", (long)getpid());
    fclose(file);
    while (pause() < 0)
        ;
    return 0;
}

static void test_good(void **state)
{
    capture c = capture_begin();
    printf("before\n"); /* buffered: ranks must not write it again */
    lk_status status = lk_spawn(3, good, "rank");
    capture_end(&c);
    assert_int_equal(status, LK_OK);
    assert_contains(out_text, "rank 0\n");
    assert_contains(out_text, "rank 1\n");
    assert_contains(out_text, "rank 2\n");
    assert_int_equal(strlen(out_text), 3 * 7 + 7);
}

static void test_crash(void **state)
{
    int milliseconds = 1000 * WAIT_SECONDS;
    double begin = lk__clock();
    assert_int_equal(lk_spawn(3, bad, &milliseconds), LK_STATUS_PEER);
    assert_true(lk__clock() - begin < WAIT_SECONDS);
    assert_detail("rank 2 (pid ");
    assert_detail(") was killed by SIGSEGV (segmentation fault)");
}

static void test_exit_status(void **state)
{
    assert_fails(lk_spawn(2, status_7, NULL), LK_STATUS_PEER, "rank 0 (pid ");
    assert_detail("exited with status 7");
}

static void test_bad_arguments(void **state)
{
    assert_int_equal(lk_spawn(0, good, NULL), LK_STATUS_USAGE);
    assert_int_equal(lk_spawn(2, NULL, NULL), LK_STATUS_USAGE);
}

static bool all_written(void)
{
    return file_has_line("pid0") && file_has_line("pid1") && file_has_line("pid100") && file_has_line("pid101");
}

static bool all_gone(void)
{
    return is_gone(pid_in_file("pid0")) && is_gone(pid_in_file("pid1")) && is_gone(pid_in_file("pid100")) &&
           is_gone(pid_in_file("pid101"));
}

static void be_caller(int number, void *arg)
{
    signal(SIGINT, SIG_DFL);
    _exit((int)lk_spawn(2, sleeper, NULL));
}

/* SIGKILL cannot be handled; SIGINT ends the caller by its default. */
static void test_caller_ended(void **state)
{
    static const int signals[] = {SIGKILL, SIGINT};
    for (size_t i = 0; i < 2; i++) {
        pid_t caller = process_start(be_caller, 0, NULL);
        WAIT_UNTIL(all_written());
        kill(caller, signals[i]);
        assert_int_equal(process_wait(caller), 128 + signals[i]);
        WAIT_UNTIL(all_gone());
        temp_folder_remove(temp_folder);
        assert_int_equal(mkdir(temp_folder, 0700), 0);
    }
}

static int nested(int rank, void *arg)
{
    return lk_spawn(2, status_7, arg) == LK_STATUS_PEER ? 0 : 1;
}

static void test_nested(void **state)
{
    assert_int_equal(lk_spawn(2, nested, NULL), LK_OK);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, temp_folder_tear_down)
TEST_MAIN(NULL, NULL, CASE(test_good), CASE(test_crash), CASE(test_exit_status), CASE(test_bad_arguments),
          CASE(test_caller_ended), CASE(test_nested))
