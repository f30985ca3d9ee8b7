/* transfer.h - one HTTP request by libcurl, which is loaded when it is first
 * needed. What is done about a failed request is download.c's business. */
#ifndef LK_DATA_DOWNLOAD_TRANSFER_H
#define LK_DATA_DOWNLOAD_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct lk_transfer {
    const char *url;
    size_t from;                           /* first byte that is asked for */
    double connect_timeout, stall_timeout; /* seconds; the second is time without a byte */
    void *arg;
    /* Called once, before any data: the server's bytes begin at `first`, which is
     * `from`, or 0 where the server knows no ranges; `total` bytes are in the
     * whole file, 0 where it does not say. A failure ends the request. */
    lk_status (*begin)(void *arg, size_t first, size_t total);
    lk_status (*data)(void *arg, const void *bytes, size_t count);
    /* Called at least every second; false ends the request. */
    bool (*proceed)(void *arg);
} lk_transfer;

typedef enum lk_transfer_end {
    LK_TRANSFER_DONE,     /* all of the answer has arrived */
    LK_TRANSFER_AGAIN,    /* no connection, cut, stalled, server busy: another try may help */
    LK_TRANSFER_REFUSED,  /* this server does not have the file, or does not give it */
    LK_TRANSFER_NO_RANGE, /* there is nothing from `from` on, or the answer begins elsewhere */
    LK_TRANSFER_FAILED,   /* begin or data failed; their status and detail are passed on */
    LK_TRANSFER_STOPPED   /* by proceed */
} lk_transfer_end;

enum { LK_TRANSFER_WHY = 512 };
typedef struct lk_transfer_result {
    lk_transfer_end end;
    lk_status status;          /* of LK_TRANSFER_FAILED */
    char why[LK_TRANSFER_WHY]; /* for a person; "" when done */
} lk_transfer_result;

/* UNSUPPORTED, and what to install, where there is no libcurl. */
lk_status lk__transfer_available(void) LK_CHECKED;
/* Fails where no request could be made at all; otherwise result tells how it
 * ended. */
lk_status lk__transfer_run(const lk_transfer *transfer, lk_transfer_result *result) LK_CHECKED;

#endif
