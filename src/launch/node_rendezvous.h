/* meet.h - the agents of a job come together, as ranks do (comm/rendezvous.h).
 *
 * What comes of it is a link from node 0 to every other node. */
#ifndef LK_LAUNCH_NODE_RENDEZVOUS_H
#define LK_LAUNCH_NODE_RENDEZVOUS_H

#include <signal.h>
#include <stdbool.h>

#include <lockstep/group.h>

#include "base/status.h"
#include "comm/rendezvous/rendezvous.h"
#include "launch/agent_wire.h"

enum { LK_LAUNCH_HOST = LK_MEETING_HOST, LK_MAX_NODES = LK_MAX_RANKS, LK_MAX_NPROC = 4096, LK_AGENT_PORT = 29400 };

typedef struct lk_launch_rendezvous_opts {
    const char *init_method; /* tcp:// or file:// */
    const char *address;     /* of file://: where node 0 listens; NULL: an address of its host */
    int port;                /* of file://: 0 for any free one */
    int node_rank, nnodes;
    int nproc;            /* ranks on this node */
    const char *hostname; /* of this node */
    double timeout;       /* seconds; a peer's host that vanishes later is noticed in that time, too */
    lk_notice_fn notice;
    void *notice_arg;
    const volatile sig_atomic_t *interrupted; /* ends the wait once it is not 0 */
} lk_launch_rendezvous_opts;

/* Where the ranks of a job or its agents meet. */
typedef struct lk_launch_address {
    char host[LK_LAUNCH_HOST];
    int port;
    lk_token token;
    bool secret; /* the user gave a token */
} lk_launch_address;

/* Node 0 waits for all others and fills links[1..nnodes), which are closed before.
 * While it waits, every five seconds a notice names the missing here and at the
 * nodes that are there; the timeout is PEER with that list. Others fill links[0]
 * when node 0 has answered; its first message is HELLO or REFUSED. place gets the
 * token and, at node 0, host and port. On failure all links are closed. */
lk_status lk__launch_rendezvous(const lk_launch_rendezvous_opts *opts, lk_link *links,
                                lk_launch_address *address) LK_CHECKED;

#endif
