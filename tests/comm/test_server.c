/* test_server.c - the order of the server's messages: the reason of a failure comes before the news that a rank has
 * left. The test is both ranks of the job, on sockets of its own. */
#include <poll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "check.h"
#include "comm/control/server.h"
#include "net/socket.h"

enum { SIZE = 2, MESSAGES = 8, ROOM = 65536 };
static const char greeting_text[] = "a test of the server";

static size_t encode(lk_wire_kind kind, int rank, lk_status status, const void *data, size_t bytes, uint8_t *out)
{
    lk_wire message = {.kind = kind, .rank = rank, .size = SIZE, .status = status, .data = data, .bytes = bytes};
    return lk__wire_encode(&message, out);
}

static void say_hello(int fd, int rank)
{
    uint8_t member[LK_WIRE_MEMBER], message[LK_SERVER_HELLO];
    lk__wire_put_member(&(lk_member){.host = "host", .address = "127.0.0.1"}, member);
    size_t bytes = encode(LK_WIRE_KIND_HELLO, rank, LK_OK, member, sizeof member, message);
    assert_int_equal(send(fd, message, bytes, 0), bytes);
}

/* Starts the server; rank 0 has the other end of opts.own. */
static lk_server *start(const lk_token *token, int *rank_0, int *port)
{
    int pair[2];
    lk_acceptor_opts opts = {.token = *token, .greeting = greeting_text, .hello_bytes = LK_SERVER_HELLO};
    lk_server_opts job = {.size = SIZE, .timeout = 60, .exits = "", .threads = 1};
    lk_server *server;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    assert_ok(lk__net_listen("127.0.0.1", 0, &opts.listener, port));
    assert_ok(lk__acceptor_create(&opts, &job.acceptor));
    say_hello(pair[0], 0);
    job.own = pair[1];
    assert_ok(lk__server_start(&job, &server));
    *rank_0 = pair[0];
    return server;
}

static int join_as_rank_1(const lk_token *token, int port)
{
    uint8_t greeting[LK_GREETING_BYTES];
    lk_handshake shake;
    int fd = -1;
    assert_ok(lk__net_connect("127.0.0.1", port, lk__clock() + 10, &fd, NULL));
    lk__acceptor_greeting(greeting_text, greeting);
    lk__handshake_init(&shake, token, false, greeting);
    assert_ok(lk__handshake_run(&shake, fd, lk__clock() + 10));
    say_hello(fd, 1);
    return fd;
}

/* Reads the kinds of the server's messages up to one of kind `last`; returns their count. */
static size_t read_kinds(int fd, lk_wire_kind last, lk_wire_kind kinds[MESSAGES])
{
    static uint8_t in[ROOM];
    size_t count = 0, have = 0, used;
    lk_wire message;
    do {
        while (lk__wire_decode(in, have, sizeof in, true, &message, &used) != LK_WIRE_RESULT_WHOLE) {
            assert_true(lk__net_wait(fd, POLLIN, lk__clock() + 10) & POLLIN);
            ssize_t got = recv(fd, in + have, sizeof in - have, 0);
            assert_true(got > 0);
            have += (size_t)got;
        }
        assert_true(count < MESSAGES);
        kinds[count++] = message.kind;
        have -= used;
        memmove(in, in + used, have);
    } while (kinds[count - 1] != last);
    return count;
}

/* A rank that aborts the job and leaves at once: on a busy host the server reads both messages together. */
static void a_reason_comes_before_the_news_of_leaving(void **state)
{
    static const char reason[] = "rank 1 called another thing";
    uint8_t messages[2 * (LK_WIRE_HEAD + LK_WIRE_TEXT)];
    lk_wire_kind kinds[MESSAGES];
    lk_token token;
    int rank_0, port;
    assert_ok(lk__token_from_text("secret", &token));
    lk_server *server = start(&token, &rank_0, &port);
    int rank_1 = join_as_rank_1(&token, port);
    (void)read_kinds(rank_0, LK_WIRE_KIND_WELCOME, kinds);
    size_t bytes = encode(LK_WIRE_KIND_ABORT, 1, LK_STATUS_MISMATCH, reason, sizeof reason - 1, messages);
    bytes += encode(LK_WIRE_KIND_LEAVE, 1, LK_OK, NULL, 0, messages + bytes);
    assert_int_equal(send(rank_1, messages, bytes, 0), bytes);
    size_t count = read_kinds(rank_0, LK_WIRE_KIND_LEFT, kinds);
    assert_true(count >= 2);
    assert_int_equal(kinds[count - 2], LK_WIRE_KIND_BROKEN);
    bytes = encode(LK_WIRE_KIND_LEAVE, 0, LK_OK, NULL, 0, messages);
    assert_int_equal(send(rank_0, messages, bytes, 0), bytes);
    lk__server_join(server, NULL);
    close(rank_0);
    close(rank_1);
}

TEST_MAIN(NULL, NULL, TEST(a_reason_comes_before_the_news_of_leaving))
