/* test_node.c - a node starts, watches and ends ranks: the cause of every kind of failure, and no
 * process is left. */
#include "node_test.h"

#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>

static void test_all_exit_0(void **state)
{
    outcome end = run_shell(3, "exit 0");
    assert_int_equal(end.status, LK_OK);
    assert_int_equal(end.state, LK_LAUNCH_NODE_STATE_DONE);
    assert_int_equal(count_left(), 0);
}

static void assert_failed(const outcome *end, int rank, const char *text)
{
    char what[256];
    assert_int_equal(end->status, LK_OK);
    assert_int_equal(end->state, LK_LAUNCH_NODE_STATE_FAILED);
    assert_int_equal(end->cause.rank, rank);
    assert_true(end->cause.pid > 0);
    assert_true(end->cause.host[0] != '\0');
    lk__cause_text(&end->cause, what, sizeof what);
    assert_contains(what, text);
    assert_int_equal(count_left(), 0);
}

static void test_exit_3(void **state)
{
    outcome end = run_shell(3, "[ $RANK = 1 ] || exec sleep 1000; echo first >&2; echo second >&2; exit 3");
    assert_failed(&end, 1, "exited with status 3");
    assert_int_equal(lk__cause_exit(&end.cause), 3);
    assert_string_equal(end.cause.tail, "first\nsecond\n");
    assert_contains(err_text, "[1] first\n[1] second\n");
}

static void test_signals(void **state)
{
    outcome end = run_shell(2, "[ $RANK = 0 ] || exec sleep 1000; ulimit -c 0; kill -SEGV $$");
    assert_failed(&end, 0, "killed by SIGSEGV (segmentation fault)");
    assert_int_equal(lk__cause_exit(&end.cause), 128 + SIGSEGV);
    end = run_shell(2, "[ $RANK = 1 ] || exec sleep 1000; kill -KILL $$");
    assert_failed(&end, 1, "killed by SIGKILL");
}

/* Rank 0 exits because it lost rank 1; the crash of rank 1 is the cause. */
static void test_crash_beats_echo(void **state)
{
    outcome end =
        run_shell(2, "if [ $RANK = 0 ]; then mkfifo $T/lost.$$; mv $T/lost.$$ $T/lost; cat $T/lost; exit 1; fi;"
                     "while ! [ -p $T/lost ]; do :; done; ulimit -c 0; exec 3>$T/lost; kill -ABRT $$");
    assert_failed(&end, 1, "killed by SIGABRT");
}

static void test_rank_deaf_to_term_is_killed(void **state)
{
    outcome end = run_shell(2, "if [ $RANK = 0 ]; then trap '' TERM INT HUP; echo > $T/deaf;"
                               "while :; do sleep 1000; done; fi; while ! [ -s $T/deaf ]; do :; done; exit 9");
    assert_failed(&end, 1, "exited with status 9");
}

/* Children in another session, and their children, of ranks that succeed and of ranks that fail. */
static void test_grandchildren_are_ended(void **state)
{
    static const char script[] = "setsid nohup sh -c 'trap \"\" TERM HUP; sleep 1000 & echo $$ > $T/g$RANK; wait' "
                                 ">/dev/null 2>&1 & while ! [ -s $T/g$RANK ]; do :; done; [ $T/end != $T/x ] && exit ";
    char text[512];
    for (int status = 0; status < 2; status++) {
        snprintf(text, sizeof text, "%s%d", script, status);
        outcome end = run_shell(2, text);
        assert_int_equal(end.state, status == 0 ? LK_LAUNCH_NODE_STATE_DONE : LK_LAUNCH_NODE_STATE_FAILED);
        assert_true(is_gone(pid_in_file("g0")) && is_gone(pid_in_file("g1")));
        assert_int_equal(count_left(), 0);
    }
}

/* A child that keeps the rank's output open does not delay the end. */
static void test_output_held_open(void **state)
{
    outcome end = run_shell(1, "sleep 1000 & echo done");
    assert_int_equal(end.state, LK_LAUNCH_NODE_STATE_DONE);
    assert_string_equal(out_text, "[0] done\n");
    assert_int_equal(count_left(), 0);
}

