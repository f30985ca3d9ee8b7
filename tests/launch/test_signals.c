/* test_signals.c - signals to a launcher whose ranks save when they get one: which signals reach the
 * ranks, how long the launcher waits for the ranks, what a second signal does. */
#include "node_test.h"

#include <sys/prctl.h>

#include "launch/run.h"

/* Longer than any test: only a second signal ends the ranks. */
static const double LONG_GRACE = 10 * WAIT_SECONDS;

static void append(const char *name, const char *text)
{
    const char *path = temp_path(name);
    FILE *file = fopen(path, "a");
    if (file == NULL)
        _exit(90);
    fprintf(file, "%s\n", text);
    fclose(file);
}

static void note(void *arg, const char *text)
{
    append(arg, text);
}

static void note_failed(void *arg, const lk_launch_verdict *verdict, int restart)
{
    append(arg, restart == 0 ? "again" : "too often");
}

typedef struct plan {
    int node, nnodes, nproc, max_restarts;
    double grace;
    const char *script;
} plan;

static void be_launcher(int number, void *arg)
{
    const plan p = *(const plan *)arg;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    char *argv[] = {"sh", "-c", (char *)(uintptr_t)p.script, NULL};
    char name[16], method[TEMP_FOLDER_BYTES + 32], last[512];
    snprintf(name, sizeof name, "notes%d", p.node);
    snprintf(method, sizeof method, "file://%s/meeting", temp_folder);
    lk_launch_opts opts = {.nproc = p.nproc,
                           .nnodes = p.nnodes > 0 ? p.nnodes : 1,
                           .node_rank = p.node,
                           .init_method = p.nnodes > 1 ? method : NULL,
                           .master_addr = p.nnodes > 1 ? "127.0.0.1" : NULL,
                           .max_restarts = p.max_restarts,
                           .timeout = 4 * WAIT_SECONDS,
                           .grace = p.grace,
                           .argv = argv,
                           .notice = note,
                           .failed = note_failed,
                           .arg = name};
    lk_launch_verdict verdict;
    if (lk__launch_run(&opts, &verdict) != LK_OK) {
        append(name, lk_error_detail());
        _exit(91);
    }
    lk__launch_verdict_text(&verdict, last, sizeof last);
    append(name, last);
    _exit(lk__launch_verdict_exit(&verdict));
}

/* Starts a launcher in a process of its own, which exits with the verdict's status. Its notices are
 * in the file notes0, notes1 ..., numbered by node. */
static pid_t start_run(plan p, const char *script)
{
    p.script = script;
    return process_start(be_launcher, 0, &p);
}

static void assert_exit(pid_t launcher, int wanted)
{
    int status = 0;
    WAIT_UNTIL(waitpid(launcher, &status, WNOHANG) == launcher);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), wanted);
}

static int count_in_notes(const char *name, const char *part)
{
    char text[4096];
    int count = 0;
    read_text(name, text, sizeof text);
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++)
        count++;
    return count;
}

/* At a signal these ranks wait for the file $T/go, save, and exit with 7. */
static const char SAVERS[] = "trap 'echo > $T/told$RANK; while ! [ -s $T/go ]; do sleep .02; done;"
                             "echo > $T/saved$RANK; exit 7' TERM INT; echo > $T/ready$RANK;"
                             "while :; do sleep .02; done";
/* These ranks ignore signals. */
static const char DEAF[] = "trap '' TERM INT; echo > $T/ready$RANK; while :; do sleep .02; done";
/* At SIGUSR1 these ranks exit with 0 if their child did not get the signal. */
static const char USERS[] =
    "if [ $TORCHELASTIC_RESTART_COUNT -lt ${FAILING:-0} ]; then exit 3; fi;"
    "trap 'kill $c; wait $c; [ $? = 143 ]; exit $?' USR1; sleep 1000 & c=$!; echo > $T/ready$RANK;"
    "while :; do sleep .02; done";

static void test_user_signal_reaches_the_ranks_alone(void **state)
{
    pid_t launcher = start_run((plan){.nproc = 2}, USERS);
    WAIT_UNTIL(file_has_line("ready0") && file_has_line("ready1"));
    kill(launcher, SIGUSR1);
    assert_exit(launcher, 0);
    assert_int_equal(count_in_folder(), 0);
}

