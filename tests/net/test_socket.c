/* test_socket.c - sockets: addresses, listening, connecting, reserving a port, deadlines. */
#define _GNU_SOURCE /* TCP_USER_TIMEOUT */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "check.h"
#include "net/socket.h"

static const char local[] = "127.0.0.1";

/* Replaces getaddrinfo of libc. While `nameless` is set, no name can be resolved, as on a machine
 * without /etc/hosts and name server. */
static bool nameless;

int getaddrinfo(const char *restrict host, const char *restrict service, const struct addrinfo *restrict hints,
                struct addrinfo **restrict out)
{
    int (*libc)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    struct addrinfo numeric = hints ? *hints : (struct addrinfo){0};
    *(void **)&libc = dlsym(RTLD_NEXT, "getaddrinfo");
    if (nameless)
        numeric.ai_flags |= AI_NUMERICHOST;
    return libc(host, service, &numeric, out);
}

static double soon(void)
{
    return lk__clock() + 60;
}

static int accept_one(int listener)
{
    assert_true(lk__net_wait(listener, POLLIN, soon()) & POLLIN);
    int fd = lk__net_accept(listener);
    assert_true(fd >= 0);
    return fd;
}

/* ends[0] is the connecting end, ends[1] the accepted one. */
static void connect_pair(const char *host, int ends[2])
{
    int listener, port;
    assert_int_equal(lk__net_listen(host, 0, &listener, &port), LK_OK);
    assert_int_equal(lk__net_connect(host, port, soon(), &ends[0], NULL), LK_OK);
    ends[1] = accept_one(listener);
    close(listener);
}

static void close_pair(const int ends[2])
{
    close(ends[0]);
    close(ends[1]);
}

static void test_split(void **state)
{
    static const struct {
        const char *text, *host;
        int port;
    } good[] = {
        {"localhost:29500", "localhost", 29500},   {"10.0.0.7:1", "10.0.0.7", 1},       {"[::1]:65535", "::1", 65535},
        {"[fe80::1%eth0]:80", "fe80::1%eth0", 80}, {"[localhost]:80", "localhost", 80},
    };
    char host[32];
    int port;
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        assert_int_equal(lk__net_split(good[i].text, host, sizeof host, &port), LK_OK);
        assert_string_equal(host, good[i].host);
        assert_int_equal(port, good[i].port);
    }
    static const char *const bad[] = {
        "",        "localhost", ":80",     "a:",     "a:0",     "a:65536", "a:-1",
        "a:+1",    "a: 1",      "a:1x",    "::1:80", "[::1]",   "[]:80",   "[::1:80",
        "::1]:80", "[::1]80",   "[a]b:80", "[:80",   "[[a]]:8", ":",       "a:99999999999999999999"};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        port = 77;
        assert_fails(lk__net_split(bad[i], host, sizeof host, &port), LK_STATUS_USAGE, bad[i]);
        assert_int_equal(port, 77);
    }
    char small[5];
    assert_int_equal(lk__net_split("host:80", small, sizeof small, &port), LK_OK);
    assert_int_equal(lk__net_split("hosts:80", small, sizeof small, &port), LK_STATUS_USAGE);
}

static int option(int fd, int level, int name)
{
    int value = -1;
    socklen_t bytes = sizeof value;
    assert_int_equal(getsockopt(fd, level, name, &value, &bytes), 0);
    return value;
}

static void assert_prepared(int fd, int vanish)
{
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_int_not_equal(option(fd, IPPROTO_TCP, TCP_NODELAY), 0);
    assert_int_not_equal(option(fd, SOL_SOCKET, SO_KEEPALIVE), 0);
    assert_int_equal(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 1000 * vanish);
    int total = option(fd, IPPROTO_TCP, TCP_KEEPIDLE) +
                option(fd, IPPROTO_TCP, TCP_KEEPINTVL) * option(fd, IPPROTO_TCP, TCP_KEEPCNT);
    assert_in_range(total, (uintmax_t)(vanish - vanish / 6), (uintmax_t)vanish);
}

