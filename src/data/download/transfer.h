/* transfer.h - one HTTP request by libcurl, which is loaded when it is first needed. download.c
 * decides what follows a failure. */
#ifndef LK_DATA_DOWNLOAD_TRANSFER_H
#define LK_DATA_DOWNLOAD_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct lk_transfer {
    const char *url;
    size_t from;                           /* first byte requested */
    double connect_timeout, stall_timeout; /* seconds; stall: without a new byte */
    void *arg;
    /* Called once, before any data. The server's bytes start at `first`, which is `from`, or 0 if
     * the server does not support ranges. `total` is the size of the whole file, 0 if unknown. A
     * failure ends the request. */
    lk_status (*begin)(void *arg, size_t first, size_t total);
    lk_status (*data)(void *arg, const void *bytes, size_t count);
    /* Called at least every second; false ends the request. */
    bool (*proceed)(void *arg);
} lk_transfer;

typedef enum lk_transfer_end {
    LK_TRANSFER_END_DONE,     /* the whole answer has arrived */
    LK_TRANSFER_END_AGAIN,    /* no connection, cut, stalled, server busy: a retry may help */
    LK_TRANSFER_END_REFUSED,  /* the server does not have the file or refuses it */
    LK_TRANSFER_END_NO_RANGE, /* no bytes from `from` on, or the answer starts elsewhere */
    LK_TRANSFER_END_FAILED,   /* begin or data failed; their status and detail are returned */
    LK_TRANSFER_END_STOPPED   /* by proceed */
} lk_transfer_end;

enum { LK_TRANSFER_WHY = 512 };
typedef struct lk_transfer_result {
    lk_transfer_end end;
    lk_status status;          /* of LK_TRANSFER_END_FAILED */
    char why[LK_TRANSFER_WHY]; /* for a person; "" when done */
} lk_transfer_result;

/* UNSUPPORTED, with the package to install, without libcurl. */
lk_status lk__transfer_available(void) LK_CHECKED;
/* Fails if no request could be made; otherwise result says how it ended. */
lk_status lk__transfer_run(const lk_transfer *transfer, lk_transfer_result *result) LK_CHECKED;

#endif
