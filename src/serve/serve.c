/* serve.c - address and token of the live page; joins the parts of the server. */
#include "serve/serve.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/mem.h"
#include "net/host.h"
#include "net/socket.h"
#include "net/token.h"
#include "serve/answer.h"
#include "serve/http.h"

/* Hexadecimal digits: 128 bits. */
enum { TOKEN_DIGITS = 32, BACKLOG = 512 };

struct lk_serve {
    lk_http *http;
    lk_answer *answer;
    char token[LK_TOKEN_TEXT]; /* "": none */
    char address[LK_SERVE_ADDRESS];
};

static lk_status listen_at(const lk_serve_opts *opts, const char *host, int *fd, int *port)
{
    bool taken = !opts->port && lk__net_listen(host, LK_SERVE_PORT, fd, port) != LK_OK;
    if (opts->port || taken)
        LK_TRY(lk__net_listen(host, opts->port, fd, port));
    listen(*fd, BACKLOG); /* many pages may begin at once; the shorter queue works, too */
    return LK_OK;
}

/* A listener at all addresses is reached by the host's own. */
static void write_address(lk_serve *serve, const char *host, int port)
{
    char own[LK_ADDRESS_BYTES];
    bool any = strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
    if (any)
        lk__host_address(own);
    const char *shown = any ? own : host;
    bool v6 = strchr(shown, ':') != NULL;
    snprintf(serve->address, sizeof serve->address, "http://%s%s%s:%d/%s%s", v6 ? "[" : "", shown, v6 ? "]" : "", port,
             serve->token, *serve->token ? "/" : "");
}

/* Other addresses of this machine need the token, too: the answers accept no other name without it. */
static bool is_usual_loopback(const char *host)
{
    return strcmp(host, "127.0.0.1") == 0 || strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0;
}

static lk_status make_token(lk_serve *serve, const char *host)
{
    if (is_usual_loopback(host))
        return LK_OK;
    LK_TRY(lk__token_make(serve->token));
    serve->token[TOKEN_DIGITS] = '\0';
    return LK_OK;
}

lk_status lk__serve_start(const lk_serve_opts *opts, lk_serve **out)
{
    const char *host = opts->host ? opts->host : "127.0.0.1";
    lk_serve *serve;
    int fd = -1, port;
    lk_status status;
    LK_TRY(lk__http_available());
    LK_TRY(LK_ALLOC(1, "the live page", &serve));
    LK_TRY_GOTO(make_token(serve, host), stop);
    LK_TRY_GOTO(lk__answer_create(opts->folder, serve->token, &serve->answer), stop);
    LK_TRY_GOTO(listen_at(opts, host, &fd, &port), stop);
    LK_TRY_GOTO(lk__http_start(fd, lk__answer_request, serve->answer, &serve->http), close_listener);
    write_address(serve, host, port);
    *out = serve;
    return LK_OK;
close_listener:
    lk__fd_close(&fd);
stop:
    lk__serve_stop(serve);
    return status;
}

const char *lk__serve_address(const lk_serve *serve)
{
    return serve->address;
}

void lk__serve_stop(lk_serve *serve)
{
    if (!serve)
        return;
    lk__http_stop(serve->http);
    lk__answer_destroy(serve->answer);
    lk__mem_free(serve);
}
