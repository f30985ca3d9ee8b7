/* http_server.h - a web server for tests. It serves the files of one folder on a free port of 127.0.0.1,
 * one connection at a time, on a thread of its own, with the faults that a test asks for. */
#ifndef LK_TESTS_DATA_HTTP_SERVER_H
#define LK_TESTS_DATA_HTTP_SERVER_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

/* The faults of the server; all zero: none. A negative number of times means always. */
typedef struct http_faults {
    bool no_ranges;       /* it ignores Range and sends the whole file */
    bool no_length;       /* it sends no Content-Length */
    bool shifted_ranges;  /* it sends another range than requested */
    int cuts;             /* number of connections that end early ... */
    size_t cut_after;     /* ... after this many bytes of the file */
    int stalls;           /* number of connections that stop sending ... */
    size_t stall_after;   /* ... after this many bytes of the file */
    int refusals, status; /* number of requests that are answered with this status */
    char redirect[128];   /* URL of a folder to which all requests are redirected */
} http_faults;

typedef struct http_server {
    char root[512]; /* folder of the files */
    char url[64];   /* "http://127.0.0.1:PORT/" */
    int listener, wake[2];
    pthread_t thread;
    pthread_mutex_t lock; /* protects the fields below */
    http_faults faults;
    int requests;
    size_t range; /* first byte of the last request */
} http_server;

static inline bool http_send(int fd, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t n = send(fd, bytes, count, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        bytes += n;
        count -= (size_t)n;
    }
    return true;
}

/* Reads up to the empty line; false when the client has closed the connection. */
static inline bool http_read_request(int fd, char *text, size_t bytes)
{
    size_t used = 0;
    while (used + 1 < bytes) {
        ssize_t n = recv(fd, text + used, bytes - 1 - used, 0);
        if (n <= 0)
            return false;
        used += (size_t)n;
        text[used] = '\0';
        if (strstr(text, "\r\n\r\n") != NULL)
            return true;
    }
    return false;
}

/* Blocks until the client closes the connection or the server is stopped. */
static inline void http_stall(const http_server *server, int fd)
{
    struct pollfd fds[] = {{.fd = fd, .events = POLLIN}, {.fd = server->wake[0], .events = POLLIN}};
    poll(fds, 2, -1);
}

static inline bool http_due(int *times)
{
    if (*times > 0)
        return (*times)-- > 0;
    return *times < 0;
}

/* Counts the request and returns the faults that apply to it; all others are 0. */
static inline http_faults http_note_request(http_server *server, size_t range)
{
    pthread_mutex_lock(&server->lock);
    http_faults now = server->faults;
    now.refusals = http_due(&server->faults.refusals);
    now.cuts = !now.refusals && http_due(&server->faults.cuts);
    now.stalls = !now.refusals && http_due(&server->faults.stalls);
    server->requests++;
    server->range = range;
    pthread_mutex_unlock(&server->lock);
    return now;
}

static inline void http_send_status(int fd, int status, const char *more)
{
    char head[512];
    int length = snprintf(head, sizeof head, "HTTP/1.1 %d x\r\n%sContent-Length: 4\r\nConnection: close\r\n\r\nNo.\n",
                          status, more);
    http_send(fd, head, (size_t)length);
}

static inline void http_send_body(const http_server *server, int fd, FILE *file, const http_faults *faults)
{
    char chunk[4096];
    size_t limit = faults->cuts ? faults->cut_after : faults->stalls ? faults->stall_after : (size_t)-1, got;
    while (limit > 0 && (got = fread(chunk, 1, limit < sizeof chunk ? limit : sizeof chunk, file)) > 0) {
        if (!http_send(fd, chunk, got))
            return;
        limit -= got;
    }
    if (faults->stalls)
        http_stall(server, fd);
}

