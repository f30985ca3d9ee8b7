/* shared.c - lanes, chunks and doorbells in shared memory.
 *
 * A lane has one producer and one consumer. The stamp of a slot says that its frame is complete; the lane's
 * `released` says which slots may be used again. Both count frames from 1 and never wrap. They are written
 * as the doorbells need it. */
#include <string.h>

#include "base/mem.h"
#include "comm/transport/shared_impl.h"

enum { SMALL, LARGE };
enum { SMALL_BYTES = 4096, LEND_BYTES = 32 * 1024, SPARE_SMALL = 32, SPARE_LARGE = 16 };
enum { NONE = UINT32_MAX };

/* Where a payload is. */
enum { IN_SLOT, IN_CHUNK, IN_REGION, AT_ADDRESS };

/* A send under way: what to free when the last peer releases it. */
struct lk_shared_record {
    uint32_t generation; /* counts the uses: a ticket of an earlier use is done */
    uint32_t next;       /* free list */
    int pending;         /* number of peers; 0: free */
    int class;           /* of the chunk; -1: the data are read in place */
    uint32_t chunk;
};

static size_t floor_power(size_t value)
{
    size_t power = 1;
    while (power <= value / 2)
        power *= 2;
    return power;
}

/* All segments together stay near 32 MiB, because containers have 64 MiB of /dev/shm by default, which must be
 * enough for sixteen ranks. */
static size_t large_bytes(int size, uint32_t chunks)
{
    const size_t mib = 1024 * 1024;
    size_t share = lk__size_min(4 * mib, lk__size_max(mib, 32 * mib / (size_t)size));
    return lk__size_max(8192, lk__size_min(64 * 1024, floor_power(share / chunks)));
}

lk_shared_layout lk__shared_layout(int size, bool raw)
{
    uint32_t peers = (uint32_t)(size - 1);
    lk_shared_layout l = {.size = size, .slots = size <= 64 ? 64 : 16};
    l.lane_bytes = sizeof(lk_shared_lane_memory) + l.slots * sizeof(lk_shared_slot);
    l.chunks[SMALL] = peers == 0 ? 0 : peers + SPARE_SMALL;
    l.chunk_bytes[SMALL] = SMALL_BYTES;
    l.chunks[LARGE] = peers == 0 || raw ? 0 : peers + SPARE_LARGE;
    l.chunk_bytes[LARGE] = large_bytes(size, peers + SPARE_LARGE);
    l.billboard_at = LK_SHARED_ALIGN + (size_t)size * l.lane_bytes;
    l.chunk_at[SMALL] = lk__size_round_up(l.billboard_at + lk__billboard_bytes(size), SMALL_BYTES);
    l.chunk_at[LARGE] = l.chunk_at[SMALL] + l.chunks[SMALL] * l.chunk_bytes[SMALL];
    l.bytes = l.chunk_at[LARGE] + l.chunks[LARGE] * l.chunk_bytes[LARGE];
    return l;
}

static void link_free_lists(lk_shared *s)
{
    uint32_t records = (uint32_t)(s->size - 1) * s->layout.slots;
    s->free_record = NONE;
    for (uint32_t i = records; i-- > 0; s->free_record = i)
        s->records[i].next = s->free_record;
    for (int c = 0; c < LK_SHARED_CLASSES; c++) {
        s->free_chunk[c] = NONE;
        for (uint32_t i = s->layout.chunks[c]; i-- > 0; s->free_chunk[c] = i)
            s->chunk_next[c][i] = s->free_chunk[c];
        s->chunks_free[c] = s->layout.chunks[c];
        s->lanes_idle[c] = s->size - 1;
    }
}

