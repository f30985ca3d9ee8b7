/* test_agent.c - agents without ranks: their messages, their rendezvous, and whom they refuse. Jobs
 * of several agents are in tests/cli/run.sh. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "check.h"
#include "launch/agent.h"
#include "launch/run.h"
#include "net/socket.h"
#include "temp_folder.h"

static volatile sig_atomic_t interrupted;

static void a_cause_survives_the_wire(void **state)
{
    lk_cause cause = {.rank = 7, .pid = 123456, .status = 11, .stopped_for = 2.5}, back = {0};
    snprintf(cause.host, sizeof cause.host, "node-b");
    memset(cause.tail, 'x', sizeof cause.tail - 1);
    lk_message message = {.kind = LK_MESSAGE_KIND_TROUBLE}, got;
    lk__message_set_cause(&message, &cause);
    uint8_t bytes[LK_MESSAGE_BYTES];
    lk__message_encode(&message, bytes);
    assert_true(lk__message_decode(bytes, &got));
    lk__message_get_cause(&got, &back);
    assert_int_equal(got.kind, LK_MESSAGE_KIND_TROUBLE);
    assert_int_equal(back.rank, 7);
    assert_int_equal(back.pid, 123456);
    assert_int_equal(back.status, 11);
    assert_true(back.stopped_for == 2.5);
    assert_string_equal(back.host, "node-b");
    assert_string_equal(back.tail, cause.tail);
}

static void what_cannot_be_is_refused(void **state)
{
    uint8_t bytes[LK_MESSAGE_BYTES];
    lk_message got;
    memset(bytes, 0xff, sizeof bytes);
    assert_false(lk__message_decode(bytes, &got));
    memset(bytes, 0, 8);
    assert_true(lk__message_decode(bytes, &got));
    assert_int_equal(strlen(got.name), LK_MESSAGE_NAME - 1);
    assert_int_equal(strlen(got.text), LK_MESSAGE_TEXT - 1);
    bytes[0] = LK_MESSAGE_KIND_COUNT;
    assert_false(lk__message_decode(bytes, &got));
}

/* The name of a node and the last lines of its ranks are printed on every other node. */
static void hostile_texts_are_defused(void **state)
{
    lk_message got,
        sent = {.kind = LK_MESSAGE_KIND_HELLO, .name = "\x1b]0;x\a\nnode 0: fine", .text = "one\ntwo\x1b[2J"};
    uint8_t bytes[LK_MESSAGE_BYTES];
    lk__message_encode(&sent, bytes);
    assert_true(lk__message_decode(bytes, &got));
    assert_string_equal(got.name, "??0?x??node?0??fine");
    assert_string_equal(got.text, "one\ntwo?[2J");
    sent.kind = LK_MESSAGE_KIND_END;
    snprintf(sent.name, sizeof sent.name, "fe80::1%%eth0\x1b");
    lk__message_encode(&sent, bytes);
    assert_true(lk__message_decode(bytes, &got));
    assert_string_equal(got.name, "fe80::1%eth0?");
}

static void a_link_gives_whole_messages_only(void **state)
{
    int pair[2];
    uint8_t bytes[LK_MESSAGE_BYTES];
    lk_message got, sent = {.kind = LK_MESSAGE_KIND_NOTICE, .text = "hello"};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    lk_link link = {.fd = pair[0]};
    lk__message_encode(&sent, bytes);
    assert_int_equal(lk__link_receive(&link, &got), LK_LINK_STATE_IDLE);
    assert_int_equal(write(pair[1], bytes, 100), 100);
    assert_int_equal(lk__link_receive(&link, &got), LK_LINK_STATE_IDLE);
    assert_int_equal(write(pair[1], bytes + 100, sizeof bytes - 100), (ssize_t)sizeof bytes - 100);
    assert_int_equal(lk__link_receive(&link, &got), LK_LINK_STATE_MESSAGE);
    assert_string_equal(got.text, "hello");
    bytes[0] = 0xee;
    assert_int_equal(write(pair[1], bytes, sizeof bytes), (ssize_t)sizeof bytes);
    assert_int_equal(lk__link_receive(&link, &got), LK_LINK_STATE_CLOSED);
    close(pair[1]);
    lk__link_close(&link);
    assert_int_equal(lk__link_receive(&link, &got), LK_LINK_STATE_CLOSED);
}

