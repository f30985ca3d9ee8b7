/* transfer.c - libcurl, loaded with dlopen: linking it would dominate the program's start-up time. */
#include "data/download/transfer.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifndef LK_HAVE_CURL
lk_status lk__transfer_available(void)
{
    return lk__fail(LK_STATUS_UNSUPPORTED, "this build cannot download: it was made without libcurl's headers "
                                           "(Debian's libcurl4-openssl-dev)");
}

lk_status lk__transfer_run(const lk_transfer *transfer, lk_transfer_result *result)
{
    (void)transfer, (void)result;
    return lk__transfer_available();
}
#else
#include <curl/curl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <strings.h>

#include <lockstep/version.h>

#include "base/clock.h"
#include "base/libraries.h"

enum { MAX_REDIRECTS = 5 };
enum { HTTP_PARTIAL = 206, HTTP_TIMEOUT = 408, HTTP_RANGE = 416, HTTP_BUSY = 429, HTTP_SERVER = 500 };

#undef curl_easy_setopt
#undef curl_easy_getinfo

static struct {
    CURLcode (*global_init)(long flags);
    CURL *(*easy_init)(void);
    CURLcode (*easy_setopt)(CURL *curl, CURLoption option, ...);
    CURLcode (*easy_perform)(CURL *curl);
    CURLcode (*easy_getinfo)(CURL *curl, CURLINFO info, ...);
    const char *(*easy_strerror)(CURLcode code);
    void (*easy_cleanup)(CURL *curl);
} api;

static bool loaded;

#define LOAD(function) lk__library_symbol(library, "curl_" #function, &api.function)

