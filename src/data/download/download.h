/* download.h - downloads a published file from one of several servers.
 *
 * Bytes are collected in PATH.part, which stays after failures and interruptions and is continued
 * later. PATH itself appears only when it is complete and its sums are right. */
#ifndef LK_DATA_DOWNLOAD_DOWNLOAD_H
#define LK_DATA_DOWNLOAD_DOWNLOAD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "data/sets/checksum.h"

/* Callbacks that follow a download. Both are optional. */
typedef struct lk_download_watch {
    void *arg;
    /* `have` bytes of a file are there. Called at least every second; false stops the download with
     * IO. */
    bool (*progress)(void *arg, const char *file, size_t have, size_t total);
    /* A sentence for the user about what was found or comes next. */
    void (*note)(void *arg, const char *text);
} lk_download_watch;
bool lk__download_watch_progress(const lk_download_watch *watch, const char *file, size_t have, size_t total);
void lk__download_watch_note(const lk_download_watch *watch, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

typedef struct lk_download_limits {
    double connect_timeout, stall_timeout; /* seconds */
    double backoff;                        /* seconds before the first retry; doubled for each further retry */
    int retries;                           /* rounds over all servers; counted again after progress */
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

/* MISMATCH if the servers have another file, UNSUPPORTED without libcurl or libcrypto, else IO; the
 * detail says whether the download can be continued. */
lk_status lk__download(const lk_download *download) LK_CHECKED;

#endif
