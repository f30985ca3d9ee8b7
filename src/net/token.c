/* token.c - tokens from text, variables, files and the user's secret. */
#include "net/token.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/secret.h"
#include "net/socket.h"

enum { ADDRESS_TEXT = 64 };

lk_status lk__token_make(char text[LK_TOKEN_TEXT])
{
    return lk__secret_draw(text);
}

lk_status lk__token_from_text(const char *text, lk_token *out)
{
    static const char context[] = "lockstep job token";
    if (text[0] == '\0')
        return lk__fail(LK_STATUS_USAGE, "the job token is empty; give at least one character");
    LK_TRY(lk__secret_start());
    crypto_generichash_state hash;
    crypto_generichash_init(&hash, NULL, 0, sizeof out->key);
    crypto_generichash_update(&hash, (const uint8_t *)context, sizeof context);
    crypto_generichash_update(&hash, (const uint8_t *)text, strlen(text));
    crypto_generichash_final(&hash, out->key, sizeof out->key);
    sodium_memzero(&hash, sizeof hash);
    out->origin = LK_TOKEN_ORIGIN_GIVEN;
    return LK_OK;
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] != '\0' ? value : NULL;
}

static lk_status token_from_file(const char *path, lk_token *out)
{
    const lk_secret_file file = {path, "the token file ($LOCKSTEP_TOKEN_FILE)",
                                 "give the name of a file of mode 600 that has a secret in one line"};
    char text[LK_SECRET_BYTES + 1];
    LK_TRY(lk__secret_read(&file, text));
    lk_status status = lk__token_from_text(text, out);
    sodium_memzero(text, sizeof text);
    return status;
}

lk_status lk__token_find(const char *given, lk_token *out, bool *found)
{
    const char *text = given ? given : variable("LOCKSTEP_TOKEN");
    const char *path = variable("LOCKSTEP_TOKEN_FILE");
    if (text)
        LK_TRY(lk__token_from_text(text, out));
    else if (path)
        LK_TRY(token_from_file(path, out));
    *found = text || path;
    return LK_OK;
}

static lk_status token_from_secret(const char *job, lk_token *out)
{
    char secret[LK_SECRET_TEXT];
    LK_TRY(lk__secret_own(secret));
    LK_TRY(lk__secret_start());
    crypto_generichash(out->key, sizeof out->key, (const uint8_t *)job, strlen(job), (const uint8_t *)secret,
                       sizeof secret - 1);
    sodium_memzero(secret, sizeof secret);
    out->origin = LK_TOKEN_ORIGIN_SECRET;
    return LK_OK;
}

lk_status lk__token_origin_of_jobs(lk_token_origin *out)
{
    const char *insecure = variable("LOCKSTEP_INSECURE");
    bool open = insecure && strcmp(insecure, "1") == 0;
    if (insecure && !open && strcmp(insecure, "0") != 0)
        return lk__fail(LK_STATUS_USAGE,
                        "the variable LOCKSTEP_INSECURE is '%.64s': it must be 1 (anyone who reaches the port may "
                        "join) or 0",
                        insecure);
    *out = open ? LK_TOKEN_ORIGIN_OPEN : LK_TOKEN_ORIGIN_SECRET;
    return LK_OK;
}

lk_status lk__token_for_job(const char *job, lk_token *out)
{
    lk_token_origin origin = LK_TOKEN_ORIGIN_SECRET;
    LK_TRY(lk__token_origin_of_jobs(&origin));
    if (origin == LK_TOKEN_ORIGIN_SECRET)
        return token_from_secret(job, out);
    LK_TRY(lk__token_from_text(job, out));
    out->origin = LK_TOKEN_ORIGIN_OPEN;
    return LK_OK;
}

/* Writes the command that copies the server's secret to the client, which is the host to run it on. Nobody is
 * told to send a secret to a host that has not proved anything. */
static void copy_command(int fd, bool server, const lk_secret_path *path, char *text, size_t bytes)
{
    char host[ADDRESS_TEXT];
    (server ? lk__net_local_address : lk__net_peer_address)(fd, host, sizeof host);
    bool brackets = strchr(host, ':') != NULL;
    snprintf(text, bytes, "scp %s%s%s:%.64s %.64s", brackets ? "[" : "", host[0] ? host : "HOST", brackets ? "]" : "",
             path->remote, path->local);
}

static bool same_host(int fd)
{
    char own[ADDRESS_TEXT], peer[ADDRESS_TEXT];
    lk__net_local_address(fd, own, sizeof own);
    lk__net_peer_address(fd, peer, sizeof peer);
    return own[0] && strcmp(own, peer) == 0;
}

#define SAME_TOKEN "give all ranks the same one ($LOCKSTEP_TOKEN or $LOCKSTEP_TOKEN_FILE)"

static void advise_secret(int fd, bool server, char text[LK_TOKEN_ADVICE])
{
    lk_secret_path path;
    char command[256];
    if (lk__secret_find(&path) != LK_OK)
        path = (lk_secret_path){.remote = "secret", .local = "secret"};
    copy_command(fd, server, &path, command, sizeof command);
    if (same_host(fd))
        snprintf(text, LK_TOKEN_ADVICE,
                 "has another secret than yours (%.64s), or a job token: it belongs to another user, or its HOME or "
                 "XDG_CONFIG_HOME differs; start all ranks alike, or give all of them the same token "
                 "($LOCKSTEP_TOKEN or $LOCKSTEP_TOKEN_FILE)",
                 path.local);
    else
        snprintf(text, LK_TOKEN_ADVICE,
                 "has another secret than this host (%.64s), or a job token; if it is your host, copy the secret: run "
                 "%s: %s",
                 path.local, server ? "there" : "here", command);
}

void lk__token_advice(const lk_token *token, int fd, bool server, char text[LK_TOKEN_ADVICE])
{
    switch (token->origin) {
    case LK_TOKEN_ORIGIN_GIVEN:
        snprintf(text, LK_TOKEN_ADVICE, "has another job token; " SAME_TOKEN);
        break;
    case LK_TOKEN_ORIGIN_SECRET:
        advise_secret(fd, server, text);
        break;
    case LK_TOKEN_ORIGIN_OPEN:
        snprintf(text, LK_TOKEN_ADVICE,
                 "has a job token or a secret, which LOCKSTEP_INSECURE=1 switches off here; set that variable for all "
                 "ranks or for none");
        break;
    }
}
