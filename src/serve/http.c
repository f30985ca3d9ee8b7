/* http.c - libmicrohttpd, loaded with dlopen: it brings a TLS library along, which would slow every start of the
 * program. A build without its headers has http_missing.c instead. */
#include "serve/http.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/libraries.h"
#include "base/mem.h"

/* Clients beyond the limit wait until a connection is closed. A connection's memory bounds the length of a request. */
enum { MAX_CONNECTIONS = 512, IDLE_SECONDS = 15, CONNECTION_BYTES = 16384, STACK_BYTES = 8 << 20 };
enum { NOT_MODIFIED = 304, ETAG_BYTES = 24 };

static struct {
    struct MHD_Daemon *(*start_daemon)(unsigned flags, uint16_t port, MHD_AcceptPolicyCallback accept, void *accept_arg,
                                       MHD_AccessHandlerCallback handle, void *arg, ...);
    void (*stop_daemon)(struct MHD_Daemon *daemon);
    struct MHD_Response *(*create_response_from_buffer)(size_t bytes, void *data, enum MHD_ResponseMemoryMode mode);
    enum MHD_Result (*add_response_header)(struct MHD_Response *response, const char *name, const char *value);
    enum MHD_Result (*queue_response)(struct MHD_Connection *connection, unsigned code, struct MHD_Response *response);
    void (*destroy_response)(struct MHD_Response *response);
    const char *(*lookup_connection_value)(struct MHD_Connection *connection, enum MHD_ValueKind kind, const char *key);
} api;

static bool loaded;

#define LOAD(function) lk__library_symbol(library, "MHD_" #function, &api.function)

static void load(void)
{
    void *library = dlopen("libmicrohttpd.so.12", RTLD_NOW | RTLD_LOCAL);
    loaded = library != NULL && LOAD(start_daemon) && LOAD(stop_daemon) && LOAD(create_response_from_buffer) &&
             LOAD(add_response_header) && LOAD(queue_response) && LOAD(destroy_response) &&
             LOAD(lookup_connection_value);
}

lk_status lk__http_available(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    if (loaded)
        return LK_OK;
    return lk__fail(LK_STATUS_UNSUPPORTED,
                    "the live page needs libmicrohttpd.so.12, which is not installed (Debian's libmicrohttpd12)");
}

struct lk_http {
    struct MHD_Daemon *daemon;
    lk_http_answer answer;
    void *arg;
};

struct lk_http_request {
    struct MHD_Connection *connection;
    const char *method, *path;
};

const char *lk__http_method(const lk_http_request *request)
{
    return request->method;
}

const char *lk__http_path(const lk_http_request *request)
{
    return request->path;
}

const char *lk__http_host(const lk_http_request *request)
{
    return api.lookup_connection_value(request->connection, MHD_HEADER_KIND, "Host");
}

const char *lk__http_value(const lk_http_request *request, const char *name)
{
    return api.lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);
}

/* The browser keeps an answer and asks each time whether it is still right. The page loads nothing from elsewhere, and
 * no other site may embed it or learn its address. */
static const char *const headers[][2] = {
    {"Cache-Control", "no-cache"},
    {"Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
                                "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
};

static enum MHD_Result send_reply(struct MHD_Connection *connection, const lk_http_reply *reply)
{
    char tag[ETAG_BYTES];
    const char *known = api.lookup_connection_value(connection, MHD_HEADER_KIND, "If-None-Match");
    snprintf(tag, sizeof tag, "\"%016" PRIx64 "\"", lk__hash(reply->data, reply->bytes, 0));
    bool same = reply->code == LK_HTTP_OK && known && strcmp(known, tag) == 0;
    struct MHD_Response *response =
        api.create_response_from_buffer(same ? 0 : reply->bytes, (void *)reply->data, MHD_RESPMEM_MUST_COPY);
    if (!response)
        return MHD_NO;
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        api.add_response_header(response, headers[i][0], headers[i][1]);
    api.add_response_header(response, "Content-Type", reply->type);
    if (reply->code == LK_HTTP_OK)
        api.add_response_header(response, "ETag", tag);
    if (reply->code == LK_HTTP_METHOD)
        api.add_response_header(response, "Allow", "GET, HEAD");
    enum MHD_Result sent = api.queue_response(connection, same ? NOT_MODIFIED : reply->code, response);
    api.destroy_response(response);
    return sent;
}

/* A request is announced first and answered at the second call; one with content is answered at once, which closes its
 * connection before the content is read. */
static enum MHD_Result handle(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *upload, size_t *upload_bytes, void **memory)
{
    static char announced;
    lk_http *http = arg;
    bool plain = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    (void)version, (void)upload, (void)upload_bytes;
    if (plain && *memory != &announced) {
        *memory = &announced;
        return MHD_YES;
    }
    const lk_http_request request = {.connection = connection, .method = method, .path = url};
    lk_http_reply reply = {.code = LK_HTTP_BROKEN, .type = "text/plain; charset=utf-8", .data = "", .bytes = 0};
    http->answer(http->arg, &request, &reply);
    return send_reply(connection, &reply);
}

lk_status lk__http_start(int listener, lk_http_answer answer, void *arg, lk_http **out)
{
    lk_http *http;
    LK_TRY(lk__http_available());
    LK_TRY(LK_ALLOC(1, "the server", &http));
    *http = (lk_http){.answer = answer, .arg = arg};
    http->daemon =
        api.start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, handle, http, MHD_OPTION_LISTEN_SOCKET, listener,
                         MHD_OPTION_CONNECTION_LIMIT, (unsigned)MAX_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
                         (unsigned)IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
                         MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES, MHD_OPTION_END);
    if (!http->daemon) {
        lk__mem_free(http);
        return lk__fail(LK_STATUS_IO, "cannot start the server of the live page: %s", strerror(errno));
    }
    *out = http;
    return LK_OK;
}

void lk__http_stop(lk_http *http)
{
    if (!http)
        return;
    api.stop_daemon(http->daemon);
    lk__mem_free(http);
}
