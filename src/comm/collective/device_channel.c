/* device_channel.c - opening a channel between devices, and waiting for other ranks. */
#include "comm/collective/device_channel.h"

#include <sched.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "comm/collective/group_impl.h"

/* Seconds to wait for the job to learn why a channel failed. */
static const double REASON_AFTER = 2;

/* Yields the core once. Fails when a rank is lost or the timeout has passed. */
static lk_status keep_waiting(lk_device_channel *channel)
{
    char text[256];
    double now = lk__clock(), timeout = lk_group_timeout(channel->group);
    LK_TRY(lk_group_poll(channel->group));
    if (channel->waits_at == 0)
        channel->waits_at = now;
    if (now - channel->waits_at < timeout) {
        sched_yield();
        return LK_OK;
    }
    snprintf(text, sizeof text,
             "rank %d waited %.0f s for other ranks over %s: that is its timeout; is one of them stopped (Ctrl-Z, "
             "SIGSTOP, a debugger), or does it need longer?",
             lk__group_job_rank(channel->group, channel->rank), timeout, channel->type->name);
    lk_group_abort(channel->group, text);
    return lk__fail(LK_STATUS_PEER, "%s", text);
}

lk_status lk__device_channel_finish(lk_device_channel *channel)
{
    bool done = !channel->type->poll;
    while (!done) {
        LK_TRY(channel->type->poll(channel->end, &done));
        if (!done)
            LK_TRY(keep_waiting(channel));
    }
    return LK_OK;
}

lk_status lk__device_channel_watch(lk_device_channel *channel)
{
    LK_TRY(keep_waiting(channel));
    return lk__device_channel_finish(channel);
}

lk_status lk__device_channel_lead(lk_device_channel *channel, int mark)
{
    LK_TRY(channel->type->lead(channel->end, mark));
    return lk__device_channel_finish(channel);
}

lk_status lk__device_channel_await(lk_device_channel *channel, int mark)
{
    bool done = false;
    LK_TRY(channel->type->reached(channel->end, mark, &done));
    while (!done) {
        LK_TRY(lk__device_channel_watch(channel));
        LK_TRY(channel->type->reached(channel->end, mark, &done));
    }
    return LK_OK;
}

void lk__device_channel_give_up(lk_device_channel *channel)
{
    if (channel->end && !channel->given_up)
        channel->type->give_up(channel->end);
    channel->given_up = true;
}

lk_status lk__device_channel_explain(lk_device_channel *channel, lk_status status)
{
    char text[LK_DEVICE_CHANNEL_TEXT];
    channel->waits_at = 0;
    if (status == LK_OK)
        return LK_OK;
    snprintf(text, sizeof text, "%s", lk_error_detail());
    lk__device_channel_give_up(channel);
    for (double began = lk__clock(); status != LK_STATUS_PEER && lk__clock() - began < REASON_AFTER; sched_yield())
        LK_TRY(lk_group_poll(channel->group));
    return lk__fail(status, "%s", text);
}

lk_device_channel lk__device_channel_of(lk_group *group, lk_device *dev, const lk_channel_type *type)
{
    return (lk_device_channel){
        .group = group, .dev = dev, .type = type, .rank = lk_group_rank(group), .size = lk_group_size(group)};
}

/* Opens this rank's end and writes its key. */
static lk_status open_end(lk_device_channel *channel, int marks, size_t most, unsigned char *key)
{
    lk_channel_opts opts = {.rank = channel->rank, .size = channel->size, .marks = marks, .most = most};
    return channel->type->open(channel->dev, &opts, key, &channel->end);
}

/* Also called by a rank without an end: the others wait for its key. */
static lk_status join(lk_device_channel *channel, unsigned char *key)
{
    unsigned char *keys;
    LK_TRY(LK_ALLOC((size_t)channel->size * LK_CHANNEL_KEY, "ranks", &keys));
    lk_status status = lk_allgather(channel->group, (lk_buffer){key, LK_CHANNEL_KEY, LK_DTYPE_U8}, NULL, keys, NULL);
    if (status == LK_OK && channel->end)
        status = channel->type->join(channel->end, keys);
    lk__mem_free(keys);
    return status == LK_OK && channel->end ? lk__device_channel_finish(channel) : status;
}

lk_status lk__device_channel_open(lk_device_channel *channel, int marks, size_t most)
{
    unsigned char key[LK_CHANNEL_KEY] = {0};
    LK_TRY(open_end(channel, marks, most, key));
    return lk__device_channel_explain(channel, join(channel, key));
}

/* The barrier ensures that no rank closes its end before all have left. */
lk_status lk__device_channel_probe(lk_group *group, lk_device *dev, const lk_channel_type *type)
{
    lk_device_channel trial = lk__device_channel_of(group, dev, type);
    unsigned char key[LK_CHANNEL_KEY] = {0};
    char text[LK_DEVICE_CHANNEL_TEXT];
    lk_status status = open_end(&trial, 1, 1, key);
    snprintf(text, sizeof text, "%s", lk_error_detail());
    lk_status joined = join(&trial, key);
    if (status == LK_OK && joined != LK_OK) {
        snprintf(text, sizeof text, "%s", lk_error_detail());
        status = joined;
    }
    if (trial.end && type->leave)
        type->leave(trial.end);
    lk_status left = lk_barrier(group, NULL);
    type->close(trial.end);
    return status == LK_OK ? left : lk__fail(status, "%s", text);
}

void lk__device_channel_leave(lk_device_channel *channel)
{
    char detail[LK_DEVICE_CHANNEL_TEXT];
    int64_t left = 1;
    if (!channel->end)
        return;
    snprintf(detail, sizeof detail, "%s", lk_error_detail());
    /* Work that waits for a lost rank ends now: closing another channel would wait for all work of the device. */
    if (lk_group_poll(channel->group) != LK_OK) {
        lk__device_channel_give_up(channel);
        (void)lk__fail(LK_STATUS_PEER, "%s", detail);
        return;
    }
    if (!channel->type->leave)
        return;
    channel->type->leave(channel->end);
    /* An allreduce, because other ranks may still be in the barrier of a sum. If the allreduce fails, the job has
     * failed earlier, and that reason stays. */
    if (lk_allreduce(channel->group, (lk_buffer){&left, 1, LK_DTYPE_I64}, LK_REDUCTION_MAX, NULL) != LK_OK)
        (void)lk__fail(LK_STATUS_PEER, "%s", detail);
}

void lk__device_channel_close(lk_device_channel *channel)
{
    if (channel->end)
        channel->type->close(channel->end);
    channel->end = NULL;
}
