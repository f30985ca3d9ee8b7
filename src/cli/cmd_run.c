/* cmd_run.c - `lockstep run`: reads the options, and says how the job ended. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/pool.h"
#include "base/spec.h"
#include "cli/cli.h"
#include "comm/transport.h"
#include "launch/run.h"

/* A line on stderr. */
static void print_notice(void *arg, const char *text)
{
    (void)arg;
    fprintf(stderr, "lockstep run: %s\n", text);
}

static void print_verdict(const lk_verdict *verdict)
{
    char text[LK_MESSAGE_TEXT + 256];
    lk__verdict_text(verdict, text, sizeof text);
    print_notice(NULL, text);
    const char *tail = verdict->cause.tail;
    if (verdict->outcome != LK_OUTCOME_FAILED || !*tail)
        return;
    fprintf(stderr, "its last lines of stderr:\n");
    while (*tail) {
        int length = (int)strcspn(tail, "\n");
        fprintf(stderr, "    %.*s\n", length, tail);
        tail += length + (tail[length] == '\n');
    }
}

static void print_failed(void *arg, const lk_verdict *verdict, int restart)
{
    const lk_args *args = arg;
    char text[64];
    print_verdict(verdict);
    snprintf(text, sizeof text, "restart %d of %d", restart + 1, args->run.max_restarts);
    print_notice(NULL, text);
}

static lk_status read_nproc(const char *text, int *out)
{
    long long count;
    if (strcmp(text, "auto") == 0 || strcmp(text, "cpu") == 0) {
        *out = lk__cores();
        return LK_OK;
    }
    if (strcmp(text, "gpu") == 0)
        return lk__fail(LK_STATUS_USAGE,
                        "run: --nproc-per-node gpu counts GPUs, of which this build knows none; give a number or auto");
    if (!lk__parse_int(text, 1, LK_MAX_NPROC, &count))
        return lk__fail(LK_STATUS_USAGE, "run: --nproc-per-node '%s' must be auto or a whole number from 1 to %d", text,
                        LK_MAX_NPROC);
    *out = (int)count;
    return LK_OK;
}

/* Several ways to say where nodes meet, of which one may be used. */
static lk_status check_place(const lk_run_args *run)
{
    bool address = run->master_addr || run->master_port;
    const char *other = run->init_method ? "--init-method" : "--rdzv-endpoint";
    if (run->init_method && run->rdzv_endpoint)
        return lk__fail(LK_STATUS_USAGE, "run: --init-method and --rdzv-endpoint both say where nodes meet; give one");
    bool file = run->init_method && strncmp(run->init_method, "file://", 7) == 0;
    if (address && !file && (run->init_method || run->rdzv_endpoint))
        return lk__fail(LK_STATUS_USAGE,
                        "run: --master-addr or --master-port and %s both say where nodes meet; give one", other);
    return LK_OK;
}

static lk_status check_nodes(const lk_run_args *run)
{
    if (run->standalone && run->nnodes > 1)
        return lk__fail(LK_STATUS_USAGE, "run: --standalone and --nnodes %d contradict each other; give one",
                        run->nnodes);
    if (run->nnodes > 1 && !run->node_rank_given)
        return lk__fail(LK_STATUS_USAGE, "run: --nnodes %d needs --node-rank, from 0 to %d, another one on each node",
                        run->nnodes, run->nnodes - 1);
    if (run->node_rank >= run->nnodes)
        return lk__fail(LK_STATUS_USAGE, "run: --node-rank %d must be below --nnodes %d", run->node_rank, run->nnodes);
    return LK_OK;
}

/* torchrun puts python before a script; here the line is what is run. */
static lk_status check_script(const char *program)
{
    size_t length = strlen(program);
    bool script = length > 3 && strcmp(program + length - 3, ".py") == 0;
    if (script && access(program, F_OK) == 0 && access(program, X_OK) != 0)
        return lk__fail(LK_STATUS_USAGE, "run: %s is not executable; write 'lockstep run [options] python3 %s'",
                        program, program);
    return LK_OK;
}

static lk_status read_options(lk_args *args, char *method, size_t bytes, lk_run_opts *out)
{
    const lk_run_args *run = &args->run;
    LK_TRY(check_place(run));
    LK_TRY(check_nodes(run));
    LK_TRY(check_script(run->program[0]));
    if (args->backend) {
        const lk_transport_type *known;
        LK_TRY(lk__transport_find(args->backend, &known));
    }
    *out = (lk_run_opts){
        .nnodes = run->nnodes,
        .node_rank = run->node_rank,
        .init_method = run->init_method,
        .master_addr = run->master_addr,
        .master_port = run->master_port,
        .max_restarts = run->max_restarts,
        .bind = run->bind == 0 ? LK_BIND_NONE : LK_BIND_CORE,
        .log_dir = run->log_dir,
        .timeout = run->timeout,
        .backend = args->backend,
        .argv = run->program,
        .notice = print_notice,
        .failed = print_failed,
        .arg = args,
    };
    /* torchrun's endpoint may go without a port. */
    if (run->rdzv_endpoint && !strchr(run->rdzv_endpoint, ':')) {
        out->master_addr = run->rdzv_endpoint;
    } else if (run->rdzv_endpoint) {
        snprintf(method, bytes, "tcp://%s", run->rdzv_endpoint);
        out->init_method = method;
    }
    return read_nproc(run->nproc, &out->nproc);
}

int lk__cmd_run(lk_args *args)
{
    lk_run_opts opts;
    lk_verdict verdict;
    char method[LK_MEET_HOST + 16];
    lk_status status = read_options(args, method, sizeof method, &opts);
    if (status == LK_OK)
        status = lk__run(&opts, &verdict);
    if (status != LK_OK)
        return lk__cli_fail(status);
    /* A reader that closed its end has seen enough. */
    bool unread = verdict.outcome == LK_OUTCOME_INTERRUPTED && verdict.signal == SIGPIPE;
    if (verdict.outcome != LK_OUTCOME_DONE && !unread)
        print_verdict(&verdict);
    return lk__verdict_exit(&verdict);
}
