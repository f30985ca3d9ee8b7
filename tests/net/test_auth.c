/* test_auth.c - given tokens, and handshakes: a client with the token is accepted, also when the bytes come
 * in pieces; a client without the token is refused and gets no proof. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "check.h"
#include "net/auth.h"
#include "temp_folder.h"

enum { CLIENT, SERVER };

/* The two ends of a connection, each with its handshake. */
typedef struct pair {
    int fd[2];
    lk_handshake shake[2];
} pair;

static lk_token token_of(const char *text)
{
    lk_token token;
    assert_int_equal(lk__token_from_text(text, &token), LK_OK);
    return token;
}

static pair pair_open(const char *client_token, const char *server_token)
{
    pair p;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, p.fd), 0);
    const char *texts[2] = {client_token, server_token};
    for (int end = 0; end < 2; end++) {
        uint8_t greeting[LK_GREETING_BYTES];
        memset(greeting, end == SERVER ? 's' : 'c', sizeof greeting);
        lk_token token = token_of(texts[end]);
        lk__handshake_init(&p.shake[end], &token, end == SERVER, greeting);
    }
    return p;
}

static void pair_close(pair *p)
{
    close(p->fd[0]);
    close(p->fd[1]);
}

static lk_handshake_state step(pair *p, int end)
{
    return lk__handshake_step(&p->shake[end], p->fd[end]);
}

/* Both ends take turns, the client first; an end that fails closes. Eight turns are enough. */
static void run_turns(pair *p, int turns)
{
    for (int turn = 0; turn < turns; turn++)
        if (step(p, turn % 2) == LK_HANDSHAKE_STATE_FAILED)
            shutdown(p->fd[turn % 2], SHUT_RDWR);
}

static void assert_failed(pair *p, int end, lk_status status, const char *part)
{
    assert_int_equal(step(p, end), LK_HANDSHAKE_STATE_FAILED);
    assert_int_equal(p->shake[end].status, status);
    assert_detail(part);
}

static void feed(int fd, const void *bytes, size_t count)
{
    assert_int_equal(send(fd, bytes, count, MSG_NOSIGNAL), (ssize_t)count);
}

static size_t waiting(int fd, uint8_t *bytes, size_t room)
{
    ssize_t n = recv(fd, bytes, room, MSG_DONTWAIT);
    return n > 0 ? (size_t)n : 0;
}

static void test_same_token(void **state)
{
    pair p = pair_open("secret", "secret");
    run_turns(&p, 8);
    for (int end = 0; end < 2; end++) {
        assert_int_equal(p.shake[end].state, LK_HANDSHAKE_STATE_DONE);
        assert_int_equal(step(&p, end), LK_HANDSHAKE_STATE_DONE);
        const uint8_t *greeting = lk__handshake_greeting(&p.shake[end]);
        for (int i = 0; i < LK_GREETING_BYTES; i++)
            assert_int_equal(greeting[i], end == SERVER ? 'c' : 's');
        static const lk_token wiped;
        assert_memory_equal(&p.shake[end].token, &wiped, sizeof wiped);
    }
    pair_close(&p);
}

static void test_other_token(void **state)
{
    pair p = pair_open("secret", "Secret");
    run_turns(&p, 3);
    assert_failed(&p, SERVER, LK_STATUS_MISMATCH, "another job token");
    assert_int_equal(p.shake[SERVER].sent_bytes, LK_HELLO_BYTES);
    shutdown(p.fd[SERVER], SHUT_RDWR);
    assert_failed(&p, CLIENT, LK_STATUS_PEER, "another job token");
    pair_close(&p);
}

/* A server without the token sends a false proof. */
static void test_false_server(void **state)
{
    pair p = pair_open("secret", "guess");
    run_turns(&p, 3);
    uint8_t proof[LK_PROOF_BYTES] = {1};
    feed(p.fd[SERVER], proof, sizeof proof);
    assert_failed(&p, CLIENT, LK_STATUS_MISMATCH, "another job token");
    pair_close(&p);
}

