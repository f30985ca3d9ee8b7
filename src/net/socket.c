/* socket.c - TCP sockets over IPv4 and IPv6, and waiting on them with a deadline. The content of messages and
 * authentication are not known here. */
#define _GNU_SOURCE /* accept4, TCP_USER_TIMEOUT */
#include "net/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/spec.h"

/* MIN_VANISH and MAX_VANISH are seconds; the kernel's limit is 32767. */
enum { MIN_VANISH = 2, MAX_VANISH = 30000, MAX_PORT = 65535, ADDRESS_TEXT = 64 };

typedef union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage room;
} address;

static lk_status fail_split(const char *text)
{
    return lk__fail(LK_STATUS_USAGE,
                    "'%s' is not an address; write HOST:PORT, or [ADDRESS]:PORT for IPv6, with a port from 1 to %d",
                    text, MAX_PORT);
}

lk_status lk__net_split(const char *text, char *host, size_t host_bytes, int *port)
{
    const char *colon = strrchr(text, ':');
    long long number;
    if (!colon || colon[1] < '0' || colon[1] > '9' || !lk__number_parse_int(colon + 1, 1, MAX_PORT, &number))
        return fail_split(text);
    const char *begin = text;
    const char *end = colon;
    if (*begin == '[') {
        if (end[-1] != ']')
            return fail_split(text);
        begin++;
        end--;
    } else if (memchr(begin, ':', (size_t)(end - begin))) {
        return fail_split(text);
    }
    size_t length = (size_t)(end - begin);
    if (length == 0 || memchr(begin, '[', length) || memchr(begin, ']', length))
        return fail_split(text);
    if (length >= host_bytes)
        return lk__fail(LK_STATUS_USAGE, "the host name in '%s' is longer than %zu characters", text, host_bytes - 1);
    memcpy(host, begin, length);
    host[length] = '\0';
    *port = (int)number;
    return LK_OK;
}

/* "localhost" is always loopback and needs no resolver: getaddrinfo takes NULL for it. */
static const char *resolvable(const char *host)
{
    return strcasecmp(host, "localhost") == 0 ? NULL : host;
}

static lk_status look_up(const char *host, int port, struct addrinfo **out)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    int error = getaddrinfo(resolvable(host), service, &hints, out);
    if (error == 0)
        return LK_OK;
    return lk__fail(LK_STATUS_NOT_FOUND, "cannot find the host '%s': %s; check its name, or give its address", host,
                    error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
}

static int open_socket(const struct addrinfo *info)
{
    return socket(info->ai_family, info->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, info->ai_protocol);
}

static void set(int fd, int level, int option, int value, bool *failed)
{
    if (setsockopt(fd, level, option, &value, sizeof value) != 0)
        *failed = true;
}

/* Closes without changing errno. */
static void drop(int fd)
{
    int saved = errno;
    close(fd);
    errno = saved;
}

/* Returns a socket bound to info's address, listening if requested; or -1 with errno. */
static int bind_one(const struct addrinfo *info, bool listening)
{
    int fd = open_socket(info);
    if (fd < 0)
        return -1;
    int on = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(fd, info->ai_addr, info->ai_addrlen) != 0 || (listening && listen(fd, SOMAXCONN) != 0)) {
        drop(fd);
        return -1;
    }
    return fd;
}

static int port_of(int fd)
{
    address at = {0};
    socklen_t bytes = sizeof at;
    if (getsockname(fd, &at.any, &bytes) != 0)
        return -1;
    return ntohs(at.any.sa_family == AF_INET6 ? at.v6.sin6_port : at.v4.sin_port);
}

static lk_status fail_bind(const char *host, int port, int error)
{
    const char *next = "";
    if (error == EADDRINUSE)
        next = port == 0 ? "; all ports are taken"
                         : "; another program, or another job, has the port: choose another port";
    else if (error == EADDRNOTAVAIL)
        next = "; it is not an address of this machine";
    else if (error == EACCES)
        next = "; choose a port from 1024 on";
    return lk__fail(LK_STATUS_IO, "cannot listen at %s, port %d: %s%s", host, port, strerror(error), next);
}

/* Binds the first of host's addresses that this machine has. An address in use ends the search, because peers
 * would not try a second address of the same name. */
static lk_status bind_host(const char *host, int port, bool listening, int *fd, int *port_out)
{
    struct addrinfo *list;
    LK_TRY(look_up(host, port, &list));
    int bound = -1, error = EADDRNOTAVAIL;
    for (struct addrinfo *info = list; info && bound < 0; info = info->ai_next) {
        bound = bind_one(info, listening);
        if (bound < 0)
            error = errno;
        if (bound < 0 && error != EADDRNOTAVAIL && error != EAFNOSUPPORT)
            break;
    }
    freeaddrinfo(list);
    if (bound < 0)
        return fail_bind(host, port, error);
    *fd = bound;
    *port_out = port_of(bound);
    return LK_OK;
}