typedef struct party {
    lk_launch_rendezvous_opts opts;
    char method[512];
    lk_launch_address place;
    lk_agent *agent;
    lk_launch_plan plan;
    lk_status status;
    char detail[512], notice[512];
    pthread_t thread;
} party;

static void keep_notice(void *arg, const char *text)
{
    party *p = arg;
    snprintf(p->notice, sizeof p->notice, "%s", text);
}

static party make_party(int node, int nnodes, int port, double timeout)
{
    party p = {.opts = {.node_rank = node,
                        .nnodes = nnodes,
                        .nproc = node + 1,
                        .hostname = node ? "other" : "leader",
                        .timeout = timeout,
                        .interrupted = &interrupted}};
    snprintf(p.method, sizeof p.method, "tcp://127.0.0.1:%d", port);
    return p;
}

/* Runs an agent from its creation to its first plan. */
static void *attend(void *arg)
{
    party *p = arg;
    p->opts.init_method = p->method;
    p->opts.notice = keep_notice;
    p->opts.notice_arg = p;
    p->status = lk__agent_create(&p->opts, &p->place, &p->agent);
    if (p->status == LK_OK) {
        if (p->opts.node_rank == 0)
            p->plan = (lk_launch_plan){.master_port = 1234, .master_addr = "10.1.2.3", .run_id = "abc"};
        p->status = lk__agent_plan(p->agent, &p->plan);
    }
    snprintf(p->detail, sizeof p->detail, "%s", lk_error_detail());
    return NULL;
}

static void begin(party *p)
{
    assert_int_equal(pthread_create(&p->thread, NULL, attend, p), 0);
}

/* Waits for the parties. */
static void finish(party *p, int count)
{
    for (int i = 0; i < count; i++)
        pthread_join(p[i].thread, NULL);
}

/* Waits for the parties, which must have their plans, and destroys their agents. */
static void finish_well(party *p, int count)
{
    finish(p, count);
    for (int i = 0; i < count; i++)
        if (p[i].status != LK_OK)
            fail_msg("node %d: %s", p[i].opts.node_rank, p[i].detail);
    for (int i = count - 1; i >= 0; i--)
        lk__agent_destroy(p[i].agent);
}

static void pause_for(double seconds)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * seconds)}, NULL);
}

/* Returns a port that is not in use now. */
static int free_port(void)
{
    int holder, port;
    assert_int_equal(lk__net_reserve("127.0.0.1", &holder, &port), LK_OK);
    close(holder);
    return port;
}

static void connect_stranger(int port, const char *words, int *fd)
{
    bool refused = true;
    for (double end = lk__clock() + 10; refused && lk__clock() < end;)
        if (lk__net_connect("127.0.0.1", port, lk__clock() + 5, fd, &refused) == LK_OK)
            break;
    assert_false(refused);
    (void)!write(*fd, words, strlen(words));
}

static void three_nodes_join_among_strangers(void **state)
{
    int port = free_port(), strangers[20];
    party p[3];
    for (int i = 0; i < 3; i++)
        p[i] = make_party(i, 3, port, 60);
    begin(&p[0]);
    /* More strangers than the acceptor keeps, half of them silent. */
    for (int i = 0; i < 20; i++)
        connect_stranger(port, i % 2 ? "" : "GET / HTTP/1.1\r\n\r\n", &strangers[i]);
    begin(&p[1]);
    begin(&p[2]);
    finish_well(p, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(p[i].plan.world_size, 1 + 2 + 3);
        assert_int_equal(p[i].plan.first_rank, i * (i + 1) / 2);
        assert_int_equal(p[i].plan.master_port, 1234);
        assert_string_equal(p[i].plan.master_addr, "10.1.2.3");
        assert_string_equal(p[i].plan.run_id, "abc");
    }
    for (int i = 0; i < 20; i++)
        close(strangers[i]);
}