/* Processes that fork while they are ended. */
static void test_forks_while_ending(void **state)
{
    outcome end = run_shell(2, "trap '' TERM; if [ $RANK = 0 ]; then "
                               "f() { sleep 0.01; f & }; f; setsid sh -c 'g() { sleep 0.01; g & }; g' & "
                               "echo > $T/on; wait; sleep 1000; fi;"
                               "while ! [ -s $T/on ]; do :; done; exit 4");
    assert_failed(&end, 1, "exited with status 4");
}

static void be_launcher(int number, void *script)
{
    /* No process is left if the test fails. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    char *argv[] = {"sh", "-c", script, NULL};
    lk_launch_node_opts opts = node_opts(2, argv);
    lk_launch_node *node;
    lk_launch_node_state now = LK_LAUNCH_NODE_STATE_RUNNING;
    lk_status status = lk__launch_node_start(&opts, &node);
    while (status == LK_OK && now == LK_LAUNCH_NODE_STATE_RUNNING)
        status = lk__launch_node_wait(node, -1, WAIT_SECONDS, &now);
    if (status != LK_OK)
        _exit(strstr(lk_error_detail(), "keeper") != NULL ? 50 : 51);
    int signal = lk__launch_node_signal(node);
    lk__launch_node_stop(node, SIGTERM, 0.2);
    lk__launch_node_destroy(node);
    _exit(now == LK_LAUNCH_NODE_STATE_INTERRUPTED ? 100 + signal : 52);
}

/* Starts a node in a process of its own. */
static pid_t start_launcher(const char *script)
{
    return process_start(be_launcher, 0, (char *)(uintptr_t)script);
}

/* Starts a node whose standard output nobody reads; *end is the other end of the pipe. */
static pid_t start_unread(const char *script, int *end)
{
    int ends[2], saved = dup(STDOUT_FILENO);
    fflush(NULL);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDOUT_FILENO);
    close(ends[1]);
    if (end)
        *end = ends[0];
    else
        close(ends[0]);
    pid_t launcher = start_launcher(script);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    return launcher;
}

/* Each rank has a grandchild in a session of its own; $PPID of a rank is the keeper. */
static const char FAMILY[] = "setsid sh -c 'trap \"\" TERM; sleep 1000 & wait; sleep 1000' & "
                             "echo $PPID > $T/keeper; echo $$ > $T/rank$RANK; wait";

/* Starts a node with the script and waits until both ranks and their children run. */
static pid_t start_family(const char *script)
{
    pid_t launcher = start_launcher(script);
    WAIT_UNTIL(file_has_line("rank0") && file_has_line("rank1") && count_left() >= 6);
    return launcher;
}

static void test_launcher_killed(void **state)
{
    pid_t launcher = start_family(FAMILY);
    pid_t keeper = pid_in_file("keeper");
    assert_false(is_gone(keeper));
    kill(launcher, SIGKILL);
    assert_int_equal(process_wait(launcher), 128 + SIGKILL);
    WAIT_UNTIL(count_left() == 0 && is_gone(keeper));
}

static void test_keeper_killed(void **state)
{
    pid_t launcher = start_family(FAMILY);
    kill(pid_in_file("keeper"), SIGKILL);
    assert_int_equal(process_wait(launcher), 50);
    WAIT_UNTIL(count_left() == 0);
}

static pid_t parent_of(pid_t pid)
{
    lk_process process;
    assert_true(lk__process_read(pid, &process) && process.parent > 1);
    return process.parent;
}

/* If two of launcher, guard and keeper are killed, the third ends all other processes. Children of
 * the ranks ignore signals and have their own session and no file of the rank. */
