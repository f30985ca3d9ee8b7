/* gnuplot.c - runs gnuplot. The script goes to its stdin and the picture comes from its stdout: no file name is ever
 * part of a script. */
#include <stdlib.h>
#include <string.h>

#include "base/child.h"
#include "base/file.h"
#include "cli/plot/draw.h"

/* Seconds; gnuplot needs less than one. */
enum { TIMEOUT = 120 };

/* The formats with the command that chooses them; %f is for width and height in pixels. PNG has twice the pixels,
 * so that letters are sharp; a point of PDF is 3/4 of a pixel. */
static const struct {
    const char *ending, *terminal;
} formats[] = {
    {".svg", "set terminal svg size %.0f,%.0f noenhanced font 'sans-serif,12' background rgb 'white'\n"},
    {".png", "W = %f\nH = %f\nset terminal pngcairo size 2 * W,2 * H noenhanced font 'sans-serif,11' fontscale 2 "
             "linewidth 2 pointscale 2 background rgb 'white'\n"},
    {".pdf", "W = %f\nH = %f\nset terminal pdfcairo size W / 96,H / 96 noenhanced font 'sans-serif,9' linewidth 1 "
             "pointscale .7 background rgb 'white'\n"},
};

static lk_status find_format(const char *path, const char **terminal)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (lk__path_ends_with(path, formats[i].ending)) {
            *terminal = formats[i].terminal;
            return LK_OK;
        }
    return lk__fail(LK_STATUS_USAGE, "a picture's name ends in .svg, .png or .pdf, and '%s' does not", path);
}

/* -d: no settings of the user. */
static lk_status run(const char *script, size_t bytes, lk_child_output *out)
{
    char *const argv[] = {"gnuplot", "-d", NULL};
    lk_status status = lk__child_run(argv, script, bytes, TIMEOUT, out);
    if (status == LK_STATUS_NOT_FOUND)
        return lk__fail(LK_STATUS_UNSUPPORTED, "pictures are drawn by gnuplot, which is not installed: its package is "
                                               "gnuplot-nox, or gnuplot; 'lockstep report' needs none");
    return status;
}

static lk_status draw(const char *script, size_t bytes, const char *path)
{
    lk_child_output output;
    LK_TRY(run(script, bytes, &output));
    lk_status status = LK_OK;
    if (output.status != 0 || output.out_bytes == 0)
        status = lk__fail(LK_STATUS_IO, "gnuplot could not draw %s: it ended with status %d and said: %s", path,
                          output.status, lk__child_last_words(&output));
    else if (lk__path_ends_with(path, ".svg"))
        output.out_bytes = lk__plot_squeeze((char *)output.out, output.out_bytes);
    if (status == LK_OK)
        status = lk__file_replace(path, output.out, output.out_bytes);
    lk__child_output_free(&output);
    return status;
}

lk_status lk__plot_can_draw(const char *path)
{
    const char *terminal;
    lk_child_output output;
    LK_TRY(find_format(path, &terminal));
    LK_TRY(run("", 0, &output));
    lk__child_output_free(&output);
    return LK_OK;
}

lk_status lk__plot_draw(const lk_plot_figure *figure, const char *path)
{
    const char *terminal = NULL;
    char *script = NULL;
    size_t bytes = 0;
    LK_TRY(find_format(path, &terminal));
    FILE *stream = open_memstream(&script, &bytes);
    if (!stream)
        return lk__fail_memory(0, "script of gnuplot");
    lk__plot_script(figure, terminal, stream);
    lk_status status = fclose(stream) == 0 ? draw(script, bytes, path) : lk__fail_memory(bytes, "script of gnuplot");
    free(script);
    return status;
}
