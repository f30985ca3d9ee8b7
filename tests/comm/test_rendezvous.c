/* test_rendezvous.c - the ranks find each other with each method; if they cannot, the error says
 * why. */
#include <sys/stat.h>

#include "check.h"
#include "comm/control/control.h"
#include "comm/rendezvous/rendezvous.h"
#include "net/host.h"
#include "net/socket.h"
#include "processes.h"
#include "temp_folder.h"

static int make_folder(void **state)
{
    unsetenv("LOCKSTEP_TOKEN");
    unsetenv("LOCKSTEP_TOKEN_FILE");
    unsetenv("LOCKSTEP_INSECURE");
    unsetenv("TORCHELASTIC_RUN_ID");
    unsetenv("LOCKSTEP_TIMEOUT");
    return temp_folder_set_up(state);
}

/* The rendezvous files must be gone: the folder must be empty. */
static int remove_folder(void **state)
{
    return rmdir(temp_folder);
}

typedef struct plan {
    char method[1100];
    int size, port;
    const char *token;
    double timeout;
} plan;

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static lk_group_opts options(const plan *job, int rank)
{
    set_number("RANK", rank);
    set_number("WORLD_SIZE", job->size);
    set_number("MASTER_PORT", job->port);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    return (lk_group_opts){.init_method = job->method,
                           .rank = rank,
                           .world_size = job->size,
                           .token = job->token,
                           .timeout = job->timeout};
}

/* Joins, exchanges the ranks' numbers and leaves. */
static void meet(int rank, void *arg)
{
    const plan *job = arg;
    lk_group_opts opts = options(job, rank);
    lk_control *control = NULL;
    CHECK(lk__control_join(&opts, NULL, &control) == LK_OK);
    CHECK(lk__control_rank(control) == rank && lk__control_size(control) == job->size);
    int all[8];
    CHECK(lk__control_exchange(control, &rank, sizeof rank, all) == LK_OK);
    for (int r = 0; r < job->size; r++)
        CHECK(all[r] == r);
    CHECK(lk__control_members(control)[rank].pid == (int)getpid());
    CHECK(lk__control_members(control)[0].address[0]);
    CHECK(lk__control_check(control) == LK_OK);
    lk__control_destroy(control);
}

/* Starts the ranks in reverse order: rank 0, which has the server, comes last. */
static void run_all(process_fn fn, plan *job)
{
    pid_t pids[8];
    for (int r = job->size - 1; r >= 0; r--)
        pids[r] = process_start(fn, r, job);
    assert_true(processes_end(pids, job->size, 0));
}

static const int sizes[] = {1, 2, 3, 5};
enum { SIZES = COUNT_OF(sizes) };

static void test_tcp_and_env(void **state)
{
    for (int i = 0; i < SIZES; i++) {
        int holder, port;
        assert_int_equal(lk__net_reserve("127.0.0.1", &holder, &port), LK_OK);
        plan env = {.method = "env://", .size = sizes[i], .port = port, .timeout = 30}, tcp = env;
        tcp.token = i % 2 ? "secret" : NULL;
        snprintf(tcp.method, sizeof tcp.method, "tcp://127.0.0.1:%d", port);
        run_all(meet, &tcp);
        run_all(meet, &env);
        close(holder);
    }
}

/* A plan whose ranks meet through the file. */
static plan by_file(const char *path, int size, double timeout)
{
    plan file = {.size = size, .timeout = timeout};
    snprintf(file.method, sizeof file.method, "file://%s", path);
    return file;
}

static void test_file(void **state)
{
    for (int i = 0; i < SIZES; i++) {
        const char *path = temp_path("meet");
        plan file = by_file(path, sizes[i], 30);
        file.token = i % 2 ? "secret" : NULL;
        run_all(meet, &file);
        assert_int_equal(access(path, F_OK), -1);
    }
}

/* The agent of torchrun listens on MASTER_PORT, and a silent program on the next port. */
static void test_torchrun(void **state)
{
    int agent = -1, silent = -1, port, next;
    for (int tries = 0; silent < 0 && tries < 100; tries++) {
        if (agent >= 0)
            close(agent);
        assert_int_equal(lk__net_listen("127.0.0.1", 0, &agent, &port), LK_OK);
        if (port > 65000 || lk__net_listen("127.0.0.1", port + 1, &silent, &next) != LK_OK)
            silent = -1;
    }
    assert_true(silent >= 0);
    setenv("TORCHELASTIC_RUN_ID", "job-7", 1);
    plan env = {.method = "env://", .size = 3, .port = port, .timeout = 30};
    run_all(meet, &env);
    unsetenv("TORCHELASTIC_RUN_ID");
    close(agent);
    close(silent);
}

