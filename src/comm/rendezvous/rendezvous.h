/* rendezvous.h - how the ranks of a job find rank 0, and its nodes find node 0.
 *
 * A method says where rank 0 listens and where the others connect. Both ends of a connection authenticate
 * with the job's token before it is used; the messages on it are not known here. In a rendezvous of
 * nodes, "rank" stands for a node. */
#ifndef LK_COMM_RENDEZVOUS_RENDEZVOUS_H
#define LK_COMM_RENDEZVOUS_RENDEZVOUS_H

#include <limits.h>
#include <signal.h>

#include "comm/detect/task.h"
#include "comm/mpi/adopt.h"
#include "comm/rendezvous/channel.h"
#include "comm/rendezvous/claim.h"
#include "net/acceptor.h"
#include "net/auth.h"
#include "net/deadline.h"
#include "net/exits.h"
#include "net/host.h"

enum { LK_MEETING_HOST = 256, LK_NONCE_TEXT = 65 };

typedef struct lk_rendezvous_method lk_rendezvous_method;

/* The kind of participants: ranks or nodes. */
typedef struct lk_meeting_kind {
    const char *noun;      /* "rank" or "node", for texts */
    const char *greeting;  /* distinguishes this kind from others on a connection */
    bool once_per_process; /* a process may join only once with each rank */
    const char *host;      /* of file://: where rank 0 listens, shorter than LK_MEETING_HOST; NULL: lk__host_address */
    int port;              /* of file://: port of rank 0; 0: any free one */
    const lk_mpi_world *world;                /* of the rendezvous; NULL: it is by opts->init_method */
    const volatile sig_atomic_t *interrupted; /* not 0 ends the wait; may be NULL */
} lk_meeting_kind;

typedef struct lk_meeting {
    const lk_rendezvous_method *method;
    lk_meeting_kind kind;
    int rank, size;
    lk_deadline deadline;
    lk_claim *claim; /* NULL unless once_per_process */
    lk_token token;
    lk_token user; /* of file://: the user's part of the token */
    bool given;    /* the user has given a token */
    int fd;        /* rank 0: the listener; others: the authenticated connection. -1 after another owner took it */
    bool twin;     /* rank 0: another rank 0 has the port; fd is the connection to it, on which it will say who it is */
    char host[LK_MEETING_HOST]; /* of file://: known to rank 0 only, also port */
    int port, ports;            /* the first port, and the number of ports to try */
    char exits[LK_EXITS_TEXT];  /* of env://: the launcher's notes about this job (net/exits.h); "": none */
    int threads;                /* ranks of each process */
    char path[PATH_MAX];        /* of file:// */
    char nonce[LK_NONCE_TEXT];  /* in the file that this rank wrote; "": none */
    char unreached[512];        /* why the last attempt found no host, or no way to it; "": the host answered */
    char last_answer[1024];     /* why the last attempt that got an answer failed; "" */
} lk_meeting;

struct lk_rendezvous_method {
    const char *scheme; /* "tcp://" */
    const char *summary;
    /* Fills the meeting from the options and the environment. rest: the text after the scheme. */
    lk_status (*find)(lk_meeting *meeting, const lk_group_opts *opts, const char *rest);
    /* Rank 0: opens the listener. */
    lk_status (*listen)(lk_meeting *meeting);
    /* The others: one attempt to connect, about a second for each address. LK_OK either sets fd, or leaves it
     * at -1 if another attempt may succeed; then the thread's error detail says what is missing. */
    lk_status (*connect)(lk_meeting *meeting);
    /* Optional. Rank 0: all ranks have joined, or none can join any more. */
    void (*over)(lk_meeting *meeting);
};

extern const lk_rendezvous_method lk__rendezvous_env, lk__rendezvous_tcp, lk__rendezvous_file;
/* The method of lk_group_from_mpi, which no init_method names. */
extern const lk_rendezvous_method lk__rendezvous_mpi;
/* Rows of the table of methods; NULL after the last. */
const lk_rendezvous_method *lk__rendezvous_list(size_t index);

/* The timeout in seconds: given; if that is 0, $LOCKSTEP_TIMEOUT; if that is not set, 300. */
lk_status lk__meeting_timeout(double given, double *out) LK_CHECKED;

/* When it returns, rank 0 listens and the others are connected. Blocks until the timeout, with notices. */
lk_status lk__meeting_open(const lk_group_opts *opts, const lk_meeting_kind *kind, lk_meeting *out) LK_CHECKED;
/* Rank 0: makes the acceptor for the other ranks, which takes the listener. */
lk_status lk__meeting_acceptor(lk_meeting *meeting, size_t hello_bytes, lk_acceptor **out) LK_CHECKED;
/* No more ranks are expected: removes what was published for them. */
void lk__meeting_over(lk_meeting *meeting);
/* Calls over, closes fd if the meeting still has one, and drops the claim. */
void lk__meeting_close(lk_meeting *meeting);

/* For methods: checks rank and world size, which count processes, and converts them to those of this thread. */
lk_status lk__meeting_rank(lk_meeting *meeting, const lk_group_opts *opts, long long rank, long long size) LK_CHECKED;
/* One attempt to connect and authenticate, within `seconds`. */
lk_status lk__meeting_connect_at(lk_meeting *meeting, const char *host, int port, double seconds) LK_CHECKED;
/* listen and connect for host and ports, shared by env:// and tcp://. If the only port is in use by a rank 0
 * with the same token, listen sets `twin`. */
lk_status lk__meeting_listen_ports(lk_meeting *meeting) LK_CHECKED;
lk_status lk__meeting_connect_ports(lk_meeting *meeting) LK_CHECKED;
/* Finds the token that the user gave, or else makes one from the user's secret and `job`, a text that
 * distinguishes the user's jobs. */
lk_status lk__meeting_token(lk_meeting *meeting, const char *given, const char *job) LK_CHECKED;

/* How env:// connects the ranks. */
typedef struct lk_meeting_plan {
    bool channel; /* rank 0 sends its address, and a token where none is given, through the launcher's channel */
    char host[LK_TASK_TEXT];
    int port;         /* without a channel: the job's, as the environment says */
    int first, ports; /* rank 0 listens at one of `ports` ports from `first` on */
} lk_meeting_plan;

/* token: whether one is given. USAGE, with what to write, if the address is unknown. Connects nothing. */
lk_status lk__meeting_env_plan(const lk_task *task, const lk_job_channel_task *process, bool token,
                               lk_meeting_plan *out) LK_CHECKED;

#endif
