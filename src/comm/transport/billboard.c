/* billboard.c - a ring of slots with one writer and many readers.
 *
 * The stamp of a slot says that its frame is complete. Each reader has a word, on a line of its own, with the number
 * of frames that it has released. Both are written as the doorbells need it. */
#include "comm/transport/billboard.h"

#include <string.h>

#include "comm/transport/doorbell.h"

enum { LINE = 64, PREFETCH = 4, TELL_EVERY = LK_BILLBOARD_SLOTS / 4 };

/* Small payloads lie in the first line, behind the header, or in the second: a reader waits for each line. */
typedef struct billboard_slot {
    _Alignas(LK_BILLBOARD_ALIGN) _Atomic uint64_t stamp;
    lk_call call;
    uint16_t part, bytes;
    _Alignas(uint64_t) unsigned char first[16];
    unsigned char second[LINE];
    unsigned char rest[LK_BILLBOARD_PAYLOAD];
} billboard_slot;
_Static_assert(offsetof(billboard_slot, second) == LINE, "the second line follows the first");
_Static_assert(LK_BILLBOARD_PAYLOAD <= UINT16_MAX, "bytes has room");

typedef struct billboard_reader {
    _Alignas(LK_BILLBOARD_ALIGN) _Atomic uint64_t released;
} billboard_reader;

size_t lk__billboard_bytes(int size)
{
    return LK_BILLBOARD_SLOTS * sizeof(billboard_slot) + (size_t)size * sizeof(billboard_reader);
}

size_t lk__billboard_slot_bytes(void)
{
    return sizeof(billboard_slot);
}

/* The slot of frame number `number`. */
static billboard_slot *slot_of(const lk_billboard *billboard, uint64_t number)
{
    return (billboard_slot *)(void *)billboard->at + (number & (LK_BILLBOARD_SLOTS - 1));
}

static billboard_reader *readers_of(const lk_billboard *billboard)
{
    return (billboard_reader *)(void *)(billboard->at + LK_BILLBOARD_SLOTS * sizeof(billboard_slot));
}

bool lk__billboard_has_room(lk_billboard *billboard)
{
    if (billboard->count < billboard->limit)
        return true;
    const billboard_reader *readers = readers_of(billboard);
    uint64_t least = billboard->count;
    for (int r = 0; r < billboard->size; r++) {
        uint64_t released = r == billboard->rank ? least : atomic_load(&readers[r].released);
        least = released < least ? released : least;
    }
    billboard->limit = least + LK_BILLBOARD_SLOTS;
    return billboard->count < billboard->limit;
}

static unsigned char *room_for(billboard_slot *slot, size_t bytes)
{
    return bytes <= sizeof slot->first ? slot->first : bytes <= sizeof slot->second ? slot->second : slot->rest;
}

bool lk__billboard_takes(const lk_frame *frame)
{
    return frame->bytes <= LK_BILLBOARD_PAYLOAD && frame->part <= UINT16_MAX;
}

void lk__billboard_post(lk_billboard *billboard, const lk_frame *frame, const void *data)
{
    billboard_slot *slot = slot_of(billboard, ++billboard->count);
    size_t bytes = (size_t)frame->bytes;
    /* Readers poll the first line: it is written last, all at once. */
    if (bytes > 0)
        memcpy(room_for(slot, bytes), data, bytes);
    slot->call = frame->call;
    slot->part = (uint16_t)frame->part;
    slot->bytes = (uint16_t)bytes;
    lk__bell_write(&slot->stamp, billboard->count);
}

bool lk__billboard_arrived(const lk_billboard *billboard)
{
    return atomic_load_explicit(&slot_of(billboard, billboard->count + 1)->stamp, memory_order_acquire) ==
           billboard->count + 1;
}

bool lk__billboard_changed(lk_billboard *billboard)
{
    billboard_slot *slot = slot_of(billboard, billboard->count + 1);
    if (billboard->seen > billboard->count || atomic_load(&slot->stamp) != billboard->count + 1)
        return false;
    /* The payload arrives while the caller finds out what to do with it. */
    __builtin_prefetch(slot->second);
    for (int i = 0; i < PREFETCH; i++)
        __builtin_prefetch(slot->rest + (size_t)i * LINE);
    billboard->seen = billboard->count + 1;
    return true;
}

const void *lk__billboard_read(const lk_billboard *billboard, lk_frame *frame)
{
    billboard_slot *slot = slot_of(billboard, billboard->count + 1);
    *frame = (lk_frame){.call = slot->call, .part = slot->part, .bytes = slot->bytes};
    return frame->bytes <= LK_BILLBOARD_PAYLOAD ? room_for(slot, (size_t)frame->bytes) : NULL;
}

bool lk__billboard_release(lk_billboard *billboard)
{
    billboard->count++;
    if (billboard->count % TELL_EVERY != 0)
        return false;
    lk__bell_write(&readers_of(billboard)[billboard->rank].released, billboard->count);
    return true;
}
