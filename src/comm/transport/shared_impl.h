/* shared_impl.h - the content of a segment, for shared.c and shared_wait.c. */
#ifndef LK_COMM_TRANSPORT_SHARED_IMPL_H
#define LK_COMM_TRANSPORT_SHARED_IMPL_H

#include "comm/transport/shared.h"

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "processes share 64-bit words");

/* Events that a sleeping rank waits for. */
enum { LK_SHARED_FRAMES = 1, LK_SHARED_RELEASES = 2 };

typedef struct lk_shared_slot {
    _Alignas(LK_SHARED_ALIGN) _Atomic uint64_t stamp;
    lk_frame frame;
    uint32_t where;
    uint32_t notices; /* frames on the sender's billboard before this one, modulo 2^32 */
    union {
        struct {
            uint64_t at; /* offset in the segment or region, or an address */
            uint32_t region;
        };
        unsigned char inside[LK_SHARED_INLINE];
    };
} lk_shared_slot;
_Static_assert(sizeof(lk_shared_slot) == LK_SHARED_ALIGN, "a slot is one pair of cache lines");

typedef struct lk_shared_lane_memory {
    _Alignas(LK_SHARED_ALIGN) _Atomic uint64_t released; /* number of frames that the receiver has released */
    lk_shared_slot slots[];
} lk_shared_lane_memory;

/* This rank's own state about a peer. */
struct lk_shared_lane {
    uint64_t posted, reaped, releases_seen; /* of frames to the peer */
    int held[LK_SHARED_CLASSES];            /* chunks that the peer has not released */
    uint64_t taken;                         /* frames from the peer that were released */
    uint64_t frames_seen;
    lk_billboard billboard; /* of the peer */
    bool looked;            /* the oldest frame is decoded in the next fields */
    bool posted_to_all;     /* it is on the billboard */
    lk_frame frame;
    const void *payload;
};

static inline lk_bell *lk__shared_bell(const lk_shared *s, int rank)
{
    return (lk_bell *)(void *)s->segment[rank];
}

static inline lk_shared_lane_memory *lk__shared_lane_at(const lk_shared *s, int from, int to)
{
    return (lk_shared_lane_memory *)(void *)(s->segment[from] + LK_SHARED_ALIGN + (size_t)to * s->layout.lane_bytes);
}

static inline lk_shared_slot *lk__shared_slot(const lk_shared *s, int from, int to, uint64_t position)
{
    return &lk__shared_lane_at(s, from, to)->slots[position & (s->layout.slots - 1)];
}

#endif
