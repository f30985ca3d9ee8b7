/* rendezvous_env.c - env://: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun and `lockstep run`
 * set them.
 *
 * A torchrun agent that shares its store listens at MASTER_PORT itself. Then rank 0 takes the first free one
 * of the ports that follow, and the others try them in turn: only the right server passes the handshake. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/spec.h"
#include "comm/rendezvous/rendezvous.h"

enum { AGENT_PORTS = 16, LAST_PORT = 65535 };

static lk_status read_text(const char *name, const char **out)
{
    const char *text = getenv(name);
    if (!text || !text[0])
        return lk__fail(LK_STATUS_USAGE,
                        "env:// needs the variable %s, which is not set: start the ranks with `lockstep run` or "
                        "torchrun, or use tcp:// or file://",
                        name);
    *out = text;
    return LK_OK;
}

static lk_status read_number(const char *name, long long least, long long most, long long *out)
{
    const char *text = "";
    LK_TRY(read_text(name, &text));
    if (!lk__number_parse_int(text, least, most, out))
        return lk__fail(LK_STATUS_USAGE, "the variable %s is '%s': it must be a number from %lld to %lld", name, text,
                        least, most);
    return LK_OK;
}

static lk_status read_address(lk_meeting *meeting)
{
    const char *host = "";
    long long port = 0;
    LK_TRY(read_text("MASTER_ADDR", &host));
    LK_TRY(read_number("MASTER_PORT", 1, LAST_PORT, &port));
    if (strlen(host) >= sizeof meeting->host)
        return lk__fail(LK_STATUS_USAGE, "the variable MASTER_ADDR is longer than %zu characters",
                        sizeof meeting->host - 1);
    snprintf(meeting->host, sizeof meeting->host, "%s", host);
    meeting->port = (int)port;
    return LK_OK;
}

/* torchrun says whether its store is at MASTER_PORT; older versions say nothing. */
static bool agent_listens(void)
{
    const char *shared = getenv("TORCHELASTIC_USE_AGENT_STORE");
    return getenv("TORCHELASTIC_RUN_ID") && (!shared || strcmp(shared, "False") != 0);
}

static lk_status find(lk_meeting *meeting, const lk_group_opts *opts, const char *rest)
{
    long long rank = 0, size = 0;
    if (rest[0])
        return lk__fail(LK_STATUS_USAGE, "env:// takes nothing after it, but was given '%s'", rest);
    LK_TRY(read_number("WORLD_SIZE", 1, LK_MAX_RANKS, &size));
    LK_TRY(read_number("RANK", 0, size - 1, &rank));
    LK_TRY(lk__meeting_rank(meeting, opts, rank, size));
    LK_TRY(read_address(meeting));
    /* Run id and port distinguish jobs. The address is not used, because it may be written in several ways. */
    const char *run = getenv("TORCHELASTIC_RUN_ID");
    char job[512];
    snprintf(job, sizeof job, "lockstep env %d %s", meeting->port, run ? run : "");
    meeting->ports = 1;
    if (agent_listens()) {
        meeting->ports = AGENT_PORTS;
        meeting->port = meeting->port + AGENT_PORTS <= LAST_PORT ? meeting->port + 1 : meeting->port - AGENT_PORTS;
    }
    return lk__meeting_token(meeting, opts->token, job);
}

const lk_rendezvous_method lk__rendezvous_env = {
    .scheme = "env://",
    .summary = "env://",
    .find = find,
    .listen = lk__meeting_listen_ports,
    .connect = lk__meeting_connect_ports,
};
