/* doorbell.h - how a rank sleeps until a peer in the same memory wakes it.
 *
 * A bell has a counter of rings and a mask of the events that its sleeping owner waits for. A peer that has
 * posted an event rings only if the owner sleeps for it. Both sides first write their own word and then read
 * the other's, sequentially consistent: either the owner sees the event, or the peer sees that the owner
 * sleeps. */
#ifndef LK_COMM_TRANSPORT_DOORBELL_H
#define LK_COMM_TRANSPORT_DOORBELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct lk_bell {
    _Atomic uint32_t count;
    _Atomic uint32_t sleeping; /* mask of events; 0: awake */
} lk_bell;

/* Writes a word that makes an event visible; lk__bell_post follows. The word is a plain store with a fence behind it: a
 * sequentially consistent store would wait for the line alone, and a peer that polls the line could take it away from
 * the words that were written just before. ThreadSanitizer does not know fences. */
static inline void lk__bell_write(_Atomic uint64_t *word, uint64_t value)
{
#ifdef __SANITIZE_THREAD__
    atomic_store(word, value);
#else
    atomic_store_explicit(word, value, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* shared: the bell is in memory shared by processes. */
void lk__bell_wake(lk_bell *bell, bool shared);
/* Also counts the ring if the owner is awake. */
void lk__bell_ring(lk_bell *bell, bool shared);

/* The first ring clears the mask, so that one sleep costs one system call, however many events follow. */
static inline void lk__bell_post(lk_bell *bell, uint32_t reason, bool shared)
{
    if ((atomic_load(&bell->sleeping) & reason) != 0 && atomic_exchange(&bell->sleeping, 0) != 0)
        lk__bell_wake(bell, shared);
}

/* The owner calls enter, checks once more that there is nothing to do, sleeps if so, and calls leave in both
 * cases. sleep returns when the count differs from `seen`, after `seconds`, or earlier. */
void lk__bell_enter(lk_bell *bell, uint32_t reasons);
void lk__bell_sleep(lk_bell *bell, uint32_t seen, double seconds, bool shared);
void lk__bell_leave(lk_bell *bell);

/* The CPUs that this thread may use; all zero: unknown. Ranks exchange their masks to learn whether there are
 * more ranks than cores. A rank that is bound to one core cannot see this alone. */
enum { LK_CPU_WORDS = 16 };
void lk__bell_cpus(uint64_t mask[LK_CPU_WORDS]);
/* Whether `threads` is more than the CPUs in mask, or more than the CPU quota of this process's control
 * group. */
bool lk__bell_cpus_crowded(const uint64_t mask[LK_CPU_WORDS], int threads);

#endif
