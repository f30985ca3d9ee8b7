/* environment.h - the variables a rank is started with: the caller's, and in
 * place of its own torchrun's and Lockstep's. */
#ifndef LK_LAUNCH_ENVIRONMENT_H
#define LK_LAUNCH_ENVIRONMENT_H

#include "base/status.h"
#include "launch/node.h"

typedef struct lk_environment lk_environment;

lk_status lk__environment_create(const lk_launch_node_opts *opts, lk_environment **out) LK_CHECKED;
void lk__environment_destroy(lk_environment *environment);

/* The variables of the index-th rank of this node, NULL at the end. Allocates
 * nothing; they are good until the next call. */
char **lk__environment_rank(lk_environment *environment, int index);

#endif
