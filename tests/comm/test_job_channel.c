/* test_job_channel.c - the client of PMI-1 against a server that is good, slow, dies or lies: all ranks get the text of
 * rank 0, nothing blocks beyond the deadline, and no answer overflows. */
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "check.h"
#include "comm/control/control.h"
#include "comm/rendezvous/channel.h"
#include "processes.h"

enum { TASKS = 3 };

/* A server in a thread: it answers the requests of TASKS clients, each on a socket. */
typedef struct server {
    int fd[TASKS], others[TASKS]; /* its ends, and those of the clients */
    int tasks;
    const char *bad_request; /* a request that begins like this gets the answer `bad`, NULL: none at all */
    const char *bad;
    bool slow;   /* sends byte by byte */
    bool closes; /* closes the connection instead */
    int inits;   /* requests to begin */
    int waiting; /* clients at the barrier */
    char value[1024];
} server;

static bool begins(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static void answer(const server *self, int client, const char *text)
{
    size_t bytes = strlen(text), step = self->slow ? 1 : bytes;
    for (size_t done = 0; done < bytes; done += step) {
        CHECK(send(self->fd[client], text + done, step, MSG_NOSIGNAL) == (ssize_t)step);
        if (self->slow)
            sleep_ms(1);
    }
}

static void serve_line(server *self, int client, const char *line)
{
    char text[1200];
    self->inits += begins(line, "cmd=init");
    if (self->bad_request && begins(line, self->bad_request)) {
        if (self->closes)
            shutdown(self->fd[client], SHUT_RDWR);
        else if (self->bad)
            answer(self, client, self->bad);
    } else if (strcmp(line, "cmd=init pmi_version=1 pmi_subversion=1\n") == 0)
        answer(self, client, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    else if (strcmp(line, "cmd=get_my_kvsname\n") == 0)
        answer(self, client, "cmd=my_kvsname kvsname=kvs_1_0\n");
    else if (sscanf(line, "cmd=put kvsname=kvs_1_0 key=lockstep value=%1023s", self->value) == 1)
        answer(self, client, "cmd=put_result rc=0 msg=success\n");
    else if (strcmp(line, "cmd=barrier_in\n") == 0) {
        if (++self->waiting < self->tasks)
            return;
        self->waiting = 0;
        for (int i = 0; i < self->tasks; i++)
            answer(self, i, "cmd=barrier_out\n");
    } else if (strcmp(line, "cmd=get kvsname=kvs_1_0 key=lockstep\n") == 0) {
        snprintf(text, sizeof text, "cmd=get_result rc=0 msg=success value=%s\n", self->value);
        answer(self, client, text);
    } else if (strcmp(line, "cmd=finalize\n") == 0)
        answer(self, client, "cmd=finalize_ack\n");
    else
        CHECK(!"a request of PMI-1");
}

/* Ends when all clients have closed their ends. */
static void *serve(void *arg)
{
    server *self = arg;
    char lines[TASKS][1200];
    size_t got[TASKS] = {0};
    for (int open = self->tasks; open > 0;) {
        struct pollfd polls[TASKS];
        for (int i = 0; i < self->tasks; i++)
            polls[i] = (struct pollfd){.fd = self->fd[i], .events = POLLIN};
        CHECK(poll(polls, (nfds_t)self->tasks, 60000) > 0);
        for (int i = 0; i < self->tasks; i++) {
            if (!polls[i].revents)
                continue;
            ssize_t n = recv(self->fd[i], lines[i] + got[i], 1, 0);
            if (n <= 0) {
                close(self->fd[i]);
                self->fd[i] = -1;
                open--;
            } else if (lines[i][got[i]++] == '\n') {
                lines[i][got[i]] = '\0';
                got[i] = 0;
                serve_line(self, i, lines[i]);
            }
        }
    }
    return NULL;
}

static void connect_tasks(server *self, int tasks)
{
    self->tasks = tasks;
    for (int i = 0; i < tasks; i++) {
        int ends[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        self->fd[i] = ends[0];
        self->others[i] = ends[1];
    }
}

/* Runs fn in a process for each of the first `come` tasks of `tasks`, while the server answers. Its thread starts
 * after the processes: a fork of a process with threads could not start threads of its own under ThreadSanitizer. */
static void run_tasks(server *self, int tasks, int come, process_fn fn, void *arg)
{
    pid_t pids[TASKS];
    pthread_t thread;
    connect_tasks(self, tasks);
    for (int i = 0; i < come; i++)
        pids[i] = process_start(fn, i, arg);
    assert_int_equal(pthread_create(&thread, NULL, serve, self), 0);
    bool fine = processes_end(pids, come, 0);
    for (int i = 0; i < tasks; i++)
        close(self->others[i]);
    pthread_join(thread, NULL);
    assert_true(fine);
}

static void set_variables(int fd, int rank, int size)
{
    char text[3][16];
    snprintf(text[0], sizeof text[0], "%d", fd);
    snprintf(text[1], sizeof text[1], "%d", rank);
    snprintf(text[2], sizeof text[2], "%d", size);
    setenv("PMI_FD", text[0], 1);
    setenv("PMI_RANK", text[1], 1);
    setenv("PMI_SIZE", text[2], 1);
}

/* A task in a process of its own: what a process has shared stays with it. */
typedef struct job {
    server *server;
    double timeout;
    const char *failure;                    /* part of the detail; NULL: it succeeds */
    char texts[TASKS][LK_JOB_CHANNEL_TEXT]; /* shared memory */
} job;

/* In a child: keeps the socket of this rank only, and sets its variables. */
static void take_socket(const server *pmi, int rank)
{
    for (int i = 0; i < pmi->tasks; i++) {
        close(pmi->fd[i]);
        if (i != rank)
            close(pmi->others[i]);
    }
    set_variables(pmi->others[rank], rank, pmi->tasks);
}

static void share(int rank, void *arg)
{
    job *all = arg;
    const lk_job_channel_task task = {.rank = rank, .size = all->server->tasks};
    lk_deadline deadline;
    char text[LK_JOB_CHANNEL_TEXT] = "";
    take_socket(all->server, rank);
    double begin = lk__clock();
    CHECK(lk__job_channel_there(&task));
    lk__deadline_init(&deadline, all->timeout, NULL, NULL);
    snprintf(text, sizeof text, "token%d@host", rank);
    lk_status status = lk__job_channel_share(&task, &deadline, text);
    CHECK(lk__clock() - begin < all->timeout + 20);
    if (all->failure)
        CHECK(status != LK_OK);
    else
        CHECK(status == LK_OK);
    if (all->failure)
        CHECK_TEXT(lk_error_detail(), all->failure);
    memcpy(all->texts[rank], text, sizeof text);
    /* The second call gives the same without the server. */
    snprintf(text, sizeof text, "other");
    CHECK(lk__job_channel_there(&task));
    CHECK(lk__job_channel_share(&task, &deadline, text) == status);
    if (all->failure)
        CHECK_TEXT(lk_error_detail(), all->failure);
    else
        CHECK(strcmp(text, all->texts[rank]) == 0);
}

/* Runs `tasks` tasks, of which `come` share. */
static void run(server *pmi, int tasks, int come, double timeout, const char *failure)
{
    job *all = process_share(sizeof *all);
    *all = (job){.server = pmi, .timeout = timeout, .failure = failure};
    run_tasks(pmi, tasks, come, share, all);
    for (int i = 0; i < come && !failure; i++)
        assert_string_equal(all->texts[i], "token0@host");
    munmap(all, sizeof *all);
}

static void test_good(void **state)
{
    for (int tasks = 1; tasks <= TASKS; tasks++)
        run(&(server){0}, tasks, tasks, 30, NULL);
}

static void test_slow(void **state)
{
    run(&(server){.slow = true}, TASKS, TASKS, 30, NULL);
}

/* Thread ranks of one process: one of them talks to the launcher, all get the text. */
static void share_in_thread(int number, void *arg)
{
    lk_deadline deadline;
    char text[LK_JOB_CHANNEL_TEXT];
    snprintf(text, sizeof text, "thread%d", number);
    lk__deadline_init(&deadline, 30, NULL, NULL);
    CHECK(lk__job_channel_share(&(lk_job_channel_task){.rank = 0, .size = 1}, &deadline, text) == LK_OK);
    memcpy(((char(*)[LK_JOB_CHANNEL_TEXT])arg)[number], text, sizeof text);
}

static void share_in_threads(int rank, void *arg)
{
    const server *pmi = arg;
    static char texts[4][LK_JOB_CHANNEL_TEXT];
    take_socket(pmi, 0);
    threads_run(4, share_in_thread, texts);
    CHECK(begins(texts[0], "thread"));
    for (int i = 1; i < 4; i++)
        CHECK(strcmp(texts[i], texts[0]) == 0);
}

static void test_threads(void **state)
{
    server pmi = {0};
    run_tasks(&pmi, 1, 1, share_in_threads, &pmi);
    assert_int_equal(pmi.inits, 1);
}

static const char *const requests[] = {"cmd=init",       "cmd=get_my",  "cmd=put",
                                       "cmd=barrier_in", "cmd=get kvs", "cmd=finalize"};

static void test_silent(void **state)
{
    for (size_t i = 0; i < COUNT_OF(requests); i++)
        run(&(server){.bad_request = requests[i]}, 1, 1, 0.2, i == 3 ? "not all 1 processes" : "in time at 'cmd=");
}

static void test_missing_task(void **state)
{
    run(&(server){0}, 3, 2, 0.5, "not all 3 processes of the job came to the launcher's barrier (PMI) within 0.5 s");
}

static void share_interrupted(int rank, void *arg)
{
    const server *pmi = arg;
    const volatile sig_atomic_t interrupted = 1;
    const lk_job_channel_task task = {.rank = 0, .size = 1, .interrupted = &interrupted};
    lk_deadline deadline;
    char text[LK_JOB_CHANNEL_TEXT] = "text";
    take_socket(pmi, 0);
    lk__deadline_init(&deadline, 60, NULL, NULL);
    double begin = lk__clock();
    CHECK_FAILS(lk__job_channel_share(&task, &deadline, text), LK_STATUS_PEER, "interrupted");
    CHECK(lk__clock() - begin < 30);
}

static void test_interrupted(void **state)
{
    server pmi = {.bad_request = "cmd=barrier_in"};
    run_tasks(&pmi, 1, 1, share_interrupted, &pmi);
}

static void test_dying(void **state)
{
    for (size_t i = 0; i < COUNT_OF(requests); i++)
        run(&(server){.bad_request = requests[i], .closes = true}, 1, 1, 30, "closed the connection at 'cmd=");
}

static void test_lying(void **state)
{
    static char endless[8000], long_value[2000], long_name[1000];
    memset(endless, 'x', sizeof endless - 1);
    snprintf(long_value, sizeof long_value, "cmd=get_result rc=0 value=%.1500s\n", endless);
    snprintf(long_name, sizeof long_name, "cmd=my_kvsname kvsname=%.300s\n", endless);
    const struct {
        const char *request, *bad, *failure;
    } rows[] = {
        {"cmd=init", "\n", "another answer"},
        {"cmd=init", "cmd=\n", "another answer"},
        {"cmd=init", "cmd=barrier_out\n", "another answer"},
        {"cmd=init", "xcmd=response_to_init rc=0\n", "another answer"},
        {"cmd=init", "cmd=response_to_init pmi_version=1 rc=-1\n", "refused"},
        {"cmd=init", "cmd=response_to_init rc=0\ncmd=barrier_out\n", "more than one line"},
        {"cmd=init", endless, "too long"},
        {"cmd=get_my", "cmd=my_kvsname\n", "has no name"},
        {"cmd=get_my", long_name, "has no name"},
        {"cmd=put", "cmd=put_result rc=-1 msg=full\n", "refused at 'cmd=put"},
        {"cmd=get kvs", long_value, "has lost the value"},
        {"cmd=get kvs", "cmd=get_result rc=-1 msg=key_not_found value=unknown\n", "refused"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        run(&(server){.bad_request = rows[i].request, .bad = rows[i].bad}, 1, 1, 30, rows[i].failure);
}

/* A task of a launcher that gives nothing but PMI's variables: it joins, leaves and joins again. */
static void join_by_env(int rank, void *arg)
{
    job *all = arg;
    lk_group_opts opts = {.init_method = "env://", .timeout = all->timeout};
    take_socket(all->server, rank);
    for (int round = 0; round < 2; round++) {
        lk_control *control = NULL;
        if (all->failure) {
            CHECK_FAILS(lk__control_join(&opts, NULL, &control), LK_STATUS_FORMAT, all->failure);
            continue;
        }
        CHECK(lk__control_join(&opts, NULL, &control) == LK_OK);
        int mine = rank, ranks[TASKS];
        CHECK(lk__control_exchange(control, &mine, sizeof mine, ranks) == LK_OK);
        for (int r = 0; r < TASKS; r++)
            CHECK(ranks[r] == r);
        lk__control_destroy(control);
    }
}

static void join_all(server *pmi, const char *failure)
{
    job all = {.server = pmi, .timeout = 30, .failure = failure};
    run_tasks(pmi, TASKS, TASKS, join_by_env, &all);
}

static void test_join(void **state)
{
    server pmi = {0};
    join_all(&pmi, NULL);
    assert_int_equal(pmi.inits, TASKS);
}

#define DIGITS "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void test_join_with_a_lie(void **state)
{
    static const char *const values[] = {"nonsense",        "@1@h",           DIGITS "@0@h",
                                         DIGITS "@99999@h", DIGITS "0@100@h", DIGITS "@100@$h",
                                         DIGITS "@100@",    DIGITS "@100@h$", "0" DIGITS};
    for (size_t i = 0; i < COUNT_OF(values); i++) {
        char lie[200];
        snprintf(lie, sizeof lie, "cmd=get_result rc=0 value=%s\n", values[i]);
        join_all(&(server){.bad_request = "cmd=get kvs", .bad = lie}, "gave another text than rank 0");
    }
}

static void assert_there(bool there, const lk_job_channel_task *task)
{
    assert_true(lk__job_channel_there(task) == there);
}

static void test_not_there(void **state)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    const lk_job_channel_task task = {.rank = 1, .size = 2};
    set_variables(ends[0], 1, 2);
    assert_there(true, &task);
    /* A launcher inside the task has given other ranks; MPI needs PMI itself, and is the channel. */
    assert_there(false, &(lk_job_channel_task){.rank = 0, .size = 2});
    assert_there(false, &(lk_job_channel_task){.rank = 1, .size = 4});
    assert_false(lk__job_channel_pmi.is_there(&(lk_job_channel_task){.rank = 1, .size = 2, .backend = "mpi"}));
    assert_there(true, &(lk_job_channel_task){.rank = 1, .size = 2, .backend = "mpi"});
    setenv("LOCKSTEP_BACKEND", "mpi", 1);
    assert_false(lk__job_channel_pmi.is_there(&task));
    assert_there(true, &task);
    assert_there(true, &(lk_job_channel_task){.rank = 1, .size = 2, .backend = "tcp"});
    unsetenv("LOCKSTEP_BACKEND");
    setenv("PMI_FD", "999", 1);
    assert_there(false, &task);
    setenv("PMI_FD", "x", 1);
    assert_there(false, &task);
    /* The launcher has closed it. */
    set_variables(ends[0], 1, 2);
    close(ends[1]);
    assert_there(false, &task);
    unsetenv("PMI_FD");
    assert_there(false, &task);
    close(ends[0]);
}

/* Variables of the machine that runs the test, and of other launchers, do not count. */
static int set_up(void **state)
{
    static const char *const names[] = {"RANK",           "WORLD_SIZE",          "MASTER_ADDR",     "MASTER_PORT",
                                        "LOCKSTEP_TOKEN", "LOCKSTEP_TOKEN_FILE", "LOCKSTEP_BACKEND"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        unsetenv(names[i]);
    return 0;
}

TEST_MAIN(set_up, NULL, TEST(test_good), TEST(test_slow), TEST(test_threads), TEST(test_silent),
          TEST(test_missing_task), TEST(test_interrupted), TEST(test_dying), TEST(test_lying), TEST(test_join),
          TEST(test_join_with_a_lie), TEST(test_not_there))