static void test_frames_behind_stay(void **state)
{
    pair p = pair_open("secret", "secret");
    run_turns(&p, 3);
    assert_int_equal(step(&p, SERVER), LK_HANDSHAKE_STATE_DONE);
    feed(p.fd[SERVER], "frame", 5);
    assert_int_equal(step(&p, CLIENT), LK_HANDSHAKE_STATE_DONE);
    feed(p.fd[CLIENT], "other", 5);
    assert_int_equal(step(&p, SERVER), LK_HANDSHAKE_STATE_DONE);
    uint8_t bytes[16];
    assert_int_equal(waiting(p.fd[CLIENT], bytes, sizeof bytes), 5);
    assert_memory_equal(bytes, "frame", 5);
    assert_int_equal(waiting(p.fd[SERVER], bytes, sizeof bytes), 5);
    assert_memory_equal(bytes, "other", 5);
    pair_close(&p);
}

/* Moves one byte between two connections. */
static void carry_byte(int from, int to)
{
    uint8_t byte;
    if (waiting(from, &byte, 1) == 1)
        feed(to, &byte, 1);
}

static void test_byte_by_byte(void **state)
{
    pair near = pair_open("secret", "secret"), far = pair_open("secret", "secret");
    size_t turns = 0;
    for (; near.shake[CLIENT].state == LK_HANDSHAKE_STATE_PENDING ||
           far.shake[SERVER].state == LK_HANDSHAKE_STATE_PENDING;
         turns++) {
        assert_true(turns < 4 * LK_HANDSHAKE_BYTES);
        assert_int_not_equal(step(&near, CLIENT), LK_HANDSHAKE_STATE_FAILED);
        carry_byte(near.fd[SERVER], far.fd[CLIENT]);
        assert_int_not_equal(step(&far, SERVER), LK_HANDSHAKE_STATE_FAILED);
        carry_byte(far.fd[CLIENT], near.fd[SERVER]);
    }
    assert_true(turns >= LK_HANDSHAKE_BYTES);
    pair_close(&near);
    pair_close(&far);
}

/* One of the ends finds any bit that changes on the way. */
static void test_every_changed_byte_is_found(void **state)
{
    for (size_t at = 0; at < LK_HANDSHAKE_BYTES; at++)
        for (int sender = 0; sender < 2; sender++) {
            pair p = pair_open("secret", "secret");
            int other = 1 - sender;
            for (int turn = 0; turn < 6; turn++) {
                size_t before = p.shake[sender].sent_bytes;
                /* Only the bytes on the way change, not the sender's copy. */
                bool here = turn % 2 == sender && before <= at;
                if (step(&p, turn % 2) == LK_HANDSHAKE_STATE_FAILED)
                    shutdown(p.fd[turn % 2], SHUT_RDWR);
                if (!here || p.shake[sender].sent_bytes <= at || p.shake[other].state != LK_HANDSHAKE_STATE_PENDING)
                    continue;
                uint8_t wire[LK_HANDSHAKE_BYTES];
                size_t count = waiting(p.fd[other], wire, sizeof wire);
                assert_int_equal(count, p.shake[sender].sent_bytes - before);
                wire[at - before] ^= 0x10;
                feed(p.fd[sender], wire, count);
            }
            bool both = p.shake[0].state == LK_HANDSHAKE_STATE_DONE && p.shake[1].state == LK_HANDSHAKE_STATE_DONE;
            assert_false(both);
            assert_int_not_equal(p.shake[other].state, LK_HANDSHAKE_STATE_DONE);
            pair_close(&p);
        }
}

static void test_reflected_to_client(void **state)
{
    pair p = pair_open("secret", "secret");
    step(&p, CLIENT);
    uint8_t bytes[LK_HANDSHAKE_BYTES];
    size_t count = waiting(p.fd[SERVER], bytes, sizeof bytes);
    assert_int_equal(count, LK_HELLO_BYTES);
    feed(p.fd[SERVER], bytes, count);
    assert_failed(&p, CLIENT, LK_STATUS_FORMAT, "our own bytes");
    pair_close(&p);
}

/* A server with its own nonce sends back the client's proof: the proof of one role is wrong for the
 * other. */
