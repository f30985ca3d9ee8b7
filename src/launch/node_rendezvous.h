/* node_rendezvous.h - connects the launchers of a job, with the rendezvous of comm/rendezvous.
 *
 * The result is a link from node 0 to every other node. */
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
    const char *init_method; /* tcp://, file://, or env:// for launchers that are tasks, one on each node */
    const char *address;     /* of file://: address where node 0 listens; NULL: an address of its host */
    int port;                /* of file://: port of node 0; 0: any free one */
    int node_rank, nnodes;
    int nproc;            /* ranks on this node */
    const char *hostname; /* name of this node's host */
    double timeout;       /* seconds; also the time in which a host that vanishes later is noticed */
    lk_notice_fn notice;
    void *notice_arg;
    const volatile sig_atomic_t *interrupted; /* not 0 ends the wait */
} lk_launch_rendezvous_opts;

/* The address of the rendezvous of a job's ranks or launchers. */
typedef struct lk_launch_address {
    char host[LK_LAUNCH_HOST];
    int port;
    lk_token token;
    bool given; /* the user has given a token */
} lk_launch_address;

/* Node 0: blocks until all other nodes have connected, and fills links[1..nnodes), which are closed before.
 * Every five seconds a notice at all connected nodes names the missing ones; the timeout is PEER with that
 * list. Other nodes: fill links[0] when node 0 has answered; its first message is HELLO or REFUSED. address
 * gets the token and, at node 0, host and port. After a failure all links are closed. */
lk_status lk__launch_rendezvous(const lk_launch_rendezvous_opts *opts, lk_link *links,
                                lk_launch_address *address) LK_CHECKED;

#endif
