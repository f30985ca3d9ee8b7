/* claim.c - a list of jobs and ranks with a lock. */
#include "comm/rendezvous/claim.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/forks.h"
#include "base/mem.h"

struct lk_claim {
    lk_claim *next;
    char *job;
    int rank;
    unsigned forks; /* a forked child does not inherit its parent's ranks */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static lk_claim *claims;

static bool is_taken(const lk_claim *wanted)
{
    for (const lk_claim *at = claims; at; at = at->next)
        if (at->rank == wanted->rank && at->forks == wanted->forks && strcmp(at->job, wanted->job) == 0)
            return true;
    return false;
}

static void claim_free(lk_claim *claim)
{
    free(claim->job);
    lk__mem_free(claim);
}

lk_status lk__claim_take(const char *job, int rank, lk_claim **out)
{
    lk_claim *claim;
    LK_TRY(LK_ALLOC(1, "a claim to a rank", &claim));
    claim->job = strdup(job);
    if (!claim->job) {
        lk__mem_free(claim);
        return lk__fail_memory(strlen(job) + 1, "a claim to a rank");
    }
    claim->rank = rank;
    claim->forks = lk__forks();
    pthread_mutex_lock(&lock);
    bool taken = is_taken(claim);
    if (!taken) {
        claim->next = claims;
        claims = claim;
    }
    pthread_mutex_unlock(&lock);
    if (taken) {
        claim_free(claim);
        return lk__fail(LK_STATUS_USAGE,
                        "this process has joined this job (%s) as rank %d already; destroy that group first, or use "
                        "lk_group_split for a second group",
                        job, rank);
    }
    *out = claim;
    return LK_OK;
}

void lk__claim_drop(lk_claim *claim)
{
    if (!claim)
        return;
    pthread_mutex_lock(&lock);
    lk_claim **link = &claims;
    while (*link && *link != claim)
        link = &(*link)->next;
    if (*link)
        *link = claim->next;
    pthread_mutex_unlock(&lock);
    claim_free(claim);
}
