/* guard.c - a flag a call, and a count of forks. */
#include "base/guard.h"

#include <pthread.h>

/* Written in a new process only, before it has a second thread. */
static unsigned forks;

static void count_fork(void)
{
    forks++;
}

/* Without the memory for it, forks go unnoticed. */
static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, count_fork);
}

void lk__guard_init(lk_guard *guard, const char *what)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    *guard = (lk_guard){.what = what, .generation = forks};
}

bool lk__guard_inherited(const lk_guard *guard)
{
    return guard->generation != forks;
}

lk_status lk__guard_check(const lk_guard *guard)
{
    if (!lk__guard_inherited(guard))
        return LK_OK;
    return lk__fail(
        LK_STATUS_USAGE,
        "this %s was made before its process was forked (by lk_spawn, for instance) and works in the parent "
        "process only; create %ss inside the spawned function",
        guard->what, guard->what);
}

lk_status lk__guard_enter(lk_guard *guard)
{
    LK_TRY(lk__guard_check(guard));
    if (__atomic_exchange_n(&guard->busy, true, __ATOMIC_ACQUIRE))
        return lk__fail(
            LK_STATUS_USAGE,
            "this %s is in use: another call of it, perhaps by another thread, has not returned; one thread "
            "at a time may use it",
            guard->what);
    return LK_OK;
}

void lk__guard_leave(lk_guard *guard)
{
    __atomic_store_n(&guard->busy, false, __ATOMIC_RELEASE);
}
