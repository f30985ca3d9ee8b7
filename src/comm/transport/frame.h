/* frame.h - the header of a frame as bytes. Pure: no socket. */
#ifndef LK_COMM_TRANSPORT_FRAME_H
#define LK_COMM_TRANSPORT_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/transport/transport.h"

/* A multiple of LK_ALIGN, so that a payload that follows an aligned header is aligned. */
enum { LK_FRAME_BYTES = 64 };
/* Most bytes of a payload; a header with more is invalid. */
#define LK_FRAME_MAX ((uint64_t)1 << 40)

/* The checksum of a payload, never 0. */
uint64_t lk__frame_sum(const void *payload, size_t bytes);
/* Encodes a header, with the same bytes on every machine. sum: checksum of the payload; 0: none. The header
 * also has a checksum of itself. */
void lk__frame_encode(const lk_frame *frame, uint64_t sum, uint8_t out[LK_FRAME_BYTES]);

typedef enum lk_frame_result {
    LK_FRAME_RESULT_WHOLE,
    LK_FRAME_RESULT_DAMAGED,   /* the header's checksum is wrong */
    LK_FRAME_RESULT_IMPOSSIBLE /* the checksum is right, but no rank sends such a header */
} lk_frame_result;
/* Writes *out and *sum only if the header is WHOLE. */
lk_frame_result lk__frame_decode(const uint8_t in[LK_FRAME_BYTES], lk_frame *out, uint64_t *sum);

#endif
