/* doorbell.c - doorbells on futexes; counts the CPUs of several ranks. */
#define _GNU_SOURCE /* sched_getaffinity, syscall */
#include "comm/transport/doorbell.h"

#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cores.h"

_Static_assert(sizeof(_Atomic uint32_t) == 4 && ATOMIC_INT_LOCK_FREE == 2, "a futex is a plain 32-bit word");

/* Wakes one thread: only the owner sleeps on a bell. */
static void futex_wake(_Atomic uint32_t *word, bool shared)
{
    syscall(SYS_futex, word, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void lk__bell_wake(lk_bell *bell, bool shared)
{
    atomic_fetch_add(&bell->count, 1);
    futex_wake(&bell->count, shared);
}

void lk__bell_ring(lk_bell *bell, bool shared)
{
    atomic_fetch_add(&bell->count, 1);
    if (atomic_exchange(&bell->sleeping, 0) != 0)
        futex_wake(&bell->count, shared);
}

void lk__bell_enter(lk_bell *bell, uint32_t reasons)
{
    atomic_store(&bell->sleeping, reasons);
}

void lk__bell_sleep(lk_bell *bell, uint32_t seen, double seconds, bool shared)
{
    const double most = 3600;
    double rest = seconds < most ? seconds : most;
    struct timespec limit = {.tv_sec = (time_t)rest};
    limit.tv_nsec = (long)((rest - (double)limit.tv_sec) * 1e9);
    syscall(SYS_futex, &bell->count, shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, seen, &limit, NULL, 0);
}

void lk__bell_leave(lk_bell *bell)
{
    atomic_store(&bell->sleeping, 0);
}

void lk__bell_cpus(uint64_t mask[LK_CPU_WORDS])
{
    cpu_set_t set;
    CPU_ZERO(&set);
    memset(mask, 0, LK_CPU_WORDS * sizeof *mask);
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return;
    for (size_t cpu = 0; cpu < CPU_SETSIZE && cpu < (size_t)LK_CPU_WORDS * 64; cpu++)
        if (CPU_ISSET(cpu, &set))
            mask[cpu / 64] |= UINT64_C(1) << cpu % 64;
}

bool lk__bell_cpus_crowded(const uint64_t mask[LK_CPU_WORDS], int threads)
{
    int cores = 0;
    for (size_t i = 0; i < LK_CPU_WORDS; i++)
        cores += __builtin_popcountll(mask[i]);
    return (cores > 0 && cores < threads) || lk__cores_quota("") < threads;
}
