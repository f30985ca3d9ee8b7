/* environment.h - the environment variables of a rank: those of the caller, with torchrun's and Lockstep's
 * variables set for the rank. */
#ifndef LK_LAUNCH_ENVIRONMENT_H
#define LK_LAUNCH_ENVIRONMENT_H

#include "base/status.h"
#include "launch/node.h"

typedef struct lk_environment lk_environment;

lk_status lk__environment_create(const lk_launch_node_opts *opts, lk_environment **out) LK_CHECKED;
void lk__environment_destroy(lk_environment *environment);

/* Returns the variables of the index-th rank of this node, terminated by NULL. Allocates nothing; valid until
 * the next call. */
char **lk__environment_rank(lk_environment *environment, int index);
/* The rank has exited with status 0: ranks that wait for it in lk_group_join learn so (net/exits.h). */
void lk__environment_exited(const lk_environment *environment, int index);

#endif
