/* billboard.h - small frames from one rank to all others, written once into shared memory.
 *
 * A billboard is a ring of slots in its writer's segment, which all other ranks read. A lane (shared.c) would need a
 * copy of the frame for each peer, and an answer for each copy. Readers tell the writer only now and then how far they
 * have read, because the words in which they do so travel between caches.
 *
 * Frames are numbered from 1 and never wrap. Everything that a peer wrote is checked before it is used. */
#ifndef LK_COMM_TRANSPORT_BILLBOARD_H
#define LK_COMM_TRANSPORT_BILLBOARD_H

#include <stdatomic.h>

#include "comm/transport/transport.h"

enum {
    LK_BILLBOARD_ALIGN = 128,
    LK_BILLBOARD_SLOTS = 32,    /* a power of two */
    LK_BILLBOARD_PAYLOAD = 4096 /* most bytes of a payload */
};

/* Bytes of a billboard for groups of `size` ranks; a multiple of LK_BILLBOARD_ALIGN. It starts as zeros. */
size_t lk__billboard_bytes(int size);
/* Bytes of one slot; the slots come first. */
size_t lk__billboard_slot_bytes(void);

/* The state of a rank about one billboard: its own, which it writes, or that of a peer, which it reads. */
typedef struct lk_billboard {
    unsigned char *at;
    int rank, size; /* this rank */
    uint64_t count; /* frames that were posted, or released by this reader */
    uint64_t limit; /* of the writer: frames up to this number have a free slot */
    uint64_t seen;  /* of a reader: the newest frame that lk__billboard_changed has returned */
} lk_billboard;

/* Writer: whether there is a free slot. */
bool lk__billboard_has_room(lk_billboard *billboard);
/* Whether a slot can hold the frame. */
bool lk__billboard_takes(const lk_frame *frame);
/* Writer: posts a frame that a slot can hold; there is room. */
void lk__billboard_post(lk_billboard *billboard, const lk_frame *frame, const void *data);

/* Reader: whether a frame has come that was not released. */
bool lk__billboard_arrived(const lk_billboard *billboard);
/* Reader: the same, but true only once for each frame. */
bool lk__billboard_changed(lk_billboard *billboard);
/* Reader: copies the frame that has arrived, and returns its payload in place; NULL: it is invalid. */
const void *lk__billboard_read(const lk_billboard *billboard, lk_frame *frame);
/* Reader: releases the frame that has arrived. Returns whether the writer was told. */
bool lk__billboard_release(lk_billboard *billboard);

#endif