static lk_status allocate(lk_shared *s)
{
    size_t size = (size_t)s->size;
    LK_TRY(LK_ALLOC(size, "segments", &s->segment));
    LK_TRY(LK_ALLOC(size, "lanes", &s->lanes));
    LK_TRY(LK_ALLOC(size, "rank names", &s->names));
    LK_TRY(LK_ALLOC((size - 1) * s->layout.slots, "send records", &s->records));
    LK_TRY(LK_ALLOC(size * s->layout.slots, "send records", &s->lane_records));
    for (int c = 0; c < LK_SHARED_CLASSES; c++)
        LK_TRY(LK_ALLOC(s->layout.chunks[c], "staging chunks", &s->chunk_next[c]));
    return LK_OK;
}

lk_status lk__shared_init(lk_shared *s, const lk_boot *boot, bool raw)
{
    *s = (lk_shared){.base = s->base, .rank = boot->rank, .size = boot->size, .raw = raw, .broken = -1};
    s->layout = lk__shared_layout(boot->size, raw);
    lk_status status = allocate(s);
    if (status != LK_OK) {
        lk__shared_fini(s);
        return status;
    }
    link_free_lists(s);
    for (int r = 0; r < s->size; r++)
        s->names[r] = r;
    return LK_OK;
}

void lk__shared_fini(lk_shared *s)
{
    for (int c = 0; c < LK_SHARED_CLASSES; c++) {
        lk__mem_free(s->chunk_next[c]);
        s->chunk_next[c] = NULL;
    }
    lk__mem_free(s->lane_records);
    lk__mem_free(s->records);
    lk__mem_free(s->names);
    lk__mem_free(s->lanes);
    lk__mem_free(s->segment);
    s->lane_records = NULL;
    s->records = NULL;
    s->names = NULL;
    s->lanes = NULL;
    s->segment = NULL;
}

void lk__shared_start(lk_shared *s)
{
    for (int r = 0; r < s->size; r++) {
        lk_billboard *billboard = r == s->rank ? &s->billboard : &s->lanes[r].billboard;
        *billboard = (lk_billboard){.at = s->segment[r] + s->layout.billboard_at, .rank = s->rank, .size = s->size};
    }
}

void lk__shared_name(lk_transport *transport, const int *ranks)
{
    lk_shared *s = (lk_shared *)transport;
    memcpy(s->names, ranks, (size_t)s->size * sizeof *ranks);
}

static void free_chunk(lk_shared *s, int class, uint32_t chunk)
{
    s->chunk_next[class][chunk] = s->free_chunk[class];
    s->free_chunk[class] = chunk;
    s->chunks_free[class]++;
}

/* One peer has released the record's payload. */
static void drop_record(lk_shared *s, lk_shared_lane *l, uint32_t index)
{
    lk_shared_record *record = &s->records[index];
    if (record->class >= 0 && --l->held[record->class] == 0)
        s->lanes_idle[record->class]++;
    if (--record->pending > 0)
        return;
    if (record->class >= 0)
        free_chunk(s, record->class, record->chunk);
    else
        s->lent--;
    record->generation++;
    record->next = s->free_record;
    s->free_record = index;
}

static void reap_lane(lk_shared *s, int peer)
{
    lk_shared_lane *l = &s->lanes[peer];
    if (l->posted == l->reaped)
        return;
    uint64_t released = atomic_load_explicit(&lk__shared_lane_at(s, s->rank, peer)->released, memory_order_acquire);
    if (released < l->reaped || released > l->posted) {
        s->broken = peer;
        return;
    }
    const uint32_t *records = s->lane_records + (size_t)peer * s->layout.slots;
    for (; l->reaped < released; l->reaped++) {
        uint32_t record = records[l->reaped & (s->layout.slots - 1)];
        if (record != NONE)
            drop_record(s, l, record);
    }
    l->releases_seen = released;
}

static void reap_all(lk_shared *s)
{
    for (int peer = 0; peer < s->size; peer++)
        reap_lane(s, peer);
}

