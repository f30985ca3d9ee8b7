/* test_agent.c - agents without ranks: their messages, how they meet, whom they
 * refuse. Whole jobs of several agents are in tests/cli/run.sh. */
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

static volatile sig_atomic_t interrupted;

static void a_cause_survives_the_wire(void **state)
{
    lk_cause cause = {.rank = 7, .pid = 123456, .status = 11, .stopped_for = 2.5}, back = {0};
    snprintf(cause.host, sizeof cause.host, "node-b");
    memset(cause.tail, 'x', sizeof cause.tail - 1);
    lk_message message = {.kind = LK_MESSAGE_TROUBLE}, got;
    lk__message_set_cause(&message, &cause);
    uint8_t bytes[LK_MESSAGE_BYTES];
    lk__message_encode(&message, bytes);
    assert_true(lk__message_decode(bytes, &got));
    lk__message_get_cause(&got, &back);
    assert_int_equal(got.kind, LK_MESSAGE_TROUBLE);
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
    bytes[0] = LK_MESSAGE_COUNT;
    assert_false(lk__message_decode(bytes, &got));
}

/* A node's name and its ranks' last lines are printed at every other node. */
static void hostile_texts_are_defused(void **state)
{
    lk_message got, sent = {.kind = LK_MESSAGE_HELLO, .name = "\x1b]0;x\a\nnode 0: fine", .text = "one\ntwo\x1b[2J"};
    uint8_t bytes[LK_MESSAGE_BYTES];
    lk__message_encode(&sent, bytes);
    assert_true(lk__message_decode(bytes, &got));
    assert_string_equal(got.name, "??0?x??node?0??fine");
    assert_string_equal(got.text, "one\ntwo?[2J");
    sent.kind = LK_MESSAGE_END;
    snprintf(sent.name, sizeof sent.name, "fe80::1%%eth0\x1b");
    lk__message_encode(&sent, bytes);
    assert_true(lk__message_decode(bytes, &got));
    assert_string_equal(got.name, "fe80::1%eth0?");
}

static void a_link_gives_whole_messages_only(void **state)
{
    int pair[2];
    uint8_t bytes[LK_MESSAGE_BYTES];
    lk_message got, sent = {.kind = LK_MESSAGE_NOTICE, .text = "hello"};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    lk_link link = {.fd = pair[0]};
    lk__message_encode(&sent, bytes);
    assert_int_equal(lk__link_receive(&link, &got), LK_LINK_IDLE);
    assert_int_equal(write(pair[1], bytes, 100), 100);
    assert_int_equal(lk__link_receive(&link, &got), LK_LINK_IDLE);
    assert_int_equal(write(pair[1], bytes + 100, sizeof bytes - 100), (ssize_t)sizeof bytes - 100);
    assert_int_equal(lk__link_receive(&link, &got), LK_LINK_MESSAGE);
    assert_string_equal(got.text, "hello");
    bytes[0] = 0xee;
    assert_int_equal(write(pair[1], bytes, sizeof bytes), (ssize_t)sizeof bytes);
    assert_int_equal(lk__link_receive(&link, &got), LK_LINK_CLOSED);
    close(pair[1]);
    lk__link_close(&link);
    assert_int_equal(lk__link_receive(&link, &got), LK_LINK_CLOSED);
}

typedef struct party {
    lk_launch_meet_opts opts;
    char method[128];
    lk_launch_place place;
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

/* An agent from its first call to the first plan. */
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

static void finish(party *p)
{
    pthread_join(p->thread, NULL);
}

static void pause_for(double seconds)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * seconds)}, NULL);
}

/* A port that nobody uses now. */
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

