/* sendrecv.c - a message out and a message in, at the same time. */
#include "comm/collective/argument.h"

/* A message from a rank to itself. */
static lk_status copy_self(lk_group *group, lk_buffer out, lk_buffer in)
{
    lk_device_copies_part from = {.at = out.at, .in = true}, to = {.at = in.at};
    if ((unsigned)out.dtype >= LK_DTYPE_COUNT || out.dtype != in.dtype || out.count != in.count)
        return lk__fail(LK_STATUS_USAGE, "sendrecv of a rank with itself: what it sends has another type or size than "
                                         "what it receives");
    if (out.count > 0 && (!out.at || !in.at))
        return lk__fail(LK_STATUS_USAGE, "sendrecv: the memory of %zu elements is NULL", out.count);
    LK_TRY(lk__device_copies_open(&group->device_copies, out.device, &from.dev));
    LK_TRY(lk__device_copies_open(&group->device_copies, in.device, &to.dev));
    from.bytes = to.bytes = out.count * lk_dtype_size(out.dtype);
    return out.count > 0 ? lk__device_copies_copy(&group->device_copies, &from, &to) : LK_OK;
}

/* Checks one of the two messages as lk_send and lk_recv do, so that neither fails after the other has started. */
static lk_status check_message(const lk_group *group, lk_buffer data, int peer, const char *name)
{
    if (peer < 0 || peer >= group->size || peer == group->rank)
        return lk__fail(LK_STATUS_USAGE, "sendrecv: `%s` is rank %d, which is not another rank of a group of %d", name,
                        peer, group->size);
    if ((unsigned)data.dtype >= LK_DTYPE_COUNT || data.count > SIZE_MAX / 16)
        return lk__fail(LK_STATUS_USAGE, "sendrecv: impossible type or number of elements");
    return lk__argument_memory(&(lk_argument_memory){name[0] == 't' ? "out.at" : "in.at", data.at, data.count},
                               "sendrecv");
}

lk_status lk_sendrecv(lk_group *group, lk_buffer out, int to, lk_buffer in, int from)
{
    lk_request *requests[2] = {NULL, NULL};
    LK_TRY(lk__argument_group(group, "sendrecv"));
    if (to == group->rank && from == group->rank)
        return copy_self(group, out, in);
    LK_TRY(check_message(group, out, to, "to"));
    LK_TRY(check_message(group, in, from, "from"));
    LK_TRY(lk_recv(group, in, from, &requests[0]));
    lk_status status = lk_send(group, out, to, &requests[1]);
    lk_status waited = lk_request_wait_all(requests, 2);
    return status == LK_OK ? waited : status;
}
