/* draw.h - draws figures: by gnuplot into a file, or as SVG inside a web page. */
#ifndef LK_CLI_PLOT_DRAW_H
#define LK_CLI_PLOT_DRAW_H

#include <stdio.h>

#include "cli/plot/figure.h"

/* Draws the figure by gnuplot; the ending of path (.svg, .png, .pdf) chooses the format. USAGE for another ending;
 * UNSUPPORTED if gnuplot is not installed. The file is replaced as a whole or not at all. */
lk_status lk__plot_draw(const lk_plot_figure *figure, const char *path) LK_CHECKED;
/* The same checks, without drawing. */
lk_status lk__plot_can_draw(const char *path) LK_CHECKED;

/* Writes gnuplot's script for a terminal, a row of the table in gnuplot.c. */
void lk__plot_script(const lk_plot_figure *figure, const char *terminal, FILE *out);

/* Removes from gnuplot's SVG what does not change the picture; returns the bytes that are left. */
size_t lk__plot_squeeze(char *svg, size_t bytes);

/* Writes a panel of the figure as an <svg> element. Its colours are the classes k0 to k7 in the CSS of html.c. */
void lk__plot_svg(const lk_plot_figure *figure, const lk_plot_panel *panel, FILE *out);

/* Writes a page with the results, options, differences and curves of the runs. */
lk_status lk__plot_html(const lk_record_runs *runs, const lk_plot_figure *figure, FILE *out) LK_CHECKED;
/* Writes the page into a file, which is replaced as a whole or not at all. */
lk_status lk__plot_report(const lk_record_runs *runs, const lk_plot_figure *figure, const char *path) LK_CHECKED;

/* Writes text with what HTML and SVG need escaped; characters that cannot be printed become '?'. */
void lk__plot_escape(const char *text, FILE *out);

#endif
