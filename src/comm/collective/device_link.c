/* device_link.c - messages between two devices over a channel.
 *
 * Where the channel's moves have one half, the two devices find each other, and the host waits for marks. Where they
 * have two halves, move puts a message into an outbox, and the receiver's take reads it. The channel has
 * LK_CHANNEL_OUTBOXES of them, used in turn. When a message is in its outbox, the sender's host sends a byte to the
 * receiver's; when the next message is received, the receiver's host sends one back: the message before was taken. */
#include "comm/collective/device_link.h"

#include <stdio.h>

#include "base/mem.h"

enum { SENDER, RECEIVER };

struct lk_device_link {
    lk_device_link_opts opts;
    lk_device_channel channel;              /* marks: one for each lane of the sender; the receiver has one */
    unsigned count;                         /* messages that were sent or received */
    lk_request *sends[LK_CHANNEL_OUTBOXES]; /* of bytes */
};

/* What send_byte sends. After a failure its requests may outlive the link: they end with the group. */
static const char note;

/* Sends the byte of message `number`. It is under way when this returns. */
static lk_status send_byte(lk_device_link *link, unsigned number, int peer)
{
    lk_request **request = &link->sends[number % LK_CHANNEL_OUTBOXES];
    if (*request) {
        lk_request *last = *request;
        *request = NULL;
        LK_TRY(lk_request_wait(last));
    }
    return lk_send(link->opts.group, (lk_buffer){(void *)(uintptr_t)&note, 1, LK_DTYPE_U8}, peer, request);
}

/* Blocks until the peer's next byte has arrived. */
static lk_status await_byte(lk_device_link *link, int peer)
{
    char byte;
    return lk_recv(link->opts.group, (lk_buffer){&byte, 1, LK_DTYPE_U8}, peer, NULL);
}

/* Moves a message between the device and the channel, and sets the mark. */
static lk_status put(lk_device_link *link, const lk_channel_move *move, int mark)
{
    const lk_device_channel *channel = &link->channel;
    LK_TRY(channel->type->follow(channel->end));
    LK_TRY(channel->type->move(channel->end, move, 1));
    LK_TRY(lk__device_channel_finish(&link->channel));
    return channel->type->mark(channel->end, mark);
}

static lk_status send_move(lk_device_link *link, const lk_channel_move *move, int lane)
{
    const lk_device_channel *channel = &link->channel;
    if (!channel->type->take)
        return put(link, move, lane);
    if (link->count >= LK_CHANNEL_OUTBOXES)
        LK_TRY(await_byte(link, RECEIVER));
    LK_TRY(put(link, move, lane));
    LK_TRY(lk__device_channel_await(&link->channel, lane));
    /* The sender receives nothing: take only advances to the next outbox. */
    LK_TRY(channel->type->take(channel->end, move, 1));
    return send_byte(link, link->count, RECEIVER);
}

static lk_status receive_move(lk_device_link *link, const lk_channel_move *move)
{
    const lk_device_channel *channel = &link->channel;
    if (!channel->type->take) {
        LK_TRY(put(link, move, 0));
        LK_TRY(lk__device_channel_await(&link->channel, 0));
        return lk__device_channel_lead(&link->channel, 0);
    }
    if (link->count > 0) {
        LK_TRY(lk__device_channel_await(&link->channel, 0));
        LK_TRY(send_byte(link, link->count - 1, SENDER));
    }
    LK_TRY(await_byte(link, SENDER));
    LK_TRY(channel->type->follow(channel->end));
    LK_TRY(channel->type->take(channel->end, move, 1));
    LK_TRY(channel->type->mark(channel->end, 0));
    return lk__device_channel_lead(&link->channel, 0);
}

static lk_channel_move as_move(int peer, const void *at, size_t bytes)
{
    return (lk_channel_move){.peer = peer,
                             .send = peer == RECEIVER,
                             .at = (float *)(uintptr_t)at,
                             .count = (bytes + sizeof(float) - 1) / sizeof(float)};
}

lk_status lk__device_link_send(lk_device_link *link, int lane, const void *at, size_t bytes)
{
    lk_channel_move move = as_move(RECEIVER, at, bytes);
    lk_status status = send_move(link, &move, lane);
    link->count++;
    return lk__device_channel_explain(&link->channel, status);
}

lk_status lk__device_link_clear(lk_device_link *link, int lane)
{
    return lk__device_channel_explain(&link->channel, lk__device_channel_await(&link->channel, lane));
}

lk_status lk__device_link_receive(lk_device_link *link, void *at, size_t bytes)
{
    lk_channel_move move = as_move(SENDER, at, bytes);
    lk_status status = receive_move(link, &move);
    link->count++;
    return lk__device_channel_explain(&link->channel, status);
}

/* Sends a first float where the two devices find each other. The channel may connect them only then, which takes long
 * and keeps the device from other work: no step should wait for it, and a connection that fails is known earlier. */
static lk_status greet(lk_device_link *link)
{
    lk_device *dev = link->opts.dev;
    float *word;
    if (link->channel.type->take)
        return LK_OK;
    LK_TRY(dev->type->alloc(dev, sizeof *word, "a first message", (void **)&word));
    lk_status status = link->channel.rank == SENDER ? lk__device_link_send(link, 0, word, sizeof *word)
                                                    : lk__device_link_receive(link, word, sizeof *word);
    if (status == LK_OK)
        status = lk__device_link_clear(link, 0);
    dev->type->free(dev, word);
    return status;
}

lk_status lk__device_link_create(const lk_device_link_opts *opts, lk_device_link **out)
{
    lk_device_link *link;
    LK_TRY(LK_ALLOC(1, "a link between devices", &link));
    *link = (lk_device_link){.opts = *opts, .channel = lk__device_channel_of(opts->group, opts->dev, opts->channel)};
    bool sends = link->channel.rank == SENDER;
    size_t most = sends ? (opts->most + sizeof(float) - 1) / sizeof(float) : 0;
    lk_status status = lk__device_channel_open(&link->channel, sends ? opts->lanes : 1, most);
    if (status == LK_OK)
        status = greet(link);
    if (status != LK_OK) {
        lk__device_link_destroy(link);
        return status;
    }
    *out = link;
    return LK_OK;
}

/* One byte of the receiver has not been read; it is read here, so that later calls of the group match. If that fails,
 * the job has failed earlier, and that reason stays. */
void lk__device_link_leave(lk_device_link *link)
{
    char detail[LK_DEVICE_CHANNEL_TEXT];
    if (!link)
        return;
    snprintf(detail, sizeof detail, "%s", lk_error_detail());
    if (link->channel.type->take && link->channel.rank == SENDER && link->count >= LK_CHANNEL_OUTBOXES &&
        !link->channel.given_up && await_byte(link, RECEIVER) != LK_OK)
        (void)lk__fail(LK_STATUS_PEER, "%s", detail);
    lk__device_channel_leave(&link->channel);
}

void lk__device_link_destroy(lk_device_link *link)
{
    if (!link)
        return;
    lk__device_channel_close(&link->channel);
    lk__mem_free(link);
}
