/* http.h - an HTTP server over libmicrohttpd, which is loaded when it is needed. One thread answers all requests, one
 * after the other. Knows nothing of runs. */
#ifndef LK_SERVE_HTTP_H
#define LK_SERVE_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum { LK_HTTP_OK = 200, LK_HTTP_BAD = 400, LK_HTTP_FORBIDDEN = 403, LK_HTTP_NOT_FOUND = 404 };
enum { LK_HTTP_METHOD = 405, LK_HTTP_TOO_LONG = 414, LK_HTTP_BROKEN = 500 };

typedef struct lk_http_request lk_http_request;
/* Texts of a request, valid while it is answered. */
const char *lk__http_method(const lk_http_request *request);
const char *lk__http_path(const lk_http_request *request); /* escapes are decoded */
const char *lk__http_host(const lk_http_request *request); /* the Host header; NULL: none */
/* A value of the query; NULL: not given. */
const char *lk__http_value(const lk_http_request *request, const char *name);

typedef struct lk_http_reply {
    unsigned code;
    const char *type; /* of the content */
    const char *data; /* (bytes) valid until the next request */
    size_t bytes;
} lk_http_reply;

/* Fills *reply. Called in the server's thread. */
typedef void (*lk_http_answer)(void *arg, const lk_http_request *request, lk_http_reply *reply);

/* UNSUPPORTED if this build or this machine has no libmicrohttpd. */
lk_status lk__http_available(void) LK_CHECKED;

typedef struct lk_http lk_http;
/* Answers connections of a listening socket, which belongs to the server after success. */
lk_status lk__http_start(int listener, lk_http_answer answer, void *arg, lk_http **out) LK_CHECKED;
/* Returns when no request is being answered any more. */
void lk__http_stop(lk_http *http);

#endif