lk_status lk__net_listen(const char *host, int port, int *fd, int *port_out)
{
    return bind_host(host, port, true, fd, port_out);
}

lk_status lk__net_reserve(const char *host, int *holder, int *port)
{
    return bind_host(host, 0, false, holder, port);
}

/* Keep-alive probes begin after half of the time and follow about every sixth of it. The user timeout does
 * the same for data that are not acknowledged. */
lk_status lk__net_prepare(int fd, double vanish)
{
    int seconds = vanish < MIN_VANISH ? MIN_VANISH : vanish > MAX_VANISH ? MAX_VANISH : (int)vanish;
    int idle = seconds / 2;
    int interval = seconds < 6 ? 1 : seconds / 6;
    bool failed = fcntl(fd, F_SETFD, FD_CLOEXEC) != 0;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        failed = true;
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1, &failed);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1, &failed);
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle, &failed);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval, &failed);
    set(fd, IPPROTO_TCP, TCP_KEEPCNT, (seconds - idle) / interval, &failed);
    set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, seconds * 1000, &failed);
    if (failed)
        return lk__fail(LK_STATUS_IO, "cannot set the options of a socket: %s", strerror(errno));
    return LK_OK;
}

double lk__net_vanish(double timeout)
{
    double seconds = timeout / 2;
    return seconds < LK_NET_VANISH ? seconds : LK_NET_VANISH;
}

int lk__net_accept(int listener)
{
    int fd;
    do
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (fd >= 0 && lk__net_prepare(fd, LK_NET_VANISH) != LK_OK) {
        drop(fd);
        return -1;
    }
    return fd;
}

/* If nobody listens at a local port of the ephemeral range, TCP may connect a socket to itself. */
static bool is_own_end(int fd)
{
    address here = {0}, there = {0};
    socklen_t here_bytes = sizeof here, there_bytes = sizeof there;
    if (getsockname(fd, &here.any, &here_bytes) != 0 || getpeername(fd, &there.any, &there_bytes) != 0)
        return false;
    if (here.any.sa_family == AF_INET6)
        return here.v6.sin6_port == there.v6.sin6_port &&
               memcmp(&here.v6.sin6_addr, &there.v6.sin6_addr, sizeof here.v6.sin6_addr) == 0;
    return here.v4.sin_port == there.v4.sin_port && here.v4.sin_addr.s_addr == there.v4.sin_addr.s_addr;
}

/* Waits until the connection of fd is made; returns 0 or an errno value. */
static int complete(int fd, double deadline)
{
    if (lk__net_wait(fd, POLLOUT, deadline) == 0)
        return ETIMEDOUT;
    int error = 0;
    socklen_t bytes = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
        return errno;
    if (error == 0 && is_own_end(fd)) {
        /* Closing with a reset leaves the port free for the process that should listen. */
        const struct linger reset = {.l_onoff = 1};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        return ECONNREFUSED;
    }
    return error;
}

/* Returns a connected socket, or -1 with errno. */
static int connect_one(const struct addrinfo *info, double deadline)
{
    int fd = open_socket(info);
    if (fd < 0)
        return -1;
    int error = 0;
    if (connect(fd, info->ai_addr, info->ai_addrlen) != 0 && errno != EINPROGRESS && errno != EINTR)
        error = errno;
    else
        error = complete(fd, deadline);
    if (error == 0)
        return fd;
    close(fd);
    errno = error;
    return -1;
}

static lk_status fail_connect(const char *host, int port, int error)
{
    if (error == ETIMEDOUT)
        return lk__fail(LK_STATUS_PEER, "no answer from %s, port %d; is the machine up, and do firewalls let it pass?",
                        host, port);
    return lk__fail(LK_STATUS_IO, "cannot connect to %s, port %d: %s", host, port, strerror(error));
}

lk_status lk__net_connect(const char *host, int port, double deadline, int *fd, bool *refused)
{
    if (refused)
        *refused = false;
    struct addrinfo *list;
    LK_TRY(look_up(host, port, &list));
    int left = 0, connected = -1, error = 0;
    for (struct addrinfo *info = list; info; info = info->ai_next)
        left++;
    for (struct addrinfo *info = list; info && connected < 0; info = info->ai_next, left--) {
        /* A silent address gets only its share of the remaining time. */
        double now = lk__clock();
        connected = connect_one(info, deadline > now ? now + (deadline - now) / left : deadline);
        /* "Refused" says more than "unreachable", so it is kept. */
        if (connected < 0 && error != ECONNREFUSED)
            error = errno;
    }
    freeaddrinfo(list);
    if (connected < 0) {
        if (refused)
            *refused = error == ECONNREFUSED;
        return fail_connect(host, port, error);
    }
    lk_status status = lk__net_prepare(connected, LK_NET_VANISH);
    if (status != LK_OK)
        close(connected);
    else
        *fd = connected;
    return status;
}

