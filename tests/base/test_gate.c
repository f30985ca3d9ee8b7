/* test_gate.c - one call at a time on an object, and none in a process that inherited it. */
#include <sys/wait.h>
#include <unistd.h>

#include "base/gate.h"
#include "check.h"

static void test_one_call_at_a_time(void **state)
{
    lk_gate gate;
    lk__gate_init(&gate, "thing");
    for (int i = 0; i < 2; i++) {
        assert_ok(lk__gate_enter(&gate));
        assert_fails(lk__gate_enter(&gate), LK_STATUS_USAGE, "thing");
        lk__gate_leave(&gate);
    }
    assert_false(lk__gate_inherited(&gate));
}

static void test_inherited(void **state)
{
    lk_gate gate;
    int status = -1;
    lk__gate_init(&gate, "thing");
    pid_t pid = fork();
    if (pid == 0)
        _exit(lk__gate_inherited(&gate) && lk__gate_enter(&gate) == LK_STATUS_USAGE && !gate.busy ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_ok(lk__gate_enter(&gate));
    lk__gate_leave(&gate);
}

TEST_MAIN(NULL, NULL, TEST(test_one_call_at_a_time), TEST(test_inherited))