static void three_nodes_meet_among_strangers(void **state)
{
    int port = free_port(), strangers[20];
    party p[3];
    for (int i = 0; i < 3; i++)
        p[i] = make_party(i, 3, port, 60);
    begin(&p[0]);
    /* More than there are waiting places, half of them silent. */
    for (int i = 0; i < 20; i++)
        connect_stranger(port, i % 2 ? "" : "GET / HTTP/1.1\r\n\r\n", &strangers[i]);
    begin(&p[1]);
    begin(&p[2]);
    for (int i = 0; i < 3; i++)
        finish(&p[i]);
    for (int i = 0; i < 3; i++) {
        if (p[i].status != LK_OK)
            fail_msg("node %d: %s", i, p[i].detail);
        assert_int_equal(p[i].plan.world_size, 1 + 2 + 3);
        assert_int_equal(p[i].plan.first_rank, i * (i + 1) / 2);
        assert_int_equal(p[i].plan.master_port, 1234);
        assert_string_equal(p[i].plan.master_addr, "10.1.2.3");
        assert_string_equal(p[i].plan.run_id, "abc");
    }
    for (int i = 0; i < 3; i++)
        lk__agent_destroy(p[i].agent);
    for (int i = 0; i < 20; i++)
        close(strangers[i]);
}

/* The next message on the link, within a few seconds. */
static lk_message await_message(lk_link *link)
{
    lk_message message = {.kind = LK_MESSAGE_COUNT};
    lk_link_state got = LK_LINK_IDLE;
    for (double end = lk__clock() + 20; got == LK_LINK_IDLE && lk__clock() < end;) {
        (void)lk__net_wait(link->fd, POLLIN, end);
        got = lk__link_receive(link, &message);
    }
    assert_int_equal(got, LK_LINK_MESSAGE);
    return message;
}

/* Joins by hand; node 0 says its name first. */
static void knock(party *p, lk_link *link)
{
    *link = (lk_link){.fd = -1};
    p->opts.init_method = p->method;
    assert_int_equal(lk__launch_meet(&p->opts, link, &p->place), LK_OK);
    lk_message message = await_message(link);
    assert_int_equal(message.kind, LK_MESSAGE_HELLO);
    assert_string_equal(message.name, "leader");
}

enum { JOINED_TEXT = 96 };

/* All parties are threads of this process. */
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
    assert_int_equal(message.kind, LK_MESSAGE_REFUSED);
    if (!strstr(message.text, why))
        fail_msg("'%s' is not in '%s'", why, message.text);
    lk__link_close(&link);
}

static void a_place_is_taken_once_and_given_back(void **state)
{
    int port = free_port();
    char text[JOINED_TEXT];
    party leader = make_party(0, 3, port, 60), one = make_party(1, 3, port, 60), odd = make_party(2, 3, port, 60);
    party two = make_party(2, 3, port, 60);
    odd.opts.nproc = LK_MAX_NPROC + 1;
    lk_link first;
    begin(&leader);
    knock(&one, &first);
    refused_with(&one, joined_text(1, "other", text));
    refused_with(&odd, "no place for `node_rank` 2 with 4097 ranks");
    lk__link_close(&first);
    begin(&one);
    begin(&two);
    finish(&one);
    finish(&two);
    finish(&leader);
    assert_int_equal(one.status, LK_OK);
    assert_int_equal(two.status, LK_OK);
    assert_int_equal(leader.status, LK_OK);
    lk__agent_destroy(one.agent);
    lk__agent_destroy(two.agent);
    lk__agent_destroy(leader.agent);
}

/* Whoever is wrong, the job cannot come about: both are told at once, and the
 * third as well. */
static void the_number_of_nodes_is_compared(void **state)
{
    int port = free_port();
    party leader = make_party(0, 3, port, 60), one = make_party(1, 3, port, 60), other = make_party(2, 4, port, 60);
    static const char why[] = "node 2 on host other was started with `nnodes` 4, node 0 on host leader with `nnodes` 3";
    double start = lk__clock();
    begin(&leader);
    begin(&one);
    while (lk__clock() < start + 0.3)
        pause_for(0.05);
    begin(&other);
    finish(&other);
    finish(&leader);
    finish(&one);
    assert_true(lk__clock() - start < 20);
    assert_int_equal(leader.status, LK_STATUS_MISMATCH);
    assert_contains(leader.detail, why);
    assert_int_not_equal(other.status, LK_OK);
    assert_contains(other.detail, why);
    assert_int_not_equal(one.status, LK_OK);
    assert_contains(one.detail, why);
    lk__agent_destroy(other.agent);
    lk__agent_destroy(one.agent);
}

