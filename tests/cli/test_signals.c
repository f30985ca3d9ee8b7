/* test_signals.c - signals become signal levels: stop, or save. */
#include <poll.h>

#include "cli/job/signals.h"
#include "processes.h"
#include "train/train.h"

static atomic_int signal_level;

static int set_up(void **state)
{
    atomic_store(&signal_level, LK_SIGNAL_LEVEL_NONE);
    return 0;
}

static int tear_down(void **state)
{
    lk__job_signals_end();
    return 0;
}

static void test_stop_and_which(void **state)
{
    lk__job_signals_watch(&signal_level, false);
    raise(SIGINT);
    assert_int_equal(atomic_load(&signal_level), LK_SIGNAL_LEVEL_STOP + SIGINT);
    /* Two signals at almost the same time are one; the first one is the reason. */
    raise(SIGTERM);
    assert_int_equal(atomic_load(&signal_level), LK_SIGNAL_LEVEL_STOP + SIGINT);
    raise(SIGUSR1);
    assert_int_equal(atomic_load(&signal_level), LK_SIGNAL_LEVEL_STOP + SIGINT);
}

static void test_save(void **state)
{
    lk__job_signals_watch(&signal_level, false);
    raise(SIGUSR1);
    assert_int_equal(atomic_load(&signal_level), LK_SIGNAL_LEVEL_SAVE);
    raise(SIGINT);
    assert_int_equal(atomic_load(&signal_level), LK_SIGNAL_LEVEL_STOP + SIGINT);
}

static void test_a_new_watch_begins_anew(void **state)
{
    lk__job_signals_watch(&signal_level, false);
    raise(SIGTERM);
    lk__job_signals_end();
    atomic_store(&signal_level, LK_SIGNAL_LEVEL_NONE);
    lk__job_signals_watch(&signal_level, false);
    raise(SIGHUP);
    assert_int_equal(atomic_load(&signal_level), LK_SIGNAL_LEVEL_STOP + SIGHUP);
}

static void test_too_early_to_save(void **state)
{
    lk__job_signals_prepare(false);
    raise(SIGUSR1);
    lk__job_signals_watch(&signal_level, false);
    assert_int_equal(atomic_load(&signal_level), LK_SIGNAL_LEVEL_NONE);
    raise(SIGUSR1);
    assert_int_equal(atomic_load(&signal_level), LK_SIGNAL_LEVEL_SAVE);
}

/* With --requeue SIGUSR1 stops the run, however early and however often it comes. */
static void test_user_signal_stops(void **state)
{
    lk__job_signals_prepare(true);
    raise(SIGUSR1);
    assert_int_equal(atomic_load(&signal_level), LK_SIGNAL_LEVEL_NONE);
    lk__job_signals_watch(&signal_level, false);
    assert_int_equal(atomic_load(&signal_level), LK_SIGNAL_LEVEL_STOP + SIGUSR1);
    atomic_store(&signal_level, LK_SIGNAL_LEVEL_NONE);
    raise(SIGUSR1);
    nanosleep(&(struct timespec){.tv_nsec = 300 * 1000 * 1000}, NULL);
    raise(SIGUSR1);
    assert_int_equal(atomic_load(&signal_level), LK_SIGNAL_LEVEL_STOP + SIGUSR1);
    assert_false(lk__job_signals_stop());
    raise(SIGTERM);
    assert_int_equal(atomic_load(&signal_level), LK_SIGNAL_LEVEL_STOP + SIGTERM);
    lk__job_signals_end();
    atomic_store(&signal_level, LK_SIGNAL_LEVEL_NONE);
    lk__job_signals_prepare(false);
    lk__job_signals_watch(&signal_level, false);
    raise(SIGUSR1);
    assert_int_equal(atomic_load(&signal_level), LK_SIGNAL_LEVEL_SAVE);
}

static void own(int number)
{
}

static void test_actions_are_given_back(void **state)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1};
    for (int i = 0; i < 3; i++) {
        struct sigaction mine = {.sa_handler = i == 2 ? SIG_IGN : own}, before, now;
        sigaction(numbers[i], &mine, &before);
        lk__job_signals_prepare(false);
        lk__job_signals_watch(&signal_level, false);
        sigaction(numbers[i], NULL, &now);
        /* An ignored signal stays ignored. */
        assert_true((now.sa_handler == SIG_IGN) == (i == 2));
        assert_true(now.sa_handler != own);
        lk__job_signals_end();
        lk__job_signals_end();
        sigaction(numbers[i], &before, &now);
        assert_true(now.sa_handler == mine.sa_handler);
    }
    raise(SIGWINCH);
    assert_int_equal(atomic_load(&signal_level), LK_SIGNAL_LEVEL_NONE);
}

static void *count_up(void *arg)
{
    volatile unsigned *counter = arg;
    for (;;)
        ++*counter;
    return NULL;
}

/* A child with a second thread gets two signals. */
static void signal_twice(int number, void *arg)
{
    static unsigned counter;
    const int *signals = arg;
    pthread_t thread;
    lk__job_signals_watch(&signal_level, false);
    CHECK(pthread_create(&thread, NULL, count_up, &counter) == 0);
    kill(getpid(), signals[0]);
    while (atomic_load(&signal_level) < LK_SIGNAL_LEVEL_STOP)
        poll(NULL, 0, 1);
    /* The second signal comes too late to count as the same one. */
    poll(NULL, 0, 300);
    kill(getpid(), signals[1]);
    poll(NULL, 0, 20000);
    _exit(2);
}

static void test_the_second_ends(void **state)
{
    static int signals[][2] = {{SIGINT, SIGINT}, {SIGTERM, SIGTERM}, {SIGINT, SIGTERM}};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        assert_int_equal(process_wait(process_start(signal_twice, 0, signals[i])), 128 + signals[i][1]);
}

int main(void)
{
    /* A background job of a shell ignores SIGINT. */
    signal(SIGINT, SIG_DFL);
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    return RUN_TESTS(NULL, NULL, CASE(test_stop_and_which), CASE(test_save), CASE(test_too_early_to_save),
                     CASE(test_user_signal_stops), CASE(test_a_new_watch_begins_anew), CASE(test_the_second_ends),
                     CASE(test_actions_are_given_back));
}
