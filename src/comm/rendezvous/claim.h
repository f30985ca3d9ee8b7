/* claim.h - the ranks that this process has, or is about to have, in a job.
 *
 * A second join with the same rank would be refused by the server, or would wait for a port that this process
 * has itself. A claim detects the second join before that. */
#ifndef LK_COMM_RENDEZVOUS_CLAIM_H
#define LK_COMM_RENDEZVOUS_CLAIM_H

#include "base/status.h"

typedef struct lk_claim lk_claim;

/* job: a text that is equal for all ranks of a job. USAGE while this process has a claim to the same job and
 * rank. Any thread may call it. */
lk_status lk__claim_take(const char *job, int rank, lk_claim **out) LK_CHECKED;
void lk__claim_drop(lk_claim *claim);

#endif