static inline void http_send_file(const http_server *server, int fd, FILE *file, size_t range,
                                  const http_faults *faults)
{
    char head[512], length_line[64] = "", range_line[128] = "";
    fseek(file, 0, SEEK_END);
    size_t bytes = (size_t)ftell(file), first = range > 0 && !faults->no_ranges ? range : 0;
    if (first > 0 && first >= bytes) {
        http_send_status(fd, 416, "");
        return;
    }
    if (first > 0 && faults->shifted_ranges)
        first--;
    if (!faults->no_length)
        snprintf(length_line, sizeof length_line, "Content-Length: %zu\r\n", bytes - first);
    if (first > 0)
        snprintf(range_line, sizeof range_line, "Content-Range: bytes %zu-%zu/%zu\r\n", first, bytes - 1, bytes);
    int length = snprintf(head, sizeof head, "HTTP/1.1 %s\r\n%s%sConnection: close\r\n\r\n",
                          first > 0 ? "206 Partial Content" : "200 OK", length_line, range_line);
    fseek(file, (long)first, SEEK_SET);
    if (http_send(fd, head, (size_t)length))
        http_send_body(server, fd, file, faults);
}

/* Answers "GET /any/folder/NAME HTTP/1.1"; the folder is ignored. */
static inline void http_answer(http_server *server, int fd)
{
    char text[4096], name[256] = "", path[1024];
    if (!http_read_request(fd, text, sizeof text))
        return;
    const char *asked = strstr(text, "\r\nRange: bytes=");
    size_t range = asked ? strtoul(asked + strlen("\r\nRange: bytes="), NULL, 10) : 0;
    http_faults faults = http_note_request(server, range);
    text[strcspn(text, "\r")] = '\0';
    char *end = strrchr(text, ' ');
    if (end != NULL)
        *end = '\0';
    const char *slash = strrchr(text, '/');
    snprintf(name, sizeof name, "%s", slash ? slash + 1 : "");
    snprintf(path, sizeof path, "%s/%s", server->root, name);
    if (faults.refusals) {
        http_send_status(fd, faults.status, "");
        return;
    }
    if (*faults.redirect) {
        char line[512];
        snprintf(line, sizeof line, "Location: %s%s\r\n", faults.redirect, name);
        http_send_status(fd, 302, line);
        return;
    }
    FILE *file = *name ? fopen(path, "rb") : NULL;
    if (file == NULL) {
        http_send_status(fd, 404, "");
        return;
    }
    http_send_file(server, fd, file, range, &faults);
    fclose(file);
}

static inline void *http_main(void *arg)
{
    http_server *server = arg;
    struct pollfd fds[] = {{.fd = server->listener, .events = POLLIN}, {.fd = server->wake[0], .events = POLLIN}};
    while (poll(fds, 2, -1) > 0 && !(fds[1].revents & POLLIN)) {
        int fd = accept(server->listener, NULL, NULL);
        if (fd < 0)
            continue;
        http_answer(server, fd);
        shutdown(fd, SHUT_WR);
        close(fd);
    }
    return NULL;
}

/* Serves the files of root; false on failure. */
static inline bool http_start(http_server *server, const char *root)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    memset(server, 0, sizeof *server);
    snprintf(server->root, sizeof server->root, "%s", root);
    pthread_mutex_init(&server->lock, NULL);
    server->listener = socket(AF_INET, SOCK_STREAM, 0);
    if (server->listener < 0 || bind(server->listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(server->listener, 16) != 0 || getsockname(server->listener, (struct sockaddr *)&address, &length) != 0 ||
        pipe(server->wake) != 0)
        return false;
    snprintf(server->url, sizeof server->url, "http://127.0.0.1:%d/", ntohs(address.sin_port));
    return pthread_create(&server->thread, NULL, http_main, server) == 0;
}

static inline void http_stop(http_server *server)
{
    if (write(server->wake[1], "x", 1) == 1)
        pthread_join(server->thread, NULL);
    close(server->listener);
    close(server->wake[0]);
    close(server->wake[1]);
    pthread_mutex_destroy(&server->lock);
}

/* Sets the faults and resets the counters. */
static inline void http_set(http_server *server, http_faults faults)
{
    pthread_mutex_lock(&server->lock);
    server->faults = faults;
    server->requests = 0;
    server->range = 0;
    pthread_mutex_unlock(&server->lock);
}

static inline int http_requests(http_server *server)
{
    pthread_mutex_lock(&server->lock);
    int requests = server->requests;
    pthread_mutex_unlock(&server->lock);
    return requests;
}

static inline size_t http_last_range(http_server *server)
{
    pthread_mutex_lock(&server->lock);
    size_t range = server->range;
    pthread_mutex_unlock(&server->lock);
    return range;
}

#endif
