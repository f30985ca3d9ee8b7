/* claim.h - the ranks as which this process is in a job, or on its way into one.
 *
 * Joining again at the same place would be refused by the server, or wait in vain
 * for a port that this process has itself: it is seen here before. */
#ifndef LK_COMM_RENDEZVOUS_CLAIM_H
#define LK_COMM_RENDEZVOUS_CLAIM_H

#include "base/status.h"

typedef struct lk_claim lk_claim;

/* place: text that is the same for all ranks of a job. USAGE while another claim
 * of this process to place and rank lives. Any thread may call it. */
lk_status lk__claim_take(const char *job, int rank, lk_claim **out) LK_CHECKED;
void lk__claim_drop(lk_claim *claim);

#endif