static void test_connect(void **state)
{
    int ends[2];
    connect_pair(local, ends);
    char text[64];
    for (int end = 0; end < 2; end++) {
        assert_prepared(ends[end], LK_NET_VANISH);
        lk__net_local_address(ends[end], text, sizeof text);
        assert_string_equal(text, local);
        lk__net_peer_address(ends[end], text, sizeof text);
        assert_string_equal(text, local);
    }
    close_pair(ends);
}

static void test_options(void **state)
{
    static const struct {
        double asked;
        int set;
    } cases[] = {{0, 2}, {-1, 2}, {2, 2}, {3.7, 3}, {5, 5}, {7, 7}, {11, 11}, {13, 13}, {300, 300}, {1e12, 30000}};
    int ends[2];
    connect_pair(local, ends);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        assert_int_equal(lk__net_prepare(ends[0], cases[i].asked), LK_OK);
        assert_prepared(ends[0], cases[i].set);
    }
    close_pair(ends);
    assert_int_equal(lk__net_prepare(-1, 5), LK_STATUS_IO);
}

static void test_ipv6(void **state)
{
    int listener, port;
    if (lk__net_listen("::1", 0, &listener, &port) != LK_OK)
        skip();
    close(listener);
    int ends[2];
    connect_pair("::1", ends);
    char text[64];
    lk__net_peer_address(ends[0], text, sizeof text);
    assert_string_equal(text, "::1");
    close_pair(ends);
}

/* A listener for IPv4 and IPv6 shows the plain addresses of IPv4 peers. */
static void test_mapped_address(void **state)
{
    int listener = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
    socklen_t bytes = sizeof at;
    int off = 0, fd;
    if (listener < 0 || setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0 ||
        bind(listener, (struct sockaddr *)&at, bytes) != 0)
        skip();
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &bytes), 0);
    assert_int_equal(lk__net_connect(local, ntohs(at.sin6_port), soon(), &fd, NULL), LK_OK);
    int peer = accept_one(listener);
    char text[64];
    lk__net_peer_address(peer, text, sizeof text);
    assert_string_equal(text, local);
    close(peer);
    close(fd);
    close(listener);
}

static void test_address_unknown(void **state)
{
    char text[8] = "x";
    lk__net_local_address(-1, text, sizeof text);
    assert_string_equal(text, "");
    int ends[2];
    connect_pair(local, ends);
    memset(text, 'x', sizeof text);
    lk__net_peer_address(ends[0], text, sizeof text); /* too long for text */
    assert_string_equal(text, "");
    close_pair(ends);
}

static void test_loopback(void **state)
{
    static const char *const own[] = {"127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1", "localhost"};
    static const char *const others[] = {"0.0.0.0", "10.127.0.1", "::", "::ffff:10.0.0.1", "fe80::1"};
    for (size_t i = 0; i < COUNT_OF(own); i++)
        assert_true(lk__net_is_loopback(own[i]));
    for (size_t i = 0; i < COUNT_OF(others); i++)
        assert_false(lk__net_is_loopback(others[i]));
}

static void test_localhost_needs_no_resolver(void **state)
{
    int listener = -1, fd = -1, port = 0;
    bool refused;
    nameless = true;
    lk_status unknown = lk__net_listen("somewhere", 0, &listener, &port);
    bool loopback = lk__net_is_loopback("localhost") && lk__net_is_loopback("LOCALHOST");
    lk_status listening = lk__net_listen("localhost", 0, &listener, &port);
    lk_status connected = lk__net_connect("localhost", port, soon(), &fd, &refused);
    nameless = false;
    assert_int_equal(unknown, LK_STATUS_NOT_FOUND);
    assert_true(loopback);
    assert_int_equal(listening, LK_OK);
    assert_int_equal(connected, LK_OK);
    close(fd);
    close(listener);
}

static void test_busy_port(void **state)
{
    int listener, port, other = -5, other_port = -5;
    char number[16];
    assert_int_equal(lk__net_listen(local, 0, &listener, &port), LK_OK);
    assert_in_range(port, 1, 65535);
    assert_int_equal(lk__net_listen(local, port, &other, &other_port), LK_STATUS_IO);
    snprintf(number, sizeof number, "port %d", port);
    assert_detail(number);
    assert_detail("choose another");
    assert_int_equal(other, -5);
    assert_int_equal(other_port, -5);
    close(listener);
    assert_int_equal(lk__net_listen(local, port, &listener, &other_port), LK_OK);
    assert_int_equal(other_port, port);
    close(listener);
}

