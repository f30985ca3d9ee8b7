/* test_spawn.c - lk_spawn: functions as ranks, their environment, and how they end. */
#include "node_test.h"

#include <pthread.h>
#include <sys/stat.h>

#include <lockstep/group.h>

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

/* Joins a job in which `missing` does not join, and ends the process: status 3 if the reason was told, else 4. Only
 * rank 0 is sure to get it, unless it is missing itself: others may come after rank 0 has gone, too. They wait for the
 * launcher. */
static _Noreturn void join_without(int rank, int missing, const lk_group_opts *opts, const char *text)
{
    lk_group *group;
    lk_status status = lk_group_join(opts, &group);
    bool right = status == LK_STATUS_PEER && strcmp(lk_error_detail(), text) == 0;
    while (status == LK_STATUS_PEER && rank > 0 && missing > 0)
        pause();
    if (!right)
        fprintf(stderr, "rank %d without rank %d: %s\n", rank, missing, lk_error_detail());
    _exit(right ? 3 : 4);
}

/* Rank *arg ends at once, with status 0. */
static int joins_without(int rank, void *arg)
{
    int missing = *(const int *)arg;
    char text[64];
    if (rank == missing)
        return 0;
    snprintf(text, sizeof text, "rank %d of 3 exited with status 0 before it joined", missing);
    join_without(rank, missing, &(lk_group_opts){.timeout = 100 * WAIT_SECONDS}, text);
}

static void test_gone_before_joining(void **state)
{
    for (int missing = 0; missing < 3; missing++)
        assert_fails(lk_spawn(3, joins_without, &missing), LK_STATUS_PEER, "exited with status 3");
}

/* Each of three processes has two ranks. */
static void *join_as_thread(void *arg)
{
    int rank = *(const int *)arg;
    lk_group_opts opts = {.threads = 2, .thread = rank % 2, .timeout = 100 * WAIT_SECONDS};
    join_without(rank, 2, &opts, "rank 2 of 6 exited with status 0 before it joined");
}

static int threads_join_without(int rank, void *arg)
{
    int ranks[] = {2 * rank, 2 * rank + 1};
    pthread_t thread;
    if (rank == 1)
        return 0;
    if (pthread_create(&thread, NULL, join_as_thread, &ranks[1]) == 0)
        join_as_thread(&ranks[0]);
    return 5;
}

static void test_process_of_threads_gone(void **state)
{
    assert_fails(lk_spawn(3, threads_join_without, NULL), LK_STATUS_PEER, "exited with status 3");
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, temp_folder_tear_down)
TEST_MAIN(NULL, NULL, CASE(test_good), CASE(test_crash), CASE(test_exit_status), CASE(test_bad_arguments),
          CASE(test_caller_ended), CASE(test_nested), CASE(test_gone_before_joining),
          CASE(test_process_of_threads_gone))
