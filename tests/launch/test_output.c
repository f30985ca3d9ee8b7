/* test_output.c - the output of ranks: whole lines, prefixes, log files, the tail. */
#include "node_test.h"

#include <sys/resource.h>

#include "launch/output.h"

static size_t count_lines(const char *text)
{
    size_t lines = 0;
    for (; *text != '\0'; text++)
        lines += *text == '\n';
    return lines;
}

static void test_streams_and_unfinished_lines(void **state)
{
    outcome end = run_shell(1, "echo out; echo err >&2; echo; printf unfinished; printf 'bad end' >&2");
    assert_int_equal(end.state, LK_LAUNCH_NODE_STATE_DONE);
    assert_string_equal(out_text, "[0] out\n[0] \n[0] unfinished\n");
    assert_string_equal(err_text, "[0] err\n[0] bad end\n");
}

/* Four ranks write at the same time and flush inside their lines. */
static void test_lines_are_never_torn(void **state)
{
    outcome end = run_shell(4, "i=0; while [ $i -lt 300 ]; do printf 'begin %s ' $RANK; printf 'middle '; "
                               "echo end $RANK; i=$((i+1)); done");
    assert_int_equal(end.state, LK_LAUNCH_NODE_STATE_DONE);
    assert_int_equal(count_lines(out_text), 1200);
    for (char *line = out_text, *next; *line != '\0'; line = next) {
        next = strchr(line, '\n') + 1;
        char wanted[64];
        int length = snprintf(wanted, sizeof wanted, "[%c] begin %c middle end %c\n", line[1], line[1], line[1]);
        assert_memory_equal(line, wanted, (size_t)length);
    }
}

/* At the end nobody waits for a reader that has not read for longer than the deadline. */
static void test_stalled_reader(void **state)
{
    static const char text[4096];
    const double deadline = 2;
    int ends[2], saved = dup(STDOUT_FILENO);
    assert_int_equal(pipe(ends), 0);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    while (write(ends[1], text, sizeof text) > 0)
        ;
    dup2(ends[1], STDOUT_FILENO);
    char *argv[] = {"true", NULL};
    lk_launch_node_opts opts = node_opts(1, argv);
    lk_output_pump *output;
    struct pollfd fds[4];
    assert_int_equal(lk__output_create(&opts, "host", &output), LK_OK);
    ssize_t written = write(lk__output_pipe(output, 0, 1), "a line\n", 7);
    size_t count = lk__output_poll(output, fds);
    poll(fds, (nfds_t)count, (int)(1000 * WAIT_SECONDS));
    lk__output_pump(output, fds, count);
    poll(NULL, 0, (int)(1000 * deadline) + 100);
    lk__output_started(output);
    double begin = lk__clock();
    lk__output_finish(output, deadline);
    double took = lk__clock() - begin;
    dup2(saved, STDOUT_FILENO);
    lk__output_destroy(output);
    close(saved);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(written, 7);
    assert_true(took < deadline / 2);
}

static void be_slowly_read(int number, void *arg)
{
    const int *ends = arg;
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    char *argv[] = {"sh", "-c",
                    "x=$(head -c 5000 /dev/zero | tr '\\0' x); i=0;"
                    "while [ $i -lt 20 ]; do echo a$x; echo b$x >&2; i=$((i+1)); done",
                    NULL};
    lk_launch_node_opts opts = node_opts(2, argv);
    lk_launch_node *node;
    lk_launch_node_state now = LK_LAUNCH_NODE_STATE_RUNNING;
    if (lk__launch_node_start(&opts, &node) != LK_OK || lk__launch_node_wait(node, -1, WAIT_SECONDS, &now) != LK_OK)
        _exit(1);
    /* destroy waits while somebody reads. */
    lk__launch_node_destroy(node);
    _exit(now != LK_LAUNCH_NODE_STATE_DONE);
}

/* One slow reader reads both streams in small pieces; the lines are longer than one write to a
 * pipe. */
static void test_one_slow_reader(void **state)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t launcher = process_start(be_slowly_read, 0, ends);
    close(ends[1]);
    size_t length = 0;
    for (ssize_t n; (n = read(ends[0], out_text + length, 777)) > 0; length += (size_t)n)
        if (length % 5 == 0)
            poll(NULL, 0, 1);
    close(ends[0]);
    out_text[length] = '\0';
    assert_int_equal(process_wait(launcher), 0);
    assert_int_equal(count_lines(out_text), 80);
    for (char *line = out_text, *next; *line != '\0'; line = next) {
        next = strchr(line, '\n') + 1;
        assert_int_equal(next - line, 4 + 1 + 5000 + 1);
        assert_true(line[4] == 'a' || line[4] == 'b');
    }
}

static void test_long_lines_are_cut(void **state)
{
    outcome end = run_shell(1, "head -c 150000 /dev/zero | tr '\\0' x; echo; echo after");
    assert_int_equal(end.state, LK_LAUNCH_NODE_STATE_DONE);
    assert_int_equal(count_lines(out_text), 4);
    assert_int_equal(strchr(out_text, '\n') - out_text, 4 + LK_OUTPUT_LINE);
    size_t letters = 0;
    for (char *c = out_text; *c != '\0'; c++)
        letters += *c == 'x';
    assert_int_equal(letters, 150000);
    assert_contains(out_text, "x\n[0] after\n");
}

static void test_progress_bars(void **state)
{
    outcome end = run_shell(1, "printf '\\r 10%%\\r 20%%\\r'; printf ' 30%%\\ndos\\r\\n'");
    assert_int_equal(end.state, LK_LAUNCH_NODE_STATE_DONE);
    assert_string_equal(out_text, "[0]  10%\n[0]  20%\n[0]  30%\n[0] dos\r\n");
}

