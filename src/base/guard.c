/* guard.c - a flag a call, and the count of forks. */
#include "base/guard.h"

#include "base/forks.h"

void lk__guard_init(lk_guard *guard, const char *what)
{
    *guard = (lk_guard){.what = what, .forks = lk__forks()};
}

bool lk__guard_inherited(const lk_guard *guard)
{
    return guard->forks != lk__forks();
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