static void test_reflected_proof(void **state)
{
    pair p = pair_open("secret", "secret");
    step(&p, CLIENT);
    uint8_t bytes[LK_HANDSHAKE_BYTES];
    size_t count = waiting(p.fd[SERVER], bytes, sizeof bytes);
    bytes[LK_MAGIC_BYTES] ^= 1;
    feed(p.fd[SERVER], bytes, count);
    assert_int_equal(step(&p, CLIENT), LK_HANDSHAKE_STATE_PENDING);
    count = waiting(p.fd[SERVER], bytes, sizeof bytes);
    assert_int_equal(count, LK_PROOF_BYTES);
    feed(p.fd[SERVER], bytes, count);
    assert_failed(&p, CLIENT, LK_STATUS_MISMATCH, "another job token");
    pair_close(&p);
}

static void test_reflected_to_server(void **state)
{
    pair p = pair_open("secret", "secret");
    feed(p.fd[CLIENT], p.shake[CLIENT].sent, LK_MAGIC_BYTES);
    assert_int_equal(step(&p, SERVER), LK_HANDSHAKE_STATE_PENDING);
    uint8_t bytes[LK_HANDSHAKE_BYTES];
    assert_int_equal(waiting(p.fd[CLIENT], bytes, sizeof bytes), LK_HELLO_BYTES);
    feed(p.fd[CLIENT], bytes + LK_MAGIC_BYTES, LK_HELLO_BYTES - LK_MAGIC_BYTES);
    assert_failed(&p, SERVER, LK_STATUS_FORMAT, "our own bytes");
    pair_close(&p);
}

/* The bytes of an earlier client are refused on a new connection. */
static void test_replay(void **state)
{
    pair first = pair_open("secret", "secret"), second = pair_open("secret", "secret");
    run_turns(&first, 8);
    assert_int_equal(first.shake[SERVER].state, LK_HANDSHAKE_STATE_DONE);
    feed(second.fd[CLIENT], first.shake[CLIENT].sent, LK_HANDSHAKE_BYTES);
    assert_failed(&second, SERVER, LK_STATUS_MISMATCH, "another job token");
    pair_close(&first);
    pair_close(&second);
}

static void test_foreign_protocol(void **state)
{
    static const char *const openings[] = {"G", "GET / HTTP/1.1\r\n\r\n", "SSH-2.0-x\r\n", "LKSTEQ", "LKSTEP ", "\n"};
    for (size_t i = 0; i < COUNT_OF(openings); i++)
        for (int end = 0; end < 2; end++) {
            pair p = pair_open("secret", "secret");
            feed(p.fd[1 - end], openings[i], strlen(openings[i]));
            assert_failed(&p, end, LK_STATUS_FORMAT, "does not speak Lockstep");
            uint8_t bytes[8];
            if (end == SERVER)
                assert_int_equal(waiting(p.fd[CLIENT], bytes, sizeof bytes), 0);
            pair_close(&p);
        }
}

static void test_other_version(void **state)
{
    pair p = pair_open("secret", "secret");
    p.shake[CLIENT].sent[LK_MAGIC_BYTES - 1] = LK_WIRE_VERSION + 1;
    step(&p, CLIENT);
    char other[32], own[32];
    snprintf(other, sizeof other, "speaks version %d of", LK_WIRE_VERSION + 1);
    snprintf(own, sizeof own, "this program version %d;", LK_WIRE_VERSION);
    assert_failed(&p, SERVER, LK_STATUS_MISMATCH, other);
    assert_detail(own);
    close(p.fd[SERVER]);
    /* The client, which has the other version, receives our version. */
    uint8_t bytes[LK_HANDSHAKE_BYTES];
    assert_int_equal(waiting(p.fd[CLIENT], bytes, sizeof bytes), LK_MAGIC_BYTES);
    assert_memory_equal(bytes, p.shake[SERVER].sent, LK_MAGIC_BYTES);
    close(p.fd[CLIENT]);

    p = pair_open("secret", "secret");
    bytes[LK_MAGIC_BYTES - 1] = LK_WIRE_VERSION + 1;
    feed(p.fd[SERVER], bytes, LK_MAGIC_BYTES);
    assert_failed(&p, CLIENT, LK_STATUS_MISMATCH, other);
    pair_close(&p);
}

