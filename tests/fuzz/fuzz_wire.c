/* fuzz_wire.c - libFuzzer target: decoding of bytes from peers after the handshake: calls, headers of frames,
 * messages to and from the server of a job. The first byte chooses which. Decoding and encoding again must give
 * the same bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "comm/control/wire.h"
#include "comm/transport/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Copies the input into a block of its size, so that the sanitizer detects reads beyond it. */
static uint8_t *copy(const uint8_t *data, size_t size)
{
    uint8_t *block = malloc(size ? size : 1);
    if (!block)
        abort();
    memcpy(block, data, size);
    return block;
}

static void fuzz_call(const uint8_t *in, size_t size)
{
    lk_call call;
    uint8_t out[LK_CALL_BYTES];
    char text[LK_CALL_TEXT];
    if (size < sizeof out || !lk__call_decode(in, &call))
        return;
    lk__call_encode(&call, out);
    if (memcmp(in, out, sizeof out) != 0 || !lk__call_same(&call, &call))
        abort();
    if (!memchr(lk__call_text(&call, text), '\0', sizeof text))
        abort();
}

static void fuzz_frame(const uint8_t *in, size_t size)
{
    lk_frame frame;
    uint64_t sum = 0;
    uint8_t out[LK_FRAME_BYTES];
    if (size < sizeof out || lk__frame_decode(in, &frame, &sum) != LK_FRAME_RESULT_WHOLE)
        return;
    lk__frame_encode(&frame, sum, out);
    if (frame.bytes > LK_FRAME_MAX || memcmp(in, out, sizeof out) != 0)
        abort();
}

static void check_same(const lk_wire *message, const uint8_t *in, size_t bytes)
{
    static uint8_t out[1 << 16];
    if (bytes > sizeof out || lk__wire_encode(message, out) != bytes || memcmp(in, out, bytes) != 0)
        abort();
}

static void look_inside(const lk_wire *message)
{
    lk_call calls[LK_HISTORY];
    char text[LK_WIRE_TEXT + 1];
    lk_member member;
    if (message->kind == LK_WIRE_KIND_REPORT && lk__wire_calls(message, calls) > LK_HISTORY)
        abort();
    if (message->kind == LK_WIRE_KIND_ABORT || message->kind == LK_WIRE_KIND_REFUSED ||
        message->kind == LK_WIRE_KIND_BROKEN)
        lk__wire_text(message, text);
    if (message->kind == LK_WIRE_KIND_HELLO || message->kind == LK_WIRE_KIND_WELCOME)
        for (size_t at = 0; at + LK_WIRE_MEMBER <= message->bytes; at += LK_WIRE_MEMBER) {
            lk__wire_get_member(message->data + at, &member);
            if (!memchr(member.host, 0, sizeof member.host) || !memchr(member.address, 0, sizeof member.address))
                abort();
        }
}

static void fuzz_messages(const uint8_t *in, size_t size, bool from_server)
{
    size_t room = from_server ? lk__wire_from_server(8) : (size_t)LK_WIRE_TO_SERVER;
    while (size > 0) {
        lk_wire message;
        size_t used = 0;
        if (lk__wire_decode(in, size, room, from_server, &message, &used) != LK_WIRE_RESULT_WHOLE)
            return;
        if (used == 0 || used > size || used > room || message.bytes > used)
            abort();
        check_same(&message, in, used);
        look_inside(&message);
        in += used;
        size -= used;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    uint8_t *block = copy(data + 1, size - 1);
    switch (data[0] & 3) {
    case 0:
        fuzz_call(block, size - 1);
        break;
    case 1:
        fuzz_frame(block, size - 1);
        break;
    default:
        fuzz_messages(block, size - 1, data[0] & 1);
    }
    free(block);
    return 0;
}
