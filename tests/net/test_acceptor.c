/* test_acceptor.c - the acceptor returns clients with the token and the greeting, and drops others. */
#include <sys/socket.h>

#include "base/clock.h"
#include "check.h"
#include "net/acceptor.h"
#include "net/socket.h"

enum { HELLO = 6, SILENT = 100 };

typedef struct fixture {
    lk_acceptor *acceptor;
    lk_token token;
    int port;
} fixture;

static fixture make(void)
{
    fixture f = {0};
    lk_acceptor_opts opts = {.greeting = "friends", .hello_bytes = HELLO};
    assert_int_equal(lk__token_from_text("secret", &f.token), LK_OK);
    assert_int_equal(lk__net_listen("127.0.0.1", 0, &opts.listener, &f.port), LK_OK);
    opts.token = f.token;
    assert_int_equal(lk__acceptor_create(&opts, &f.acceptor), LK_OK);
    return f;
}

static int connect_to(const fixture *f)
{
    int fd = -1;
    assert_int_equal(lk__net_connect("127.0.0.1", f->port, lk__clock() + 10, &fd, NULL), LK_OK);
    return fd;
}

/* Runs the acceptor for at most `seconds`; returns the next accepted client, or -1. */
static int look(const fixture *f, uint8_t *hello, double seconds)
{
    int fd = -1;
    for (double end = lk__clock() + seconds; fd < 0 && lk__clock() < end;) {
        struct pollfd polls[LK_ACCEPTOR_POLLS];
        poll(polls, lk__acceptor_polls(f->acceptor, polls), 10);
        fd = lk__acceptor_next(f->acceptor, hello);
    }
    return fd;
}

/* Runs the handshake; both ends take turns. */
static lk_handshake_state greet(const fixture *f, int fd, const lk_token *token, const char *text)
{
    uint8_t greeting[LK_GREETING_BYTES], hello[HELLO];
    lk_handshake shake;
    lk__acceptor_greeting(text, greeting);
    lk__handshake_init(&shake, token, false, greeting);
    for (double end = lk__clock() + 10;
         lk__handshake_step(&shake, fd) == LK_HANDSHAKE_STATE_PENDING && lk__clock() < end;)
        assert_int_equal(look(f, hello, 0.01), -1);
    return shake.state;
}

static void assert_in(const fixture *f, int fd)
{
    uint8_t hello[HELLO];
    assert_int_equal(send(fd, "hello", HELLO, 0), HELLO);
    int in = look(f, hello, 10);
    assert_true(in >= 0);
    assert_string_equal((char *)hello, "hello");
    close(in);
}

/* Waits until there is something to read; returns the result of recv. */
static ssize_t receive(int fd, void *out, size_t bytes)
{
    assert_true(lk__net_wait(fd, POLLIN, lk__clock() + 10) & POLLIN);
    return recv(fd, out, bytes, 0);
}

static void a_hello_may_come_in_pieces(void **state)
{
    fixture f = make();
    uint8_t hello[HELLO];
    char rest[8];
    int fd = connect_to(&f);
    assert_false(lk__acceptor_timed(f.acceptor));
    assert_int_equal(greet(&f, fd, &f.token, "friends"), LK_HANDSHAKE_STATE_DONE);
    assert_true(lk__acceptor_timed(f.acceptor));
    assert_int_equal(send(fd, "hel", 3, 0), 3);
    assert_int_equal(look(&f, hello, 0.1), -1);
    assert_int_equal(send(fd, "lo\0more", 7, 0), 7);
    int in = look(&f, hello, 10);
    assert_true(in >= 0);
    assert_string_equal((char *)hello, "hello");
    assert_false(lk__acceptor_timed(f.acceptor));
    /* The bytes after the hello are left for the caller. */
    assert_int_equal(receive(in, rest, sizeof rest), 4);
    assert_memory_equal(rest, "more", 4);
    close(in);
    close(fd);
    lk__acceptor_destroy(f.acceptor);
}

static void assert_hung_up(const fixture *f, int fd)
{
    uint8_t byte, hello[HELLO];
    (void)send(fd, "hello", HELLO, MSG_NOSIGNAL);
    assert_int_equal(look(f, hello, 0.1), -1);
    assert_true(receive(fd, &byte, 1) <= 0);
    assert_false(lk__acceptor_timed(f->acceptor));
    close(fd);
}

static void others_stay_outside(void **state)
{
    fixture f = make();
    lk_token guess;
    assert_int_equal(lk__token_from_text("guess", &guess), LK_OK);
    int fd = connect_to(&f);
    assert_int_equal(greet(&f, fd, &guess, "friends"), LK_HANDSHAKE_STATE_FAILED);
    assert_hung_up(&f, fd);
    fd = connect_to(&f);
    assert_int_equal(greet(&f, fd, &f.token, "strangers"), LK_HANDSHAKE_STATE_DONE);
    assert_hung_up(&f, fd);
    fd = connect_to(&f);
    assert_int_equal(send(fd, "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
    assert_hung_up(&f, fd);
    /* A client that leaves in the middle of its hello. */
    fd = connect_to(&f);
    assert_int_equal(greet(&f, fd, &f.token, "friends"), LK_HANDSHAKE_STATE_DONE);
    assert_int_equal(send(fd, "hel", 3, 0), 3);
    shutdown(fd, SHUT_WR);
    assert_hung_up(&f, fd);
    lk__acceptor_destroy(f.acceptor);
}

static void a_crowd_of_silent_ones_is_in_nobodys_way(void **state)
{
    fixture f = make();
    int silent[SILENT];
    uint8_t hello[HELLO];
    for (int i = 0; i < SILENT; i++) {
        silent[i] = connect_to(&f);
        assert_int_equal(look(&f, hello, 0.001), -1);
    }
    int fd = connect_to(&f);
    assert_int_equal(greet(&f, fd, &f.token, "friends"), LK_HANDSHAKE_STATE_DONE);
    assert_in(&f, fd);
    /* The first silent client was dropped to make room, the last was not. */
    uint8_t byte;
    assert_int_equal(recv(silent[0], &byte, 1, MSG_DONTWAIT), 0);
    assert_int_equal(recv(silent[SILENT - 1], &byte, 1, MSG_DONTWAIT), -1);
    for (int i = 0; i < SILENT; i++)
        close(silent[i]);
    close(fd);
    lk__acceptor_destroy(f.acceptor);
}

TEST_MAIN(NULL, NULL, TEST(a_hello_may_come_in_pieces), TEST(others_stay_outside),
          TEST(a_crowd_of_silent_ones_is_in_nobodys_way))