static void a_second_node_0_is_told_of_the_first(void **state)
{
    int port = free_port(), probe;
    char text[JOINED_TEXT];
    party leader = make_party(0, 2, port, 60), twin = make_party(0, 2, port, 60), one = make_party(1, 2, port, 60);
    begin(&leader);
    connect_stranger(port, "", &probe);
    twin.opts.hostname = "twin";
    attend(&twin);
    assert_int_equal(twin.status, LK_STATUS_MISMATCH);
    assert_contains(twin.detail, joined_text(0, "leader", text));
    assert_contains(twin.detail, "`node_rank`");
    begin(&one);
    finish(&one);
    finish(&leader);
    assert_int_equal(leader.status, LK_OK);
    assert_int_equal(one.status, LK_OK);
    assert_contains(leader.notice, "twin");
    assert_contains(leader.notice, "node 0 has joined already");
    close(probe);
    lk__agent_destroy(one.agent);
    lk__agent_destroy(leader.agent);
}

static void another_token_does_not_join(void **state)
{
    int port = free_port();
    party leader = make_party(0, 2, port, 3), thief = make_party(1, 2, port, 2);
    /* The one reads the variable before it listens, the other after. */
    setenv("LOCKSTEP_TOKEN", "one secret", 1);
    begin(&leader);
    int probe;
    connect_stranger(port, "", &probe);
    setenv("LOCKSTEP_TOKEN", "a guess", 1);
    attend(&thief);
    finish(&leader);
    unsetenv("LOCKSTEP_TOKEN");
    close(probe);
    assert_int_equal(thief.status, LK_STATUS_PEER);
    assert_contains(thief.detail, "has another job token");
    assert_int_equal(leader.status, LK_STATUS_PEER);
    assert_contains(leader.detail, "node 1 of 2 has not joined within 3 s");
    assert_contains(leader.detail, "the peer at 127.0.0.1 has another job token");
    assert_contains(leader.notice, "the peer at 127.0.0.1 has another job token");
}

/* Ranks of a job do not take an agent for theirs, nor the other way round. */
static void ranks_do_not_join_nodes(void **state)
{
    int port = free_port();
    party leader = make_party(0, 2, port, 3);
    begin(&leader);
    lk_group_opts opts = {.init_method = leader.method, .rank = 1, .world_size = 2, .timeout = 1};
    const lk_meeting_crowd ranks = {.noun = "rank", .greeting = "lockstep control 1"};
    lk_meeting meeting;
    assert_fails(lk__meeting_open(&opts, &ranks, &meeting), LK_STATUS_PEER, "is not rank 0 of a job");
    finish(&leader);
    assert_contains(leader.detail, "node 1 of 2 has not joined within 3 s");
}

static void who_waits_hears_who_is_missing(void **state)
{
    int port = free_port();
    party leader = make_party(0, 4, port, 6), one = make_party(1, 4, port, 60);
    begin(&leader);
    begin(&one);
    finish(&leader);
    finish(&one);
    assert_contains(leader.notice, "nodes 2 and 3 of 4 have not joined, ");
    assert_contains(leader.notice, " s left");
    assert_string_equal(one.notice, leader.notice);
    assert_contains(leader.detail, "nodes 2 and 3 of 4 have not joined within 6 s");
    assert_contains(one.detail, leader.detail);
    lk__agent_destroy(one.agent);
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
    party leader = make_party(0, 2, free_port(), 60), one = make_party(1, 2, free_port(), 60);
    interrupted = SIGINT;
    begin(&leader);
    begin(&one);
    finish(&leader);
    finish(&one);
    interrupted = 0;
    assert_int_equal(leader.status, LK_STATUS_PEER);
    assert_int_equal(one.status, LK_STATUS_PEER);
    assert_contains(leader.detail, "interrupted");
    assert_contains(one.detail, "interrupted");
}

typedef struct folder {
    char path[64], file[96];
} folder;

static folder make_folder(void)
{
    folder f = {.path = "/tmp/lk-agent-XXXXXX"};
    assert_non_null(mkdtemp(f.path));
    snprintf(f.file, sizeof f.file, "%s/meet", f.path);
    return f;
}

static void meet_by(const folder *f, party *p)
{
    snprintf(p->method, sizeof p->method, "file://%s", f->file);
}

