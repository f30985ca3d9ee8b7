/* test_process.c - a process as /proc shows it. */
#define _GNU_SOURCE /* prctl */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"
#include "check.h"

/* The name of a process may contain what separates the fields. */
static void test_this_process(void **state)
{
    lk_process self, same;
    prctl(PR_SET_NAME, "a) R 1 (b");
    assert_true(lk__process_read(0, &self));
    assert_true(lk__process_read(getpid(), &same));
    assert_int_equal(same.parent, getppid());
    assert_int_equal(same.group, getpgrp());
    assert_int_equal(self.parent, same.parent);
    assert_true(self.birth > 0 && self.birth == same.birth);
    assert_int_equal(same.state, 'R');
    assert_false(same.marked);
}

static void test_child(void **state)
{
    lk_process child;
    pid_t pid = fork();
    if (pid == 0) {
        raise(SIGSTOP);
        _exit(3);
    }
    do
        assert_true(lk__process_read(pid, &child));
    while (!lk__process_stopped(&child));
    assert_int_equal(child.parent, getpid());
    kill(pid, SIGCONT);
    int status = lk__process_await(pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    assert_false(lk__process_read(pid, &child));
}

TEST_MAIN(NULL, NULL, TEST(test_this_process), TEST(test_child))
