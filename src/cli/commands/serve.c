/* serve.c - `lockstep serve`: the live page of a folder, until a signal. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/job/live.h"

/* A wrong name is found here; while the page is open, the folder may vanish and return. */
static lk_status check_folder(const char *folder)
{
    DIR *opened = opendir(folder);
    if (!opened)
        return lk__fail(lk__status_of(errno),
                        "cannot open the folder %s: %s; give the folder of `lockstep train --log-dir`", folder,
                        strerror(errno));
    closedir(opened);
    return LK_OK;
}

int lk__cmd_serve(lk_args *args)
{
    const lk_serve_opts opts = {.folder = args->words[0], .host = args->host, .port = args->port};
    lk_serve *serve;
    lk_status status = check_folder(opts.folder);
    if (status != LK_OK)
        return lk__cli_fail(status);
    lk__live_yield();
    lk__live_block(true);
    status = lk__serve_start(&opts, &serve);
    if (status != LK_OK)
        return lk__cli_fail(status);
    printf("Live page: %s\n", lk__serve_address(serve));
    fflush(stdout);
    lk__live_await(true);
    lk__serve_stop(serve);
    return LK_EXIT_DONE;
}