static void nodes_meet_by_a_file(void **state)
{
    folder f = make_folder();
    party leader = make_party(0, 3, 0, 60), one = make_party(1, 3, 0, 60), two = make_party(2, 3, 0, 60);
    meet_by(&f, &leader);
    meet_by(&f, &one);
    meet_by(&f, &two);
    leader.opts.address = "127.0.0.1";
    leader.opts.port = free_port();
    begin(&one);
    pause_for(0.3);
    begin(&leader);
    /* The token in the file is nobody else's to read. */
    struct stat info;
    while (stat(f.file, &info) != 0)
        pause_for(0.01);
    assert_int_equal(info.st_mode & 0777, 0600);
    begin(&two);
    finish(&one);
    finish(&two);
    finish(&leader);
    assert_int_equal(leader.status, LK_OK);
    assert_int_equal(one.status, LK_OK);
    assert_int_equal(two.status, LK_OK);
    assert_int_equal(two.plan.first_rank, 1 + 2);
    assert_string_equal(leader.place.host, "127.0.0.1");
    assert_int_equal(leader.place.port, leader.opts.port);
    assert_memory_equal(&one.place.token, &leader.place.token, sizeof one.place.token);
    /* All have come: the file has gone. */
    assert_int_equal(rmdir(f.path), 0);
    lk__agent_destroy(one.agent);
    lk__agent_destroy(two.agent);
    lk__agent_destroy(leader.agent);
}

static void a_file_of_another_job_is_refused(void **state)
{
    folder f = make_folder();
    party leader = make_party(0, 2, 0, 60), one = make_party(1, 2, 0, 1);
    meet_by(&f, &leader);
    meet_by(&f, &one);
    FILE *file = fopen(f.file, "w");
    assert_non_null(file);
    fputs("something else\n", file);
    fclose(file);
    attend(&leader);
    assert_int_equal(leader.status, LK_STATUS_USAGE);
    assert_contains(leader.detail, "exists already");
    attend(&one);
    assert_int_equal(one.status, LK_STATUS_PEER);
    assert_contains(one.detail, "node 1 gave up after 1 s");
    /* It was not theirs to remove. */
    assert_int_equal(unlink(f.file), 0);
    assert_int_equal(rmdir(f.path), 0);
}

static void verdicts_read_plainly(void **state)
{
    char text[512];
    lk_launch_verdict verdict = {.outcome = LK_OUTCOME_FAILED,
                                 .cause = {.rank = 2, .pid = 123, .status = SIGSEGV, .host = "b"}};
    lk__launch_verdict_text(&verdict, text, sizeof text);
    assert_string_equal(text, "rank 2 on host b (pid 123) was killed by SIGSEGV (segmentation fault)");
    assert_int_equal(lk__launch_verdict_exit(&verdict), 128 + SIGSEGV);
    verdict.cause.status = 3 << 8;
    lk__launch_verdict_text(&verdict, text, sizeof text);
    assert_string_equal(text, "rank 2 on host b (pid 123) exited with status 3");
    assert_int_equal(lk__launch_verdict_exit(&verdict), 3);
    verdict.outcome = LK_OUTCOME_LOST;
    verdict.node = 1;
    lk__launch_verdict_text(&verdict, text, sizeof text);
    assert_string_equal(text, "node 1 (host b) disappeared");
    assert_int_equal(lk__launch_verdict_exit(&verdict), 1);
    verdict.outcome = LK_OUTCOME_INTERRUPTED;
    verdict.signal = SIGINT;
    lk__launch_verdict_text(&verdict, text, sizeof text);
    assert_string_equal(text, "interrupted by SIGINT");
    assert_int_equal(lk__launch_verdict_exit(&verdict), 130);
}

int main(void)
{
    return RUN_TESTS(a_cause_survives_the_wire, what_cannot_be_is_refused, hostile_texts_are_defused,
                     a_link_gives_whole_messages_only, three_nodes_meet_among_strangers,
                     a_place_is_taken_once_and_given_back, the_number_of_nodes_is_compared,
                     a_second_node_0_is_told_of_the_first, another_token_does_not_join, ranks_do_not_join_nodes,
                     who_waits_hears_who_is_missing, without_node_0_the_wait_ends, a_signal_ends_the_wait,
                     nodes_meet_by_a_file, a_file_of_another_job_is_refused, verdicts_read_plainly);
}