static void test_listens_at_one_address(void **state)
{
    int listener, port, fd;
    bool refused = false;
    assert_int_equal(lk__net_listen("127.0.0.2", 0, &listener, &port), LK_OK);
    assert_int_equal(lk__net_connect(local, port, soon(), &fd, &refused), LK_STATUS_IO);
    assert_true(refused);
    close(listener);
    /* No machine has this address: it is reserved for documentation. */
    assert_fails(lk__net_listen("192.0.2.1", 0, &listener, &port), LK_STATUS_IO, "not an address of this machine");
}

static void test_refused(void **state)
{
    int holder, port, fd = -5;
    bool refused = false;
    char number[16];
    assert_int_equal(lk__net_reserve(local, &holder, &port), LK_OK);
    assert_int_equal(lk__net_connect(local, port, soon(), &fd, &refused), LK_STATUS_IO);
    assert_true(refused);
    assert_int_equal(fd, -5);
    snprintf(number, sizeof number, "port %d", port);
    assert_detail(number);
    assert_int_equal(lk__net_connect(local, port, soon(), &fd, NULL), LK_STATUS_IO);
    close(holder);
}

static void test_unknown_host(void **state)
{
    /* A label has at most 63 characters: no name server is asked for this name. */
    char name[81];
    memset(name, 'x', 80);
    name[80] = '\0';
    int fd, port;
    bool refused = true;
    assert_int_equal(lk__net_connect(name, 80, soon(), &fd, &refused), LK_STATUS_NOT_FOUND);
    assert_false(refused);
    assert_detail(name);
    assert_fails(lk__net_listen(name, 0, &fd, &port), LK_STATUS_NOT_FOUND, name);
    assert_false(lk__net_is_loopback(name));
}

/* If nobody listens on a port, a connection to it from the same port would connect the socket to
 * itself. The kernel uses the even ephemeral ports in turn, so this loop uses all of them. */
static void test_never_its_own_peer(void **state)
{
    enum { EPHEMERAL = 28232 };
    int holder, port, listener;
    do {
        assert_int_equal(lk__net_reserve(local, &holder, &port), LK_OK);
        close(holder);
        port &= ~1;
    } while (lk__net_listen(local, port, &listener, &port) != LK_OK);
    close(listener);
    for (int i = 0; i < EPHEMERAL; i++) {
        int fd;
        bool refused = false;
        assert_int_equal(lk__net_connect(local, port, soon(), &fd, &refused), LK_STATUS_IO);
        assert_true(refused);
    }
}

static void test_reserve(void **state)
{
    int holder, port, listener, same;
    assert_int_equal(lk__net_reserve(local, &holder, &port), LK_OK);
    assert_true(fcntl(holder, F_GETFD) & FD_CLOEXEC);
    enum { MANY = 900 };
    static int others[MANY];
    int opened = 0;
    for (; opened < MANY; opened++) {
        int got;
        if (lk__net_reserve(local, &others[opened], &got) != LK_OK)
            break;
        assert_int_not_equal(got, port);
    }
    assert_true(opened > 100);
    while (opened > 0)
        close(others[--opened]);
    assert_int_equal(lk__net_listen(local, port, &listener, &same), LK_OK);
    assert_int_equal(same, port);
    int fd, busy;
    assert_int_equal(lk__net_connect(local, port, soon(), &fd, NULL), LK_OK);
    close(accept_one(listener));
    close(fd);
    /* A second listener is refused, with a reserved port or without. */
    assert_int_equal(lk__net_listen(local, port, &busy, &same), LK_STATUS_IO);
    close(holder);
    assert_int_equal(lk__net_connect(local, port, soon(), &fd, NULL), LK_OK);
    close(fd);
    close(listener);
}

