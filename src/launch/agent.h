/* agent.h - one `lockstep run` among those of a job, one a node.
 *
 * Node 0 leads: it makes the plan of each round, hears how the ranks of all
 * nodes fare, tells all to stop when one has failed, and gives the verdict, which
 * is the same at every node. A job of one node has no links and no other
 * difference. No threads: all waiting is in lk__agent_watch. */
#ifndef LK_LAUNCH_AGENT_H
#define LK_LAUNCH_AGENT_H

#include <stdbool.h>

#include "base/status.h"
#include "launch/node.h"
#include "launch/node_rendezvous.h"

/* What the ranks of a round are told. */
typedef struct lk_launch_plan {
    int restart; /* how often the job was started again */
    int world_size;
    int first_rank; /* on this node */
    int master_port;
    char master_addr[LK_LAUNCH_HOST];
    char run_id[LK_MESSAGE_NAME];
} lk_launch_plan;

typedef enum lk_agent_outcome {
    LK_OUTCOME_DONE,
    LK_OUTCOME_FAILED,     /* a rank failed: cause */
    LK_OUTCOME_LOST,       /* a node disappeared: node, cause.host */
    LK_OUTCOME_BROKEN,     /* a node could not start or keep its ranks: node, cause.host, why in cause.tail */
    LK_OUTCOME_INTERRUPTED /* an agent got a signal: node, cause.host, signal */
} lk_agent_outcome;

/* How a round ended. */
typedef struct lk_launch_verdict {
    lk_agent_outcome outcome;
    bool again; /* there will be another round */
    int node;
    int signal;
    bool unwritten; /* of SIGPIPE: the output could not be written though its reader had not closed it */
    lk_cause cause;
} lk_launch_verdict;

typedef struct lk_agent lk_agent;

typedef struct lk_agent_watch_opts {
    int max_restarts; /* node 0 gives so many further rounds to a job that failed */
    double grace;     /* seconds that interrupted ranks get; node 0's counts. 0: 5, for programs that save nothing */
} lk_agent_watch_opts;

/* Meets the other nodes, if there are any, and fills place then. opts must outlive
 * it. */
lk_status lk__agent_create(const lk_launch_rendezvous_opts *opts, lk_launch_address *address,
                           lk_agent **out) LK_CHECKED;
void lk__agent_destroy(lk_agent *agent);

/* Node 0: fills in world size and first rank, and sends the plan to all. Others:
 * wait for it. */
lk_status lk__agent_plan(lk_agent *agent, lk_launch_plan *plan) LK_CHECKED;
/* Node 0 has no plan: tells the others why. */
void lk__agent_refuse(lk_agent *agent, const char *why);

/* From the start of this node's ranks to the verdict; node is destroyed, and
 * none of the job's ranks is left on any node that can be reached. node NULL:
 * they could not be started, and the error detail says why. A second signal to an
 * agent kills the ranks of all nodes. */
void lk__agent_watch(lk_agent *agent, const lk_launch_plan *plan, const lk_agent_watch_opts *opts, lk_launch_node *node,
                     lk_launch_verdict *out);

#endif
