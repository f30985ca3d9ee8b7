/* frame.h - the header of a frame as bytes on a wire. Pure: no socket. */
#ifndef LK_COMM_FRAME_H
#define LK_COMM_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/transport.h"

/* A multiple of LK_ALIGN, so that the payload after an aligned header is
 * aligned. */
enum { LK_FRAME_BYTES = 64 };
/* No frame is longer: what claims to be is not a frame. */
#define LK_FRAME_MAX ((uint64_t)1 << 40)

/* The same bytes on every machine. */
void lk__frame_encode(const lk_frame *frame, uint8_t out[LK_FRAME_BYTES]);
/* False, and nothing written, when these bytes cannot be a header. */
bool lk__frame_decode(const uint8_t in[LK_FRAME_BYTES], lk_frame *out);

#endif
