/* environment.c - the environment variables of a rank.
 *
 * TORCHELASTIC_RUN_ID and TORCHELASTIC_USE_AGENT_STORE are not set: with them PyTorch expects a store in the
 * launcher instead of in rank 0. */
#include "launch/environment.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "net/exits.h"

extern char **environ;

typedef enum quantity {
    RANK,
    LOCAL_RANK,
    WORLD_SIZE,
    LOCAL_WORLD_SIZE,
    NODE,
    NODES,
    MASTER_ADDR,
    MASTER_PORT,
    RESTART,
    MAX_RESTARTS,
    RUN_ID,
    TOKEN,
    TIMEOUT,
    BACKEND
} quantity;

static const struct {
    const char *name;
    quantity value;
} variables[] = {
    {"RANK", RANK},
    {"LOCAL_RANK", LOCAL_RANK},
    {"WORLD_SIZE", WORLD_SIZE},
    {"LOCAL_WORLD_SIZE", LOCAL_WORLD_SIZE},
    {"GROUP_RANK", NODE},
    {"GROUP_WORLD_SIZE", NODES},
    {"NODE_RANK", NODE},
    {"ROLE_RANK", RANK},
    {"ROLE_WORLD_SIZE", WORLD_SIZE},
    {"MASTER_ADDR", MASTER_ADDR},
    {"MASTER_PORT", MASTER_PORT},
    {"TORCHELASTIC_RESTART_COUNT", RESTART},
    {"TORCHELASTIC_MAX_RESTARTS", MAX_RESTARTS},
    {"LOCKSTEP_RUN_ID", RUN_ID},
    {"LOCKSTEP_TOKEN", TOKEN},
    {"LOCKSTEP_TIMEOUT", TIMEOUT},
    {"LOCKSTEP_BACKEND", BACKEND},
};

enum { VARIABLES = sizeof variables / sizeof *variables, VARIABLE_BYTES = 320, NUMBER_BYTES = 32 };

struct lk_environment {
    const lk_launch_node_opts *opts;
    lk_exits exits;
    char **list;      /* inherited variables, then ours, then NULL */
    size_t inherited; /* number of inherited variables in list */
    char ours[VARIABLES + 1][VARIABLE_BYTES];
};

/* Returns the value of a variable, or NULL if opts do not set it: then the inherited variable stays. */
static const char *value_text(const lk_launch_node_opts *opts, quantity what, int index, char number[NUMBER_BYTES])
{
    const int numbers[] = {
        [RANK] = opts->first_rank + index, [LOCAL_RANK] = index,      [WORLD_SIZE] = opts->world_size,
        [LOCAL_WORLD_SIZE] = opts->nproc,  [NODE] = opts->node_rank,  [NODES] = opts->nnodes,
        [MASTER_PORT] = opts->master_port, [RESTART] = opts->restart, [MAX_RESTARTS] = opts->max_restarts,
    };
    switch (what) {
    case MASTER_ADDR:
        return opts->master_addr;
    case RUN_ID:
        return opts->run_id;
    case TOKEN:
        return opts->token;
    case BACKEND:
        return opts->backend;
    case TIMEOUT:
        if (!(opts->timeout > 0))
            return NULL;
        snprintf(number, NUMBER_BYTES, "%.15g", opts->timeout);
        return number;
    case MASTER_PORT:
        if (opts->master_addr == NULL)
            return NULL;
        break;
    default:
        break;
    }
    snprintf(number, NUMBER_BYTES, "%d", numbers[what]);
    return number;
}

/* Whether the ranks get an inherited "NAME=value". */
static bool stays(const lk_launch_node_opts *opts, const char *entry)
{
    static const char torch[] = "TORCHELASTIC_", exits[] = LK_EXITS_VARIABLE "=";
    char number[NUMBER_BYTES];
    if (strncmp(entry, torch, sizeof torch - 1) == 0 || strncmp(entry, exits, sizeof exits - 1) == 0)
        return false;
    for (int i = 0; i < VARIABLES; i++) {
        size_t length = strlen(variables[i].name);
        if (strncmp(entry, variables[i].name, length) == 0 && entry[length] == '=')
            return value_text(opts, variables[i].value, 0, number) == NULL;
    }
    return true;
}

static lk_status check(const lk_launch_node_opts *opts)
{
    char number[NUMBER_BYTES];
    for (int i = 0; i < VARIABLES; i++) {
        const char *text = value_text(opts, variables[i].value, 0, number);
        if (text != NULL && strlen(variables[i].name) + strlen(text) + 2 > VARIABLE_BYTES)
            return lk__fail(LK_STATUS_USAGE, "the value of %s is longer than %zu characters", variables[i].name,
                            VARIABLE_BYTES - strlen(variables[i].name) - 2);
    }
    return LK_OK;
}

lk_status lk__environment_create(const lk_launch_node_opts *opts, lk_environment **out)
{
    LK_TRY(check(opts));
    size_t count = 0;
    while (environ != NULL && environ[count] != NULL)
        count++;
    lk_environment *e;
    lk_status status;
    LK_TRY(LK_ALLOC(1, "the ranks' environment", &e));
    LK_TRY_GOTO(LK_ALLOC(count + VARIABLES + 2, "the ranks' environment", &e->list), free_environment);
    e->opts = opts;
    e->exits.fd = -1;
    /* Only the launcher of all ranks knows about each of them. */
    if (opts->nproc == opts->world_size && opts->master_addr)
        lk__exits_init(opts->master_port, opts->world_size, &e->exits);
    for (size_t i = 0; i < count; i++)
        if (stays(opts, environ[i]))
            e->list[e->inherited++] = environ[i];
    *out = e;
    return LK_OK;
free_environment:
    lk__mem_free(e);
    return status;
}

void lk__environment_destroy(lk_environment *environment)
{
    if (environment == NULL)
        return;
    lk__exits_fini(&environment->exits);
    lk__mem_free(environment->list);
    lk__mem_free(environment);
}

char **lk__environment_rank(lk_environment *e, int index)
{
    size_t count = e->inherited;
    char number[NUMBER_BYTES];
    for (int i = 0; i < VARIABLES; i++) {
        const char *text = value_text(e->opts, variables[i].value, index, number);
        if (text == NULL)
            continue;
        snprintf(e->ours[i], VARIABLE_BYTES, "%s=%s", variables[i].name, text);
        e->list[count++] = e->ours[i];
    }
    if (*e->exits.text) {
        snprintf(e->ours[VARIABLES], VARIABLE_BYTES, LK_EXITS_VARIABLE "=%s", e->exits.text);
        e->list[count++] = e->ours[VARIABLES];
    }
    e->list[count] = NULL;
    return e->list;
}

void lk__environment_exited(const lk_environment *e, int index)
{
    lk__exits_note(&e->exits, e->opts->first_rank + index);
}