/* Waits at most 20 s for the next message on the link. */
static lk_message await_message(lk_link *link)
{
    lk_message message = {.kind = LK_MESSAGE_KIND_COUNT};
    lk_link_state got = LK_LINK_STATE_IDLE;
    for (double end = lk__clock() + 20; got == LK_LINK_STATE_IDLE && lk__clock() < end;) {
        (void)lk__net_wait(link->fd, POLLIN, end);
        got = lk__link_receive(link, &message);
    }
    assert_int_equal(got, LK_LINK_STATE_MESSAGE);
    return message;
}

/* Joins without an agent; node 0 sends its name first. */
static void knock(party *p, lk_link *link)
{
    *link = (lk_link){.fd = -1};
    p->opts.init_method = p->method;
    assert_int_equal(lk__launch_rendezvous(&p->opts, link, &p->place), LK_OK);
    lk_message message = await_message(link);
    assert_int_equal(message.kind, LK_MESSAGE_KIND_HELLO);
    assert_string_equal(message.name, "leader");
}

enum { JOINED_TEXT = 96 };

/* All parties are threads of this process and have its process id. */
static const char *joined_text(int node, const char *host, char text[JOINED_TEXT])
{
    snprintf(text, JOINED_TEXT, "node %d has joined already, from %s (pid %d)", node, host, (int)getpid());
    return text;
}

static void refused_with(party *p, const char *why)
{
    lk_link link;
    knock(p, &link);
    lk_message message = await_message(&link);
    assert_int_equal(message.kind, LK_MESSAGE_KIND_REFUSED);
    if (!strstr(message.text, why))
        fail_msg("'%s' is not in '%s'", why, message.text);
    lk__link_close(&link);
}

static void a_place_is_taken_once_and_given_back(void **state)
{
    int port = free_port();
    char text[JOINED_TEXT];
    party p[3] = {make_party(0, 3, port, 60), make_party(1, 3, port, 60), make_party(2, 3, port, 60)}, odd = p[2];
    odd.opts.nproc = LK_MAX_NPROC + 1;
    lk_link first;
    begin(&p[0]);
    knock(&p[1], &first);
    refused_with(&p[1], joined_text(1, "other", text));
    refused_with(&odd, "`node_rank` 2 with 4097 ranks is impossible");
    lk__link_close(&first);
    begin(&p[1]);
    begin(&p[2]);
    finish_well(p, 3);
}

/* Two nodes disagree: the job cannot start, and all three get the error at once. */
static void the_number_of_nodes_is_compared(void **state)
{
    int port = free_port();
    party p[3] = {make_party(0, 3, port, 60), make_party(1, 3, port, 60), make_party(2, 4, port, 60)};
    static const char why[] = "node 2 on host other was started with `nnodes` 4, node 0 on host leader with `nnodes` 3";
    double start = lk__clock();
    begin(&p[0]);
    begin(&p[1]);
    pause_for(0.3);
    begin(&p[2]);
    finish(p, 3);
    assert_true(lk__clock() - start < 20);
    assert_int_equal(p[0].status, LK_STATUS_MISMATCH);
    for (int i = 0; i < 3; i++) {
        assert_int_not_equal(p[i].status, LK_OK);
        assert_contains(p[i].detail, why);
    }
    lk__agent_destroy(p[2].agent);
    lk__agent_destroy(p[1].agent);
}

