/* frame.c - headers of frames to bytes and back.
 *
 * Little-endian: magic (4), part (4), bytes of the payload (8), the call
 * (LK_CALL_BYTES), zeros up to LK_FRAME_BYTES. */
#include "comm/frame.h"

#include <string.h>

#include "base/bytes.h"

enum { AT_PART = 4, AT_BYTES = 8, AT_CALL = 16, AT_REST = AT_CALL + LK_CALL_BYTES };
_Static_assert((int)AT_REST <= (int)LK_FRAME_BYTES, "a header holds a call");

static const uint8_t magic[4] = {'L', 'k', 'F', '1'};

void lk__frame_encode(const lk_frame *frame, uint8_t out[LK_FRAME_BYTES])
{
    memset(out, 0, LK_FRAME_BYTES);
    memcpy(out, magic, sizeof magic);
    lk__put_le(out + AT_PART, frame->part, 4);
    lk__put_le(out + AT_BYTES, frame->bytes, 8);
    lk__call_encode(&frame->call, out + AT_CALL);
}

bool lk__frame_decode(const uint8_t in[LK_FRAME_BYTES], lk_frame *out)
{
    lk_frame frame = {.part = (uint32_t)lk__get_le(in + AT_PART, 4), .bytes = lk__get_le(in + AT_BYTES, 8)};
    if (memcmp(in, magic, sizeof magic) != 0 || frame.bytes > LK_FRAME_MAX)
        return false;
    for (int i = AT_REST; i < LK_FRAME_BYTES; i++)
        if (in[i] != 0)
            return false;
    if (!lk__call_decode(in + AT_CALL, &frame.call))
        return false;
    *out = frame;
    return true;
}
