/* rendezvous.h - how the ranks of a job find the server in rank 0.
 *
 * A method tells rank 0 where to listen and the others where to call. Calls are
 * proved by the token at both ends before they count; what happens over them is
 * not known here. */
#ifndef LK_COMM_RENDEZVOUS_H
#define LK_COMM_RENDEZVOUS_H

#include <limits.h>

#include "comm/auth.h"
#include "comm/control.h"
#include "comm/patience.h"

enum { LK_MEETING_HOST = 256, LK_NONCE_TEXT = 65 };

typedef struct lk_method lk_method;

typedef struct lk_meeting {
    const lk_method *method;
    int rank, size;
    lk_patience patience;
    lk_token token;
    lk_token user; /* of file://: the user's part of it */
    bool secret;   /* the user gave a token */
    int fd;        /* rank 0: it listens; the others: the proved connection. The caller's once it took it (-1). */
    char host[LK_MEETING_HOST];
    int port, ports;           /* the first port, and how many are tried */
    char path[PATH_MAX];       /* of file:// */
    char nonce[LK_NONCE_TEXT]; /* in our file; "" while there is none */
} lk_meeting;

struct lk_method {
    const char *scheme; /* "tcp://" */
    const char *summary;
    /* Fills in what the options and the environment say; rest follows the scheme. */
    lk_status (*find)(lk_meeting *meeting, const lk_group_opts *opts, const char *rest);
    /* Rank 0: opens the listener. */
    lk_status (*listen)(lk_meeting *meeting);
    /* The others: one attempt, of a second or so for each place that is tried.
     * LK_OK sets fd, or leaves it at -1 when it makes sense to try again; then
     * the thread's error detail tells what is missing. */
    lk_status (*call)(lk_meeting *meeting);
    /* Optional: rank 0, when all have come or nobody can any more. */
    void (*over)(lk_meeting *meeting);
};

extern const lk_method lk__method_env, lk__method_tcp, lk__method_file;
/* Rows of the table, NULL after the last. */
const lk_method *lk__method_list(size_t index);

/* Rank 0 listens, the others are connected when it returns. Waits until the
 * timeout, with notices. */
lk_status lk__meeting_open(const lk_group_opts *opts, lk_meeting *out) LK_CHECKED;
/* No more ranks are expected: what was left for them to find is removed. */
void lk__meeting_over(lk_meeting *meeting);
/* Also closes fd, if it still has one. */
void lk__meeting_close(lk_meeting *meeting);

/* For methods: rank and world size of the options, checked. */
lk_status lk__meeting_rank(lk_meeting *meeting, long long rank, long long size) LK_CHECKED;
/* One attempt at an address: connect and handshake, within `seconds`. */
lk_status lk__meeting_call_at(lk_meeting *meeting, const char *host, int port, double seconds) LK_CHECKED;
/* listen and call over host and ports, shared by env:// and tcp://. */
lk_status lk__meeting_listen_ports(lk_meeting *meeting) LK_CHECKED;
lk_status lk__meeting_call_ports(lk_meeting *meeting) LK_CHECKED;
/* The user's token, else one that tells this meeting place from others. */
lk_status lk__meeting_token(lk_meeting *meeting, const char *given, const char *place) LK_CHECKED;

#endif
