/* records.c - the framing of event files. */
#include "base/bytes.h"
#include "record/crc32c.h"
#include "record/events.h"

const char lk__record_events_mark[] = "tfevents";

enum { LENGTH = 8, CRC = 4, HEAD = LK_RECORD_FRAME_HEAD };
_Static_assert(LENGTH + CRC == (int)HEAD && (int)HEAD + CRC == (int)LK_RECORD_FRAME, "the bytes around the data");

static uint32_t masked(const uint8_t *data, size_t bytes)
{
    return lk__record_crc32c_masked(data, bytes);
}

void lk__record_events_frame(uint8_t *record, size_t body_bytes)
{
    lk__bytes_put_le(record, body_bytes, LENGTH);
    lk__bytes_put_le(record + LENGTH, masked(record, LENGTH), CRC);
    lk__bytes_put_le(record + HEAD + body_bytes, masked(record + HEAD, body_bytes), CRC);
}

size_t lk__record_events_next(const uint8_t *data, size_t bytes, size_t *body_bytes)
{
    if (bytes < LK_RECORD_FRAME || lk__bytes_get_le(data + LENGTH, CRC) != masked(data, LENGTH))
        return 0;
    uint64_t length = lk__bytes_get_le(data, LENGTH);
    if (length > bytes - LK_RECORD_FRAME ||
        lk__bytes_get_le(data + HEAD + length, CRC) != masked(data + HEAD, (size_t)length))
        return 0;
    *body_bytes = (size_t)length;
    return LK_RECORD_FRAME + (size_t)length;
}