static void test_two_killed_at_once(void **state)
{
    static const char script[] =
        "setsid sh -c 'trap \"\" TERM HUP; sleep 1000 & wait; sleep 1000' >/dev/null 2>&1 </dev/null & "
        "echo $PPID > $T/keeper; echo $$ > $T/rank$RANK; wait";
    enum { LAUNCHER, GUARD, KEEPER, COUNT };
    for (int spared = 0; spared < COUNT; spared++) {
        pid_t pids[COUNT] = {start_family(script)};
        pids[KEEPER] = pid_in_file("keeper");
        pids[GUARD] = parent_of(pids[KEEPER]);
        /* They are stopped: none of them acts before all got their signal. */
        for (int i = 0; i < COUNT; i++)
            kill(pids[i], SIGSTOP);
        for (int i = 0; i < COUNT; i++)
            kill(pids[i], i == spared ? SIGCONT : SIGKILL);
        process_wait(pids[LAUNCHER]);
        WAIT_UNTIL(count_left() == 0 && is_gone(pids[GUARD]) && is_gone(pids[KEEPER]));
        temp_folder_tear_down(state);
        set_up(state);
    }
}

/* The job works on when only the guard is killed. */
static void test_guard_killed(void **state)
{
    pid_t launcher = start_family(FAMILY);
    kill(parent_of(pid_in_file("keeper")), SIGKILL);
    WAIT_UNTIL(parent_of(pid_in_file("keeper")) == launcher);
    kill(launcher, SIGTERM);
    assert_int_equal(process_wait(launcher), 100 + SIGTERM);
    WAIT_UNTIL(count_left() == 0);
}

static void test_launcher_signalled(void **state)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    for (size_t i = 0; i < COUNT_OF(signals); i++) {
        pid_t launcher = start_launcher(FAMILY);
        WAIT_UNTIL(count_left() >= 6);
        kill(launcher, signals[i]);
        assert_int_equal(process_wait(launcher), 100 + signals[i]);
        assert_int_equal(count_left(), 0);
    }
}

static bool all_in_state(bool stopped)
{
    lk_processes all = {0};
    int others = 0, found = 0;
    char marker[96];
    snprintf(marker, sizeof marker, "LOCKSTEP_RUN_ID=%s", run_id);
    lk__processes_read(&all);
    for (size_t i = 0; i < all.count; i++) {
        if (!has_variable(all.list[i].pid, marker))
            continue;
        found++;
        others += lk__process_stopped(&all.list[i]) != stopped;
    }
    lk__processes_fini(&all);
    return found >= 6 && others == 0;
}

/* SIGTSTP and SIGCONT, as Ctrl-Z and fg send them. */
static void test_launcher_suspended(void **state)
{
    int status = 0;
    pid_t launcher = start_launcher(FAMILY);
    setpgid(launcher, launcher); /* the kernel stops only what a shell can continue */
    WAIT_UNTIL(count_left() >= 6);
    kill(launcher, SIGTSTP);
    assert_int_equal(waitpid(launcher, &status, WUNTRACED), launcher);
    assert_true(WIFSTOPPED(status));
    WAIT_UNTIL(all_in_state(true));
    kill(launcher, SIGCONT);
    WAIT_UNTIL(all_in_state(false));
    kill(launcher, SIGTERM);
    assert_int_equal(process_wait(launcher), 100 + SIGTERM);
    assert_int_equal(count_left(), 0);
}

static void test_output_closed(void **state)
{
    pid_t launcher = start_unread("while :; do echo text; sleep 0.01; done", NULL);
    assert_int_equal(process_wait(launcher), 100 + SIGPIPE);
    assert_int_equal(count_left(), 0);
}

/* A reader that does not read delays neither a failure nor the end. */
static void test_output_not_read(void **state)
{
    int unread;
    pid_t launcher = start_unread("if [ $RANK = 1 ]; then while :; do echo text; done; fi;"
                                  "dd if=/dev/zero bs=1024 count=4096; exit 7",
                                  &unread);
    WAIT_UNTIL(count_left() > 0);
    kill(launcher, SIGTERM);
    assert_true(process_wait(launcher) < 128);
    assert_int_equal(count_left(), 0);
    close(unread);
}

