/* agent_wire.c - encodes messages and sends and receives them over a link. */
#include "launch/agent_wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "net/socket.h"

enum { SEND_SECONDS = 5 };

void lk__message_encode(const lk_message *message, uint8_t out[LK_MESSAGE_BYTES])
{
    uint8_t *at = out;
    lk__bytes_put_le(at, (uint64_t)message->kind, 8);
    at += 8;
    for (int i = 0; i < LK_MESSAGE_NUMBERS; i++, at += 8)
        lk__bytes_put_le(at, (uint64_t)message->numbers[i], 8);
    memcpy(at, message->name, LK_MESSAGE_NAME);
    memcpy(at + LK_MESSAGE_NAME, message->text, LK_MESSAGE_TEXT);
}

bool lk__message_decode(const uint8_t in[LK_MESSAGE_BYTES], lk_message *out)
{
    const uint8_t *at = in;
    uint64_t kind = lk__bytes_get_le(at, 8);
    if (kind >= LK_MESSAGE_KIND_COUNT)
        return false;
    out->kind = (lk_message_kind)kind;
    at += 8;
    for (int i = 0; i < LK_MESSAGE_NUMBERS; i++, at += 8)
        out->numbers[i] = (int64_t)lk__bytes_get_le(at, 8);
    memcpy(out->name, at, LK_MESSAGE_NAME);
    memcpy(out->text, at + LK_MESSAGE_NAME, LK_MESSAGE_TEXT);
    out->name[LK_MESSAGE_NAME - 1] = '\0';
    out->text[LK_MESSAGE_TEXT - 1] = '\0';
    /* In other messages the name may be an address or the job's run id. */
    lk__text_clean(out->name, kind == LK_MESSAGE_KIND_HELLO ? LK_TEXT_KIND_NAME : LK_TEXT_KIND_LINE);
    lk__text_clean(out->text, LK_TEXT_KIND_LINES);
    return true;
}

_Static_assert(sizeof((lk_cause *)0)->host <= (size_t)LK_MESSAGE_NAME, "a host name fits into a message");
_Static_assert(sizeof((lk_cause *)0)->tail <= (size_t)LK_MESSAGE_TEXT, "the last lines fit into a message");

void lk__message_set_cause(lk_message *message, const lk_cause *cause)
{
    message->numbers[0] = cause->rank;
    message->numbers[1] = cause->pid;
    message->numbers[2] = cause->status;
    message->numbers[3] = (int64_t)(cause->stopped_for * 1e6);
    snprintf(message->name, sizeof message->name, "%s", cause->host);
    snprintf(message->text, sizeof message->text, "%s", cause->tail);
}

void lk__message_get_cause(const lk_message *message, lk_cause *out)
{
    out->rank = (int)message->numbers[0];
    out->pid = (pid_t)message->numbers[1];
    out->status = (int)message->numbers[2];
    out->stopped_for = (double)message->numbers[3] / 1e6;
    snprintf(out->host, sizeof out->host, "%s", message->name);
    snprintf(out->tail, sizeof out->tail, "%s", message->text);
}

void lk__link_send(lk_link *link, const lk_message *message)
{
    if (link->fd < 0)
        return;
    uint8_t frame[LK_MESSAGE_BYTES];
    lk__message_encode(message, frame);
    /* Only writing is shut down, because the last messages of the peer must still be read. */
    if (lk__net_send_all(link->fd, frame, sizeof frame, lk__clock() + SEND_SECONDS) != LK_OK)
        (void)shutdown(link->fd, SHUT_WR);
}

lk_link_state lk__link_receive(lk_link *link, lk_message *out)
{
    if (link->fd < 0)
        return LK_LINK_STATE_CLOSED;
    while (link->got < sizeof link->frame) {
        ssize_t n = recv(link->fd, link->frame + link->got, sizeof link->frame - link->got, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return LK_LINK_STATE_IDLE;
        if (n <= 0)
            return LK_LINK_STATE_CLOSED;
        link->got += (size_t)n;
    }
    link->got = 0;
    return lk__message_decode(link->frame, out) ? LK_LINK_STATE_MESSAGE : LK_LINK_STATE_CLOSED;
}

void lk__link_close(lk_link *link)
{
    lk__fd_close(&link->fd);
    link->got = 0;
}
