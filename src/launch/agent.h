/* agent.h - the launcher of one node and its connections to the launchers of the other nodes.
 *
 * Node 0 leads. It makes the plan of each round, receives the results of all nodes, stops all nodes when one
 * has failed, and sends the verdict, which is the same at every node. A job of one node has no links.
 * There are no threads; lk__agent_watch does all waiting. */
#ifndef LK_LAUNCH_AGENT_H
#define LK_LAUNCH_AGENT_H

#include <stdbool.h>

#include "base/status.h"
#include "launch/node.h"
#include "launch/node_rendezvous.h"

/* The parameters of the ranks in a round. */
typedef struct lk_launch_plan {
    int restart; /* number of restarts so far */
    int world_size;
    int first_rank; /* first rank on this node */
    int master_port;
    char master_addr[LK_LAUNCH_HOST];
    char run_id[LK_MESSAGE_NAME];
} lk_launch_plan;

typedef enum lk_agent_outcome {
    LK_AGENT_OUTCOME_DONE,
    LK_AGENT_OUTCOME_FAILED,     /* a rank failed: see cause */
    LK_AGENT_OUTCOME_LOST,       /* a node disappeared: see node, cause.host */
    LK_AGENT_OUTCOME_BROKEN,     /* a node could not start or keep its ranks: see node, cause.host; the reason is in
                                    cause.tail */
    LK_AGENT_OUTCOME_INTERRUPTED /* a launcher got a signal: see node, cause.host, signal */
} lk_agent_outcome;

/* How a round ended. */
typedef struct lk_launch_verdict {
    lk_agent_outcome outcome;
    bool again; /* another round follows */
    int node;
    int signal;
    bool unwritten; /* with SIGPIPE: the output could not be written for another reason than a closed reader */
    lk_cause cause;
} lk_launch_verdict;

typedef struct lk_agent lk_agent;

typedef struct lk_agent_watch_opts {
    int max_restarts; /* rounds that node 0 adds after failures */
    double grace;     /* seconds for interrupted ranks to end; node 0's value is used. 0: 5 */
} lk_agent_watch_opts;

/* Connects to the other nodes, if there are any, and then fills address. opts must outlive the agent. Blocks. */
lk_status lk__agent_create(const lk_launch_rendezvous_opts *opts, lk_launch_address *address,
                           lk_agent **out) LK_CHECKED;
void lk__agent_destroy(lk_agent *agent);

/* Node 0: fills world size and first rank, and sends the plan to all. Others: block until it arrives. */
lk_status lk__agent_plan(lk_agent *agent, lk_launch_plan *plan) LK_CHECKED;
/* Node 0 has no plan: sends the reason to the others. */
void lk__agent_refuse(lk_agent *agent, const char *why);

/* Watches a round until its verdict. Destroys node; afterwards no rank of the job is left on any node that
 * can be reached. node NULL: the ranks could not be started, and the error detail says why. A second signal
 * to a launcher kills the ranks of all nodes. Blocks. */
void lk__agent_watch(lk_agent *agent, const lk_launch_plan *plan, const lk_agent_watch_opts *opts, lk_launch_node *node,
                     lk_launch_verdict *out);

#endif
