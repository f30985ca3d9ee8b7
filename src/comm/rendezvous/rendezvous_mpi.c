/* rendezvous_mpi.c - the ranks of a communicator of the program (lk_group_from_mpi): rank 0 listens at a free port and
 * gives address, port and a token of its own to the others over MPI. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/spec.h"
#include "comm/mpi/share.h"
#include "comm/rendezvous/rendezvous.h"
#include "net/host.h"
#include "net/socket.h"

enum { TEXT_BYTES = 1024 };
static const char failed_mark = '!'; /* begins the text if rank 0 cannot listen */

/* Writes "TOKEN@PORT@HOST". */
static lk_status listen_first(lk_meeting *meeting, char text[TEXT_BYTES])
{
    char token[LK_TOKEN_TEXT];
    LK_TRY(lk__token_make(token));
    LK_TRY(lk__token_from_text(token, &meeting->token));
    lk__host_address(meeting->host);
    LK_TRY(lk__net_listen(meeting->host, 0, &meeting->fd, &meeting->port));
    snprintf(text, TEXT_BYTES, "%s@%d@%s", token, meeting->port, meeting->host);
    return LK_OK;
}

static lk_status read_text(lk_meeting *meeting, const char *text)
{
    char token[LK_TOKEN_TEXT], port[8];
    long long number = 0;
    int end = 0;
    if (text[0] == failed_mark)
        return lk__fail(LK_STATUS_PEER, "rank 0 could not listen for the other ranks: %s", text + 1);
    bool whole = sscanf(text, "%64[0-9a-f]@%6[0-9]@%63[0-9A-Za-z.:%%_-]%n", token, port, meeting->host, &end) == 3 &&
                 text[end] == '\0' && lk__number_parse_int(port, 1, 65535, &number);
    if (!whole)
        return lk__fail(LK_STATUS_FORMAT, "rank 0 sent another text over MPI than this release writes; use one release "
                                          "of Lockstep for all ranks");
    meeting->port = (int)number;
    return lk__token_from_text(token, &meeting->token);
}

/* Rank 0 shares its failure, too: the others wait for a text. */
static lk_status find(lk_meeting *meeting, const lk_group_opts *opts, const char *rest)
{
    const lk_mpi_world *world = meeting->kind.world;
    char text[TEXT_BYTES] = "", detail[TEXT_BYTES - 1] = "";
    lk_status status = LK_OK;
    (void)rest;
    LK_TRY(lk__meeting_rank(meeting, opts, world->place.rank, world->place.size));
    meeting->ports = 1;
    if (meeting->rank == 0)
        status = listen_first(meeting, text);
    if (status != LK_OK) {
        snprintf(detail, sizeof detail, "%s", lk_error_detail());
        snprintf(text, sizeof text, "%c%s", failed_mark, detail);
    }
    double left = meeting->deadline.end - lk__clock();
    lk_status shared = lk__mpi_share(world->mpi, world->comm, text, sizeof text, left > 0 ? left : 0);
    if (status != LK_OK)
        return lk__fail(status, "%s", detail);
    LK_TRY(shared);
    text[sizeof text - 1] = '\0';
    return meeting->rank == 0 ? LK_OK : read_text(meeting, text);
}

/* find has done it. */
static lk_status listen_done(lk_meeting *meeting)
{
    (void)meeting;
    return LK_OK;
}

const lk_rendezvous_method lk__rendezvous_mpi = {
    .scheme = "",
    .summary = "lk_group_from_mpi",
    .find = find,
    .listen = listen_done,
    .connect = lk__meeting_connect_ports,
};