static bool have_slots(lk_shared *s, const int *peers, int count)
{
    for (int i = 0; i < count; i++) {
        lk_shared_lane *l = &s->lanes[peers[i]];
        if (l->posted - l->reaped == s->layout.slots)
            reap_lane(s, peers[i]);
        if (l->posted - l->reaped == s->layout.slots)
            return false;
    }
    return true;
}

/* Whether a chunk is free beyond one for every lane that has none. */
static bool may_take(const lk_shared *s, int class, const int *peers, int count)
{
    int idle = s->lanes_idle[class];
    for (int i = 0; i < count; i++)
        idle -= s->lanes[peers[i]].held[class] == 0;
    return s->chunks_free[class] >= (uint32_t)idle + 1;
}

static bool take_chunk(lk_shared *s, int class, const int *peers, int count, uint32_t *chunk)
{
    if (!may_take(s, class, peers, count)) {
        reap_all(s);
        if (!may_take(s, class, peers, count))
            return false;
    }
    *chunk = s->free_chunk[class];
    s->free_chunk[class] = s->chunk_next[class][*chunk];
    s->chunks_free[class]--;
    for (int i = 0; i < count; i++)
        if (s->lanes[peers[i]].held[class]++ == 0)
            s->lanes_idle[class]--;
    return true;
}

/* There is always a free record if there is a free slot. */
static uint32_t take_record(lk_shared *s, int class, uint32_t chunk, int count)
{
    uint32_t index = s->free_record;
    lk_shared_record *record = &s->records[index];
    s->free_record = record->next;
    record->pending = count;
    record->class = class;
    record->chunk = chunk;
    s->lent += class < 0;
    return index;
}

/* Where the payload of a send is, and its record. */
typedef struct location {
    uint32_t where, region, record;
    uint64_t at;
} location;

static bool lendable(const lk_shared *s, const void *data, size_t bytes, location *p)
{
    if (s->raw) {
        p->where = AT_ADDRESS;
        p->at = (uint64_t)(uintptr_t)data;
        return true;
    }
    for (const lk_shared_region *region = s->regions; region != NULL; region = region->next) {
        uintptr_t offset = (uintptr_t)data - (uintptr_t)region->base[s->rank];
        if (offset <= region->bytes[s->rank] && bytes <= region->bytes[s->rank] - offset) {
            p->where = IN_REGION;
            p->region = region->id;
            p->at = offset;
            return true;
        }
    }
    return false;
}

size_t lk__shared_max_frame(const lk_transport *transport, const void *data, size_t bytes)
{
    const lk_shared *s = (const lk_shared *)transport;
    location p;
    return lendable(s, data, bytes, &p) ? SIZE_MAX : s->layout.chunk_bytes[LARGE];
}

/* Payloads of up to LEND_BYTES are copied even if peers could read them in place, so that the sender may
 * change them at once. Returns false if there is no room. */
static bool store_payload(lk_shared *s, const int *peers, int count, const void *data, size_t bytes, location *p)
{
    int class = bytes <= SMALL_BYTES ? SMALL : LARGE;
    bool lend = lendable(s, data, bytes, p);
    uint32_t chunk;
    bool stage = bytes <= s->layout.chunk_bytes[class] && (bytes <= LEND_BYTES || !lend);
    if (stage && take_chunk(s, class, peers, count, &chunk)) {
        p->where = IN_CHUNK;
        p->at = s->layout.chunk_at[class] + chunk * s->layout.chunk_bytes[class];
        p->record = take_record(s, class, chunk, count);
        memcpy(s->segment[s->rank] + p->at, data, bytes);
        return true;
    }
    if (lend)
        p->record = take_record(s, -1, NONE, count);
    return lend;
}

