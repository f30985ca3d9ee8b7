/* rendezvous_tcp.c - tcp://HOST:PORT: rank 0 listens at this address only. */
#include <stdio.h>
#include <string.h>

#include "comm/rendezvous/rendezvous.h"
#include "net/socket.h"

static lk_status find(lk_meeting *meeting, const lk_group_opts *opts, const char *rest)
{
    char job[64];
    size_t length = strlen(rest);
    const char *colon = strrchr(rest, ':');
    if (!colon || strcmp(colon, ":0") == 0 || colon[1] == '\0' || (length > 0 && rest[length - 1] == ']'))
        return lk__fail(LK_STATUS_USAGE,
                        "tcp://%s names no port, and all %ss must know it: give a free one, as in tcp://%.*s:29500",
                        rest, meeting->kind.noun, (int)(colon && rest[length - 1] != ']' ? colon - rest : (long)length),
                        rest);
    LK_TRY(lk__net_split(rest, meeting->host, sizeof meeting->host, &meeting->port));
    meeting->ports = 1;
    LK_TRY(lk__meeting_rank(meeting, opts, opts->rank, opts->world_size));
    snprintf(job, sizeof job, "lockstep tcp %d", meeting->port);
    return lk__meeting_token(meeting, opts->token, job);
}

const lk_rendezvous_method lk__rendezvous_tcp = {
    .scheme = "tcp://",
    .summary = "tcp://HOST:PORT",
    .find = find,
    .listen = lk__meeting_listen_ports,
    .connect = lk__meeting_connect_ports,
};