static void assert_join_fails(const lk_group_opts *opts, lk_status status, const char *part)
{
    lk_control *control = NULL;
    assert_int_equal(lk__control_join(opts, NULL, &control), status);
    assert_null(control);
    assert_detail(part);
}

static void test_variables(void **state)
{
    static const char *const names[] = {"WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT"};
    plan env = {.method = "env://", .size = 2, .port = 4000, .timeout = 1};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        lk_group_opts opts = options(&env, 1);
        unsetenv(names[i]);
        assert_join_fails(&opts, LK_STATUS_USAGE, names[i]);
    }
    lk_group_opts opts = options(&env, 1);
    setenv("RANK", "2", 1);
    assert_join_fails(&opts, LK_STATUS_USAGE, "RANK is '2': it must be a number from 0 to 1");
    setenv("RANK", "1x", 1);
    assert_join_fails(&opts, LK_STATUS_USAGE, "RANK is '1x'");
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "0", 1);
    assert_join_fails(&opts, LK_STATUS_USAGE, "WORLD_SIZE");
}

static void test_usage(void **state)
{
    static const struct {
        const char *method, *part;
        int rank, world;
        double timeout;
    } rows[] = {
        {"tcp://127.0.0.1", "names no port", 0, 2, 1},
        {"tcp://127.0.0.1:0", "names no port", 0, 2, 1},
        {"tcp://[::1]", "as in tcp://[::1]:29500", 0, 2, 1},
        {"tcp://", "names no port", 0, 2, 1},
        {"file://", "names no file", 0, 2, 1},
        {"mpi://", "env://, tcp://HOST:PORT, file://PATH", 0, 2, 1},
        {"tcp://127.0.0.1:4000", "rank 2 is impossible in a world of 2", 2, 2, 1},
        {"tcp://127.0.0.1:4000", "world size of 0", 2, 0, 1},
        {"tcp://127.0.0.1:4000", "timeout", 0, 1, -1},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        lk_group_opts opts = {.init_method = rows[i].method, .rank = rows[i].rank, .world_size = rows[i].world};
        opts.timeout = rows[i].timeout;
        assert_join_fails(&opts, LK_STATUS_USAGE, rows[i].part);
    }
}

/* Without a timeout in the options, that of the launcher counts. */
static void test_timeout(void **state)
{
    static const char *const bad[] = {"0", "-1", "2s", "inf", "nan"};
    lk_group_opts opts = {.init_method = "tcp://127.0.0.1:0", .world_size = 2};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        char text[64];
        setenv("LOCKSTEP_TIMEOUT", bad[i], 1);
        snprintf(text, sizeof text, "LOCKSTEP_TIMEOUT is '%s': it must be a positive number", bad[i]);
        assert_join_fails(&opts, LK_STATUS_USAGE, text);
    }
    char method[64];
    int holder, port;
    assert_int_equal(lk__net_reserve("127.0.0.1", &holder, &port), LK_OK);
    snprintf(method, sizeof method, "tcp://127.0.0.1:%d", port);
    opts.init_method = method;
    setenv("LOCKSTEP_TIMEOUT", "0.4", 1);
    assert_join_fails(&opts, LK_STATUS_PEER, "rank 1 of 2 has not joined within 0.4 s");
    opts.timeout = 0.2;
    assert_join_fails(&opts, LK_STATUS_PEER, "rank 1 of 2 has not joined within 0.2 s");
    unsetenv("LOCKSTEP_TIMEOUT");
    close(holder);
}

static void test_busy_port(void **state)
{
    int listener, port;
    char method[64], text[16];
    assert_int_equal(lk__net_listen("127.0.0.1", 0, &listener, &port), LK_OK);
    snprintf(method, sizeof method, "tcp://127.0.0.1:%d", port);
    snprintf(text, sizeof text, "%d", port);
    lk_group_opts opts = {.init_method = method, .world_size = 2, .timeout = 30};
    assert_join_fails(&opts, LK_STATUS_IO, text);
    close(listener);
}

static void join_and_die(int rank, void *arg)
{
    lk_group_opts opts = options(arg, rank);
    lk_control *control = NULL;
    CHECK(lk__control_join(&opts, NULL, &control) != LK_OK);
}

/* Replaces the line of the file that begins with the word. */
static void replace_line(const char *path, const char *word, const char *line)
{
    char text[1024], changed[2048];
    int fd = open(path, O_RDONLY);
    ssize_t bytes = read(fd, text, sizeof text - 1);
    close(fd);
    assert_true(bytes > 0);
    text[bytes] = '\0';
    char *at = strstr(text, word);
    assert_non_null(at);
    int used = snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, line, strchr(at, '\n'));
    temp_write(path, changed, (size_t)used);
    chmod(path, 0600);
}

