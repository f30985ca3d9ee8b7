/* download.h - a published file from one of several servers into a folder.
 *
 * Bytes are gathered in PATH.part, which outlives failures and interruptions and
 * is gone on with; PATH itself appears when it is whole and its sums are right. */
#ifndef LK_DATA_DOWNLOAD_DOWNLOAD_H
#define LK_DATA_DOWNLOAD_DOWNLOAD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "data/sets/checksum.h"

/* Who is told how it goes. Both are optional. */
typedef struct lk_download_watch {
    void *arg;
    /* So much of a file is there. Called at least every second; false stops the
     * work, which then fails with IO. */
    bool (*progress)(void *arg, const char *file, size_t have, size_t total);
    /* A sentence about what was just found or will be done. */
    void (*note)(void *arg, const char *text);
} lk_download_watch;
bool lk__download_watch_progress(const lk_download_watch *watch, const char *file, size_t have, size_t total);
void lk__download_watch_note(const lk_download_watch *watch, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

typedef struct lk_download_limits {
    double connect_timeout, stall_timeout; /* seconds */
    double backoff;                        /* seconds before the first retry; doubled for each after it */
    int retries;                           /* of all servers, one after another; anew whenever it gets on */
} lk_download_limits;
#define LK_DOWNLOAD_LIMITS_INIT                                                \
    {                                                                          \
        .connect_timeout = 15, .stall_timeout = 30, .backoff = 1, .retries = 3 \
    }

enum { LK_DOWNLOAD_MAX_URLS = 4 };

typedef struct lk_download {
    const char *urls[LK_DOWNLOAD_MAX_URLS]; /* of the same file, tried in this order; NULL after the last */
    const char *path;
    lk_checksum_published published;
    lk_download_limits limits;
    lk_download_watch watch;
} lk_download;

/* MISMATCH where servers have something else, UNSUPPORTED without libcurl or
 * libcrypto, IO for the rest; the detail says whether it can be gone on with. */
lk_status lk__download(const lk_download *download) LK_CHECKED;

#endif