static void test_stopped_rank_times_out(void **state)
{
    char *argv[] = {"sh", "-c", "[ $RANK = 0 ] && exec sleep 1000; kill -STOP $$; exit 0", NULL};
    lk_launch_node_opts opts = node_opts(2, argv);
    opts.timeout = 0.4;
    outcome end = run_node(&opts);
    assert_failed(&end, 1, "stayed stopped for ");
    assert_int_equal(end.cause.status, -1);
    assert_int_equal(lk__cause_exit(&end.cause), 1);
}

static void be_tracer(int number, void *arg)
{
    int status = 0;
    while (!file_has_line("rank"))
        poll(NULL, 0, 5);
    pid_t rank = pid_in_file("rank");
    if (ptrace(PTRACE_ATTACH, rank, NULL, NULL) != 0)
        _exit(2);
    while (waitpid(rank, &status, 0) == rank && !WIFSIGNALED(status))
        ;
    _exit(0);
}

/* A debugger stops the rank: wait(2) does not report that to the parent. */
static void test_traced_rank_is_stopped(void **state)
{
    char *argv[] = {"sh", "-c", "echo $$ > $T/rank; exec sleep 1000", NULL};
    lk_launch_node_opts opts = node_opts(1, argv);
    opts.timeout = 0.4;
    pid_t tracer = process_start(be_tracer, 0, NULL);
    double give_up = lk__clock() + WAIT_SECONDS;
    int status = 0;
    lk_launch_node *node;
    lk_launch_node_state now = LK_LAUNCH_NODE_STATE_RUNNING;
    assert_int_equal(lk__launch_node_start(&opts, &node), LK_OK);
    bool traced = true;
    while (now == LK_LAUNCH_NODE_STATE_RUNNING && traced && lk__clock() < give_up) {
        assert_int_equal(lk__launch_node_wait(node, -1, 0.1, &now), LK_OK);
        traced = waitpid(tracer, &status, WNOHANG) != tracer;
    }
    lk__launch_node_stop(node, SIGTERM, 0);
    lk_cause cause = *lk__launch_node_cause(node);
    lk__launch_node_destroy(node);
    if (!traced)
        skip(); /* this machine forbids tracing */
    assert_int_equal(now, LK_LAUNCH_NODE_STATE_FAILED);
    assert_int_equal(cause.status, -1);
    process_wait(tracer);
    assert_int_equal(count_left(), 0);
}

static void test_stopped_rank_is_awaited(void **state)
{
    char *argv[] = {"sh", "-c", "echo $$ > $T/rank; kill -STOP $$; exit 0", NULL};
    lk_launch_node_opts opts = node_opts(1, argv);
    lk_launch_node *node;
    lk_launch_node_state now = LK_LAUNCH_NODE_STATE_RUNNING;
    assert_int_equal(lk__launch_node_start(&opts, &node), LK_OK);
    double give_up = lk__clock() + WAIT_SECONDS;
    while (now == LK_LAUNCH_NODE_STATE_RUNNING && notices[0] == '\0' && lk__clock() < give_up)
        assert_int_equal(lk__launch_node_wait(node, -1, 0.1, &now), LK_OK);
    assert_int_equal(now, LK_LAUNCH_NODE_STATE_RUNNING);
    assert_contains(notices, "rank 0 (pid ");
    assert_contains(notices, ") is stopped (SIGSTOP); awaited, 29");
    kill(pid_in_file("rank"), SIGCONT);
    assert_int_equal(lk__launch_node_wait(node, -1, WAIT_SECONDS, &now), LK_OK);
    assert_int_equal(now, LK_LAUNCH_NODE_STATE_DONE);
    lk__launch_node_destroy(node);
}

static void assert_not_found(char *program, const char *part)
{
    char *argv[] = {program, NULL};
    lk_launch_node_opts opts = node_opts(2, argv);
    lk_launch_node *node;
    assert_int_equal(lk__launch_node_start(&opts, &node), LK_STATUS_NOT_FOUND);
    assert_contains(lk_error_detail(), part);
    assert_int_equal(count_left(), 0);
}