/* Rank 0's progress line is drawn once its \r has come, removed before other lines, and in no log or tail. */
static void test_progress_line(void **state)
{
    char *argv[] = {
        "sh", "-c",
        "if [ $RANK = 1 ]; then while [ ! -e $T/drawn ]; do sleep .01; done; echo one; touch $T/told; exit; fi;"
        "printf '\\033[Kstep 1\\r' >&2; while ! grep -q 'step 1' $T/stderr; do sleep .01; done; touch $T/drawn;"
        "while [ ! -e $T/told ]; do sleep .01; done; printf '\\033[Kstep 2\\r' >&2; echo err >&2",
        NULL};
    lk_launch_node_opts opts = node_opts(2, argv);
    opts.plain = opts.progress = true;
    opts.log_dir = temp_folder;
    outcome end = run_node(&opts);
    assert_int_equal(end.state, LK_LAUNCH_NODE_STATE_DONE);
    assert_string_equal(out_text, "one\n");
    const char *line = strstr(err_text, "\033[Kstep 1\r");
    assert_non_null(line);
    assert_non_null(strstr(line, "\r\033[Kerr\n"));
    size_t length = strlen(err_text);
    assert_true(err_text[length - 1] != '\r');
    read_text("rank_0.log", err_text, sizeof err_text);
    assert_string_equal(err_text, "err\n");
}

static void test_host_in_prefix(void **state)
{
    char host[64] = "", wanted[128];
    char *argv[] = {"sh", "-c", "echo hello", NULL};
    lk_launch_node_opts opts = node_opts(1, argv);
    opts.name_host = true;
    opts.first_rank = 5;
    opts.world_size = 6;
    outcome end = run_node(&opts);
    assert_int_equal(end.state, LK_LAUNCH_NODE_STATE_DONE);
    gethostname(host, sizeof host - 1);
    snprintf(wanted, sizeof wanted, "[%s:5] hello\n", host);
    assert_string_equal(out_text, wanted);
}

static void test_raw(void **state)
{
    char *argv[] = {"sh", "-c", "printf 'a\\r'; printf 'b\\n'; printf c", NULL};
    lk_launch_node_opts opts = node_opts(1, argv);
    opts.raw = true;
    outcome end = run_node(&opts);
    assert_int_equal(end.state, LK_LAUNCH_NODE_STATE_DONE);
    assert_string_equal(out_text, "a\rb\nc\n");
}

static void test_logs(void **state)
{
    char logs[TEMP_FOLDER_BYTES + 32], text[256];
    char *argv[] = {"sh", "-c", "echo out $RANK; sleep 0.1; echo err $RANK >&2", NULL};
    lk_launch_node_opts opts = node_opts(2, argv);
    snprintf(logs, sizeof logs, "%s/deep/er/logs", temp_folder);
    opts.log_dir = logs;
    for (opts.restart = 0; opts.restart < 2; opts.restart++) {
        outcome end = run_node(&opts);
        assert_int_equal(end.state, LK_LAUNCH_NODE_STATE_DONE);
        read_text("deep/er/logs/rank_1.log", text, sizeof text);
        assert_string_equal(text, opts.restart == 0 ? "out 1\nerr 1\n" : "out 1\nerr 1\nout 1\nerr 1\n");
    }
    opts.restart = 0;
    assert_int_equal(run_node(&opts).state, LK_LAUNCH_NODE_STATE_DONE);
    read_text("deep/er/logs/rank_0.log", text, sizeof text);
    assert_string_equal(text, "out 0\nerr 0\n");
}

static void test_log_folder_that_cannot_be(void **state)
{
    char *argv[] = {"sh", "-c", "echo > $T/ran", NULL};
    lk_launch_node_opts opts = node_opts(1, argv);
    opts.log_dir = "/dev/null/logs";
    lk_launch_node *node;
    assert_int_equal(lk__launch_node_start(&opts, &node), LK_STATUS_IO);
    assert_contains(lk_error_detail(), "/dev/null/logs");
    assert_int_not_equal(access(temp_path("ran"), F_OK), 0);
}

static void test_tail_is_bounded(void **state)
{
    outcome end = run_shell(1, "i=0; while [ $i -lt 50 ]; do echo line $i >&2; i=$((i+1)); done; exit 1");
    assert_int_equal(end.state, LK_LAUNCH_NODE_STATE_FAILED);
    assert_int_equal(count_lines(end.cause.tail), LK_OUTPUT_TAIL_LINES);
    assert_memory_equal(end.cause.tail, "line 40\n", 8);
    assert_contains(end.cause.tail, "line 49\n");
    end = run_shell(1, "head -c 100000 /dev/zero | tr '\\0' y >&2; echo last >&2; exit 1");
    assert_true(strlen(end.cause.tail) < sizeof end.cause.tail);
    assert_contains(end.cause.tail, "ylast\n");
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, temp_folder_tear_down)
static void test_too_few_files(void **state)
{
    char *argv[] = {"true", NULL};
    lk_launch_node_opts opts = node_opts(1000, argv);
    lk_output_pump *output;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit few = {.rlim_cur = 100, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    lk_status status = lk__output_create(&opts, "host", &output);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, LK_STATUS_IO);
    assert_detail("raise the limit (ulimit -n) to 5 for each rank and 128 more");
}

TEST_MAIN(NULL, NULL, CASE(test_streams_and_unfinished_lines), CASE(test_lines_are_never_torn),
          CASE(test_stalled_reader), CASE(test_one_slow_reader), CASE(test_long_lines_are_cut),
          CASE(test_progress_bars), CASE(test_progress_line), CASE(test_host_in_prefix), CASE(test_raw),
          CASE(test_logs), CASE(test_log_folder_that_cannot_be), CASE(test_tail_is_bounded), CASE(test_too_few_files))