static void post(lk_shared *s, int peer, const lk_frame *frame, const void *data, const location *p)
{
    lk_shared_lane *l = &s->lanes[peer];
    lk_shared_slot *to = lk__shared_slot(s, s->rank, peer, l->posted);
    to->frame = *frame;
    to->where = p->where;
    to->notices = (uint32_t)s->billboard.count;
    if (p->where != IN_SLOT) {
        to->at = p->at;
        to->region = p->region;
    } else if (frame->bytes > 0)
        memcpy(to->inside, data, (size_t)frame->bytes);
    s->lane_records[(size_t)peer * s->layout.slots + (l->posted & (s->layout.slots - 1))] = p->record;
    l->posted++;
    lk__bell_write(&to->stamp, l->posted);
    lk__bell_post(lk__shared_bell(s, peer), LK_SHARED_FRAMES, !s->raw);
}

/* Returns whether there was room. */
static bool post_to_all(lk_shared *s, const int *peers, int count, const lk_frame *frame, const void *data)
{
    s->billboard_full = !lk__billboard_has_room(&s->billboard);
    if (s->billboard_full)
        return false;
    lk__billboard_post(&s->billboard, frame, data);
    for (int i = 0; i < count; i++)
        lk__bell_post(lk__shared_bell(s, peers[i]), LK_SHARED_FRAMES, !s->raw);
    return true;
}

/* All sends whose data were copied have ticket 1. */
static uint64_t ticket_of(const lk_shared *s, const location *p)
{
    if (p->record == NONE || s->records[p->record].class >= 0)
        return 1;
    return (uint64_t)s->records[p->record].generation << 32 | (p->record + UINT64_C(2));
}

lk_status lk__shared_send(lk_transport *transport, const int *peers, int count, const lk_frame *frame, const void *data,
                          uint64_t *ticket)
{
    lk_shared *s = (lk_shared *)transport;
    location p = {.where = IN_SLOT, .region = 0, .record = NONE, .at = 0};
    *ticket = 1;
    if (count == 0)
        return LK_OK;
    *ticket = 0;
    if (frame->bytes > SMALL_BYTES && frame->bytes > lk__shared_max_frame(transport, data, (size_t)frame->bytes))
        return lk__fail(LK_STATUS_USAGE, "a frame of %llu bytes is more than this transport carries at once",
                        (unsigned long long)frame->bytes);
    s->refused = true;
    if (count == s->size - 1 && lk__billboard_takes(frame)) {
        s->refused = !post_to_all(s, peers, count, frame, data);
        *ticket = !s->refused;
        return s->refused ? lk__shared_progress(transport) : LK_OK;
    }
    if (!have_slots(s, peers, count))
        return lk__shared_progress(transport);
    if (frame->bytes > LK_SHARED_INLINE && !store_payload(s, peers, count, data, (size_t)frame->bytes, &p))
        return lk__shared_progress(transport);
    s->refused = false;
    /* The ticket is made before the peers can release the record. */
    uint64_t mark = ticket_of(s, &p);
    for (int i = 0; i < count; i++)
        post(s, peers[i], frame, data, &p);
    *ticket = mark;
    return LK_OK;
}

bool lk__shared_sent(const lk_transport *transport, uint64_t ticket)
{
    if (ticket == 1)
        return true;
    /* This function changes only cached copies of the peers' words, which callers cannot see. */
    lk_shared *s = (lk_shared *)(uintptr_t)transport;
    uint32_t generation = (uint32_t)(ticket >> 32);
    const lk_shared_record *record = &s->records[(uint32_t)ticket - 2];
    if (record->generation == generation)
        reap_all(s);
    return record->generation != generation;
}

bool lk__shared_taken(const lk_transport *transport, int peer)
{
    lk_shared *s = (lk_shared *)(uintptr_t)transport; /* see lk__shared_sent */
    reap_lane(s, peer);
    return s->lanes[peer].posted == s->lanes[peer].reaped;
}

static const void *in_region(const lk_shared *s, int peer, uint32_t id, uint64_t at, uint64_t bytes)
{
    for (const lk_shared_region *region = s->regions; region != NULL; region = region->next)
        if (region->id == id && at <= region->bytes[peer] && bytes <= region->bytes[peer] - at)
            return (const unsigned char *)region->base[peer] + at;
    return NULL;
}