static void test_missing_program(void **state)
{
    char path[TEMP_FOLDER_BYTES + 32], interpreter[] = "#!/no/such/interpreter\n";
    snprintf(path, sizeof path, "%s/script", temp_folder);
    assert_not_found("no-such-program-anywhere", "no program no-such-program-anywhere in PATH");
    assert_not_found(path, "no program");
    assert_not_found(temp_folder, "Is a directory");
    temp_write(path, "true\n", 5);
    if (geteuid() != 0)
        assert_not_found(path, "not executable");
    chmod(path, 0700);
    assert_not_found(path, "#!");
    temp_write(path, interpreter, sizeof interpreter - 1);
    chmod(path, 0700);
    assert_not_found(path, "interpreter");
}

static void test_ranks_get_three_descriptors(void **state)
{
    int fd = open("/dev/null", O_RDONLY), high = fcntl(fd, F_DUPFD, 200);
    outcome end = run_shell(2, "i=3; while [ $i -lt 300 ]; do [ -e /proc/$$/fd/$i ] && echo open $i; i=$((i+1)); done;"
                               "readlink /proc/self/fd/0");
    assert_int_equal(end.state, LK_LAUNCH_NODE_STATE_DONE);
    assert_null(strstr(out_text, "open"));
    assert_contains(out_text, "[1] /dev/null\n");
    close(fd);
    close(high);
}

static void test_ranks_have_plain_signals(void **state)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before[2];
    sigset_t usr1, mask;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    sigaction(SIGUSR2, &ignore, &before[0]);
    sigprocmask(SIG_BLOCK, &usr1, &mask);
    outcome end = run_shell(1, "exec grep -E 'SigBlk|SigIgn|SigCgt' /proc/self/status");
    sigprocmask(SIG_SETMASK, &mask, NULL);
    sigaction(SIGUSR2, &before[0], NULL);
    assert_int_equal(end.state, LK_LAUNCH_NODE_STATE_DONE);
    assert_contains(out_text, "SigBlk:\t0000000000000000\n");
    /* Signals 32 and 33 belong to the C library: they stay as inherited. */
    const uint64_t own = UINT64_C(3) << 31;
    const char *ignored = strstr(out_text, "SigIgn:");
    assert_non_null(ignored);
    assert_true((strtoull(ignored + strlen("SigIgn:"), NULL, 16) & ~own) == 0);
}

static void on_signal(int number)
{
}

static void be_sleeper(int number, void *arg)
{
    execlp("sleep", "sleep", "1000", (char *)NULL);
    _exit(1);
}

static void test_caller_gets_its_own_back(void **state)
{
    struct sigaction own = {.sa_handler = on_signal}, plain, now;
    sigset_t before, after;
    int reaper = 1;
    sigaction(SIGINT, &own, &plain);
    sigaction(SIGCHLD, &own, NULL);
    sigprocmask(SIG_SETMASK, NULL, &before);
    pid_t other = process_start(be_sleeper, 0, NULL);
    outcome end = run_shell(2, "[ $RANK = 0 ] || exec sleep 1000; exit 5");
    assert_failed(&end, 0, "status 5");
    sigaction(SIGINT, &plain, &now);
    assert_ptr_equal(now.sa_handler, on_signal);
    sigaction(SIGCHLD, &plain, &now);
    assert_ptr_equal(now.sa_handler, on_signal);
    sigprocmask(SIG_SETMASK, NULL, &after);
    assert_int_equal(sigismember(&after, SIGINT), sigismember(&before, SIGINT));
    assert_int_equal(sigismember(&after, SIGPIPE), sigismember(&before, SIGPIPE));
    assert_int_equal(prctl(PR_GET_CHILD_SUBREAPER, &reaper), 0);
    assert_int_equal(reaper, 0);
    assert_false(is_gone(other));
    kill(other, SIGKILL);
    assert_int_equal(process_wait(other), 128 + SIGKILL);
}