static void a_second_node_0_is_told_of_the_first(void **state)
{
    int port = free_port(), probe;
    char text[JOINED_TEXT];
    party p[2] = {make_party(0, 2, port, 60), make_party(1, 2, port, 60)}, twin = p[0];
    begin(&p[0]);
    connect_stranger(port, "", &probe);
    twin.opts.hostname = "twin";
    attend(&twin);
    assert_int_equal(twin.status, LK_STATUS_MISMATCH);
    assert_contains(twin.detail, joined_text(0, "leader", text));
    assert_contains(twin.detail, "`node_rank`");
    begin(&p[1]);
    finish_well(p, 2);
    assert_contains(p[0].notice, "twin");
    assert_contains(p[0].notice, "node 0 has joined already");
    close(probe);
}

static void another_token_does_not_join(void **state)
{
    int port = free_port();
    party leader = make_party(0, 2, port, 3), thief = make_party(1, 2, port, 2);
    /* Node 0 reads the variable before it listens, node 1 later. */
    setenv("LOCKSTEP_TOKEN", "one secret", 1);
    begin(&leader);
    int probe;
    connect_stranger(port, "", &probe);
    setenv("LOCKSTEP_TOKEN", "a guess", 1);
    attend(&thief);
    finish(&leader, 1);
    unsetenv("LOCKSTEP_TOKEN");
    close(probe);
    assert_int_equal(thief.status, LK_STATUS_PEER);
    assert_contains(thief.detail, "has another job token");
    assert_int_equal(leader.status, LK_STATUS_PEER);
    assert_contains(leader.detail, "node 1 of 2 has not joined within 3 s");
    assert_contains(leader.detail, "the peer at 127.0.0.1 has another job token");
    assert_contains(leader.notice, "the peer at 127.0.0.1 has another job token");
}

/* A rank cannot join nodes, and a node cannot join ranks. */
static void ranks_do_not_join_nodes(void **state)
{
    int port = free_port();
    party leader = make_party(0, 2, port, 3);
    begin(&leader);
    lk_group_opts opts = {.init_method = leader.method, .rank = 1, .world_size = 2, .timeout = 1};
    const lk_meeting_kind ranks = {.noun = "rank", .greeting = "lockstep control 1"};
    lk_meeting meeting;
    assert_fails(lk__meeting_open(&opts, &ranks, &meeting), LK_STATUS_PEER, "is not rank 0 of a job");
    finish(&leader, 1);
    assert_contains(leader.detail, "node 1 of 2 has not joined within 3 s");
}

static void who_waits_hears_who_is_missing(void **state)
{
    int port = free_port();
    party p[2] = {make_party(0, 4, port, 6), make_party(1, 4, port, 60)};
    begin(&p[0]);
    begin(&p[1]);
    finish(p, 2);
    assert_contains(p[0].notice, "nodes 2 and 3 of 4 have not joined, ");
    assert_contains(p[0].notice, " s left");
    assert_string_equal(p[1].notice, p[0].notice);
    assert_contains(p[0].detail, "nodes 2 and 3 of 4 have not joined within 6 s");
    assert_contains(p[1].detail, p[0].detail);
    lk__agent_destroy(p[1].agent);
}

static void without_node_0_the_wait_ends(void **state)
{
    party one = make_party(1, 2, free_port(), 1);
    attend(&one);
    assert_int_equal(one.status, LK_STATUS_PEER);
    assert_non_null(strstr(one.detail, "does not answer; node 1 gave up after 1 s"));
}

static void a_signal_ends_the_wait(void **state)
{
    party p[2] = {make_party(0, 2, free_port(), 60), make_party(1, 2, free_port(), 60)};
    interrupted = SIGINT;
    begin(&p[0]);
    begin(&p[1]);
    finish(p, 2);
    interrupted = 0;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(p[i].status, LK_STATUS_PEER);
        assert_contains(p[i].detail, "interrupted");
    }
}

/* A party that joins through the file. */
static party make_party_by(const char *file, int node, int nnodes, double timeout)
{
    party p = make_party(node, nnodes, 0, timeout);
    assert_true(snprintf(p.method, sizeof p.method, "file://%s", file) < (int)sizeof p.method);
    return p;
}

