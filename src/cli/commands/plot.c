/* plot.c - `lockstep plot` and `lockstep report`: runs as a picture or as a page. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "cli/plot/draw.h"

static void warn_skipped(void *arg)
{
    (void)arg;
    fprintf(stderr, "lockstep: warning: %s; this run is left out\n", lk__args_spell(lk_error_detail()));
}

static lk_status draw_picture(const lk_record_runs *runs, const lk_plot_figure *figure, const char *path)
{
    if (!figure->panel_count)
        return lk__fail(LK_STATUS_FORMAT, "nothing to draw: %s%s yet; train writes one every `log_interval` steps",
                        runs->count == 1 ? lk__record_folder(runs->records[0]) : "none of the runs",
                        runs->count == 1 ? " has no row" : " has a row");
    return lk__plot_draw(figure, path);
}

/* The folder of path must exist. It is not created, because the path may be mistyped. */
static lk_status check_folder(const char *path)
{
    char folder[LK_PATH_BYTES];
    struct stat info;
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path)
        return LK_OK;
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    if (stat(folder, &info) != 0)
        return lk__fail(LK_STATUS_USAGE, "-o %s: folder '%s': %s; create it first", path, folder, strerror(errno));
    return LK_OK;
}

typedef lk_status (*draw_fn)(const lk_record_runs *runs, const lk_plot_figure *figure, const char *path);

static lk_status draw(const lk_args *args, draw_fn write)
{
    lk_record_runs *runs;
    lk_plot_figure *figure = NULL;
    LK_TRY(check_folder(args->output));
    LK_TRY(lk__record_runs_open(args->words, args->word_count, warn_skipped, NULL, &runs));
    lk_status status = lk__plot_figure_create(runs, &figure);
    if (status == LK_OK)
        status = write(runs, figure, args->output);
    if (status == LK_OK)
        printf("%s: %zu run%s\n", args->output, runs->count, runs->count == 1 ? "" : "s");
    lk__plot_figure_destroy(figure);
    lk__record_runs_close(runs);
    return status;
}

int lk__cmd_plot(lk_args *args)
{
    lk_status status = lk__plot_can_draw(args->output);
    if (status == LK_OK)
        status = draw(args, draw_picture);
    return status == LK_OK ? LK_EXIT_DONE : lk__cli_fail(status);
}

int lk__cmd_report(lk_args *args)
{
    lk_status status = LK_OK;
    if (strcmp(args->output, "-") == 0)
        status = lk__fail(LK_STATUS_USAGE, "report: a page is a file, and '-' names none; write -o report.html");
    if (status == LK_OK)
        status = draw(args, lk__plot_report);
    return status == LK_OK ? LK_EXIT_DONE : lk__cli_fail(status);
}
