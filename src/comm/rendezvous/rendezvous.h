/* rendezvous.h - how the ranks of a job find rank 0, and its nodes node 0.
 *
 * A method tells rank 0 where to listen and the others where to call. Calls are
 * proved by the token at both ends before they count; what happens over them is
 * not known here. Where it says rank, it may be a node: who meets is a kind. */
#ifndef LK_COMM_RENDEZVOUS_RENDEZVOUS_H
#define LK_COMM_RENDEZVOUS_RENDEZVOUS_H

#include <limits.h>
#include <signal.h>

#include "comm/rendezvous/claim.h"
#include "net/acceptor.h"
#include "net/auth.h"
#include "net/deadline.h"
#include "net/host.h"

enum { LK_MEETING_HOST = 256, LK_NONCE_TEXT = 65 };

typedef struct lk_rendezvous_method lk_rendezvous_method;

/* Who meets. */
typedef struct lk_meeting_kind {
    const char *noun;      /* "rank", for texts */
    const char *greeting;  /* tells them from other crowds */
    bool once_per_process; /* a process comes once as each of them */
    bool warn_on_loopback; /* without the user's token warns on loopback, too, where other users of the host may join */
    const char *host;      /* of file://: where rank 0 listens, shorter than LK_MEETING_HOST; NULL: lk__host_address */
    int port;              /* of file://: 0 for any free one */
    const volatile sig_atomic_t *interrupted; /* ends the wait once it is not 0; may be NULL */
} lk_meeting_kind;

typedef struct lk_meeting {
    const lk_rendezvous_method *method;
    lk_meeting_kind kind;
    int rank, size;
    lk_deadline deadline;
    lk_claim *claim; /* of a kind whose processes come once */
    lk_token token;
    lk_token user; /* of file://: the user's part of it */
    bool secret;   /* the user gave a token */
    int fd;        /* rank 0: it listens; the others: the proved connection. -1 once somebody else owns it. */
    bool twin;     /* rank 0: another has its port, and fd is the proved connection to that one, which will say who */
    char host[LK_MEETING_HOST]; /* of file:// known to rank 0 only, and so is port */
    int port, ports;            /* the first port, and how many are tried */
    char path[PATH_MAX];        /* of file:// */
    char nonce[LK_NONCE_TEXT];  /* in our file; "" while there is none */
    char last_answer[512];      /* why an attempt failed that was answered, the last; "" */
} lk_meeting;

struct lk_rendezvous_method {
    const char *scheme; /* "tcp://" */
    const char *summary;
    /* Fills in what the options and the environment say; rest follows the scheme. */
    lk_status (*find)(lk_meeting *meeting, const lk_group_opts *opts, const char *rest);
    /* Rank 0: opens the listener. */
    lk_status (*listen)(lk_meeting *meeting);
    /* The others: one attempt, of a second or so for each place that is tried.
     * LK_OK sets fd, or leaves it at -1 when it makes sense to try again; then
     * the thread's error detail tells what is missing. */
    lk_status (*connect)(lk_meeting *meeting);
    /* Optional: rank 0, when all have come or nobody can any more. */
    void (*over)(lk_meeting *meeting);
};

extern const lk_rendezvous_method lk__rendezvous_env, lk__rendezvous_tcp, lk__rendezvous_file;
/* Rows of the table, NULL after the last. */
const lk_rendezvous_method *lk__rendezvous_list(size_t index);

/* Seconds that ranks wait for each other: given, or $LOCKSTEP_TIMEOUT where given
 * is 0, or 300. */
lk_status lk__meeting_timeout(double given, double *out) LK_CHECKED;

/* Rank 0 listens, the others are connected when it returns. Waits until the
 * timeout, with notices. */
lk_status lk__meeting_open(const lk_group_opts *opts, const lk_meeting_kind *kind, lk_meeting *out) LK_CHECKED;
/* Rank 0: the acceptor that the others come by; it takes the listener. */
lk_status lk__meeting_acceptor(lk_meeting *meeting, size_t hello_bytes, lk_acceptor **out) LK_CHECKED;
/* No more ranks are expected: what was left for them to find is removed. */
void lk__meeting_over(lk_meeting *meeting);
/* Also closes fd, if it still has one, and lets this process come again. */
void lk__meeting_close(lk_meeting *meeting);

/* For methods: checks rank and world size, which count processes, and turns them
 * into those of this thread. */
lk_status lk__meeting_rank(lk_meeting *meeting, const lk_group_opts *opts, long long rank, long long size) LK_CHECKED;
/* One attempt at an address: connect and handshake, within `seconds`. */
lk_status lk__meeting_connect_at(lk_meeting *meeting, const char *host, int port, double seconds) LK_CHECKED;
/* listen and call over host and ports, shared by env:// and tcp://. Where a port is
 * taken by a rank 0 that has the token, listen makes a twin. */
lk_status lk__meeting_listen_ports(lk_meeting *meeting) LK_CHECKED;
lk_status lk__meeting_connect_ports(lk_meeting *meeting) LK_CHECKED;
/* The user's token, else one that tells this meeting place from others. */
lk_status lk__meeting_token(lk_meeting *meeting, const char *given, const char *job) LK_CHECKED;

#endif
