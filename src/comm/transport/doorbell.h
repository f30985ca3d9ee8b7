/* doorbell.h - how a rank sleeps until a peer in the same memory wakes it.
 *
 * A bell is a word that counts rings and a word that says why its owner sleeps.
 * Who has posted something rings only when the owner sleeps for it. Both sides
 * first write their word and then read the other's, sequentially consistent:
 * either the owner sees what was posted, or the poster sees the owner asleep. */
#ifndef LK_COMM_TRANSPORT_DOORBELL_H
#define LK_COMM_TRANSPORT_DOORBELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct lk_bell {
    _Atomic uint32_t count;
    _Atomic uint32_t sleeping; /* a mask of reasons, 0 while awake */
} lk_bell;

/* shared: the bell is in memory of several processes. */
void lk__bell_wake(lk_bell *bell, bool shared);
/* Counts a ring even if the owner is awake. */
void lk__bell_ring(lk_bell *bell, bool shared);

/* The flag is taken down by the first who rings, so that a sleeper costs one
 * system call however much is posted before it runs. */
static inline void lk__bell_post(lk_bell *bell, uint32_t reason, bool shared)
{
    if ((atomic_load(&bell->sleeping) & reason) != 0 && atomic_exchange(&bell->sleeping, 0) != 0)
        lk__bell_wake(bell, shared);
}

/* The owner calls lie_down, looks once more whether there is nothing to do,
 * sleeps if so, and gets up in either case. sleep returns when the count is not
 * `seen`, after `seconds`, or early. */
void lk__bell_enter(lk_bell *bell, uint32_t reasons);
void lk__bell_sleep(lk_bell *bell, uint32_t seen, double seconds, bool shared);
void lk__bell_leave(lk_bell *bell);

/* The CPUs that this thread may use; all zero when unknown. Ranks exchange them
 * to learn whether they are more than their cores: with a core bound to each
 * rank, none sees that by itself. */
enum { LK_CPU_WORDS = 16 };
void lk__bell_cpus(uint64_t mask[LK_CPU_WORDS]);
/* Whether `threads` are more than the CPUs in mask, or than the quota of this
 * process's control group keeps busy. */
bool lk__bell_cpus_crowded(const uint64_t mask[LK_CPU_WORDS], int threads);

#endif