static void nodes_join_by_a_file(void **state)
{
    temp_folder_set_up(state);
    const char *file = temp_path("rendezvous");
    party p[3] = {make_party_by(file, 0, 3, 60), make_party_by(file, 1, 3, 60), make_party_by(file, 2, 3, 60)};
    p[0].opts.address = "127.0.0.1";
    p[0].opts.port = free_port();
    begin(&p[1]);
    pause_for(0.3);
    begin(&p[0]);
    /* The file has the token: only its owner may read it. */
    struct stat info;
    while (stat(file, &info) != 0)
        pause_for(0.01);
    assert_int_equal(info.st_mode & 0777, 0600);
    begin(&p[2]);
    finish_well(p, 3);
    assert_int_equal(p[2].plan.first_rank, 1 + 2);
    assert_string_equal(p[0].place.host, "127.0.0.1");
    assert_int_equal(p[0].place.port, p[0].opts.port);
    assert_memory_equal(&p[1].place.token, &p[0].place.token, sizeof p[1].place.token);
    /* The file is removed when all nodes have joined. */
    assert_int_equal(rmdir(temp_folder), 0);
}

static void a_file_of_another_job_is_refused(void **state)
{
    temp_folder_set_up(state);
    const char *file = temp_path("rendezvous");
    party leader = make_party_by(file, 0, 2, 60), one = make_party_by(file, 1, 2, 1);
    temp_write(file, "something else\n", 15);
    attend(&leader);
    assert_int_equal(leader.status, LK_STATUS_USAGE);
    assert_contains(leader.detail, "exists already");
    attend(&one);
    assert_int_equal(one.status, LK_STATUS_PEER);
    assert_contains(one.detail, "node 1 gave up after 1 s");
    /* The agents did not remove the file of another job. */
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(temp_folder), 0);
}

static void verdicts_read_plainly(void **state)
{
    static const struct {
        lk_launch_verdict verdict;
        const char *text;
        int exit;
    } rows[] = {
        {{.outcome = LK_AGENT_OUTCOME_FAILED, .cause = {.rank = 2, .pid = 123, .status = SIGSEGV, .host = "b"}},
         "rank 2 on host b (pid 123) was killed by SIGSEGV (segmentation fault)",
         128 + SIGSEGV},
        {{.outcome = LK_AGENT_OUTCOME_FAILED, .cause = {.rank = 2, .pid = 123, .status = 3 << 8, .host = "b"}},
         "rank 2 on host b (pid 123) exited with status 3",
         3},
        {{.outcome = LK_AGENT_OUTCOME_LOST, .node = 1, .cause = {.host = "b"}}, "node 1 (host b) disappeared", 1},
        {{.outcome = LK_AGENT_OUTCOME_INTERRUPTED, .signal = SIGINT}, "interrupted by SIGINT", 130},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char text[512];
        lk__launch_verdict_text(&rows[i].verdict, text, sizeof text);
        assert_string_equal(text, rows[i].text);
        assert_int_equal(lk__launch_verdict_exit(&rows[i].verdict), rows[i].exit);
    }
}

TEST_MAIN(NULL, NULL, TEST(a_cause_survives_the_wire), TEST(what_cannot_be_is_refused), TEST(hostile_texts_are_defused),
          TEST(a_link_gives_whole_messages_only), TEST(three_nodes_join_among_strangers),
          TEST(a_place_is_taken_once_and_given_back), TEST(the_number_of_nodes_is_compared),
          TEST(a_second_node_0_is_told_of_the_first), TEST(another_token_does_not_join), TEST(ranks_do_not_join_nodes),
          TEST(who_waits_hears_who_is_missing), TEST(without_node_0_the_wait_ends), TEST(a_signal_ends_the_wait),
          TEST(nodes_join_by_a_file), TEST(a_file_of_another_job_is_refused), TEST(verdicts_read_plainly))
