/* run.c - `lockstep run`: runs any program as the ranks of a job. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/job/launch.h"
#include "launch/executable.h"

/* torchrun adds python before a script; here the line is run as it is. */
static lk_status check_script(const char *program)
{
    size_t length = strlen(program);
    bool script = length > 3 && strcmp(program + length - 3, ".py") == 0;
    if (script && access(program, F_OK) == 0 && access(program, X_OK) != 0)
        return lk__fail(LK_STATUS_USAGE, "run: %s is not executable; write 'lockstep run [options] python3 %s'",
                        program, program);
    return LK_OK;
}

/* Refuses a command of this program without the program's name. */
static lk_status check_command(const lk_args *args)
{
    char path[LK_EXECUTABLE_BYTES];
    const char *program = args->run.program[0];
    const lk_command *command = lk__command_list(0);
    for (size_t i = 0; command && strcmp(command->name, program) != 0;)
        command = lk__command_list(++i);
    if (!command || lk__executable_find(program, path) == LK_OK)
        return LK_OK;
    bool train = command->bit == LK_CMD_TRAIN;
    return lk__fail(LK_STATUS_USAGE,
                    "run: there is no program '%s'; for this program's own command write 'lockstep run -n %s lockstep "
                    "%s'%s%s%s",
                    program, args->run.nproc, program, train ? ", or 'lockstep train -n " : "",
                    train ? args->run.nproc : "", train ? "'" : "");
}

static lk_status read_options(const lk_args *args, char *method, size_t bytes, lk_launch_opts *out)
{
    const char *endpoint = args->run.rdzv_endpoint;
    LK_TRY(lk__cli_launch_options("run", args, out));
    LK_TRY(check_script(args->run.program[0]));
    LK_TRY(check_command(args));
    out->argv = args->run.program;
    /* torchrun's endpoint may have no port. */
    if (endpoint && !strchr(endpoint, ':')) {
        out->master_addr = endpoint;
    } else if (endpoint) {
        snprintf(method, bytes, "tcp://%s", endpoint);
        out->init_method = method;
    }
    return LK_OK;
}

int lk__cmd_run(lk_args *args)
{
    lk_launch_opts opts;
    char method[LK_LAUNCH_HOST + 16];
    lk_status status = read_options(args, method, sizeof method, &opts);
    return status == LK_OK ? lk__cli_launch("run", &opts) : lk__cli_fail(status);
}
