/* http_missing.c - in place of http.c in a build without libmicrohttpd: no server, so no requests. */
#include "serve/http.h"

lk_status lk__http_available(void)
{
    return lk__fail(LK_STATUS_UNSUPPORTED, "this build has no live page: it was made without libmicrohttpd's headers; "
                                           "install Debian's libmicrohttpd-dev and build again");
}

lk_status lk__http_start(int listener, lk_http_answer answer, void *arg, lk_http **out)
{
    (void)listener, (void)answer, (void)arg, (void)out;
    return lk__http_available();
}

void lk__http_stop(lk_http *http)
{
    (void)http;
}

const char *lk__http_method(const lk_http_request *request)
{
    (void)request;
    return "";
}

const char *lk__http_path(const lk_http_request *request)
{
    (void)request;
    return "";
}

const char *lk__http_host(const lk_http_request *request)
{
    (void)request;
    return NULL;
}

const char *lk__http_value(const lk_http_request *request, const char *name)
{
    (void)request, (void)name;
    return NULL;
}
