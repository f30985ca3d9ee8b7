/* wire.c - encodes and decodes control messages. */
#include "comm/control/wire.h"

#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "base/text.h"

/* Data of a kind: a multiple of `unit` bytes; at most `most` units (times the ranks if per_rank), or exactly
 * that many. */
typedef struct row {
    bool from_server;
    size_t unit, most;
    bool per_rank, exact;
} row;

static const row rows[LK_WIRE_KIND_COUNT] = {
    [LK_WIRE_KIND_HELLO] = {.unit = LK_WIRE_MEMBER, .most = 1, .exact = true},
    [LK_WIRE_KIND_EXCHANGE] = {.unit = 1, .most = LK_EXCHANGE_BYTES},
    [LK_WIRE_KIND_REPORT] = {.unit = LK_CALL_BYTES, .most = LK_HISTORY},
    [LK_WIRE_KIND_ABORT] = {.unit = 1, .most = LK_WIRE_TEXT},
    [LK_WIRE_KIND_LEAVE] = {.unit = 1, .most = 0},
    [LK_WIRE_KIND_WELCOME] = {.from_server = true, .unit = LK_WIRE_MEMBER, .most = 1, .per_rank = true, .exact = true},
    [LK_WIRE_KIND_REFUSED] = {.from_server = true, .unit = 1, .most = LK_WIRE_TEXT},
    [LK_WIRE_KIND_WAITING] = {.from_server = true, .unit = 1, .most = 1, .per_rank = true, .exact = true},
    [LK_WIRE_KIND_ABSENT] = {.from_server = true, .unit = 1, .most = 1, .per_rank = true, .exact = true},
    [LK_WIRE_KIND_EXCHANGED] = {.from_server = true, .unit = 1, .most = LK_EXCHANGE_BYTES, .per_rank = true},
    [LK_WIRE_KIND_BROKEN] = {.from_server = true, .unit = 1, .most = LK_WIRE_TEXT},
    [LK_WIRE_KIND_LEFT] = {.from_server = true, .unit = 1, .most = 0},
    [LK_WIRE_KIND_NOTICE] = {.from_server = true, .unit = 1, .most = LK_WIRE_TEXT},
};

size_t lk__wire_from_server(int size)
{
    size_t each = lk__size_max(LK_WIRE_MEMBER, LK_EXCHANGE_BYTES);
    return LK_WIRE_HEAD + lk__size_max(each * (size_t)size, LK_WIRE_TEXT);
}

/* Header: kind, length of the data, rank + 1, size, number, status; four bytes each. */
size_t lk__wire_encode(const lk_wire *message, uint8_t *out)
{
    lk__bytes_put_le(out, (uint64_t)message->kind, 4);
    lk__bytes_put_le(out + 4, message->bytes, 4);
    lk__bytes_put_le(out + 8, (uint64_t)(message->rank + 1), 4);
    lk__bytes_put_le(out + 12, (uint64_t)message->size, 4);
    lk__bytes_put_le(out + 16, message->number, 4);
    lk__bytes_put_le(out + 20, (uint64_t)message->status, 4);
    if (message->bytes)
        memcpy(out + LK_WIRE_HEAD, message->data, message->bytes);
    return LK_WIRE_HEAD + message->bytes;
}

static bool length_fits(const row *kind, size_t size, size_t bytes)
{
    size_t most = kind->unit * kind->most * (kind->per_rank ? size : 1);
    return bytes % kind->unit == 0 && bytes <= most && (!kind->exact || bytes == most);
}

lk_wire_result lk__wire_decode(const uint8_t *in, size_t bytes, size_t room, bool from_server, lk_wire *out,
                               size_t *used)
{
    if (bytes < LK_WIRE_HEAD)
        return LK_WIRE_RESULT_MORE;
    uint64_t kind = lk__bytes_get_le(in, 4), length = lk__bytes_get_le(in + 4, 4), rank = lk__bytes_get_le(in + 8, 4);
    uint64_t size = lk__bytes_get_le(in + 12, 4), status = lk__bytes_get_le(in + 20, 4);
    if (kind >= LK_WIRE_KIND_COUNT || rows[kind].from_server != from_server)
        return LK_WIRE_RESULT_BAD;
    if (rank > LK_MAX_RANKS || size < 1 || size > LK_MAX_RANKS || status >= LK_STATUS_COUNT)
        return LK_WIRE_RESULT_BAD;
    if (!length_fits(&rows[kind], size, length) || length > room - LK_WIRE_HEAD)
        return LK_WIRE_RESULT_BAD;
    if (bytes - LK_WIRE_HEAD < length)
        return LK_WIRE_RESULT_MORE;
    *out = (lk_wire){.kind = (lk_wire_kind)kind,
                     .rank = (int)rank - 1,
                     .size = (int)size,
                     .number = (uint32_t)lk__bytes_get_le(in + 16, 4),
                     .status = (lk_status)status,
                     .data = in + LK_WIRE_HEAD,
                     .bytes = length};
    *used = LK_WIRE_HEAD + length;
    return LK_WIRE_RESULT_WHOLE;
}

/* Copies bytes up to the first zero and makes them printable. The rest of out is zero. */
static void get_text(const uint8_t *in, size_t bytes, lk_text_kind kind, char *out, size_t room)
{
    memset(out, 0, room);
    memcpy(out, in, lk__size_min(bytes, room - 1));
    lk__text_clean(out, kind);
    memset(out + strlen(out), 0, room - strlen(out));
}

void lk__wire_put_member(const lk_member *member, uint8_t out[LK_WIRE_MEMBER])
{
    lk__bytes_put_le(out, member->host_key, 8);
    lk__bytes_put_le(out + 8, (uint32_t)member->pid, 4);
    memcpy(out + 12, member->host, LK_HOST_BYTES);
    memcpy(out + 12 + LK_HOST_BYTES, member->address, LK_ADDRESS_BYTES);
}

void lk__wire_get_member(const uint8_t in[LK_WIRE_MEMBER], lk_member *out)
{
    out->host_key = lk__bytes_get_le(in, 8);
    out->pid = (int32_t)lk__bytes_get_le(in + 8, 4);
    get_text(in + 12, LK_HOST_BYTES, LK_TEXT_KIND_NAME, out->host, sizeof out->host);
    get_text(in + 12 + LK_HOST_BYTES, LK_ADDRESS_BYTES, LK_TEXT_KIND_LINE, out->address, sizeof out->address);
}

void lk__wire_text(const lk_wire *message, char out[LK_WIRE_TEXT + 1])
{
    get_text(message->data, message->bytes, LK_TEXT_KIND_LINE, out, LK_WIRE_TEXT + 1);
}

int lk__wire_calls(const lk_wire *message, lk_call out[LK_HISTORY])
{
    int count = (int)(message->bytes / LK_CALL_BYTES);
    for (int i = 0; i < count; i++)
        if (!lk__call_decode(message->data + (size_t)i * LK_CALL_BYTES, &out[i]))
            return -1;
    return count;
}