static void test_scanner_learns_nothing(void **state)
{
    pair p = pair_open("secret", "secret");
    assert_int_equal(step(&p, SERVER), LK_HANDSHAKE_STATE_PENDING);
    assert_int_equal(lk__handshake_events(&p.shake[SERVER]), POLLIN);
    uint8_t bytes[LK_HANDSHAKE_BYTES];
    assert_int_equal(waiting(p.fd[CLIENT], bytes, sizeof bytes), 0);
    feed(p.fd[CLIENT], p.shake[CLIENT].sent, LK_MAGIC_BYTES - 1);
    assert_int_equal(step(&p, SERVER), LK_HANDSHAKE_STATE_PENDING);
    assert_int_equal(waiting(p.fd[CLIENT], bytes, sizeof bytes), 0);
    close(p.fd[CLIENT]);
    assert_failed(&p, SERVER, LK_STATUS_PEER, "in the middle of the handshake");
    close(p.fd[SERVER]);

    p = pair_open("secret", "secret");
    close(p.fd[CLIENT]);
    assert_failed(&p, SERVER, LK_STATUS_PEER, "without a word");
    close(p.fd[SERVER]);
}

static void test_truncated_anywhere(void **state)
{
    for (size_t count = 0; count < LK_HANDSHAKE_BYTES; count++) {
        pair p = pair_open("secret", "secret");
        feed(p.fd[CLIENT], p.shake[CLIENT].sent, count < LK_HELLO_BYTES ? count : LK_HELLO_BYTES);
        assert_int_equal(step(&p, SERVER), LK_HANDSHAKE_STATE_PENDING);
        if (count > LK_HELLO_BYTES) {
            p.shake[CLIENT].sent_bytes = LK_HELLO_BYTES;
            uint8_t none[LK_PROOF_BYTES] = {0};
            feed(p.fd[CLIENT], none, count - LK_HELLO_BYTES);
            assert_int_equal(step(&p, SERVER), LK_HANDSHAKE_STATE_PENDING);
        }
        shutdown(p.fd[CLIENT], SHUT_WR);
        assert_failed(&p, SERVER, LK_STATUS_PEER, "closed the connection");
        pair_close(&p);
    }
}

static void test_events(void **state)
{
    pair p = pair_open("secret", "secret");
    assert_int_equal(lk__handshake_events(&p.shake[CLIENT]), POLLIN | POLLOUT);
    step(&p, CLIENT);
    assert_int_equal(lk__handshake_events(&p.shake[CLIENT]), POLLIN);
    pair_close(&p);
}

static void test_run_has_a_deadline(void **state)
{
    pair p = pair_open("secret", "secret");
    assert_fails(lk__handshake_run(&p.shake[CLIENT], p.fd[CLIENT], lk__clock() + 0.01), LK_STATUS_PEER, "in time");
    step(&p, SERVER);
    step(&p, CLIENT);
    step(&p, SERVER);
    assert_int_equal(lk__handshake_run(&p.shake[CLIENT], p.fd[CLIENT], lk__clock() + 60), LK_OK);
    pair_close(&p);

    p = pair_open("secret", "secret");
    feed(p.fd[SERVER], "HTTP", 4);
    assert_int_equal(lk__handshake_run(&p.shake[CLIENT], p.fd[CLIENT], lk__clock() + 60), LK_STATUS_FORMAT);
    pair_close(&p);
}

static void test_token_text(void **state)
{
    char a[LK_TOKEN_TEXT], b[LK_TOKEN_TEXT];
    assert_int_equal(lk__token_make(a), LK_OK);
    assert_int_equal(lk__token_make(b), LK_OK);
    assert_int_equal(strlen(a), 64);
    assert_int_equal(strspn(a, "0123456789abcdef"), 64);
    assert_string_not_equal(a, b);
    lk_token first = token_of(a), again = token_of(a), other = token_of(b), empty;
    assert_memory_equal(&first, &again, sizeof first);
    assert_memory_not_equal(&first, &other, sizeof first);
    assert_int_equal(lk__token_from_text("", &empty), LK_STATUS_USAGE);
}

