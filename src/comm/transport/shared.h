/* shared.h - the common part of the transports whose ranks share memory.
 *
 * Every rank has a segment that all other ranks can access. It contains the rank's doorbell, one lane of
 * slots to each peer, a billboard for small frames to all peers at once, and chunks for copies of payloads. A slot says
 * where its payload is: in the slot, in a chunk, or at the sender's own address in memory that the peer can access. The
 * receiver reads the payload in place in all cases.
 *
 * Allocating and mapping memory is the job of inproc.c and shm.c. Everything that a peer wrote is checked
 * against the sizes of the mapped memory before it is used, except addresses from threads (`raw`).
 *
 * No lane can starve another: a lane without a chunk always finds one, and there are as many records as
 * slots. */
#ifndef LK_COMM_TRANSPORT_SHARED_H
#define LK_COMM_TRANSPORT_SHARED_H

#include <stdatomic.h>

#include "comm/transport/billboard.h"
#include "comm/transport/doorbell.h"
#include "comm/transport/transport.h"

enum {
    LK_SHARED_ALIGN = 128, /* alignment of segments and of words with different writers: caches fetch lines in pairs */
    LK_SHARED_INLINE = 64, /* largest payload that is stored in a slot */
    LK_SHARED_CLASSES = 2  /* sizes of chunks: small, large */
};

/* The layout of a segment; the same for all ranks of a group. */
typedef struct lk_shared_layout {
    int size;
    uint32_t slots; /* of a lane, a power of two */
    size_t lane_bytes;
    size_t billboard_at;
    size_t chunk_at[LK_SHARED_CLASSES];
    size_t chunk_bytes[LK_SHARED_CLASSES];
    uint32_t chunks[LK_SHARED_CLASSES];
    size_t bytes; /* of the segment */
} lk_shared_layout;

/* Memory of lk_group_alloc: one block of each rank, all mapped here. */
typedef struct lk_shared_region {
    uint32_t id;   /* the same at every rank */
    void **base;   /* (size) */
    size_t *bytes; /* (size) */
    struct lk_shared_region *next;
} lk_shared_region;

typedef struct lk_shared_lane lk_shared_lane;
typedef struct lk_shared_record lk_shared_record;

typedef struct lk_shared {
    lk_transport base;
    int rank, size;
    bool raw;                 /* thread ranks: all can read any address */
    bool crowded;             /* more ranks than cores */
    double more_spin_seconds; /* of polling before a sleep, if recent sleeps were short */
    double keeps_core_until;  /* does not yield before this time of lk__clock() */
    lk_shared_layout layout;
    unsigned char **segment; /* (size) one of each rank */
    lk_shared_lane *lanes;   /* (size) one for each peer, both directions */
    lk_billboard billboard;  /* of this rank */
    bool billboard_full;     /* the last send found no room on it */
    lk_shared_record *records;
    uint32_t *lane_records; /* (size, slots) the record of each posted slot */
    uint32_t free_record;
    uint32_t *chunk_next[LK_SHARED_CLASSES]; /* the free lists */
    uint32_t free_chunk[LK_SHARED_CLASSES];
    uint32_t chunks_free[LK_SHARED_CLASSES];
    int lanes_idle[LK_SHARED_CLASSES]; /* lanes that hold no chunk */
    size_t lent;                       /* number of sends under way that are read in place */
    bool refused;                      /* the last send found no room */
    uint32_t bell_seen;
    lk_shared_region *regions;
    int broken; /* a peer that wrote invalid data; -1: none */
    int *names; /* (size) ranks in messages */
} lk_shared;

/* raw: no large chunks, because large payloads are read in place. */
lk_shared_layout lk__shared_layout(int size, bool raw);

/* Sets up everything except the segments. The caller puts zeroed segments into s->segment, calls start before
 * use, and frees the segments. fini of a zeroed struct is safe. */
lk_status lk__shared_init(lk_shared *s, const lk_boot *boot, bool raw) LK_CHECKED;
void lk__shared_start(lk_shared *s);
void lk__shared_fini(lk_shared *s);

/* Wakes this rank's `wait`, or makes the next one return at once. Any thread of the process may call it until
 * close. */
void lk__shared_ring(lk_transport *transport);
/* Sets the ranks that messages use, for a part of a larger group. ranks (size) is copied. */
void lk__shared_name(lk_transport *transport, const int *ranks);

/* The slots of the vtable. */
size_t lk__shared_max_frame(const lk_transport *transport, const void *data, size_t bytes);
lk_status lk__shared_send(lk_transport *transport, const int *peers, int count, const lk_frame *frame, const void *data,
                          uint64_t *ticket) LK_CHECKED;
bool lk__shared_sent(const lk_transport *transport, uint64_t ticket);
bool lk__shared_taken(const lk_transport *transport, int peer);
const lk_frame *lk__shared_arrived(lk_transport *transport, int peer);
lk_status lk__shared_payload(lk_transport *transport, int peer, void *into, const void **at) LK_CHECKED;
void lk__shared_release(lk_transport *transport, int peer);
lk_status lk__shared_progress(lk_transport *transport) LK_CHECKED;
void lk__shared_wait(lk_transport *transport, double seconds);

#endif