static void test_user_signal_in_a_later_round(void **state)
{
    setenv("FAILING", "2", 1);
    pid_t launcher = start_run((plan){.nproc = 1, .max_restarts = 2}, USERS);
    WAIT_UNTIL(file_has_line("ready0"));
    kill(launcher, SIGUSR1);
    assert_exit(launcher, 0);
    unsetenv("FAILING");
    assert_int_equal(count_in_notes("notes0", "again"), 1);
}

/* The launcher ignores the signal, so it does not send it to the ranks, which would die. */
static void test_user_signal_ignored(void **state)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    sigaction(SIGUSR1, &ignore, &before);
    pid_t launcher = start_run((plan){.nproc = 1}, "echo > $T/ready0; exec sleep 1000");
    sigaction(SIGUSR1, &before, NULL);
    WAIT_UNTIL(file_has_line("ready0"));
    kill(launcher, SIGUSR1);
    kill(launcher, SIGTERM);
    assert_exit(launcher, 128 + SIGTERM);
}

static void test_user_signal_before_there_are_ranks(void **state)
{
    pid_t launcher = start_run((plan){.nproc = 1, .nnodes = 2}, "exit 0");
    WAIT_UNTIL(file_has_line("meeting"));
    kill(launcher, SIGUSR1);
    pid_t other = start_run((plan){.node = 1, .nproc = 1, .nnodes = 2}, "exit 0");
    assert_exit(launcher, 0);
    assert_exit(other, 0);
}

static volatile sig_atomic_t caught;

static void on_user(int number)
{
    caught = number;
}

/* A program that calls lk_spawn keeps its own handler for the signal. */
static void test_user_signal_stays_the_callers(void **state)
{
    struct sigaction own = {.sa_handler = on_user}, before;
    sigaction(SIGUSR1, &own, &before);
    char *argv[] = {"sleep", "1000", NULL};
    lk_launch_node_opts opts = node_opts(1, argv);
    lk_launch_node *node;
    lk_launch_node_state now = LK_LAUNCH_NODE_STATE_DONE;
    assert_int_equal(lk__launch_node_start(&opts, &node), LK_OK);
    kill(getpid(), SIGUSR1);
    assert_int_equal(lk__launch_node_wait(node, -1, 0.01, &now), LK_OK);
    lk__launch_node_destroy(node);
    sigaction(SIGUSR1, &before, NULL);
    assert_int_equal(now, LK_LAUNCH_NODE_STATE_RUNNING);
    assert_int_equal(caught, SIGUSR1);
}

static int check_plain(int rank, void *arg)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1};
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    for (int i = 0; i < 3; i++) {
        struct sigaction action;
        sigaction(numbers[i], NULL, &action);
        if (action.sa_handler != SIG_DFL || sigismember(&mask, numbers[i]))
            return 1 + i;
    }
    return 0;
}

/* Ranks have default signal handlers, whatever the caller and the launcher have set. */
static void test_functions_have_plain_signals(void **state)
{
    struct sigaction own = {.sa_handler = on_user}, before;
    sigset_t blocked, mask;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigprocmask(SIG_BLOCK, &blocked, &mask);
    sigaction(SIGUSR1, &own, &before);
    lk_launch_node_opts opts = node_opts(2, NULL);
    opts.fn = check_plain;
    opts.pass_user = true;
    outcome end = run_node(&opts);
    sigaction(SIGUSR1, &before, NULL);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    assert_int_equal(end.status, LK_OK);
    assert_int_equal(end.state, LK_LAUNCH_NODE_STATE_DONE);
}

/* The launcher waits longer than for programs without a grace period; the exit status of the ranks
 * does not count. */
static void test_ranks_that_save_are_awaited(void **state)
{
    pid_t launcher = start_run((plan){.nproc = 2, .grace = LONG_GRACE}, SAVERS);
    WAIT_UNTIL(file_has_line("ready0") && file_has_line("ready1"));
    kill(launcher, SIGTERM);
    WAIT_UNTIL(file_has_line("told0") && file_has_line("told1"));
    poll(NULL, 0, 5500);
    append("go", "on");
    assert_exit(launcher, 128 + SIGTERM);
    assert_true(file_has_line("saved0") && file_has_line("saved1"));
    assert_int_equal(
        count_in_notes("notes0", "interrupted by SIGTERM: the ranks finish this step first; a second signal ends them"),
        1);
    assert_int_equal(count_in_notes("notes0", "interrupted by SIGTERM\n"), 1);
    assert_int_equal(count_in_folder(), 0);
}

