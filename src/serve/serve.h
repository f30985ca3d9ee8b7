/* serve.h - the live page: an HTTP server that shows the run folders in a folder.
 *
 * Only files are read, so the page can be started later, and on a copy of the folder. */
#ifndef LK_SERVE_SERVE_H
#define LK_SERVE_SERVE_H

#include "base/status.h"

/* The port that is tried first if none is given. */
enum { LK_SERVE_PORT = 6060, LK_SERVE_ADDRESS = 256 };

typedef struct lk_serve_opts {
    const char *folder; /* need not exist yet */
    const char *host;   /* address to listen at; NULL: 127.0.0.1 */
    int port;           /* 0: LK_SERVE_PORT, or any free port if that is taken */
} lk_serve_opts;

typedef struct lk_serve lk_serve;
/* Starts the server in a thread of its own. If `host` is not a loopback address, the server draws a random token and
 * refuses every request without it. UNSUPPORTED without libmicrohttpd. */
lk_status lk__serve_start(const lk_serve_opts *opts, lk_serve **out) LK_CHECKED;
/* The address to open in a browser, with the token. Borrowed. */
const char *lk__serve_address(const lk_serve *serve);
void lk__serve_stop(lk_serve *serve);

#endif
