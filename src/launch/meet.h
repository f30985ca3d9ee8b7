/* meet.h - how the agents of a job find each other.
 *
 * Node 0 listens, the others connect; both ends prove the token before anything
 * else is read. What comes of it is a link from node 0 to every other node. */
#ifndef LK_LAUNCH_MEET_H
#define LK_LAUNCH_MEET_H

#include <signal.h>
#include <stdbool.h>

#include <lockstep/group.h>

#include "base/status.h"
#include "comm/auth.h"
#include "launch/agent_wire.h"

enum { LK_MEET_HOST = 256, LK_MAX_NODES = 4096, LK_MAX_NPROC = 4096, LK_AGENT_PORT = 29400 };

typedef struct lk_meet_opts {
    int node_rank, nnodes;
    int nproc;            /* ranks on this node */
    const char *hostname; /* of this node */
    double timeout;       /* seconds; a peer's host that vanishes later is noticed in that time, too */
    lk_notice_fn notice;
    void *notice_arg;
    const volatile sig_atomic_t *interrupted; /* ends the wait once it is not 0 */
} lk_meet_opts;

/* Where agents meet. */
typedef struct lk_place {
    char host[LK_MEET_HOST];
    int port;
    lk_token token;
    bool own_token;   /* it is the user's, not the file's */
    const char *file; /* that tells host and port (and the token, where the user gave none), or NULL */
} lk_place;

/* At node 0: waits for all others at the listener and fills links[1..nnodes).
 * While it waits, every five seconds a notice names the missing here and at the
 * nodes that are there; the timeout is PEER with that list. On failure all
 * links are closed. */
lk_status lk__meet_serve(const lk_meet_opts *opts, const lk_place *place, int listener, lk_link *links) LK_CHECKED;

/* At other nodes: connects to node 0, waiting for it (and for its file) to come
 * up; the file fills host, port and token of place. */
lk_status lk__meet_connect(const lk_meet_opts *opts, lk_place *place, lk_link *link) LK_CHECKED;

/* The file. write: makes it whole at once, 0600; one that is there belongs to
 * another job or was left by one, and is refused. read: *found is false when
 * there is none (yet). */
lk_status lk__meet_file_write(const lk_place *place, const char *token_text) LK_CHECKED;
lk_status lk__meet_file_read(lk_place *place, bool *found) LK_CHECKED;

#endif
