/* gate.c - checks a busy flag and the number of forks. */
#include "base/gate.h"

#include "base/forks.h"

void lk__gate_init(lk_gate *gate, const char *what)
{
    *gate = (lk_gate){.what = what, .forks = lk__forks()};
}

bool lk__gate_inherited(const lk_gate *gate)
{
    return gate->forks != lk__forks();
}

static lk_status check_inherited(const lk_gate *gate)
{
    if (!lk__gate_inherited(gate))
        return LK_OK;
    return lk__fail(
        LK_STATUS_USAGE,
        "this %s was made before its process was forked (by lk_spawn, for instance) and works in the parent "
        "process only; create %ss inside the spawned function",
        gate->what, gate->what);
}

lk_status lk__gate_enter(lk_gate *gate)
{
    LK_TRY(check_inherited(gate));
    if (__atomic_exchange_n(&gate->busy, true, __ATOMIC_ACQUIRE))
        return lk__fail(
            LK_STATUS_USAGE,
            "this %s is in use: another call of it, perhaps by another thread, has not returned; one thread "
            "at a time may use it",
            gate->what);
    return LK_OK;
}

void lk__gate_leave(lk_gate *gate)
{
    __atomic_store_n(&gate->busy, false, __ATOMIC_RELEASE);
}