/* timeout(1) signals its child and then the group; two signals at one moment count as one. */
static void test_signals_of_one_moment_are_one(void **state)
{
    int status = 0;
    pid_t launcher = start_run((plan){.nproc = 1, .grace = LONG_GRACE}, SAVERS);
    WAIT_UNTIL(file_has_line("ready0"));
    kill(launcher, SIGSTOP);
    assert_int_equal(waitpid(launcher, &status, WUNTRACED), launcher);
    kill(launcher, SIGTERM);
    kill(launcher, SIGINT);
    kill(launcher, SIGCONT);
    WAIT_UNTIL(file_has_line("told0"));
    append("go", "on");
    WAIT_UNTIL(waitpid(launcher, &status, WNOHANG) == launcher);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) > 128);
    assert_true(file_has_line("saved0"));
}

/* Sends the signal; returns whether all launchers have ended, each with the status `wanted`. */
static bool signalled_away(pid_t target, int signal, pid_t *launchers, int count, int wanted)
{
    int status = 0, left = 0;
    kill(target, signal);
    poll(NULL, 0, 250); /* two signals at one moment would count as one */
    for (int i = 0; i < count; i++) {
        if (launchers[i] > 0 && waitpid(launchers[i], &status, WNOHANG) == launchers[i]) {
            assert_true(WIFEXITED(status));
            assert_int_equal(WEXITSTATUS(status), wanted);
            launchers[i] = 0;
        }
        left += launchers[i] > 0;
    }
    return left == 0;
}

static void test_second_signal_ends_at_once(void **state)
{
    pid_t launcher = start_run((plan){.nproc = 2, .grace = LONG_GRACE}, DEAF);
    WAIT_UNTIL(file_has_line("ready0") && file_has_line("ready1") && count_in_folder() >= 2);
    pid_t left = launcher;
    WAIT_UNTIL(signalled_away(launcher, SIGINT, &left, 1, 128 + SIGINT));
    assert_int_equal(count_in_folder(), 0);
}

/* Signals one of three nodes twice; node 0 passes the signal on to the others. */
static void second_signal_at(int node)
{
    pid_t launchers[3];
    char name[16];
    for (int i = 0; i < 3; i++)
        launchers[i] = start_run((plan){.node = i, .nnodes = 3, .nproc = 1, .grace = LONG_GRACE}, DEAF);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "ready%d", i);
        WAIT_UNTIL(file_has_line(name));
    }
    pid_t target = launchers[node];
    WAIT_UNTIL(signalled_away(target, SIGTERM, launchers, 3, 128 + SIGTERM));
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "notes%d", i);
        assert_int_equal(count_in_notes(name, "interrupted by SIGTERM\n"), 1);
    }
    assert_int_equal(count_in_folder(), 0);
}

static void test_second_signal_at_a_node(void **state)
{
    second_signal_at(0);
    temp_folder_tear_down(state);
    set_up(state);
    second_signal_at(2);
}

/* Batch systems signal every node: the first signal to each node does not end the ranks at once. */
static void test_each_node_is_told_once(void **state)
{
    pid_t launchers[2];
    for (int i = 0; i < 2; i++)
        launchers[i] = start_run((plan){.node = i, .nnodes = 2, .nproc = 1, .grace = LONG_GRACE}, SAVERS);
    WAIT_UNTIL(file_has_line("ready0") && file_has_line("ready1"));
    kill(launchers[0], SIGTERM);
    WAIT_UNTIL(file_has_line("told0") && file_has_line("told1"));
    kill(launchers[1], SIGTERM);
    /* Node 1 has got the signal and still waits. */
    WAIT_UNTIL(count_in_notes("notes1", "interrupted by SIGTERM: ") == 1);
    append("go", "on");
    assert_exit(launchers[0], 128 + SIGTERM);
    assert_exit(launchers[1], 128 + SIGTERM);
    assert_true(file_has_line("saved0") && file_has_line("saved1"));
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, temp_folder_tear_down)
TEST_MAIN(NULL, NULL, CASE(test_user_signal_reaches_the_ranks_alone), CASE(test_user_signal_in_a_later_round),
          CASE(test_user_signal_ignored), CASE(test_user_signal_before_there_are_ranks),
          CASE(test_user_signal_stays_the_callers), CASE(test_functions_have_plain_signals),
          CASE(test_ranks_that_save_are_awaited), CASE(test_signals_of_one_moment_are_one),
          CASE(test_second_signal_ends_at_once), CASE(test_second_signal_at_a_node), CASE(test_each_node_is_told_once))
