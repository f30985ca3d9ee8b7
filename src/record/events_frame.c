/* events_frame.c - the framing of event files, and the steps of their records. A build without protobuf-c has this
 * file, too: it resumes runs that another build has begun. */
#include <string.h>

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

/* A number of protobuf: seven bits a byte, the lowest first. False if the bytes end before it does. */
static bool read_varint(const uint8_t **at, const uint8_t *end, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; *at < end && shift < 64; shift += 7) {
        uint8_t byte = *(*at)++;
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

/* Passes over the value of a field by its wire type. */
static bool skip_value(const uint8_t **at, const uint8_t *end, unsigned type)
{
    enum { VARINT, FIXED64, BYTES, FIXED32 = 5 };
    uint64_t length = type == FIXED64 ? 8 : 4;
    if (type == VARINT)
        return read_varint(at, end, &length);
    if (type == BYTES ? !read_varint(at, end, &length) : type != FIXED64 && type != FIXED32)
        return false;
    if (length > (uint64_t)(end - *at))
        return false;
    *at += length;
    return true;
}

/* The step of an Event of tfevents.proto, field 2; 0 if it has none. False if the event is malformed. */
static bool read_step(const uint8_t *at, const uint8_t *end, int64_t *step)
{
    enum { STEP_KEY = 2 << 3 };
    *step = 0;
    while (at < end) {
        uint64_t key, value;
        if (!read_varint(&at, end, &key))
            return false;
        if (key != STEP_KEY && !skip_value(&at, end, (unsigned)(key & 7)))
            return false;
        if (key == STEP_KEY) {
            if (!read_varint(&at, end, &value))
                return false;
            *step = (int64_t)value;
        }
    }
    return true;
}

size_t lk__record_events_keep(char *data, size_t bytes, size_t step)
{
    uint8_t *at = (uint8_t *)data;
    size_t kept = 0, used = 0, length, body;
    for (; (length = lk__record_events_next(at + used, bytes - used, &body)) > 0; used += length) {
        const uint8_t *event = at + used + HEAD;
        int64_t own;
        if (!read_step(event, event + body, &own) || own > (int64_t)step)
            continue;
        memmove(at + kept, at + used, length);
        kept += length;
    }
    return kept;
}