/* Other children of the caller are not ended, even if the keeper was killed. */
static void test_other_children_are_spared(void **state)
{
    char *argv[] = {"sh", "-c", (char *)(uintptr_t)FAMILY, NULL};
    lk_launch_node_opts opts = node_opts(2, argv);
    lk_launch_node *node;
    lk_launch_node_state now = LK_LAUNCH_NODE_STATE_RUNNING;
    pid_t other = process_start(be_sleeper, 0, NULL);
    assert_int_equal(lk__launch_node_start(&opts, &node), LK_OK);
    WAIT_UNTIL(file_has_line("rank0") && file_has_line("rank1") && count_left() >= 6);
    kill(pid_in_file("keeper"), SIGKILL);
    lk_status status = LK_OK;
    while (status == LK_OK)
        status = lk__launch_node_wait(node, -1, WAIT_SECONDS, &now);
    assert_int_equal(status, LK_STATUS_PEER);
    lk__launch_node_destroy(node);
    assert_int_equal(count_left(), 0);
    assert_false(is_gone(other));
    kill(other, SIGKILL);
    assert_int_equal(process_wait(other), 128 + SIGKILL);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void test_wait_returns_for_extra_fd_and_time(void **state)
{
    char *argv[] = {"sleep", "1000", NULL};
    lk_launch_node_opts opts = node_opts(1, argv);
    lk_launch_node *node;
    lk_launch_node_state now = LK_LAUNCH_NODE_STATE_DONE;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(lk__launch_node_start(&opts, &node), LK_OK);
    assert_int_equal(lk__launch_node_wait(node, ends[0], 0.01, &now), LK_OK);
    assert_int_equal(now, LK_LAUNCH_NODE_STATE_RUNNING);
    assert_int_equal(write(ends[1], "x", 1), 1);
    double begin = lk__clock();
    assert_int_equal(lk__launch_node_wait(node, ends[0], 10 * WAIT_SECONDS, &now), LK_OK);
    assert_true(lk__clock() - begin < WAIT_SECONDS);
    assert_int_equal(now, LK_LAUNCH_NODE_STATE_RUNNING);
    lk__launch_node_destroy(node);
    assert_int_equal(count_left(), 0);
    close(ends[0]);
    close(ends[1]);
}

static void test_many_ranks(void **state)
{
    /* More ranks than the keeper's socket holds at once. */
    char *argv[] = {"true", NULL};
    lk_launch_node_opts opts = node_opts(400, argv);
    outcome end = run_node(&opts);
    assert_int_equal(end.state, LK_LAUNCH_NODE_STATE_DONE);
    end = run_shell(64, "echo $RANK of $WORLD_SIZE");
    assert_int_equal(end.state, LK_LAUNCH_NODE_STATE_DONE);
    for (int i = 0; i < 64; i++) {
        char line[32];
        snprintf(line, sizeof line, "[%d] %d of 64\n", i, i);
        assert_contains(out_text, line);
    }
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, temp_folder_tear_down)
TEST_MAIN(NULL, NULL, CASE(test_all_exit_0), CASE(test_exit_3), CASE(test_signals), CASE(test_crash_beats_echo),
          CASE(test_rank_deaf_to_term_is_killed), CASE(test_grandchildren_are_ended), CASE(test_output_held_open),
          CASE(test_forks_while_ending), CASE(test_launcher_killed), CASE(test_keeper_killed),
          CASE(test_two_killed_at_once), CASE(test_guard_killed), CASE(test_launcher_signalled),
          CASE(test_launcher_suspended), CASE(test_output_closed), CASE(test_output_not_read),
          CASE(test_stopped_rank_times_out), CASE(test_traced_rank_is_stopped), CASE(test_stopped_rank_is_awaited),
          CASE(test_missing_program), CASE(test_ranks_get_three_descriptors), CASE(test_ranks_have_plain_signals),
          CASE(test_caller_gets_its_own_back), CASE(test_other_children_are_spared),
          CASE(test_wait_returns_for_extra_fd_and_time), CASE(test_many_ranks))