static void test_accept_nobody(void **state)
{
    int listener, port;
    assert_int_equal(lk__net_listen(local, 0, &listener, &port), LK_OK);
    assert_int_equal(lk__net_accept(listener), -1);
    assert_int_equal(errno, EAGAIN);
    close(listener);
}

/* Reads until `bytes` have arrived or the peer has closed; returns how many arrived. */
static size_t receive(int fd, uint8_t *out, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        assert_true(lk__net_wait(fd, POLLIN, soon()) & POLLIN);
        ssize_t n = recv(fd, out + done, bytes - done, 0);
        assert_true(n >= 0);
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return done;
}

static void test_whole_buffers(void **state)
{
    int ends[2];
    connect_pair(local, ends);
    uint8_t sent[1000], got[1000];
    for (size_t i = 0; i < sizeof sent; i++)
        sent[i] = (uint8_t)(i * 7);
    assert_int_equal(lk__net_send_all(ends[0], sent, 400, soon()), LK_OK);
    assert_int_equal(lk__net_send_all(ends[0], sent + 400, 600, soon()), LK_OK);
    assert_int_equal(lk__net_send_all(ends[0], sent, 0, 0), LK_OK);
    assert_int_equal(receive(ends[1], got, sizeof got), sizeof got);
    assert_memory_equal(sent, got, sizeof got);
    close_pair(ends);
}

static void test_closed(void **state)
{
    int ends[2];
    uint8_t bytes[8] = {0};
    connect_pair(local, ends);
    assert_int_equal(lk__net_send_all(ends[0], bytes, 3, soon()), LK_OK);
    close(ends[0]);
    assert_int_equal(receive(ends[1], bytes, 8), 3);
    /* The first send is answered with a reset, a later one fails, without SIGPIPE. */
    lk_status status = LK_OK;
    while (status == LK_OK)
        status = lk__net_send_all(ends[1], bytes, 8, soon());
    assert_int_equal(status, LK_STATUS_PEER);
    close(ends[1]);
}

static void test_deadlines(void **state)
{
    int ends[2];
    static uint8_t large[1 << 20];
    connect_pair(local, ends);
    double deadline = lk__clock() + 0.02;
    assert_int_equal(lk__net_wait(ends[0], POLLIN, deadline), 0);
    assert_true(lk__clock() >= deadline);
    assert_int_equal(lk__net_wait(ends[0], POLLOUT, 0), POLLOUT);
    lk_status status = LK_OK;
    for (int i = 0; i < 1000 && status == LK_OK; i++)
        status = lk__net_send_all(ends[0], large, sizeof large, lk__clock() + 0.01);
    assert_fails(status, LK_STATUS_PEER, "time ran out while sending to 127.0.0.1");
    assert_int_equal(lk__net_wait(ends[1], POLLIN, INFINITY), POLLIN);
    close_pair(ends);
}

/* Connections to a listener with a full queue wait until their deadline. */
static void test_connect_deadline(void **state)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0), fds[64], count = 0;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    assert_int_equal(bind(listener, (struct sockaddr *)&at, bytes), 0);
    assert_int_equal(listen(listener, 0), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &bytes), 0);
    lk_status status = LK_OK;
    bool refused = true;
    while (status == LK_OK && count < 64) {
        status = lk__net_connect(local, ntohs(at.sin_port), lk__clock() + 0.1, &fds[count], &refused);
        count += status == LK_OK;
    }
    assert_int_equal(status, LK_STATUS_PEER);
    assert_false(refused);
    assert_detail("no answer from 127.0.0.1");
    while (count > 0)
        close(fds[--count]);
    close(listener);
}

TEST_MAIN(NULL, NULL, TEST(test_split), TEST(test_connect), TEST(test_options), TEST(test_ipv6),
          TEST(test_mapped_address), TEST(test_address_unknown), TEST(test_loopback),
          TEST(test_localhost_needs_no_resolver), TEST(test_busy_port), TEST(test_listens_at_one_address),
          TEST(test_refused), TEST(test_unknown_host), TEST(test_never_its_own_peer), TEST(test_reserve),
          TEST(test_accept_nobody), TEST(test_whole_buffers), TEST(test_closed), TEST(test_deadlines),
          TEST(test_connect_deadline))