/* A rank 0 that is killed while it waits does not remove its file. */
static void test_stale_file(void **state)
{
    char pid_text[32];
    const char *path = temp_path("stale");
    plan file = by_file(path, 2, 30);
    pid_t first = process_start(join_and_die, 0, &file);
    struct stat info;
    while (stat(path, &info) != 0)
        sleep_ms(5);
    assert_int_equal(info.st_mode & 0777, 0600);
    snprintf(pid_text, sizeof pid_text, "pid %d", (int)first);
    file.timeout = 1.5;
    lk_group_opts opts = options(&file, 0);
    assert_join_fails(&opts, LK_STATUS_USAGE, "exists already: it was written");
    assert_detail(pid_text);
    /* Where the boot id is not known, the process decides; another boot id says that it is dead. */
    replace_line(path, "boot ", "boot -");
    assert_join_fails(&opts, LK_STATUS_USAGE, "exists already: it was written");
    replace_line(path, "boot ", "boot of-another-day");
    assert_join_fails(&opts, LK_STATUS_USAGE, "is stale");
    replace_line(path, "boot ", "boot -");
    kill(first, SIGKILL);
    assert_int_equal(process_wait(first), 128 + SIGKILL);

    assert_join_fails(&opts, LK_STATUS_USAGE, "is stale");
    assert_detail(pid_text);
    assert_detail(path);
    opts = options(&file, 1);
    assert_join_fails(&opts, LK_STATUS_PEER, "is of an earlier job");
    assert_detail(pid_text);

    /* A rank that waits while the stale file is replaced finds the new file. */
    file.timeout = 30;
    pid_t waiting = process_start(meet, 1, &file);
    sleep_ms(200);
    unlink(path);
    assert_true(processes_end((pid_t[]){process_start(meet, 0, &file), waiting}, 2, 0));
    assert_int_equal(access(path, F_OK), -1);
}

static void test_foreign_file(void **state)
{
    const char *path = temp_path("foreign");
    plan file = by_file(path, 2, 0.3), missing = by_file(temp_path("no/such"), 2, 0.3);
    lk_group_opts opts = options(&file, 1);
    assert_join_fails(&opts, LK_STATUS_PEER, "rank 0 of 2 has not joined: there is no");
    temp_write(path, "something else\n", 15);
    chmod(path, 0600);
    assert_join_fails(&opts, LK_STATUS_PEER, "not a rendezvous file");
    chmod(path, 0666);
    assert_join_fails(&opts, LK_STATUS_PEER, "others may write to it");
    opts = options(&file, 0);
    assert_join_fails(&opts, LK_STATUS_USAGE, "name another path");
    assert_int_equal(unlink(path), 0);
    opts = options(&missing, 0);
    assert_join_fails(&opts, LK_STATUS_IO, "a folder that exists");
}

/* The file is the key of the job: others may read it only if a token is a part of the key. */
static void test_public_file(void **state)
{
    const char *path = temp_path("public");
    plan file = by_file(path, 2, 30), other = by_file(path, 2, 0.3);
    file.token = "of rank 0"; /* which then does not mind the mode of its file */
    pid_t first = process_start(join_and_die, 0, &file);
    while (access(path, F_OK) != 0)
        sleep_ms(5);
    assert_int_equal(chmod(path, 0644), 0);
    lk_group_opts opts = options(&other, 1);
    assert_join_fails(&opts, LK_STATUS_USAGE, "other users can read ");
    assert_detail(path);
    assert_detail("set LOCKSTEP_TOKEN");
    other.token = "secret";
    opts = options(&other, 1);
    assert_join_fails(&opts, LK_STATUS_PEER, "another job token");
    kill(first, SIGKILL);
    assert_int_equal(process_wait(first), 128 + SIGKILL);
    assert_int_equal(unlink(path), 0);
}

static void test_host(void **state)
{
    char address[LK_ADDRESS_BYTES];
    uint64_t key = lk__host_key();
    assert_true(key == lk__host_key());
    setenv("LOCKSTEP_HOSTID", "a", 1);
    uint64_t other = lk__host_key();
    assert_true(other != key);
    unsetenv("LOCKSTEP_HOSTID");
    lk__host_address(address);
    int listener, port;
    assert_int_equal(lk__net_listen(address, 0, &listener, &port), LK_OK);
    close(listener);
    setenv("LOCKSTEP_HOST_ADDR", "127.0.0.9", 1);
    lk__host_address(address);
    assert_string_equal(address, "127.0.0.9");
    unsetenv("LOCKSTEP_HOST_ADDR");
}

TEST_MAIN(make_folder, remove_folder, TEST(test_tcp_and_env), TEST(test_file), TEST(test_torchrun),
          TEST(test_variables), TEST(test_usage), TEST(test_busy_port), TEST(test_stale_file), TEST(test_foreign_file),
          TEST(test_public_file), TEST(test_host), TEST(test_timeout))
