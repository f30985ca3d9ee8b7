/* shared_wait.c - how a rank waits for frames and releases in shared memory: it polls, yields its core, then sleeps. */
#include <sched.h>

#include "base/clock.h"
#include "comm/transport/shared_impl.h"

static const double SPIN_SECONDS = 100e-6, MOST_SPIN_SECONDS = 10e-3, SHORT_SLEEP_SECONDS = 1e-3;
static const double LONG_YIELD_SECONDS = 200e-6, KEEP_CORE = 20; /* times as long as the core was gone */

static bool wants_releases(const lk_shared *s)
{
    return s->lent > 0 || s->refused;
}

/* A frame counts as a change once, even if the caller does not take it: the caller may wait for another peer. */
static bool lane_changed(lk_shared *s, int peer, bool releases)
{
    lk_shared_lane *l = &s->lanes[peer];
    bool changed = lk__billboard_changed(&l->billboard);
    if (l->frames_seen == l->taken &&
        atomic_load(&lk__shared_slot(s, peer, s->rank, l->taken)->stamp) == l->taken + 1) {
        l->frames_seen = l->taken + 1;
        changed = true;
    }
    if (releases && l->posted != l->releases_seen) {
        uint64_t released = atomic_load(&lk__shared_lane_at(s, s->rank, peer)->released);
        changed = changed || released != l->releases_seen;
        l->releases_seen = released;
    }
    return changed;
}

static bool something_changed(lk_shared *s)
{
    uint32_t count = atomic_load(&lk__shared_bell(s, s->rank)->count);
    bool changed = count != s->bell_seen;
    bool releases = wants_releases(s);
    s->bell_seen = count;
    if (s->billboard_full && lk__billboard_has_room(&s->billboard)) {
        s->billboard_full = false;
        changed = true;
    }
    for (int peer = 0; peer < s->size; peer++)
        if (peer != s->rank)
            changed |= lane_changed(s, peer, releases);
    return changed;
}

enum { LANES_TO_LOOK_AT = 500, LOOKS = 10 };

/* Gives the core to the awaited rank, if the kernel has put it here. If the core was gone for long, it went to another
 * program, which is busy: then this rank keeps it for some time. */
static void give_way(lk_shared *s, double *now)
{
    double before = *now;
    sched_yield();
    *now = lk__clock();
    if (*now - before > LONG_YIELD_SECONDS && !s->crowded)
        s->keeps_core_until = *now + KEEP_CORE * (*now - before);
}

/* Polls without pause at first, because an answer often takes less than a microsecond. Then it yields its core between
 * polls. */
static bool spin(lk_shared *s, double seconds)
{
    for (int i = s->crowded ? LOOKS : LOOKS + LANES_TO_LOOK_AT / s->size; i > 0; i--)
        if (something_changed(s))
            return true;
    double most = SPIN_SECONDS + s->more_spin_seconds;
    double now = lk__clock(), end = now + (seconds < most ? seconds : most);
    while (now < end) {
        if (now >= s->keeps_core_until)
            give_way(s, &now);
        for (int i = 0; i < LOOKS; i++)
            if (something_changed(s))
                return true;
        now = lk__clock();
    }
    return false;
}

/* After a short sleep it would have been better to poll a little longer: so the time of polling grows. Beside other
 * busy programs, where ranks lose their cores for some milliseconds, sleeps would otherwise end every sum. */
static void adapt_spin(lk_shared *s, double slept)
{
    double more =
        slept < SHORT_SLEEP_SECONDS && !s->crowded ? 2 * s->more_spin_seconds + SPIN_SECONDS : s->more_spin_seconds / 2;
    s->more_spin_seconds = more < MOST_SPIN_SECONDS ? more : MOST_SPIN_SECONDS;
}

void lk__shared_wait(lk_transport *transport, double seconds)
{
    lk_shared *s = (lk_shared *)transport;
    if (something_changed(s) || seconds <= 0 || spin(s, seconds))
        return;
    lk_bell *bell = lk__shared_bell(s, s->rank);
    lk__bell_enter(bell, (uint32_t)(wants_releases(s) ? LK_SHARED_FRAMES | LK_SHARED_RELEASES : LK_SHARED_FRAMES));
    if (!something_changed(s)) {
        double begin = lk__clock();
        lk__bell_sleep(bell, s->bell_seen, seconds, !s->raw);
        adapt_spin(s, lk__clock() - begin);
    }
    lk__bell_leave(bell);
    s->bell_seen = atomic_load(&bell->count);
}

void lk__shared_ring(lk_transport *transport)
{
    lk_shared *s = (lk_shared *)transport;
    lk__bell_ring(lk__shared_bell(s, s->rank), !s->raw);
}
