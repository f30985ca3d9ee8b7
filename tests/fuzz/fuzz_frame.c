/* fuzz_frame.c - libFuzzer target: the receiving side of the tcp transport on an arbitrary stream.
 *
 * The first byte chooses the sizes of the pieces in which the stream arrives. Every received payload must be
 * the bytes behind its header. A stream that ends inside a frame, or is no frame, must end in PEER, or in IO
 * if a checksum is wrong. The second byte chooses whether streams get valid headers for frames of up to 64
 * bytes, so that most inputs get past the header. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/transport/tcp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_STREAM = 8192, MOST_PAYLOAD = 4096 };

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* Inserts headers where there are none; the bytes that follow are the payload. */
static size_t mend(const uint8_t *data, size_t size, uint8_t *stream)
{
    size_t used = 0;
    while (size > 0 && used + LK_FRAME_BYTES + 64 <= MOST_STREAM) {
        lk_frame frame = {.call = {.kind = LK_CALL_KIND_MESSAGE, .root = -1}, .bytes = data[0] % 65u};
        size_t payload = frame.bytes < size - 1 ? (size_t)frame.bytes : size - 1;
        lk__frame_encode(&frame, data[0] & 128 ? lk__frame_sum(data + 1, payload) : 0, stream + used);
        memcpy(stream + used + LK_FRAME_BYTES, data + 1, payload);
        used += LK_FRAME_BYTES + payload;
        data += 1 + payload;
        size -= 1 + payload;
    }
    return used;
}

static void set_up(lk_tcp *tcp, int fd)
{
    static lk_member members[2];
    static lk_tcp_peer peers[2];
    static lk_tcp_entry queue[LK_TCP_QUEUE];
    static _Alignas(64) uint8_t buffer[LK_TCP_BUFFER];
    memset(peers, 0, sizeof peers);
    *tcp = (lk_tcp){.base.type = &lk__transport_tcp, .size = 2, .members = members, .peers = peers, .next = 1};
    peers[0].fd = -1;
    peers[1].fd = fd;
    peers[1].queue = queue;
    peers[1].buffer = buffer;
}

/* Receives all frames that have arrived; *at is the next byte of the stream. False: a frame is too long for
 * this test. */
static bool take(lk_transport *t, const uint8_t *stream, size_t size, size_t *at, lk_status *status)
{
    static _Alignas(64) uint8_t into[MOST_PAYLOAD];
    const lk_frame *frame;
    while (*status == LK_OK && (frame = t->type->arrived(t, 1)) != NULL) {
        const void *payload = NULL;
        require(frame->bytes <= LK_FRAME_MAX && *at + LK_FRAME_BYTES <= size);
        if (frame->bytes > MOST_PAYLOAD)
            return false;
        size_t bytes = (size_t)frame->bytes;
        if (bytes > 0) {
            *status = t->type->payload(t, 1, into, &payload);
            if (*status != LK_OK || payload == NULL)
                return true;
            require(*at + LK_FRAME_BYTES + bytes <= size);
            require(memcmp(payload, stream + *at + LK_FRAME_BYTES, bytes) == 0);
        }
        t->type->release(t, 1);
        *at += LK_FRAME_BYTES + bytes;
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t mended[MOST_STREAM];
    int fds[2];
    if (size < 2 || size > MOST_STREAM || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) != 0)
        return 0;
    lk_tcp tcp;
    set_up(&tcp, fds[0]);
    size_t piece = 1u + data[0] * 7u, stream_bytes = size - 2, given = 0, at = 0;
    const uint8_t *stream = data + 2;
    if (data[1] & 1) {
        stream_bytes = mend(stream, stream_bytes, mended);
        stream = mended;
    }
    lk_status status = LK_OK;
    bool short_enough = true, open = true;
    /* A round reads a header or a payload: this number of rounds is enough. */
    for (int spare = 4 * MOST_STREAM / LK_FRAME_BYTES; spare > 0 && status == LK_OK && short_enough; spare -= !open) {
        size_t bytes = piece < stream_bytes - given ? piece : stream_bytes - given;
        if (bytes > 0)
            require(write(fds[1], stream + given, bytes) == (ssize_t)bytes);
        given += bytes;
        if (open && given == stream_bytes) {
            close(fds[1]);
            open = false;
        }
        short_enough = take(&tcp.base, stream, stream_bytes, &at, &status);
        if (status == LK_OK)
            status = tcp.base.type->progress(&tcp.base);
    }
    bool failed = status == LK_STATUS_PEER || status == LK_STATUS_IO;
    require(status == LK_OK ? !short_enough || open : failed);
    if (open)
        close(fds[1]);
    close(fds[0]);
    return 0;
}