/* An IPv4-mapped IPv6 address is written as IPv4. */
static void address_text(const address *at, char *text, size_t bytes)
{
    char full[ADDRESS_TEXT] = "";
    if (at->any.sa_family == AF_INET)
        inet_ntop(AF_INET, &at->v4.sin_addr, full, sizeof full);
    else if (at->any.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&at->v6.sin6_addr))
        inet_ntop(AF_INET, at->v6.sin6_addr.s6_addr + 12, full, sizeof full);
    else if (at->any.sa_family == AF_INET6 &&
             getnameinfo(&at->any, sizeof at->v6, full, sizeof full, NULL, 0, NI_NUMERICHOST) != 0)
        full[0] = '\0';
    snprintf(text, bytes, "%s", strlen(full) < bytes ? full : "");
}

void lk__net_local_address(int fd, char *text, size_t bytes)
{
    address at = {0};
    socklen_t length = sizeof at;
    if (getsockname(fd, &at.any, &length) != 0)
        at.any.sa_family = AF_UNSPEC;
    address_text(&at, text, bytes);
}

void lk__net_peer_address(int fd, char *text, size_t bytes)
{
    address at = {0};
    socklen_t length = sizeof at;
    if (getpeername(fd, &at.any, &length) != 0)
        at.any.sa_family = AF_UNSPEC;
    address_text(&at, text, bytes);
}

static bool address_is_loopback(const struct sockaddr *at)
{
    address full = {0};
    memcpy(&full, at, at->sa_family == AF_INET6 ? sizeof full.v6 : sizeof full.v4);
    if (at->sa_family == AF_INET6 && !IN6_IS_ADDR_V4MAPPED(&full.v6.sin6_addr))
        return IN6_IS_ADDR_LOOPBACK(&full.v6.sin6_addr);
    const uint8_t *first = at->sa_family == AF_INET6 ? full.v6.sin6_addr.s6_addr + 12 : (uint8_t *)&full.v4.sin_addr;
    return *first == IN_LOOPBACKNET;
}

bool lk__net_is_loopback(const char *host)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list;
    if (resolvable(host) == NULL)
        return true;
    if (getaddrinfo(host, NULL, &hints, &list) != 0)
        return false;
    bool loopback = true;
    for (struct addrinfo *info = list; info; info = info->ai_next)
        loopback = loopback && address_is_loopback(info->ai_addr);
    freeaddrinfo(list);
    return loopback;
}

short lk__net_wait(int fd, short events, double deadline)
{
    struct pollfd poller = {.fd = fd, .events = events};
    for (;;) {
        double left = deadline - lk__clock();
        /* Rounded up, so that the last wait does not become a busy loop. */
        int milliseconds = left <= 0 ? 0 : left > 1e6 ? INT_MAX / 4 : (int)(left * 1000) + 1;
        int ready = poll(&poller, 1, milliseconds);
        if (ready > 0)
            return poller.revents;
        if (ready < 0 && errno != EINTR && errno != EAGAIN)
            return POLLERR;
        if (left <= 0)
            return 0;
    }
}

static lk_status fail_send(int fd, int error)
{
    char peer[ADDRESS_TEXT];
    lk__net_peer_address(fd, peer, sizeof peer);
    bool lost = error == EPIPE || error == ECONNRESET || error == ETIMEDOUT || error == EHOSTUNREACH;
    return lk__fail(lost ? LK_STATUS_PEER : LK_STATUS_IO, "cannot send to %s: %s", peer[0] ? peer : "the peer",
                    strerror(error));
}

static lk_status fail_late(int fd, size_t done, size_t bytes)
{
    char peer[ADDRESS_TEXT];
    lk__net_peer_address(fd, peer, sizeof peer);
    return lk__fail(LK_STATUS_PEER, "time ran out while sending to %s, after %zu of %zu bytes",
                    peer[0] ? peer : "the peer", done, bytes);
}

lk_status lk__net_send_all(int fd, const void *data, size_t bytes, double deadline)
{
    const uint8_t *from = data;
    for (size_t done = 0; done < bytes;) {
        ssize_t n = send(fd, from + done, bytes - done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0)
            done += (size_t)n;
        else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (lk__net_wait(fd, POLLOUT, deadline) == 0) {
                lk_status status = fail_late(fd, done, bytes);
                errno = 0;
                return status;
            }
        } else if (errno != EINTR) {
            int error = errno;
            lk_status status = fail_send(fd, error);
            errno = error;
            return status;
        }
    }
    return LK_OK;
}

bool lk__net_is_vanished(int error)
{
    return error != 0 && error != ECONNRESET && error != EPIPE;
}