/* Never unloaded: libcurl and its TLS library keep state in the process. */
static void load(void)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    void *library = NULL;
    for (size_t i = 0; library == NULL && i < sizeof names / sizeof *names; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    loaded = library != NULL && LOAD(global_init) && LOAD(easy_init) && LOAD(easy_setopt) && LOAD(easy_perform) &&
             LOAD(easy_getinfo) && LOAD(easy_strerror) && LOAD(easy_cleanup) &&
             api.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

lk_status lk__transfer_available(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    if (loaded)
        return LK_OK;
    return lk__fail(LK_STATUS_UNSUPPORTED, "cannot download: libcurl.so.4 is not installed (Debian's libcurl4)");
}

/* A request under way. */
typedef struct request {
    const lk_transfer *transfer;
    CURL *curl;
    bool ranged, begun, stopped, stalled, elsewhere;
    size_t first, total; /* from Content-Range; first SIZE_MAX: unknown */
    curl_off_t arrived;
    double heard; /* time of the last byte */
    lk_status status;
} request;

static long http_code(const request *r)
{
    long code = 0;
    api.easy_getinfo(r->curl, CURLINFO_RESPONSE_CODE, &code);
    return code;
}

static bool parse_number(const char **at, size_t *out)
{
    char *end;
    if (**at < '0' || **at > '9')
        return false;
    unsigned long long value = strtoull(*at, &end, 10);
    *at = end;
    *out = (size_t)value;
    return value <= SIZE_MAX;
}

/* Parses " bytes 100-199/200"; an asterisk stands for an unknown total. */
static void parse_range(request *r, const char *text)
{
    size_t first, last, total = 0;
    text += strspn(text, " \t");
    if (strncasecmp(text, "bytes", 5) != 0)
        return;
    text += 5 + strspn(text + 5, " \t");
    if (!parse_number(&text, &first) || *text++ != '-' || !parse_number(&text, &last) || *text++ != '/')
        return;
    if (*text != '*' && !parse_number(&text, &total))
        return;
    r->first = first;
    r->total = total;
}

/* Headers of redirects come first; each answer starts with its status line. */
static size_t on_header(char *data, size_t size, size_t count, void *arg)
{
    static const char name[] = "content-range:";
    request *r = arg;
    char line[256];
    size_t bytes = size * count;
    snprintf(line, sizeof line, "%.*s", (int)(bytes < sizeof line ? bytes : sizeof line - 1), data);
    if (strncasecmp(line, "http/", 5) == 0) {
        r->first = SIZE_MAX;
        r->total = 0;
    } else if (strncasecmp(line, name, sizeof name - 1) == 0) {
        parse_range(r, line + sizeof name - 1);
    }
    return bytes;
}

/* Called before the first byte of the answer. */
static lk_status begin(request *r)
{
    r->begun = true;
    if (r->ranged && http_code(r) == HTTP_PARTIAL) {
        if (r->first != r->transfer->from) {
            r->elsewhere = true;
            return LK_STATUS_IO;
        }
        return r->transfer->begin(r->transfer->arg, r->first, r->total);
    }
    curl_off_t length = -1;
    api.easy_getinfo(r->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    return r->transfer->begin(r->transfer->arg, 0, length > 0 ? (size_t)length : 0);
}

static size_t on_data(char *data, size_t size, size_t count, void *arg)
{
    request *r = arg;
    size_t bytes = size * count;
    if (!r->begun)
        r->status = begin(r);
    if (r->status == LK_OK && bytes > 0)
        r->status = r->transfer->data(r->transfer->arg, data, bytes);
    return r->status == LK_OK ? bytes : bytes + 1;
}

static int on_progress(void *arg, curl_off_t total, curl_off_t now, curl_off_t upload_total, curl_off_t upload)
{
    (void)total, (void)upload_total, (void)upload;
    request *r = arg;
    double clock = lk__clock();
    if (now != r->arrived)
        r->heard = clock;
    r->arrived = now;
    r->stopped = !r->transfer->proceed(r->transfer->arg);
    r->stalled = clock - r->heard > r->transfer->stall_timeout;
    return r->stopped || r->stalled;
}

#define SET(option, value) api.easy_setopt(r->curl, CURLOPT_##option, value) == CURLE_OK

/* Allows only HTTP, also after redirects: a server must not be able to name a file of this host. */
static bool set_protocols(request *r)
{
#if LIBCURL_VERSION_NUM >= 0x075500
    return SET(PROTOCOLS_STR, "http,https") && SET(REDIR_PROTOCOLS_STR, "http,https");
#else
    return SET(PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS)) &&
           SET(REDIR_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
}

/* Files are transferred as they are: no encoding is requested. A range is requested by a header
 * only, because libcurl's own resuming fails if a server does not support ranges. */
static bool set_up(request *r, char error[CURL_ERROR_SIZE])
{
    const lk_transfer *t = r->transfer;
    char range[32];
    snprintf(range, sizeof range, "%zu-", t->from);
    r->ranged = t->from > 0;
    return set_protocols(r) && SET(URL, t->url) && SET(NOSIGNAL, 1L) && SET(BUFFERSIZE, 262144L) &&
           SET(FAILONERROR, 1L) && SET(FOLLOWLOCATION, 1L) && SET(MAXREDIRS, (long)MAX_REDIRECTS) &&
           SET(USERAGENT, "lockstep/" LK_VERSION) && SET(CONNECTTIMEOUT_MS, (long)(t->connect_timeout * 1000)) &&
           SET(ERRORBUFFER, error) && (!r->ranged || SET(RANGE, range)) && SET(HEADERFUNCTION, on_header) &&
           SET(HEADERDATA, r) && SET(WRITEFUNCTION, on_data) && SET(WRITEDATA, r) && SET(NOPROGRESS, 0L) &&
           SET(XFERINFOFUNCTION, on_progress) && SET(XFERINFODATA, r);
}

static lk_transfer_end end_of_http(long code)
{
    if (code == HTTP_RANGE)
        return LK_TRANSFER_END_NO_RANGE;
    return code >= HTTP_SERVER || code == HTTP_BUSY || code == HTTP_TIMEOUT ? LK_TRANSFER_END_AGAIN
                                                                            : LK_TRANSFER_END_REFUSED;
}

/* Failures of libcurl that a retry cannot cure. */
static lk_transfer_end end_of_curl(CURLcode code)
{
    static const CURLcode final[] = {CURLE_UNSUPPORTED_PROTOCOL,     CURLE_URL_MALFORMAT,      CURLE_TOO_MANY_REDIRECTS,
                                     CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CACERT_BADFILE, CURLE_NOT_BUILT_IN,
                                     CURLE_WEIRD_SERVER_REPLY};
    for (size_t i = 0; i < sizeof final / sizeof *final; i++)
        if (code == final[i])
            return LK_TRANSFER_END_REFUSED;
    return LK_TRANSFER_END_AGAIN;
}

static lk_transfer_end conclude(request *r, CURLcode code, const char *error, char why[LK_TRANSFER_WHY])
{
    const lk_transfer *t = r->transfer;
    if (r->stopped)
        return LK_TRANSFER_END_STOPPED;
    if (r->elsewhere) {
        snprintf(why, LK_TRANSFER_WHY, "%s: asked for byte %zu on, the server sends another part", t->url, t->from);
        return LK_TRANSFER_END_NO_RANGE;
    }
    if (r->status != LK_OK)
        return LK_TRANSFER_END_FAILED;
    if (r->stalled) {
        snprintf(why, LK_TRANSFER_WHY, "%s: nothing has come for %g seconds", t->url, t->stall_timeout);
        return LK_TRANSFER_END_AGAIN;
    }
    if (code == CURLE_HTTP_RETURNED_ERROR) {
        snprintf(why, LK_TRANSFER_WHY, "%s: the server answers %ld", t->url, http_code(r));
        return end_of_http(http_code(r));
    }
    if (code != CURLE_OK) {
        snprintf(why, LK_TRANSFER_WHY, "%s: %s", t->url, *error ? error : api.easy_strerror(code));
        return end_of_curl(code);
    }
    return LK_TRANSFER_END_DONE;
}

lk_status lk__transfer_run(const lk_transfer *transfer, lk_transfer_result *result)
{
    LK_TRY(lk__transfer_available());
    char error[CURL_ERROR_SIZE] = "";
    request state = {.transfer = transfer, .curl = api.easy_init(), .first = SIZE_MAX, .heard = lk__clock()};
    request *r = &state;
    if (r->curl == NULL)
        return lk__fail(LK_STATUS_MEMORY, "no memory for a download");
    if (!set_up(r, error)) {
        api.easy_cleanup(r->curl);
        return lk__fail(LK_STATUS_UNSUPPORTED, "libcurl.so.4 is too old, or lacks HTTP; update Debian's libcurl4");
    }
    CURLcode code = api.easy_perform(r->curl);
    /* An empty file has no first byte. */
    if (code == CURLE_OK && !r->begun)
        r->status = begin(r);
    *result = (lk_transfer_result){.status = r->status};
    result->end = conclude(r, code, error, result->why);
    api.easy_cleanup(r->curl);
    return LK_OK;
}
#endif
