/* frame.c - encodes and decodes headers of frames.
 *
 * Little-endian: magic (4), part (4), bytes of the payload (8), the call (LK_CALL_BYTES), checksum of the
 * payload (8), checksum of the header up to here (8). */
#include "comm/transport/frame.h"

#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"

enum { AT_PART = 4, AT_BYTES = 8, AT_CALL = 16, AT_SUM = AT_CALL + LK_CALL_BYTES, AT_OWN = AT_SUM + 8 };
_Static_assert((int)AT_OWN + 8 == (int)LK_FRAME_BYTES, "a header ends with its checksum");

static const uint8_t magic[4] = {'L', 'k', 'F', '2'};

uint64_t lk__frame_sum(const void *payload, size_t bytes)
{
    uint64_t sum = lk__hash(payload, bytes, 0);
    return sum ? sum : 1;
}

void lk__frame_encode(const lk_frame *frame, uint64_t sum, uint8_t out[LK_FRAME_BYTES])
{
    memcpy(out, magic, sizeof magic);
    lk__bytes_put_le(out + AT_PART, frame->part, 4);
    lk__bytes_put_le(out + AT_BYTES, frame->bytes, 8);
    lk__call_encode(&frame->call, out + AT_CALL);
    lk__bytes_put_le(out + AT_SUM, sum, 8);
    lk__bytes_put_le(out + AT_OWN, lk__hash(out, AT_OWN, 0), 8);
}

lk_frame_result lk__frame_decode(const uint8_t in[LK_FRAME_BYTES], lk_frame *out, uint64_t *sum)
{
    lk_frame frame = {.part = (uint32_t)lk__bytes_get_le(in + AT_PART, 4), .bytes = lk__bytes_get_le(in + AT_BYTES, 8)};
    if (lk__bytes_get_le(in + AT_OWN, 8) != lk__hash(in, AT_OWN, 0))
        return LK_FRAME_RESULT_DAMAGED;
    if (memcmp(in, magic, sizeof magic) != 0 || frame.bytes > LK_FRAME_MAX ||
        !lk__call_decode(in + AT_CALL, &frame.call))
        return LK_FRAME_RESULT_IMPOSSIBLE;
    *out = frame;
    *sum = lk__bytes_get_le(in + AT_SUM, 8);
    return LK_FRAME_RESULT_WHOLE;
}
