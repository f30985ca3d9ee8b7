/* frame.h - the header of a frame as bytes on a wire. Pure: no socket. */
#ifndef LK_COMM_TRANSPORT_FRAME_H
#define LK_COMM_TRANSPORT_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/transport/transport.h"

/* A multiple of LK_ALIGN, so that the payload after an aligned header is
 * aligned. */
enum { LK_FRAME_BYTES = 64 };
/* No frame is longer: what claims to be is not a frame. */
#define LK_FRAME_MAX ((uint64_t)1 << 40)

/* The checksum of a payload, never 0. */
uint64_t lk__frame_sum(const void *payload, size_t bytes);
/* The same bytes on every machine. sum: of the payload, 0 for none; the header has
 * a checksum of its own. */
void lk__frame_encode(const lk_frame *frame, uint64_t sum, uint8_t out[LK_FRAME_BYTES]);

typedef enum lk_frame_result {
    LK_FRAME_WHOLE,
    LK_FRAME_DAMAGED,   /* its bytes are not those that were sent */
    LK_FRAME_IMPOSSIBLE /* they are, and no rank sends such a header */
} lk_frame_result;
/* Writes only where the header is WHOLE. */
lk_frame_result lk__frame_decode(const uint8_t in[LK_FRAME_BYTES], lk_frame *out, uint64_t *sum);

#endif