static const char *token_file(const char *content, size_t bytes, mode_t mode)
{
    static char path[TEMP_FOLDER_BYTES + 16];
    snprintf(path, sizeof path, "%s/token", temp_folder);
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, bytes), (ssize_t)bytes);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
    setenv("LOCKSTEP_TOKEN_FILE", path, 1);
    return path;
}

static void assert_finds(const char *given, const char *text)
{
    lk_token found_token = {.key = {0}}, expected = token_of(text);
    bool found = false;
    assert_int_equal(lk__token_find(given, &found_token, &found), LK_OK);
    assert_true(found);
    assert_memory_equal(&found_token, &expected, sizeof expected);
}

static void assert_not_usable(lk_status status, const char *path, const char *part)
{
    lk_token token;
    bool found = true;
    assert_int_equal(lk__token_find(NULL, &token, &found), status);
    assert_detail(path);
    assert_detail(part);
}

static void test_token_find(void **state)
{
    lk_token token;
    bool found = true;
    unsetenv("LOCKSTEP_TOKEN");
    unsetenv("LOCKSTEP_TOKEN_FILE");
    assert_int_equal(lk__token_find(NULL, &token, &found), LK_OK);
    assert_false(found);
    setenv("LOCKSTEP_TOKEN", "", 1);
    setenv("LOCKSTEP_TOKEN_FILE", "", 1);
    found = true;
    assert_int_equal(lk__token_find(NULL, &token, &found), LK_OK);
    assert_false(found);
    token_file("from file\n", 10, 0600);
    assert_finds(NULL, "from file");
    setenv("LOCKSTEP_TOKEN", "from variable", 1);
    assert_finds(NULL, "from variable");
    assert_finds("given", "given");
    unsetenv("LOCKSTEP_TOKEN");
}

static void test_token_file(void **state)
{
    unsetenv("LOCKSTEP_TOKEN");
    token_file("one line", 8, 0400);
    assert_finds(NULL, "one line");
    token_file("one line\r\n\n", 11, 0600);
    assert_finds(NULL, "one line");
    static const mode_t open_modes[] = {0640, 0604, 0620, 0602, 0610, 0644, 0666};
    for (size_t i = 0; i < COUNT_OF(open_modes); i++)
        assert_not_usable(LK_STATUS_USAGE, token_file("secret", 6, open_modes[i]), "chmod 600");
    assert_not_usable(LK_STATUS_FORMAT, token_file("", 0, 0600), "empty");
    assert_not_usable(LK_STATUS_FORMAT, token_file("\n", 1, 0600), "empty");
    assert_not_usable(LK_STATUS_FORMAT, token_file("a\0b", 3, 0600), "zero byte at 1");
    static char large[5000];
    memset(large, 'x', sizeof large);
    assert_not_usable(LK_STATUS_FORMAT, token_file(large, sizeof large, 0600), "longer than");
}

static void test_token_file_of_another_kind(void **state)
{
    unsetenv("LOCKSTEP_TOKEN");
    const char *path = token_file("x", 1, 0600);
    unlink(path);
    assert_not_usable(LK_STATUS_NOT_FOUND, path, "No such file");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_not_usable(LK_STATUS_USAGE, path, "not a regular file");
    unlink(path);
    setenv("LOCKSTEP_TOKEN_FILE", temp_folder, 1);
    assert_not_usable(LK_STATUS_USAGE, temp_folder, "not a regular file");
    unsetenv("LOCKSTEP_TOKEN_FILE");
}

TEST_MAIN(temp_folder_set_up, temp_folder_tear_down, TEST(test_same_token), TEST(test_other_token),
          TEST(test_false_server), TEST(test_frames_behind_stay), TEST(test_byte_by_byte),
          TEST(test_every_changed_byte_is_found), TEST(test_reflected_to_client), TEST(test_reflected_proof),
          TEST(test_reflected_to_server), TEST(test_replay), TEST(test_foreign_protocol), TEST(test_other_version),
          TEST(test_scanner_learns_nothing), TEST(test_truncated_anywhere), TEST(test_events),
          TEST(test_run_has_a_deadline), TEST(test_token_text), TEST(test_token_find), TEST(test_token_file),
          TEST(test_token_file_of_another_kind))