/* Returns the address of the payload, or NULL if the slot is invalid. */
static const void *locate(const lk_shared *s, int peer, const lk_shared_slot *from, uint64_t bytes)
{
    uint32_t where = from->where;
    if (where == IN_SLOT)
        return bytes <= LK_SHARED_INLINE ? from->inside : NULL;
    uint64_t at = from->at;
    if (where == IN_CHUNK && at <= s->layout.bytes && bytes <= s->layout.bytes - at)
        return s->segment[peer] + at;
    if (where == IN_REGION)
        return in_region(s, peer, from->region, at, bytes);
    return where == AT_ADDRESS && s->raw ? (const void *)(uintptr_t)at : NULL;
}

static bool possible(const lk_call *call)
{
    return call->kind < LK_CALL_KIND_COUNT && call->dtype < LK_DTYPE_COUNT && call->op < LK_REDUCTION_LIMIT;
}

/* The oldest frame in the peer's lane; NULL: none. */
static const lk_shared_slot *in_lane(const lk_shared *s, int peer)
{
    uint64_t taken = s->lanes[peer].taken;
    const lk_shared_slot *from = lk__shared_slot(s, peer, s->rank, taken);
    return atomic_load_explicit(&from->stamp, memory_order_acquire) == taken + 1 ? from : NULL;
}

/* Finds the older one of the next frames in the peer's lane and on its billboard. A frame that was posted before one
 * that is seen here is seen, too, if it is looked for afterwards. */
static bool find_oldest(const lk_shared *s, int peer, bool *posted_to_all, const lk_shared_slot **out)
{
    const lk_billboard *billboard = &s->lanes[peer].billboard;
    *out = in_lane(s, peer);
    *posted_to_all = lk__billboard_arrived(billboard);
    if (*posted_to_all && !*out)
        *out = in_lane(s, peer);
    if (*posted_to_all && *out)
        *posted_to_all = (*out)->notices != (uint32_t)billboard->count;
    return *posted_to_all || *out;
}

const lk_frame *lk__shared_arrived(lk_transport *transport, int peer)
{
    lk_shared *s = (lk_shared *)transport;
    lk_shared_lane *l = &s->lanes[peer];
    const lk_shared_slot *from;
    if (l->looked)
        return &l->frame;
    if (!find_oldest(s, peer, &l->posted_to_all, &from))
        return NULL;
    if (l->posted_to_all) {
        l->payload = lk__billboard_read(&l->billboard, &l->frame);
    } else {
        l->frame = from->frame;
        l->payload = locate(s, peer, from, l->frame.bytes);
        l->frames_seen = l->taken + 1;
    }
    if (l->payload == NULL || !possible(&l->frame.call)) {
        s->broken = peer;
        return NULL;
    }
    l->looked = true;
    return &l->frame;
}

lk_status lk__shared_payload(lk_transport *transport, int peer, void *into, const void **at)
{
    (void)into;
    *at = ((lk_shared *)transport)->lanes[peer].payload;
    return LK_OK;
}

void lk__shared_release(lk_transport *transport, int peer)
{
    lk_shared *s = (lk_shared *)transport;
    lk_shared_lane *l = &s->lanes[peer];
    l->looked = false;
    if (l->posted_to_all) {
        if (!lk__billboard_release(&l->billboard))
            return;
    } else {
        l->taken++;
        lk__bell_write(&lk__shared_lane_at(s, peer, s->rank)->released, l->taken);
    }
    lk__bell_post(lk__shared_bell(s, peer), LK_SHARED_RELEASES, !s->raw);
}

lk_status lk__shared_progress(lk_transport *transport)
{
    const lk_shared *s = (const lk_shared *)transport;
    if (s->broken < 0)
        return LK_OK;
    return lk__fail(LK_STATUS_MISMATCH,
                    "rank %d wrote an impossible frame into shared memory; it may run another version",
                    s->names[s->broken]);
}
